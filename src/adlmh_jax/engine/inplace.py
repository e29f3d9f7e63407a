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
from jax.custom_batching import custom_vmap

from adlmh_jax.graph import read_rows, write_rows
from adlmh_jax.types import Array

FAN_OUT = 8  # branches are searched as a tree when there are more
MAX_COPIED = 2**14  # bytes of chains that are quicker copied than read apart


def run_branch(
    index: Array, num_branches: int, run: Callable[[int, Array, Any], Any], carry: Any
) -> Any:
    """Apply ``run(index, turn, carry)`` for the branch of that index; for -1 do nothing.

    A branch is a loop of zero or one turns: unlike a conditional, a loop updates its carry in
    place. ``turn`` is the number of its turn, 0; but XLA does not know: see `keep_inside`.

    Where superchains run together (`jax.vmap`), a branch runs for all of them if any is to take it;
    ``run`` leaves the carry of the others as it is: see `follow` and `only_here`.
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
        return lax.fori_loop(0, _most(is_here), functools.partial(search, low, high), carry)

    return run_if_here(0, num_branches, carry)


@custom_vmap
def _most(turns: Array) -> Array:
    """Return a number of turns: where superchains run together, the greatest, for all of them.

    If each had its own, `jax.vmap` would choose between the old and the new carry of a loop for
    each superchain: all chains would be read and written at every turn. On a hidden Markov model of
    180 states, one choice at a time, that made a step 18 times as dear as on its own.
    """
    return turns


@_most.def_vmap
def _most_of_all(axis_size: int, in_batched: list, turns: Array) -> tuple[Array, bool]:
    del axis_size, in_batched
    return jnp.max(turns), False


@custom_vmap
def follow(is_here: Array, place: Any) -> Any:
    """Return the entry to move in a branch: superchains that have none there follow one that has.

    What they compute is thrown away (`only_here`), but numbers that make no sense could keep a
    sampler trying for long.
    """
    del is_here
    return place


@follow.def_vmap
def _follow_first(axis_size: int, in_batched: list, is_here: Array, place: Any) -> tuple[Any, Any]:
    del axis_size
    is_own, are_batched = in_batched
    if not is_own:
        return place, are_batched
    first = jnp.argmax(is_here)

    def choose(number: Array, is_batched: bool) -> Array:
        return jnp.where(is_here, number, number[first]) if is_batched else number

    return jax.tree.map(choose, place, are_batched), are_batched


@custom_vmap
def only_here(is_here: Array, new: Any, old: Any) -> Any:
    """Return new values, or the old ones for superchains that do not take the branch."""
    del is_here, old
    return new


@only_here.def_vmap
def _choose_here(
    axis_size: int, in_batched: list, is_here: Array, new: Any, old: Any
) -> tuple[Any, Any]:
    if not in_batched[0]:
        return new, in_batched[1]

    def choose(is_here: Array, new: Any, old: Any) -> Any:
        return jax.tree.map(lambda n, o: jnp.where(is_here, n, o.reshape(n.shape)), new, old)

    axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(in_batched))
    chosen = jax.vmap(choose, axes, axis_size=axis_size)(is_here, new, old)
    return chosen, jax.tree.map(lambda _: True, chosen)


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
    return lax.fori_loop(0, _most(zero + 1), lambda _, rows: read(source), empty)


def put_rows(bank: Array, rows: Array, at: Array | int) -> Array:
    """Return the bank with ``rows`` at a place; in place even if these are all of its rows.

    What replaces a bank whole may be laid out with the chains first, and the bank would then be so
    in all branches: it would be copied, to and fro, in every step. Two writes leave it as it is. On
    a local level model of 200 steps, two of which were scored whole, a move of any other took 45
    microseconds where it now takes 15. Small banks are quicker copied.
    """
    is_whole = 1 < rows.shape[0] == bank.shape[0]
    if not is_whole or _num_bytes(rows) <= MAX_COPIED:
        return write_rows(bank, rows, at)
    return write_rows(write_rows(bank, rows[:1], at), rows[1:], at + 1)


def add_at(array: Array, increments: Array, at: Array | int) -> Array:
    """Add to a part of an array: ``array.at[...].add`` would be a scatter, one by one on a CPU."""
    old = read_rows(array, at, increments.size)
    return write_rows(array, old + increments.astype(array.dtype), at)


def _num_bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
