"""Values that depend on some inputs by yes or no alone, such as ``where(year < change, a, b)``.

Such a value need not be computed at each value of those inputs: it is computed for yes and for no,
and which of the two holds at which entry follows from those inputs and from constants alone.
"""

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph.alignment import ALL, align, spread_to_term
from adlmh_jax.graph.graph import Graph
from adlmh_jax.graph.operations import Fragment, Node
from adlmh_jax.types import Array

MAX_SWITCHES = 2  # of one value; it is computed for all combinations of yes and no


@dataclass(frozen=True)
class Switch:
    """An array of truth values.

    Attributes
    ----------
    number, shape
        Of the array.
    axes
        For each of its axes, the axis of the switched value whose entry i depends on its entry i.
    """

    number: int
    shape: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Switched:
    """A value that depends on some inputs through switches alone, each entry through one of each.

    Attributes
    ----------
    switches
        The truth values.
    decide
        What computes them, from those inputs and from constants.
    rest
        What computes the value once they are known.
    """

    switches: tuple[Switch, ...]
    decide: Fragment
    rest: Fragment

    @property
    def settings(self) -> list[tuple[bool, ...]]:
        """All combinations of yes and no."""
        return list(itertools.product((False, True), repeat=len(self.switches)))

    def run(self, known: Mapping[int, Any], setting: tuple[bool, ...]) -> Array:
        """Compute the value as if each switch said the same at all entries."""
        pairs = zip(self.switches, setting, strict=True)
        return self.rest.run({**known, **{s.number: np.full(s.shape, on) for s, on in pairs}})[0]

    def find_settings(self, known: Mapping[int, Any], shape: Sequence[int]) -> list[Array]:
        """Return for each setting at which entries of the value, of a given shape, it holds."""
        spread = [
            spread_to_term(array, switch.axes, shape)
            for array, switch in zip(self.decide.run(known), self.switches, strict=True)
        ]
        return [
            functools.reduce(
                jnp.logical_and, [a == on for a, on in zip(spread, setting, strict=True)]
            )
            for setting in self.settings
        ]


def find_switches(
    fragment: Fragment,
    inputs: Mapping[int, jax.ShapeDtypeStruct],
    deciders: Collection[int],
    constants: Collection[int],
) -> Switched | None:
    """Return how the only output depends on some inputs, if that is through switches alone.

    Parameters
    ----------
    fragment
        The computation.
    inputs
        Shapes and dtypes of its inputs.
    deciders, constants
        Those inputs, and the ones that are constants.
    """
    avals = _find_avals(fragment, inputs)
    others = set(inputs) - set(deciders) - set(constants)
    is_decided = _reached(fragment, deciders) - _reached(fragment, others)
    found = _find_last(fragment, is_decided, avals)
    if not 0 < len(found) <= MAX_SWITCHES or len(avals) <= max(avals):
        return None
    nodes = [node for node in fragment.nodes if isinstance(node, Node)]
    graph = Graph(avals=[avals[n] for n in range(len(avals))], nodes=nodes)
    switches = []
    for number in found:
        shape = avals[number].shape
        axes = align(graph, number, shape)[fragment.outputs[0]]
        if axes is None or ALL in axes:
            return None
        switches.append(Switch(number, shape, axes))
    return Switched(
        switches=tuple(switches),
        decide=_cut(fragment, found),
        rest=_cut(fragment, fragment.outputs, found),
    )


def _find_avals(
    fragment: Fragment, inputs: Mapping[int, jax.ShapeDtypeStruct]
) -> dict[int, jax.ShapeDtypeStruct]:
    """Return shape and dtype of all values of a fragment."""
    numbers = tuple(n for node in fragment.nodes for n in node.outputs)
    made = jax.eval_shape(Fragment(fragment.nodes, numbers).run, dict(inputs))
    return {**inputs, **dict(zip(numbers, made, strict=True))}


def _reached(fragment: Fragment, sources: Collection[int]) -> set[int]:
    """Return all values that depend on some."""
    reached = set(sources)
    for node in fragment.nodes:
        if reached.intersection(node.inputs):
            reached.update(node.outputs)
    return reached


def _find_last(
    fragment: Fragment, is_decided: set[int], avals: Mapping[int, jax.ShapeDtypeStruct]
) -> tuple[int, ...]:
    """Return the last truth values on all ways to the output; none if a way has none."""
    producer = {n: node for node in fragment.nodes for n in node.outputs}
    undecided = [node for node in fragment.nodes if is_decided.isdisjoint(node.outputs)]
    met = [*(n for node in undecided for n in node.inputs), *fragment.outputs]
    waiting = [n for n in met if n in is_decided]
    found: set[int] = set()
    while waiting:
        number = waiting.pop()
        if avals[number].dtype == bool:
            found.add(number)
        elif number in producer:
            waiting.extend(n for n in producer[number].inputs if n in is_decided)
        else:
            return ()
    return tuple(sorted(found))


def _cut(fragment: Fragment, wanted: tuple[int, ...], known: tuple[int, ...] = ()) -> Fragment:
    """Return the part of a fragment that computes some values, others being known."""
    needed, nodes = set(wanted) - set(known), []
    for node in reversed(fragment.nodes):
        if needed.intersection(node.outputs):
            nodes.append(node)
            needed.update(set(node.inputs) - set(known))
    return Fragment(tuple(reversed(nodes)), wanted)


def sum_where(are_set: Sequence[Array], values: Sequence[Array]) -> Array:
    """Sum, for each row, the values where it is true, whatever the others are.

    These are products of matrices. Infinite values would spoil them for all rows: marks that are
    larger than any sum stand for them. The sum is then minus infinity, or NaN if one of its values
    is NaN or plus infinity.

    Parameters
    ----------
    are_set, values
        For each setting the rows, ``[..., n]``, and the values, ``[n]``. They are summed apart:
        where a setting does not depend on what moves, it is summed once.
    """
    largest = jnp.finfo(values[0].dtype).max
    far, farther = largest * 2.0**-48, largest * 2.0**-24
    total = jnp.zeros((), values[0].dtype)
    for is_set, array in zip(are_set, values, strict=True):
        is_hole = jnp.isnan(array) | jnp.isposinf(array)
        marked = jnp.where(is_hole, farther, jnp.clip(array, -far, far))
        total = total + jnp.matmul(is_set.astype(array.dtype), marked, precision="highest")
    total = jnp.where(total < -far / 2, -jnp.inf, total)
    return jnp.where(total > far / 2, jnp.nan, total)
