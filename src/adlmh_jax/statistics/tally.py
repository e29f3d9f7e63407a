"""Sums that stay exact on long runs.

A float32 counter sticks at 2**24 and an int32 one wraps at 2**31; a pooled run of 512 chains passes
both within minutes.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from adlmh_jax.types import Array, as_array


class Tally(NamedTuple):
    """A 64-bit count in two 32-bit words, since 64-bit integers need a global switch of JAX."""

    low: Array
    high: Array


def tally_zeros(shape: tuple[int, ...]) -> Tally:
    """Return counts of zero."""
    return Tally(jnp.zeros(shape, jnp.uint32), jnp.zeros(shape, jnp.uint32))


def tally_add(tally: Tally, increment: Array) -> Tally:
    """Add a non-negative integer below 2**31."""
    low = tally.low + increment.astype(jnp.uint32)
    return Tally(low, tally.high + (low < tally.low).astype(jnp.uint32))


def tally_total(tally: Tally) -> np.ndarray:
    """Return the counts as 64-bit integers on the host."""
    return (np.asarray(tally.high).astype(np.int64) << 32) + np.asarray(tally.low).astype(np.int64)


class CompensatedSum(NamedTuple):
    """A float sum and the rounding error that it still owes (Kahan, 1965)."""

    value: Array
    owed: Array


def compensated(value: np.ndarray) -> CompensatedSum:
    """Start a sum at ``value``."""
    return CompensatedSum(as_array(value), as_array(np.zeros_like(value)))


def compensated_add(total: CompensatedSum, increment: Array) -> CompensatedSum:
    """Add, keeping what the rounding of the last addition lost."""
    increment = increment - total.owed
    value = total.value + increment
    return CompensatedSum(value, (value - total.value) - increment)
