"""`uniform`: every entry with equal probability, which is LMH."""

import functools
from typing import NamedTuple

import numpy as np

from adlmh_jax.schedules.base import Schedule
from adlmh_jax.types import Array, Sizes, as_array, float_type


class UniformState(NamedTuple):
    """Nothing is learned; the weights are kept to have their number."""

    alpha: Array


@functools.cache
def uniform() -> Schedule:
    """Select every component with equal probability: LMH."""

    def init(sizes: Sizes) -> UniformState:
        num_entries = sizes.num_entries
        return UniformState(as_array(np.full(num_entries, 1.0 / num_entries), float_type()))

    return Schedule(
        init=init,
        weights=lambda state: state.alpha,
        award=None,
        report=lambda state: {},
        num_logged=lambda sizes: 0,
        name="uniform()",
    )
