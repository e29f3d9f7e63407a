"""Figures: what a schedule learned, how fast runs converge, whether ranks are uniform.

Every function draws into ``ax``, or into a new figure, and returns the axes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from adlmh_jax.results.calibration import Calibration
from adlmh_jax.results.schedule import ScheduleReport

METHOD_COLOURS = {"adlmh": "black", "lmh": "cyan"}  # the paper's
OTHER_COLOURS = ["tab:orange", "tab:purple", "tab:green", "tab:red"]
REWARD_COLOUR, ACCEPTED_COLOUR, REJECTED_COLOUR = "0.45", "tab:cyan", "0.75"
BAND_COLOUR = "0.88"
MAX_BARS = 400
MAX_CHARACTERS = 60  # of all names, that fit side by side
MAX_SLANTED = 6  # long names that need not stand upright
MAX_LABELS = 40  # more component names than this cannot be read
MAX_LEGEND = 6  # outputs that are named


def plot_schedule(result: Any, ax: Any = None) -> np.ndarray:
    """Show what the schedule learned of each component beside how often it selected it.

    The paper's two bar charts: normalised unit rewards, and normalised selection counts, accepted
    below, rejected above. Of `influence` the first shows instead what drives the outputs: the share
    of the variance of each output that the component explains. Superchains are pooled.

    Parameters
    ----------
    result
        A `Result`, or its schedule.
    ax
        Two axes, for rewards and for counts. Default: a new figure.

    Returns
    -------
    The two axes.

    Examples
    --------
    ::

        result = adlmh.sample(0, model, (readings,), outputs=["rate"])
        rewards, counts = adlmh.plot_schedule(result)
        counts.figure.savefig("schedule.png")
    """
    report: ScheduleReport = getattr(result, "schedule", result)
    if ax is None:
        width = min(16.0, 7.0 + 0.15 * len(report.names))
        _, ax = pyplot().subplots(1, 2, figsize=(width, 3.6), layout="constrained")
    axes = np.asarray(ax, dtype=object).ravel()
    if axes.size != 2:
        raise ValueError(f"`ax` must be two axes, for rewards and for counts, got {axes.size}.")
    rewards = unit_rewards(report)
    if report.influence is not None:
        _draw_influence(axes[0], report)
    elif rewards is None:
        axes[0].text(
            0.5,
            0.5,
            "this schedule learns nothing",
            ha="center",
            va="center",
            transform=axes[0].transAxes,
        )
    else:
        _bars(axes[0], rewards, color=REWARD_COLOUR)
    if report.influence is None:
        axes[0].set_title("Unit rewards", loc="left")
        axes[0].set_ylabel("share of all components")
    total = max(1, report.selected.sum())
    accepted = report.accepted.sum(axis=0) / total
    rejected = report.rejected.sum(axis=0) / total
    _bars(axes[1], accepted, color=ACCEPTED_COLOUR, label="accepted")
    _bars(axes[1], rejected, bottom=accepted, color=REJECTED_COLOUR, label="rejected")
    axes[1].set_title("Selections", loc="left")
    axes[1].set_ylabel("share of all steps")
    axes[1].legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 0.98))
    for axis in axes:
        _label_components(axis, report.names)
    return axes


def plot_convergence(
    curves: Sequence[np.ndarray],
    checkpoints: Sequence[int],
    labels: Sequence[str],
    ax: Any = None,
) -> Any:
    """Show the distance to the truth against the number of steps, on logarithmic axes.

    Parameters
    ----------
    curves
        For each method the distances of its runs, ``[run, checkpoint]``.
    checkpoints
        Steps at which distances were taken.
    labels
        A name for each method. ``"AdLMH"`` is black and ``"LMH"`` cyan, as in the paper.
    ax
        Axes; default: a new figure.

    Returns
    -------
    The axes: the median of the runs as a line, the quartiles dashed around a band.
    """
    if len(curves) != len(labels):
        raise ValueError(f"There are {len(curves)} curves but {len(labels)} labels.")
    if ax is None:
        _, ax = pyplot().subplots(figsize=(5.0, 3.8), layout="constrained")
    others = iter(OTHER_COLOURS * len(labels))
    for runs, label in zip(curves, labels, strict=True):
        distances = np.atleast_2d(np.asarray(runs, float))
        if distances.shape[1] != len(checkpoints):
            raise ValueError(
                f"The curves of {label} have {distances.shape[1]} points, but there are "
                f"{len(checkpoints)} checkpoints."
            )
        colour = METHOD_COLOURS.get(label.lower()) or next(others)
        low, middle, high = np.quantile(distances, (0.25, 0.5, 0.75), axis=0)
        ax.fill_between(checkpoints, low, high, color=colour, alpha=0.12, linewidth=0)
        ax.plot(checkpoints, low, color=colour, linestyle="--", linewidth=0.8)
        ax.plot(checkpoints, high, color=colour, linestyle="--", linewidth=0.8)
        ax.plot(checkpoints, middle, color=colour, linewidth=1.8, label=label)
    ax.set(xscale="log", yscale="log", xlabel="steps", ylabel="distance to the truth")
    ax.legend(frameon=False)
    ax.grid(True, which="major", color="0.9", linewidth=0.6)
    return ax


def plot_sbc(calibration: Calibration, ax: Any = None) -> Any:
    """Show the ranks of `sbc`: by how much more or fewer of them there are than if all is well.

    Lines in the grey band are as they should be. One above it has too many low ranks: draws are
    larger than what the data were made with. One that rises and falls is of draws that are too
    narrow. What leaves the band is named; it is what the verdict calls suspect.

    Parameters
    ----------
    calibration
        What `sbc` gave back.
    ax
        Axes; default: a new figure.

    Returns
    -------
    The axes: the distribution function of the ranks of each quantity, less the uniform one.
    """
    if ax is None:
        _, ax = pyplot().subplots(figsize=(6.0, 3.8), layout="constrained")
    number, num_draws = calibration.num_datasets, calibration.num_draws
    uniform = (np.arange(num_draws) + 1) / (num_draws + 1)
    low, high = (limit / number - uniform for limit in calibration.band)
    ax.fill_between(uniform, low, high, color=BAND_COLOUR, linewidth=0, label="if all is well")
    suspects = calibration.suspects
    for name in sorted(calibration.ranks, key=suspects.__contains__):
        excess = calibration.num_below(name) / number - uniform
        is_named = name in suspects[:MAX_LEGEND]
        style = {"label": name, "linewidth": 1.8} if is_named else {"color": "0.45"}
        ax.plot(uniform, excess, **{"linewidth": 0.8, **style})
    ax.axhline(0.0, color="0.2", linewidth=0.6)
    ax.set(xlim=(0, 1), xlabel="rank, from 0 to 1", ylabel="share of ranks, less the uniform one")
    ax.set_title(calibration.headline, loc="left", fontsize="medium", wrap=True)
    ax.legend(frameon=False, loc="best")
    return ax


def _draw_influence(ax: Any, report: ScheduleReport) -> None:
    """Draw, side by side, what each component explains of each output."""
    table = report.drivers()
    width = 0.8 / len(table.columns)
    for number, output in enumerate(table.columns):
        at = np.arange(len(table)) + width * (number + 0.5) - 0.4
        ax.bar(at, table[output], width, label=output, color=f"C{number % 10}")
    ax.set_title("What drives the outputs", loc="left")
    ax.set_ylabel("share of variance explained")
    if len(table.columns) <= MAX_LEGEND:
        ax.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 0.98))


def unit_rewards(report: ScheduleReport) -> np.ndarray | None:
    """Return r / c per component over all superchains, normalised; None if nothing is learned."""
    if report.rewards is None or report.counts is None:
        return None
    unit = report.rewards.sum(axis=0) / report.counts.sum(axis=0)
    return unit / unit.sum()


def _bars(ax: Any, heights: np.ndarray, bottom: np.ndarray | None = None, **style: Any) -> None:
    """Draw a bar for each height; very many of them as one outline, or drawing takes minutes."""
    if len(heights) <= MAX_BARS:
        ax.bar(np.arange(len(heights)), heights, bottom=bottom, **style)
        return
    base = np.zeros_like(heights) if bottom is None else bottom
    edges = np.arange(len(heights) + 1) - 0.5
    ax.stairs(base + heights, edges, baseline=base, fill=True, **style)


def _label_components(ax: Any, names: Sequence[str]) -> None:
    """Write component names under the bars, as many as can be read."""
    every = -(-len(names) // MAX_LABELS)
    is_long = max(map(len, names)) * len(names) > MAX_CHARACTERS
    ax.set_xticks(
        range(0, len(names), every),
        names[::every],
        rotation=(15 if len(names) <= MAX_SLANTED else 90) if is_long else 0,
        ha="right" if is_long and len(names) <= MAX_SLANTED else "center",
        fontsize="small",
    )
    ax.set_xlim(-0.7, len(names) - 0.3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def pyplot() -> Any:
    """Return matplotlib's, or say how to get it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install adlmh_jax[plots].") from error
    return pyplot
