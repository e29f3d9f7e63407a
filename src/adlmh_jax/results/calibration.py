"""Whether a sampler is calibrated: ranks of what data were made with among the draws given them."""

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import binom

NUM_SIMULATED = 10_000  # sets of uniform ranks
LEVEL = 0.01  # of the verdict, over all quantities


@dataclass(frozen=True, repr=False)
class Calibration:
    """What `sbc` gives back.

    Attributes
    ----------
    ranks
        By quantity, ``[D]``: how many of the draws given a data set are less than what it was made
        with; from 0 to ``num_draws``, uniform if all is well. Ties are broken at random.
    num_draws
        Draws that were ranked with, of each data set.
    """

    ranks: dict[str, np.ndarray]
    num_draws: int

    def __repr__(self) -> str:
        """Return the verdict, and the quantities."""
        return f"{self.headline}\n{self.summary()}"

    @cached_property
    def p_values(self) -> dict[str, float]:
        """How often uniform ranks leave the bands of Säilynoja and others by as much, at least."""
        least = self._simulated
        found = {n: _extremity(ranks, self.num_draws) for n, ranks in self.ranks.items()}
        return {
            name: float(np.searchsorted(least, value, side="right") + 1) / (NUM_SIMULATED + 1)
            for name, value in found.items()
        }

    @cached_property
    def _simulated(self) -> np.ndarray:
        """What `_extremity` says of sets of uniform ranks, in order."""
        rng = np.random.default_rng(0)
        shape = (NUM_SIMULATED, self.num_datasets)
        simulated = rng.integers(0, self.num_draws + 1, size=shape)
        return np.sort([_extremity(row, self.num_draws) for row in simulated])

    @property
    def num_datasets(self) -> int:
        """Number of data sets."""
        return len(next(iter(self.ranks.values())))

    @cached_property
    def band(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and greatest number of ranks at or below 0, 1, ... of quantities that are fine.

        A quantity is suspect if its numbers leave this band anywhere.
        """
        num_outside = int(np.ceil(LEVEL / len(self.ranks) * (NUM_SIMULATED + 1))) - 1
        limit = self._simulated[num_outside - 1] if num_outside > 0 else 0.0
        is_inside = 2 * np.minimum(*_tails(self.num_datasets, self.num_draws)) >= limit
        return np.argmax(is_inside, axis=1), self.num_datasets - np.argmax(is_inside[:, ::-1], 1)

    def num_below(self, name: str) -> np.ndarray:
        """Return how many ranks of a quantity are at or below 0, 1, ..., ``num_draws`` - 1."""
        return np.cumsum(np.bincount(self.ranks[name], minlength=self.num_draws + 1))[:-1]

    @property
    def suspects(self) -> list[str]:
        """Quantities whose ranks are not uniform, at 1 % for all of them together."""
        level = LEVEL / len(self.ranks)
        return [name for name, value in self.p_values.items() if value < level]

    @property
    def is_calibrated(self) -> bool:
        """Whether no quantity is suspect."""
        return not self.suspects

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        if self.is_calibrated:
            return f"Calibrated, as far as {self.num_datasets} data sets can tell."
        return f"Not calibrated: the ranks of {', '.join(self.suspects)} are not uniform."

    def summary(self) -> Any:
        """Return a table: the p-value of each quantity, and the mean of its ranks in (0, 1)."""
        from adlmh_jax.results.tables import Table

        means = [np.mean(r + 0.5) / (self.num_draws + 1) for r in self.ranks.values()]
        columns = {"p_value": list(self.p_values.values()), "mean_rank": means}
        return Table(columns, index=list(self.ranks))


def _extremity(ranks: np.ndarray, num_draws: int) -> float:
    """Return the least probability, over all ranks, of as many or as few at or below it.

    This is what bands that are equally hard to leave everywhere are made of (Säilynoja, Bürkner and
    Vehtari, 2022).
    """
    below = np.cumsum(np.bincount(ranks, minlength=num_draws + 1))[:-1]
    low, high = _tails(len(ranks), num_draws)
    places = np.arange(num_draws)
    return float(2 * np.min(np.minimum(low[places, below], high[places, below])))


@functools.lru_cache(maxsize=4)
def _tails(number: int, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of at most, and of at least, so many at or below each rank."""
    chances = (np.arange(num_draws)[:, None] + 1) / (num_draws + 1)
    counts = np.arange(number + 1)
    return binom.cdf(counts, number, chances), binom.sf(counts - 1, number, chances)


def rank(truth: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the rank of each truth, ``[D]``, among the draws of its data set, ``[D, L]``."""
    below = np.sum(draws < truth[:, None], axis=1)
    ties = np.sum(draws == truth[:, None], axis=1)
    return below + rng.integers(0, ties + 1)
