"""Components that hold each other: they never change, and chains that differ say so."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh

SIZES = {"num_chains": 64, "num_superchains": 4, "num_warmup": 50, "num_samples": 100}


def tied():
    x = numpyro.sample("x", dist.Bernoulli(0.5))
    y = numpyro.sample("y", dist.Bernoulli(0.5))
    numpyro.factor("equal", jnp.where(x == y, 0.0, -jnp.inf))
    z = numpyro.sample("z", dist.Normal(0.3 * x, 1.0))
    numpyro.deterministic("output", z + 0.1 * y)


def even():
    x = numpyro.sample("x", dist.DiscreteUniform(0, 5))
    y = numpyro.sample("y", dist.DiscreteUniform(0, 5))
    numpyro.factor("even", jnp.where((x + y) % 2 == 0, 0.0, -jnp.inf))
    numpyro.deterministic("output", x % 2 + 0.0)


def sum_is_eight():
    a = numpyro.sample("a", dist.Poisson(4.0))
    b = numpyro.sample("b", dist.Poisson(4.0))
    numpyro.factor("eight", jnp.where(a + b == 8, 0.0, -jnp.inf))
    numpyro.deterministic("output", a * 1.0)


@pytest.mark.parametrize(("model", "stuck"), [(tied, "xy"), (sum_is_eight, "ab")])
def test_what_holds_each_other_is_not_converged(model, stuck):
    result = adlmh.sample(0, model, outputs=["output"], blocks="never", progress=False, **SIZES)
    assert set(result.schedule.stuck) == set(stuck)
    diagnosis = result.diagnose()
    assert diagnosis.verdict == "not converged"
    assert any("they need a joint move" in remedy for remedy in diagnosis.remedies)
    assert "hold each other: sum one out while the other moves" in diagnosis.advice[0]
    rates = result.summary(by="site")["acceptance_rate"]
    assert np.all(rates[list(stuck)] == 0)  # a Gibbs step that draws the same value moves nothing


def test_parity_is_not_converged():
    """Single choices move by two; which parity a chain has is up to its start."""
    result = adlmh.sample(0, even, outputs=["output"], blocks="never", progress=False, **SIZES)
    assert result.diagnose().verdict == "not converged"


@pytest.mark.parametrize(("model", "mean"), [(tied, 0.2), (even, 0.5)])
def test_what_is_drawn_at_once_does_not_hold_each_other(model, mean):
    result = adlmh.sample(0, model, outputs=["output"], progress=False, **SIZES)
    assert not result.schedule.stuck
    assert result.diagnose().verdict == "converged"
    row = result.summary().loc["output"]
    assert abs(row["mean"] - mean) < 4.5 * row["mcse_mean"]  # a false-alarm rate of 1e-5


def rare():
    """An indicator that is hardly ever 1: most chains never see it, and that is right."""
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(5.0 * z, 1.0), obs=0.5)
    numpyro.sample("x", dist.Normal(z * 1.0, 1.0))


def test_a_rare_value_is_not_stuck():
    result = adlmh.sample(0, rare, progress=False, **SIZES)
    assert not result.schedule.stuck
