"""One figure of a run: whether superchains agree on the worst outputs, and the schedule.

What is drawn does not grow with the number of chains: superchains are pooled to a few groups, and
curves have a hundred points.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import ndimage

from adlmh_jax.model import nearest
from adlmh_jax.results.mixing import Mixing
from adlmh_jax.results.plots import plot_schedule, pyplot
from adlmh_jax.results.scalars import scalars
from adlmh_jax.results.schedule import ScheduleReport
from adlmh_jax.results.verdict import show_r_hat

MAX_GROUPS = 8  # colours that an eye tells apart
NUM_POINTS = 100  # of a curve
NUM_BINS = 256  # of the histogram that becomes a density
MAX_BARS = 40  # values that a count is shown by, one by one
MAX_VALUES = 1_000_000  # of one output that are looked at
COVERAGE = 0.95
NUM_SIMULATED = 2000  # sets of curves behind a band
ROW_HEIGHT, WIDTH = 2.1, 9.0  # inches


def plot_overview(
    draws: Mapping[str, np.ndarray],
    mixing: Mapping[str, Mixing],
    outputs: Sequence[str],
    num_superchains: int,
    schedule: ScheduleReport | None = None,
) -> Any:
    """Draw a row for each of some scalars, and the schedule below.

    Parameters
    ----------
    draws
        By name, ``[chain, draw, ...]``; chains of a superchain are next to each other.
    mixing
        Of each scalar.
    outputs
        Scalars to show.
    num_superchains
        Superchains, of equally many chains.
    schedule
        The schedule; None for none.

    Returns
    -------
    A matplotlib figure.
    """
    for name in outputs:
        if name not in mixing:
            raise ValueError(f"There is no output `{name}`. {nearest(name, mixing)}")
    values = {scalar: v for _, scalar, v in scalars(draws, set(outputs))}
    num_rows = len(outputs) + (schedule is not None)
    size = (WIDTH, ROW_HEIGHT * num_rows + 0.5)
    figure, axes = pyplot().subplots(num_rows, 2, figsize=size, layout="constrained", squeeze=False)
    for row, name in zip(axes, outputs, strict=False):
        groups = pool_chains(values[name], num_superchains)
        m = mixing[name]
        draw_ranks(row[0], groups, m.ess_bulk)
        draw_densities(row[1], groups, m.ess_bulk)
        row[0].set_title(f"{name}   R-hat {show_r_hat(m.r_hat)}", loc="left", fontsize="medium")
    axes[0][1].set_title("density", loc="left", fontsize="medium")
    labels = group_labels(num_superchains, draws[next(iter(draws))].shape[0])
    figure.legend(
        axes[0][1].lines,
        labels,
        loc="outside upper center",
        ncols=4,
        frameon=False,
        fontsize="small",
    )
    if schedule is not None:
        plot_schedule(schedule, axes[-1])
    return figure


def num_groups(num_superchains: int, num_chains: int) -> tuple[int, int]:
    """Return of how many parts of the chains groups are made, and how many groups."""
    parts = num_superchains if num_superchains > 1 else num_chains
    return parts, min(parts, MAX_GROUPS)


def group_labels(num_superchains: int, num_chains: int) -> list[str]:
    """Name the groups."""
    noun = "superchain" if num_superchains > 1 else "chain"
    parts, number = num_groups(num_superchains, num_chains)
    chunks = np.array_split(np.arange(parts), number)
    return [f"{noun} {c[0]}" if len(c) == 1 else f"{noun}s {c[0]} to {c[-1]}" for c in chunks]


def pool_chains(values: np.ndarray, num_superchains: int) -> list[np.ndarray]:
    """Return the draws of each group of superchains, or of chains if there is one superchain."""
    step = max(1, values.size // MAX_VALUES)
    parts, number = num_groups(num_superchains, len(values))
    by_part = values[:, ::step].reshape(parts, -1)
    return [group.ravel() for group in np.array_split(by_part, number)]


def rank_differences(groups: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return ranks in (0, 1), and how far each group's distribution function is off, ``[G, n]``.

    At ties a distribution function jumps, and is compared after the jump.
    """
    ordered = [np.sort(group) for group in groups]
    pooled = np.sort(np.concatenate(groups))
    levels = np.arange(1, NUM_POINTS) / NUM_POINTS
    points = np.unique(pooled[(levels * len(pooled)).astype(int)])
    ranks = np.searchsorted(pooled, points, side="right") / len(pooled)
    own = [np.searchsorted(group, points, side="right") / len(group) for group in ordered]
    return ranks, np.array(own) - ranks


