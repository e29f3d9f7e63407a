"""What automatic proposals gain over the paper's: by steps, by evaluations, and by seconds.

``python -m benchmarks.evaluations`` on a quiet machine.
"""

import functools
import warnings
from typing import NamedTuple

import numpy as np

import adlmh_jax as adlmh
from adlmh_jax.paper.zoo import PROBLEMS, kalman
from adlmh_jax.results import measure
from benchmarks.results import save, table

SIZES = {"num_chains": 256, "num_warmup": 1000, "num_samples": 1000}
CASES = {**PROBLEMS, "kalman, scaled": functools.partial(kalman, "scaled")}


class Gain(NamedTuple):
    """Effective draws of the worst output: per step, per evaluation, per second."""

    per_step: float
    per_evaluation: float
    per_second: float


def measure_gain(problem, proposals, blocks):
    """Sample a problem twice, the second time without compiling."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adlmh.ConvergenceWarning)
        for seed in (0, 1):
            result = adlmh.sample(
                seed, problem.model, problem.args, problem.kwargs, outputs=list(problem.outputs),
                proposals=proposals, blocks=blocks, progress=False, **SIZES,
            )  # fmt: skip
    found = measure(result.draws, result.num_superchains)
    least = min(mixing.ess_bulk for mixing in found.values())
    # A draw is a sweep's worth of steps: one for each entry of the schedule.
    steps = SIZES["num_chains"] * SIZES["num_samples"] * len(result.schedule.names)
    evaluations = steps * evaluations_per_step(result)
    return Gain(least / steps, least / evaluations, least / result.seconds)


def evaluations_per_step(result):
    """Return how often a step evaluates the touched terms: a Gibbs step once for each value."""
    costs = []
    for name in result.schedule.names:
        site = name.split("[")[0]
        is_gibbs = result.proposals[site].startswith("gibbs")
        costs.append(1 + len(result.program.sites[site].candidates) if is_gibbs else 1)
    return float(np.average(costs, weights=result.schedule.selected.sum(axis=0)))


def main():
    """Measure, print, and keep the results."""
    rows = []
    for name, make in CASES.items():
        problem = make()
        prior = measure_gain(problem, "prior", "never")
        auto = measure_gain(problem, "auto", "auto")
        ratios = [new / old for new, old in zip(auto, prior, strict=True)]
        rows.append((name, 1000.0 * prior.per_step, 1000.0 * auto.per_step, *ratios))
        print(rows[-1], flush=True)
    text = (
        "`python -m benchmarks.evaluations`: effective draws of the worst output, AdLMH, "
        f"{SIZES['num_chains']} chains, and the ratios of automatic to prior proposals: per step, "
        "per evaluation of the touched terms (of which a Gibbs step makes one for each value and "
        "one for the value drawn), and per second, compilation excluded (the values of a Gibbs "
        "step are evaluated side by side). Aim: never below 0.9 per evaluation.\n\n"
        + table(
            ["model", "prior, per 1000 steps", "auto", "per step", "per evaluation", "per second"],
            rows,
        )
    )
    save("evaluations", "Automatic proposals against prior proposals", text, {"rows": rows})


if __name__ == "__main__":
    main()
