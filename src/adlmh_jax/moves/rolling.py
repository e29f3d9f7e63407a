"""Terms that do the same thing at consecutive places, scored by one mapped computation.

A state-space model written as a Python loop has a term for each time step, and a parameter of its
transitions touches all of them. Scored one by one they would be hundreds of small operations; as a
*run* they are one array: consecutive rows of terms, computed from consecutive rows of sites.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from adlmh_jax.graph import Cutter, Fragment, Graph, Layout, Slot
from adlmh_jax.model import Traced
from adlmh_jax.moves.trunk import MoreConstants, Own, Rows, cut_own, gather, join_sums

MIN_RUN = 4  # fewer terms are as quick one by one


@dataclass(frozen=True)
class RolledNode:
    """A fragment mapped over some of its inputs; to those who run it, a node like others.

    Attributes
    ----------
    body, body_inputs
        The computation of one term, and the numbers of its inputs.
    is_mapped
        Which inputs have an axis in front, one item for each term.
    inputs, outputs
        Numbers of the operands and of the result.
    """

    body: Fragment
    body_inputs: tuple[int, ...]
    is_mapped: tuple[bool, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Compute all terms."""

        def one(*operands: Any) -> Any:
            return self.body.run(dict(zip(self.body_inputs, operands, strict=True)))[0]

        axes = [0 if mapped else None for mapped in self.is_mapped]
        return [jax.vmap(one, axes)(*map(jnp.asarray, operands))]

    def signature(self) -> Hashable:
        """Return what tells this operation from others, apart from its operands."""
        return "rolled", self.body.signature(), self.body_inputs, self.is_mapped


@dataclass(frozen=True)
class LoneTerm:
    """One term on its own: its computation, the sites that it reads, and its constants.

    Attributes
    ----------
    name
        Of the term.
    fragment
        What computes it.
    reads, constants
        The sites read and the constants of the graph, by number.
    """

    name: str
    fragment: Fragment
    reads: dict[int, str]
    constants: dict[int, int]


@dataclass(frozen=True)
class RunFinder:
    """Find runs among the terms that a site touches.

    Attributes
    ----------
    graph, values, terms
        The model's graph, and in it the numbers of sites and terms.
    latent_layout, term_layout
        Where they live.
    moved
        The sites that move: their values are each one for the whole run.
    """

    graph: Graph
    values: dict[str, int]
    terms: dict[str, int]
    latent_layout: Layout
    term_layout: Layout
    moved: frozenset[str]

    def find_runs(self, names: Sequence[str]) -> list[list[LoneTerm]]:
        """Find the runs among terms that are in the order of their rows."""
        terms = map(self.cut_alone, names if len(names) >= MIN_RUN else ())
        return [run for run in join_runs(terms, self._step) if len(run) >= MIN_RUN]

    def cut_alone(self, name: str) -> LoneTerm:
        """Cut out a term on its own."""
        cutter = Cutter(self.graph, dict.fromkeys(self.values.values(), "value"))
        fragment = cutter.cut([self.terms[name]])
        site_of = {value: site for site, value in self.values.items()}
        reads = {number: site_of[value] for number, value in cutter.inputs.items()}
        return LoneTerm(name, fragment, reads, cutter.constants)

    def _step(self, term: LoneTerm, next_term: LoneTerm) -> tuple[bool, ...] | None:
        """Return which reads move on to the next site between two terms of a run.

        None if the two are no run.
        """
        if not self.are_neighbours(term, next_term):
            return None
        moves_on = []
        for before, after in zip(term.reads.values(), next_term.reads.values(), strict=True):
            goes_on = self.step_of(before, after)
            if goes_on is None:
                return None
            moves_on.append(goes_on)
        return tuple(moves_on)

    def are_neighbours(self, term: LoneTerm, next_term: LoneTerm) -> bool:
        """Whether two terms compute the same at consecutive places."""
        names = (term.name, next_term.name)
        if self.moved.intersection(names) or not self._is_alike(term, next_term):
            return False
        return self.are_in_row(*names)

    def are_in_row(self, name: str, next_name: str) -> bool:
        """Whether two terms are at consecutive places, both of the prior or both of the data."""
        is_same_kind = (name in self.values) == (next_name in self.values)
        return is_same_kind and is_next(self.term_layout[name], self.term_layout[next_name])

    def step_of(self, before: str, after: str) -> bool | None:
        """Return whether a read moves on to the next site; None if it goes elsewhere."""
        if before == after:
            return False
        if self.moved & {before, after}:
            return None
        return True if is_next(self.latent_layout[before], self.latent_layout[after]) else None

    def _is_alike(self, first: LoneTerm, second: LoneTerm) -> bool:
        """Whether two terms are the same computation of values of the same shapes."""

        def shapes(term: LoneTerm) -> list:
            sites = [(n, self.values[site]) for n, site in term.reads.items()]
            needs = [*sites, *term.constants.items()]
            return [(n, self.graph.avals[v].shape, self.graph.avals[v].dtype) for n, v in needs]

        same_code = first.fragment.signature() == second.fragment.signature()
        return same_code and shapes(first) == shapes(second)


