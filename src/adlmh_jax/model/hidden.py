"""Randomness that a model hides: random numbers that are no latent sites, and would stay frozen."""

from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph import to_bytes
from adlmh_jax.model import errors
from adlmh_jax.model.call import ModelCall, ModelRun
from adlmh_jax.model.distributions import log_terms
from adlmh_jax.model.outputs import select_outputs
from adlmh_jax.types import Array, Position

MAX_RUNS = 8  # of a model that does not do the same twice


def check_data(first: Mapping[str, Any], run: ModelRun) -> None:
    """Raise if a run observes other data than the first one."""
    for name, value in observed_data(run).items():
        other = first.get(name)
        if other is None or other is value:
            continue
        if other.shape != value.shape or to_bytes(other) != to_bytes(value):
            raise errors.random_term([name], "observes other data on every run")


def observed_data(run: ModelRun) -> dict[str, Any]:
    """Return the data of a run, as far as they are known."""
    values = {n: m["value"] for n, m in run.scored.items() if m["is_observed"]}
    known = (np.ndarray, jax.Array)
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, known) and not isinstance(value, jax.core.Tracer)
    }


def check_runs(call: ModelCall, position: Position) -> None:
    """Raise if runs at the same values differ in a term or an output: the model drew numbers.

    What it drew may happen to be the same in two of them, or not matter.
    """
    first = _results(call, position, 0)
    for _ in range(MAX_RUNS - 1):
        names = _differing(first, _results(call, position, 0))
        if names:
            raise errors.random_term(names, "changes from run to run at the same values")


def check_keys(call: ModelCall, position: Position, suspects: Collection[str]) -> None:
    """Raise if a suspected term or output depends on the key of the run, at the same values."""
    first, second = (_results(call, position, seed) for seed in (0, 1))
    names = [name for name in _differing(first, second) if name in suspects]
    if names:
        raise errors.random_term(names, "depends on a random key, as of `numpyro.prng_key`")


def _differing(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> list[str]:
    return [n for n in first if not np.array_equal(first[n], second[n], equal_nan=True)]


def _results(call: ModelCall, position: Position, seed: int) -> dict[str, np.ndarray]:
    """Return all outputs and terms at a position, the model being run with a key."""

    def compute(position: Position) -> dict[str, Array]:
        run = call.run(position, jax.random.key(seed))
        terms = {name: jnp.asarray(log_terms(message)) for name, message in run.scored.items()}
        return select_outputs(call.outputs, run) | terms

    return {name: np.asarray(result) for name, result in jax.jit(compute)(position).items()}
