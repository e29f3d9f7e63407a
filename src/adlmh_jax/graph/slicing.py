"""The part of a computation that belongs to one element of a site.

One entry of a term of n entries should cost what one entry costs. A slice taken after the
computation does not give that, so the element's index is pushed back through the graph, operation
by operation, to the sites' values and the data, which are sliced there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.graph.alignment import carried_axes
from adlmh_jax.graph.graph import Graph
from adlmh_jax.graph.operations import Node
from adlmh_jax.types import Array

Demand = tuple[tuple[int, int], ...]  # axes to be sliced, each with the batch axis that says where
Key = tuple[int, Demand]

# Parameters that hold sizes of axes (a slice that can be sliced on starts at zero).
SIZES = {
    "broadcast_in_dim": "shape",
    "dynamic_slice": "slice_sizes",
    "gather": "slice_sizes",
    "reshape": "new_sizes",
    "slice": "limit_indices",
}


def add_input(graph: Graph, name: str, aval: Any) -> int:
    """Return the number of a named input of the graph, which is added if it is new.

    Parameters
    ----------
    graph
        The graph, which is changed.
    name
        Name of the input.
    aval
        Anything with the shape and the dtype of the input.
    """
    if name not in graph.inputs:
        graph.inputs[name] = graph.new_value(aval)
    return graph.inputs[name]


@dataclass(frozen=True)
class _Plan:
    """How to get one slice: a node on slices of its operands, then a slice of its result."""

    node: Node | None
    operands: tuple[Key, ...]
    before: Demand
    after: Demand


@dataclass
class Slicer:
    """The rewriting of one graph: the slices found so far, and how the others will be made.

    Attributes
    ----------
    graph
        The graph, to which nodes are added.
    indices
        Numbers of the int32 scalars that say which element.
    found
        Number of each slice, by the value and the axes that are sliced.
    plans
        How slices are made.
    """

    graph: Graph
    indices: tuple[int, ...]
    found: dict[Key, int] = field(default_factory=dict)
    plans: dict[Key, _Plan] = field(default_factory=dict)

    def compute(self, value: int, axes: Mapping[int, int]) -> int:
        """Return the number of a slice; with a stack, for graphs are deeper than Python's."""
        wanted = value, tuple(sorted(axes.items()))
        stack = [wanted]
        while stack:
            key = stack[-1]
            if key not in self.plans:
                self.plans[key] = self._plan(key)
                stack.extend(o for o in self.plans[key].operands if o not in self.found)
                continue
            if key not in self.found:
                self.found[key] = self._build(key)
            stack.pop()
        return self.found[wanted]

    def _plan(self, key: Key) -> _Plan:
        """Decide which axes are sliced before the operation, that is in its operands."""
        value, demand = key
        index = self.graph.producer.get(value)
        if index is None or not demand:
            return _Plan(None, (), (), demand)
        node = self.graph.nodes[index]
        if node.primitive.name == "iota":
            return _Plan(node, (), demand, ())
        carried = carried_axes(self.graph, node) or []
        reached = {to for axes in carried for to in axes.values()}
        is_free = node.primitive.name == "broadcast_in_dim"  # new axes can have any size
        before = {axis: batch for axis, batch in demand if is_free or axis in reached}
        if not before:
            return _Plan(None, (), (), demand)
        demands = [
            tuple(sorted((axis, before[to]) for axis, to in axes.items() if to in before))
            for axes in carried
        ]
        after = tuple((axis, batch) for axis, batch in demand if axis not in before)
        operands = tuple(zip(node.inputs, demands, strict=True))
        return _Plan(node, operands, tuple(before.items()), after)

    def _build(self, key: Key) -> int:
        """Add what the plan says; the slices of the operands are there."""
        plan = self.plans[key]
        if plan.node is None:
            return self._take(key[0], plan.after)
        if plan.node.primitive.name == "iota":
            return self._count(plan.node, dict(plan.before))
        avals = [_cut(self.graph.avals[number], plan.before) for number in plan.node.outputs]
        results = self.graph.add(
            plan.node.primitive,
            _resized(plan.node, plan),
            tuple(self.found[operand] for operand in plan.operands),
            [SimpleNamespace(aval=aval) for aval in avals],
        )
        return self._take(results[plan.node.outputs.index(key[0])], plan.after)

    def _take(self, value: int, demand: Demand) -> int:
        """Slice a value that is computed, or given, whole."""
        if not demand:
            return value
        sizes = _cut(self.graph.avals[value], demand).shape
        batch_of = dict(demand)

        def take(array: Array, *indices: Array) -> Array:
            starts = [
                indices[batch_of[a]] if a in batch_of else np.int32(0) for a in range(len(sizes))
            ]
            return lax.dynamic_slice_p.bind(array, *starts, slice_sizes=sizes)

        return self._inline(take, (value, *self.indices))

    def _count(self, node: Node, batch_of: Mapping[int, int]) -> int:
        """Return the slice of an iota: along its own axis, that is the index itself."""
        aval = _cut(self.graph.avals[node.outputs[0]], tuple(batch_of.items()))
        axis = node.params["dimension"]

        def count(*indices: Array) -> Array:
            if axis in batch_of:
                return jnp.full(aval.shape, indices[batch_of[axis]].astype(aval.dtype))
            return lax.broadcasted_iota(aval.dtype, aval.shape, axis)

        return self._inline(count, self.indices)

    def _inline(self, function: Callable[..., Array], operands: Sequence[int]) -> int:
        avals = [self.graph.avals[number] for number in operands]
        closed = jax.make_jaxpr(function)(*avals)
        constants = [self.graph.constant(value) for value in closed.consts]
        return self.graph.inline(closed.jaxpr, constants, operands)[0]


def _cut(aval: jax.ShapeDtypeStruct, demand: Demand) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a slice."""
    sliced = dict(demand)
    shape = tuple(1 if axis in sliced else size for axis, size in enumerate(aval.shape))
    return jax.ShapeDtypeStruct(shape, aval.dtype)


def _resized(node: Node, plan: _Plan) -> dict[str, Any]:
    """Return the node's parameters, with size one where axes are sliced."""
    params, name = dict(node.params), node.primitive.name
    if name in SIZES:
        # A gather's sizes are those of the window that it takes from its first operand.
        sliced = dict(plan.operands[0][1] if name == "gather" else plan.before)
        sizes = enumerate(params[SIZES[name]])
        params[SIZES[name]] = tuple(1 if axis in sliced else size for axis, size in sizes)
    return params
