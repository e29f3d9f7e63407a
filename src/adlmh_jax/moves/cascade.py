"""Sites whose supports hang on each other, moved by one piece of code, whichever of them moves.

When a site moves, a later value that fell out of its new support is redrawn from its prior, in
program order; that may push further values out. Sites that do this to each other share one branch:
the moved one is data. What is computed for a site is the same code for all sites of a *kind*, run
over what they read of the trunk, so that a chain of supports is as much code as one of its links,
and a draw runs only where some chain needs it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.graph import Fragment
from adlmh_jax.moves.trunk import Gathered
from adlmh_jax.types import Array, float_type

VALUE, KEY = 0, 1  # numbers of what is given to the computations of a kind


@dataclass(frozen=True)
class Kind:
    """Sites that are redrawn by the same computations.

    Attributes
    ----------
    inside, draw, prior
        Whether the value is in the support; a prior draw; the log prior.
    lower, upper
        The ends of the support, if it is an interval that depends on other sites.
    gathered
        What they read.
    positions
        Of the sites in program order, among all that are redrawn.
    numbers, reads
        Numbers of the sites' values in the branch, and of the values read together: how many each.
    shape
        Of a value.
    is_moved, may_fall
        Numbers of the truth values, for each site, whether it is the moved one, and whether its
        support depends on the moved one; none if no site is, and if all do.
    """

    inside: Fragment
    draw: Fragment
    prior: Fragment
    lower: Fragment
    upper: Fragment
    gathered: Gathered
    positions: tuple[int, ...]
    numbers: tuple[int, ...]
    reads: tuple[tuple[int, int], ...]
    shape: tuple[int, ...]
    is_moved: int | None
    may_fall: int | None

    def signature(self) -> Hashable:
        """Return what tells these computations from others."""
        fragments = (self.inside, self.draw, self.prior, self.lower, self.upper)
        rest = (self.gathered, self.positions, self.numbers, self.reads, self.shape)
        flags = (self.is_moved, self.may_fall)
        return tuple(fragment.signature() for fragment in fragments), rest, flags

    def wide(self, flags: Array) -> Array:
        """Give flags of sites, or of a site's elements, the axes of values."""
        axes = 1 + len(self.shape) - flags.ndim
        return flags.reshape(*flags.shape, *(1,) * axes)

    def at_all(self, fragment: Fragment, known: Mapping[int, Any], values: Array) -> Array:
        """Compute something of all sites, at given values."""

        def one(value: Array, *operands: Any) -> Array:
            inputs = dict(zip(self.gathered.body_inputs, operands, strict=True))
            return fragment.run({VALUE: value, **inputs})[0]

        axes = [0, *(0 if mapped else None for mapped in self.gathered.is_mapped)]
        operands = [jnp.asarray(known[number]) for number in self.gathered.numbers]
        return jax.vmap(one, axes)(values, *operands)

    def are_narrower(self, new: Mapping[int, Any], old: Mapping[int, Any], values: Array) -> Array:
        """Whether new supports are known to be parts of the old ones."""
        are = self.wide(jnp.full(values.shape[:1], bool(self.lower.outputs or self.upper.outputs)))
        if self.lower.outputs:
            ends = [self.at_all(self.lower, known, values) for known in (new, old)]
            are &= self.wide(ends[0] >= ends[1])
        if self.upper.outputs:
            ends = [self.at_all(self.upper, known, values) for known in (new, old)]
            are &= self.wide(ends[0] <= ends[1])
        return are


class Walked(NamedTuple):
    """How far a cascade is in one chain.

    Attributes
    ----------
    values
        Of the sites of each kind.
    last
        Position of the last site that was redrawn.
    log_ratio
        So far.
    is_done
        Whether nothing is left to redraw, or the ratio is zero whatever follows.
    """

    values: tuple[Array, ...]
    last: Array
    log_ratio: Array
    is_done: Array


