"""Moves with other choices summed out: as good as if the model had been marginalised by hand.

A site A is moved together with discrete sites B that hang on it. With s(a, b) the sum of all terms
that either touches, and Z(a) the sum of exp s(a, b) over all b, a proposed a' is accepted with the
probability min(1, q(a | a') Z(a') / (q(a' | a) Z(a))), and b is drawn anew from exp s(a, b) / Z(a)
at the value of A that is then in place. Where there is no A, only b is drawn.

Integers without a bound have a *window*: as many consecutive integers as it is long, among which
the present value has a place drawn uniformly. Given the window the support is finite. Value and
window together have the density pi(value) / length wherever they fit, so that drawing the window
anew in each step, and then the value among its integers, are two Gibbs steps.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.graph import Stack, Table, map_last, take
from adlmh_jax.moves.branch import Branch
from adlmh_jax.moves.factors import (
    Candidates,
    Factor,
    Joint,
    Summed,
    static_candidates,
    values_in_scopes,
)
from adlmh_jax.moves.metropolis import Accept, log_q_ratio, propose, to_uniform
from adlmh_jax.moves.scope import Before, Moved, Scope, compare
from adlmh_jax.types import Array

Pair = tuple[Array, Array]  # at the old and at the new value of the moved site


class Decided(NamedTuple):
    """A move before the summed sites are drawn.

    Attributes
    ----------
    known
        All values, with that of the moved site in place.
    values, log_terms
        Of the moved site, if there is one: its value, and its terms that no summed site touches.
    memory
        What the draw of the summed sites needs.
    is_accepted, is_invalid, log_ratio
        As in `Moved`.
    """

    known: dict[int, Any]
    values: Sequence[Array]
    log_terms: Sequence[Array]
    memory: tuple[Array, ...]
    is_accepted: Array
    is_invalid: Array
    log_ratio: Array


class Tables(NamedTuple):
    """What tabulates the terms of the summed sites: their candidates, and their present terms.

    Terms of the data count beta times.
    """

    joint: Joint
    candidates: Sequence["Tried"]
    log_terms: Sequence[Array]
    beta: Array | float
    zero: Array

    def make(self, known: Mapping[int, Any], only_moved: bool = False) -> list[Table]:
        """Return tables at known values of all else; if asked, only those that it changes."""
        values = [tried.values for tried in self.candidates]
        made = [
            self._temper(factor, factor.tabulate(known, values, terms))
            for factor, terms in zip(self.joint.factors, self.log_terms, strict=True)
            if factor.is_moved or not only_moved
        ]
        computed = _compute_once([table.log_weights for table in made], self.zero)
        return [Table(table.scopes, weights) for table, weights in zip(made, computed, strict=True)]

    def _temper(self, factor: Factor, table: Table) -> Table:
        weights = table.log_weights
        return table._replace(log_weights=self.beta * weights) if factor.is_tempered else table

    def complete(self, tables: Sequence[Table]) -> list[Table]:
        """Add for each window which of its integers are in the support."""
        inside = [
            Table(((number,),), jnp.expand_dims(jnp.where(tried.supported, 0.0, -jnp.inf), 1))
            for number, tried in enumerate(self.candidates)
            if tried.supported is not None
        ]
        return [*tables, *inside]


def collapse(
    branch: Branch,
    old: dict[int, Any],
    before: Before,
    scope: Scope,
    words: Array,
    accept: Accept,
    zero: Array,
) -> Moved:
    """Move a site with others summed out, and draw those anew."""
    joint = _joint(branch)
    num_plain = len(branch.score.outputs)
    plain_terms, factor_terms = before.log_terms[:num_plain], before.log_terms[num_plain:]
    old = {**old, **_present(joint, before)}
    places, uniforms = _split_words(joint, draw_words(joint, words))
    candidates = [
        _candidates(variable, old, place)
        for variable, place in zip(joint.variables, places, strict=True)
    ]
    tables = Tables(joint, candidates, factor_terms, scope.pace.beta, zero)
    if joint.has_mover:
        decided = _move(branch, old, scope, tables, plain_terms, accept, zero)
    else:
        decided = _stay(old, tables)
    drawn = joint.elimination.draw(decided.memory, uniforms)
    summed = _values_at(joint, candidates, drawn)
    known = decided.known | _numbered(joint, summed)
    terms = [
        factor.run(known, values_in_scopes(factor, summed)).reshape(terms.shape)
        for factor, terms in zip(joint.factors, factor_terms, strict=True)
    ]
    return Moved(
        values=(*decided.values, *(known[number] for number, _ in joint.runs)),
        log_terms=(*decided.log_terms, *terms),
        outputs=tuple(branch.outputs.run(known)),
        is_accepted=decided.is_accepted,
        is_invalid=decided.is_invalid,
        log_ratio=decided.log_ratio,
    )


def _move(
    branch: Branch,
    old: dict[int, Any],
    scope: Scope,
    tables: Tables,
    plain_terms: Sequence[Array],
    accept: Accept,
    zero: Array,
) -> Decided:
    """Propose new values of what moves, and accept or reject them."""
    _, *made = propose(branch, old, scope)
    proposed, given_ratio = _compute_once(made, zero)
    own = [read.number for read in branch.reads[: len(proposed)]]
    new = {**old, **dict(zip(own, proposed, strict=True))}
    log_terms = branch.score.run(new)
    log_p_ratio = compare(scope, log_terms, plain_terms)
    log_q = log_q_ratio(branch, given_ratio, old, new, plain_terms, log_terms)
    before, after = tables.make(old), tables.make(new, only_moved=True)
    log_z, memories = _sum_both(tables, _cleaned(before), _cleaned(after))
    log_z_ratio = scope.total([part[1] - part[0] for part in log_z])
    log_ratio = log_p_ratio + scope.of_moved(log_q) + log_z_ratio
    is_invalid = jnp.isnan(log_ratio) | jnp.isposinf(log_p_ratio)
    log_ratio = jnp.where(is_invalid, -jnp.inf, log_ratio)
    is_accepted = _compute_once(accept(scope, log_ratio, log_terms, plain_terms), zero)
    values = scope.choose_values(is_accepted, proposed, [old[number] for number in own])
    return Decided(
        known={**old, **dict(zip(own, values, strict=True))},
        values=values,
        log_terms=scope.choose_terms(is_accepted, log_terms, plain_terms),
        memory=_choose_memory(is_accepted, memories),
        is_accepted=is_accepted,
        is_invalid=is_invalid | _has_holes([*before, *after]),
        log_ratio=log_ratio,
    )


def _compute_once(values: Any, zero: Array) -> Any:
    """Return values as they are; ``zero`` is 0, but XLA does not know.

    XLA fuses what is computed for each chain with what uses it for each candidate, and computes it
    anew for each of them. It does not see through a loop.
    """

    def never(_: Array, values: Any) -> Any:
        return jax.tree.map(lambda x: ~x if x.dtype == bool else -x, values)

    return lax.fori_loop(0, zero, never, values)


def _stay(old: dict[int, Any], tables: Tables) -> Decided:
    """Leave all but the summed sites as it is."""
    made = tables.make(old)
    _, memory = tables.joint.elimination.run(tables.complete(_cleaned(made)))
    return Decided(
        known=old,
        values=(),
        log_terms=(),
        memory=memory,
        is_accepted=jnp.ones((), bool),
        is_invalid=_has_holes(made),
        log_ratio=jnp.full((), jnp.inf),
    )


def _joint(branch: Branch) -> Joint:
    if branch.joint is None:
        raise TypeError("The branch sums nothing out.")
    return branch.joint


def _sum_both(
    tables: Tables, before: Sequence[Table], after: Sequence[Table]
) -> tuple[list[Pair], tuple[Pair, ...]]:
    """Sum at the old and at the new value of the moved site, both at once."""
    joint, anew = tables.joint, iter(after)
    is_moved = [factor.is_moved for factor in joint.factors]
    both = [
        jnp.stack([table.log_weights, next(anew).log_weights], axis=-1)
        for table, m in zip(before, is_moved, strict=True)
        if m
    ]

    def run(both: Sequence[Array]) -> tuple:
        weights = iter(both)
        made = [
            table._replace(log_weights=next(weights)) if m else table
            for table, m in zip(before, is_moved, strict=True)
        ]
        return joint.elimination.run(tables.complete(made))

    parts, memory = map_last(run)(both)
    return [_pair(part) for part in parts], tuple(_pair(array) for array in memory)


def _pair(array: Array) -> Pair:
    return array[..., 0], array[..., 1]


def _choose_memory(is_accepted: Array, memories: tuple[Pair, ...]) -> tuple[Array, ...]:
    """Return what the draw needs at the value that the moved site has now."""
    return tuple(jnp.where(is_accepted, memory[1], memory[0]) for memory in memories)


def _cleaned(tables: Sequence[Table]) -> list[Table]:
    """Give no weight to values where a density is NaN or infinite: no chain would come back."""
    return [
        table._replace(
            log_weights=jnp.where(_is_hole(table.log_weights), -jnp.inf, table.log_weights)
        )
        for table in tables
    ]


def _has_holes(tables: Sequence[Table]) -> Array:
    return jnp.any(jnp.stack([jnp.any(_is_hole(table.log_weights)) for table in tables]))


def _is_hole(log_weights: Array) -> Array:
    return jnp.isnan(log_weights) | jnp.isposinf(log_weights)


def _present(joint: Joint, before: Before) -> dict[int, Array]:
    """Return the present values of the summed sites and of their runs, by number."""
    values = {number: before.reads[read] for number, read in joint.runs}
    for variable in joint.variables:
        values[variable.number] = before.reads[variable.read][variable.place]
    return values


def draw_words(joint: Joint, words: Array) -> Array:
    """Return the random words of the draws of windows and values."""
    mine = words[joint.draw_start : joint.draw_start + joint.num_words]
    if joint.num_words == joint.num_uniforms:
        return mine
    key = jax.random.wrap_key_data(mine, impl="threefry2x32")
    return jax.random.bits(key, (joint.num_uniforms,), "uint32")


def _split_words(joint: Joint, words: Array) -> tuple[list[Array | None], Stack]:
    """Return for each variable its place in its window, if it has one, and the uniforms."""
    variables = joint.variables
    ends = list(itertools.accumulate((v.size for v in variables), initial=0))
    flat = to_uniform(words[: ends[-1]])
    uniforms: Stack = [
        flat[start : start + v.size].reshape(v.plate)
        for v, start in zip(variables, ends[:-1], strict=True)
    ]
    if joint.is_alike:
        uniforms = flat.reshape(len(variables), *variables[0].plate)
    places: list[Array | None] = []
    start = ends[-1]
    for variable in variables:
        if not variable.window:
            places.append(None)
            continue
        shift = 32 - (variable.window.bit_length() - 1)  # a window's length is a power of two
        mine = words[start : start + variable.size]
        place = jax.lax.shift_right_logical(mine, jnp.uint32(shift))
        places.append(place.astype(variable.dtype).reshape(variable.shape))
        start += variable.size
    return places, uniforms


class Tried(NamedTuple):
    """The values of a variable that are tried, and which of them are in its support."""

    values: Candidates
    supported: Array | None


def _candidates(variable: Summed, old: Mapping[int, Any], place: Array | None) -> Tried:
    """Return the values among which a variable is drawn."""
    if not variable.window or variable.inside is None or place is None:
        values = static_candidates(variable.candidates, variable.shape, variable.dtype)
        return Tried(values, None)
    present = old[variable.number]
    steps = jnp.arange(variable.window, dtype=variable.dtype)
    tried = (present - place)[None] + steps.reshape(-1, *[1] * len(variable.shape))

    def is_inside(value: Array) -> Array:
        return variable.inside.run({**old, variable.number: value})[0]  # type: ignore[union-attr]

    inside = jax.vmap(is_inside)(tried)
    # No density is asked for outside the support.
    tried = jnp.where(inside, tried, present)
    return Tried(Candidates(tried, True), inside.reshape(variable.window, *variable.plate))


def _values_at(joint: Joint, candidates: Sequence[Tried], drawn: Stack) -> Stack:
    """Return the drawn values of the variables."""
    if joint.is_alike:
        first, index = joint.variables[0], take(drawn, range(len(joint.variables)))
        values = np.asarray(first.candidates, first.dtype)
        if np.array_equal(values, np.arange(len(values))):  # no table to look it up in
            chosen = index.astype(first.dtype)
        else:
            chosen = jnp.asarray(values)[index]
        return chosen.reshape(-1, *first.shape)
    return [
        jnp.take_along_axis(tried.values.values, drawn[i].reshape(1, *variable.shape), axis=0)[0]
        for i, (variable, tried) in enumerate(zip(joint.variables, candidates, strict=True))
    ]


def _numbered(joint: Joint, summed: Stack) -> dict[int, Array]:
    """Return the values of variables and of runs of them, by number."""
    values = {variable.number: summed[i] for i, variable in enumerate(joint.variables)}
    for number, read in joint.runs:
        members = [i for i, variable in enumerate(joint.variables) if variable.read == read]
        values[number] = take(summed, members)
    return values
