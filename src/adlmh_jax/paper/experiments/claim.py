"""The paper's claim, measured: how many more steps LMH needs for the same error."""

from typing import NamedTuple

import numpy as np

RESAMPLES = 1_000
RESAMPLE_BATCH = 50  # resamples at once: bounds the memory
COVERAGE = 0.95
PAPERS_RATIO = 2.0  # "half as many samples", section 5


class Ratio(NamedTuple):
    """A ratio of numbers of steps, and its bootstrap interval."""

    value: float
    low: float
    high: float


def steps_to_reach(medians: np.ndarray, checkpoints: np.ndarray, target: float) -> np.ndarray:
    """Return after how many steps median errors reach a target for the first time.

    Parameters
    ----------
    medians
        Errors, ``[..., checkpoints]``.
    checkpoints
        Their numbers of steps, increasing.
    target
        The error to reach.

    Returns
    -------
    np.ndarray
        ``[...]``, on a straight line between checkpoints in logarithms of both; infinite where the
        target is not reached.
    """
    log_steps, log_target = np.log(checkpoints), np.log(target)
    # Errors of 0 are left to interpolation: any number far below all targets serves.
    log_errors = np.log(np.maximum(medians, target * 1e-6))
    is_reached = log_errors <= log_target
    after = np.argmax(is_reached, axis=-1)
    before = np.maximum(after - 1, 0)
    upper, lower = (
        np.take_along_axis(log_errors, i[..., None], -1)[..., 0] for i in (before, after)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = np.where(after > 0, (upper - log_target) / (upper - lower), 0.0)
    steps = np.exp(log_steps[before] + fraction * (log_steps[after] - log_steps[before]))
    return np.where(is_reached.any(axis=-1), steps, np.inf)


def resampled_medians(curves: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Median curves of resampled restarts, ``[RESAMPLES, checkpoints]``.

    Whole superchains ``[superchain, chain, checkpoint]`` are drawn: their chains share a schedule.
    """
    num_superchains = len(curves)
    medians = []
    for _ in range(0, RESAMPLES, RESAMPLE_BATCH):
        drawn = curves[rng.integers(num_superchains, size=(RESAMPLE_BATCH, num_superchains))]
        medians.append(np.median(drawn.reshape(RESAMPLE_BATCH, -1, curves.shape[-1]), axis=1))
    return np.concatenate(medians)


class Curves(NamedTuple):
    """The errors of one method: its median over restarts, and that of resampled restarts."""

    checkpoints: np.ndarray
    median: np.ndarray
    resampled: np.ndarray

    @classmethod
    def of(cls, curves: np.ndarray, checkpoints: np.ndarray, seed: int) -> "Curves":
        """Summarise curves ``[superchain, chain, checkpoint]``."""
        median = np.median(curves, axis=(0, 1))
        return cls(checkpoints, median, resampled_medians(curves, np.random.default_rng(seed)))


def sample_ratio(reference: Curves, method: Curves, target: float) -> Ratio | None:
    """Return steps of the reference per step of the method at an error target.

    None if neither reaches the target. Where one of them does not, the ratio or an end of its
    interval is 0 or infinite.
    """
    steps = [steps_to_reach(c.median, c.checkpoints, target) for c in (reference, method)]
    if np.all(np.isinf(steps)):
        return None
    resampled = [steps_to_reach(c.resampled, c.checkpoints, target) for c in (reference, method)]
    with np.errstate(invalid="ignore"):
        ratios = resampled[0] / resampled[1]
    ratios = np.sort(ratios[~np.isnan(ratios)])
    tail = (1.0 - COVERAGE) / 2.0
    ends = (int(np.floor(tail * len(ratios))), int(np.ceil((1.0 - tail) * len(ratios))) - 1)
    low, high = (float(ratios[end]) for end in ends)
    return Ratio(float(steps[0] / steps[1]), low, high)


def verdict(ratio: Ratio) -> str:
    """Say in words what an interval means for the paper's factor of two."""
    if ratio.low >= PAPERS_RATIO:
        return "at least the paper's factor of 2"
    if ratio.high >= PAPERS_RATIO:
        return "a factor of 2 is possible" + (", so is none" if ratio.low <= 1.0 else "")
    if ratio.low > 1.0:
        return "fewer steps than LMH, but not half as many"
    return "no difference shown" if ratio.high >= 1.0 else "more steps than LMH"
