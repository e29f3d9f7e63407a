"""The moves of a program as code and arrays: which branch moves which entry of the schedule."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from adlmh_jax.graph import align
from adlmh_jax.model import Program, element_names, find_completed
from adlmh_jax.moves.branch import Cut, cut_branch
from adlmh_jax.moves.elements import Element, view_element
from adlmh_jax.moves.groups import Group, GroupData, make_groups
from adlmh_jax.proposals import SitePlan, Traits, Variant
from adlmh_jax.types import Array, as_array, float_type

Place = tuple[int, int]  # (group, member)


@dataclass(frozen=True, eq=False)
class Kernel:
    """The moves of a program as code; its arrays are in `KernelData`.

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
        return any(branch.scale is not None or branch.variant.is_compared for branch in branches)


class KernelData(NamedTuple):
    """Arrays of a kernel.

    Attributes
    ----------
    groups
        Arrays of the groups.
    group_of, member_of
        Where the branch of each variant of each entry is found, ``[2, M]``. An entry with a single
        variant has it twice.
    element_of
        Element of the site that each entry moves, ``[M]``; 0 for a block.
    traits
        What tuning must know.
    """

    groups: tuple[GroupData, ...]
    group_of: Array
    member_of: Array
    element_of: Array
    traits: Traits


def build_kernel(program: Program, plans: Mapping[str, SitePlan]) -> tuple[Kernel, KernelData]:
    """Return the `Kernel` of a program, whose sites move as planned, and its `KernelData`."""
    functions = {key: f for plan in plans.values() for key, f in plan.functions.items()}
    program = program.with_proposals(functions)
    cuts = {
        (name, number): _cut_variant(program, name, variant)
        for name, plan in plans.items()
        for number, variant in enumerate(plan.variants)
    }
    return _assemble(program, plans, cuts)


def build_start(program: Program) -> tuple[Kernel, KernelData]:
    """Return the kernel that draws each site from its prior, in program order.

    Its branches score what is complete when a site is drawn; each entry is a whole site.
    """
    completed = find_completed(program.traced, program.sites)
    plan = SitePlan((Variant(is_block=True),))
    layouts = (program.latent_layout, program.term_layout)
    cuts = {
        (name, 0): cut_branch(
            program.traced, program.sites, layouts, completed[name], name, Variant()
        )
        for name in program.sites.names
    }
    return _assemble(program, dict.fromkeys(program.sites.names, plan), cuts)


def _cut_variant(program: Program, name: str, variant: Variant) -> Cut:
    return cut_branch(
        program.traced,
        program.sites,
        (program.latent_layout, program.term_layout),
        program.touches[name],
        name,
        variant,
        term_axes=program.term_axes(name) if variant.is_block else (),
        element=_element(program, name, variant),
    )


def _element(program: Program, name: str, variant: Variant) -> Element | None:
    """Return the site seen from one element, where a move of one needs no others."""
    site, touches, traced = program.sites[name], program.touches[name], program.traced
    if variant.is_block or site.num_components == 1 or touches.redraws:
        return None
    alignments = align(traced.graph, traced.values[name], site.batch_shape)
    return view_element(traced, site, touches, alignments, variant.proposal)


def _assemble(
    program: Program, plans: Mapping[str, SitePlan], cuts: Mapping[tuple[str, int], Cut]
) -> tuple[Kernel, KernelData]:
    """Group equal branches, and lay out which of them moves which entry."""
    layouts = (program.latent_layout, program.term_layout, program.output_layout)
    groups, group_data, found = make_groups(list(cuts.values()), program.sites, *layouts)
    places = dict(zip(cuts, found, strict=True))
    columns: list[tuple[Place, Place]] = []
    elements: list[int] = []
    entry_of: list[int] = []
    dimensions, scaled, shares = [], [], []
    for site in program.sites.sites:
        plan = plans[site.name]
        first, last = places[site.name, 0], places[site.name, len(plan.variants) - 1]
        num_entries = 1 if plan.is_block else site.num_components
        each = 0 if plan.is_block else 1
        entry_of.extend(len(columns) + each * i for i in range(site.num_components))
        columns.extend([(first, last)] * num_entries)
        elements.extend(range(num_entries))
        dimensions.extend([site.event_size] * site.num_components)
        has_scale = [groups[group].branch.scale is not None for group, _ in (first, last)]
        scaled.extend([has_scale.index(True) if any(has_scale) else -1] * num_entries)
        shares.extend([plan.second_share] * num_entries)
    table = np.array(columns, np.int32)  # [M, variant, (group, member)]
    data = KernelData(
        groups=tuple(group_data),
        group_of=as_array(table[:, :, 0].T),
        member_of=as_array(table[:, :, 1].T),
        element_of=as_array(elements, np.int32),
        traits=Traits(
            entry_of=as_array(entry_of, np.int32),
            dimension=as_array(dimensions, float_type()),
            scaled_variant=as_array(scaled, np.int32),
            given_share=as_array(shares, float_type()),
        ),
    )
    return _make_kernel(program, groups, len(columns)), data


def _make_kernel(program: Program, groups: Sequence[Group], num_entries: int) -> Kernel:
    num_outputs = program.output_layout.num_scalars
    signature = (
        tuple(group.signature for group in groups),
        num_entries,
        program.num_components,
        num_outputs,
        tuple(program.latent_layout.bank_sizes.items()),
        program.term_layout.num_scalars,
        tuple(program.output_layout.bank_sizes.items()),
    )
    return Kernel(
        groups=tuple(groups),
        num_entries=num_entries,
        num_components=program.num_components,
        num_outputs=num_outputs,
        num_words=max(group.branch.num_words for group in groups),
        signature=signature,
    )


def name_entries(program: Program, plans: Mapping[str, SitePlan]) -> dict[str, list[str]]:
    """Return names of the entries of each site: components, or a block such as ``z[:]``."""
    return {
        site.name: [f"{site.name}[:]"]
        if plans[site.name].is_block
        else element_names(site.name, site.batch_shape)
        for site in program.sites.sites
    }