def rank_band(ranks: np.ndarray, num_groups: int, effective: float) -> np.ndarray:
    """Return how far curves of a run that has converged stay from zero, all at once.

    Säilynoja, Bürkner and Vehtari (2022) ask for a band that is equally hard to leave at every
    rank. Draws depend on each other, so their effective number counts, which is no integer: the
    curves are Brownian bridges less their mean, to which those of many independent draws tend.
    """
    sd = np.sqrt(ranks * (1 - ranks) * (1 - 1 / num_groups))
    if not (sd.any() and effective > 0):
        return np.full(len(ranks), np.nan)
    rng = np.random.default_rng(0)
    steps = np.diff(np.concatenate([[0.0], ranks]))
    shape = (NUM_SIMULATED, num_groups, len(ranks))
    walk = np.cumsum(rng.normal(size=shape) * np.sqrt(steps), axis=-1)
    rest = np.sqrt(max(0.0, 1.0 - ranks[-1])) * rng.normal(size=(*shape[:2], 1))
    bridge = walk - ranks * (walk[..., -1:] + rest)
    bridge -= bridge.mean(axis=1, keepdims=True)
    is_inner = sd > 0
    extremes = np.max(np.abs(bridge[..., is_inner]) / sd[is_inner], axis=(1, 2))
    limit = np.quantile(extremes, COVERAGE)
    each = effective / num_groups
    return limit * sd / np.sqrt(each) + 0.5 / each  # half a step: continuity correction


def draw_ranks(ax: Any, groups: Sequence[np.ndarray], effective: float) -> None:
    """Draw the differences of ranks, and their band."""
    ranks, differences = rank_differences(groups)
    band = rank_band(ranks, len(groups), effective)
    at = np.concatenate([[0.0], ranks, [1.0]])
    padded = np.pad(band, 1)
    ax.fill_between(at, -padded, padded, color="0.5", alpha=0.25, linewidth=0)
    for index, curve in enumerate(differences):
        ax.plot(at, np.pad(curve, 1), color=f"C{index}", linewidth=1.2)
    ax.axhline(0.0, color="0.5", linewidth=0.6)
    ax.set(xlim=(0, 1), xlabel="rank", ylabel="ECDF difference")
    _bare(ax)


def draw_densities(ax: Any, groups: Sequence[np.ndarray], effective: float) -> None:
    """Draw the density of each group; counts of few values as they are."""
    pooled = np.concatenate(groups)
    is_count = np.all(pooled == np.round(pooled)) and np.ptp(pooled) < MAX_BARS
    if is_count:
        at = np.arange(pooled.min(), pooled.max() + 1)
        curves = [np.bincount((g - at[0]).astype(int), minlength=len(at)) / len(g) for g in groups]
        style = {"marker": "o", "markersize": 3.5}
    else:
        low, high = np.quantile(pooled, (0.001, 0.999))
        margin = 0.05 * (high - low) or 1.0
        edges = np.linspace(low - margin, high + margin, NUM_BINS + 1)
        at = (edges[1:] + edges[:-1]) / 2
        # Silverman's rule, with the effective number of a group's draws.
        per_group = max(effective / len(groups), 2.0)
        spread = min(np.std(pooled), np.subtract(*np.quantile(pooled, (0.75, 0.25))) / 1.34)
        width = 0.9 * (spread or np.std(pooled)) * per_group**-0.2 / (edges[1] - edges[0])
        width = max(width, 0.5)  # bins
        curves = [
            ndimage.gaussian_filter1d(
                np.histogram(g, edges)[0] / (len(g) * (edges[1] - edges[0])), width, mode="constant"
            )
            for g in groups
        ]
        style = {}
    for index, curve in enumerate(curves):
        ax.plot(at, curve, color=f"C{index}", linewidth=1.2, alpha=0.8, **style)
    ax.set_ylim(bottom=0)
    ax.set_yticks([])
    ax.xaxis.get_major_locator().set_params(integer=is_count)
    _bare(ax)


def _bare(ax: Any) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
