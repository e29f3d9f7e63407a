"""One step of a superchain: an entry of the schedule is moved in every chain.

All chains of a superchain move the same entry (a component, or a block of them), so that only the
branch of its site runs. A branch is a loop of zero or one turns: unlike a conditional, a loop
updates the chains in place.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.moves.table import Counts, Kernel, KernelData, empty_counts
from adlmh_jax.graph.layout import read_rows, write_rows
from adlmh_jax.moves.metropolis import Before, Moved, bind, is_different, move_one
from adlmh_jax.moves.groups import Group, GroupData
from adlmh_jax.types import Array, Chains, StepInfo

FAN_OUT = 8  # groups are searched as a tree when there are more
MOST_COPIED = 2**14  # bytes of chains that are quicker copied than read apart


def move(
    kernel: Kernel,
    data: KernelData,
    words: Array,
    chains: Chains,
    entry: Array | int,
    way: Array | int = 0,
    scales: Array | None = None,
    counts: Counts | None = None,
    num_scouts: int = 0,
    is_mending: bool = False,
) -> tuple[Chains, StepInfo, Counts]:
    """Propose a new value of an entry in every chain, and accept or reject it.

    Parameters
    ----------
    kernel, data
        From `build_kernel`.
    words
        Random 32-bit words, ``[W, C]``.
    chains
        The chains.
    entry
        Number of the entry to move; -1 moves none.
    way
        Which of its ways to take, 0 or 1.
    scales
        Of the proposals of all components, ``[N]``; default 1.
    counts
        To add to; default none.
    num_scouts
        Of how many chains to report changed outputs.
    is_mending
        Accept all but what makes more terms impossible: to find a starting point.
    """
    num_chains = words.shape[-1]
    nobody = jnp.zeros(num_chains, bool)
    changed = jnp.zeros((kernel.num_outputs, num_scouts), bool)
    nothing = StepInfo(nobody, nobody, jnp.zeros(num_chains, chains.log_terms.dtype), changed)
    scales = jnp.ones(kernel.num_components) if scales is None else scales
    counts = empty_counts(kernel.num_components) if counts is None else counts
    way = jnp.asarray(way)

    def move_in(index: int, turn: Array, carry: tuple[Chains, StepInfo, Counts]) -> tuple:
        member = data.member_of[way, entry]
        element = data.element_of[entry]
        view = _GroupView(kernel.groups[index], data.groups[index], member, element)
        return _move_group(view, _kept_inside(words, turn), carry, way, scales, is_mending)

    return dispatch(kernel, data, entry, way, move_in, (chains, nothing, counts))


def draw(kernel: Kernel, data: KernelData, words: Array, chains: Chains, entry: Array) -> Chains:
    """Draw all elements of the site of ``entry`` from its proposal, and take them.

    With prior proposals, doing so for all sites in program order runs the program.
    """

    def draw_in(index: int, turn: Array, chains: Chains) -> Chains:
        member = data.member_of[0, entry]
        view = _GroupView(kernel.groups[index], data.groups[index], member, jnp.int32(0))
        return _draw_group(view, _kept_inside(words, turn), chains)

    return dispatch(kernel, data, entry, jnp.int32(0), draw_in, chains)


def dispatch(
    kernel: Kernel,
    data: KernelData,
    entry: Array | int,
    way: Array,
    run: Callable[[int, Array, Any], Any],
    carry: Any,
) -> Any:
    """Apply ``run(index, turn, carry)`` for the group of ``entry``; for -1 do nothing.

    ``turn`` is the number of the loop's turn, 0; but XLA does not know.
    """
    group = jnp.where(jnp.asarray(entry) < 0, -1, data.group_of[way, entry])

    def search(low: int, high: int, turn: Array, carry: Any) -> Any:
        """Find the group among low..high-1."""
        if high - low == 1:
            return run(low, turn, carry)
        width = -(-(high - low) // FAN_OUT)
        for start in range(low, high, width):
            carry = run_if_here(start, min(start + width, high), carry)
        return carry

    def run_if_here(low: int, high: int, carry: Any) -> Any:
        is_here = ((group >= low) & (group < high)).astype(jnp.int32)
        return lax.fori_loop(0, is_here, functools.partial(search, low, high), carry)

    return run_if_here(0, len(kernel.groups), carry)


def _kept_inside(words: Array, turn: Array) -> Array:
    """Return the words, such that what is made of them stays inside the loop.

    A proposal that depends on the words alone does not change from turn to turn: XLA would compute
    it before the loop, hence in every step the proposals of all groups.
    """
    return words ^ turn.astype(words.dtype)


class _GroupView:
    """One member of a group, and an element of it: where it reads and writes in the chains."""

    def __init__(self, group: Group, data: GroupData, member: Array, element: Array) -> None:
        self.group = group
        self.branch = group.branch
        self.member = member
        self.constants = _constants(group, data, member)
        self.element = element
        self.component = data.first_components[member]
        at, read_strides = group.branch.at, [read.strides for read in group.branch.reads]
        term_strides = at.terms if at else [()] * len(group.term_shapes)
        output_strides = at.outputs if at else [()] * len(group.output_shapes)
        index: tuple[Array, ...] = ()
        if at:
            index = jnp.unravel_index(element, at.batch_shape)
            self.constants |= {
                n: i for n, i in zip(at.indices, index, strict=True) if n is not None
            }
            self.component = self.component + element
            self.element = jnp.int32(0)  # of the one that the branch knows of
        self.read_at = _places(data.read_offsets[member], read_strides, index)
        self.term_at = _places(data.term_offsets[member], term_strides, index)
        self.output_at = _places(data.output_offsets[member], output_strides, index)
        self.start_at = _places(data.output_starts[member], output_strides, index)

    def read(self, chains: Chains) -> Before:
        """Return the sites that the branch reads and what it will touch, ``[..., C]``."""
        reads = zip(self.branch.reads, self.read_at, strict=True)
        terms = zip(self.group.term_shapes, self.term_at, strict=True)
        outputs = zip(self.group.output_shapes, self.output_at, strict=True)
        return Before(
            tuple(_rows(chains.position[read.bank], at, read.shape) for read, at in reads),
            tuple(_rows(chains.log_terms, at, shape) for shape, at in terms),
            tuple(_rows(chains.outputs[bank], at, shape) for (shape, bank), at in outputs),
        )

    def read_apart(self, chains: Chains) -> Before:
        """Do as `read`, into arrays of their own.

        XLA would rather read old rows where it writes new ones, and then must copy whole banks, for
        a bank is no longer what was read once a part of it is written. A loop of one turn is what
        it does not see through.
        """
        shapes = jax.eval_shape(self.read, chains)
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        one = jnp.minimum(self.member, 0) + 1
        return lax.fori_loop(0, one, lambda _, rows: self.read(chains), empty)

    def write(
        self,
        chains: Chains,
        values: Sequence[Array],
        log_terms: Sequence[Array],
        outputs: Sequence[Array],
    ) -> Chains:
        """Return the chains with new values of the moved sites, terms and outputs."""
        position, kept, terms = dict(chains.position), dict(chains.outputs), chains.log_terms
        moved = (0, *(redraw.read for redraw in self.branch.redraws))
        for index, value in zip(moved, values, strict=False):
            bank = self.branch.reads[index].bank
            position[bank] = write_rows(position[bank], _flat(value), self.read_at[index])
        for at, term in zip(self.term_at, log_terms, strict=True):
            terms = write_rows(terms, _flat(term), at)
        for (_, bank), at, output in zip(
            self.group.output_shapes, self.output_at, outputs, strict=True
        ):
            kept[bank] = write_rows(kept[bank], _flat(output), at)
        return Chains(position, terms, kept)


def _places(
    offsets: Array, strides: Sequence[tuple[int, ...]], index: tuple[Array, ...]
) -> list[Array]:
    """Return the first rows of arrays, or of the parts of them that belong to one element."""
    places = []
    for number, steps in enumerate(strides):
        ahead = sum((step * i for step, i in zip(steps, index, strict=False)), start=jnp.int32(0))
        places.append(offsets[number] + ahead)
    return places


def _move_group(
    view: _GroupView,
    words: Array,
    carry: tuple[Chains, StepInfo, Counts],
    way: Array,
    scales: Array,
    is_mending: bool,
) -> tuple[Chains, StepInfo, Counts]:
    """Move an entry that belongs to the group."""
    chains, info, counts = carry
    site = view.branch.site
    before = view.read_apart(chains) if _num_bytes(chains) > MOST_COPIED else view.read(chains)
    scale = lax.dynamic_slice_in_dim(scales, view.component, site.num_components)
    scale = scale.reshape(site.batch_shape)

    def move_chain(words: Array, before: Before) -> Moved:
        return move_one(view.branch, view.constants, scale, words, before, view.element, is_mending)

    moved = jax.vmap(move_chain, in_axes=-1, out_axes=-1)(words, before)
    chains = view.write(chains, moved.values, moved.log_terms, moved.outputs)
    changed, num_scouts = info.changed, info.changed.shape[-1]
    for new, old, at in zip(moved.outputs, before.outputs, view.start_at, strict=True):
        if num_scouts:
            differs = _flat(is_different(new, old))
            changed = write_rows(changed, differs[:, :num_scouts], at)
    at = view.component + (0 if view.branch.way.is_block else view.element)
    counts = _count(view, counts, moved, at, way)
    info = StepInfo(_any(moved.is_accepted), _any(moved.is_invalid), moved.log_ratio, changed)
    return chains, info, counts


def _count(view: _GroupView, counts: Counts, moved: Moved, at: Array, way: Array) -> Counts:
    """Add what happened to the components from ``at`` on."""
    accepted = jnp.sum(_flat(moved.is_accepted[None]), axis=-1)
    scaled, taken = counts.scaled, counts.taken
    if view.branch.scale is not None:
        scaled = _add(scaled, accepted, at)
    if view.branch.way.is_compared:
        new = lax.dynamic_slice(taken, (way, at), (1, accepted.size)) + accepted
        taken = lax.dynamic_update_slice(taken, new.astype(taken.dtype), (way, at))
    return Counts(
        _add(counts.accepted, accepted, at),
        _add(counts.invalid, jnp.sum(_flat(moved.is_invalid[None]), axis=-1), at),
        scaled,
        taken,
    )


def _add(array: Array, increments: Array, at: Array) -> Array:
    """Add to a part of an array, in place."""
    old = lax.dynamic_slice_in_dim(array, at, increments.size)
    return lax.dynamic_update_slice_in_dim(array, old + increments.astype(array.dtype), at, 0)


def _num_bytes(chains: Chains) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(chains))


def _any(decisions: Array) -> Array:
    """Whether any element of a chain's block decided so, ``[C]``."""
    return jnp.any(_flat(decisions[None]), axis=0)


