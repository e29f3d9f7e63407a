"""The moves of a program as code and arrays: which branch moves which entry of the schedule."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from adlmh_jax.model import Program, Site, element_names, find_completed
from adlmh_jax.moves.branch import Cut, cut_branch
from adlmh_jax.moves.entries import EntryPlan, Way, cut_site
from adlmh_jax.moves.family import cut_family, cut_family_start, find_families
from adlmh_jax.moves.groups import Group, GroupData, make_groups
from adlmh_jax.moves.joint import cut_joint
from adlmh_jax.moves.trunk import find_trunk
from adlmh_jax.proposals import Plan, Traits, Variant
from adlmh_jax.types import Array, as_array, float_type

Place = tuple[int, int]  # (group, member)


@dataclass(frozen=True, eq=False)
class Kernel:
    """The moves of a program as code; its arrays are in `KernelData`.

    ``walks`` are the entries, and their groups, whose sites walk together. Kernels of the same
    structure are equal, so that a second run on other data of the same shapes finds the compiled
    code of the first.
    """

    groups: tuple[Group, ...]
    num_entries: int
    num_components: int
    num_slots: int
    num_scalars: int
    num_outputs: int
    num_words: int
    walks: tuple[tuple[int, int], ...]
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
        return any(branch.has_scale or branch.variant.is_compared for branch in branches)

    @property
    def base_weights(self) -> np.ndarray:
        """Selection probabilities when nothing is known of the entries, ``[M]``.

        They are uniform, but a walk of D numbers counts as D entries: it needs of the order of D
        steps for what a single choice does in one.
        """
        weights = np.ones(self.num_entries, float_type())
        for entry, group in self.walks:
            walk = self.groups[group].branch.walk
            weights[entry] = walk.dimension if walk else 1
        return weights / np.sum(weights)

    @property
    def walk_dimension(self) -> int:
        """The largest dimension of a walk of several sites; 0 if there is none."""
        walks = [group.branch.walk for group in self.groups]
        return max((walk.dimension for walk in walks if walk), default=0)


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
    walk_of
        Number of the walk of each entry whose sites walk together, ``[M]``; any for others.
    traits
        What tuning must know.
    scalar_component
        Component of each latent scalar, ``[R]``, bank by bank in the order of their names.
    costs
        Of a move of each entry, ``[M]``; 1 unless they are estimated.
    """

    groups: tuple[GroupData, ...]
    group_of: Array
    member_of: Array
    element_of: Array
    walk_of: Array
    traits: Traits
    scalar_component: Array
    costs: Array


def build_kernel(program: Program, plan: Plan) -> tuple[Kernel, KernelData]:
    """Return the `Kernel` of a program, whose sites move as planned, and its `KernelData`."""
    program = program.with_proposals(plan.functions)
    variants = {name: site.variants for name, site in plan.sites.items() if site.variants}
    trunk = _find_trunk(program)
    shared: dict[str, list[Way]] = {}
    for family in find_families(program, variants):
        for variant in variants[family[0]]:
            for name, cut in cut_family(program, trunk, family, variant).items():
                shared.setdefault(name, []).append(Way((cut,)))
    singles = [
        EntryPlan(
            sites=(program.sites[name],),
            ways=tuple(shared.get(name) or cut_site(program, name, variants[name], trunk)),
            second_share=plan.sites[name].second_share,
        )
        for name in variants
    ]
    joint = [
        EntryPlan(
            sites=tuple(program.sites[name] for name in joint_plan.moved),
            ways=tuple(Way((cut_joint(program, joint_plan, v),)) for v in joint_plan.variants),
            second_share=joint_plan.second_share,
            summed=joint_plan.summed,
        )
        for joint_plan in plan.joint
    ]
    return _assemble(program, [*singles, *joint])


def build_start(program: Program) -> tuple[Kernel, KernelData]:
    """Return the kernel that draws each site from its prior, in program order.

    Its branches score what is complete when a site is drawn; each entry is a whole site.
    """
    completed = find_completed(program.traced, program.sites)
    layouts = (program.latent_layout, program.term_layout)
    trunk = _find_trunk(program)
    shared: dict[str, Cut] = {}
    for family in find_families(program, dict.fromkeys(program.sites.names, ())):
        shared |= cut_family_start(program, trunk, family, completed) if len(family) > 1 else {}
    plans = []
    for site in program.sites.sites:
        cut = shared.get(site.name) or cut_branch(
            program.traced,
            program.sites,
            layouts,
            completed[site.name],
            site.name,
            [Variant()],
            trunk=trunk,
        )
        plans.append(EntryPlan(sites=(site,), ways=(Way((cut,)),), is_whole=True))
    return _assemble(program, plans)


def _find_trunk(program: Program) -> frozenset[int]:
    """Return what several sites need, where supports depend on others."""
    is_dynamic = any(touches.redraws for touches in program.touches.values())
    return find_trunk(program.traced) if is_dynamic else frozenset()


