"""Arrays that a model was given: of one data set or of many, and when two are the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.types import as_array

MAX_COMPARED = 4096  # constants of more elements are not compared but taken to differ


@dataclass(frozen=True, eq=False)
class PerDataset:
    """An array that each of several data sets has of its own: to a graph, one array.

    Attributes
    ----------
    values
        Of all data sets, ``[D, ...]``.
    """

    values: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of a data set."""
        return self.values.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        """Of its numbers."""
        return self.values.dtype

    @property
    def size(self) -> int:
        """Numbers in all data sets."""
        return self.values.size


def of_dataset(value: Any, dataset: int) -> Any:
    """Return what a data set has in the place of an array."""
    return value.values[dataset] if isinstance(value, PerDataset) else value


def holds(value: Any) -> bool:
    """Whether what was checked is true, of all data sets."""
    return bool(np.all(value.values if isinstance(value, PerDataset) else value))


def is_common(value: Any) -> bool:
    """Whether an array is the same for all data sets."""
    return not isinstance(value, PerDataset) or bool(np.all(value.values == value.values[:1]))


def are_equal(first: Any, second: Any) -> bool:
    """Whether two arrays are the same, or small and equal bit for bit."""
    if first is second:
        return True
    is_comparable = isinstance(first, PerDataset) == isinstance(second, PerDataset)
    return is_comparable and first.size <= MAX_COMPARED and to_bytes(first) == to_bytes(second)


def stack(values: Sequence[Any]) -> Any:
    """Return arrays of one shape as one array; only keys need JAX for it."""
    per_dataset = [value for value in values if isinstance(value, PerDataset)]
    if per_dataset:
        full = np.broadcast_shapes(*(value.values.shape for value in per_dataset))
        rows = [v.values if isinstance(v, PerDataset) else np.asarray(v) for v in values]
        return PerDataset(np.stack([np.broadcast_to(row, full) for row in rows], axis=1))
    is_key = jnp.issubdtype(values[0].dtype, jax.dtypes.prng_key)
    return jnp.stack(values) if is_key else as_array([np.asarray(value) for value in values])


def to_bytes(value: Any) -> bytes:
    """Return the contents of an array, of keys too."""
    if isinstance(value, PerDataset):
        return value.values.tobytes()
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value).tobytes()