def _draw_group(view: _GroupView, words: Array, chains: Chains) -> Chains:
    """Draw the site of a group's member and score what it touches."""
    branch = view.branch
    scale = jnp.ones(branch.site.batch_shape)

    def draw_one(words: Array, reads: tuple[Array, ...]) -> tuple[Array, list, list]:
        known = bind(branch, view.constants, scale, words, reads)
        value = branch.propose.run(known)[0].reshape(branch.site.shape)
        known[branch.reads[0].number] = value
        return value, branch.score.run(known), branch.outputs.run(known)

    before = view.read(chains)
    value, terms, outputs = jax.vmap(draw_one, in_axes=-1, out_axes=-1)(words, before.reads)
    return view.write(chains, [value], terms, outputs)


def _constants(group: Group, data: GroupData, member: Array) -> dict[int, Any]:
    """Return the constants of one member, by number."""
    constants: dict[int, Any] = dict(group.literals)
    constants.update(zip(group.shared, data.shared, strict=True))
    for number, values in zip(group.stacked, data.stacked, strict=True):
        constants[number] = lax.dynamic_index_in_dim(values, member, keepdims=False)
    return constants


def _rows(bank: Array, offset: Array, shape: tuple[int, ...]) -> Array:
    """Read an array ``[*shape, C]``."""
    return read_rows(bank, offset, int(np.prod(shape))).reshape(*shape, bank.shape[-1])


def _flat(array: Array) -> Array:
    """Return an array ``[..., C]`` as rows."""
    return array.reshape(-1, array.shape[-1])
