"""Draws, one scalar at a time."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from adlmh_jax.model import element_names


def scalars(
    draws: Mapping[str, np.ndarray], chosen: Collection[str] | None = None
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield the name of each array, the name of each of its (chosen) scalars, and its draws."""
    for name, array in draws.items():
        flat = array.reshape(*array.shape[:2], -1)
        for index, scalar in enumerate(element_names(name, array.shape[2:])):
            if chosen is not None and scalar not in chosen:
                continue
            values = np.ascontiguousarray(flat[..., index])
            yield name, scalar, values.astype(np.int8) if values.dtype == bool else values
