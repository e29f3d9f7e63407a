"""Terms as functions of the choices that are summed out."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.graph import (
    KEY_WORDS,
    MAX_BULK_WORDS,
    Elimination,
    Fragment,
    Scope,
    Stack,
    Switched,
    Table,
    reduce_to_elements,
    sum_where,
    take,
)
from adlmh_jax.types import Array

MAX_AT_ONCE = 1 << 12  # entries of a table, for one chain, that are computed side by side


@dataclass(frozen=True)
class Source:
    """Where an input of a factor comes from.

    Attributes
    ----------
    number
        Of the value in the branch, or the position of a summed variable in the scope.
    is_summed
        Which of the two.
    is_mapped
        Whether each of the alike terms has a value of its own.
    """

    number: int
    is_summed: bool = False
    is_mapped: bool = False


@dataclass(frozen=True)
class Factor:
    """Alike terms that depend on summed variables.

    Attributes
    ----------
    body, body_inputs, sources
        The computation of one term, the numbers of its inputs, and where they come from.
    scopes
        The summed variables of each of the terms.
    shape
        Of one term.
    plate, axes
        The plate of its variables, and which axes of the term carry it.
    is_moved
        Whether it depends on what is moved while others are summed out.
    is_tempered
        Whether its terms are of the data, not of the prior.
    switched
        How the terms depend on the summed variables, if that is by yes or no alone.
    """

    body: Fragment
    body_inputs: tuple[int, ...]
    sources: tuple[Source, ...]
    scopes: tuple[Scope, ...]
    shape: tuple[int, ...]
    plate: tuple[int, ...]
    axes: tuple[int, ...]
    is_moved: bool
    is_tempered: bool
    switched: Switched | None = None

    def run(self, known: Mapping[int, Any], values: Sequence[Array], is_own: Any = True) -> Array:
        """Compute the terms ``[number, *shape]`` at the values of the summed variables.

        Values are those of each position in the scope: ``[number, *plate]``, or one for all terms
        if ``is_own`` says so of its position.
        """
        return self._map(lambda inputs: self.body.run(inputs)[0], known, values, is_own)

    def _map(
        self,
        compute: Callable[[dict[int, Array]], Any],
        known: Mapping[int, Any],
        values: Sequence[Array],
        is_own: Any,
    ) -> Any:
        """Compute something of the inputs of each term."""
        is_own = [is_own] * len(values) if isinstance(is_own, bool) else is_own
        operands, axes = [], []
        for source in self.sources:
            is_mapped = is_own[source.number] if source.is_summed else source.is_mapped
            table = values if source.is_summed else known
            operands.append(jnp.asarray(table[source.number]))
            axes.append(0 if is_mapped else None)

        def one(*operands: Array) -> Any:
            return compute(dict(zip(self.body_inputs, operands, strict=True)))

        return jax.vmap(one, axes, axis_size=len(self.scopes))(*operands)

    def tabulate(
        self, known: Mapping[int, Any], candidates: Sequence["Candidates"], old: Array
    ) -> Table:
        """Compute the terms at all values of their variables, as differences to the old terms."""
        by_position = [
            join_candidates([candidates[scope[position]] for scope in self.scopes])
            for position in range(len(self.scopes[0]))
        ]
        is_own = [c.is_own for c in by_position]
        first, *others = (c.values for c in by_position)
        if self.switched:
            return self._tabulate_switched(self.switched, known, [first, *others], old)

        def at(*values: Array) -> Array:
            terms = self.run(known, values, is_own) - old
            reduce = lambda term: reduce_to_elements(term, self.axes, self.plate)  # noqa: E731
            return jax.vmap(reduce)(terms)

        size = math.prod(len(c.values) for c in by_position) * len(self.scopes)
        if size * math.prod(self.shape) <= MAX_AT_ONCE:
            table = at_all(at, len(by_position))(first, *others)
        else:
            rest = at_all(at, len(by_position), num_fixed=1)
            table = lax.map(lambda value: rest(value, *others), first)
        return Table(self.scopes, table)

    def _tabulate_switched(
        self, switched: Switched, known: Mapping[int, Any], values: Sequence[Array], old: Array
    ) -> Table:
        """Compute the terms for yes and for no, and add up which of them each value asks for."""
        anything = [candidates[0] for candidates in values]  # the terms are not computed from it
        terms = [
            self._map(lambda inputs: switched.run(inputs, setting), known, anything, False) - old  # noqa: B023
            for setting in switched.settings
        ]

        def find_settings(inputs: dict[int, Array]) -> list[Array]:
            return switched.find_settings(inputs, self.shape)

        def at(*values: Array) -> list[Array]:
            return [array.reshape(-1) for array in self._map(find_settings, known, values, False)]

        are_set = at_all(at, len(values))(*values)
        table = sum_where(are_set, [term.reshape(-1) for term in terms])
        return Table(self.scopes[:1], table[..., None])

    def signature(self) -> Hashable:
        """Return what tells this computation from others."""
        return (
            self.body.signature(),
            self.body_inputs,
            self.sources,
            self.scopes,
            self.shape,
            self.plate,
            self.axes,
            self.is_moved,
            self.is_tempered,
            self.switched is None,
        )


def at_all(function: Callable[..., Any], num_arguments: int, num_fixed: int = 0) -> Callable:
    """Return a function at all combinations of its arguments' rows: an axis for each of them."""
    for position in reversed(range(num_fixed, num_arguments)):
        axes = [0 if i == position else None for i in range(num_arguments)]
        function = jax.vmap(function, axes)
    return function


