"""Effective draws per evaluation of the model: automatic proposals against the paper's.

``python -m benchmarks.evaluations``; it counts work, not time, so any machine will do.
"""

import warnings

import numpy as np

import adlmh_jax as adlmh
from adlmh_jax.diagnostics import measure
from adlmh_jax.verdict import ConvergenceWarning
from adlmh_jax.zoo import PROBLEMS
from benchmarks.results import save, table

SIZES = {"num_chains": 64, "num_warmup": 1000, "num_samples": 1000}


def effective_per_evaluation(problem, proposals, blocks):
    """Return effective draws of the worst output per thousand evaluations of touched terms."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = adlmh.sample(
            0, problem.model, problem.args, problem.kwargs, outputs=list(problem.outputs),
            proposals=proposals, blocks=blocks, progress=False, **SIZES,
        )  # fmt: skip
    found = measure(result.draws, result.num_superchains)
    least = min(mixing.ess_bulk for mixing in found.values())
    steps = SIZES["num_chains"] * SIZES["num_samples"] * len(result.schedule.names)
    return 1000.0 * least / (steps * evaluations_per_step(result))


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
    for name, make in PROBLEMS.items():
        problem = make()
        prior = effective_per_evaluation(problem, "prior", "never")
        auto = effective_per_evaluation(problem, "auto", "auto")
        rows.append((name, prior, auto, auto / prior))
        print(rows[-1], flush=True)
    text = (
        "`python -m benchmarks.evaluations`: effective draws of the worst output per thousand "
        f"evaluations of touched terms, AdLMH, {SIZES['num_chains']} chains; a Gibbs step counts "
        "one for each value and one for the value drawn. Aim: never below 0.9.\n\n"
        + table(["model", "prior", "auto", "ratio"], rows)
    )
    save("evaluations", "Automatic proposals against prior proposals", text, {"rows": rows})


if __name__ == "__main__":
    main()
