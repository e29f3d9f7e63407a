"""One step of a superchain: an entry of the schedule is moved in every chain.

All chains of a superchain move the same entry (a component, or a block of them), so that only the
branch of its site runs.
"""

import jax.numpy as jnp

from adlmh_jax.engine.counts import Counts, empty_counts
from adlmh_jax.engine.entry import EntryView, StepInfo, Steps, first_steps, flat, view_entry
from adlmh_jax.engine.inplace import add_at, follow, keep_inside, only_here, run_branch
from adlmh_jax.graph import read_row, read_rows, write_rows
from adlmh_jax.moves import Accept, Before, Kernel, KernelData, Moved, accept_by_ratio
from adlmh_jax.types import Array, Banks, Chains, float_type

MAX_JUMP = 4.0  # units: one far jump must not outweigh all others


def move(
    kernel: Kernel,
    data: KernelData,
    words: Array,
    chains: Chains,
    entry: Array | int,
    variant: Array | int = 0,
    *,
    steps: Steps | None = None,
    counts: Counts | None = None,
    num_logged: int = 0,
    units: Banks | None = None,
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
    steps
        How far proposals go; default: scales of one.
    counts
        To add to; default none.
    num_logged
        Of how many chains to report changed outputs.
    units
        What jumps are measured in, for each row of the latent banks; default: they are not.
    accept
        The rule of acceptance.
    """
    num_chains = words.shape[-1]
    changed = jnp.zeros((kernel.num_outputs, num_logged), bool)
    nothing = StepInfo(jnp.zeros(num_chains, bool), changed)
    steps = first_steps(kernel) if steps is None else steps
    if counts is None:
        has_moved = jnp.zeros((kernel.num_components, num_chains), bool)
        counts = empty_counts(kernel.num_slots, has_moved)
    group = _group_of(data, entry, variant)

    def move_in(index: int, turn: Array, carry: tuple[Chains, StepInfo, Counts]) -> tuple:
        chains, info, counts = carry
        is_here = group == index
        own_entry, own_variant = follow(is_here, (jnp.asarray(entry), jnp.asarray(variant)))
        view = view_entry(kernel, data, index, own_entry, own_variant, is_here)
        chains, moved, before = view.move(keep_inside(words, turn), chains, steps, accept)
        counts = _count(view, counts, moved, before, own_variant)
        if units is not None:
            counts = counts._replace(jumps=_add_jumps(view, counts.jumps, moved, before, units))
        return chains, view.observe(info, moved, before), counts

    return run_branch(group, len(kernel.groups), move_in, (chains, nothing, counts))


def locate_walks(kernel: Kernel, data: KernelData, chains: Chains) -> Array:
    """Return where the chains are on the scales of all walks, ``[J, D, C]``; rows beyond are 0."""
    size, num_chains = kernel.walk_dimension, chains.log_terms.shape[-1]
    places = [jnp.zeros((0, size, num_chains), float_type())]
    for entry, group in kernel.walks:
        free = view_entry(kernel, data, group, entry, 0).locate(chains)
        rows = jnp.pad(free, ((0, size - free.shape[0]), (0, 0)))
        places.append(rows[None].astype(float_type()))
    return jnp.concatenate(places)


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
    group = read_row(read_row(data.group_of, variant), jnp.maximum(entry, 0))
    return jnp.where(jnp.asarray(entry) < 0, -1, group)


def _count(view: EntryView, counts: Counts, moved: Moved, before: Before, variant: Array) -> Counts:
    """Add what happened to the components that moved."""
    at, by_value = view.slot_at, view.has_changed(moved, before)
    has_changed = jnp.concatenate(by_value)
    accepted = jnp.sum(flat(moved.is_accepted[None]), axis=-1)[: view.branch.num_decided]
    invalid = jnp.sum(flat(moved.is_invalid[None]), axis=-1)
    scaled, taken = counts.scaled, counts.taken
    if view.branch.has_scale:
        is_scaled = jnp.array([view.branch.is_scaled(v) for v in (0, 1)])[variant]
        scaled = add_at(scaled, accepted * is_scaled, at)
    if view.branch.variant.is_compared:
        is_taken = jnp.arange(2) == variant
        new = jnp.where(is_taken, accepted[:, None], 0).astype(taken.dtype)
        taken = write_rows(taken, read_rows(taken, at, accepted.size) + new, at)
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
        jumps=counts.jumps,
    )


def _add_jumps(view: EntryView, jumps: Array, moved: Moved, before: Before, units: Banks) -> Array:
    """Add the squared jumps of the components that moved, over all chains."""
    squares = []
    for index, number, new, old in view.values(moved, before):
        distance = flat(jnp.asarray(new, float_type()) - jnp.asarray(old, float_type()))
        bank = units[view.branch.reads[index].bank]
        unit = read_rows(bank, view.read_at[index], distance.shape[0])
        square = jnp.sum(jnp.minimum((distance / unit[:, None]) ** 2, MAX_JUMP**2), axis=-1)
        squares.append(jnp.sum(square.reshape(number, -1), axis=1))
    total = jnp.concatenate(squares)
    # Values that stay may be infinite, and have no distance to themselves.
    return add_at(jumps, only_here(view.is_here, total, jnp.zeros_like(total)), view.slot_at)