@dataclass(frozen=True)
class Cascade:
    """What is redrawn when a site moves, and which sites share the branch.

    Attributes
    ----------
    own
        Number of the moved site's value.
    trunk
        What the sites share: it computes what the kinds read.
    kinds
        The sites that are redrawn.
    movers
        Sites that move, but are never redrawn: the numbers of their values, and of whether each is
        the moved one; none if it is the only one.
    key
        Number of the key of all draws.
    touched_terms, touched_outputs
        Numbers of which of the terms and outputs the moved site touches; none where it is all.
    is_last
        Where sites are drawn in turn: number of whether this is the last of them.
    """

    own: int
    trunk: Fragment
    kinds: tuple[Kind, ...]
    movers: tuple[tuple[int, int | None], ...]
    key: int
    touched_terms: tuple[int | None, ...] = ()
    touched_outputs: tuple[int | None, ...] = ()
    is_last: int | None = None

    def signature(self) -> Hashable:
        """Return what tells this computation from others."""
        touched = (self.touched_terms, self.touched_outputs)
        rest = (self.own, self.movers, self.key, touched, self.is_last)
        kinds = tuple(kind.signature() for kind in self.kinds)
        return self.trunk.signature(), kinds, rest

    @property
    def num_reads(self) -> int:
        """Number of what is read of sites that may be redrawn."""
        return sum(len(kind.reads) for kind in self.kinds)

    def keep_terms(
        self, known: Mapping[int, Any], new: Sequence[Array], old: Sequence[Array]
    ) -> list[Array]:
        """Return new terms where the moved site touches them."""
        return _where_touched(self.touched_terms, known, new, old)

    def keep_outputs(
        self, known: Mapping[int, Any], new: Sequence[Array], old: Sequence[Array]
    ) -> list[Array]:
        """Return new outputs where the moved site touches them."""
        return _where_touched(self.touched_outputs, known, new, old)

    def when_complete(self, known: Mapping[int, Any], compute: Callable[[], Any], old: Any) -> Any:
        """Return what is computed if this is the last site that is drawn, else what there is."""
        is_last = known[self.is_last] if self.is_last is not None else True
        return lax.cond(is_last, compute, lambda: old)

    def spread(self, known: Mapping[int, Any]) -> dict[int, Any]:
        """Return the values of single sites, of those that are read together."""
        return {
            number: row
            for kind in self.kinds
            for number, row in zip(kind.numbers, _rows(kind, known), strict=True)
        }

    def put(self, known: Mapping[int, Any], value: Array) -> dict[int, Any]:
        """Return what is known with a new value of the moved site."""
        new = {**known, self.own: value}
        for number, flag in self.movers:
            new[number] = value if flag is None else jnp.where(known[flag], value, known[number])
        for kind in self.kinds:
            if kind.is_moved is None:
                continue
            values = _values(kind, known)
            is_moved = kind.wide(jnp.asarray(known[kind.is_moved]))
            new |= _placed(kind, jnp.where(is_moved, value.astype(values.dtype), values))
        return new

    def redraw(
        self, new: dict[int, Any], old: Mapping[int, Any], must_finish: bool
    ) -> tuple[dict[int, Any], Array]:
        r"""Redraw from the prior, in program order, what fell out of its support.

        Returns all values and the log ratio p(x\x') / p(x'\x) of eq. 4. The reverse move can lead
        back only if it redraws the same choices: if the new value lies in the old support it would
        be reused, not redrawn, and the ratio is zero. Nothing more is drawn then, unless it must.
        Where the new support is a part of the old one, that is so whatever the new value.
        """
        old_read = self._run_trunk(old)
        first = Walked(
            values=tuple(_values(kind, new) for kind in self.kinds),
            last=jnp.int32(-1),
            log_ratio=jnp.zeros((), float_type()),
            is_done=jnp.zeros((), bool),
        )

        def turn(walked: Walked) -> Walked:
            return self._turn(new, old, old_read, walked, must_finish)

        done = lax.while_loop(lambda walked: ~walked.is_done, turn, first)
        pairs = zip(self.kinds, done.values, strict=True)
        return {n: v for pair in pairs for n, v in _placed(*pair).items()}, done.log_ratio

    def _run_trunk(self, known: Mapping[int, Any]) -> dict[int, Any]:
        made = zip(self.trunk.outputs, self.trunk.run(known), strict=True)
        return {**known, **dict(made)}

    def _turn(
        self,
        new: Mapping[int, Any],
        old: Mapping[int, Any],
        old_read: Mapping[int, Any],
        walked: Walked,
        must_finish: bool,
    ) -> Walked:
        """Redraw the next site that fell out of its support; if there is none, it is done."""
        known = dict(new)
        for kind, array in zip(self.kinds, walked.values, strict=True):
            known |= _placed(kind, array)
        read = self._run_trunk(known)
        fallen = [
            _fallen(kind, read, array, walked.last)
            for kind, array in zip(self.kinds, walked.values, strict=True)
        ]
        end = sum(len(kind.positions) for kind in self.kinds)
        next_of = [
            jnp.min(jnp.where(_any(out), np.array(kind.positions, np.int32), end))
            for kind, out in zip(self.kinds, fallen, strict=True)
        ]
        position = jnp.min(jnp.stack(next_of))
        values, log_ratio = list(walked.values), walked.log_ratio
        has_next = position < end
        for index, kind in enumerate(self.kinds):
            is_next = np.array(kind.positions, np.int32) == position
            narrower = kind.are_narrower(read, old_read, values[index])
            is_lost = jnp.any(_any(kind.wide(fallen[index]) & narrower) & is_next)
            log_ratio = jnp.where(is_lost, -jnp.inf, log_ratio)
            is_needed = has_next & jnp.any(is_next)
            is_needed = is_needed if must_finish else is_needed & ~jnp.isneginf(log_ratio)
            key = known[self.key]

            def draw(carry: tuple, kind: Kind = kind, key: Array = key) -> tuple:
                _, values, log_ratio = carry
                values, ratio = _draw(kind, key, position, read, old_read, values)
                return jnp.zeros((), bool), values, log_ratio + ratio

            carry = (is_needed, values[index], log_ratio)
            _, values[index], log_ratio = lax.while_loop(lambda carry: carry[0], draw, carry)
        is_lost = jnp.zeros((), bool) if must_finish else jnp.isneginf(log_ratio)
        return Walked(tuple(values), position, log_ratio, ~has_next | is_lost)


