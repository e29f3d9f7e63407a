"""What the computations of several sites share, and what each has of its own.

Where the support of each week hangs on all weeks before it, what is computed for a week begins with
a sum that is one longer than that of the week before. No two weeks are equal then; but they share
the sums, the *trunk*, and what is left of each is the same computation of one entry of them.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.graph import Cutter, Fragment, Graph, Node, Operation, are_equal, stack
from adlmh_jax.model import Traced

MIXED = ""  # the owner of what more than one site needs
Rows = Mapping[int, tuple[int, int]]  # of which array a value is a row
MIN_SUMS = 4  # fewer sums are as quick one by one


def find_trunk(traced: Traced) -> frozenset[int]:
    """Return the computed values that are needed for more than one site."""
    graph = traced.graph
    owners: dict[int, str] = {}

    def mark(number: int, owner: str) -> None:
        owners[number] = owner if owners.get(number, owner) == owner else MIXED

    for table in traced.by_site:
        for name, number in table.items():
            mark(number, name)
    for (name, _), number in (*traced.proposed.items(), *traced.log_q_ratios.items()):
        mark(number, name)
    for name, number in traced.outputs.items():
        mark(number, f"output {name}")
    for node in reversed(graph.nodes):
        for owner in {owners[number] for number in node.outputs if number in owners}:
            for number in node.inputs:
                mark(number, owner)
    return frozenset(n for n, owner in owners.items() if owner == MIXED and n in graph.producer)


@dataclass(frozen=True)
class Own:
    """What is computed for one site alone, in a numbering of its own.

    Attributes
    ----------
    name
        Of the site, or of the term.
    fragments
        The computations. What is given comes first in the numbering.
    sources
        Values of the graph that they read, by number.
    key
        What must be equal for two to be the same computation.
    """

    name: str
    fragments: tuple[Fragment, ...]
    sources: dict[int, int]
    key: Hashable


def cut_own(
    graph: Graph,
    ends: Iterable[int],
    name: str,
    wanted: Sequence[Sequence[int]],
    given: Sequence[int] = (),
) -> Own:
    """Cut out what computes some values from sites and trunk, the ends, and from what is given."""
    cutter = Cutter(graph, dict.fromkeys([*ends, *given], "given"))
    for value in given:
        cutter.number(value)
    fragments = tuple(cutter.cut(numbers) for numbers in wanted)
    read = cutter.inputs | cutter.constants
    sources = {number: value for number, value in read.items() if value not in given}
    shapes = tuple(_shape(graph, value) for value in (*given, *sources.values()))
    key = (tuple(fragment.signature() for fragment in fragments), tuple(sources), shapes)
    return Own(name, fragments, sources, key)


def _shape(graph: Graph, value: int) -> tuple:
    aval = graph.avals[value]
    return aval.shape, str(aval.dtype)


@dataclass(frozen=True)
class StackNode:
    """Values of one shape as one array; to those who run it, a node like others.

    Attributes
    ----------
    parts
        Numbers of the values; of those that are consecutive rows of an array, the first row and how
        many they are. To put single rows together again would be slow.
    outputs
        Number of the array.
    """

    parts: tuple[tuple[int, tuple[int, int] | None], ...]
    outputs: tuple[int, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of the operands."""
        return tuple(number for number, _ in self.parts)

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Stack the values."""
        pieces = []
        for (_, rows), operand in zip(self.parts, map(jnp.asarray, operands), strict=True):
            pieces.append(operand[None] if rows is None else operand[rows[0] : sum(rows)])
        return [pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces)]

    def signature(self) -> Hashable:
        """Return what tells this operation from others, apart from its operands."""
        return "stack", tuple(rows for _, rows in self.parts)

    def read_rows(self, row_of: Rows) -> "StackNode":
        """Return the same, for values of which it is known of which array they are a row."""
        parts: list[tuple[int, tuple[int, int] | None]] = []
        for number, _ in self.parts:
            array, row = row_of.get(number, (number, -1))
            last, rows = parts[-1] if parts else (-1, None)
            if row >= 0 and last == array and rows is not None and sum(rows) == row:
                parts[-1] = (array, (rows[0], rows[1] + 1))
            else:
                parts.append((array, (row, 1) if row >= 0 else None))
        return StackNode(tuple(parts), self.outputs)


def stack_node(inputs: Iterable[int], output: int) -> StackNode:
    """Return the node that stacks single values."""
    return StackNode(tuple((number, None) for number in inputs), (output,))


@dataclass(frozen=True)
class SumsNode:
    """Integers that are added or subtracted one after the other, and all sums on the way.

    Of many weeks these would be as many operations, each of which takes a while to be launched.
    The first of the outputs are all sums as one array.
    """

    start: int
    added: StackNode
    signs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of the operands."""
        return (self.start, *self.added.inputs)

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Compute the sums."""
        start, *added = operands
        (stacked,) = self.added.run(added)
        signs = np.array(self.signs, stacked.dtype).reshape(-1, *(1,) * (stacked.ndim - 1))
        sums = jnp.asarray(start) + lax.associative_scan(jnp.add, signs * stacked, axis=0)
        return [sums, *sums]

    def signature(self) -> Hashable:
        """Return what tells this operation from others, apart from its operands."""
        return "sums", self.signs, self.added.signature()


def join_sums(
    fragment: Fragment, stacks: Sequence[StackNode], cutter: Cutter, rows: Rows
) -> tuple[Operation, ...]:
    """Return the nodes of a fragment, and of those that stack what it computes.

    Long sums of integers are computed at once. The rows are those of arrays that are read.
    """
    is_integer = {
        number: jnp.issubdtype(cutter.graph.avals[value].dtype, jnp.integer)
        for value, number in cutter.numbers.items()
    }
    chains: list[list[Node]] = []
    chain_of: dict[int, list[Node]] = {}  # by its last sum
    for node in fragment.nodes:
        if not isinstance(node, Node) or node.primitive.name not in ("add", "sub"):
            continue
        if is_integer.get(node.outputs[0], False):
            chain = chain_of.pop(node.inputs[0], None)
            if chain is None:
                chains.append(chain := [])
            chain.append(node)
            chain_of[node.outputs[0]] = chain
    nodes: list[Operation] = list(fragment.nodes)
    for chain in chains:
        sums = _join(chain, cutter)
        rest = [node for node in nodes if node not in chain]
        ordered = _in_order([*rest, sums]) if len(chain) >= MIN_SUMS else None
        nodes = ordered or nodes
    joined = [node for node in nodes if isinstance(node, SumsNode)]
    made = {n: (node.outputs[0], i) for node in joined for i, n in enumerate(node.outputs[1:])}
    known = {**rows, **made}
    for index, node in enumerate(nodes):
        if isinstance(node, SumsNode):
            nodes[index] = replace(node, added=node.added.read_rows(rows))
    return (*nodes, *(node.read_rows(known) for node in stacks))


def _join(chain: Sequence[Node], cutter: Cutter) -> SumsNode:
    return SumsNode(
        signs=tuple(1 if node.primitive.name == "add" else -1 for node in chain),
        start=chain[0].inputs[0],
        added=stack_node((node.inputs[1] for node in chain), -1),
        outputs=(cutter.new_number(), *(node.outputs[0] for node in chain)),
    )


def _in_order(nodes: Sequence[Operation]) -> list[Operation] | None:
    """Return nodes in an order in which they can run; None if there is none."""
    made = {number for node in nodes for number in node.outputs}
    missing = {id(node): len(made.intersection(node.inputs)) for node in nodes}
    readers: dict[int, list[Operation]] = {}
    for node in nodes:
        for number in set(node.inputs):
            readers.setdefault(number, []).append(node)
    ready = [node for node in nodes if not missing[id(node)]]
    ordered: list[Operation] = []
    for node in ready:  # it grows
        ordered.append(node)
        for reader in (r for number in node.outputs for r in readers.get(number, ())):
            missing[id(reader)] -= 1
            if not missing[id(reader)]:
                ready.append(reader)
    return ordered if len(ordered) == len(nodes) else None


@dataclass
class MoreConstants:
    """Constants of a branch that are no values of the graph, and which of them are literals."""

    constants: dict[int, Any] = field(default_factory=dict)
    literals: set[int] = field(default_factory=set)

    def stack(self, graph: Graph, sources: Sequence[int], cutter: Cutter) -> tuple[int, bool]:
        """Return the number of constants as one, and whether they had to be stacked."""
        values = [graph.constants[source] for source in sources]
        is_fixed = all(are_equal(values[0], other) for other in values[1:])
        number = cutter.new_number()
        self.constants[number] = values[0] if is_fixed else stack(values)
        if is_fixed and all(source in graph.literals for source in sources):
            self.literals.add(number)
        return number, not is_fixed


@dataclass(frozen=True)
class Gathered:
    """What equal computations read, as the branch numbers it: arrays, one entry for each of them.

    Attributes
    ----------
    body_inputs
        Numbers of what is read in the computation.
    numbers
        Numbers in the branch.
    is_mapped
        Which of them have an axis in front, one entry for each; the others are the same for all.
    """

    body_inputs: tuple[int, ...]
    numbers: tuple[int, ...]
    is_mapped: tuple[bool, ...]

    def of_row(self, known: Any, row: Any) -> dict[int, Any]:
        """Return what one of the computations reads."""
        columns = zip(self.body_inputs, self.numbers, self.is_mapped, strict=True)
        return {
            body: jnp.asarray(known[number])[row] if mapped else known[number]
            for body, number, mapped in columns
        }


def gather(
    graph: Graph, members: Sequence[Own], cutter: Cutter, more: MoreConstants
) -> tuple[Gathered, list[StackNode], list[int]]:
    """Put together what equal computations read.

    Return also the nodes that stack it, and the values of the graph that these need.
    """
    numbers, is_mapped, nodes, needed = [], [], [], []
    for body_number in members[0].sources:
        sources = [member.sources[body_number] for member in members]
        if all(source in graph.constants for source in sources):
            number, is_own = more.stack(graph, sources, cutter)
        elif len(set(sources)) == 1:
            number, is_own = cutter.number(sources[0]), False
            needed.append(sources[0])
        else:
            inputs = tuple(cutter.number(source) for source in sources)
            number, is_own = cutter.new_number(), True
            nodes.append(stack_node(inputs, number))
            needed.extend(sources)
        numbers.append(number)
        is_mapped.append(is_own)
    gathered = Gathered(tuple(members[0].sources), tuple(numbers), tuple(is_mapped))
    return gathered, nodes, needed


def sort_alike(owns: Iterable[Own]) -> list[list[Own]]:
    """Put equal computations together, in the order met."""
    found: dict[Hashable, list[Own]] = {}
    for own in owns:
        found.setdefault(own.key, []).append(own)
    return list(found.values())
