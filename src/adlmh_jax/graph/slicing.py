"""The part of a computation that belongs to one element of a site.

One entry of a term of n entries should cost what one entry costs. A slice taken after the
computation does not give that, so the element's index is pushed back through the graph, operation
by operation, to the sites' values and the data, which are sliced there. What lies at a distance
from the element is reached in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.graph.bands import Box, shifted_axes
from adlmh_jax.graph.graph import Graph
from adlmh_jax.graph.operations import Node
from adlmh_jax.types import Array

Where = tuple[int, int]  # a batch axis of the site, and how far from the element along it
Demand = tuple[tuple[int, Where], ...]  # axes to be sliced, each with where
Key = tuple[int, Demand]

# Parameters that hold sizes of axes.
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
    """How to get one slice: a node on slices of its operands, then a slice of its result.

    Without a node, it is the slice of a single operand, if there is one.
    """

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
    inner
        Which elements these may be.
    found
        Number of each slice, by the value and the axes that are sliced.
    plans
        How slices are made.
    """

    graph: Graph
    indices: tuple[int, ...]
    inner: Box = ()
    found: dict[Key, int] = field(default_factory=dict)
    plans: dict[Key, _Plan] = field(default_factory=dict)

    def compute(
        self, value: int, axes: Mapping[int, int], distance: Sequence[int] | None = None
    ) -> int:
        """Return the number of a slice at an element, or at a distance from it.

        There is a stack, for graphs are deeper than Python's.
        """
        wanted = value, to_demand(axes, distance or (0,) * len(self.indices))
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
        shifted = shifted_axes(self.graph, node) or []
        reached = {to for axes in shifted for to, _ in axes.values()}
        is_free = node.primitive.name == "broadcast_in_dim"  # new axes can have any size
        before = {axis: where for axis, where in demand if is_free or axis in reached}
        part = 0
        if node.primitive.name in ("concatenate", "pad"):
            part, lost = self._find_part(node, before)
            before = {axis: where for axis, where in before.items() if axis not in lost}
        if not before:
            return _Plan(None, (), (), demand)
        demands = [
            tuple(sorted((a, _move(before[to], s)) for a, (to, s) in axes.items() if to in before))
            for axes in shifted
        ]
        after = tuple((axis, where) for axis, where in demand if axis not in before)
        operands = tuple(zip(node.inputs, demands, strict=True))
        if node.primitive.name == "concatenate" and node.params["dimension"] in before:
            return _Plan(None, (operands[part],), (), ())
        return _Plan(node, operands, tuple(before.items()), after)

    def _find_part(self, node: Node, before: Mapping[int, Where]) -> tuple[int, set[int]]:
        """Return which operand of several that lie end to end has the row of every element.

        And the axes along which there is none: along these the whole must be computed.
        """
        shapes = [self.graph.avals[number].shape for number in node.inputs]
        if node.primitive.name == "pad":
            config = node.params["padding_config"]
            ranges = {a: (low, low + shapes[0][a]) for a, (low, _, _) in enumerate(config)}
            is_padded = {axis for axis, padding in enumerate(config) if any(padding)}
            lost = {a for a in before if a in is_padded and not self._is_in(before[a], ranges[a])}
            return 0, lost
        along, start = node.params["dimension"], 0
        if along not in before:
            return 0, set()
        for position, shape in enumerate(shapes):
            if self._is_in(before[along], (start, start + shape[along])):
                return position, set()
            start += shape[along]
        return 0, {along}

    def _is_in(self, where: Where, rows: tuple[int, int]) -> bool:
        """Whether the rows that belong to the elements are all in a range."""
        batch, distance = where
        if not self.inner:
            return False
        low, high = self.inner[batch]
        return rows[0] <= low + distance and high + distance <= rows[1]

    def _build(self, key: Key) -> int:
        """Add what the plan says; the slices of the operands are there."""
        plan = self.plans[key]
        if plan.node is None:
            return self.found[plan.operands[0]] if plan.operands else self._take(*key)
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
        where = dict(demand)

        def take(array: Array, *indices: Array) -> Array:
            starts = [
                _row(where[a], indices) if a in where else np.int32(0) for a in range(len(sizes))
            ]
            return lax.dynamic_slice_p.bind(array, *starts, slice_sizes=sizes)

        return self._inline(take, (value, *self.indices))

    def _count(self, node: Node, where: Mapping[int, Where]) -> int:
        """Return the slice of an iota: along its own axis, that is the index itself."""
        aval = _cut(self.graph.avals[node.outputs[0]], tuple(where.items()))
        axis = node.params["dimension"]

        def count(*indices: Array) -> Array:
            if axis in where:
                return jnp.full(aval.shape, _row(where[axis], indices).astype(aval.dtype))
            return lax.broadcasted_iota(aval.dtype, aval.shape, axis)

        return self._inline(count, self.indices)

    def _inline(self, function: Callable[..., Array], operands: Sequence[int]) -> int:
        avals = [self.graph.avals[number] for number in operands]
        closed = jax.make_jaxpr(function)(*avals)
        constants = [self.graph.constant(value) for value in closed.consts]
        return self.graph.inline(closed.jaxpr, constants, operands)[0]


def to_demand(axes: Mapping[int, int], distance: Sequence[int]) -> Demand:
    """Return what to slice: axes that go with batch axes, at a distance from the element."""
    return tuple(sorted((axis, (batch, distance[batch])) for axis, batch in axes.items()))


def _move(where: Where, shift: int) -> Where:
    return where[0], where[1] + shift


def _row(where: Where, indices: Sequence[Array]) -> Array:
    """Return the row of an axis that belongs to an element."""
    batch, distance = where
    return indices[batch] + np.int32(distance) if distance else indices[batch]


def _cut(aval: jax.ShapeDtypeStruct, demand: Demand) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a slice."""
    sliced = dict(demand)
    shape = tuple(1 if axis in sliced else size for axis, size in enumerate(aval.shape))
    return jax.ShapeDtypeStruct(shape, aval.dtype)


def _resized(node: Node, plan: _Plan) -> dict[str, Any]:
    """Return the node's parameters, with size one where axes are sliced."""
    params, name = dict(node.params), node.primitive.name
    # A gather's sizes are those of the window that it takes from its first operand.
    sliced = dict(plan.operands[0][1] if name == "gather" else plan.before)

    def put(key: str, one: Any) -> None:
        given = enumerate(params[key])
        params[key] = tuple(one if axis in sliced else item for axis, item in given)

    if name in SIZES:
        put(SIZES[name], 1)
    if name == "slice":
        put("start_indices", 0)
    if name == "pad":
        put("padding_config", (0, 0, 0))
    return params
