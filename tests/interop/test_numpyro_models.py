"""Models of NumPyro's documentation: AdLMH agrees with exact answers, or with NUTS.

Estimates are the posterior means of every scalar output. The standard error of each is that of the
mean over chains, which are uncorrelated at stationarity: 512 of AdLMH, 64 of NUTS. An estimate that
is right has |z| > 4 once in 6,000 times (63 degrees of freedom); of runs of this whole file, with
its 50 estimates and other seeds, one in 120 would raise a false alarm.
"""

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro_models import EXAMPLES, PROPOSALS

from adlmh_jax.interop.numpyro_kernel import AdLMH

pytestmark = pytest.mark.slow

MAX_Z = 4.0


def run(kernel, args, num_chains, num_warmup, num_samples):
    """Return samples by chain from vectorised chains."""
    mcmc = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), *args)
    return mcmc.get_samples(group_by_chain=True)


def mean_and_error(values):
    """Return the mean of ``[chain, draw, ...]`` and its standard error."""
    means = np.asarray(values, float).mean(axis=1)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(means))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_posterior(example):
    kernel = AdLMH(example.model, example.outputs, proposals=PROPOSALS)
    settings = {"num_chains": 512, "num_warmup": 1000, "num_samples": 1000} | example.settings
    samples = run(kernel, example.args, **settings)
    if example.truth is None:
        reference = run(NUTS(example.reference or example.model), example.args, 64, 500, 500)
        expected = {name: mean_and_error(reference[name]) for name in example.outputs}
    else:
        expected = {name: (truth, 0.0) for name, truth in example.truth.items()}
    for name, (truth, error) in expected.items():
        mean, own_error = mean_and_error(samples[name])
        z = (mean - truth) / np.sqrt(own_error**2 + error**2)
        assert (np.abs(z) < MAX_Z).all(), f"{name}: {mean}, expected {truth}, z = {z}"
