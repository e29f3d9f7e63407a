"""Operations between numbered values, and how some of them are run, alone or compiled together."""

import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from adlmh_jax.graph.gamma import can_draw, draw_gamma

# Operations that are calls of a computation, and which parameter holds it.
INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}


def scan_sizes(equation: core.JaxprEqn) -> tuple[int, int]:
    """Return how many operands of a ``scan`` are the same in all steps, and how many are carried.

    Told by the shapes, as versions of JAX name them differently: rows have an axis more than what a
    step sees of them, and so have its results.
    """
    body = equation.params["jaxpr"]

    def count_whole(outside: Sequence[Any], inside: Sequence[Any]) -> int:
        pairs = zip(outside, inside, strict=True)
        return sum(len(atom.aval.shape) == len(aval.shape) for atom, aval in pairs)

    num_carry = count_whole(equation.outvars, body.out_avals)
    return count_whole(equation.invars, body.in_avals) - num_carry, num_carry


@dataclass(frozen=True)
class Node:
    """One primitive operation between numbered values."""

    primitive: Any
    params: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    frozen: Hashable

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Apply the primitive."""
        if self.primitive.name == "random_gamma" and can_draw(*operands):
            return [draw_gamma(*operands, **self.params)]
        result = self.primitive.bind(*operands, **self.params)
        return list(result) if self.primitive.multiple_results else [result]

    def signature(self) -> Hashable:
        """Return what tells this operation from others, apart from its operands."""
        return self.primitive.name, self.frozen


class Operation(Protocol):
    """What a fragment runs: a node of the graph, or something that stands for many."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of the operands."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """Numbers of the results."""

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Compute the results."""

    def signature(self) -> Hashable:
        """Return what tells this operation from others, apart from its operands."""


@dataclass(frozen=True)
class Fragment:
    """Some operations, and the values that they are run for."""

    nodes: tuple[Operation, ...]
    outputs: tuple[int, ...]

    def run(self, known: Mapping[int, Any]) -> list[Any]:
        """Compute the outputs from the values of inputs and constants."""
        values = dict(known)
        for node in self.nodes:
            results = node.run([values[number] for number in node.inputs])
            values.update(zip(node.outputs, results, strict=True))
        # A result may be a literal, which is a NumPy array.
        return [jnp.asarray(values[number]) for number in self.outputs]

    def signature(self) -> Hashable:
        """Return what tells this computation from others."""
        nodes = tuple((node.signature(), node.inputs, node.outputs) for node in self.nodes)
        return nodes, self.outputs


@dataclass(frozen=True, eq=False)
class Code:
    """A fragment that is compiled once for all that are equal to it, whatever the values."""

    fragment: Fragment

    @cached_property
    def signature(self) -> Hashable:
        """What tells this computation from others."""
        return self.fragment.signature()

    def __eq__(self, other: object) -> bool:
        """Whether both are the same computation."""
        return isinstance(other, Code) and self.signature == other.signature

    def __hash__(self) -> int:
        """Hash of the computation."""
        return hash(self.signature)


UNFUSED = {"xla_disable_hlo_passes": "fusion"}


@functools.partial(jax.jit, static_argnums=0, compiler_options=UNFUSED)
def run_unfused(code: Code, known: Mapping[int, Any]) -> list[Any]:
    """Compute a fragment, each operation rounding by itself, as if they were run one by one.

    Fused into one loop, a product and a sum would be rounded only once.
    """
    return code.fragment.run(known)


def _run_rows(code: Code, known: Mapping[int, Any], inputs: Mapping[int, Any]) -> list[Any]:
    """Compute a fragment for each row of its inputs, one after the other: by the same code."""
    return lax.map(lambda values: code.fragment.run({**known, **values}), dict(inputs))


run_at_each = jax.jit(_run_rows, static_argnums=0)
run_unfused_at_each = jax.jit(_run_rows, static_argnums=0, compiler_options=UNFUSED)
