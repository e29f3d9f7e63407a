"""Sites that do the same thing at different places, such as the time steps of an unrolled HMM.

Their branches are equal up to the numbers in them and the sites they read; they form one group,
which is compiled once.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph.layout import Layout
from adlmh_jax.moves.branch import Branch, Cut
from adlmh_jax.graph.constants import are_equal
from adlmh_jax.model.sites import SiteTable
from adlmh_jax.types import Array


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

    A pytree, so that data enter compiled code as arguments.
    """

    read_offsets: Array
    term_offsets: Array
    output_offsets: Array
    output_starts: Array
    first_components: Array
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
        "shared",
        "stacked",
    ],
    [],
)


def make_groups(
    cuts: list[Cut], sites: SiteTable, position: Layout, terms: Layout, outputs: Layout
) -> tuple[list[Group], list[GroupData], list[tuple[int, int]]]:
    """Group equal branches; return groups, their arrays, and (group, member) of each cut."""
    members: dict[tuple, list[Cut]] = {}
    keys = [(cut.signature, *_scored_shapes(cut, outputs)) for cut in cuts]
    order = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    places = []
    for key, cut in zip(keys, cuts, strict=True):
        mates = members.setdefault(key, [])
        places.append((order[key], len(mates)))
        mates.append(cut)
    groups = [_make_group(key, mates) for key, mates in members.items()]
    data = [
        _make_data(group, mates, sites, position, terms, outputs)
        for group, mates in zip(groups, members.values(), strict=True)
    ]
    return groups, data, places


def _make_group(key: tuple, mates: list[Cut]) -> Group:
    literals, shared, stacked = _sort_constants(mates)
    values = tuple((number, np.asarray(mates[0].constants[number])) for number in literals)
    frozen = tuple((number, value.tobytes()) for number, value in values)
    return Group(
        mates[0].branch,
        values,
        tuple(shared),
        tuple(stacked),
        key[1],
        key[2],
        (key, frozen, tuple(shared)),
    )


def _make_data(
    group: Group,
    mates: list[Cut],
    sites: SiteTable,
    position: Layout,
    terms: Layout,
    outputs: Layout,
) -> GroupData:
    first = sites.first_components
    return GroupData(
        _table([[position[name].offset for name in cut.read_names] for cut in mates]),
        _table([[terms[name].offset for name, _ in cut.terms] for cut in mates]),
        _table([[outputs[name].offset for name, _ in cut.outputs] for cut in mates]),
        _table([[outputs.starts[name] for name, _ in cut.outputs] for cut in mates]),
        jnp.asarray([first[cut.branch.site.name] for cut in mates], jnp.int32),
        tuple(jnp.asarray(mates[0].constants[number]) for number in group.shared),
        tuple(
            jnp.stack([jnp.asarray(cut.constants[number]) for cut in mates])
            for number in group.stacked
        ),
    )


def _scored_shapes(cut: Cut, outputs: Layout) -> tuple:
    return (
        tuple(shape for _, shape in cut.terms),
        tuple((shape, outputs[name].bank) for name, shape in cut.outputs),
    )


def _table(rows: list[list[int]]) -> Array:
    return jnp.asarray(np.array(rows, np.int32).reshape(len(rows), -1))


def _sort_constants(mates: list[Cut]) -> tuple[list[int], list[int], list[int]]:
    """Tell literals and constants that all members share from those that differ."""
    literals: list[int] = []
    shared: list[int] = []
    stacked: list[int] = []
    for number in mates[0].constants:
        values = [mate.constants[number] for mate in mates]
        same = all(are_equal(values[0], value) for value in values[1:])
        is_literal = all(number in mate.literals for mate in mates)
        (stacked if not same else literals if is_literal else shared).append(number)
    return literals, shared, stacked
