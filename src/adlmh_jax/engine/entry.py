"""An entry as its branch finds it: what it reads, moves and writes in the chains."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.engine.inplace import only_here, put_rows, read_apart
from adlmh_jax.graph import map_last, read_row, read_rows, write_rows
from adlmh_jax.moves import (
    Accept,
    Before,
    Group,
    GroupData,
    Kernel,
    KernelData,
    Moved,
    Pace,
    accept_by_ratio,
    bind,
    is_different,
    move_one,
)
from adlmh_jax.types import Array, Chains

WHOLE: tuple[tuple[int, ...], int] = ((), 0)  # where a whole array lies: at its first row


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


class Steps(NamedTuple):
    """How far the proposals of all entries go, and how they are judged.

    Attributes
    ----------
    scales
        Of the proposals of all slots, ``[L]``.
    factors
        Of the sites that walk together, ``[J, D, D]``.
    beta
        The inverse temperature.
    """

    scales: Array
    factors: Array
    beta: Array | float = 1.0


def first_steps(kernel: Kernel) -> Steps:
    """Return steps of scale one, to begin with."""
    size = kernel.walk_dimension
    factors = jnp.broadcast_to(jnp.eye(size), (len(kernel.walks), size, size))
    return Steps(jnp.ones(kernel.num_slots), factors)


def view_entry(
    kernel: Kernel,
    data: KernelData,
    group: int,
    entry: Array | int,
    variant: Array | int,
    is_here: Array | bool = True,
) -> "EntryView":
    """Return where a group finds an entry that belongs to it, and whether it is to be moved."""
    member = read_row(read_row(data.member_of, variant), entry)
    element, walk = read_row(data.element_of, entry), read_row(data.walk_of, entry)
    return EntryView(
        kernel.groups[group], data.groups[group], member, element, walk, variant, is_here
    )


class EntryView:
    """One member of a group, and an element of it: where it reads and writes in the chains."""

    def __init__(
        self,
        group: Group,
        data: GroupData,
        member: Array,
        element: Array,
        walk: Array,
        variant: Array | int,
        is_here: Array | bool,
    ) -> None:
        self.is_here = is_here
        self.group = group
        self.walk = walk
        self.branch = group.branch
        self.zero = jnp.minimum(member, 0)
        self.constants = _constants(group, data, member)
        if group.branch.choice:
            self.constants[group.branch.choice.which] = jnp.asarray(variant)
        self.element = element
        places = group.places or data.places_of(member)
        self.slot = places.slot
        at = group.branch.at
        terms = [(part.strides, part.offset) for part in at.terms] if at else None
        outputs = [(part.strides, part.offset) for part in at.outputs] if at else None
        index: tuple[Array, ...] = ()
        if at:
            index = _unravel(element, at.batch_shape)
            self.constants |= {
                n: i for n, i in zip(at.indices, index, strict=True) if n is not None
            }
            self.slot = self.slot + element
            self.element = jnp.int32(0)  # of the one that the branch knows of
        offset = element if at else 0
        self.components = [first + offset for first in places.components]
        reads = [(read.strides, read.offset) for read in group.branch.reads]
        self.read_at = _places(places.reads, reads, index)
        self.term_at = _places(places.terms, terms or [WHOLE] * len(group.term_shapes), index)
        outputs = outputs or [WHOLE] * len(group.output_shapes)
        self.output_at = _places(places.outputs, outputs, index)
        self.start_at = _places(places.output_starts, outputs, index)

    @property
    def slot_at(self) -> Array | int:
        """The first slot of the entry."""
        is_block, size = self.branch.variant.is_block, sum(self.branch.moved_sizes)
        return self.slot + (0 if is_block else self.element * size)

    def component_at(self, index: int) -> Array | int:
        """Return the number of the first component of a moved value."""
        branch = self.branch
        is_single = index == 0 and branch.num_decided == 1 and not branch.variant.is_block
        return self.components[index] + (self.element if is_single else 0)

    def pace(self, steps: Steps) -> Pace:
        """Return how far the entry's proposals go."""
        walk, scale = self.branch.walk, self.scale_of(steps.scales)
        if walk is None:
            return Pace(scale, beta=steps.beta)
        factor = read_row(steps.factors, self.walk)
        return Pace(scale, factor[: walk.dimension, : walk.dimension], steps.beta)

    def scale_of(self, scales: Array) -> Array:
        """Return the scales of the moved site's elements; of sites that walk together, one."""
        site = self.branch.site
        if self.branch.walk:
            return read_row(scales, self.slot)
        if self.branch.joint and not self.branch.variant.is_block:
            scale = read_row(scales, self.slot_at)
            return jnp.broadcast_to(scale, site.batch_shape)
        own = read_rows(scales, self.slot, site.num_components)
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
            latent[bank] = put_rows(latent[bank], flat(value), self.read_at[index])
        for at, term in zip(self.term_at, log_terms, strict=True):
            terms = put_rows(terms, flat(term), at)
        for (_, bank), at, output in zip(
            self.group.output_shapes, self.output_at, outputs, strict=True
        ):
            kept[bank] = put_rows(kept[bank], flat(output), at)
        return Chains(latent, terms, kept)

    def move(
        self, words: Array, chains: Chains, steps: Steps, accept: Accept = accept_by_ratio
    ) -> tuple[Chains, Moved, Before]:
        """Move the entry in all chains."""
        before = read_apart(self.read, chains, self.zero)
        pace = self.pace(steps)

        def move_chain(words: Array, before: Before) -> Moved:
            return move_one(self.branch, self.constants, pace, words, before, self.element, accept)

        # Tables of summed choices, terms scored as one array, and parts of one element are small
        # for each of many chains; other moves fuse either way.
        is_small = self.branch.has_rows or self.branch.at is not None
        many = map_last if is_small else _map_chains
        moved = self._only_here(many(move_chain)(words, before), before)
        return self.write(chains, moved.values, moved.log_terms, moved.outputs), moved, before

    def _only_here(self, moved: Moved, before: Before) -> Moved:
        """Return what was moved, or what was there where the entry is not to be moved."""
        olds = tuple(before.reads[index] for index in self.branch.moved[: len(moved.values)])
        # NumPy's, lest they count as operations of the move.
        none: Any = [np.zeros(d.shape, bool) for d in (moved.is_accepted, moved.is_invalid)]
        old = Moved(olds, before.log_terms, before.outputs, none[0], none[1], moved.log_ratio)
        return only_here(self.is_here, moved, old)

    def locate(self, chains: Chains) -> Array:
        """Return where the chains are on the scale on which the entry's sites walk, ``[D, C]``."""
        branch, reads = self.branch, self.read(chains).reads
        walk = branch.walk
        if walk is None:
            raise TypeError("The entry is no walk of several sites.")

        def locate_chain(reads: tuple[Array, ...]) -> Array:
            known = zip((read.number for read in branch.reads), reads, strict=True)
            return walk.locate({**self.constants, **dict(known)})

        return _map_chains(locate_chain)(reads)

    def observe(self, info: StepInfo, moved: Moved, before: Before) -> StepInfo:
        """Return which chains moved, and which outputs changed in those that are logged."""
        is_accepted = jnp.any(flat(moved.is_accepted[None]), axis=0)
        if self.branch.joint:  # what is summed out is drawn anew even if the proposal is not taken
            is_accepted = jnp.any(jnp.concatenate(self.has_changed(moved, before)), axis=0)
        is_accepted = only_here(self.is_here, is_accepted, info.is_accepted)
        changed, num_logged = info.changed, info.changed.shape[-1]
        for new, old, at in zip(moved.outputs, before.outputs, self.start_at, strict=True):
            if num_logged:
                differs = flat(is_different(new, old))[:, :num_logged]
                if self.branch.joint:  # outputs are computed anew, and may be rounded otherwise
                    differs &= is_accepted[:num_logged]
                seen = read_rows(changed, at, differs.shape[0])
                changed = write_rows(changed, only_here(self.is_here, differs, seen), at)
        return StepInfo(is_accepted, changed)

    def values(self, moved: Moved, before: Before) -> Iterator[tuple[int, int, Array, Array]]:
        """Yield of each moved value which read it is, its number of components, and new and old.

        Sites that are redrawn, which come last, are not counted.
        """
        branch = self.branch
        sizes, indices = branch.moved_sizes, branch.moved
        for number, index, new in zip(sizes, indices, moved.values, strict=False):
            yield index, number, new, before.reads[index]

    def has_changed(self, moved: Moved, before: Before) -> list[Array]:
        """Return for each moved value which of its components have another one, ``[number, C]``."""
        return [
            jnp.any(is_different(new, old).reshape(number, -1, new.shape[-1]), axis=1)
            for _, number, new, old in self.values(moved, before)
        ]

    def draw(self, words: Array, chains: Chains, is_given: Array) -> Chains:
        """Draw the site, unless it is given, and score what it completes."""
        branch = self.branch
        scale = jnp.ones(branch.site.batch_shape)

        def draw_one(words: Array, before: Before) -> tuple[Array, list, list]:
            known = bind(branch, self.constants, scale, words, before.reads)
            drawn = branch.propose.run(known)[0].reshape(branch.site.shape)
            value = jnp.where(is_given, before.reads[0], drawn)
            known = branch.place(known, value)

            def score() -> tuple[list, list]:
                return branch.score.run(known), branch.outputs.run(known)

            if branch.cascade is None:
                return value, *score()
            old = list(before.log_terms), list(before.outputs)
            return value, *branch.cascade.when_complete(known, score, old)

        many = map_last if branch.has_rows else _map_chains
        value, terms, outputs = many(draw_one)(words, self.read(chains))
        return self.write(chains, [value], terms, outputs)


