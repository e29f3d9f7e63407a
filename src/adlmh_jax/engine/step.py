"""One step of a superchain: an entry of the schedule is moved in every chain.

All chains of a superchain move the same entry (a component, or a block of them), so that only the
branch of its site runs.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.engine.inplace import add_at, keep_inside, read_apart, run_branch
from adlmh_jax.graph import map_last, read_rows, write_rows
from adlmh_jax.moves import (
    Accept,
    Before,
    Group,
    GroupData,
    Kernel,
    KernelData,
    Moved,
    accept_by_ratio,
    bind,
    is_different,
    move_one,
)
from adlmh_jax.types import Array, Chains


class StepInfo(NamedTuple):
    """What a schedule learns from one step of a superchain.

    Attributes
    ----------
    is_accepted
        Whether each chain took its proposal, or any element's of a block, ``[C]``.
    changed
        Which outputs changed in the logged chains, ``[K, C]``.
    """

    is_accepted: Array
    changed: Array


class Counts(NamedTuple):
    """What happened during an epoch, per slot, over all chains.

    Attributes
    ----------
    accepted, invalid
        Accepted proposals that changed the value, and proposals of density NaN or +inf, ``[L]``.
    scaled
        Accepted proposals among those that have a scale, ``[L]``.
    taken
        Accepted proposals of each of the two variants, where they are compared, ``[2, L]``.
    has_moved
        Whether each component has changed in each chain, ``[N, C]``.
    """

    accepted: Array
    invalid: Array
    scaled: Array
    taken: Array
    has_moved: Array


def empty_counts(num_slots: int, has_moved: Array) -> Counts:
    """Return counts of nothing, with what has moved before."""
    zeros = jnp.zeros(num_slots, jnp.int32)
    return Counts(
        accepted=zeros,
        invalid=zeros,
        scaled=zeros,
        taken=jnp.zeros((2, num_slots)),
        has_moved=has_moved,
    )


def move(
    kernel: Kernel,
    data: KernelData,
    words: Array,
    chains: Chains,
    entry: Array | int,
    variant: Array | int = 0,
    *,
    scales: Array | None = None,
    counts: Counts | None = None,
    num_logged: int = 0,
    accept: Accept = accept_by_ratio,
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
    variant
        Which of its variants to take, 0 or 1.
    scales
        Of the proposals of all slots, ``[L]``; default 1.
    counts
        To add to; default none.
    num_logged
        Of how many chains to report changed outputs.
    accept
        The rule of acceptance.
    """
    num_chains = words.shape[-1]
    changed = jnp.zeros((kernel.num_outputs, num_logged), bool)
    nothing = StepInfo(jnp.zeros(num_chains, bool), changed)
    scales = jnp.ones(kernel.num_slots) if scales is None else scales
    if counts is None:
        has_moved = jnp.zeros((kernel.num_components, num_chains), bool)
        counts = empty_counts(kernel.num_slots, has_moved)
    variant = jnp.asarray(variant)

    def move_in(index: int, turn: Array, carry: tuple[Chains, StepInfo, Counts]) -> tuple:
        chains, info, counts = carry
        view = view_entry(kernel, data, index, entry, variant)
        chains, moved, before = view.move(keep_inside(words, turn), chains, scales, accept)
        counts = _count(view, counts, moved, before, variant)
        return chains, view.observe(info, moved, before), counts

    group = _group_of(data, entry, variant)
    return run_branch(group, len(kernel.groups), move_in, (chains, nothing, counts))


def draw(
    kernel: Kernel, data: KernelData, words: Array, chains: Chains, site: Array, is_given: Array
) -> Chains:
    """Draw all elements of a site from its prior, and take them, unless the site is given.

    Doing so for all sites in program order runs the program.

    Parameters
    ----------
    kernel, data
        From `build_start`.
    words
        Random 32-bit words, ``[W, C]``.
    chains
        The chains, at the values of the sites that are given.
    site
        Number of the site.
    is_given
        Whether it keeps the values that it has.
    """

    def draw_in(index: int, turn: Array, chains: Chains) -> Chains:
        view = view_entry(kernel, data, index, site, 0)
        return view.draw(keep_inside(words, turn), chains, is_given)

    return run_branch(_group_of(data, site, 0), len(kernel.groups), draw_in, chains)


def _group_of(data: KernelData, entry: Array | int, variant: Array | int) -> Array:
    """Return the index of the group that moves an entry; -1 for none."""
    return jnp.where(jnp.asarray(entry) < 0, -1, data.group_of[variant, entry])


