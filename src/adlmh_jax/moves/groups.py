"""Sites that do the same thing at different places, such as the time steps of an unrolled HMM.

Their branches are equal up to the numbers in them and the sites they read; they form one group,
which is compiled once.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from adlmh_jax.graph import Layout, are_equal, read_row, stack
from adlmh_jax.model import SiteTable
from adlmh_jax.moves.branch import Branch, Cut
from adlmh_jax.types import Array, as_array


class Places(NamedTuple):
    """Where a member of a group reads and writes: numbers; or, arrays ``[members, ...]``, all do.

    Slots are those of the first element; components those of the first site of each moved value.
    """

    reads: Any
    terms: Any
    outputs: Any
    output_starts: Any
    components: Any
    slot: Any


@dataclass(frozen=True)
class Group:
    """Sites that share a branch.

    Attributes
    ----------
    branch
        The shared computations.
    literals
        Numbers that are the same for all members, by their number in the branch.
    shared, stacked
        Numbers of the constants that are the same for all members, and of those that are not.
    term_shapes, output_shapes
        Shapes (and banks) of what is scored.
    places
        Of a lone member: numbers in its code, which is then less of it. None if there are several.
    """

    branch: Branch
    literals: tuple[tuple[int, np.ndarray], ...]
    shared: tuple[int, ...]
    stacked: tuple[int, ...]
    term_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[tuple[int, ...], str], ...]
    places: Places | None
    signature: Hashable


@dataclass(frozen=True)
class GroupData:
    """The arrays of a group: where its members read and write, and their constants.

    A pytree, so that data enter compiled code as arguments.
    """

    places: Places
    shared: tuple[Array, ...]
    stacked: tuple[Array, ...]

    def places_of(self, member: Array) -> Places:
        """Return where a member reads and writes."""
        return jax.tree.map(lambda table: read_row(table, member), self.places)


jax.tree_util.register_dataclass(GroupData, ["places", "shared", "stacked"], [])


def make_groups(
    cuts: list[Cut],
    slots: list[int],
    sites: SiteTable,
    layouts: tuple[Layout, Layout, Layout],
) -> tuple[list[Group], list[GroupData], list[tuple[int, int]]]:
    """Group equal branches; return groups, their arrays, and (group, member) of each cut.

    Parameters
    ----------
    cuts, slots
        The branches, and the first slot of each.
    sites, layouts
        Where sites, terms and outputs live.
    """
    grouped: dict[tuple, list[tuple[Cut, int]]] = {}
    outputs = layouts[2]
    keys = [(cut.signature, *_scored_shapes(cut, outputs)) for cut in cuts]
    order = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    places = []
    for key, cut, slot in zip(keys, cuts, slots, strict=True):
        members = grouped.setdefault(key, [])
        places.append((order[key], len(members)))
        members.append((cut, slot))
    groups, data = [], []
    for key, placed in grouped.items():
        own, at = [cut for cut, _ in placed], _find_places(placed, sites, layouts)
        groups.append(_make_group(key, own, at[0] if len(at) == 1 else None))
        data.append(_make_data(groups[-1], own, at))
    return groups, data, places


def _make_group(key: tuple, members: list[Cut], places: Places | None) -> Group:
    literals, shared, stacked = _sort_constants(members)
    values = tuple((number, np.asarray(members[0].constants[number])) for number in literals)
    frozen = tuple((number, value.tobytes()) for number, value in values)
    _, term_shapes, output_shapes = key
    return Group(
        branch=members[0].branch,
        literals=values,
        shared=tuple(shared),
        stacked=tuple(stacked),
        term_shapes=term_shapes,
        output_shapes=output_shapes,
        places=places,
        signature=(key, frozen, tuple(shared), places),
    )


def _find_places(
    placed: list[tuple[Cut, int]], sites: SiteTable, layouts: tuple[Layout, Layout, Layout]
) -> list[Places]:
    """Return where each member reads and writes."""
    latent, terms, outputs = layouts
    first = sites.first_components
    return [
        Places(
            reads=tuple(latent[name].offset for name in cut.read_names),
            terms=tuple(terms[name].offset for name, _ in cut.terms),
            outputs=tuple(outputs[name].offset for name, _ in cut.outputs),
            output_starts=tuple(outputs.starts[name] for name, _ in cut.outputs),
            components=tuple(first[name] for name in cut.moved_names),
            slot=slot,
        )
        for cut, slot in placed
    ]


def _make_data(group: Group, members: list[Cut], places: list[Places]) -> GroupData:
    tables = (as_array(np.array(column, np.int32)) for column in zip(*places, strict=True))
    return GroupData(
        places=Places(*tables),
        shared=tuple(members[0].constants[number] for number in group.shared),
        stacked=tuple(
            stack([cut.constants[number] for cut in members]) for number in group.stacked
        ),
    )


def _scored_shapes(cut: Cut, outputs: Layout) -> tuple:
    return (
        tuple(shape for _, shape in cut.terms),
        tuple((shape, outputs[name].bank) for name, shape in cut.outputs),
    )


def _sort_constants(members: list[Cut]) -> tuple[list[int], list[int], list[int]]:
    """Tell literals and constants that all members share from those that differ."""
    literals: list[int] = []
    shared: list[int] = []
    stacked: list[int] = []
    for number in members[0].constants:
        values = [member.constants[number] for member in members]
        same = all(are_equal(values[0], value) for value in values[1:])
        is_literal = all(number in member.literals for member in members)
        (stacked if not same else literals if is_literal else shared).append(number)
    return literals, shared, stacked
