"""What a run gives back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adlmh_jax.engine import Draws, RunState, to_host
from adlmh_jax.model import Program
from adlmh_jax.results import html
from adlmh_jax.results.advice import Ending
from adlmh_jax.results.arviz import spread_evenly, to_arviz
from adlmh_jax.results.diagnose import Tallies, diagnose_run, measure
from adlmh_jax.results.evidence import LogEvidence
from adlmh_jax.results.mixing import Mixing
from adlmh_jax.results.overview import plot_overview
from adlmh_jax.results.report import RunRecord, write_report
from adlmh_jax.results.schedule import ScheduleReport
from adlmh_jax.results.stragglers import describe_stragglers, find_stragglers
from adlmh_jax.results.verdict import ConvergenceWarning, Diagnosis
from adlmh_jax.statistics import Summary
from adlmh_jax.warning import warn_user

QUANTILES = (0.05, 0.5, 0.95)
MAX_VALUES, MAX_OUTPUTS = 1_000_000, 100  # that are looked at where nobody asked for a diagnosis


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
    log_evidence
        Logarithm of the probability of the data, from the annealed start; None if there was none,
        or if chains could not start at prior draws. With `factor`, relative to the prior.
    imprecise
        Sites whose log-probabilities single precision does not carry, and by how much they are off.
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
    log_evidence: LogEvidence | None = None
    imprecise: Mapping[str, float] = field(default_factory=dict)
    _continue: Callable[["Result", int], "Result"] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Return the sizes of the run."""
        rate = self.schedule.accepted.sum() / max(1, self.schedule.selected.sum())
        return (
            f"Result with {self.num_draws} draws of {self.num_chains} chains in "
            f"{self.num_superchains} superchains: {', '.join(self.draws) or 'none kept'}; "
            f"acceptance rate {rate:.2f}"
        )

    def _repr_html_(self) -> str:
        """Return sizes, verdict and table for a notebook; quick, however many draws there are."""
        parts = [html.paragraph(repr(self))]
        if self.draws:
            verdict = self.glance()
            parts.append(html.badge(verdict.headline, verdict.verdict.badness))
        num_values = sum(array.size for array in self.draws.values())
        if num_values <= MAX_VALUES or "_mixing" in self.__dict__:
            parts.append(self.summary()._repr_html_())
        else:
            parts.append(html.paragraph("`result.summary()` has the table of the outputs."))
        return html.section(*parts)

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
    def recorded(self) -> Draws:
        """The draws of all chains, and their log density."""
        return Draws(dict(self.draws), self.log_density)

    @property
    def num_superchains(self) -> int:
        """Number of superchains."""
        return len(self.schedule.selected)

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return len(self.superchain_of)

    @cached_property
    def _mixing(self) -> dict[str, Mixing]:
        return measure(self.draws, self.num_superchains)

    def last_values(self) -> dict[str, np.ndarray]:
        """Return where the chains ended: the values of all latent sites, ``[chain, ...]``."""
        latent = to_host(self.state.superchains.chains.latent)
        banks = {
            bank: np.concatenate(rows[: self.num_superchains], axis=-1)
            for bank, rows in latent.items()
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
        chains: int | None = None,
    ) -> Any:
        """Return the run as ArviZ data.

        Dimensions are named after the model's plates; ``superchain`` is a coordinate on ``chain``.
        The group ``sample_stats`` has the log density ``lp``, for each chain the
        ``acceptance_rate`` of its superchain over the whole run, and the schedule.

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
        chains
            Take only so many chains, evenly spread over the superchains: for plots that draw a line
            for each chain. Default: all.

        Returns
        -------
        An ``arviz.InferenceData`` with ArviZ 0.x, an ``xarray.DataTree`` with ArviZ 1.x.
        """
        self._require_draws("there is nothing to export")
        report = self.schedule
        rates = report.accepted.sum(axis=1) / np.maximum(1, report.selected.sum(axis=1))
        some = spread_evenly(self.num_chains, chains)
        owners = self.superchain_of[some]
        rate_of = rates[owners - self.superchain_of[0]]
        return to_arviz(
            self.program,
            {name: array[some] for name, array in self.draws.items()},
            {"lp": self.log_density[some], "acceptance_rate": rate_of},
            self._attributes(),
            chain_coords={"chain": some, "superchain": owners},
            schedule=report.as_arrays(),
            coords=coords,
            dims=dims,
            prior=prior,
            posterior_predictive=posterior_predictive,
            log_likelihood=log_likelihood,
            seed=seed,
        )

    def plot(self, outputs: Sequence[str] | None = None, max_outputs: int = 3) -> Any:
        """Show whether superchains agree, and what the schedule learned; for any number of chains.

        For each output a row: how the ranks of each superchain differ from those of all, with a
        band that holds all curves of 95 % of runs that have converged (Säilynoja, Bürkner and
        Vehtari, 2022), and the density of each superchain. Below, the schedule.

        Parameters
        ----------
        outputs
            Names of scalars, such as ``"theta[3]"``. Default: the worst.
        max_outputs
            How many of the worst.

        Returns
        -------
        A matplotlib figure.
        """
        if not self.draws:
            raise ValueError(
                'The run kept no draws to plot. Sample with `keep="outputs"` or "all".'
            )
        ranked = self.glance().ranked
        return plot_overview(
            self.draws,
            {output.name: output.mixing for output in ranked},
            outputs or [output.name for output in ranked[:max_outputs]],
            self.num_superchains,
            self.schedule,
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
        A ``pandas.DataFrame`` that prints all its columns. A run that kept no draws
        (``keep=()``) has one of its running statistics, which says what they cannot give.
        """
        from adlmh_jax.results import tables

        if by == "site":
            report = self.schedule
            tallies = report.component_selected, report.component_accepted
            return tables.summarise_sites(self.program, *tallies, self.num_chains)
        if by != "output":
            raise ValueError(f'`by` must be "output" or "site", got {by!r}.')
        if not self.draws:
            names = self.program.output_names
            return tables.summarise_statistics(names, self.statistics, self.num_superchains)
        return tables.summarise_outputs(self.draws, self._mixing, quantiles)

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
        self._require_draws("running statistics cannot tell whether it has converged")
        is_thorough = max_values is None and max_outputs is None
        if is_thorough or "_mixing" in self.__dict__:
            mixing = self._mixing
        else:
            mixing = measure(self.draws, self.num_superchains, max_values, max_outputs)
        report = self.schedule
        tallies = Tallies(
            selected=report.component_selected,
            accepted=report.component_accepted,
            stuck=report.stuck,
            settled=report.settled,
            drawn_exactly=report.drawn_exactly,
        )
        return diagnose_run(self.program, mixing, self.draws, tallies, self._ending)

    def glance(self) -> Diagnosis:
        """Diagnose some of the draws and outputs only: quick, however many there are."""
        return self.diagnose(MAX_VALUES, MAX_OUTPUTS)

    def warn_if_doubtful(self) -> None:
        """Warn, once, if the run cannot be trusted."""
        if not self.draws:
            return
        diagnosis = self.glance()
        if diagnosis.verdict != "converged":
            warn_user(
                f"{diagnosis.headline} Print `result.diagnose()` for reasons and remedies.",
                ConvergenceWarning,
            )

    def report(self, path: str | Path) -> None:
        """Write the run as one page of HTML that needs nothing else: verdict, table, figure.

        Parameters
        ----------
        path
            The file to write.
        """
        self._require_draws("there is nothing to report")
        record = RunRecord(
            title=getattr(self.program.call.model, "__name__", "model"),
            draws=self.draws,
            num_superchains=self.num_superchains,
            diagnosis=self.diagnose().as_dict(),
            schedule=self.schedule,
            settings={
                **self._attributes(),
                **{f"moves of {n}": t for n, t in self.proposals.items()},
            },
        )
        write_report(record, path)

    def _ending(self, acceptance: dict[str, float]) -> Ending:
        values = self.last_values()
        is_behind = find_stragglers(self.log_density, self.superchain_of)
        sites = self.program.sites.sites
        return Ending(
            values=values,
            stragglers=describe_stragglers(is_behind, self.log_density, sites, values),
            proposals=self.proposals,
            acceptance=acceptance,
            stuck=self.schedule.stuck,
            imprecise=self.imprecise,
        )

    def _require_draws(self, so: str) -> None:
        if not self.draws:
            raise ValueError(
                f'The run kept no draws, and {so}. Sample with `keep="outputs"` or "all".'
            )