def view_entry(
    kernel: Kernel, data: KernelData, group: int, entry: Array | int, variant: Array | int
) -> "EntryView":
    """Return where a group finds an entry that belongs to it."""
    member, element = data.member_of[variant, entry], data.element_of[entry]
    return EntryView(kernel.groups[group], data.groups[group], member, element)


class EntryView:
    """One member of a group, and an element of it: where it reads and writes in the chains."""

    def __init__(self, group: Group, data: GroupData, member: Array, element: Array) -> None:
        self.group = group
        self.branch = group.branch
        self.member = member
        self.constants = _constants(group, data, member)
        self.element = element
        self.components = data.first_components[member]
        self.slot = data.first_slots[member]
        at, read_strides = group.branch.at, [read.strides for read in group.branch.reads]
        term_strides = at.terms if at else [()] * len(group.term_shapes)
        output_strides = at.outputs if at else [()] * len(group.output_shapes)
        index: tuple[Array, ...] = ()
        if at:
            index = jnp.unravel_index(element, at.batch_shape)
            self.constants |= {
                n: i for n, i in zip(at.indices, index, strict=True) if n is not None
            }
            self.components = self.components + element
            self.slot = self.slot + element
            self.element = jnp.int32(0)  # of the one that the branch knows of
        self.read_at = _places(data.read_offsets[member], read_strides, index)
        self.term_at = _places(data.term_offsets[member], term_strides, index)
        self.output_at = _places(data.output_offsets[member], output_strides, index)
        self.start_at = _places(data.output_starts[member], output_strides, index)

    @property
    def num_decided(self) -> int:
        """Number of elements of the moved site that are decided upon; 0 if no site moves."""
        branch = self.branch
        if branch.joint and not branch.joint.has_mover:
            return 0
        return branch.site.num_components if branch.variant.is_block else 1

    @property
    def num_slots(self) -> int:
        """Number of slots of the entry."""
        joint = self.branch.joint
        return self.num_decided + (sum(v.size for v in joint.variables) if joint else 0)

    @property
    def slot_at(self) -> Array:
        """The first slot of the entry."""
        return self.slot + (0 if self.branch.variant.is_block else self.element * self.num_slots)

    def component_at(self, index: int) -> Array:
        """Return the number of the first component of a moved value."""
        is_single = index == 0 and self.num_decided == 1 and not self.branch.variant.is_block
        return self.components[index] + (self.element if is_single else 0)

    def scale_of(self, scales: Array) -> Array:
        """Return the scales of the moved site's elements."""
        site = self.branch.site
        if self.branch.joint and not self.branch.variant.is_block:
            scale = lax.dynamic_index_in_dim(scales, self.slot_at, keepdims=False)
            return jnp.broadcast_to(scale, site.batch_shape)
        own = lax.dynamic_slice_in_dim(scales, self.slot, site.num_components)
        return own.reshape(site.batch_shape)

    def read(self, chains: Chains) -> Before:
        """Return the sites that the branch reads and what it will touch, ``[..., C]``."""
        reads = zip(self.branch.reads, self.read_at, strict=True)
        terms = zip(self.group.term_shapes, self.term_at, strict=True)
        outputs = zip(self.group.output_shapes, self.output_at, strict=True)
        return Before(
            tuple(_rows(chains.latent[read.bank], at, read.shape) for read, at in reads),
            tuple(_rows(chains.log_terms, at, shape) for shape, at in terms),
            tuple(_rows(chains.outputs[bank], at, shape) for (shape, bank), at in outputs),
        )

    def write(
        self,
        chains: Chains,
        values: Sequence[Array],
        log_terms: Sequence[Array],
        outputs: Sequence[Array],
    ) -> Chains:
        """Return the chains with new values of the moved sites, terms and outputs."""
        latent, kept, terms = dict(chains.latent), dict(chains.outputs), chains.log_terms
        for index, value in zip(self.branch.moved, values, strict=False):
            bank = self.branch.reads[index].bank
            latent[bank] = write_rows(latent[bank], _flat(value), self.read_at[index])
        for at, term in zip(self.term_at, log_terms, strict=True):
            terms = write_rows(terms, _flat(term), at)
        for (_, bank), at, output in zip(
            self.group.output_shapes, self.output_at, outputs, strict=True
        ):
            kept[bank] = write_rows(kept[bank], _flat(output), at)
        return Chains(latent, terms, kept)

    def move(
        self, words: Array, chains: Chains, scales: Array, accept: Accept = accept_by_ratio
    ) -> tuple[Chains, Moved, Before]:
        """Move the entry in all chains."""
        before = read_apart(self.read, chains, jnp.minimum(self.member, 0))
        scale = self.scale_of(scales)

        def move_chain(words: Array, before: Before) -> Moved:
            return move_one(self.branch, self.constants, scale, words, before, self.element, accept)

        moved = map_last(move_chain)(words, before)
        return self.write(chains, moved.values, moved.log_terms, moved.outputs), moved, before

    def observe(self, info: StepInfo, moved: Moved, before: Before) -> StepInfo:
        """Return which chains moved, and which outputs changed in those that are logged."""
        is_accepted = jnp.any(_flat(moved.is_accepted[None]), axis=0)
        if self.branch.joint:  # what is summed out is drawn anew even if the proposal is not taken
            is_accepted = jnp.any(jnp.concatenate(_has_changed(self, moved, before)), axis=0)
        changed, num_logged = info.changed, info.changed.shape[-1]
        for new, old, at in zip(moved.outputs, before.outputs, self.start_at, strict=True):
            if num_logged:
                differs = _flat(is_different(new, old))[:, :num_logged]
                if self.branch.joint:  # outputs are computed anew, and may be rounded otherwise
                    differs &= is_accepted[:num_logged]
                changed = write_rows(changed, differs, at)
        return StepInfo(is_accepted, changed)

    def draw(self, words: Array, chains: Chains, is_given: Array) -> Chains:
        """Draw the site, unless it is given, and score what it completes."""
        branch = self.branch
        scale = jnp.ones(branch.site.batch_shape)

        def draw_one(words: Array, reads: tuple[Array, ...]) -> tuple[Array, list, list]:
            known = bind(branch, self.constants, scale, words, reads)
            drawn = branch.propose.run(known)[0].reshape(branch.site.shape)
            value = jnp.where(is_given, reads[0], drawn)
            known[branch.reads[0].number] = value
            return value, branch.score.run(known), branch.outputs.run(known)

        before = self.read(chains)
        value, terms, outputs = jax.vmap(draw_one, in_axes=-1, out_axes=-1)(words, before.reads)
        return self.write(chains, [value], terms, outputs)


