"""`uniform`: every entry with equal probability, which is LMH."""

import functools
from typing import NamedTuple

from adlmh_jax.schedules.base import Schedule
from adlmh_jax.types import Array, Sizes, as_array, float_type


class UniformState(NamedTuple):
    """Nothing is learned; the weights are kept to have their number."""

    alpha: Array


@functools.cache
def uniform() -> Schedule:
    """Select every component with equal probability: LMH."""

    def init(sizes: Sizes) -> UniformState:
        return UniformState(as_array(sizes.base, float_type()))

    return Schedule(
        init=init,
        weights=lambda state: state.alpha,
        award=None,
        report=lambda state: {},
        num_logged=lambda sizes: 0,
        name="uniform()",
    )
