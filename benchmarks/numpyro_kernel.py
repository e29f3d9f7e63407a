"""The engine inside NumPyro's `MCMC`, beside `adlmh.sample`.

``python -m benchmarks.numpyro_kernel`` on a quiet machine.
"""

import functools
import time
import warnings

import jax
from numpyro.infer import MCMC

import adlmh_jax as adlmh
from adlmh_jax.paper.zoo import hmm
from benchmarks.results import save, table

NUM_CHAINS = (256, 2048)
NUM_DRAWS = (500, 2500)  # as many in warm-up


def seconds_of(run):
    """Return seconds per thousand sweeps: the difference of a long and a short run, best of three.

    NumPyro's `MCMC` compiles in every run; the difference is free of it.
    """
    best = []
    for num_draws in NUM_DRAWS:
        seconds = []
        for seed in range(3):
            started = time.perf_counter()
            run(seed, num_draws)
            seconds.append(time.perf_counter() - started)
        best.append(min(seconds))
    return 1000.0 * (best[1] - best[0]) / (2 * (NUM_DRAWS[1] - NUM_DRAWS[0]))


def through_sample(problem, num_chains, seed, num_draws):
    """Run `sample`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adlmh.ConvergenceWarning)
        adlmh.sample(
            seed, problem.model, problem.args, outputs=list(problem.outputs), keep="all",
            num_chains=num_chains, num_warmup=num_draws, num_samples=num_draws, progress=False,
        )  # fmt: skip


def through_mcmc(problem, num_chains, seed, num_draws):
    """Run NumPyro's `MCMC`, all chains vectorized."""
    kernel = adlmh.AdLMH(problem.model, outputs=list(problem.outputs))
    mcmc = MCMC(
        kernel, num_chains=num_chains, chain_method="vectorized", progress_bar=False,
        num_warmup=num_draws, num_samples=num_draws,
    )  # fmt: skip
    mcmc.run(jax.random.key(seed), *problem.args)
    jax.block_until_ready(mcmc.last_state)


def main():
    """Measure, print, and keep the results."""
    problem, rows = hmm(), []
    for num_chains in NUM_CHAINS:
        ours, theirs = (
            seconds_of(functools.partial(run, problem, num_chains))
            for run in (through_sample, through_mcmc)
        )
        rows.append((num_chains, ours, theirs, theirs / ours))
        print(rows[-1], flush=True)
    text = (
        "`python -m benchmarks.numpyro_kernel`: seconds per thousand sweeps of the paper's HMM, "
        "half of them in warm-up, all sites recorded, compilation excluded; "
        '`MCMC(AdLMH(model), chain_method="vectorized")`, one superchain on one core, beside '
        "`sample`, four superchains on all cores (aim: ratio at most 2)."
        "\n\n" + table(["chains", "`sample`", "`MCMC`", "ratio"], rows)
    )
    save("numpyro_kernel", "Inside NumPyro's MCMC", text, {"rows": rows})


if __name__ == "__main__":
    main()
