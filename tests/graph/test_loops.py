"""Loops split into what can be computed for all steps at once, and what must wait."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from test_slicing import cut

from adlmh_jax.graph import loops
from adlmh_jax.graph.graph import trace_graph

TABLE = jnp.arange(12.0).reshape(3, 4) / 7.0


def run(step, first, rows, z, **options):
    """Scan with NumPyro's counter: each step looks up its own row of ``z``."""

    def counted(carry, row):
        number, carry = carry
        carry, result = step(carry, z[number], row)
        return (number + 1, carry), result

    return lax.scan(counted, (jnp.asarray(0), first), rows, **options)


def lagged(z, rows, **options):
    return run(lambda before, here, row: (here, here - 0.5 * before + row), 0.3, rows, z, **options)


def two_lags(z, rows, **options):
    def step(carry, here, row):
        before, earlier = carry["before"], carry["earlier"]
        return {"before": here, "earlier": before}, jnp.stack([here, before * row, earlier])

    return run(step, {"before": 1.0, "earlier": -1.0}, rows, z, **options)


def running_sum(z, rows, **options):
    return run(lambda total, here, row: (0.9 * total + here, total * row), 0.0, rows, z, **options)


def sum_and_lag(z, rows, **options):
    """The running sum reads the lag, and is read by what is handed on next to it."""

    def step(carry, here, row):
        before, total, seen = carry
        return (jnp.exp(here), total + before * row, total * here), (seen, jnp.sin(total))

    return run(step, (1.0, 0.0, 2.0), rows, z, **options)


def swapped(z, rows, **options):
    return run(
        lambda pair, here, row: ((pair[1] + here, pair[0]), pair[0] * row),
        (0.0, 1.0),
        rows,
        z,
        **options,
    )


def fixed_and_key(z, rows, **options):
    """A parameter and a key are carried along; the key changes, and nothing is made of it."""

    def step(carry, here, row):
        scale, key, before = carry
        return (scale, jax.random.split(key)[0], here), scale * before + row

    first = (z[0] * 2.0, jax.random.key(0), 0.0)
    (_, (scale, _, last)), results = run(step, first, rows, z, **options)
    return (scale, last), results


def nested(z, rows, **options):
    def step(before, here, row):
        inner = lax.scan(lambda c, v: (v * here, c + v), before, TABLE[0])
        return here, (inner, row)

    return run(step, 0.5, rows, z, **options)


def with_condition(z, rows, **options):
    def step(before, here, row):
        chosen = lax.cond(here > 0, lambda: before + row, lambda: here * row)
        return jnp.floor(here).astype(int) % 3, (chosen, TABLE[before])

    return run(step, 1, rows, z, **options)


def without_rows(z, rows, **options):
    return run(lambda c, here, _: (here, c), 0.0, None, z, length=len(rows), **options)


def mapped(z, rows, **options):
    return lax.scan(lambda _, pair: (None, jnp.sin(pair[0]) * pair[1]), None, (z, rows), **options)


# name: (what loops, how many loops are left)
CASES = {
    "lag": (lagged, 0),
    "two lags": (two_lags, 0),
    "running sum": (running_sum, 1),
    "running sum and lag": (sum_and_lag, 1),
    "swapped": (swapped, 1),
    "fixed and key": (fixed_and_key, 0),
    "nested": (nested, 0),
    "condition": (with_condition, 0),
    "without rows": (without_rows, 0),
    "mapped": (mapped, 0),
}
OPTIONS = {"forward": {}, "reverse": {"reverse": True}, "unrolled": {"unroll": 2}}


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", CASES)
def test_equals_the_loop(name, options, length):
    function, num_loops = CASES[name]
    z = jnp.asarray(np.random.default_rng(length).normal(size=length), jnp.float32)
    rows = jnp.linspace(0.5, 2.0, length)

    def compute(inputs):
        return function(inputs["z"], rows, **OPTIONS[options])

    expected = compute({"z": z})
    graph, numbers = trace_graph(compute, {"z": z})
    wanted = jax.tree.leaves(numbers)
    given, constants = cut(graph, wanted, [graph.inputs["z"]])
    for value, truth in zip(given([z], constants), jax.tree.leaves(expected), strict=True):
        assert (value.shape, value.dtype) == (truth.shape, truth.dtype)
        np.testing.assert_allclose(value, truth, rtol=2e-6, atol=2e-6)
    nodes = [graph.nodes[index] for index in graph.ancestors(wanted)]
    if length > 1:  # a single step may hang on nothing unknown
        assert sum(node.primitive.name == "scan" for node in nodes) == num_loops


