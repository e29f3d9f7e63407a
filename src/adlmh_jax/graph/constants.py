"""When two arrays that a model was given are the same."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.types import Array, as_array

MAX_COMPARED = 4096  # constants of more elements are not compared but taken to differ


def are_equal(first: Array | np.ndarray, second: Array | np.ndarray) -> bool:
    """Whether two arrays are the same, or small and equal bit for bit."""
    if first is second:
        return True
    return first.size <= MAX_COMPARED and to_bytes(first) == to_bytes(second)


def stack(values: Sequence[Any]) -> Any:
    """Return arrays of one shape as one array; only keys need JAX for it."""
    is_key = jnp.issubdtype(values[0].dtype, jax.dtypes.prng_key)
    return jnp.stack(values) if is_key else as_array([np.asarray(value) for value in values])


def to_bytes(value: Array | np.ndarray) -> bytes:
    """Return the contents of an array, of keys too."""
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value).tobytes()
