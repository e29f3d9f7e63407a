"""`demo`: three schedules on the paper's hidden Markov model, in about a minute."""

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from adlmh_jax.paper import log_checkpoints, running_curve
from adlmh_jax.paper.experiments import figures
from adlmh_jax.paper.experiments.cases import ADLMH, CASES, INFLUENCE, LMH, PAPER_OPTIONS
from adlmh_jax.paper.experiments.claim import Curves, Ratio, sample_ratio
from adlmh_jax.results import ConvergenceWarning, Result, plot_convergence
from adlmh_jax.sampling import sample
from adlmh_jax.store import make_directory

DEMO_STEPS = 50_000
WARMUP_STEPS = 20_000
CHAINS_EACH = 64
SHOWN_STEPS = (1_000, 10_000, 100_000)
TARGETS = (0.1, 0.03, 0.01, 0.003, 0.001)
METHODS = (LMH, ADLMH, INFLUENCE)
HMM = CASES["hmm"]


def demo(
    directory: Path,
    superchains: int = 4,
    steps: int = DEMO_STEPS,
    seed: int = 0,
    say: Callable[[str], None] = print,
    progress: bool = True,
) -> Path:
    """Compare LMH, AdLMH and `influence` on the hidden Markov model: print a table, draw a figure.

    Parameters
    ----------
    directory
        Where to write the figure; it is made if need be.
    superchains, steps
        Superchains of 64 chains of each method, and steps of each chain after warm-up.
    seed
        Every random number follows from it.
    say
        Called with each line of text.
    progress
        Show progress bars.

    Returns
    -------
    Path
        The figure as PNG; the same as SVG is beside it.
    """
    figures.check_plots()
    make_directory(directory)
    problem = HMM.problems(1, seed)[0]
    checkpoints = log_checkpoints(steps)
    curves, weights, names = {}, {}, []
    for method in METHODS:
        say(f"{method.label}: {superchains} x {CHAINS_EACH} chains x {steps:,} steps")
        result = _run(problem, method, superchains, steps, seed, progress)
        draws = np.stack([result.draws[name] for name in problem.outputs], axis=-1)
        errors = running_curve(draws, checkpoints.tolist(), problem.distance_function())
        curves[method.label] = errors.reshape(superchains, CHAINS_EACH, -1)
        weights[method.label] = result.schedule.weights.mean(axis=0)
        names = result.schedule.names
    for line in _words(curves, checkpoints, weights, names):
        say(line)
    path = figures.save_figure(_draw(curves, checkpoints, weights, names), directory, "adlmh-demo")
    say(f"Figure: {path}")
    return path


def _run(
    problem: Any, method: Any, superchains: int, steps: int, seed: int, progress: bool
) -> Result:
    """Warm up, then sample at every step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the errors are known
        return sample(
            seed,
            problem.model,
            problem.args,
            dict(problem.kwargs),
            outputs=list(problem.outputs),
            schedule=method.schedule,
            num_chains=superchains * CHAINS_EACH,
            num_superchains=superchains,
            num_warmup=min(WARMUP_STEPS, 10 * steps),
            num_samples=steps,
            thinning=1,
            progress=progress,
            **PAPER_OPTIONS,  # type: ignore[arg-type]
        )


def _words(
    curves: dict[str, np.ndarray],
    checkpoints: np.ndarray,
    weights: dict[str, np.ndarray],
    names: list[str],
) -> list[str]:
    """Return the table of errors, and what follows from it."""
    number = math.prod(next(iter(curves.values())).shape[:2])
    lines = [
        "",
        f"{HMM.error} from the exact answer after warm-up, median of {number} chains",
        f"{'steps':>10}" + "".join(f"{label:>12}" for label in curves),
    ]
    for steps in sorted({n for n in SHOWN_STEPS if n <= checkpoints[-1]} | {int(checkpoints[-1])}):
        column = int(np.searchsorted(checkpoints, steps))
        medians = [np.median(array[..., column]) for array in curves.values()]
        lines.append(f"{steps:>10,}" + "".join(f"{median:>12.4f}" for median in medians))
    lines.append("")
    for label in list(curves)[1:]:
        target, ratio = _ratio(curves[LMH.label], curves[label], checkpoints)
        if ratio is not None:
            lines.append(
                f"For an error of {target:g} LMH needs {ratio.value:.2f} times as many steps as "
                f"{label} (95 % interval {ratio.low:.2f} to {ratio.high:.2f})."
            )
    for label in list(curves)[1:]:
        most = np.argsort(-weights[label])[:4]
        lines.append(f"{label} selects most often: {', '.join(names[i] for i in most)}.")
    return lines


def _ratio(
    reference: np.ndarray, method: np.ndarray, checkpoints: np.ndarray
) -> tuple[float, Ratio | None]:
    """Return the least error that LMH reaches, and how many more steps it takes to."""
    both = [Curves.of(curves, checkpoints, seed=0) for curves in (reference, method)]
    reached = [target for target in TARGETS if both[0].median.min() <= target]
    if not reached:
        return 0.0, None
    return reached[-1], sample_ratio(both[0], both[1], reached[-1])


def _draw(
    curves: dict[str, np.ndarray],
    checkpoints: np.ndarray,
    weights: dict[str, np.ndarray],
    names: list[str],
) -> Any:
    """Draw the errors against the steps, and beside them the schedules as bars."""
    flat = [array.reshape(-1, len(checkpoints)) for array in curves.values()]
    ax = plot_convergence(flat, list(checkpoints), list(curves))
    ax.set_ylabel(HMM.error)
    ax.set_title("After warm-up: median and quartiles", loc="left")
    figures.add_weights(ax, weights, names)
    return ax.figure
