"""The paper's figures, from results on disk."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adlmh_jax.paper.experiments.cases import PAPER_METHODS, Case
from adlmh_jax.paper.experiments.claim import PAPERS_RATIO
from adlmh_jax.paper.experiments.runs import Lab
from adlmh_jax.paper.experiments.studies import bar_reports, claim_curves, paper_stretch
from adlmh_jax.paper.zoo import Problem, Truth
from adlmh_jax.results import plot_convergence, plot_schedule
from adlmh_jax.store import Arrays

DOTS_PER_INCH = 120
FIRST_STEP = 100  # curves start here: before, they are about the start
SMALL_LEGEND: dict[str, Any] = {
    "ncols": 2,
    "frameon": False,
    "fontsize": "small",
    "handlelength": 1.0,
    "columnspacing": 1.0,
    "borderaxespad": 0.0,
}
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)  # of ratios


def check_plots() -> None:
    """Refuse to start what cannot be drawn in the end."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("The figures need matplotlib: pip install adlmh_jax[plots].")


def draw_case(lab: Lab, case: Case) -> Any:
    """Draw the figure of a case study: convergence, and the schedules or consecutive draws."""
    results = {m.label: lab.result(paper_stretch(lab, case, m)) for m in PAPER_METHODS}
    checkpoints = next(iter(results.values()))["checkpoints"]
    curves = {label: arrays["curves"] for label, arrays in results.items()}
    ax = _plot_curves(case, curves, checkpoints)
    if case.has_bars:
        _add_bars(ax, lab, case)
    if case.has_window:
        _add_windows(ax, case.problems(1, 0)[0], results)
    return ax.figure


def _plot_curves(case: Case, curves: dict[str, np.ndarray], checkpoints: np.ndarray) -> Any:
    """Draw curves ``[superchain, chain, checkpoint]`` by label."""
    shown = checkpoints >= min(FIRST_STEP, checkpoints[-1])
    flat = [array.reshape(-1, len(checkpoints))[:, shown] for array in curves.values()]
    ax = plot_convergence(flat, checkpoints[shown], list(curves))
    ax.set_ylabel(case.error)
    ax.set_title(f"{len(flat[0])} restarts: median and quartiles", loc="left")
    return ax


def _add_bars(ax: Any, lab: Lab, case: Case) -> None:
    """Put AdLMH's schedules beside the curves, one row for each number of steps."""
    reports = bar_reports(lab, case)
    figure = ax.figure
    figure.set_size_inches(13.0, 2.0 + 2.2 * len(reports))
    grid = figure.add_gridspec(len(reports), 3, width_ratios=(1.5, 1.0, 1.0))
    ax.set_subplotspec(grid[:, 0])
    for row, (steps, report) in enumerate(reports.items()):
        pair = [figure.add_subplot(grid[row, column]) for column in (1, 2)]
        plot_schedule(report, pair)
        pair[0].set_title(f"Unit rewards, {steps:,} steps", loc="left")
        pair[1].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), **SMALL_LEGEND)


def add_weights(ax: Any, weights: dict[str, np.ndarray], names: Sequence[str]) -> None:
    """Put the selection probabilities of several schedules beside the curves, one below another."""
    figure = ax.figure
    figure.set_size_inches(11.0, 1.0 + 1.7 * len(weights))
    grid = figure.add_gridspec(len(weights), 2, width_ratios=(1.2, 1.0))
    ax.set_subplotspec(grid[:, 0])
    highest = max(alpha.max() for alpha in weights.values())
    for row, (label, alpha) in enumerate(weights.items()):
        panel = figure.add_subplot(grid[row, 1])
        panel.bar(np.arange(len(names)), alpha, color="0.25")
        panel.set_ylim(0.0, 1.05 * highest)
        panel.set_title(
            f"{label}: how often each choice is selected", loc="left", fontsize="medium"
        )
        is_last = row == len(weights) - 1
        panel.set_xticks(range(len(names)), names if is_last else [], rotation=90, fontsize="small")
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)