def _places(
    offsets: Array, strides: Sequence[tuple[int, ...]], index: tuple[Array, ...]
) -> list[Array]:
    """Return the first rows of arrays, or of the parts of them that belong to one element."""
    places = []
    for number, steps in enumerate(strides):
        ahead = sum((step * i for step, i in zip(steps, index, strict=False)), start=jnp.int32(0))
        places.append(offsets[number] + ahead)
    return places


def _count(view: EntryView, counts: Counts, moved: Moved, before: Before, variant: Array) -> Counts:
    """Add what happened to the components that moved."""
    at, by_value = view.slot_at, _has_changed(view, moved, before)
    has_changed = jnp.concatenate(by_value)
    accepted = jnp.sum(_flat(moved.is_accepted[None]), axis=-1)[: view.num_decided]
    invalid = jnp.sum(_flat(moved.is_invalid[None]), axis=-1)
    scaled, taken = counts.scaled, counts.taken
    if view.branch.scale is not None:
        scaled = add_at(scaled, accepted, at)
    if view.branch.variant.is_compared:
        new = lax.dynamic_slice(taken, (variant, at), (1, accepted.size)) + accepted
        taken = lax.dynamic_update_slice(taken, new.astype(taken.dtype), (variant, at))
    has_moved = counts.has_moved
    for index, rows in enumerate(by_value):
        first = view.component_at(index)
        old = read_rows(has_moved, first, rows.shape[0])
        has_moved = write_rows(has_moved, old | rows, first)
    return Counts(
        accepted=add_at(counts.accepted, jnp.sum(has_changed, axis=-1), at),
        invalid=add_at(counts.invalid, invalid, at),
        scaled=scaled,
        taken=taken,
        has_moved=has_moved,
    )


def _has_changed(view: EntryView, moved: Moved, before: Before) -> list[Array]:
    """Return for each moved value which of its components have another one, ``[number, C]``."""
    branch, changed = view.branch, []
    indices = branch.moved if branch.joint else branch.moved[:1]
    for place, (index, value) in enumerate(zip(indices, moved.values, strict=False)):
        differs = is_different(value, before.reads[index])
        is_own = place == 0 and view.num_decided > 0
        number = view.num_decided if is_own else math.prod(differs.shape[:-1])
        changed.append(jnp.any(differs.reshape(number, -1, differs.shape[-1]), axis=1))
    return changed


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
