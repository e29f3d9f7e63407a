"""Which sites share a branch because their supports hang on each other, and that branch."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from adlmh_jax.graph import KEY_WORDS, Cutter, Fragment, Layout, Noise, noise_sources
from adlmh_jax.model import Program, Touches, Traced
from adlmh_jax.moves.branch import (
    ACCEPT_WORD,
    Branch,
    Cut,
    Read,
    all_constants,
    find_reads,
    proposal_numbers,
)
from adlmh_jax.moves.cascade import Cascade, Kind
from adlmh_jax.moves.manners import SCALE, Manner, ProposeNode
from adlmh_jax.moves.rolling import MIN_RUN, RolledReads, cut_terms, find_neighbours, run_finder
from adlmh_jax.moves.trunk import Own, StackNode, cut_own, gather, join_sums, sort_alike, stack_node
from adlmh_jax.proposals import Variant

# A branch scores all terms that any of its sites touches. One that touches less than this share of
# them is better off with a branch of its own, though that is more code.
MIN_SHARE = 1 / 32

Scored = tuple[tuple[str, tuple[int, ...]], ...]  # first name and shape of what is scored


def find_families(program: Program, variants: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return sites, in program order, that share a branch: the supports of some hang on the others.

    Parameters
    ----------
    program
        The compiled model.
    variants
        How each site that moves does so.
    """
    sites, touches = program.sites, program.touches

    def kind(name: str) -> tuple:
        site = sites[name]
        return site.batch_shape, site.event_shape, site.dtype, site.is_discrete, variants[name]

    left = [name for name in sites.names if name in variants and touches[name].redraws]
    families = []
    while left:
        head = left[0]
        reached, least = touches[head].redraws, MIN_SHARE * len(touches[head].terms)
        family = [
            name
            for name in left
            if name == head
            or (name in reached and kind(name) == kind(head) and len(touches[name].terms) >= least)
        ]
        left = [name for name in left if name not in family]
        families.append(tuple(family))
    return families


def cut_family(
    program: Program, trunk: frozenset[int], names: Sequence[str], variant: Variant
) -> dict[str, Cut]:
    """Return the cuts of sites that share a branch and move in the given variant."""
    order = [program.touches[name] for name in names]
    redrawn = _in_order(program.sites.names, (t.redraws for t in order))
    cutter = _start_cutting(program, trunk, names, variant, redrawn)
    return cutter.cut(dict(zip(names, order, strict=True)))


def cut_family_start(
    program: Program,
    trunk: frozenset[int],
    names: Sequence[str],
    completed: Mapping[str, Touches],
) -> dict[str, Cut]:
    """Return the cuts of sites that share a branch when they are drawn, one after the other.

    What they complete is scored when the last of them is drawn.
    """
    cutter = _start_cutting(program, trunk, names, Variant(), ())
    return cutter.cut({name: completed[name] for name in names}, is_start=True)


def _start_cutting(
    program: Program,
    trunk: frozenset[int],
    names: Sequence[str],
    variant: Variant,
    redrawn: Sequence[str],
) -> "FamilyCutter":
    values, graph = program.traced.values, program.traced.graph
    return FamilyCutter(
        program=program,
        trunk=trunk,
        names=names,
        variant=variant,
        redrawn=redrawn,
        cutter=Cutter(graph, dict.fromkeys(values.values(), "value")),
        reached=graph.reach([values[name] for name in program.sites.names]),
    )


