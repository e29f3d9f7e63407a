"""The engine inside NumPyro's `MCMC`, beside `adlmh.sample`.

``python -m benchmarks.numpyro_kernel`` on a quiet machine.
"""

import time
import warnings

import jax
from numpyro.infer import MCMC

import adlmh_jax as adlmh
from adlmh_jax.verdict import ConvergenceWarning
from adlmh_jax.zoo import hmm
from benchmarks.results import save, table

NUM_CHAINS = (256, 2048)
SIZES = {"num_warmup": 1000, "num_samples": 1000}


def seconds_of(run):
    """Return the seconds of the best of three calls, after one that compiles."""
    run()
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def through_sample(problem, num_chains):
    """Return a run by `sample`."""

    def run():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            adlmh.sample(
                0, problem.model, problem.args, outputs=list(problem.outputs),
                num_chains=num_chains, progress=False, **SIZES,
            )  # fmt: skip

    return run


def through_mcmc(problem, num_chains):
    """Return a run by NumPyro's `MCMC`, all chains vectorized."""
    kernel = adlmh.AdLMH(problem.model, outputs=list(problem.outputs))
    mcmc = MCMC(
        kernel, num_chains=num_chains, chain_method="vectorized", progress_bar=False, **SIZES
    )

    def run():
        mcmc.run(jax.random.key(0), *problem.args)
        jax.block_until_ready(mcmc.get_samples())

    return run


def main():
    """Measure, print, and keep the results."""
    problem, rows = hmm(), []
    for num_chains in NUM_CHAINS:
        ours = seconds_of(through_sample(problem, num_chains))
        theirs = seconds_of(through_mcmc(problem, num_chains))
        rows.append((num_chains, ours, theirs, theirs / ours))
        print(rows[-1], flush=True)
    text = (
        "`python -m benchmarks.numpyro_kernel`: seconds of the paper's HMM, 1,000 sweeps of "
        "warm-up and 1,000 draws, from the model to the draws, compilation excluded; "
        '`MCMC(AdLMH(model), chain_method="vectorized")` beside `sample` (aim: ratio at most 2).'
        "\n\n" + table(["chains", "`sample`", "`MCMC`", "ratio"], rows)
    )
    save("numpyro_kernel", "Inside NumPyro's MCMC", text, {"rows": rows})


if __name__ == "__main__":
    main()
