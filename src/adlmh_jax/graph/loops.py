"""Loops whose steps do not wait for each other, computed for all steps at once.

A model that NumPyro runs in a `scan` is given all its latent values beforehand: what a step hands
on to the next one is then mostly no function of what it was handed itself. Such a loop is split
into its carried values. Those that a step computes from other things alone are computed for all
steps side by side, in an order in which they can be; those that hang on themselves, such as a
running sum, stay a loop, of these values alone. What depends on what is then visible step by step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from adlmh_jax.graph.operations import INLINED, scan_sizes
from adlmh_jax.types import Array

# Numbers that one operation may make for all steps, unless the loop reads or returns more: beyond
# this, a loop saves memory.
MAX_NUMBERS = 2**18

Mapped = tuple[Any, bool]  # a value, and whether it has an axis in front, one row for each step


def split_scan(equation: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """Return a computation that does what a ``scan`` does, with most of it outside of any loop.

    None if the loop is best left as it is.

    Parameters
    ----------
    equation
        The ``scan``.
    """
    params = equation.params
    body, length = params["jaxpr"], params["length"]
    if body.effects or length == 0:
        return None
    avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in body.in_avals]
    flat = jax.make_jaxpr(lambda *operands: _run_flat(body, operands))(*avals)
    loop = _Loop(flat, *scan_sizes(equation), length, params["reverse"])
    if loop.is_one_recurrence or loop.is_large:
        return None
    num_whole = loop.num_consts + loop.num_carry
    rows = [jax.ShapeDtypeStruct((length, *aval.shape), aval.dtype) for aval in avals[num_whole:]]
    return jax.make_jaxpr(loop.run)(*avals[:num_whole], *rows)


def _run_flat(closed: core.ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
    """Run a computation with all calls inlined, and the loops inside it split."""
    return _run(closed.jaxpr, closed.jaxpr.eqns, [*closed.consts, *operands], closed.jaxpr.outvars)


def _run(
    jaxpr: core.Jaxpr, equations: Sequence[Any], operands: Sequence[Any], wanted: Sequence[Any]
) -> list[Any]:
    """Run some equations of a computation, and return some of its values."""
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], operands, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    for equation in equations:
        values = [read(atom) for atom in equation.invars]
        primitive, params = equation.primitive, equation.params
        inner = params.get(INLINED.get(primitive.name, ""))
        if primitive.name == "scan":
            inner = split_scan(equation)
        if inner is not None:
            closed = inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, ())
            results = _run_flat(closed, values[len(values) - len(closed.jaxpr.invars) :])
        else:
            results = primitive.bind(*values, **params)
            results = results if primitive.multiple_results else [results]
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in wanted]


@dataclass(frozen=True)
class _Loop:
    """A ``scan`` whose body has no calls.

    Attributes
    ----------
    body
        One step: from what is the same in all steps, the carried values, and the step's rows, to
        the carried values and the step's results.
    num_consts, num_carry
        Number of values that are the same in all steps, and of carried ones.
    length, is_reverse
        Number of steps, and whether the last row is the first to be taken.
    """

    body: core.ClosedJaxpr
    num_consts: int
    num_carry: int
    length: int
    is_reverse: bool

    @property
    def carried(self) -> Sequence[Any]:
        """The carried values as a step is given them."""
        start = self.num_consts
        return self.body.jaxpr.invars[start : start + self.num_carry]

    @property
    def handed_on(self) -> Sequence[Any]:
        """The carried values as a step hands them on."""
        return self.body.jaxpr.outvars[: self.num_carry]

    @property
    def results(self) -> Sequence[Any]:
        """What is kept of each step."""
        return self.body.jaxpr.outvars[self.num_carry :]

    @cached_property
    def reached(self) -> dict[Any, int]:
        """Of each variable, the inputs of the body that it depends on, as bits."""
        reached = {variable: 1 << bit for bit, variable in enumerate(self.body.jaxpr.invars)}
        for equation in self.body.jaxpr.eqns:
            mask = 0
            for atom in equation.invars:
                mask |= 0 if isinstance(atom, core.Literal) else reached.get(atom, 0)
            reached.update(dict.fromkeys(equation.outvars, mask))
        return reached

    def needs(self, wanted: Sequence[Any]) -> int:
        """Return the inputs of the body that some of its values depend on, as bits."""
        mask = 0
        for atom in wanted:
            mask |= 0 if isinstance(atom, core.Literal) else self.reached.get(atom, 0)
        return mask

    @cached_property
    def _ancestry(self) -> list[int]:
        """For each carried value, the carried ones that it comes to depend on, as bits."""
        whole = (1 << self.num_carry) - 1
        direct = [self.needs([atom]) >> self.num_consts & whole for atom in self.handed_on]
        ancestry = list(direct)
        for middle in range(self.num_carry):
            for index in range(self.num_carry):
                if ancestry[index] >> middle & 1:
                    ancestry[index] |= ancestry[middle]
        return ancestry

    @cached_property
    def groups(self) -> list[list[int]]:
        """The carried values that depend on each other, in an order in which they can run."""
        ancestry = [mask | 1 << index for index, mask in enumerate(self._ancestry)]
        groups: dict[int, list[int]] = {}
        for index, mask in enumerate(ancestry):
            groups.setdefault(mask, []).append(index)
        return sorted(groups.values(), key=lambda group: ancestry[group[0]].bit_count())

    def is_recurrent(self, index: int) -> bool:
        """Whether a carried value hangs on itself."""
        return bool(self._ancestry[index] >> index & 1)

    @property
    def is_one_recurrence(self) -> bool:
        """Whether there is nothing to be taken out of the loop."""
        is_one = len(self.groups) == 1 and self.is_recurrent(0) and self.counted(0) is None
        kept = set(self.carried)
        has_more = any(isinstance(r, core.Literal) or r not in kept for r in self.results)
        return is_one and not has_more and self.handed_on[0] is not self.carried[0]

    @property
    def is_large(self) -> bool:
        """Whether all steps at once would need far more memory than the loop."""
        jaxpr = self.body.jaxpr
        rows = [*jaxpr.invars[self.num_consts + self.num_carry :], *self.results]
        known = [self.length * math.prod(atom.aval.shape) for atom in rows]
        known += [math.prod(atom.aval.shape) for atom in jaxpr.invars[: self.num_consts]]
        made = [out.aval for equation in jaxpr.eqns for out in equation.outvars]
        made += [atom.aval for atom in self.carried]
        numbers = max((self.length * math.prod(aval.shape) for aval in made), default=0)
        return numbers > max(MAX_NUMBERS, 2 * max(known, default=0))

    def counted(self, index: int) -> Any:
        """Return by how much an integer grows at each step; None if it does not just do that."""
        variable, out = self.carried[index], self.handed_on[index]
        equations = [e for e in self.body.jaxpr.eqns if out in e.outvars]
        if not equations or not jnp.issubdtype(variable.aval.dtype, jnp.integer):
            return None
        (equation,) = equations
        others = [atom for atom in equation.invars if atom is not variable]
        is_sum = equation.primitive.name == "add" and len(others) == 1
        return others[0].val if is_sum and isinstance(others[0], core.Literal) else None

    def run(self, *operands: Any) -> list[Any]:
        """Compute what the loop computes."""
        num_whole = self.num_consts + self.num_carry
        first = operands[self.num_consts : num_whole]
        rows = [self._in_order(row) for row in operands[num_whole:]]
        inputs: list[Mapped] = [(value, False) for value in operands[:num_whole]]
        inputs += [(row, True) for row in rows]
        last = list(first)
        for group in self.groups:
            for index, (states, end) in zip(group, self._carry(group, inputs), strict=True):
                inputs[self.num_consts + index] = states
                last[index] = end
        kept = self._at_all_steps(self.results, inputs)
        return [*last, *map(self._in_order, kept)]

    def _in_order(self, rows: Array) -> Array:
        """Put rows into the order of the steps, and back."""
        return lax.rev(rows, (0,)) if self.is_reverse else rows

    def _carry(self, group: list[int], inputs: list[Mapped]) -> list[tuple[Mapped, Any]]:
        """Return what all steps are given of some carried values, and what the last hands on."""
        firsts = [inputs[self.num_consts + index][0] for index in group]
        index, first = group[0], firsts[0]
        if self.handed_on[index] is self.carried[index]:
            return [((first, False), first)]
        growth = self.counted(index)
        if growth is not None:
            growth = jnp.asarray(growth, first.dtype)
            wide = lax.broadcast_in_dim(first, (self.length, *first.shape), _after(first))
            steps = lax.broadcasted_iota(first.dtype, wide.shape, 0)
            return [((wide + growth * steps, True), first + growth * self.length)]
        if self.is_recurrent(index):
            return self._recur(group, firsts, inputs)
        (made,) = self._at_all_steps([self.handed_on[index]], inputs)
        end = lax.index_in_dim(made, self.length - 1, keepdims=False)
        before = lax.broadcast_in_dim(first, (1, *first.shape), _after(first))
        if self.length > 1:
            handed = lax.slice_in_dim(made, 0, self.length - 1)
            before = lax.concatenate([before, handed], 0)
        return [((before, True), end)]

    def _recur(
        self, group: list[int], firsts: list[Any], inputs: list[Mapped]
    ) -> list[tuple[Mapped, Any]]:
        """Run the loop of some carried values alone."""
        wanted = [self.handed_on[index] for index in group]
        mask, equations = self.needs(wanted), self._equations(wanted)
        own = [self.num_consts + index for index in group]
        row_of = [
            position
            for position, (_, is_mapped) in enumerate(inputs)
            if is_mapped and mask >> position & 1
        ]

        def step(carry: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
            values = [value for value, _ in inputs]
            for position, value in [*zip(own, carry, strict=True), *zip(row_of, rows, strict=True)]:
                values[position] = value
            return _run(self.body.jaxpr, equations, [*self.body.consts, *values], wanted), carry

        last, states = lax.scan(step, firsts, [inputs[p][0] for p in row_of], self.length)
        return [((rows, True), end) for rows, end in zip(states, last, strict=True)]

    def _at_all_steps(self, wanted: Sequence[Any], inputs: list[Mapped]) -> list[Any]:
        """Return values of the body in all steps."""
        mask, equations = self.needs(wanted), self._equations(wanted)
        axes = [
            0 if is_mapped and mask >> position & 1 else None
            for position, (_, is_mapped) in enumerate(inputs)
        ]

        def step(*values: Any) -> list[Any]:
            return _run(self.body.jaxpr, equations, [*self.body.consts, *values], wanted)

        values = [value for value, _ in inputs]
        return jax.vmap(step, axes, axis_size=self.length)(*values) if wanted else []

    def _equations(self, wanted: Sequence[Any]) -> list[Any]:
        """Return the equations of the body that some of its values need, in order."""
        needed = {atom for atom in wanted if not isinstance(atom, core.Literal)}
        found = []
        for equation in reversed(self.body.jaxpr.eqns):
            if not needed.isdisjoint(equation.outvars):
                found.append(equation)
                needed.update(a for a in equation.invars if not isinstance(a, core.Literal))
        return found[::-1]


def _after(array: Array) -> range:
    """Return the axes of an array once another one stands in front of them."""
    return range(1, jnp.ndim(array) + 1)
