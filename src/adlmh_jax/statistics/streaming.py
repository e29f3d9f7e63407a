"""Statistics that ride along with the chains: small states with ``init`` and ``update``.

They let a run of any length keep no draws at all.
"""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.statistics.tally import Tally, tally_add, tally_total, tally_zeros
from adlmh_jax.types import Array

BATCH = 64  # draws whose mean is one batch mean
NUM_BINS = 32  # of the histogram of integer outputs: values 0 to 31


class Tallies(NamedTuple):
    """How often each component was selected, accepted and invalid, in steps of chains, ``[N]``.

    These are apart from the counts of rewards: the paper shows both.
    """

    selected: Tally
    accepted: Tally
    invalid: Tally


def init_tallies(num_components: int) -> Tallies:
    """Start all counts at zero."""
    return Tallies(*(tally_zeros((num_components,)) for _ in Tallies._fields))


def update_tallies(tallies: Tallies, selected: Array, accepted: Array, invalid: Array) -> Tallies:
    """Count the steps of an epoch."""
    return Tallies(
        tally_add(tallies.selected, selected),
        tally_add(tallies.accepted, accepted),
        tally_add(tallies.invalid, invalid),
    )


class Moments(NamedTuple):
    """Number of values, their mean, and the sum of squared deviations from it."""

    number: Array
    mean: Array
    squares: Array


def init_moments(shape: tuple[int, ...]) -> Moments:
    """Return the moments of no values."""
    return Moments(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def merge_moments(first: Moments, second: Moments) -> Moments:
    """Return the moments of both sets of values (Chan, Golub and LeVeque, 1979)."""
    number = first.number + second.number
    share = second.number / (number + (number == 0))
    step = second.mean - first.mean
    return Moments(
        number,
        first.mean + step * share,
        first.squares + second.squares + step**2 * first.number * share,
    )


def add_value(moments: Moments, value: Array) -> Moments:
    """Return the moments with one value more."""
    return merge_moments(moments, Moments(jnp.ones(()), value, jnp.zeros_like(value)))


class Statistics(NamedTuple):
    """Running statistics of the outputs of each chain.

    Attributes
    ----------
    num_draws
        Draws seen.
    batch
        Moments of the draws of the unfinished batch, ``[K, C]``.
    total
        Moments of the draws of finished batches: sums of few numbers at a time stay exact.
    between
        Moments of the means of finished batches, for Monte Carlo errors.
    histogram
        Of the outputs rounded to integers, over all chains, ``[K, bins]``.
    """

    num_draws: Array
    batch: Moments
    total: Moments
    between: Moments
    histogram: Tally


def init_statistics(num_outputs: int, num_chains: int) -> Statistics:
    """Return the statistics of no draws."""
    empty = init_moments((num_outputs, num_chains))
    histogram = tally_zeros((num_outputs, NUM_BINS))
    return Statistics(
        num_draws=jnp.zeros((), jnp.int32),
        batch=empty,
        total=empty,
        between=empty,
        histogram=histogram,
    )


def update_statistics(statistics: Statistics, outputs: Array, max_draws: Array) -> Statistics:
    """Take in a draw of the outputs ``[K, C]``, unless ``max_draws`` have been seen already."""
    batch = add_value(statistics.batch, outputs)
    is_full = batch.number >= BATCH
    mean = Moments(jnp.ones(()), batch.mean, jnp.zeros_like(batch.mean))
    empty = jax.tree.map(jnp.zeros_like, batch)
    bins = jnp.arange(NUM_BINS, dtype=outputs.dtype)
    seen = jnp.sum(outputs[:, None, :] == bins[:, None], axis=-1)
    total, between = statistics.total, statistics.between
    updated = Statistics(
        num_draws=statistics.num_draws + 1,
        batch=_choose(is_full, empty, batch),
        total=_choose(is_full, merge_moments(total, batch), total),
        between=_choose(is_full, merge_moments(between, mean), between),
        histogram=tally_add(statistics.histogram, seen),
    )
    return _choose(statistics.num_draws < max_draws, updated, statistics)


def _choose(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


class Summary(NamedTuple):
    """Statistics of a run on the host; the first axis of arrays is the chain.

    Attributes
    ----------
    num_draws
        Draws of each chain.
    mean, variance
        ``[chain, K]``.
    batch_variance
        Variance of the means of batches of `BATCH` draws, ``[chain, K]``; NaN for less than two.
    histogram
        How often each output was 0, 1, ..., over all chains, ``[K, bins]``.
    """

    num_draws: int
    mean: np.ndarray
    variance: np.ndarray
    batch_variance: np.ndarray
    histogram: np.ndarray

    @property
    def standard_error(self) -> np.ndarray:
        """Monte Carlo standard error of the mean over all chains, by batch means, ``[K]``."""
        num_chains = self.mean.shape[0]
        within = np.mean(self.batch_variance, axis=0) * BATCH / self.num_draws
        return np.sqrt(within / num_chains)


def summarise(statistics: Statistics) -> Summary:
    """Bring statistics ``[S, ...]`` of all superchains to the host."""
    mean, variance = moments_of_chains(statistics.total, statistics.batch)
    num_batches = np.asarray(statistics.between.number)[:, None, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        between = np.asarray(statistics.between.squares, np.float64) / (num_batches - 1)
    between = np.where(num_batches > 1, between, np.nan)
    return Summary(
        num_draws=int(np.max(np.asarray(statistics.num_draws))),
        mean=_by_chain(mean),
        variance=_by_chain(variance),
        batch_variance=_by_chain(between),
        histogram=tally_total(statistics.histogram).sum(axis=0),
    )


def moments_of_chains(total: Moments, batch: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of each chain on the host, ``[S, K, C]``, in double precision."""
    merged = merge_moments(_on_host(total), _on_host(batch))
    count, mean, squares = (np.asarray(leaf, np.float64) for leaf in merged)
    with np.errstate(invalid="ignore", divide="ignore"):
        return mean, squares / (count - 1)


def _on_host(moments: Moments) -> Moments:
    """Return the moments of all superchains as NumPy arrays, the numbers ``[S, 1, 1]``."""
    number, mean, squares = (cast(Array, np.asarray(leaf)) for leaf in moments)
    return Moments(number[:, None, None], mean, squares)


def _by_chain(array: np.ndarray) -> np.ndarray:
    """Turn ``[S, K, C]`` into ``[chain, K]``."""
    return np.moveaxis(array, 1, 2).reshape(-1, array.shape[1])
