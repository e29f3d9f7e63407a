"""How well chains have mixed: effective sizes, R-hat, nested R-hat; one scalar, all chains at once.

The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021) and Margossian
et al. (2022), with ArviZ's numbers; written for tens of thousands of chains. Arrays are
``[chain, draw]``; those of half chains are ``[2 * chain, draw]``, all first halves in front.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
from scipy import stats
from scipy.special import ndtri

from adlmh_jax.statistics import nested_r_hats

MIN_DRAWS = 4  # two for each half of a chain
BATCH_VALUES = 1 << 21  # transformed at once: bounds the memory of a Fourier transform
BLOM = 3 / 8  # offset of ranks before they become normal scores (Blom, 1958)
TAIL = 0.05  # the tail effective size is that of the 5 % and 95 % quantiles


class Mixing(NamedTuple):
    """What the chains say about one scalar.

    Attributes
    ----------
    ess_bulk, ess_tail, ess_mean, ess_square
        Effective numbers of draws: of ranks, of the tails, of the mean, of the squared deviation.
    r_hat, nested_r_hat
        Of rank-normalised half chains, the larger of location and scale. NaN where they make no
        sense: constant or non-finite values, a single chain or superchain.
    drift
        Shift of all chains from their first halves to their second, in its standard errors.
    memory
        Correlation over chains of the means of first and second halves: 0 for chains much longer
        than their memory, 1 for chains that stay where they are.
    superchain_p
        P-value of equal superchain means, given how much chains within a superchain vary.
    shift, spread
        The drift, and the spread of superchain means, in standard deviations.
    num_still
        Chains in which the scalar never changes.
    is_constant
        Whether it has one value in all chains.
    """

    ess_bulk: float
    ess_tail: float
    ess_mean: float
    ess_square: float
    r_hat: float
    nested_r_hat: float
    drift: float
    memory: float
    superchain_p: float
    shift: float
    spread: float
    num_still: int
    is_constant: bool


def measure_mixing(draws: np.ndarray, num_superchains: int) -> Mixing:
    """Measure one scalar, ``[chain, draw]``; the chains of a superchain are next to each other."""
    num_still = int(np.sum(np.all(draws == draws[:, :1], axis=1)))
    is_constant = bool(np.all(draws == draws[0, 0]))
    halves = split_halves(draws)
    if draws.shape[1] < MIN_DRAWS or not np.all(np.isfinite(halves)):
        unknown = [np.nan] * (len(Mixing._fields) - 2)
        return Mixing._make([*unknown, num_still, is_constant])
    tails = (effective_size(split_halves(draws <= q)) for q in np.quantile(draws, [TAIL, 1 - TAIL]))
    squares = np.square(halves - np.mean(draws, dtype=float), dtype=float)
    bulk, folded = normal_scores(halves)
    views = [_HalfMeans.of(scores, num_superchains) for scores in (bulk, folded)]
    drifts, shifts = zip(*(view.drift() for view in views), strict=True)
    p_values, spreads = zip(*(view.disagreement() for view in views), strict=True)
    return Mixing(
        ess_bulk=effective_size(bulk),
        ess_tail=min(tails),
        ess_mean=effective_size(halves),
        ess_square=effective_size(squares),
        r_hat=_largest(view.r_hat() for view in views),
        nested_r_hat=_largest(view.nested_r_hat() for view in views),
        drift=_largest(drifts),
        memory=_largest(view.memory() for view in views),
        superchain_p=float(np.nanmin([1.0, *p_values])),
        shift=_largest(shifts),
        spread=_largest(spreads),
        num_still=num_still,
        is_constant=is_constant,
    )


def _largest(values: Iterable[float]) -> float:
    """Return the largest number, NaN only if there is none."""
    return max((float(value) for value in values if not np.isnan(value)), default=np.nan)


def r_hats_of_moments(
    means: np.ndarray, variances: np.ndarray, num_draws: int, num_superchains: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return R-hat and nested R-hat of whole chains, from their moments, ``[chain, K]``, alone.

    Neither halves nor ranks: for runs that kept no draws.
    """
    shape = (1, num_superchains, -1)
    views = [
        _HalfMeans(mean.reshape(shape), variance.reshape(shape), num_draws)
        for mean, variance in zip(means.T, variances.T, strict=True)
    ]
    return np.array([v.r_hat() for v in views]), np.array([v.nested_r_hat() for v in views])


def split_halves(draws: np.ndarray) -> np.ndarray:
    """Cut each chain in two; the middle draw of an odd number is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def normal_scores(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the normal scores of the ranks of values, and of their distances to the median.

    The second sort only merges: distances grow from the median to both sides.
    """
    order = np.argsort(values, axis=None)
    ordered = values.ravel()[order].astype(float)
    bulk = np.empty(values.size)
    bulk[order] = _scores_in_order(ordered)
    middle = np.median(ordered)
    num_below = int(np.searchsorted(ordered, middle))
    distances = np.concatenate([middle - ordered[:num_below][::-1], ordered[num_below:] - middle])
    merged = np.argsort(distances, kind="stable")
    order = np.concatenate([order[:num_below][::-1], order[num_below:]])[merged]
    folded = np.empty(values.size)
    folded[order] = _scores_in_order(distances[merged])
    return bulk.reshape(values.shape), folded.reshape(values.shape)