@dataclass(frozen=True)
class Candidates:
    """Values of a variable: ``[V, *shape]``, or ``[V, number, *shape]`` if alike terms have own."""

    values: Array
    is_own: bool = False


def join_candidates(candidates: Sequence[Candidates]) -> Candidates:
    """Return the values of variables that alike terms have at one place: one list, if it is one."""
    first = candidates[0]
    if not first.is_own:
        return first
    return Candidates(jnp.stack([c.values for c in candidates], axis=1), True)


@dataclass(frozen=True)
class Summed:
    """A site that is summed out.

    Attributes
    ----------
    number
        Of its value in the branch.
    read, place
        Which read holds its value, and which item of it.
    shape, dtype
        Of its value.
    candidates
        Its values; empty if it has a window.
    window
        Number of consecutive integers among which it is drawn; 0 if it has a list of values.
    inside
        For a window: whether values are in the support.
    """

    number: int
    read: int
    place: int
    shape: tuple[int, ...]
    dtype: str
    candidates: tuple[float, ...]
    window: int
    inside: Fragment | None

    @property
    def size(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)

    @property
    def plate(self) -> tuple[int, ...]:
        """Shape of its elements, if it has several."""
        return self.shape if self.size > 1 else ()

    def is_like(self, other: "Summed") -> bool:
        """Whether both have the same list of values."""
        is_same = self.shape == other.shape and self.dtype == other.dtype
        return is_same and self.candidates == other.candidates != ()

    def signature(self) -> Hashable:
        """Return what tells this site's part from others."""
        inside = self.inside.signature() if self.inside else None
        return (
            self.number,
            self.read,
            self.place,
            self.shape,
            self.dtype,
            self.candidates,
            self.window,
            inside,
        )


@dataclass(frozen=True)
class Joint:
    """How some sites are summed out of a move.

    Attributes
    ----------
    has_mover
        Whether another site moves; if not, the summed sites alone are drawn.
    variables
        The sites that are summed out.
    factors
        The terms that depend on them.
    elimination
        How the sum is done.
    runs
        Reads that hold several variables: number of the value, and the index of the read.
    moved
        Which of the reads hold them.
    draw_start
        The first random word of the draws.
    """

    has_mover: bool
    variables: tuple[Summed, ...]
    factors: tuple[Factor, ...]
    elimination: Elimination
    runs: tuple[tuple[int, int], ...]
    moved: tuple[int, ...]
    draw_start: int

    @property
    def run_sizes(self) -> tuple[int, ...]:
        """Number of components in each of the runs."""
        return tuple(sum(v.size for v in self.variables if v.read == r) for _, r in self.runs)

    @property
    def num_uniforms(self) -> int:
        """Number of draws: one for each element, and one for each element's window."""
        return sum(v.size * (2 if v.window else 1) for v in self.variables)

    @property
    def num_words(self) -> int:
        """Random words that the draws take: one each, or those of a key if they are many."""
        return self.num_uniforms if self.num_uniforms <= MAX_BULK_WORDS else KEY_WORDS

    @property
    def is_alike(self) -> bool:
        """Whether all variables have the same list of values."""
        return all(variable.is_like(self.variables[0]) for variable in self.variables)

    def signature(self) -> Hashable:
        """Return what tells this way of summing from others."""
        return (
            self.has_mover,
            tuple(variable.signature() for variable in self.variables),
            tuple(factor.signature() for factor in self.factors),
            self.elimination,
            self.runs,
            self.moved,
            self.draw_start,
        )


def values_in_scopes(factor: Factor, values: Stack) -> list[Array]:
    """Return the values ``[number, ...]`` at each position of a factor's scopes."""
    positions = range(len(factor.scopes[0]))
    return [take(values, [scope[position] for scope in factor.scopes]) for position in positions]


def static_candidates(values: Sequence[float], shape: tuple[int, ...], dtype: str) -> Candidates:
    """Return a list of values that is the same for all elements."""
    column = np.asarray(values, dtype).reshape(-1, *[1] * len(shape))
    return Candidates(jnp.asarray(np.broadcast_to(column, (len(values), *shape))))