def _in_order(order: Sequence[str], names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    met = {name for some in names for name in some}
    return tuple(name for name in order if name in met)


@dataclass
class FamilyCutter:
    """Cut out the branch of a family, and what tells its members apart.

    Attributes
    ----------
    program, trunk, names, variant
        The model, what its sites share, and how the members move.
    redrawn
        The sites that may have to be redrawn.
    cutter
        What numbers the values of the branch.
    reached
        Which sites each value of the graph depends on, as bits.
    found, flags
        Constants that are no values of the graph; and those that differ between members, by number.
    rows
        Of values that are read together: which array, and which row of it.
    """

    program: Program
    trunk: frozenset[int]
    names: Sequence[str]
    variant: Variant
    redrawn: Sequence[str]
    cutter: Cutter
    reached: Sequence[int]
    found: RolledReads = field(default_factory=RolledReads)
    flags: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)

    def cut(self, touches: Mapping[str, Touches], is_start: bool = False) -> dict[str, Cut]:
        """Return the cut of each member."""
        cutter, site = self.cutter, self.program.sites[self.names[0]]
        own, key = cutter.new_number(), cutter.new_number()
        kinds, trunk, pieces = self._cut_kinds()
        propose, noise, scale = self._cut_proposals(own)
        score, terms = self._cut_terms(touches)
        outputs, output_list = self._cut_outputs(touches)
        cascade = Cascade(own=own, trunk=trunk, kinds=kinds, movers=self._movers(), key=key)
        if is_start:
            is_last = self._flag({n: n == self.names[-1] for n in self.names})
            cascade = replace(cascade, is_last=is_last)
        else:
            cascade = replace(
                cascade,
                touched_terms=self._touched(
                    terms, self.program.term_layout, {n: touches[n].terms for n in self.names}
                ),
                touched_outputs=self._touched(
                    output_list,
                    self.program.output_layout,
                    {n: touches[n].outputs for n in self.names},
                ),
            )
        reads, read_names = find_reads(
            self.traced, self.program.sites, cutter, self.found, left_out=self.redrawn
        )
        key_start = max([ACCEPT_WORD + 1, *(n.start + n.num_words for _, n in noise)])
        redraw_key = [(key, Noise("key", (), "key<fry>", key_start))] if kinds else []
        branch = Branch(
            site=site,
            variant=self.variant,
            propose=propose,
            score=score,
            outputs=outputs,
            prior=None,
            cascade=cascade,
            reads=(Read(own, site.shape, site.dtype), *reads, *(read for read, _ in pieces)),
            noise=(*noise, *redraw_key),
            scale=scale,
            key_start=key_start,
            num_words=key_start + (KEY_WORDS if kinds else 0),
            own_term=0,
            term_axes=(),
            is_tempered=tuple(first not in self.traced.values for first, _ in terms),
        )
        constants, literals = all_constants(cutter, self.found)
        return {
            name: Cut(
                branch=branch,
                read_names=(name, *read_names, *(first for _, first in pieces)),
                terms=terms,
                outputs=output_list,
                constants=constants | {n: flags[name] for n, flags in self.flags.items()},
                literals=literals,
                moved_names=(name,),
            )
            for name in self.names
        }

    @property
    def traced(self) -> Traced:
        """The model's graph."""
        return self.program.traced

    def _flag(self, of_member: dict[str, Any]) -> int:
        """Return the number of what differs between the members."""
        number = self.cutter.new_number()
        self.flags[number] = {name: np.asarray(value) for name, value in of_member.items()}
        return number

    def _ends(self, name: str) -> list[int]:
        """Return where computations for a site begin whose value is given apart from all else."""
        bit = 1 << self.program.sites.names.index(name)
        return [
            *self.traced.values.values(),
            *(number for number in self.trunk if not self.reached[number] & bit),
        ]

    def _cut_terms(self, touches: Mapping[str, Touches]) -> tuple[Fragment, Scored]:
        """Cut out the terms that any member touches."""
        program, more = self.program, self.found.more
        names = _in_order(program.term_layout.names, (t.terms for t in touches.values()))
        finder = run_finder(self.traced, (program.latent_layout, program.term_layout), self.names)
        score, terms, rolled = cut_terms(
            finder, names, self.cutter, may_roll=False, trunk=self.trunk, rows=self.rows
        )
        more.constants |= rolled.more.constants
        more.literals |= rolled.more.literals
        return score, terms

    def _cut_proposals(
        self, own: int
    ) -> tuple[Fragment, tuple[tuple[int, Noise], ...], int | None]:
        """Cut out the proposals of all members; return also their random inputs, and the scale."""
        cutter, parts = self.cutter, [self._cut_proposal(name) for name in self.names]
        noise_of = {part.name: noise for part, noise in parts}
        has_scale = any(_reads(f, SCALE) for part, _ in parts for f in part.fragments)
        scale = cutter.new_number() if has_scale else None
        manners: list[Manner] = []
        stacks: list[StackNode] = []
        needed: list[int] = []
        which: dict[str, np.int32] = {}
        rows: dict[str, np.int32] = {}
        for number, members in enumerate(sort_alike(part for part, _ in parts)):
            gathered, nodes, values = gather(self.traced.graph, members, cutter, self.found.more)
            stacks += nodes
            needed += values
            first = members[0]
            manners.append(
                Manner(
                    propose=first.fragments[0],
                    prior=first.fragments[1] if len(first.fragments) > 1 else None,
                    gathered=gathered,
                    noise=tuple((cutter.new_number(), source) for source in noise_of[first.name]),
                )
            )
            which |= {member.name: np.int32(number) for member in members}
            rows |= {member.name: np.int32(row) for row, member in enumerate(members)}
        nodes_before = join_sums(cutter.cut(needed), stacks, cutter, self.rows)
        node = ProposeNode(
            site=self.program.sites[self.names[0]],
            own=own,
            scale=scale,
            manners=tuple(manners),
            which=self._flag(which),
            row=self._flag(rows),
            outputs=(cutter.new_number(), cutter.new_number()),
        )
        noise = tuple(pair for manner in manners for pair in manner.noise)
        return Fragment((*nodes_before, node), node.outputs), noise, scale

    def _cut_proposal(self, name: str) -> tuple[Own, tuple[Noise, ...]]:
        """Cut out the proposal of one member; return also its random inputs."""
        traced = self.traced
        wanted = proposal_numbers(traced, name, self.variant)
        noise = noise_sources(traced.graph, wanted, traced.keys[name], ACCEPT_WORD + 1)
        given = [traced.values[name], traced.scales[name], *noise]
        priors = [[traced.priors[name]]] if len(wanted) == 1 else []
        part = cut_own(traced.graph, self._ends(name), name, [wanted, *priors], given)
        sources = tuple(noise.values())
        return replace(part, key=(part.key, sources)), sources

    def _cut_outputs(self, touches: Mapping[str, Touches]) -> tuple[Fragment, Scored]:
        """Cut out the outputs that any member touches, those at consecutive places as one."""
        numbers, layout = self.traced.outputs, self.program.output_layout
        names = _in_order(layout.names, (t.outputs for t in touches.values()))
        fragment = self.cutter.cut([numbers[name] for name in names])
        number_of = dict(zip(names, fragment.outputs, strict=True))
        stacks, outputs, shapes = [], [], []
        for run in find_neighbours(names, layout):
            if len(run) < MIN_RUN:
                outputs += [number_of[name] for name in run]
                shapes += [(name, layout[name].shape) for name in run]
                continue
            number = self.cutter.new_number()
            stacks.append(stack_node((number_of[name] for name in run), number))
            outputs.append(number)
            shapes.append((run[0], (len(run), *layout[run[0]].shape)))
        nodes = join_sums(fragment, stacks, self.cutter, self.rows)
        return Fragment(nodes, tuple(outputs)), tuple(shapes)

    def _cut_kinds(self) -> tuple[tuple[Kind, ...], Fragment, list[tuple[Read, str]]]:
        """Cut out what the sites that may be redrawn need.

        Return also what computes what they read, and what is read together, with the first site of
        each.
        """
        traced, program, cutter = self.traced, self.program, self.cutter
        owns = []
        for name in self.redrawn:
            tables = (traced.supports, traced.draws, traced.priors, traced.lowers, traced.uppers)
            wanted = [[table[name]] if name in table else [] for table in tables]
            given = [traced.values[name], traced.keys[name]]
            owns.append(cut_own(traced.graph, self._ends(name), name, wanted, given))
        position_of = {name: position for position, name in enumerate(self.redrawn)}
        kinds, nodes, needed, pieces = [], [], [], []
        for members in sort_alike(owns):
            gathered, stacks, values = gather(traced.graph, members, cutter, self.found.more)
            nodes += stacks
            needed += values
            names = [member.name for member in members]
            own_pieces = self._pieces(names)
            numbers = tuple(cutter.number(traced.values[name]) for name in names)
            arrays = [(read.number, i) for read, _ in own_pieces for i in range(read.shape[0])]
            self.rows |= dict(zip(numbers, arrays, strict=True))
            pieces += own_pieces
            falls = {m: np.isin(names, program.touches[m].redraws) for m in self.names}
            moved = {m: np.array([name == m for name in names]) for m in self.names}
            inside, draw, prior, lower, upper = members[0].fragments
            kinds.append(
                Kind(
                    inside=inside,
                    draw=draw,
                    prior=prior,
                    lower=lower,
                    upper=upper,
                    gathered=gathered,
                    positions=tuple(position_of[name] for name in names),
                    numbers=numbers,
                    reads=tuple((read.number, read.shape[0]) for read, _ in own_pieces),
                    shape=program.sites[names[0]].shape,
                    is_moved=self._flag(moved) if any(map(np.any, moved.values())) else None,
                    may_fall=None if all(map(np.all, falls.values())) else self._flag(falls),
                )
            )
        made = join_sums(cutter.cut(needed), nodes, cutter, self.rows)
        computed = {n for node in made for n in node.outputs}
        read = dict.fromkeys(n for kind in kinds for n in kind.gathered.numbers)
        trunk = Fragment(made, tuple(n for n in read if n in computed))
        return tuple(kinds), trunk, pieces

    def _pieces(self, names: Sequence[str]) -> list[tuple[Read, str]]:
        """Return what is read of sites, neighbours together, and the first site of each."""
        sites, pieces = self.program.sites, []
        for run in find_neighbours(names, self.program.latent_layout):
            shape = (len(run), *sites[run[0]].shape)
            pieces.append((Read(self.cutter.new_number(), shape, sites[run[0]].dtype), run[0]))
        return pieces

    def _movers(self) -> tuple[tuple[int, int | None], ...]:
        """Return the members that are never redrawn, where their values are read."""
        values = self.traced.values
        never = [name for name in self.names if name not in self.redrawn]
        read = {value: number for number, value in self.cutter.inputs.items()}
        return tuple(
            (
                read[values[name]],
                None if len(self.names) == 1 else self._flag({m: m == name for m in self.names}),
            )
            for name in never
            if values[name] in read
        )

    def _touched(
        self, scored: Scored, layout: Layout, touched: Mapping[str, Collection[str]]
    ) -> tuple[int | None, ...]:
        """Return numbers of which of some terms or outputs the moved site touches."""
        numbers: list[int | None] = []
        for first, shape in scored:
            is_run = shape != layout[first].shape
            start = layout.names.index(first)
            names = layout.names[start : start + (shape[0] if is_run else 1)]
            flags = {m: np.isin(names, list(of)) for m, of in touched.items()}
            if all(map(np.all, flags.values())):
                numbers.append(None)
                continue
            wide = (-1, *(1,) * (len(shape) - 1)) if is_run else ()
            numbers.append(self._flag({m: flag.reshape(wide) for m, flag in flags.items()}))
        return tuple(numbers)


def _reads(fragment: Fragment, number: int) -> bool:
    """Whether a computation reads a value."""
    return number in fragment.outputs or any(number in node.inputs for node in fragment.nodes)