def _add_windows(ax: Any, problem: Problem, results: dict[str, Arrays]) -> None:
    """Put draws of two outputs beside the curves: consecutive ones, and a sweep apart."""
    figure = ax.figure
    figure.set_size_inches(13.0, 7.5)
    grid = figure.add_gridspec(2, 3)
    ax.set_subplotspec(grid[:, 0])
    assert problem.truth is not None  # a posterior on a grid
    truth = problem.truth()
    shared = None
    for row, (name, words) in enumerate((("window", "steps"), ("sweeps", "sweeps"))):
        for column, (label, arrays) in enumerate(results.items(), start=1):
            draws = arrays[name][0]
            panel = figure.add_subplot(grid[row, column], sharex=shared, sharey=shared)
            shared = shared or panel
            panel.plot(*draws.T, color="0.8", linewidth=0.6, zorder=1)
            panel.scatter(*draws.T, c=np.arange(len(draws)), s=8, cmap="viridis", zorder=2)
            _add_cross(panel, truth)
            distinct = len(np.unique(draws, axis=0))
            panel.set_title(f"{label}: {len(draws)} {words}, {distinct} points", loc="left")
            panel.set(xlabel=problem.outputs[0], ylabel=problem.outputs[1])


def _add_cross(panel: Any, truth: Truth) -> None:
    """Mark the exact posterior: mean, and one standard deviation to each side."""
    (x, y), (x_sd, y_sd) = truth.mean, truth.sd
    panel.errorbar(x, y, xerr=x_sd, yerr=y_sd, fmt="+", color="tab:red", zorder=3)


def draw_claim(lab: Lab, case: Case, claim: dict[str, Any]) -> Any:
    """Draw the curves behind the measured ratios, and the ratios at the hardest target."""
    drawn = {method.label: claim_curves(lab, case, method) for method in PAPER_METHODS}
    curves = {label: curves for label, (curves, _) in drawn.items()}
    _, checkpoints = drawn[PAPER_METHODS[0].label]
    ax = _plot_curves(case, curves, checkpoints)
    number = hardest_target(claim)
    if number is not None:
        _add_ratios(ax, claim, number)
    return ax.figure


def hardest_target(claim: dict[str, Any]) -> int | None:
    """Return the number of the smallest error that LMH and AdLMH surely reach."""
    for number in reversed(range(len(claim["targets"]))):
        pair = [row["ratios"][number] for row in claim["rows"][: len(PAPER_METHODS)]]
        if all(ratio and ratio["low"] and ratio["high"] for ratio in pair):
            return number
    return None


def _add_ratios(ax: Any, claim: dict[str, Any], number: int) -> None:
    """Put the ratios of all methods, with their intervals, beside the curves."""
    figure = ax.figure
    rows = [row for row in claim["rows"][1:] if row["ratios"][number]]
    figure.set_size_inches(12.0, max(3.8, 1.5 + 0.32 * len(rows)))
    grid = figure.add_gridspec(1, 2)
    ax.set_subplotspec(grid[0, 0])
    panel = figure.add_subplot(grid[0, 1])
    for height, row in enumerate(rows):
        ratio = row["ratios"][number]
        low, value, high = (ratio[end] for end in ("low", "value", "high"))
        if not value:  # not reached, or by no other
            continue
        ends = [[value - (low or 0.0)], [(high if high is not None else value) - value]]
        panel.errorbar(value, height, xerr=ends, fmt="o", color="black", capsize=3)
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.set_xticks([], minor=True)
    panel.set_yticks(range(len(rows)), [row["label"] for row in rows])
    panel.invert_yaxis()
    panel.axvline(1.0, color="0.6", linewidth=0.8)
    panel.axvline(PAPERS_RATIO, color="tab:red", linewidth=0.8, linestyle="--")
    panel.set_xlabel(f"steps of LMH per step at {claim['error']} {claim['targets'][number]:g}")
    panel.set_title("Sample ratio; dashed: the paper's", loc="left")


def draw_lemma(study: dict[str, Any]) -> Any:
    """Draw the ratio of the selection probabilities against Lemma 1's equilibrium."""
    ratios = [np.array(row["ratios"]) for row in study["rows"]]
    ax = plot_convergence(ratios, study["steps"], [row["label"] for row in study["rows"]])
    ax.axhline(study["theory"], color="tab:red", linestyle=":", label="eq. 16")
    ax.set(yscale="linear", ylabel="ratio of selection probabilities")
    ax.set_title("Lemma 1", loc="left")
    ax.legend(frameon=False)
    return ax.figure


def save_figure(figure: Any, directory: Path, name: str) -> Path:
    """Write a figure as PNG and as SVG; return the path of the PNG."""
    path = directory / f"{name}.png"
    figure.savefig(path, dpi=DOTS_PER_INCH)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return path