def run_finder(traced: Traced, layouts: tuple[Layout, Layout], moved: Collection[str]) -> RunFinder:
    """Return what finds runs among the terms of a model, whose sites and terms live in layouts."""
    return RunFinder(
        graph=traced.graph,
        values=traced.values,
        terms=traced.terms,
        latent_layout=layouts[0],
        term_layout=layouts[1],
        moved=frozenset(moved),
    )


def join_runs(
    terms: Iterable[LoneTerm], find_step: Callable[[LoneTerm, LoneTerm], tuple | None]
) -> list[list[LoneTerm]]:
    """Put terms together as long as each goes on from the last one in the same way."""
    runs: list[list[LoneTerm]] = []
    step: tuple | None = None  # how the last run goes on
    for term in terms:
        goes_on = find_step(runs[-1][-1], term) if runs else None
        if goes_on is not None and step in (None, goes_on):
            runs[-1].append(term)
            step = goes_on
        else:
            runs.append([term])
            step = None
    return runs


def is_next(first: Slot, second: Slot) -> bool:
    """Whether the rows of the second array follow those of the first."""
    is_alike = (first.bank, first.shape) == (second.bank, second.shape)
    return is_alike and second.offset == first.offset + first.size


def find_neighbours(names: Sequence[str], layout: Layout) -> list[list[str]]:
    """Put names together that are at consecutive places."""
    runs: list[list[str]] = []
    for name in names:
        if runs and is_next(layout[runs[-1][-1]], layout[name]):
            runs[-1].append(name)
        else:
            runs.append([name])
    return runs


@dataclass
class RolledReads:
    """The sites and constants of rolled terms, under the numbers of the branch.

    Attributes
    ----------
    sites
        First site and number of sites of each read.
    more
        The constants.
    """

    sites: dict[int, tuple[str, int]] = field(default_factory=dict)
    more: MoreConstants = field(default_factory=MoreConstants)


def roll(
    finder: RunFinder, run: Sequence[LoneTerm], cutter: Cutter, found: RolledReads
) -> RolledNode:
    """Return the node that computes a run; its inputs are numbered by the branch's cutter."""
    graph = finder.graph
    first, second = run[:2]
    numbers, is_mapped = [], []
    for body_number, site in first.reads.items():
        is_fixed = second.reads[body_number] == site
        number = cutter.number(finder.values[site]) if is_fixed else cutter.new_number()
        if not is_fixed:
            found.sites[number] = (site, len(run))
        numbers.append(number)
        is_mapped.append(not is_fixed)
    for number, is_own in gather_constants(graph, run, cutter, found):
        numbers.append(number)
        is_mapped.append(is_own)
    body_inputs = (*first.reads, *first.constants)
    outputs = (cutter.new_number(),)
    return RolledNode(first.fragment, body_inputs, tuple(is_mapped), tuple(numbers), outputs)


