"""One step of a superchain: select a component, move it in every chain, award.

All chains of a superchain move the same component, so that only the branch of its site runs. A
branch is a loop of zero or one turns: unlike a conditional, a loop updates the chains in place.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.layout import read_rows, write_rows
from adlmh_jax.program import Program
from adlmh_jax.program.branches import ACCEPT_WORD, Branch, Group, GroupData
from adlmh_jax.types import Array, Chains, StepInfo

FAN_OUT = 8  # groups are searched as a tree when there are more


@dataclass(frozen=True, eq=False)
class Kernel:
    """The steps of a program as code; its arrays are in `KernelData`.

    Kernels of the same structure are equal, so that a second run on other data of the same shapes
    finds the compiled code of the first.
    """

    groups: tuple[Group, ...]
    num_components: int
    num_outputs: int
    num_words: int
    signature: Hashable = field(repr=False)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same code."""
        return isinstance(other, Kernel) and self.signature == other.signature

    def __hash__(self) -> int:
        """Hash of the code."""
        return hash(self.signature)


class KernelData(NamedTuple):
    """Arrays of a kernel: of its groups, and where each component is found in them."""

    groups: tuple[GroupData, ...]
    group_of: Array
    member_of: Array
    element_of: Array


class Proposed(NamedTuple):
    """A proposal for one chain: values of the moved sites, terms, outputs, and the ratio."""

    values: tuple[Array, ...]
    log_terms: tuple[Array, ...]
    outputs: tuple[Array, ...]
    log_ratio: Array
    is_invalid: Array


def build_kernel(program: Program, proposals: Mapping[str, Any] | None = None) -> tuple:
    """Return the `Kernel` of a program and its `KernelData`."""
    groups, group_data, places = program.make_groups(proposals)
    site_of = np.array(program.sites.site_of)
    group_of = np.array([group for group, _ in places], np.int32)[site_of]
    member_of = np.array([member for _, member in places], np.int32)[site_of]
    element_of = np.array(program.sites.element_of, np.int32)
    num_words = max(group.branch.num_words for group in groups)
    num_outputs = program.output_layout.num_scalars
    signature = (
        tuple(group.signature for group in groups),
        program.num_components,
        num_outputs,
        tuple(program.position_layout.bank_sizes.items()),
        program.term_layout.num_scalars,
        tuple(program.output_layout.bank_sizes.items()),
    )
    kernel = Kernel(tuple(groups), program.num_components, num_outputs, num_words, signature)
    tables = (jnp.asarray(table) for table in (group_of, member_of, element_of))
    return kernel, KernelData(tuple(group_data), *tables)


def select(words: Array, alpha: Array) -> Array:
    """Choose components with probabilities ``alpha`` (eq. 5), one for each random word."""
    upper = jnp.cumsum(alpha)
    uniforms = words.astype(alpha.dtype) * 2.0**-32
    chosen = jnp.searchsorted(upper, uniforms * upper[-1], side="right")
    return jnp.minimum(chosen, alpha.size - 1).astype(jnp.int32)


