"""What is counted while an epoch runs."""

from typing import NamedTuple

import jax.numpy as jnp

from adlmh_jax.types import Array


class Counts(NamedTuple):
    """What happened during an epoch, per slot, over all chains.

    Attributes
    ----------
    accepted, invalid
        Accepted proposals that changed the value, and proposals of density NaN or +inf, ``[L]``.
    scaled
        Accepted proposals among those that have a scale, ``[L]``.
    taken
        Accepted proposals of each of the two variants, where they are compared, ``[L, 2]``.
    has_moved
        Whether each component has changed in each chain, ``[N, C]``.
    jumps
        Squared jumps, ``[L]``; empty where nobody asks for them.
    """

    accepted: Array
    invalid: Array
    scaled: Array
    taken: Array
    has_moved: Array
    jumps: Array


def empty_counts(num_slots: int, has_moved: Array, has_jumps: bool = False) -> Counts:
    """Return counts of nothing, with what has moved before."""
    zeros = jnp.zeros(num_slots, jnp.int32)
    return Counts(
        accepted=zeros,
        invalid=zeros,
        scaled=zeros,
        taken=jnp.zeros((num_slots, 2)),
        has_moved=has_moved,
        jumps=jnp.zeros(num_slots if has_jumps else 0),
    )
