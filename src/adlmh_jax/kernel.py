"""One step of a superchain: select a component, move it in every chain, award.

All chains of a superchain move the same component, so that only the branch of its site runs. A
branch is a loop of zero or one turns: unlike a conditional, a loop updates the chains in place.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.layout import read_rows, write_rows
from adlmh_jax.moves import Proposed, bind, is_different, log_uniform, propose
from adlmh_jax.program import Program
from adlmh_jax.program.branches import ACCEPT_WORD, Group, GroupData
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
    nothing = StepInfo(nobody, nobody, jnp.zeros(num_chains, chains.log_terms.dtype), changed)

    def move_in(index: int, carry: tuple[Chains, StepInfo]) -> tuple[Chains, StepInfo]:
        group = _GroupView(kernel.groups[index], data.groups[index], data.member_of[component])
        return _move_group(group, words, carry, data.element_of[component])

    return dispatch(kernel, data, component, move_in, (chains, nothing))


def draw(
    kernel: Kernel, data: KernelData, words: Array, chains: Chains, component: Array
) -> Chains:
    """Draw all elements of the site of ``component`` from its proposal, and take them.

    With prior proposals, doing so for all sites in program order runs the program.
    """

    def draw_in(index: int, chains: Chains) -> Chains:
        group = _GroupView(kernel.groups[index], data.groups[index], data.member_of[component])
        return _draw_group(group, words, chains)

    return dispatch(kernel, data, component, draw_in, chains)


def dispatch(
    kernel: Kernel, data: KernelData, component: Array, run: Callable[[int, Any], Any], carry: Any
) -> Any:
    """Apply ``run(index, carry)`` for the group of ``component``; for -1 do nothing."""
    group = jnp.where(component < 0, -1, data.group_of[component])

    def search(low: int, high: int, carry: Any) -> Any:
        """Find the group among low..high-1."""
        if high - low == 1:
            return run(low, carry)
        width = -(-(high - low) // FAN_OUT)
        for start in range(low, high, width):
            carry = run_if_here(start, min(start + width, high), carry)
        return carry

    def run_if_here(low: int, high: int, carry: Any) -> Any:
        is_here = ((group >= low) & (group < high)).astype(jnp.int32)
        return lax.fori_loop(0, is_here, lambda _, carry: search(low, high, carry), carry)

    return run_if_here(0, len(kernel.groups), carry)


class _GroupView:
    """One member of a group: where it reads and writes in the chains."""

    def __init__(self, group: Group, data: GroupData, member: Array) -> None:
        self.group = group
        self.branch = group.branch
        self.constants = _constants(group, data, member)
        self.read_at = [data.read_offsets[member, i] for i in range(len(group.branch.reads))]
        self.term_at = [data.term_offsets[member, i] for i in range(len(group.term_shapes))]
        self.output_at = [data.output_offsets[member, i] for i in range(len(group.output_shapes))]
        self.start_at = [data.output_starts[member, i] for i in range(len(group.output_shapes))]

    def read(self, chains: Chains) -> tuple[Array, ...]:
        """Return the values of the sites that the branch reads, ``[..., C]``."""
        places = zip(self.branch.reads, self.read_at, strict=True)
        return tuple(_rows(chains.position[read.bank], at, read.shape) for read, at in places)

    def old_terms(self, chains: Chains) -> tuple[Array, ...]:
        """Return the touched terms as they are."""
        places = zip(self.group.term_shapes, self.term_at, strict=True)
        return tuple(_rows(chains.log_terms, at, shape) for shape, at in places)

    def old_outputs(self, chains: Chains) -> tuple[Array, ...]:
        """Return the touched outputs as they are."""
        places = zip(self.group.output_shapes, self.output_at, strict=True)
        return tuple(_rows(chains.outputs[bank], at, shape) for (shape, bank), at in places)

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


def _move_group(
    view: _GroupView, words: Array, carry: tuple[Chains, StepInfo], element: Array
) -> tuple[Chains, StepInfo]:
    """Move a component of a site that belongs to the group."""
    chains, info = carry
    reads, old_terms = view.read(chains), view.old_terms(chains)
    old_outputs = view.old_outputs(chains)

    def propose_one(words: Array, reads: tuple, old_terms: tuple) -> Proposed:
        return propose(view.branch, view.constants, words, reads, old_terms, element)

    proposed = jax.vmap(propose_one, in_axes=-1, out_axes=-1)(words, reads, old_terms)
    # Eq. 6: alpha'_k / alpha_k = 1, since weights change only after the decision and N is fixed.
    is_accepted = log_uniform(words[ACCEPT_WORD]) < proposed.log_ratio  # NaN rejects

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(is_accepted, new, old)

    old_values = [reads[0], *(reads[redraw.read] for redraw in view.branch.redraws)]
    chains = view.write(
        chains,
        list(map(choose, proposed.values, old_values)),
        list(map(choose, proposed.log_terms, old_terms)),
        list(map(choose, proposed.outputs, old_outputs)),
    )
    changed, num_scouts = info.changed, info.changed.shape[-1]
    for new, old, at in zip(proposed.outputs, old_outputs, view.start_at, strict=True):
        if num_scouts:
            differs = is_accepted & is_different(new, old)
            changed = write_rows(changed, _flat(differs)[:, :num_scouts], at)
    return chains, StepInfo(is_accepted, proposed.is_invalid, proposed.log_ratio, changed)


def _draw_group(view: _GroupView, words: Array, chains: Chains) -> Chains:
    """Draw the site of a group's member and score what it touches."""
    branch = view.branch

    def draw_one(words: Array, reads: tuple[Array, ...]) -> tuple[Array, list[Array]]:
        known = bind(branch, view.constants, words, reads)
        known[branch.reads[0].number] = branch.propose.run(known)[0]
        return known[branch.reads[0].number], branch.score.run(known)

    value, scores = jax.vmap(draw_one, in_axes=-1, out_axes=-1)(words, view.read(chains))
    num_terms = branch.num_terms
    return view.write(chains, [value], scores[:num_terms], scores[num_terms:])


def _rows(bank: Array, offset: Array, shape: tuple[int, ...]) -> Array:
    """Read an array ``[*shape, C]``."""
    return read_rows(bank, offset, _size(shape)).reshape(*shape, bank.shape[-1])


def _flat(array: Array) -> Array:
    """Return an array ``[..., C]`` as rows."""
    return array.reshape(-1, array.shape[-1])


def _constants(group: Group, data: GroupData, member: Array) -> dict[int, Any]:
    """Return the constants of one member, by number."""
    constants: dict[int, Any] = dict(group.literals)
    constants.update(zip(group.shared, data.shared, strict=True))
    for number, values in zip(group.stacked, data.stacked, strict=True):
        constants[number] = lax.dynamic_index_in_dim(values, member, keepdims=False)
    return constants


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))
