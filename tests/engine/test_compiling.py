"""The quick way of compiling: the same numbers, and plain `jax.jit` where it cannot be had."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adlmh_jax.engine import compile_quickly, compiling


def add_up(times, values):
    return sum(values * turn for turn in range(times))


def make(monkeypatch, options=compiling.QUICKLY):
    monkeypatch.setattr(compiling, "QUICKLY", options)
    return compile_quickly(static_argnums=0)(add_up)


def test_values_are_those_of_the_function(monkeypatch):
    values = jnp.arange(5.0)
    np.testing.assert_array_equal(make(monkeypatch)(4, values), add_up(4, values))


def test_an_option_that_xla_does_not_know_is_left_out(monkeypatch):
    quick = make(monkeypatch, {"xla_cpu_option_of_another_version": 1})
    np.testing.assert_array_equal(quick(4, jnp.ones(3)), np.full(3, 6.0))


def test_accelerators_are_not_compiled_for_like_a_cpu(monkeypatch):
    quick = make(monkeypatch, {"xla_backend_optimization_level": "no number"})
    with pytest.raises(jax.errors.JaxRuntimeError):
        quick(2, jnp.ones(3))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_array_equal(quick(2, jnp.ones(3)), np.ones(3))


def test_it_can_be_called_inside_a_computation(monkeypatch):
    quick = make(monkeypatch)
    np.testing.assert_array_equal(jax.jit(lambda x: quick(3, x) + 1)(jnp.ones(2)), [4.0, 4.0])
    np.testing.assert_array_equal(jax.vmap(lambda x: quick(3, x))(jnp.ones(2)), [3.0, 3.0])


def test_other_errors_are_not_hidden(monkeypatch):
    quick = make(monkeypatch)
    with pytest.raises(TypeError, match="str"):
        quick(3, "text")