def _scores_in_order(ordered: np.ndarray) -> np.ndarray:
    """Return normal scores of sorted values; ties share their mean rank."""
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(is_first)
    counts = np.append(starts[1:], ordered.size) - starts
    ranks = starts + (counts + 1) / 2
    return np.repeat(ndtri((ranks - BLOM) / (ordered.size - 2 * BLOM + 1)), counts)


def autocovariance(chains: np.ndarray) -> np.ndarray:
    """Return the autocovariance at each lag, averaged over the chains.

    The average is taken before the transform back, of which there is then only one.
    """
    num_chains, num_draws = chains.shape
    size = scipy.fft.next_fast_len(2 * num_draws, real=True)
    power = np.zeros(size // 2 + 1)
    batch = max(1, BATCH_VALUES // size)
    for first in range(0, num_chains, batch):
        part = chains[first : first + batch].astype(float)
        transformed = scipy.fft.rfft(part - part.mean(axis=1, keepdims=True), size, axis=1)
        power += np.sum(transformed.real**2 + transformed.imag**2, axis=0)
    return scipy.fft.irfft(power / num_chains, size)[:num_draws] / num_draws


def effective_size(chains: np.ndarray) -> float:
    """Return how many independent draws would estimate the mean as well.

    Geyer's initial monotone sequence over the chains' common autocorrelations.
    """
    num_chains, num_draws = chains.shape
    if np.all(chains == chains[0, 0]):
        return float(chains.size)
    covariance = autocovariance(chains)
    within = covariance[0] * num_draws / (num_draws - 1)
    total = covariance[0]
    if num_chains > 1:
        total = total + np.var(np.mean(chains, axis=1, dtype=float), ddof=1)
    correlation = 1 - (within - covariance) / total
    correlation[0] = 1.0
    # Sums of neighbours, as long as they are positive; the first that is not may count once.
    last = max(0, (num_draws - 1) // 2 - 1)
    pairs = correlation[: 2 * last + 2].reshape(-1, 2).sum(axis=1)
    is_end = pairs <= 0
    is_end[last] = True
    end = int(np.argmax(is_end))
    extra = correlation[2 * end] if pairs[end] >= 0 else max(0.0, correlation[2 * end])
    time = 2 * np.sum(np.minimum.accumulate(pairs[:end])) - 1 + extra
    return float(chains.size / max(time, 1 / np.log10(chains.size)))


class _HalfMeans(NamedTuple):
    """Means of half chains, ``[2, superchain, chain]``, and the mean of their variances."""

    means: np.ndarray
    variances: np.ndarray
    num_draws: int

    @classmethod
    def of(cls, halves: np.ndarray, num_superchains: int) -> "_HalfMeans":
        """Reduce half chains, whose superchains are next to each other."""
        shape = (2, num_superchains, -1)
        variances = np.var(halves, axis=1, ddof=1).reshape(shape)
        return cls(np.mean(halves, axis=1).reshape(shape), variances, halves.shape[1])

    def r_hat(self) -> float:
        """Compare the variance between half chains with that within them."""
        if self.means[0].size < 2:
            return np.nan
        ratio = _ratio(np.var(self.means, ddof=1), np.mean(self.variances))
        return np.sqrt(ratio + (self.num_draws - 1) / self.num_draws)

    def nested_r_hat(self) -> float:
        """Compare the variance between superchains with that within them."""
        if self.means.shape[1] < 2 or self.means[:, 0].size < 2:
            return np.nan
        by_superchain = (np.concatenate(list(part), axis=1) for part in self[:2])
        return float(nested_r_hats(*by_superchain))

    def drift(self) -> tuple[float, float]:
        """Return the common shift from first to second halves in standard errors, and itself."""
        shifts = (self.means[1] - self.means[0]).ravel()
        shift = abs(np.mean(shifts))
        if shifts.size < 2:
            return np.nan, shift
        return np.sqrt(_ratio(shift**2, np.var(shifts, ddof=1) / shifts.size)), shift

    def memory(self) -> float:
        """Return the correlation over chains of the means of first and second halves."""
        first, second = (half.ravel() - half.mean() for half in self.means)
        if first.size < 2:
            return np.nan
        return _ratio(first @ second, np.sqrt((first @ first) * (second @ second)))

    def disagreement(self) -> tuple[float, float]:
        """Return the p-value of equal superchain means, and the spread of these.

        At stationarity the chains of a superchain are uncorrelated, whatever components they share:
        given the components, every step keeps the target. So a plain F test applies.
        """
        means = np.mean(self.means, axis=0)
        num_superchains, num_chains = means.shape
        if min(means.shape) < 2:
            return np.nan, np.nan
        between = np.var(np.mean(means, axis=1), ddof=1)
        within = np.mean(np.var(means, axis=1, ddof=1))
        ratio = num_chains * _ratio(between, within)
        freedom = (num_superchains - 1, num_superchains * (num_chains - 1))
        return float(stats.f.sf(ratio, *freedom)), np.sqrt(between)


def _ratio(numerator: Any, denominator: Any) -> float:
    """Divide; nothing by nothing is NaN, something by nothing infinite."""
    if denominator > 0:
        return numerator / denominator
    return np.nan if numerator == 0 else np.inf
