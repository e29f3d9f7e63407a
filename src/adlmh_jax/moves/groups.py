"""Sites that do the same thing at different places, such as the time steps of an unrolled HMM.

Their branches are equal up to the numbers in them and the sites they read; they form one group,
which is compiled once.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import jax
import numpy as np

from adlmh_jax.graph import Layout, are_equal, stack
from adlmh_jax.model import SiteTable
from adlmh_jax.moves.branch import Branch, Cut
from adlmh_jax.types import Array, as_array


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
    """

    branch: Branch
    literals: tuple[tuple[int, np.ndarray], ...]
    shared: tuple[int, ...]
    stacked: tuple[int, ...]
    term_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[tuple[int, ...], str], ...]
    signature: Hashable


@dataclass(frozen=True)
class GroupData:
    """The arrays of a group: where its members read and write, and their constants.

    A pytree, so that data enter compiled code as arguments. Slots are those of the first element;
    components, ``[members, moved values]``, those of the first site of each moved value.
    """

    read_offsets: Array
    term_offsets: Array
    output_offsets: Array
    output_starts: Array
    first_components: Array
    first_slots: Array
    shared: tuple[Array, ...]
    stacked: tuple[Array, ...]


jax.tree_util.register_dataclass(
    GroupData,
    [
        "read_offsets",
        "term_offsets",
        "output_offsets",
        "output_starts",
        "first_components",
        "first_slots",
        "shared",
        "stacked",
    ],
    [],
)


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
    groups = [_make_group(key, [cut for cut, _ in members]) for key, members in grouped.items()]
    data = [
        _make_data(group, members, sites, layouts)
        for group, members in zip(groups, grouped.values(), strict=True)
    ]
    return groups, data, places


def _make_group(key: tuple, members: list[Cut]) -> Group:
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
        signature=(key, frozen, tuple(shared)),
    )


def _make_data(
    group: Group,
    placed: list[tuple[Cut, int]],
    sites: SiteTable,
    layouts: tuple[Layout, Layout, Layout],
) -> GroupData:
    latent, terms, outputs = layouts
    first, members = sites.first_components, [cut for cut, _ in placed]
    return GroupData(
        read_offsets=_table([[latent[n].offset for n in cut.read_names] for cut in members]),
        term_offsets=_table([[terms[n].offset for n, _ in cut.terms] for cut in members]),
        output_offsets=_table([[outputs[n].offset for n, _ in cut.outputs] for cut in members]),
        output_starts=_table([[outputs.starts[n] for n, _ in cut.outputs] for cut in members]),
        first_components=_table([[first[name] for name in cut.moved_names] for cut in members]),
        first_slots=as_array([slot for _, slot in placed], np.int32),
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


def _table(rows: list[list[int]]) -> Array:
    return as_array(np.array(rows, np.int32).reshape(len(rows), -1))


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
