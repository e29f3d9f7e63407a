"""How XLA is made to update the chains in place: every trick, with the reason for it.

Chains are megabytes, a step changes a few rows. Whatever copies the chains, or computes what is not
needed, costs more than the step itself; nothing here has a meaning beyond that.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from adlmh_jax.types import Array

FAN_OUT = 8  # branches are searched as a tree when there are more
MAX_COPIED = 2**14  # bytes of chains that are quicker copied than read apart


def run_branch(
    index: Array, num_branches: int, run: Callable[[int, Array, Any], Any], carry: Any
) -> Any:
    """Apply ``run(index, turn, carry)`` for the branch of that index; for -1 do nothing.

    A branch is a loop of zero or one turns: unlike a conditional, a loop updates its carry in
    place. ``turn`` is the number of its turn, 0; but XLA does not know: see `keep_inside`.
    """

    def search(low: int, high: int, turn: Array, carry: Any) -> Any:
        """Find the branch among low..high-1."""
        if high - low == 1:
            return run(low, turn, carry)
        width = -(-(high - low) // FAN_OUT)
        for start in range(low, high, width):
            carry = run_if_here(start, min(start + width, high), carry)
        return carry

    def run_if_here(low: int, high: int, carry: Any) -> Any:
        is_here = ((index >= low) & (index < high)).astype(jnp.int32)
        return lax.fori_loop(0, is_here, functools.partial(search, low, high), carry)

    return run_if_here(0, num_branches, carry)


def keep_inside(words: Array, turn: Array) -> Array:
    """Return random words such that what is made of them stays inside the loop of ``turn``.

    A proposal that depends on the words alone does not change from turn to turn: XLA would compute
    it before the loop, hence in every step the proposals of all branches. On the Kalman smoother
    that made 0.9 million steps a second where there are now 3.1.
    """
    return words ^ turn.astype(words.dtype)


def read_apart(read: Callable[[Any], Any], source: Any, zero: Array) -> Any:
    """Return ``read(source)`` in arrays of its own; ``zero`` is 0, but XLA does not know.

    XLA would rather read old rows where it writes new ones, and then must copy whole banks, for
    a bank is no longer what was read once a part of it is written. A loop of one turn is what
    it does not see through. Small chains are quicker copied than read apart.
    """
    if _num_bytes(source) <= MAX_COPIED:
        return read(source)
    shapes = jax.eval_shape(read, source)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return lax.fori_loop(0, zero + 1, lambda _, rows: read(source), empty)


def add_at(array: Array, increments: Array, at: Array) -> Array:
    """Add to a part of an array: ``array.at[...].add`` would be a scatter, one by one on a CPU."""
    old = lax.dynamic_slice_in_dim(array, at, increments.size)
    return lax.dynamic_update_slice_in_dim(array, old + increments.astype(array.dtype), at, 0)


def _num_bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
