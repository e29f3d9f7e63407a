"""Chains that stay behind are found, and named with what they hold."""

import numpy as np
import numpyro
import numpyro.distributions as dist

import adlmh_jax as adlmh
from adlmh_jax.results.stragglers import find_stragglers


def test_chains_below_the_others_are_found():
    rng = np.random.default_rng(0)
    log_density = -100.0 - rng.gamma(2.0, 1.0, (64, 100))
    superchain_of = np.repeat(np.arange(4), 16)
    assert not find_stragglers(log_density, superchain_of).any()
    log_density[[3, 40]] -= 400.0
    assert np.flatnonzero(find_stragglers(log_density, superchain_of)).tolist() == [3, 40]
    log_density[3, 60:] += 400.0  # it arrived
    assert np.flatnonzero(find_stragglers(log_density, superchain_of)).tolist() == [40]


def test_a_superchain_may_be_lower_than_others():
    """Superchains are compared elsewhere; within one, no chain is behind."""
    log_density = np.random.default_rng(0).normal(size=(32, 100))
    log_density[:16] -= 50.0
    assert not find_stragglers(log_density, np.repeat([0, 1], 16)).any()


def two_modes():
    x = numpyro.sample("x", dist.Normal(0.0, 100.0))
    numpyro.factor("modes", -0.5 * (x - 40.0) ** 2 / 0.01)


def test_what_stragglers_hold_is_said():
    """Walks from -40 are too short to cross; the chain's start is given."""
    init = {"x": np.r_[np.full(63, 40.0), -40.0]}
    result = adlmh.sample(
        0,
        two_modes,
        init=init,
        proposals={"x": lambda key, x, fn, values: (x, 0.0 * x)},
        num_chains=64,
        num_warmup=0,
        num_samples=40,
        progress=False,
    )
    text = " ".join(repr(result.diagnose()).split())
    assert "1 of 64 chains stay" in text
    assert "`x` -40 (the others 40)" in text
