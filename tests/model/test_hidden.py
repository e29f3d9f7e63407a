"""Random numbers that are no latent sites are refused, by the name of the term."""

import itertools
import random

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import adlmh_jax as adlmh


def key_in_the_mean():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    noise = jax.random.normal(numpyro.prng_key())
    numpyro.sample("y", dist.Normal(x + noise, 1.0), obs=0.5)


def global_generator():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x + np.random.normal(), 1.0), obs=0.5)  # noqa: NPY002


def fresh_data():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=np.random.default_rng().normal(size=3))


def fresh_mean():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x + np.random.default_rng().normal(), 1.0), obs=0.5)


def fresh_array():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    noise = jnp.asarray(np.random.default_rng().normal(size=3))
    numpyro.sample("y", dist.Normal(x + noise, 1.0), obs=np.zeros(3))


def fresh_prior():
    x = numpyro.sample("x", dist.Normal(random.Random().random(), 1.0))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=0.5)


def fresh_factor():
    numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.factor("y", np.random.default_rng().normal())


ROWS = itertools.cycle(range(50))  # never the same twice running, as random ones may be


def fresh_row():
    x = numpyro.sample("x", dist.Normal(jnp.arange(50.0), 1.0).to_event(1))
    row = next(ROWS)
    numpyro.sample("y", dist.Normal(x[row], 1.0), obs=0.5)


def fresh_mask():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    with numpyro.handlers.mask(mask=np.random.default_rng().random(50) < 0.5):
        numpyro.sample("y", dist.Normal(x, 1.0), obs=np.zeros(50))


def fresh_step():
    """The number is inside the body of a loop."""

    def step(state, value):
        state = numpyro.sample("state", dist.Normal(state, 1.0))
        drift = np.random.default_rng().normal()
        numpyro.sample("y", dist.Normal(state + drift, 1.0), obs=value)
        return state, None

    scan(step, 0.0, jnp.array([0.1, 0.3, 0.2]))


def fresh_output():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.deterministic("z", x + np.random.default_rng().normal())


def key_in_an_output():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.deterministic("z", x + jax.random.normal(numpyro.prng_key()))


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (fresh_mean, "`y` changes from run to run"),
        (fresh_array, "`y` changes from run to run"),
        (fresh_prior, "`x` changes from run to run"),
        (fresh_factor, "`y` changes from run to run"),
        (fresh_row, "`y` changes from run to run"),
        (fresh_mask, "`y` changes from run to run"),
        (fresh_step, "`y` changes from run to run"),
        (fresh_output, "`z` changes from run to run"),
        (key_in_an_output, "`z` depends on a random key"),
        (key_in_the_mean, "`y` depends on a random key"),
        (global_generator, "`y` changes from run to run"),
        (fresh_data, "`y` observes other data on every run"),
    ],
)
def test_hidden_randomness_is_refused(model, why):
    with pytest.raises(adlmh.ModelError, match=why) as caught:
        adlmh.compile_model(model)
    assert "Make them a latent site" in str(caught.value)


def seeded_generator():
    np.random.seed(3)  # noqa: NPY002
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x + np.random.normal(), 1.0), obs=0.5)  # noqa: NPY002


def numbers_that_cancel():
    """The order of the data does not matter."""
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    data = np.random.default_rng().permutation(np.array([1.0, 2.0, 4.0]))
    numpyro.factor("y", x * jnp.sum(jnp.asarray(data)))


def not_a_number():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    data = jnp.array([1.0, np.nan])
    numpyro.factor("y", -jnp.nansum(jnp.where(data > 0, data, float("nan")) * x**2))


def key_carried_along():
    """A scan carries the key of the run through its body, which makes nothing of it."""

    def step(state, value):
        state = numpyro.sample("state", dist.Normal(state, 1.0))
        numpyro.sample("y", dist.Normal(state, 1.0), obs=value)
        return state, None

    scan(step, 0.0, jnp.array([0.1, 0.3, 0.2]))


def unused_key():
    numpyro.sample("x", dist.Normal(0.0, 1.0))
    jax.random.normal(numpyro.prng_key())


@pytest.mark.parametrize(
    "model",
    [seeded_generator, numbers_that_cancel, not_a_number, key_carried_along, unused_key],
)
def test_numbers_that_stay_the_same_are_fine(model):
    adlmh.compile_model(model)


@pytest.mark.parametrize("model", [not_a_number, key_carried_along, unused_key])
def test_what_stays_the_same_is_not_run_again(model, monkeypatch):
    def fail(*_):
        raise AssertionError("the model was suspected")

    monkeypatch.setattr("adlmh_jax.model.tracing.check_runs", fail)
    adlmh.compile_model(model)