def _assemble(program: Program, plans: Sequence[EntryPlan]) -> tuple[Kernel, KernelData]:
    """Group equal branches, and lay out which of them moves which entry."""
    sites = program.sites
    by_entry = [plan.components(sites) for plan in plans]  # components of each entry of each plan
    starts = np.cumsum([0, *(sum(map(len, entries)) for entries in by_entry)])
    layouts = (program.latent_layout, program.term_layout, program.output_layout)
    cuts = [cut for plan in plans for cut in plan.cuts]
    slots = [int(start) for plan, start in zip(plans, starts, strict=False) for _ in plan.cuts]
    groups, group_data, found = make_groups(cuts, slots, sites, layouts)
    places = iter(found)
    columns: list[tuple[Place, Place]] = []
    elements, entry_of, component_of, scaled, shares = [], [], [], [], []
    sizes = np.array([site.event_size for site in sites.sites])[np.array(sites.site_of)]
    dimensions: list[int] = []
    step_dimensions: list[int] = []
    walks: list[tuple[int, int]] = []  # (entry, group)
    walk_of: list[int] = []
    walk_dimensions: list[int] = []
    for plan, entries in zip(plans, by_entry, strict=True):
        at = [[next(places) for _ in way.cuts] for way in plan.ways]
        own = [found[0] for found in at]
        branches = [groups[group].branch for group, _ in (own[0], own[-1])]
        has_scale = [branch.is_scaled(variant) for variant, branch in enumerate(branches)]
        walk = groups[own[0][0]].branch.walk
        for element, components in enumerate(entries):
            entry_of.extend([len(columns)] * len(components))
            component_of.extend(components)
            own_sizes = sizes[components]
            dimensions.extend(own_sizes)
            step_dimensions.extend([walk.dimension] * len(components) if walk else own_sizes)
            walk_of.append(len(walks))
            if walk:
                walks.append((len(columns), own[0][0]))
                walk_dimensions.append(walk.dimension)
            turn = [found[way.cut_of(element)] for found, way in zip(at, plan.ways, strict=True)]
            columns.append((turn[0], turn[-1]))
            elements.append(element)
        scaled.extend([has_scale.index(True) if any(has_scale) else -1] * len(entries))
        shares.extend([plan.second_share] * len(entries))
    table = np.array(columns, np.int32)  # [M, variant, (group, member)]
    data = KernelData(
        groups=tuple(group_data),
        group_of=as_array(table[:, :, 0].T),
        member_of=as_array(table[:, :, 1].T),
        element_of=as_array(elements, np.int32),
        walk_of=as_array(walk_of, np.int32),
        traits=Traits(
            entry_of=as_array(entry_of, np.int32),
            component_of=as_array(component_of, np.int32),
            dimension=as_array(dimensions, float_type()),
            step_dimension=as_array(step_dimensions, float_type()),
            scaled_variant=as_array(scaled, np.int32),
            given_share=as_array(shares, float_type()),
            walk_dimensions=as_array(walk_dimensions, float_type()),
        ),
        scalar_component=as_array(_scalar_components(program), np.int32),
        costs=as_array(np.ones(len(columns)), float_type()),
    )
    return _make_kernel(program, groups, len(columns), len(entry_of), tuple(walks)), data


def _scalar_components(program: Program) -> np.ndarray:
    """Return the component of each latent scalar, bank by bank in the order of their names."""
    sites, layout = program.sites, program.latent_layout
    banks = {bank: np.zeros(size, np.int32) for bank, size in layout.bank_sizes.items()}
    for site in sites.sites:
        slot, first = layout[site.name], sites.first_components[site.name]
        numbers = np.repeat(np.arange(first, first + site.num_components), site.event_size)
        banks[slot.bank][slot.offset : slot.offset + slot.size] = numbers
    return np.concatenate([banks[bank] for bank in sorted(banks)])


def _make_kernel(
    program: Program,
    groups: Sequence[Group],
    num_entries: int,
    num_slots: int,
    walks: tuple[tuple[int, int], ...],
) -> Kernel:
    num_outputs = program.output_layout.num_scalars
    signature = (
        tuple(group.signature for group in groups),
        num_entries,
        program.num_components,
        num_slots,
        num_outputs,
        tuple(program.latent_layout.bank_sizes.items()),
        program.term_layout.num_scalars,
        tuple(program.output_layout.bank_sizes.items()),
        walks,
    )
    return Kernel(
        groups=tuple(groups),
        num_entries=num_entries,
        num_components=program.num_components,
        num_slots=num_slots,
        num_scalars=program.latent_layout.num_scalars,
        num_outputs=num_outputs,
        num_words=max(group.branch.num_words for group in groups),
        walks=walks,
        signature=signature,
    )


def name_entries(program: Program, plan: Plan) -> list[tuple[str, str]]:
    """Return the site that each entry belongs to, and its name.

    It is a component, a block such as ``z[:]``, or one of them with others summed out; entries that
    draw several sites at once belong to the first of them.
    """
    names = []
    for site in program.sites.sites:
        if plan.sites[site.name].variants:
            own = _own_names(site, plan.sites[site.name].is_block)
            names += [(site.name, name) for name in own]
    for joint in plan.joint:
        summed = _abbreviated(joint.summed)
        if joint.variants[0].is_walk:
            also = f", {summed} summed out" if summed else ""
            names.append((joint.movers[0], f"{_abbreviated(joint.moved)} (at once{also})"))
        elif joint.movers:
            (mover,) = joint.movers
            own = _own_names(program.sites[mover], joint.is_block)
            names += [(mover, f"{name} ({summed} summed out)") for name in own]
        else:
            names.append((joint.summed[0], f"{summed} (at once)"))
    return names


def _abbreviated(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]}"


def _own_names(site: Site, is_block: bool) -> list[str]:
    return [f"{site.name}[:]"] if is_block else element_names(site.name, site.batch_shape)
