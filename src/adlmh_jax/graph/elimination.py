"""Sums over discrete variables, and exact draws of them: variables are eliminated one by one.

The variables have finitely many values each; *tables* of log weights say how well they fit
together. To eliminate a variable, all tables that speak of it are added up, and it is summed out of
the result, which is a table of its neighbours. What is left in the end is the log of the sum over
all variables; going back through the variables draws them (for a chain: forward filtering, backward
sampling).

A variable may be an array of independent elements, a *plate*: element i of a table speaks of
element i of all its variables that have elements. Such variables are eliminated before those that
have none.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.types import Array

Shape = tuple[int, ...]
Scope = tuple[int, ...]  # numbers of variables, ascending
Stack = Array | list[Array]  # an array for each variable; stacked where variables are alike
MAX_ADDED = 16  # values whose weights are added up one by one
MIN_CHAIN = 4  # variables; fewer are as quick one by one


class Variable(NamedTuple):
    """A discrete variable: how many values it has, and the shape of its plate."""

    num_values: int
    plate: Shape = ()


class Table(NamedTuple):
    """Alike log weights ``[*values of a scope, number of scopes, *plate]``, one for each scope."""

    scopes: tuple[Scope, ...]
    log_weights: Array


class Elimination(Protocol):
    """A way to sum over variables: `Buckets` or `Chain`."""

    def run(self, tables: Sequence[Table]) -> tuple[list[Array], tuple[Array, ...]]:
        """Return the parts whose sum is the log of the sum, and what `draw` needs."""

    def draw(self, memory: tuple[Array, ...], uniforms: Stack) -> Stack:
        """Draw the number of a value of each variable, from a uniform for each element."""


class Bucket(NamedTuple):
    """The elimination of one variable: its number, and the scope that it is met in."""

    variable: int
    scope: Scope


def plan_elimination(
    variables: Sequence[Variable], scopes: Sequence[Scope], max_size: float = math.inf
) -> tuple["Elimination | None", list[int]]:
    """Find an order of elimination with tables of at most ``max_size`` entries for each element.

    The order is greedy: next is the variable whose table is smallest.

    Returns
    -------
    The elimination and an empty list; or None, and the variables of the smallest table that is
    too large.
    """
    if is_chain(variables, scopes) and variables[0].num_values ** 2 <= max_size:
        return Chain(len(variables), variables[0]), []
    neighbours: dict[int, set[int]] = {v: set() for v in range(len(variables))}
    for scope in scopes:
        for variable in scope:
            neighbours[variable] |= set(scope) - {variable}

    def size(variable: int) -> int:
        return math.prod(variables[v].num_values for v in {variable} | neighbours[variable])

    buckets = []
    while neighbours:
        has_plates = any(variables[v].plate for v in neighbours)
        waiting = [v for v in neighbours if bool(variables[v].plate) == has_plates]
        best = min(waiting, key=lambda v: (size(v), v))
        if size(best) > max_size:
            return None, sorted({best} | neighbours[best])
        others = neighbours.pop(best)
        for other in others:
            neighbours[other] = (neighbours[other] | others) - {best, other}
        buckets.append(Bucket(best, tuple(sorted({best} | others))))
    return Buckets(tuple(variables), tuple(buckets)), []


def is_chain(variables: Sequence[Variable], scopes: Sequence[Scope]) -> bool:
    """Whether variables are alike, and only neighbours in their order share tables."""
    is_alike = len(set(variables)) == 1
    return (
        is_alike
        and len(variables) >= MIN_CHAIN
        and all(len(scope) == 1 or scope[0] + 1 == scope[-1] for scope in scopes)
    )


@dataclass(frozen=True)
class Buckets:
    """Elimination of any variables, one by one."""

    variables: tuple[Variable, ...]
    buckets: tuple[Bucket, ...]

    def run(self, tables: Sequence[Table]) -> tuple[list[Array], tuple[Array, ...]]:
        """Return the parts whose sum is the log of the sum, and what `draw` needs."""
        left = [single for table in tables for single in self._singles(table)]
        parts, memory = [], []
        for variable, scope in self.buckets:
            here = [self._widened(own, table, scope) for own, table in left if variable in own]
            left = [(own, table) for own, table in left if variable not in own]
            shape = [self.variables[v].num_values for v in scope]
            joint = sum(here, start=jnp.zeros((*shape, *self._plate(scope))))
            message = log_sum(joint, scope.index(variable))
            others = tuple(v for v in scope if v != variable)
            memory.append(joint)
            if not others:
                parts.append(message)
                continue
            num_gone = len(self._plate(scope)) - len(self._plate(others))
            if num_gone:  # the plate ends here: its elements are independent given the others
                message = jnp.sum(message, axis=tuple(range(-num_gone, 0)))
            left.append((others, message))
        return parts, tuple(memory)

    def draw(self, memory: tuple[Array, ...], uniforms: Stack) -> Stack:
        """Draw the number of a value of each variable, from a uniform for each element."""
        drawn: dict[int, Array] = {}
        for (variable, scope), joint in reversed(list(zip(self.buckets, memory, strict=True))):
            plate = self._plate(scope)
            for axis, other in reversed(list(enumerate(scope))):
                if other != variable:
                    index = jnp.broadcast_to(_stretched(drawn[other], plate), plate)
                    joint = take_at(joint, index, axis, len(plate))
            drawn[variable] = pick(joint, uniforms[variable])
        return [drawn[variable] for variable in range(len(self.variables))]

    def _plate(self, scope: Scope) -> Shape:
        """Return the plate of a table: that of its variables that have one."""
        return next((self.variables[v].plate for v in scope if self.variables[v].plate), ())

    def _singles(self, table: Table) -> list[tuple[Scope, Array]]:
        """Return the weights of each scope on their own."""
        size = len(table.scopes[0])
        return [
            (scope, lax.index_in_dim(table.log_weights, i, axis=size, keepdims=False))
            for i, scope in enumerate(table.scopes)
        ]

    def _widened(self, own: Scope, table: Array, scope: Scope) -> Array:
        """Give a table the axes of a larger scope."""
        missing = [axis for axis, variable in enumerate(scope) if variable not in own]
        table = jnp.expand_dims(table, missing) if missing else table
        return _stretched(table, self._plate(scope), len(scope))


@dataclass(frozen=True)
class Chain:
    """Elimination of alike variables in which each meets only the next one."""

    length: int
    variable: Variable

    def run(self, tables: Sequence[Table]) -> tuple[list[Array], tuple[Array, ...]]:
        """Filter forwards."""
        num_values, plate = self.variable
        alone = jnp.zeros((self.length, num_values, *plate))
        pairs = jnp.zeros((self.length - 1, num_values, num_values, *plate))
        for scopes, log_weights in tables:
            size = len(scopes[0])
            weights = jnp.moveaxis(log_weights, size, 0)
            weights = _stretched(weights, plate, 1 + size)
            if size == 1:
                alone = _add_rows(alone, weights, [scope[0] for scope in scopes])
            else:
                pairs = _add_rows(pairs, weights, [scope[0] for scope in scopes])

        def forward(filtered: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
            own, pair = inputs
            filtered = log_sum(filtered[:, None] + pair, 0) + own
            return filtered, filtered

        last, filtered = lax.scan(forward, alone[0], (alone[1:], pairs))
        return [log_sum(last, 0)], (jnp.concatenate([alone[:1], filtered]), pairs)

    def draw(self, memory: tuple[Array, ...], uniforms: Stack) -> Stack:
        """Sample backwards."""
        filtered, pairs = memory
        stacked = take(uniforms, range(self.length))
        num_axes = len(self.variable.plate)

        def backward(after: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            filtered, pair, uniform = inputs
            drawn = pick(filtered + take_at(pair, after, 1, num_axes), uniform)
            return drawn, drawn

        last = pick(filtered[-1], stacked[-1])
        inputs = (filtered[:-1], pairs, stacked[:-1])
        _, earlier = lax.scan(backward, last, inputs, reverse=True)
        return jnp.concatenate([earlier, last[None]])


def take(stack: Stack, numbers: Sequence[int]) -> Array:
    """Return the arrays of some variables, stacked."""
    if isinstance(stack, list):
        return jnp.stack([stack[number] for number in numbers])
    first, count = numbers[0], len(numbers)
    if list(numbers) == list(range(first, first + count)):
        return stack[first : first + count]
    return stack[np.array(numbers)]


def log_sum(log_weights: Array, axis: int) -> Array:
    """Return the log of the sum of weights along an axis; minus infinity if there are none.

    Few weights are added one by one: that is one loop over all else, five times as quick as XLA's
    reduction on a CPU.
    """
    if log_weights.shape[axis] <= MAX_ADDED:
        parts = [
            lax.index_in_dim(log_weights, i, axis, keepdims=False)
            for i in range(log_weights.shape[axis])
        ]
        top = functools.reduce(jnp.maximum, parts)
        finite = jnp.where(jnp.isfinite(top), top, 0.0)
        return jnp.log(sum(jnp.exp(part - finite) for part in parts)) + finite
    top = jnp.max(log_weights, axis=axis, keepdims=True)
    finite = jnp.where(jnp.isfinite(top), top, 0.0)
    total = jnp.sum(jnp.exp(log_weights - finite), axis=axis)
    return jnp.log(total) + jnp.squeeze(finite, axis)


def pick(log_weights: Array, uniforms: Array) -> Array:
    """Draw an index with probabilities proportional to ``exp(log_weights)`` along the first axis.

    A uniform of 1 draws the last index that has any weight.
    """
    top = jnp.max(log_weights, axis=0)
    weights = jnp.exp(log_weights - jnp.where(jnp.isfinite(top), top, 0.0))
    if len(weights) <= MAX_ADDED:
        upper = _add_up(weights)
        return _count_below(upper, uniforms * upper[-1])
    # Of many values, first the strip that it is in, and then which of the strip.
    width = math.isqrt(len(weights) - 1) + 1
    padding = [(0, -len(weights) % width), *[(0, 0)] * (weights.ndim - 1)]
    strips = jnp.pad(weights, padding).reshape(-1, width, *weights.shape[1:])
    upper = _add_up(jnp.sum(strips, axis=1))
    place = uniforms * upper[-1]
    strip = _count_below(upper, place)
    before = jnp.max(jnp.where(place > upper[:-1], upper[:-1], 0.0), axis=0)
    is_here = jnp.arange(len(strips)).reshape(-1, *[1] * (weights.ndim)) == strip
    inner = _add_up(jnp.sum(jnp.where(is_here, strips, 0.0), axis=0))
    return strip * width + _count_below(inner, jnp.minimum(place - before, inner[-1]))


def _add_up(weights: Array) -> Array:
    """Return sums of the first weights, which never fall: `jnp.cumsum` is slow on a CPU."""
    sums = [weights[0]]
    for weight in weights[1:]:
        sums.append(sums[-1] + weight)
    return jnp.stack(sums)


def _count_below(upper: Array, place: Array) -> Array:
    """Return in which of the intervals that end at ``upper`` a place lies."""
    return jnp.sum(place > upper[:-1], axis=0, dtype=jnp.int32)


def take_at(array: Array, index: Array, axis: int, num_plate_axes: int) -> Array:
    """Take one entry of an axis, for each element of the plate its own; the plate is last."""
    lead = array.ndim - num_plate_axes
    index = index.reshape((1,) * lead + index.shape)
    return jnp.squeeze(jnp.take_along_axis(array, index, axis=axis), axis)


def _stretched(array: Array, plate: Shape, num_lead: int = 0) -> Array:
    """Give an array axes of size one at the end where it has no plate."""
    missing = num_lead + len(plate) - jnp.ndim(array)
    return array.reshape(array.shape + (1,) * missing) if missing else array


def _add_rows(array: Array, rows: Array, numbers: list[int]) -> Array:
    """Add to some rows; rows in a row without a scatter, which is slow."""
    first, count = numbers[0], len(numbers)
    if numbers == list(range(first, first + count)):
        padding = [(first, array.shape[0] - first - count, 0), *[(0, 0, 0)] * (rows.ndim - 1)]
        return array + lax.pad(rows, jnp.zeros((), rows.dtype), padding)
    return array.at[np.array(numbers)].add(rows)