def _where_touched(
    flags: Sequence[int | None],
    known: Mapping[int, Any],
    new: Sequence[Array],
    old: Sequence[Array],
) -> list[Array]:
    return [
        n if flag is None else jnp.where(known[flag], n, o)
        for flag, n, o in zip(flags, new, old, strict=True)
    ]


def _any(flags: Array) -> Array:
    """Whether any element of each site has a flag."""
    return jnp.any(flags, axis=tuple(range(1, flags.ndim)))


def _rows(kind: Kind, known: Mapping[int, Any]) -> list[Array]:
    """Return the values of the sites of a kind, of which neighbours are read together."""
    return [known[number][row] for number, length in kind.reads for row in range(length)]


def _values(kind: Kind, known: Mapping[int, Any]) -> Array:
    """Return the values of the sites of a kind as one array."""
    arrays = [known[number] for number, _ in kind.reads]
    return arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays)


def _placed(kind: Kind, values: Array) -> dict[int, Array]:
    """Return the values of a kind by number: of single sites, and of those read together."""
    placed = {number: values[row] for row, number in enumerate(kind.numbers)}
    start = 0
    for number, length in kind.reads:
        placed[number] = values[start : start + length]
        start += length
    return placed


def _fallen(kind: Kind, read: Mapping[int, Any], values: Array, last: Array) -> Array:
    """Return which elements of which later sites are out of their support, ``[n, ...]``."""
    out = ~kind.at_all(kind.inside, read, values)
    is_later = np.array(kind.positions, np.int32) > last
    if kind.may_fall is not None:
        is_later &= jnp.asarray(read[kind.may_fall])
    return out & is_later.reshape(-1, *(1,) * (out.ndim - 1))


def _draw(
    kind: Kind,
    key: Array,
    position: Array,
    read: Mapping[int, Any],
    old_read: Mapping[int, Any],
    values: Array,
) -> tuple[Array, Array]:
    """Redraw the elements of one site that fell out; return all values, and the log q ratio."""
    is_here = np.array(kind.positions, np.int32) == position
    row = jnp.argmax(is_here)
    before = values[row]
    now, then = (kind.gathered.of_row(known, row) for known in (read, old_read))
    stays = kind.inside.run({**now, VALUE: before})[0]
    drawn = kind.draw.run({**now, VALUE: before, KEY: jax.random.fold_in(key, position)})[0]
    wide = stays.reshape(*stays.shape, *(1,) * (before.ndim - stays.ndim))
    after = jnp.where(wide, before, drawn)
    log_prior_old = kind.prior.run({**then, VALUE: before})[0]
    log_prior_new = kind.prior.run({**now, VALUE: after})[0]
    would_stay = kind.inside.run({**then, VALUE: after})[0]
    log_q = jnp.where(would_stay, -jnp.inf, log_prior_old - log_prior_new)
    ratio = jnp.sum(jnp.where(stays, 0.0, log_q))
    return jnp.where(kind.wide(is_here), after, values), ratio