def gather_constants(
    graph: Graph, run: Sequence[LoneTerm], cutter: Cutter, found: RolledReads
) -> list[tuple[int, bool]]:
    """Return numbers for the constants of a run, and whether each of its terms has its own."""
    by_term = ([term.constants[number] for term in run] for number in run[0].constants)
    return [found.more.stack(graph, sources, cutter) for sources in by_term]


def cut_terms(
    finder: RunFinder,
    names: Sequence[str],
    cutter: Cutter,
    may_roll: bool,
    trunk: Collection[int] = (),
    rows: Rows = MappingProxyType({}),
) -> tuple[Fragment, tuple[tuple[str, tuple[int, ...]], ...], RolledReads]:
    """Cut out what computes some terms; return also the runs that they form, and what runs read.

    Of each run, the first term and the shape of all. Terms that are no run may still be equal but
    for what they read of a trunk. Some values read are known to be rows of arrays.
    """
    rolled = RolledReads()
    runs = {run[0].name: run for run in finder.find_runs(names)} if may_roll else {}
    later = {term.name for run in runs.values() for term in run[1:]}
    others = [name for name in names if name not in later and name not in runs]
    sprung = {run[0].name: run for run in _find_sprung(finder, others, trunk)}
    later |= {own.name for run in sprung.values() for own in run[1:]}
    firsts = [name for name in names if name not in later]
    alone = [name for name in firsts if name not in runs and name not in sprung]
    spring = [_spring(finder, run, cutter, rolled) for run in sprung.values()]
    needed = [value for _, _, values in spring for value in values]
    single = cutter.cut([*(finder.terms[name] for name in alone), *needed])
    stacks = [stack for _, stacks, _ in spring for stack in stacks]
    nodes = list(join_sums(single, stacks, cutter, rows) if sprung else single.nodes)
    output_of = dict(zip(alone, single.outputs, strict=False))
    for name, (node, _, _) in zip(sprung, spring, strict=True):
        nodes.append(node)
        output_of[name] = node.outputs[0]
    for name, run in runs.items():
        node = roll(finder, run, cutter, rolled)
        nodes.append(node)
        output_of[name] = node.outputs[0]
    lengths = {name: (len(run),) for name, run in runs.items()}
    lengths |= {name: (len(run),) for name, run in sprung.items()}
    terms = [
        (name, (*lengths.get(name, ()), *finder.graph.avals[finder.terms[name]].shape))
        for name in firsts
    ]
    fragment = Fragment(tuple(nodes), tuple(output_of[name] for name in firsts))
    return fragment, tuple(terms), rolled


def _find_sprung(
    finder: RunFinder, names: Sequence[str], trunk: Collection[int]
) -> list[list[Own]]:
    """Find runs among terms that are in the order of their rows, each read from a trunk."""
    if not trunk or len(names) < MIN_RUN:
        return []
    runs: list[list[Own]] = []
    ends = [*finder.values.values(), *trunk]
    for name in names:
        own = cut_own(finder.graph, ends, name, [[finder.terms[name]]])
        last = runs[-1][-1] if runs else None
        goes_on = (
            last is not None and last.key == own.key and finder.are_in_row(last.name, own.name)
        )
        runs[-1].append(own) if goes_on else runs.append([own])
    return [run for run in runs if len(run) >= MIN_RUN and run[0].sources != run[1].sources]


def _spring(
    finder: RunFinder, run: Sequence[Own], cutter: Cutter, found: RolledReads
) -> tuple[RolledNode, list, list[int]]:
    """Return the node that computes a run, those that stack what it reads, and what they need."""
    gathered, stacks, needed = gather(finder.graph, run, cutter, found.more)
    node = RolledNode(
        run[0].fragments[0],
        gathered.body_inputs,
        gathered.is_mapped,
        gathered.numbers,
        (cutter.new_number(),),
    )
    return node, stacks, needed
