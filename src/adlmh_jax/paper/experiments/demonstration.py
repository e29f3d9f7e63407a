"""`demo`: LMH and AdLMH on the paper's hidden Markov model, in half a minute."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adlmh_jax.paper.experiments import figures, studies
from adlmh_jax.paper.experiments.budget import FAST_EPOCH, Budget
from adlmh_jax.paper.experiments.cases import CASES, PAPER_METHODS
from adlmh_jax.paper.experiments.runs import Lab
from adlmh_jax.store import make_directory

DEMO_STEPS = 100_000
SHOWN_STEPS = (1_000, 10_000, 100_000)
HMM = CASES["hmm"]


def demo(
    directory: Path,
    restarts: int = 25,
    steps: int = DEMO_STEPS,
    seed: int = 0,
    say: Callable[[str], None] = print,
    progress: bool = True,
) -> Path:
    """Compare LMH and AdLMH on the hidden Markov model: print a table, draw the figure.

    Parameters
    ----------
    directory
        Where to write the figure; it is made if need be.
    restarts, steps
        Independent runs of each method, and steps of each.
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
    budget = Budget(restarts, steps, FAST_EPOCH, (steps,), claim_restarts=0, seed=seed)
    figures.check_plots()
    make_directory(directory)
    with tempfile.TemporaryDirectory() as runs:
        lab = Lab(Path(runs), budget, say, progress)
        curves = studies.study_curves(lab, HMM)
        claim = studies.study_claim(lab, HMM)
        [bars] = studies.study_bars(lab, HMM)
        path = figures.save_figure(figures.draw_case(lab, HMM), directory, "adlmh-demo")
    for line in _words(curves, claim, bars):
        say(line)
    say(f"Figure: {path}")
    return path


def _words(curves: dict[str, Any], claim: dict[str, Any], bars: dict[str, Any]) -> list[str]:
    """Return the table of errors, and what follows from it."""
    lines = [
        "",
        f"KL divergence from the exact answer, median of {curves['restarts']} restarts",
        f"{'steps':>10}" + "".join(f"{method.label:>10}" for method in PAPER_METHODS),
    ]
    checkpoints = curves["checkpoints"]
    for steps in sorted({n for n in SHOWN_STEPS if n <= checkpoints[-1]} | {checkpoints[-1]}):
        column = checkpoints.index(steps)
        medians = [curves["bands"][method.name][1][column] for method in PAPER_METHODS]
        lines.append(f"{steps:>10,}" + "".join(f"{median:>10.4f}" for median in medians))
    number = figures.hardest_target(claim)
    if number is not None:
        ratio = claim["rows"][1]["ratios"][number]
        lines += [
            "",
            f"For a KL divergence of {ratio['target']:g} LMH needs {ratio['value']:.2f} times as "
            f"many steps as AdLMH (95 % interval {ratio['low']:.2f} to {ratio['high']:.2f}).",
            "The paper says 2. `adlmh reproduce hmm` measures it with more restarts.",
        ]
    lines.append(f"AdLMH selected most often: {', '.join(bars['most_selected'])}.")
    return lines
