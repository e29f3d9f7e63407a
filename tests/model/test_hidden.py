"""Random numbers that are no latent sites are refused, by the name of the term."""

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


@pytest.mark.parametrize(
    ("model", "why"),
    [
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


@pytest.mark.parametrize("model", [seeded_generator, key_carried_along, unused_key])
def test_numbers_that_stay_the_same_are_fine(model):
    adlmh.compile_model(model)
