"""Rows that are looked up at known places: where these follow each other, they are a slice."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from adlmh_jax.types import Array


def gather_as_slice(
    params: dict[str, Any], avals: Sequence[Any], places: Any
) -> core.ClosedJaxpr | None:
    """Return a ``gather`` of consecutive rows, in their order or in reverse, as a slice.

    None if it is none. A step of a loop looks up its own row of an array; all steps at once look up
    all rows, and each result depends on one row alone.

    Parameters
    ----------
    params, avals
        The parameters of the primitive, and the shapes and dtypes of its operands.
    places
        What is known of the indices: an array of the host, or None.
    """
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    shape = avals[0].shape
    is_plain = not numbers.operand_batching_dims and len(avals[1].shape) == 2
    if places is None or not is_plain or 0 in numbers.offset_dims:
        return None
    columns = {
        axis: np.asarray(places)[:, column].astype(np.int64)
        for column, axis in enumerate(numbers.start_index_map)
    }
    along = [axis for axis, size in enumerate(sizes) if size != shape[axis]]
    if len(along) != 1 or sizes[along[0]] != 1 or along[0] not in columns:
        return None
    (axis,) = along
    rows = columns.pop(axis)
    step = int(rows[1] - rows[0]) if len(rows) > 1 else 1
    is_straight = abs(step) == 1 and np.all(np.diff(rows) == step)
    is_inside = 0 <= rows.min() and rows.max() < shape[axis]
    if not is_straight or not is_inside or any(np.any(other) for other in columns.values()):
        return None
    first, end = int(rows.min()), int(rows.max()) + 1
    kept = [size for other, size in enumerate(sizes) if other not in numbers.collapsed_slice_dims]

    def take(operand: Array, indices: Array) -> Array:
        del indices
        is_whole = (first, end) == (0, shape[axis])
        found = operand if is_whole else lax.slice_in_dim(operand, first, end, axis=axis)
        found = lax.rev(found, (axis,)) if step < 0 else found
        found = found if axis == 0 else jnp.moveaxis(found, axis, 0)
        return lax.reshape(found, (len(rows), *kept))

    return jax.make_jaxpr(take)(*avals)
