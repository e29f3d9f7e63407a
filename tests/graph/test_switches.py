"""Values that depend on others by yes or no alone: found, and summed for each value of those."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adlmh_jax.graph import Cutter, find_switches, sum_where, trace_graph

YEARS = np.arange(6, dtype=np.int32)
SWITCHED = {
    "where": lambda v: jnp.log(jnp.where(YEARS < v["s"], v["a"], v["b"])) * v["b"],
    "product": lambda v: v["a"] * (YEARS < v["s"]) + v["b"] * (YEARS >= v["s"]),
    "two questions": lambda v: jnp.where((YEARS < v["s"]) & (YEARS > v["s"] - 2), v["a"], YEARS),
    "one answer for all": lambda v: jnp.where(v["s"] > 3, v["a"], v["b"]) * YEARS,
    "matrix": lambda v: jnp.where(YEARS[:, None] < v["s"], v["a"], v["b"] * YEARS).T,
}
OTHERS = {
    "a number": lambda v: v["a"] + YEARS * v["s"],
    "a question of others": lambda v: jnp.where(YEARS < v["s"] + v["a"], v["a"], v["b"]),
    "answers that are counted": lambda v: v["a"] * jnp.sum(YEARS < v["s"]) * YEARS,
    "answers in another order": lambda v: jnp.where(YEARS < v["s"], v["a"], v["b"])[::-1],
    "three questions": lambda v: (
        (YEARS < v["s"]) * v["a"] + (YEARS > v["s"]) * v["b"] + (YEARS == v["s"]) * 2 * v["a"]
    ),
    "no question": lambda v: v["a"] * YEARS,
}


def find(function):
    """Cut out a value of one decider and two others, and find its switches."""
    float_type = jax.dtypes.canonicalize_dtype(float)
    avals = {"s": jax.ShapeDtypeStruct((), "int32")}
    avals |= dict.fromkeys("ab", jax.ShapeDtypeStruct((), float_type))
    graph, result = trace_graph(function, avals)
    cutter = Cutter(graph, dict.fromkeys(graph.inputs.values(), "value"))
    fragment = cutter.cut([result])
    names = {number: name for name, number in graph.inputs.items()}
    inputs = {n: names[value] for n, value in cutter.inputs.items()}
    constants = {n: graph.constants[value] for n, value in cutter.constants.items()}
    shapes = {n: avals[name] for n, name in inputs.items()}
    shapes |= {n: jax.ShapeDtypeStruct(np.shape(c), c.dtype) for n, c in constants.items()}
    deciders = [n for n, name in inputs.items() if name == "s"]
    switched = find_switches(fragment, shapes, deciders, constants)
    return switched, lambda values: {**constants, **{n: values[x] for n, x in inputs.items()}}


@pytest.mark.parametrize("name", SWITCHED)
def test_sums_are_those_of_the_value_itself(name):
    function = SWITCHED[name]
    changes, rates = np.arange(7, dtype=np.int32), np.array([1.7, 0.0, np.nan, np.inf])
    with jax.enable_x64(name != "where"):
        switched, bind = find(function)

        def at(change, rate):
            values = {"s": change, "a": rate, "b": jnp.asarray(0.6)}
            entries = function(values)
            terms = [switched.run(bind({**values, "s": -1}), s) for s in switched.settings]
            are_set = switched.find_settings(bind(values), entries.shape)
            flat = [[array.reshape(-1) for array in arrays] for arrays in (are_set, terms)]
            num_set = sum(is_set.astype(int) for is_set in are_set)
            return jnp.sum(entries), sum_where(*flat), jnp.all(num_set == 1)

        grid = jax.jit(jax.vmap(jax.vmap(at, (0, None)), (None, 0)))
        expected, found, is_one_set = grid(changes, jnp.asarray(rates, float))
        # Plus infinity is a hole in a table as NaN is.
        expected = np.where(np.isposinf(expected), np.nan, expected)
        assert np.any(np.isfinite(expected)) and np.all(is_one_set)
        np.testing.assert_allclose(found, expected, rtol=1e-6 if name == "where" else 1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_more_than_yes_or_no_is_left_alone(name):
    assert find(OTHERS[name])[0] is None


def test_infinite_values_spoil_only_the_sums_they_are_in():
    is_set = jnp.array([[1, 0, 0, 1], [0, 1, 0, 1], [1, 1, 1, 0], [0, 0, 1, 1]], bool)
    values = jnp.array([-jnp.inf, jnp.nan, jnp.inf, 3.25])
    found = sum_where([is_set, ~is_set], [values, jnp.zeros(4)])
    np.testing.assert_array_equal(found, [-jnp.inf, jnp.nan, jnp.nan, jnp.nan])
    found = sum_where([is_set[:1], ~is_set[:1]], [jnp.array([1.5, jnp.nan, jnp.inf, 3.25])] * 2)
    assert np.isnan(found[0])
    found = sum_where([is_set[:1]], [jnp.array([1.5, jnp.nan, jnp.inf, 3.25])])
    assert found[0] == 4.75
