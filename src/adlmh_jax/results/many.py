"""The results of many data sets: a sequence of `Result`, and tables over all of them."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import jax
import numpy as np

from adlmh_jax.engine import Done, Draws, Engine, RunConfig, to_host
from adlmh_jax.results.collect import gather, join_draws, warn_if_invalid
from adlmh_jax.results.precision import warn_if_imprecise
from adlmh_jax.results.result import Result
from adlmh_jax.results.verdict import ConvergenceWarning, Verdict
from adlmh_jax.statistics import Summary, nested_r_hats, summarise, tally_total
from adlmh_jax.warning import warn_user

DATASET = "dataset"
MAX_NESTED_R_HAT = 1.05  # of running means: beyond it, a data set is doubtful


@dataclass(frozen=True, repr=False)
class Results(Sequence[Result]):
    """What `sample_many` gives back: a `Result` for each data set, made when it is asked for.

    Attributes
    ----------
    engine
        What was run.
    config
        The settings of the whole run; `each` has those of a data set.
    each
        The settings of the run of a data set.
    names
        What was kept of each draw.
    dataset_names
        What the data sets are called: their numbers, unless they have names.
    seeds
        The key of each data set as one integer.
    recorded
        The draws of all data sets, ``[chain, draw, ...]``.
    done
        The end of the run.
    seconds
        How long warm-up and sampling took.
    """

    engine: Engine
    config: RunConfig
    each: RunConfig
    names: tuple[str, ...]
    dataset_names: tuple[Any, ...]
    seeds: tuple[int, ...]
    recorded: Draws
    done: Done
    seconds: float
    _continue: Callable[["Results", int], "Results"] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """Return the number of data sets."""
        return len(self.seeds)

    @overload
    def __getitem__(self, index: int) -> Result: ...

    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...

    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        """Return the result of a data set, or a list of them."""
        if isinstance(index, slice):
            return [self._of_dataset(number) for number in range(len(self))[index]]
        return self._of_dataset(range(len(self))[index])

    def __iter__(self) -> Iterator[Result]:
        """Go through the results of all data sets."""
        return map(self._of_dataset, range(len(self)))

    def __repr__(self) -> str:
        """Return the sizes of the run."""
        return (
            f"Results of {len(self)} data sets, each with {self.num_draws} draws of "
            f"{self.each.num_chains} chains in {self.each.superchains} superchains: "
            f"{', '.join(self.names) or 'none kept'}"
        )

    def __reduce__(self) -> Any:
        """Refuse to be pickled: compiled code cannot be."""
        raise TypeError(
            "`Results` cannot be pickled, because they hold the model: save the draws with "
            "`results.to_arviz().to_netcdf(path)`, or the whole run with "
            "`sample_many(..., store=...)`."
        )

    @property
    def num_draws(self) -> int:
        """Number of recorded draws of each chain."""
        return self._statistics.num_draws

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """The draws by name, ``[data set, chain, draw, ...]``."""
        return {name: self._by_dataset(array) for name, array in self.recorded.values.items()}

    @property
    def log_density(self) -> np.ndarray:
        """Log joint density of each draw, ``[data set, chain, draw]``."""
        return self._by_dataset(self.recorded.log_density)

    def _by_dataset(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(len(self), -1, *array.shape[1:])

    @cached_property
    def _superchains(self) -> Any:
        """The state of all superchains on the host."""
        return to_host(self.done.state.superchains)

    @cached_property
    def _statistics(self) -> Summary:
        num_placed = len(self) * self.each.superchains
        statistics = self._superchains.statistics
        return summarise(jax.tree.map(lambda leaf: leaf[:num_placed], statistics))

    def _of_dataset(self, number: int) -> Result:
        size = self.each.superchains
        own = slice(number * size, (number + 1) * size)
        state = self.done.state
        state = state._replace(superchains=jax.tree.map(lambda leaf: leaf[own], self._superchains))
        log_density = self.recorded.log_density
        has_draws = bool(self.names)
        draws = Draws(
            {name: array[number] for name, array in self.draws.items()},
            self._by_dataset(log_density)[number] if has_draws else log_density,
        )
        engine = self.engine._replace(program=self.engine.program.of_dataset(number))
        done = self.done._replace(state=state, parts=[draws])
        result = gather(engine, self.names, self.seeds[number], self.each, done, self.seconds)
        return dataclasses.replace(result, _continue=_refuse_to_extend)

    def summary(self) -> Any:
        """Return a table with a row for each data set and output.

        A ``pandas.DataFrame`` with the columns of `Result.summary`.
        """
        import pandas

        from adlmh_jax.results.tables import Table

        each = {n: r.summary() for n, r in zip(self.dataset_names, self, strict=True)}
        return Table(pandas.concat(each, names=[DATASET, "output"]))

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Whether the run of each data set has converged, as `Result.glance` says."""
        return [result.glance().verdict for result in self]

    def to_arviz(self) -> Any:
        """Return the draws of all data sets as one ArviZ data set, with a dimension ``dataset``.

        The groups ``posterior`` and ``sample_stats`` (log density ``lp``) have the dimensions
        ``dataset``, ``chain`` and ``draw``. ``results[i].to_arviz()`` has all groups of one of
        them.
        """
        from adlmh_jax.results.arviz import with_datasets

        arrays = {**self.draws, "lp": self.log_density}
        return with_datasets(self[0].to_arviz(), arrays, self.dataset_names)

    def extend(self, num_samples: int) -> "Results":
        """Make so many draws more for all data sets; as `Result.extend`."""
        if self._continue is None:
            raise ValueError("These `Results` were not made by `sample_many`.")
        return self._continue(self, num_samples)

    def warn_if_doubtful(self) -> None:
        """Warn, once, of what is wrong: superchains disagree, by their running means, above all."""
        invalid = tally_total(self._superchains.entry_tallies.invalid)[: len(self._owners)]
        where = f" in {self._some(np.unique(self._owners[invalid.any(axis=1)]))}"
        warn_if_invalid(invalid.sum(axis=0), self.engine.entry_names, where)
        warn_if_imprecise(dict(self[0].imprecise))
        if self.each.superchains < 2:
            return
        doubtful = np.flatnonzero(self._nested_r_hats() > MAX_NESTED_R_HAT)
        if doubtful.size:
            warn_user(
                f"{doubtful.size} of {len(self)} data sets have not converged: superchains "
                f"disagree ({self._some(doubtful)}). Print `results[{doubtful[0]}].diagnose()` for "
                "reasons and remedies; `results.verdicts` looks at each of them.",
                ConvergenceWarning,
            )

    @property
    def _owners(self) -> np.ndarray:
        """The data set of each superchain."""
        return np.repeat(np.arange(len(self)), self.each.superchains)

    def _some(self, numbers: np.ndarray) -> str:
        """Name the first few of some data sets."""
        some = ", ".join(str(self.dataset_names[number]) for number in numbers[:8])
        return f"data set {some}" + (", …" if len(numbers) > 8 else "")

    def _nested_r_hats(self) -> np.ndarray:
        """Return the largest nested R-hat of an output for each data set, from moments, ``[D]``."""
        shape = (len(self), self.each.superchains, self.each.chains_each, -1)
        moments = (self._statistics.mean, np.nan_to_num(self._statistics.variance))
        hats = nested_r_hats(*(np.moveaxis(part.reshape(shape), -1, 1) for part in moments))
        return np.max(np.nan_to_num(hats, nan=1.0), axis=-1)


def _refuse_to_extend(result: Result, num_samples: int) -> Result:
    """Say that the run of one data set cannot go on alone."""
    del result, num_samples
    raise ValueError(
        "The data sets of `sample_many` go on together: `results.extend(n)` makes n more draws for "
        "all of them."
    )


def collect_many(
    engine: Engine,
    names: Sequence[str],
    dataset_names: Sequence[Any],
    seeds: Sequence[int],
    each: RunConfig,
    config: RunConfig,
    done: Done,
    seconds: float,
) -> Results:
    """Put together what a run of many data sets leaves behind; its parts are used up."""
    each = dataclasses.replace(each, num_samples=config.num_samples)
    recorded = join_draws(done.parts, names)
    return Results(
        engine=engine,
        config=config,
        each=each,
        names=tuple(names),
        dataset_names=tuple(dataset_names),
        seeds=tuple(seeds),
        recorded=recorded,
        done=done._replace(parts=[]),
        seconds=seconds,
    )
