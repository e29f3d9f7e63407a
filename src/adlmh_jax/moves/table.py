"""The steps of a program as code and arrays: which branch moves which entry of the schedule."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from adlmh_jax.model import Program
from adlmh_jax.moves.groups import Group, GroupData
from adlmh_jax.proposals.plan import SitePlan, plan_prior
from adlmh_jax.types import Array


@dataclass(frozen=True, eq=False)
class Kernel:
    """The steps of a program as code; its arrays are in `KernelData`.

    Kernels of the same structure are equal, so that a second run on other data of the same shapes
    finds the compiled code of the first.
    """

    groups: tuple[Group, ...]
    num_entries: int
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

    @property
    def has_tuning(self) -> bool:
        """Whether a proposal has a scale or a share to learn."""
        branches = [group.branch for group in self.groups]
        return any(branch.scale is not None or branch.way.is_compared for branch in branches)


class KernelData(NamedTuple):
    """Arrays of a kernel.

    Attributes
    ----------
    groups
        Arrays of the groups.
    group_of, member_of
        Where the branch of each way of each entry is found, ``[2, M]``. An entry with a single way
        has it twice.
    element_of
        Element of the site that each entry moves, ``[M]``; 0 for a block.
    entry_of
        Entry of each component, ``[N]``.
    dimension
        Numbers in one choice of each component, ``[N]``.
    scaled_way
        Which way of each entry has a scale, ``[M]``; -1 for none.
    given_share
        Probability of the second way of each entry, ``[M]``; -1 if it is to be learned.
    """

    groups: tuple[GroupData, ...]
    group_of: Array
    member_of: Array
    element_of: Array
    entry_of: Array
    dimension: Array
    scaled_way: Array
    given_share: Array


class Counts(NamedTuple):
    """What happened during an epoch, per component, over all chains.

    Attributes
    ----------
    accepted, invalid
        Accepted proposals, and proposals of density NaN or +inf, ``[N]``.
    scaled
        Accepted proposals among those that have a scale, ``[N]``.
    taken
        Accepted proposals of each of the two ways, where they are compared, ``[2, N]``.
    """

    accepted: Array
    invalid: Array
    scaled: Array
    taken: Array


def empty_counts(num_components: int) -> Counts:
    """Return counts of nothing."""
    zeros = jnp.zeros(num_components, jnp.int32)
    return Counts(zeros, zeros, zeros, jnp.zeros((2, num_components)))


def build_kernel(
    program: Program, plans: Mapping[str, SitePlan] | None = None, is_start: bool = False
) -> tuple[Kernel, KernelData]:
    """Return the `Kernel` of a program and its `KernelData`; by default with prior proposals.

    The kernel of a start is good for `draw` alone, site after site.
    """
    plans = plans or {site.name: plan_prior(site) for site in program.sites.sites}
    groups, group_data, places = program.make_groups(
        {name: plan.ways for name, plan in plans.items()},
        {key: hook for plan in plans.values() for key, hook in plan.hooks.items()},
        is_start,
    )
    columns: list[tuple] = []
    elements: list[int] = []
    entry_of: list[int] = []
    dimensions, scaled, shares = [], [], []
    for site in program.sites.sites:
        plan = plans[site.name]
        first, last = places[site.name, 0], places[site.name, len(plan.ways) - 1]
        num_entries = 1 if plan.is_block else site.num_components
        each = 0 if plan.is_block else 1
        entry_of.extend(len(columns) + each * i for i in range(site.num_components))
        columns.extend([(first, last)] * num_entries)
        elements.extend(range(num_entries))
        dimensions.extend([site.event_size] * site.num_components)
        has_scale = [groups[place[0]].branch.scale is not None for place in (first, last)]
        scaled.extend([has_scale.index(True) if any(has_scale) else -1] * num_entries)
        shares.extend([plan.second_share] * num_entries)
    table = np.array(columns, np.int32)  # [M, way, (group, member)]
    data = KernelData(
        tuple(group_data),
        jnp.asarray(table[:, :, 0].T),
        jnp.asarray(table[:, :, 1].T),
        jnp.asarray(elements, jnp.int32),
        jnp.asarray(entry_of, jnp.int32),
        jnp.asarray(dimensions, jnp.float32),
        jnp.asarray(scaled, jnp.int32),
        jnp.asarray(shares, jnp.float32),
    )
    return _make_kernel(program, groups, len(columns)), data


def _make_kernel(program: Program, groups: Sequence[Group], num_entries: int) -> Kernel:
    num_outputs = program.output_layout.num_scalars
    signature = (
        tuple(group.signature for group in groups),
        num_entries,
        program.num_components,
        num_outputs,
        tuple(program.position_layout.bank_sizes.items()),
        program.term_layout.num_scalars,
        tuple(program.output_layout.bank_sizes.items()),
    )
    num_words = max(group.branch.num_words for group in groups)
    sizes = (num_entries, program.num_components, num_outputs, num_words)
    return Kernel(tuple(groups), *sizes, signature)


def select(words: Array, alpha: Array) -> Array:
    """Choose entries with probabilities ``alpha`` (eq. 5), one for each random word."""
    upper = jnp.cumsum(alpha)
    uniforms = words.astype(alpha.dtype) * 2.0**-32
    chosen = jnp.searchsorted(upper, uniforms * upper[-1], side="right")
    return jnp.minimum(chosen, alpha.size - 1).astype(jnp.int32)
