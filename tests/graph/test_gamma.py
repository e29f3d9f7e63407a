"""Gamma variates: the hash is Threefry, the distribution is the gamma's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from adlmh_jax.graph import gamma

NUM_DRAWS = 200_000
# Distance of the empirical distribution function that a right sampler exceeds with probability
# 1e-5 (Massart's bound): 0.0055.
LIMIT = np.sqrt(np.log(2.0 / 1e-5) / (2.0 * NUM_DRAWS))


def test_hash_is_threefry():
    key = jax.random.key_data(jax.random.key(7))
    counts = jnp.arange(6, dtype=jnp.uint32)
    expected = jax.extend.random.threefry_2x32(key, counts)
    found = gamma.threefry((key[0], key[1]), (counts[:3], counts[3:]))
    np.testing.assert_array_equal(jnp.concatenate(found), expected)


def draw(alpha, log_space, seed=0):
    keys = jax.random.split(jax.random.key(seed), NUM_DRAWS // 4)
    shapes = jnp.full((NUM_DRAWS // 4, 4), alpha)
    one = jax.jit(jax.vmap(lambda key, alpha: gamma.draw_gamma(key, alpha, log_space)))
    return np.asarray(one(keys, shapes), float).ravel()


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 2.5, 10.0, 300.0])
def test_distribution(alpha):
    logs = draw(alpha, log_space=True)
    found = stats.kstest(logs, stats.loggamma(alpha).cdf).statistic
    assert found < LIMIT
    if alpha >= 0.5:
        assert stats.kstest(draw(alpha, False, 1), stats.gamma(alpha).cdf).statistic < LIMIT


def test_a_try_too_easily_accepted_is_caught(monkeypatch):
    """Mutant: the first try is always taken."""
    monkeypatch.setattr(gamma.lax, "while_loop", lambda condition, body, start: body(start))
    found = stats.kstest(draw(1.0, log_space=True), stats.loggamma(1.0).cdf).statistic
    assert found > LIMIT


def test_elements_and_keys_are_independent():
    values = draw(2.5, log_space=True).reshape(-1, 4)
    correlations = np.corrcoef(values.T)[np.triu_indices(4, 1)]
    # Six correlations of 50,000 pairs: each beyond 5 sd with probability 6e-7.
    assert np.abs(correlations).max() < 5.0 / np.sqrt(len(values))


def test_bad_parameters_end():
    values = gamma.draw_gamma(jax.random.key(0), jnp.array([jnp.nan, 1.0]), False)
    assert np.isnan(values[0]) and values[1] > 0
