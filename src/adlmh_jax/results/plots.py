"""Figures: what a schedule learned, and how fast runs converge.

Every function draws into ``ax``, or into a new figure, and returns the axes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from adlmh_jax.results.result import Result, ScheduleReport

METHOD_COLOURS = {"adlmh": "black", "lmh": "cyan"}  # the paper's
OTHER_COLOURS = ["tab:orange", "tab:purple", "tab:green", "tab:red"]
REWARD_COLOUR, ACCEPTED_COLOUR, REJECTED_COLOUR = "0.25", "tab:cyan", "0.8"
MAX_LEGEND = 6  # outputs that are named
MAX_LABELS = 40  # more component names than this cannot be read


def plot_schedule(result: Result | ScheduleReport, ax: Any = None) -> np.ndarray:
    """Show what the schedule learned of each component beside how often it selected it.

    The paper's two bar charts: normalised unit rewards, and normalised selection counts, accepted
    below, rejected above. Of `influence` the first shows instead what drives the outputs: the share
    of the variance of each output that the component explains. Superchains are pooled.

    Parameters
    ----------
    result
        A result, or its schedule.
    ax
        Two axes, for rewards and for counts. Default: a new figure.

    Returns
    -------
    The two axes.
    """
    report = result.schedule if isinstance(result, Result) else result
    if ax is None:
        pyplot = _pyplot()
        width = min(16.0, 7.0 + 0.15 * len(report.names))
        _, ax = pyplot.subplots(1, 2, figsize=(width, 3.6), layout="constrained")
    axes = np.asarray(ax, dtype=object).ravel()
    if axes.size != 2:
        raise ValueError(f"`ax` must be two axes, for rewards and for counts, got {axes.size}.")
    positions = np.arange(len(report.names))
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
        axes[0].bar(positions, rewards, color=REWARD_COLOUR)
    if report.influence is None:
        axes[0].set_title("Unit rewards", loc="left")
        axes[0].set_ylabel("share of all components")
    total = max(1, report.selected.sum())
    accepted = report.accepted.sum(axis=0) / total
    rejected = report.rejected.sum(axis=0) / total
    axes[1].bar(positions, accepted, color=ACCEPTED_COLOUR, label="accepted")
    axes[1].bar(positions, rejected, bottom=accepted, color=REJECTED_COLOUR, label="rejected")
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
        _, ax = _pyplot().subplots(figsize=(5.0, 3.8), layout="constrained")
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


def _label_components(ax: Any, names: Sequence[str]) -> None:
    """Write component names under the bars, as many as can be read."""
    every = -(-len(names) // MAX_LABELS)
    is_long = max(map(len, names)) * len(names) > 60
    ax.set_xticks(
        range(0, len(names), every),
        names[::every],
        rotation=90 if is_long else 0,
        fontsize="small",
    )
    ax.set_xlim(-0.7, len(names) - 0.3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install adlmh_jax[plots].") from error
    return pyplot