def move(
    kernel: Kernel,
    data: KernelData,
    words: Array,
    chains: Chains,
    component: Array,
    num_scouts: int = 0,
) -> tuple[Chains, StepInfo]:
    """Propose a new value of ``component`` in every chain, and accept or reject it.

    Parameters
    ----------
    kernel, data
        From `build_kernel`.
    words
        Random 32-bit words, ``[W, C]``.
    chains
        The chains.
    component
        Number of the component to move; -1 moves none.
    num_scouts
        Of how many chains to report changed outputs.
    """
    num_chains = words.shape[-1]
    nobody = jnp.zeros(num_chains, bool)
    changed = jnp.zeros((kernel.num_outputs, num_scouts), bool)
    group = jnp.where(component < 0, -1, data.group_of[component])
    member, element = data.member_of[component], data.element_of[component]

    def move_in(index: int, carry: tuple[Chains, StepInfo]) -> tuple[Chains, StepInfo]:
        return _move_group(kernel.groups[index], data.groups[index], words, carry, member, element)

    def search(low: int, high: int, carry: tuple) -> tuple:
        """Run the branch of ``group``, which is one of low..high-1."""
        if high - low == 1:
            return move_in(low, carry)
        width = -(-(high - low) // FAN_OUT)
        for start in range(low, high, width):
            carry = run_if_here(start, min(start + width, high), carry)
        return carry

    def run_if_here(low: int, high: int, carry: tuple) -> tuple:
        is_here = ((group >= low) & (group < high)).astype(jnp.int32)
        return lax.fori_loop(0, is_here, lambda _, carry: search(low, high, carry), carry)

    nothing = StepInfo(nobody, nobody, jnp.zeros(num_chains, chains.log_terms.dtype), changed)
    return run_if_here(0, len(kernel.groups), (chains, nothing))


def _move_group(
    group: Group, data: GroupData, words: Array, carry: tuple, member: Array, element: Array
) -> tuple[Chains, StepInfo]:
    """Move a component of a site that belongs to ``group``."""
    chains, info = carry
    branch = group.branch
    num_chains = words.shape[-1]
    read_at = [data.read_offsets[member, i] for i in range(len(branch.reads))]
    term_at = [data.term_offsets[member, i] for i in range(len(group.term_shapes))]
    output_at = [data.output_offsets[member, i] for i in range(len(group.output_shapes))]
    reads = tuple(
        read_rows(chains.position[read.bank], at, _size(read.shape)).reshape(
            *read.shape, num_chains
        )
        for read, at in zip(branch.reads, read_at, strict=True)
    )
    old_terms = tuple(
        read_rows(chains.log_terms, at, _size(shape)).reshape(*shape, num_chains)
        for shape, at in zip(group.term_shapes, term_at, strict=True)
    )
    old_outputs = tuple(
        read_rows(chains.outputs[bank], at, _size(shape)).reshape(*shape, num_chains)
        for (shape, bank), at in zip(group.output_shapes, output_at, strict=True)
    )
    constants = _constants(group, data, member)

    def propose_one(words: Array, reads: tuple, old_terms: tuple) -> Proposed:
        return propose(branch, constants, words, reads, old_terms, element)

    proposed = jax.vmap(propose_one, in_axes=-1, out_axes=-1)(words, reads, old_terms)
    # Eq. 6: alpha'_k / alpha_k = 1, since weights change only after the decision and N is fixed.
    is_accepted = log_uniform(words[ACCEPT_WORD]) < proposed.log_ratio  # NaN rejects

    position, outputs, log_terms = dict(chains.position), dict(chains.outputs), chains.log_terms
    moved = (0, *(redraw.read for redraw in branch.redraws))
    for index, new in zip(moved, proposed.values, strict=True):
        bank = branch.reads[index].bank
        rows = jnp.where(is_accepted, new, reads[index]).reshape(-1, num_chains)
        position[bank] = write_rows(position[bank], rows, read_at[index])
    for at, new, old in zip(term_at, proposed.log_terms, old_terms, strict=True):
        rows = jnp.where(is_accepted, new, old).reshape(-1, num_chains)
        log_terms = write_rows(log_terms, rows, at)
    changed = info.changed
    num_scouts = changed.shape[-1]
    for i, ((_, bank), at) in enumerate(zip(group.output_shapes, output_at, strict=True)):
        old, new = old_outputs[i], proposed.outputs[i]
        rows = jnp.where(is_accepted, new, old).reshape(-1, num_chains)
        outputs[bank] = write_rows(outputs[bank], rows, at)
        if num_scouts:
            differs = is_accepted & is_different(new, old)
            rows = differs.reshape(-1, num_chains)[:, :num_scouts]
            changed = write_rows(changed, rows, data.output_starts[member, i])
    info = StepInfo(is_accepted, proposed.is_invalid, proposed.log_ratio, changed)
    return Chains(position, log_terms, outputs), info


def propose(
    branch: Branch,
    constants: Mapping[int, Any],
    words: Array,
    reads: tuple[Array, ...],
    old_terms: tuple[Array, ...],
    element: Array,
) -> Proposed:
    """Propose a value of one element of the branch's site in one chain, and score it."""
    known = dict(constants)
    known.update({read.number: value for read, value in zip(branch.reads, reads, strict=True)})
    known.update({number: noise.make(words) for number, noise in branch.noise})
    old = dict(known)
    own = branch.reads[0].number

    new_value, *given_ratio = branch.propose.run(known)
    known[own] = _put_element(branch, reads[0], new_value, element)
    redrawn, redraw_ratio = _redraw(branch, known, old)

    scores = branch.score.run(known)
    log_terms, outputs = scores[: branch.num_terms], scores[branch.num_terms :]
    log_p_ratio = sum(
        (jnp.sum(new - old_term) for new, old_term in zip(log_terms, old_terms, strict=True)),
        start=jnp.zeros((), log_terms[0].dtype),
    )
    if given_ratio:
        log_q = given_ratio[0]
    else:
        # A prior draw: q(x | x') / q(x' | x) is the ratio of the prior densities, without NumPyro's
        # scale and mask; where the site has neither, they are its own terms.
        log_q = _prior_ratio(branch, old, known, old_terms, log_terms)
    log_q_ratio = log_q.reshape(-1)[element] + redraw_ratio
    log_ratio = log_p_ratio + log_q_ratio
    is_invalid = jnp.isnan(log_ratio) | jnp.isposinf(log_p_ratio)
    return Proposed(
        (known[own], *redrawn),
        tuple(log_terms),
        tuple(outputs),
        jnp.where(is_invalid, -jnp.inf, log_ratio),
        is_invalid,
    )


def _prior_ratio(
    branch: Branch, old: Mapping, new: Mapping, old_terms: tuple, new_terms: list[Array]
) -> Array:
    """Return log prior(old) - log prior(new) for every element of the moved site."""
    if branch.prior is None:
        return old_terms[branch.own_term] - new_terms[branch.own_term]
    return branch.prior.run(old)[0] - branch.prior.run(new)[0]


def _put_element(branch: Branch, old: Array, new: Array, element: Array) -> Array:
    """Return the site's old value with one element replaced by that of ``new``."""
    site = branch.site
    if site.num_components == 1:
        return new.reshape(site.shape)
    is_moved = jnp.arange(site.num_components) == element
    is_moved = is_moved.reshape(*site.batch_shape, *(1 for _ in site.event_shape))
    return jnp.where(is_moved, new, old)


def _redraw(branch: Branch, new: dict, old: Mapping) -> tuple[list[Array], Array]:
    r"""Redraw from the prior, in program order, what fell out of its support.

    Returns the values and the log ratio p(x\x') / p(x'\x) of eq. 4. The reverse move can lead
    back only if it redraws the same choices: if the new value lies in the old support it would be
    reused, not redrawn, and the ratio is zero.
    """
    values, ratio = [], jnp.zeros(())
    for redraw in branch.redraws:
        number = branch.reads[redraw.read].number
        old_value = old[number]
        stays = redraw.inside.run(new)[0]
        wide = stays.reshape(stays.shape + (1,) * (old_value.ndim - stays.ndim))
        new[number] = jnp.where(wide, old_value, redraw.draw.run(new)[0])
        log_prior_old, log_prior_new = redraw.prior.run(old)[0], redraw.prior.run(new)[0]
        would_stay = redraw.inside.run({**old, number: new[number]})[0]
        log_q = jnp.where(would_stay, -jnp.inf, log_prior_old - log_prior_new)
        ratio = ratio + jnp.sum(jnp.where(stays, 0.0, log_q))
        values.append(new[number])
    return values, ratio


def _constants(group: Group, data: GroupData, member: Array) -> dict[int, Any]:
    """Return the constants of one member, by number."""
    constants: dict[int, Any] = dict(group.literals)
    constants.update(zip(group.shared, data.shared, strict=True))
    for number, values in zip(group.stacked, data.stacked, strict=True):
        constants[number] = lax.dynamic_index_in_dim(values, member, keepdims=False)
    return constants


def log_uniform(words: Array) -> Array:
    """Return the logarithm of a uniform number in (0, 1] made of 32 random bits."""
    return jnp.log((words.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32))


def is_different(new: Array, old: Array) -> Array:
    """Whether outputs differ; NaN equals NaN, or a NaN output would be rewarded forever."""
    differs = new != old
    if jnp.issubdtype(new.dtype, jnp.inexact):
        differs &= ~(jnp.isnan(new) & jnp.isnan(old))
    return differs


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))
