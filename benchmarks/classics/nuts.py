"""NUTS on the models whose discrete latents were summed out by hand."""

import time

import jax
import numpyro.infer

from adlmh_jax.results.diagnose import measure
from adlmh_jax.results.tables import summarise_outputs
from benchmarks.classics import CLASSICS
from benchmarks.classics.measure import compare

NUM_CHAINS, NUM_DRAWS = 4, 1000  # and as many of warm-up


def measure_nuts(name):
    """Run NUTS twice, the second time without compiling, and compare with the truth."""
    classic = CLASSICS[name]
    truth = classic.truth()
    sampler = numpyro.infer.MCMC(
        numpyro.infer.NUTS(classic.marginal),
        num_warmup=NUM_DRAWS,
        num_samples=NUM_DRAWS,
        num_chains=NUM_CHAINS,
        progress_bar=False,
    )
    seconds = []
    for seed in (0, 1):
        started = time.perf_counter()
        sampler.run(jax.random.key(seed), *classic.args)
        draws = jax.device_get(sampler.get_samples(group_by_chain=True))
        seconds.append(time.perf_counter() - started)
    summary = summarise_outputs(draws, measure(draws, NUM_CHAINS), ())
    known = [output for output in truth if output in summary.index]
    outputs = {output: compare(summary.loc[output], truth[output]) for output in known}
    least = min(output["ess"] for output in outputs.values())
    return {
        "ess": least,
        "ess_per_second": least / seconds[1],
        "seconds_first": seconds[0],
        "seconds_again": seconds[1],
        "z": max(output["z"] for output in outputs.values()),
        "outputs": outputs,
    }