def _map_chains(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.vmap(function, in_axes=-1, out_axes=-1)


def _unravel(element: Array, batch_shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Return the index of an element along each axis."""
    index = []
    for size in reversed(batch_shape[1:]):
        index.append(lax.rem(element, jnp.int32(size)))
        element = lax.div(element, jnp.int32(size))
    return (element, *reversed(index))


def _places(
    firsts: Array | tuple[int, ...],
    parts: Sequence[tuple[tuple[int, ...], int]],
    index: tuple[Array, ...],
) -> list[Array | int]:
    """Return the first rows of arrays, or of the parts of them that belong to one element."""
    return [
        firsts[number] + offset + sum(step * i for step, i in zip(strides, index, strict=False))
        for number, (strides, offset) in enumerate(parts)
    ]


def _constants(group: Group, data: GroupData, member: Array) -> dict[int, Any]:
    """Return the constants of one member, by number."""
    constants: dict[int, Any] = dict(group.literals)
    constants.update(zip(group.shared, data.shared, strict=True))
    for number, values in zip(group.stacked, data.stacked, strict=True):
        constants[number] = read_row(values, member)
    return constants


def _rows(bank: Array, offset: Array | int, shape: tuple[int, ...]) -> Array:
    """Read an array ``[*shape, C]``."""
    return read_rows(bank, offset, int(np.prod(shape))).reshape(*shape, bank.shape[-1])


def flat(array: Array) -> Array:
    """Return an array ``[..., C]`` as rows."""
    return array.reshape(-1, array.shape[-1])