def test_what_waits_is_all_that_is_left_in_the_loop():
    graph, numbers = trace_graph(
        lambda inputs: sum_and_lag(inputs["z"], jnp.ones(5)),
        {"z": jax.ShapeDtypeStruct((5,), jnp.float32)},
    )
    wanted = jax.tree.leaves(numbers)
    nodes = [graph.nodes[index] for index in graph.ancestors(wanted)]
    (loop,) = [node for node in nodes if node.primitive.name == "scan"]
    names = [equation.primitive.name for equation in loop.params["jaxpr"].eqns]
    assert len(loop.outputs) == 2  # of one carried value: the last one, and those of all steps
    assert set(names) <= {"add", "mul"}


def test_size_does_not_grow_with_the_length():
    def num_nodes(length):
        z = jax.ShapeDtypeStruct((length,), jnp.float32)
        graph, _ = trace_graph(lambda inputs: sum_and_lag(inputs["z"], jnp.ones(length)), {"z": z})
        return len(graph.nodes)

    assert num_nodes(50) == num_nodes(200)


@pytest.mark.parametrize(
    "step",
    [
        lambda c, x: (jnp.tanh(c * x), c),
        lambda c, x: (c + jnp.sum(x * jnp.ones((600, 600))), x),
    ],
    ids=["a recurrence alone", "large"],
)
def test_some_loops_stay_as_they_are(step):
    closed = jax.make_jaxpr(lambda x: lax.scan(step, 0.1, x))(jnp.ones(3))
    (equation,) = [e for e in closed.jaxpr.eqns if e.primitive.name == "scan"]
    assert loops.split_scan(equation) is None


def test_effects_stay_in_the_loop():
    def step(carry, x):
        jax.debug.callback(lambda value: None, x)
        return x, carry

    closed = jax.make_jaxpr(lambda x: lax.scan(step, 0.1, x))(jnp.ones(3))
    (equation,) = [e for e in closed.jaxpr.eqns if e.primitive.name == "scan"]
    assert loops.split_scan(equation) is None


def look_up(places, mode=None):
    return lambda x: jax.vmap(lambda place: x.at[place].get(mode=mode))(jnp.array(places))


# name: (function of an array of shape (6, 3), whether rows are still looked up)
LOOK_UPS = {
    "all": (look_up(range(6)), False),
    "some": (look_up([2, 3, 4]), False),
    "backwards": (look_up([4, 3, 2]), False),
    "dynamic slices": (
        lambda x: jax.vmap(lambda i: lax.dynamic_slice(x, (i, 0), (1, 3)))(jnp.arange(1, 4)),
        False,
    ),
    "columns": (lambda x: jax.vmap(lambda i: x[:, i])(jnp.arange(3)), False),
    "every other": (look_up([0, 2, 4]), True),
    "repeated": (look_up([1, 1, 2]), True),
    "beyond the end": (look_up([4, 5, 6], "clip"), True),
    "filled": (look_up([4, 5, 6], "fill"), True),
    "parts of rows": (
        lambda x: jax.vmap(lambda i: lax.dynamic_slice(x, (i, 1), (1, 2)))(jnp.arange(1, 4)),
        True,
    ),
}


@pytest.mark.parametrize("name", LOOK_UPS)
def test_looking_up_consecutive_rows_is_a_slice(name):
    function, is_gathered = LOOK_UPS[name]
    x = jnp.arange(18.0).reshape(6, 3)
    graph, number = trace_graph(lambda inputs: function(inputs["x"]), {"x": x})
    given, constants = cut(graph, [number], [graph.inputs["x"]])
    np.testing.assert_array_equal(given([x], constants)[0], function(x))
    assert any(node.primitive.name == "gather" for node in graph.nodes) == is_gathered


def test_all_rows_of_a_site_are_the_site():
    x = jax.ShapeDtypeStruct((6,), jnp.float32)
    graph, number = trace_graph(lambda inputs: look_up(range(6))(inputs["x"]), {"x": x})
    assert number == graph.inputs["x"]
