"""Randomness that a model hides: random numbers that are no latent sites, and would stay frozen."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph import to_bytes
from adlmh_jax.model import errors
from adlmh_jax.model.call import ModelCall, ModelRun
from adlmh_jax.model.distributions import log_terms
from adlmh_jax.types import Array, Position


@contextmanager
def watch_generators() -> Iterator[list[bool]]:
    """Give a list that says, at the end, whether a global random generator was used."""
    used: list[bool] = []
    before = _generator_states()
    yield used
    used.append(_generator_states() != before)


def _generator_states() -> tuple:
    """Return the states of NumPy's and Python's global generators."""
    numpys: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), numpys[1].tobytes(), numpys[2:]


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


def check_generators(call: ModelCall, position: Position) -> None:
    """Raise if two runs at the same values differ in a term: the model used a global generator.

    A generator that the model itself seeds gives the same numbers every time, which is fine.
    """
    first, second = (_terms(call, position, 0) for _ in range(2))
    names = [n for n in first if not np.array_equal(first[n], second[n], equal_nan=True)]
    if names:
        raise errors.random_term(names, "changes from run to run at the same values")


def check_keys(call: ModelCall, position: Position, suspects: list[str]) -> None:
    """Raise if a suspected term depends on the key of the run, at the same values."""
    first, second = (_terms(call, position, seed) for seed in (0, 1))
    names = [n for n in suspects if not np.array_equal(first[n], second[n], equal_nan=True)]
    if names:
        raise errors.random_term(names, "depends on a random key, as of `numpyro.prng_key`")


def _terms(call: ModelCall, position: Position, seed: int) -> dict[str, np.ndarray]:
    """Return all terms at a position, the model being run with a key."""

    def compute(position: Position) -> dict[str, Array]:
        run = call.run(position, jax.random.key(seed))
        return {name: jnp.asarray(log_terms(message)) for name, message in run.scored.items()}

    return {name: np.asarray(term) for name, term in jax.jit(compute)(position).items()}
