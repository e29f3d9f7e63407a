"""What one step must compute when it moves one site, cut out of the model's graph.

Sites that do the same thing at different places (the time steps of an unrolled HMM) have equal
branches up to the numbers in them and the sites they read; they form one group, which is compiled
once.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.layout import Layout
from adlmh_jax.program.draws import Noise, noise_sources
from adlmh_jax.program.fragments import Cutter, Fragment
from adlmh_jax.program.sites import Site, SiteTable
from adlmh_jax.program.tracing import Traced
from adlmh_jax.types import Array

ACCEPT_WORD = 0  # the first random word of a step decides on acceptance


@dataclass(frozen=True)
class Touches:
    """What moving a site can change: names of terms, of outputs, and of sites to be redrawn."""

    terms: tuple[str, ...]
    outputs: tuple[str, ...]
    redraws: tuple[str, ...]


@dataclass(frozen=True)
class Redraw:
    """A site whose support depends on the moved site.

    Attributes
    ----------
    read
        Index of the site among the branch's reads.
    inside, draw, prior
        Whether its value lies in its support; a prior draw; its log prior.
    """

    read: int
    inside: Fragment
    draw: Fragment
    prior: Fragment


@dataclass(frozen=True)
class Read:
    """A latent site whose value a branch reads."""

    number: int
    shape: tuple[int, ...]
    bank: str


@dataclass(frozen=True)
class Branch:
    """The computations of a step that moves one site.

    Attributes
    ----------
    site
        The moved site.
    propose
        Its proposed value, and the log q ratio unless it is a prior draw.
    score
        The touched terms, then the touched outputs.
    prior
        The log prior of the site; None if it is the site's own term.
    redraws
        Sites to redraw when their value falls out of its support.
    reads
        The latent sites read; the moved site is the first.
    noise
        Random inputs, by number.
    num_words
        Random words needed, the accept word included.
    num_terms
        How many of the scores are terms.
    own_term
        Which of them is the moved site's own.
    """

    site: Site
    propose: Fragment
    score: Fragment
    prior: Fragment | None
    redraws: tuple[Redraw, ...]
    reads: tuple[Read, ...]
    noise: tuple[tuple[int, Noise], ...]
    num_words: int
    num_terms: int
    own_term: int


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
    shared: tuple[Array, ...]
    stacked: tuple[Array, ...]


jax.tree_util.register_dataclass(
    GroupData,
    ["read_offsets", "term_offsets", "output_offsets", "output_starts", "shared", "stacked"],
    [],
)


@dataclass(frozen=True)
class Cut:
    """The branch of one site, before grouping."""

    branch: Branch
    touches: Touches
    read_names: tuple[str, ...]
    constants: dict[int, Any]
    literals: frozenset[int]
    signature: Hashable


def find_touches(traced: Traced, sites: SiteTable) -> dict[str, Touches]:
    """Return what each site touches."""
    reached = traced.graph.reach([traced.values[name] for name in sites.names])
    redraws = _redraws(traced, sites, reached)
    movers: dict[str, list[str]] = {name: [name] for name in sites.names}
    for name, others in redraws.items():
        for other in others:
            movers[other].append(name)
    terms = _touched(traced.terms, reached, sites, movers)
    outputs = _touched(traced.outputs, reached, sites, movers)
    return {n: Touches(tuple(terms[n]), tuple(outputs[n]), redraws[n]) for n in sites.names}


def _touched(
    numbers: dict[str, int], reached: list[int], sites: SiteTable, movers: dict[str, list[str]]
) -> dict[str, list[str]]:
    """Return for each site the names whose value it can change, itself or by a redraw."""
    touched: dict[str, dict[str, None]] = {name: {} for name in sites.names}
    for name, number in numbers.items():
        mask = reached[number]
        while mask:
            site = sites.names[(mask & -mask).bit_length() - 1]
            for mover in movers[site]:
                touched[mover][name] = None
            mask &= mask - 1
    return {site: list(names) for site, names in touched.items()}


def _redraws(traced: Traced, sites: SiteTable, reached: list[int]) -> dict[str, tuple[str, ...]]:
    """Return for each site those later ones whose support it can change, directly or not."""
    dynamic = {}
    for index, name in enumerate(sites.names):
        others = reached[traced.supports[name]] & ~(1 << index)
        if others:
            dynamic[name] = others
    found = {}
    for index, name in enumerate(sites.names):
        moved, names = 1 << index, []
        for other in dynamic:
            position = sites.names.index(other)
            if position > index and dynamic[other] & moved:
                moved |= 1 << position
                names.append(other)
        found[name] = tuple(names)
    return found


def cut_branch(traced: Traced, sites: SiteTable, touches: Touches, name: str) -> Cut:
    """Cut out what a step needs that moves the site ``name``."""
    graph, site = traced.graph, sites[name]
    given: dict[int, object] = dict.fromkeys(traced.values.values(), "value")
    wanted = [traced.proposed[name]]
    if name in traced.log_q_ratios:
        wanted.append(traced.log_q_ratios[name])
    noise = noise_sources(graph, wanted, traced.keys[name], ACCEPT_WORD + 1)
    for other in touches.redraws:
        start = ACCEPT_WORD + 1 + sum(source.num_words for source in noise.values())
        noise |= noise_sources(graph, [traced.proposed[other]], traced.keys[other], start)
    given |= noise
    cutter = Cutter(graph, given)
    cutter.number(traced.values[name])
    propose = cutter.cut(wanted)
    scored = [traced.terms[t] for t in touches.terms] + [traced.outputs[o] for o in touches.outputs]
    score = cutter.cut(scored)
    is_plain = traced.priors[name] == traced.terms[name]
    prior = None if is_plain else cutter.cut([traced.priors[name]])
    tables = (traced.supports, traced.proposed, traced.priors)
    redraw_cuts = [[cutter.cut([table[other]]) for table in tables] for other in touches.redraws]
    for other in touches.redraws:
        cutter.number(traced.values[other])
    names = {number: site_name for site_name, number in traced.values.items()}
    read_sites = {n: sites[names[value]] for n, value in cutter.inputs.items() if value in names}
    read_names = tuple(read.name for read in read_sites.values())
    branch = Branch(
        site,
        propose,
        score,
        prior,
        tuple(
            Redraw(read_names.index(other), *cuts)
            for other, cuts in zip(touches.redraws, redraw_cuts, strict=True)
        ),
        tuple(Read(number, read.shape, read.dtype) for number, read in read_sites.items()),
        tuple((n, noise[value]) for n, value in cutter.inputs.items() if value in noise),
        ACCEPT_WORD + 1 + sum(source.num_words for source in noise.values()),
        len(touches.terms),
        touches.terms.index(name) if name in touches.terms else 0,
    )
    constants = {number: graph.constants[value] for number, value in cutter.constants.items()}
    literals = frozenset(n for n, value in cutter.constants.items() if value in graph.literals)
    return Cut(branch, touches, read_names, constants, literals, _signature(branch, constants))


def _signature(branch: Branch, constants: dict) -> Hashable:
    """Return what must be equal for two sites to share a branch."""
    site = branch.site
    return (
        (site.batch_shape, site.event_shape, site.dtype, site.is_discrete),
        branch.propose.signature(),
        branch.score.signature(),
        branch.prior.signature() if branch.prior else None,
        tuple(
            (redraw.read, *(f.signature() for f in (redraw.inside, redraw.draw, redraw.prior)))
            for redraw in branch.redraws
        ),
        branch.reads,
        branch.noise,
        branch.num_terms,
        branch.own_term,
        tuple((number, v.shape, str(v.dtype)) for number, v in constants.items()),
    )


def make_groups(
    cuts: list[Cut], position: Layout, terms: Layout, outputs: Layout
) -> tuple[list[Group], list[GroupData], list[tuple[int, int]]]:
    """Group equal branches; return groups, their arrays, and (group, member) of each site."""
    members: dict[tuple, list[Cut]] = {}
    keys = [(cut.signature, *_scored_shapes(cut, terms, outputs)) for cut in cuts]
    order = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    places = []
    for key, cut in zip(keys, cuts, strict=True):
        mates = members.setdefault(key, [])
        places.append((order[key], len(mates)))
        mates.append(cut)
    groups = [_make_group(key, mates) for key, mates in members.items()]
    data = [
        _make_data(group, mates, position, terms, outputs)
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
    group: Group, mates: list[Cut], position: Layout, terms: Layout, outputs: Layout
) -> GroupData:
    return GroupData(
        _table([[position[name].offset for name in cut.read_names] for cut in mates]),
        _table([[terms[name].offset for name in cut.touches.terms] for cut in mates]),
        _table([[outputs[name].offset for name in cut.touches.outputs] for cut in mates]),
        _table([[outputs.starts[name] for name in cut.touches.outputs] for cut in mates]),
        tuple(jnp.asarray(mates[0].constants[number]) for number in group.shared),
        tuple(
            jnp.stack([jnp.asarray(cut.constants[number]) for cut in mates])
            for number in group.stacked
        ),
    )


def _scored_shapes(cut: Cut, terms: Layout, outputs: Layout) -> tuple:
    return (
        tuple(terms[name].shape for name in cut.touches.terms),
        tuple((outputs[name].shape, outputs[name].bank) for name in cut.touches.outputs),
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
        same = all(value is values[0] or _equal(value, values[0]) for value in values[1:])
        is_literal = all(number in mate.literals for mate in mates)
        (stacked if not same else literals if is_literal else shared).append(number)
    return literals, shared, stacked


def _equal(first: Array | np.ndarray, second: Array | np.ndarray) -> bool:
    return first.size <= 4096 and np.asarray(first).tobytes() == np.asarray(second).tobytes()
