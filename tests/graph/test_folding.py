"""Values that are known before a model runs are computed in one go, as if one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adlmh_jax.graph.graph import trace_graph

DATA = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
X = {"x": jax.ShapeDtypeStruct((), jnp.float32)}


def known(inputs):
    product = jnp.exp(DATA[0]) * DATA[1] + DATA[2]
    return product.reshape(10, 100)[2:9:3].T + 0.0 * inputs["x"], product


def test_values_are_those_of_single_operations():
    graph, (_, number) = trace_graph(known, X)
    assert number in graph.constants and number not in graph.producer
    expected = jnp.exp(jnp.asarray(DATA[0])) * DATA[1] + DATA[2]  # each rounded by itself
    np.testing.assert_array_equal(graph.constants[number], expected)


def test_values_are_computed_even_while_something_is_traced():
    graph, (_, number) = trace_graph(known, X)
    jax.jit(lambda x: x + graph.constants[number])(DATA[0])
    assert isinstance(graph.constants[number], np.ndarray)


MOVEMENTS = {
    "broadcast": lambda a: jnp.broadcast_to(a[:, None, :], (3, 4, 1000)),
    "iota": lambda a: jax.lax.broadcasted_iota(jnp.int32, (3, 5), 1),
    "reshape": lambda a: a.reshape(30, 100),
    "slice": lambda a: a[1:, 3:900:7],
    "squeeze": lambda a: jnp.squeeze(a[:1], 0),
    "transpose": lambda a: a.T,
    "concatenate": lambda a: jnp.concatenate([a, a[:, ::2]], axis=1),
    "compare": lambda a: ((a > 0.5) | (a <= -1.0)) & (a != a[0]),
    "all": lambda a: jnp.all(a < 2.5, axis=1),
}


@pytest.mark.parametrize("name", MOVEMENTS)
def test_numpy_moves_and_compares_as_jax_does(name):
    function = MOVEMENTS[name]
    graph, number = trace_graph(lambda inputs: function(jnp.asarray(DATA)), X)
    expected = np.asarray(function(jnp.asarray(DATA)))
    assert graph.avals[number].shape == expected.shape
    assert graph.constants[number].dtype == expected.dtype
    np.testing.assert_array_equal(graph.constants[number], expected)
