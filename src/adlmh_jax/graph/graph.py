"""A model's computation as a flat graph: what depends on what, and how to run a part of it.

`trace_graph` turns a Python function into a `Graph`: calls are inlined, equal nodes are shared, and
whatever depends on data alone is computed once, before anything else runs. A `Graph` can be cut:
`ancestors` of some values are the nodes needed to compute them, and nothing else.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from adlmh_jax.graph.constants import PerDataset
from adlmh_jax.graph.folding import EXPANDING, Constants, host_array
from adlmh_jax.graph.loops import split_scan
from adlmh_jax.graph.operations import INLINED, Node
from adlmh_jax.graph.rows import gather_as_slice

MAX_LITERAL = 16  # computed from literals alone and no larger than this, a constant is a literal


@dataclass
class Graph:
    """Nodes in the order in which they can run.

    Attributes
    ----------
    avals
        Shape and dtype of each value.
    inputs
        Number of the value of each named input.
    constants
        Values known when the model was traced.
    literals
        Those of the constants that are numbers in the model's text, not data.
    nodes, producer
        The operations, and for each value the index of the node that makes it.
    source
        What JAX traced.
    """

    avals: list[jax.ShapeDtypeStruct] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    constants: Constants = field(default_factory=Constants)
    literals: set[int] = field(default_factory=set)
    nodes: list[Node] = field(default_factory=list)
    producer: dict[int, int] = field(default_factory=dict)
    source: Any = None
    _shared: dict[Hashable, tuple[int, ...]] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def new_value(self, aval: Any) -> int:
        """Give a value the next number."""
        self.avals.append(jax.ShapeDtypeStruct(aval.shape, aval.dtype))
        return len(self.avals) - 1

    def constant(self, value: Any) -> int:
        """Return the number of a known array."""
        value = value if isinstance(value, jax.Array) else host_array(value)
        key = id(value)
        if key not in self._numbers:
            self._numbers[key] = self.new_value(value)
            self.constants[self._numbers[key]] = value
        return self._numbers[key]

    def literal(self, atom: Any) -> int:
        """Return the number of a scalar that the model's text spells out; equal ones are one."""
        scalar = np.asarray(atom.val, atom.aval.dtype)
        key = str(scalar.dtype), scalar.tobytes()
        if key not in self._numbers:
            self._numbers[key] = self.new_value(scalar)
            self.constants[self._numbers[key]] = scalar
            self.literals.add(self._numbers[key])
        return self._numbers[key]

    def add(self, primitive: Any, params: dict, inputs: tuple[int, ...], outvars: list) -> tuple:
        """Add an operation, unless it is there already; it is known if all its inputs are."""
        frozen = tuple((name, _freeze(params[name])) for name in sorted(params))
        node = Node(primitive, params, inputs, (), frozen)
        key = (node.signature(), inputs)
        if key in self._shared and not primitive_has_effects(node):
            return self._shared[key]
        if (same := self._undone(node, outvars)) is not None:
            return (same,)
        outputs = tuple(self.new_value(variable.aval) for variable in outvars)
        node = replace(node, outputs=outputs)
        is_known = all(n in self.constants for n in inputs) and not primitive_has_effects(node)
        if is_known:
            self.constants.put_off(node)
        if is_known and primitive.name not in EXPANDING:
            if all(number in self.literals for number in inputs):
                self.literals.update(n for n in outputs if self._fits_literal(n))
        else:
            for output in outputs:
                self.producer[output] = len(self.nodes)
            self.nodes.append(node)
        self._shared[key] = outputs
        return outputs

    def _undone(self, node: Node, outvars: list) -> int | None:
        """Return the value that an operation only brings back: to its shape, or its order."""
        if node.primitive.name == "rev":
            index = self.producer.get(node.inputs[0])
            turned = None if index is None else self.nodes[index]
            is_same = turned is not None and turned.signature() == node.signature()
            return turned.inputs[0] if turned and is_same else None
        number: int | None = node.inputs[0] if _is_reshape(node) else None
        while number is not None:
            aval = self.avals[number]
            if (aval.size, aval.dtype) != (outvars[0].aval.size, outvars[0].aval.dtype):
                return None
            if aval.shape == outvars[0].aval.shape:
                return number
            index = self.producer.get(number)
            before = None if index is None else self.nodes[index]
            number = before.inputs[0] if before and _is_reshape(before) else None
        return None

    def _fits_literal(self, number: int) -> bool:
        """Whether a value made of literals is one itself: small, and no random key."""
        aval = self.avals[number]
        return aval.size <= MAX_LITERAL and not jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)

    def inline(self, jaxpr: core.Jaxpr, consts: Sequence[int], args: Sequence[int]) -> list[int]:
        """Add the equations of ``jaxpr`` and return the numbers of its results."""
        numbers = dict(zip(jaxpr.constvars, consts, strict=True))
        numbers.update(zip(jaxpr.invars, args, strict=True))

        def number(atom: Any) -> int:
            is_literal = isinstance(atom, core.Literal)
            return self.literal(atom) if is_literal else numbers[atom]

        for equation in jaxpr.eqns:
            inputs = tuple(number(atom) for atom in equation.invars)
            inner = self._inner(equation, inputs)
            if inner is None:
                outputs = self.add(equation.primitive, equation.params, inputs, equation.outvars)
            else:
                closed = inner if isinstance(inner, core.ClosedJaxpr) else None
                inner_consts = [self.constant(value) for value in closed.consts] if closed else []
                body = closed.jaxpr if closed else inner
                outputs = tuple(self.inline(body, inner_consts, inputs[-len(body.invars) :]))
            numbers.update(zip(equation.outvars, outputs, strict=True))
        return [number(atom) for atom in jaxpr.outvars]

    def _inner(self, equation: core.JaxprEqn, inputs: Sequence[int]) -> Any:
        """Return the computation that stands for an operation; None for the operation itself."""
        name, params = equation.primitive.name, equation.params
        if name == "scan":
            return split_scan(equation)
        if name == "gather":
            avals = [self.avals[number] for number in inputs]
            return gather_as_slice(params, avals, self.constants.on_host(inputs[1]))
        return params.get(INLINED.get(name, ""))

    def ancestors(self, values: Iterable[int], given: Iterable[int] = ()) -> list[int]:
        """Return the indices of the nodes needed to compute ``values`` from ``given``."""
        needed: set[int] = set()
        stack = list(values)
        stop = set(given)
        while stack:
            value = stack.pop()
            index = self.producer.get(value)
            if value in stop or index is None or index in needed:
                continue
            needed.add(index)
            stack.extend(self.nodes[index].inputs)
        return sorted(needed)

    def reach(self, sources: Sequence[int]) -> list[int]:
        """Return for each value the set of sources it depends on, as the bits of an integer."""
        reached = [0] * len(self.avals)
        for bit, source in enumerate(sources):
            reached[source] |= 1 << bit
        for node in self.nodes:
            mask = 0
            for number in node.inputs:
                mask |= reached[number]
            for number in node.outputs:
                reached[number] |= mask
        return reached


