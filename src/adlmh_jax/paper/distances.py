"""Distances between draws and a known distribution, and how they fall as draws accumulate.

Draws are arrays ``[..., draws, outputs]``; the leading axes, usually one of restarts, are kept.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike


def kl_divergence(
    truth_probabilities: np.ndarray, counts: np.ndarray, pseudocount: float = 0.5
) -> np.ndarray:
    """Kullback-Leibler divergence KL(truth || empirical), summed over the outputs.

    Parameters
    ----------
    truth_probabilities
        Probability of each value of each output, ``[outputs, values]``.
    counts
        How often each value of each output was drawn, ``[..., outputs, values]``.
    pseudocount
        Added to every count, so that a value which was not drawn yet costs a finite amount. The
        default of one half is Jeffreys' prior; its effect vanishes as 1 / draws.

    Returns
    -------
    np.ndarray
        One divergence in nats for each leading index of `counts`.
    """
    truth = np.asarray(truth_probabilities, dtype=np.float64)
    counts = np.asarray(counts, dtype=np.float64)
    if truth.ndim != 2 or counts.shape[-2:] != truth.shape:
        raise ValueError(
            "`truth_probabilities` must have the shape (outputs, values) and `counts` end in it; "
            f"got {truth.shape} and {counts.shape}."
        )
    smoothed = counts + pseudocount
    empirical = smoothed / smoothed.sum(axis=-1, keepdims=True)
    possible = truth > 0  # 0 log 0 = 0
    log_truth = np.log(np.where(possible, truth, 1.0))
    log_empirical = np.log(np.where(possible, empirical, 1.0))
    return np.sum(truth * (log_truth - log_empirical), axis=(-2, -1))


def ks_distance(samples: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Kolmogorov-Smirnov distance between samples and a continuous distribution.

    Parameters
    ----------
    samples
        Draws of one output, ``[..., draws]``. Repeated values, which every rejection makes, are
        counted as often as they occur.
    cdf
        The distribution function, applied elementwise.

    Returns
    -------
    np.ndarray
        One distance for each leading index of `samples`.
    """
    ordered = np.sort(samples, axis=-1)
    num_draws = ordered.shape[-1]
    theoretical = cdf(ordered)
    # The empirical function jumps at a value from (rank - 1) / n to rank / n. Among equal values
    # the first has the lowest lower end and the last the highest upper end, so ties need no care.
    upper = np.arange(1, num_draws + 1) / num_draws
    lower = np.arange(num_draws) / num_draws
    return np.maximum(np.max(upper - theoretical, axis=-1), np.max(theoretical - lower, axis=-1))


def l2_distance(values: ArrayLike, target: np.ndarray) -> np.ndarray:
    """Euclidean distance between vectors ``[..., outputs]`` and a vector ``[outputs]``."""
    return np.sqrt(np.sum(np.square(np.asarray(values) - target), axis=-1))


def value_counts(draws: np.ndarray, num_values: int) -> np.ndarray:
    """Count the values 0 .. `num_values` - 1 of each output: ``[..., outputs, values]``."""
    return np.stack([np.sum(draws == value, axis=-2) for value in range(num_values)], axis=-1)


def kl_of_draws(draws: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Divergence of discrete draws from `probabilities`; see `kl_divergence`."""
    return kl_divergence(probabilities, value_counts(draws, probabilities.shape[-1]))


def ks_of_draws(
    draws: np.ndarray, cdfs: Sequence[Callable[[np.ndarray], np.ndarray]]
) -> np.ndarray:
    """Maximum over the outputs of their Kolmogorov-Smirnov distances (section 5 of the paper)."""
    each = [ks_distance(draws[..., output], cdf) for output, cdf in enumerate(cdfs)]
    return np.max(np.stack(each), axis=0)


def l2_of_draws(draws: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Euclidean distance between the mean of the draws and `target`."""
    return l2_distance(np.mean(draws, axis=-2, dtype=np.float64), target)


def mean_absolute_error(draws: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Absolute error of the draws' mean, averaged over the outputs."""
    return np.mean(np.abs(np.mean(draws, axis=-2, dtype=np.float64) - target), axis=-1)


def log_checkpoints(num_steps: int, per_decade: int = 10) -> np.ndarray:
    """Numbers of steps evenly spaced on a logarithmic axis, from 1 to `num_steps`.

    Powers of ten are always among them, and so is `num_steps`. Numbers that round to the same
    integer occur once.
    """
    if num_steps < 1 or per_decade < 1:
        raise ValueError(
            f"`num_steps` and `per_decade` must be at least 1; got {num_steps} and {per_decade}."
        )
    num_points = int(np.floor(np.log10(num_steps) * per_decade)) + 2
    checkpoints = np.rint(10.0 ** (np.arange(num_points) / per_decade)).astype(np.int64)
    return np.unique(np.append(checkpoints[checkpoints < num_steps], num_steps))


def running_curve(
    draws: np.ndarray, checkpoints: Sequence[int], distance: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Evaluate a distance on the first n draws of every restart, for each checkpoint n.

    Parameters
    ----------
    draws
        ``[restarts, steps, ...]``.
    checkpoints
        Numbers of draws; see `log_checkpoints`. With logarithmic spacing the whole curve costs
        about ``per_decade / 2`` evaluations on all draws.
    distance
        From ``[restarts, n, ...]`` to ``[restarts]``.

    Returns
    -------
    np.ndarray
        ``[restarts, checkpoints]``.
    """
    if np.min(checkpoints) < 1 or np.max(checkpoints) > draws.shape[1]:
        raise ValueError(
            f"`checkpoints` must lie between 1 and the {draws.shape[1]} draws of a restart; "
            f"got {np.min(checkpoints)} to {np.max(checkpoints)}."
        )
    return np.stack([distance(draws[:, :count]) for count in checkpoints], axis=-1)


def quartiles(curves: np.ndarray) -> np.ndarray:
    """Lower quartile, median and upper quartile over restarts.

    Parameters
    ----------
    curves
        ``[restarts, checkpoints]``.

    Returns
    -------
    np.ndarray
        ``[3, checkpoints]``.
    """
    return np.quantile(curves, [0.25, 0.5, 0.75], axis=0)
