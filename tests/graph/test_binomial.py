"""Binomial variates: the distribution is the binomial's, and every draw ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from adlmh_jax.graph import binomial, draw_binomial

NUM_DRAWS = 200_000
# Distance of the empirical distribution function that a right sampler exceeds with probability
# 1e-5 (Massart's bound, which holds for steps too): 0.0055.
LIMIT = np.sqrt(np.log(2.0 / 1e-5) / (2.0 * NUM_DRAWS))


def draw(count, prob, seed=0):
    keys = jax.random.split(jax.random.key(seed), NUM_DRAWS // 4)
    probs, counts = jnp.full(4, prob), jnp.full(4, count, jnp.int32)
    return np.asarray(jax.jit(jax.vmap(lambda key: draw_binomial(key, probs, counts)))(keys))


def distance(values, count, prob):
    places = np.arange(count + 1)
    found = np.cumsum(np.bincount(values.ravel(), minlength=count + 1)) / values.size
    return np.abs(found - stats.binom.cdf(places, count, prob)).max()


CASES = [(1, 0.3), (3, 0.97), (12, 0.9), (20, 0.5), (21, 0.49), (40, 0.26), (200, 0.01), (200, 0.3)]


@pytest.mark.parametrize(("count", "prob"), [*CASES, (1_000, 0.9), (100_000, 0.37)])
def test_distribution(count, prob):
    assert distance(draw(count, prob), count, prob) < LIMIT


@pytest.mark.parametrize(("count", "prob"), [(40, 0.3), (200, 0.01)])
def test_a_try_too_easily_accepted_is_caught(count, prob, monkeypatch):
    """Mutant: the first try is always taken."""
    monkeypatch.setattr(binomial.lax, "while_loop", lambda condition, body, start: body(start))
    assert distance(draw(count, prob), count, prob) > LIMIT


def test_elements_and_keys_are_independent():
    correlations = np.corrcoef(draw(40, 0.3).T)[np.triu_indices(4, 1)]
    # Six correlations of 50,000 pairs: each beyond 5 sd with probability 6e-7.
    assert np.abs(correlations).max() < 5.0 / np.sqrt(NUM_DRAWS // 4)


def test_whatever_the_parameters_are_it_ends():
    probs = jnp.array([0.0, 1.0, jnp.nan, 0.5, -1e-7, -0.2, 1.5, 1e-38, 1 - 6e-8])
    counts = jnp.array([5, 5, 5, -3, 5, 5, 5, 200, 200])
    expected = [0, 5, 0, 0, 0, 0, 5, 0, 200]
    np.testing.assert_array_equal(draw_binomial(jax.random.key(0), probs, counts), expected)
    keys = jax.random.split(jax.random.key(0), len(expected))
    each = jax.jit(jax.vmap(draw_binomial))(keys, probs, counts)
    np.testing.assert_array_equal(each, expected)