def _is_reshape(node: Node) -> bool:
    """Whether an operation leaves all entries in their order, unless it repeats them."""
    name, params = node.primitive.name, node.params
    is_plain = name == "reshape" and params["dimensions"] is None
    return len(node.inputs) == 1 and (is_plain or name in ("squeeze", "broadcast_in_dim"))


def primitive_has_effects(node: Node) -> bool:
    """Whether running the node does something besides computing its results."""
    return node.primitive.name in ("debug_callback", "io_callback", "debug_print")


def shapes_of(inputs: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """Return what JAX can trace a function with."""
    return {n: jax.ShapeDtypeStruct(value.shape, value.dtype) for n, value in inputs.items()}


def trace_graph(function: Callable, inputs: Mapping[str, Any]) -> tuple[Graph, Any]:
    """Trace ``function(inputs)``; return the graph and the tree of the results' numbers.

    Inputs that data sets have of their own are unknown to the function, and known to the graph.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(shapes_of(inputs))
    graph = Graph(source=closed)
    names = sorted(inputs)  # the order in which JAX flattens a dict
    numbers = [graph.new_value(inputs[name]) for name in names]
    graph.inputs = dict(zip(names, numbers, strict=True))
    for name, number in graph.inputs.items():
        if isinstance(inputs[name], PerDataset):
            graph.constants[number] = inputs[name]
    constants = [graph.constant(value) for value in closed.consts]
    results = graph.inline(closed.jaxpr, constants, numbers)
    return graph, jax.tree.unflatten(jax.tree.structure(shapes), results)


def _freeze(value: Any) -> Hashable:
    """Return a hashable stand-in that is equal for parameters that mean the same."""
    if isinstance(value, core.ClosedJaxpr):
        return "jaxpr", str(value.jaxpr), tuple(id(constant) for constant in value.consts)
    if isinstance(value, core.Jaxpr):
        return "jaxpr", str(value)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.tobytes()
    if isinstance(value, (tuple, list)):
        return tuple(_freeze(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _freeze(item)) for key, item in value.items())
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value
