"""What a run gives back."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from adlmh_jax.engine import RunState
from adlmh_jax.model import Program
from adlmh_jax.results.arviz import to_arviz
from adlmh_jax.results.diagnose import diagnose_run, measure, summarise_outputs, summarise_sites
from adlmh_jax.results.mixing import Mixing
from adlmh_jax.results.verdict import Diagnosis
from adlmh_jax.statistics import Summary

QUANTILES = (0.05, 0.5, 0.95)


class ScheduleReport(NamedTuple):
    """The schedule of each superchain at the end of the run, per component.

    Attributes
    ----------
    names
        Names of the schedule's entries: components, or blocks such as ``z[:]``.
    weights
        Selection probabilities of the entries, one row for each superchain.
    learned
        What the schedule learned about its entries, by name, one row for each superchain; nothing
        for a schedule that does not learn.
    selected, accepted, invalid
        Steps of chains in which the entry was selected, its proposal accepted with another value
        than before, and its density NaN or +inf; a block counts each of its components.
    race
        What else it learned, by name, one row for each superchain: of `influence`, the
        ``share_of_uniform`` in its weights (NaN if UCB's weights won) and the scores of the
        ``race`` that decided on it, of UCB's weights and of shares 0.1, 0.3, 0.5, 0.7 and 1: the
        variance of the outputs' means, in units in which less is better.
    rule
        How components were selected, as written by the user: ``"ucb(exploration=0.5, ...)"``.
    component_names, component_selected, component_accepted, component_invalid
        The same for the single components.
    stuck
        Names of components that never changed in some chains, which hold them at different values.
    drawn_exactly
        Sites that are drawn anew, exactly, whenever those that they hang on move: where one of them
        hardly changes, it is that certain.
    output_names
        Names of the scalar outputs.
    """

    names: list[str]
    weights: np.ndarray
    learned: Mapping[str, np.ndarray]
    selected: np.ndarray
    accepted: np.ndarray
    invalid: np.ndarray
    race: Mapping[str, np.ndarray] = MappingProxyType({})
    rule: str | None = None
    component_names: Sequence[str] = ()
    component_selected: np.ndarray = np.zeros(0)
    component_accepted: np.ndarray = np.zeros(0)
    component_invalid: np.ndarray = np.zeros(0)
    stuck: Sequence[str] = ()
    drawn_exactly: Collection[str] = ()
    output_names: Sequence[str] = ()

    @property
    def rewards(self) -> np.ndarray | None:
        """The paper's r; None for a schedule that has none."""
        return self.learned.get("rewards")

    @property
    def counts(self) -> np.ndarray | None:
        """The paper's c; None for a schedule that has none."""
        return self.learned.get("counts")

    @property
    def influence(self) -> np.ndarray | None:
        """What each entry explains of each output, ``[superchain, entry, output]``.

        It is the share of the output's variance, 0 where it cannot be told from noise; what several
        components explain is added up, and may be more than 1. Of more than 16 outputs there is
        only the mean. None for a schedule that does not ask.
        """
        return self.learned.get("influence")

    def drivers(self) -> Any:
        """Return what drives the outputs: a table of `influence`, the mean over superchains.

        Returns
        -------
        A ``pandas.DataFrame`` with a row for each entry and a column for each output.
        """
        if self.influence is None:
            raise ValueError(
                f"The schedule `{self.rule}` does not learn what drives the outputs: sample with "
                "`schedule=adlmh.influence()`."
            )
        import pandas

        columns = list(self.output_names)
        if len(columns) != self.influence.shape[-1]:
            columns = ["all outputs"]
        return pandas.DataFrame(self.influence.mean(axis=0), index=self.names, columns=columns)

    @property
    def rejected(self) -> np.ndarray:
        """Steps of chains whose proposal was rejected."""
        return self.selected - self.accepted


@dataclass(frozen=True)
class Result:
    """Draws, and how they were made.

    Attributes
    ----------
    draws
        By name, ``[chain, draw, ...]``; chains of a superchain are next to each other.
    log_density
        Log joint density of each draw, ``[chain, draw]``; empty if no draws were kept.
    schedule
        Weights, rewards, counts and tallies per component.
    superchain_of
        Superchain of each chain.
    config
        The settings of the run; its ``num_samples`` is more than there are draws if the run was
        interrupted.
    program
        The compiled model.
    state
        The chains at the end of the run.
    statistics
        Running statistics of the outputs, over all recorded draws whether kept or not.
    proposals
        How each site was moved, in words.
    seed
        The key of the run as one integer; None if not known.
    seconds
        How long warm-up and sampling took; None if not known.
    """

    draws: dict[str, np.ndarray]
    log_density: np.ndarray
    schedule: ScheduleReport
    superchain_of: np.ndarray
    config: Any
    program: Program
    state: RunState
    statistics: Summary
    proposals: dict[str, str]
    seed: int | None = None
    seconds: float | None = None
    _continue: Callable[["Result", int], "Result"] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Return the sizes of the run."""
        num_chains, num_draws = len(self.superchain_of), self.num_draws
        rate = self.schedule.accepted.sum() / max(1, self.schedule.selected.sum())
        return (
            f"Result with {num_draws} draws of {num_chains} chains in "
            f"{self.superchain_of.max() + 1} superchains: {', '.join(self.draws) or 'none kept'}; "
            f"acceptance rate {rate:.2f}"
        )

    def __reduce__(self) -> Any:
        """Refuse to be pickled: compiled code cannot be."""
        raise TypeError(
            "A `Result` cannot be pickled, because it holds the model: save its draws with "
            "`result.to_arviz().to_netcdf(path)`, or the whole run with `sample(..., store=...)`."
        )

    @property
    def num_draws(self) -> int:
        """Number of recorded draws of each chain."""
        return self.statistics.num_draws

    @property
    def num_superchains(self) -> int:
        """Number of superchains."""
        return len(self.schedule.selected)

    @property
    def _component_tallies(self) -> tuple[np.ndarray, np.ndarray]:
        return self.schedule.component_selected, self.schedule.component_accepted

    @cached_property
    def _mixing(self) -> dict[str, Mixing]:
        return measure(self.draws, self.num_superchains)

    def last_values(self) -> dict[str, np.ndarray]:
        """Return where the chains ended: the values of all latent sites, ``[chain, ...]``."""
        banks = {
            bank: np.concatenate(np.asarray(rows)[: self.num_superchains], axis=-1)
            for bank, rows in self.state.superchains.chains.latent.items()
        }
        values = self.program.latent_layout.unpack(banks)  # type: ignore[arg-type]
        return {name: np.asarray(value) for name, value in values.items()}

    def extend(self, num_samples: int) -> "Result":
        """Go on with the run and make more draws.

        The result is, bit for bit, that of a run that was asked for all draws at once. A run that
        has a ``store`` goes on there too.

        Parameters
        ----------
        num_samples
            How many draws **more**. (With ``sample(store=..., resume=True)`` it is how many in
            total.)

        Returns
        -------
        A new `Result` of the draws so far and the new ones; this one stays as it is.
        """
        if self._continue is None:
            raise ValueError("This `Result` was not made by `sample` and cannot be extended.")
        return self._continue(self, num_samples)

    def to_arviz(
        self,
        coords: Mapping[str, Any] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
        prior: bool | int = False,
        posterior_predictive: bool = False,
        log_likelihood: bool = False,
        seed: int = 0,
    ) -> Any:
        """Return the run as ArviZ data.

        Dimensions are named after the model's plates. The group ``sample_stats`` has the log
        density ``lp``, and for each chain its ``superchain`` and the superchain's
        ``acceptance_rate`` over the whole run.

        Parameters
        ----------
        coords, dims
            Further coordinate values, and names of dimensions by variable.
        prior
            Add groups ``prior`` and ``prior_predictive``; a number says of how many draws.
        posterior_predictive, log_likelihood
            Add these groups. Both need every latent site: sample with ``keep="all"``. The log
            likelihood has a number for every draw and observation.
        seed
            Of the predictive draws.

        Returns
        -------
        An ``arviz.InferenceData`` with ArviZ 0.x, an ``xarray.DataTree`` with ArviZ 1.x.
        """
        report = self.schedule
        rates = report.accepted.sum(axis=1) / np.maximum(1, report.selected.sum(axis=1))
        return to_arviz(
            self.program,
            self.draws,
            {
                "lp": self.log_density,
                "superchain": self.superchain_of,
                "acceptance_rate": rates[self.superchain_of],
            },
            self._attributes(),
            coords=coords,
            dims=dims,
            prior=prior,
            posterior_predictive=posterior_predictive,
            log_likelihood=log_likelihood,
            seed=seed,
        )

    def _attributes(self) -> dict[str, Any]:
        """Return the settings of the run as strings and numbers."""
        settings = {**asdict(self.config), "num_superchains": self.num_superchains}
        settings |= {"schedule": self.schedule.rule, "sampling_time": self.seconds}
        if self.seed is not None:
            settings["seed"] = str(self.seed)  # may have more bits than a file's integers
        return {name: value for name, value in settings.items() if value is not None}

    def summary(
        self, by: Literal["output", "site"] = "output", quantiles: Sequence[float] = QUANTILES
    ) -> Any:
        """Return a table of the outputs, or of how the sites were moved.

        Parameters
        ----------
        by
            ``"output"``: mean, sd, quantiles, Monte Carlo standard errors, effective numbers of
            draws, R-hat and nested R-hat (over superchains) of each scalar. ``"site"``: how often
            the components of a site were selected (per chain, on average) and accepted, and which
            of them moved least.
        quantiles
            Which quantiles of the outputs.

        Returns
        -------
        A ``pandas.DataFrame``.
        """
        if by == "site":
            return summarise_sites(self.program, *self._component_tallies, len(self.superchain_of))
        if by != "output":
            raise ValueError(f'`by` must be "output" or "site", got {by!r}.')
        self._require_draws()
        return summarise_outputs(self.draws, self._mixing, quantiles)

    def diagnose(self, max_values: int | None = None, max_outputs: int | None = None) -> Diagnosis:
        """Say in plain words, for each output, whether the run has converged.

        Parameters
        ----------
        max_values
            Where the draws have more values, look only at every second, third, ... draw: quicker,
            and hardly less sharp.
        max_outputs
            Where there are more scalar outputs, look only at some of them, evenly spread.

        Returns
        -------
        A `Diagnosis`: print it, or ask ``.verdict`` and ``.outputs``.
        """
        self._require_draws()
        is_thorough = max_values is None and max_outputs is None
        if is_thorough or "_mixing" in self.__dict__:
            mixing = self._mixing
        else:
            mixing = measure(self.draws, self.num_superchains, max_values, max_outputs)
        report = self.schedule
        return diagnose_run(
            self.program,
            mixing,
            self.draws,
            *self._component_tallies,
            stuck=report.stuck,
            drawn_exactly=report.drawn_exactly,
        )

    def _require_draws(self) -> None:
        if not self.draws:
            raise ValueError('The run kept no draws. Sample with `keep="outputs"` or "all".')
