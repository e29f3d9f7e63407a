"""Parts of a graph in a numbering of their own, so that equal parts can share one compilation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from adlmh_jax.graph.graph import Graph
from adlmh_jax.graph.operations import Fragment, Node


@dataclass
class Cutter:
    """Cut fragments out of a graph; inputs and constants are numbered as they are met.

    Attributes
    ----------
    graph
        The graph to cut.
    given
        Values that are inputs of the fragments, with what they stand for.
    numbers
        New number of each value.
    inputs, constants
        What the fragments cut so far need, in the order met: value of each new number.
    """

    graph: Graph
    given: dict[int, Any]
    numbers: dict[int, int] = field(default_factory=dict)
    inputs: dict[int, int] = field(default_factory=dict)
    constants: dict[int, int] = field(default_factory=dict)
    _next: int = -1

    def number(self, value: int) -> int:
        """Return the new number of a value.

        A literal gets a new one at each use: whether two of them are equal is no matter of
        structure.
        """
        if value in self.numbers and value not in self.graph.literals:
            return self.numbers[value]
        number = self.numbers[value] = self.new_number()
        if value in self.given:
            self.inputs[number] = value
        elif value not in self.graph.producer:
            self.constants[number] = value
        return number

    def new_number(self) -> int:
        """Return a number for a value that is not in the graph."""
        self._next += 1
        return self._next

    def cut(self, wanted: Sequence[int]) -> Fragment:
        """Return the fragment that computes ``wanted``, its nodes in an order set by structure."""
        nodes = []
        for index in self._order(wanted):
            node = self.graph.nodes[index]
            inputs = tuple(self.number(value) for value in node.inputs)
            outputs = tuple(self.number(value) for value in node.outputs)
            nodes.append(Node(node.primitive, node.params, inputs, outputs, node.frozen))
        return Fragment(tuple(nodes), tuple(self.number(value) for value in wanted))

    def _order(self, wanted: Sequence[int]) -> list[int]:
        """Return the needed nodes in depth-first post-order from ``wanted``."""
        producer: Callable[[int], int | None] = self.graph.producer.get
        order: list[int] = []
        done: set[int] = set()
        stack: list[tuple[int, bool]] = []
        for value in reversed(wanted):
            self._push(stack, value, producer)
        while stack:
            index, expanded = stack.pop()
            if index in done:
                continue
            if expanded:
                done.add(index)
                order.append(index)
                continue
            stack.append((index, True))
            for value in reversed(self.graph.nodes[index].inputs):
                self._push(stack, value, producer)
        return order

    def _push(self, stack: list, value: int, producer: Callable[[int], int | None]) -> None:
        index = producer(value)
        if value not in self.given and index is not None:
            stack.append((index, False))
