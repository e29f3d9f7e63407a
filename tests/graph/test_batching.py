"""Functions of one chain as functions of many, against `jax.vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from adlmh_jax.graph import map_last

ROW = np.array([0.5, np.nan, -np.inf, 2.0], np.float32)


def loop(x):
    """A loop with as many turns for all, and what no turn changes."""
    return lax.fori_loop(0, 3, lambda i, y: y * ROW[0] + i + x[0], x)


def own_loop(x):
    """A loop in which each decides for itself."""
    return lax.while_loop(lambda y: jnp.nansum(jnp.abs(y)) > 1.0, lambda y: y / 2, x[:2])


def scan(x):
    """A scan over rows of which some are the same for all."""
    step = lambda carry, rows: (carry + rows[0] * rows[1], (carry, rows[1], ROW[0]))  # noqa: E731
    return lax.scan(step, 0.0 * x[0], (x, ROW), reverse=True)


def draw(x):
    """Random numbers of a key for each."""
    words = lax.bitcast_convert_type(x[:2], jnp.uint32)
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    return jax.random.uniform(key, (3,)), jax.random.gamma(key, 1.5)


FUNCTIONS = {
    "elementwise": lambda x: jnp.log(x) * ROW + jnp.where(x > 0, x, ROW) - jnp.clip(x, 0.0, x[0]),
    "decision": lambda x: jnp.where(x[0] > 0, ROW, x),
    "axes of size one": lambda x: x[:, None] + ROW[None, :] * x[None, :],
    "reductions": lambda x: (jnp.sum(x), jnp.max(x[:, None] * ROW, axis=1), jnp.argmax(x)),
    "shapes": lambda x: (x.reshape(2, 2).T, x[::-1], x[1:4:2], jnp.pad(x, 1), x[None].squeeze(0)),
    "joined": lambda x: (jnp.stack([x, ROW]), jnp.concatenate([ROW, x]), jnp.cumsum(x)),
    "split": lambda x: jnp.split(x, 2),
    "products": lambda x: (ROW[:2].reshape(1, 2) @ x.reshape(2, 2), x @ x, x @ ROW[3:].repeat(4)),
    "matrices": lambda x: jnp.einsum("ij,jk->ki", x.reshape(2, 2), jnp.ones((2, 3))),
    "places": lambda x: (
        x[jnp.argsort(x)],
        lax.dynamic_index_in_dim(x, 2),
        jnp.take(ROW, jnp.argsort(x)),
    ),
    "conditional": lambda x: lax.cond(x[0] > 0, lambda y: y * 2, lambda y: y - 1, x),
    "constants": lambda x: (ROW, jnp.zeros(2), 1.0),
    "inner map": lambda x: jax.vmap(lambda a, b: a * b + jnp.sum(x))(x, ROW),
    "gradient rules": lambda x: jax.nn.softplus(x) + jax.scipy.special.xlogy(x, x),
    "loop": loop,
    "own loop": own_loop,
    "scan": scan,
    "draw": draw,
}
FLOAT64 = ("elementwise", "reductions", "scan", "loop")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_as_vmap(name):
    function = FUNCTIONS[name]
    with jax.enable_x64(name in FLOAT64):
        values = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
        values[3, 1], values[2, 2], values[3, 3] = np.nan, np.inf, -np.inf
        array = jnp.asarray(values, float if name in FLOAT64 else np.float32)
        expected = jax.jit(jax.vmap(function, in_axes=-1, out_axes=-1))(array)
        found = jax.jit(map_last(function))(array)
    tolerance = 1e-12 if name in FLOAT64 else 1e-6
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_values_from_outside_are_shared():
    """What is traced outside, and the same for all, is no longer than it was."""

    @jax.jit
    def run(x, row):
        return map_last(lambda x: (x + row, jnp.sum(row)))(x)

    values = jnp.arange(8.0).reshape(4, 2)
    found = run(values, jnp.arange(4.0))
    np.testing.assert_allclose(found[0], values + jnp.arange(4.0)[:, None])
    np.testing.assert_allclose(found[1], [6.0, 6.0])


def test_chains_stay_last():
    """No axis is moved where shapes differ: that is what it is for."""
    jaxpr = jax.make_jaxpr(map_last(FUNCTIONS["elementwise"]))(jnp.ones((4, 64)))
    assert "transpose" not in str(jaxpr)
