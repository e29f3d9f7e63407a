"""What one decision of a move covers: a single element, or each element of a block.

Single elements and blocks propose, score and decide alike. They differ in how the touched terms are
reduced to what is decided upon, and in what a decision spreads to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from adlmh_jax.graph import KEY_WORDS, reduce_to_elements, spread_to_term
from adlmh_jax.moves.branch import ACCEPT_WORD, Branch
from adlmh_jax.types import Array


class Before(NamedTuple):
    """A chain before a move: the sites that are read, and what will be touched."""

    reads: tuple[Array, ...]
    log_terms: tuple[Array, ...]
    outputs: tuple[Array, ...]


class Moved(NamedTuple):
    """A chain after a move.

    Attributes
    ----------
    values
        Of the moved site, then of the sites redrawn with it.
    log_terms, outputs
        What was touched.
    is_accepted, is_invalid, log_ratio
        The decision, the density being NaN or +inf, and the logarithm of the ratio of eq. 6:
        scalars, or one for each element of a block.
    """

    values: tuple[Array, ...]
    log_terms: tuple[Array, ...]
    outputs: tuple[Array, ...]
    is_accepted: Array
    is_invalid: Array
    log_ratio: Array


class Pace(NamedTuple):
    """How far proposals go, and how they are judged.

    Attributes
    ----------
    scale
        Of the moved site's elements.
    factor
        Of a walk of several sites: a square root of the covariance of its steps.
    beta
        The inverse temperature: by how much the terms of the data count.
    """

    scale: Array
    factor: Array | None = None
    beta: Array | float = 1.0


class Proposed(NamedTuple):
    """What a chain would become: as `Moved`, with all that is known at the new values."""

    values: Sequence[Array]
    log_terms: Sequence[Array]
    known: dict[int, Any]


@dataclass(frozen=True)
class SingleElement:
    """One element moves, with one decision on all that it touches.

    Attributes
    ----------
    branch, words, element
        The computations, the chain's random words, and which element of the site. Sites that walk
        together are one element.
    pace
        How far proposals go.
    """

    branch: Branch
    words: Array
    element: Array
    pace: Pace

    def put(self, old: Array, new: Array) -> Array:
        """Return the site's old value with the moved element replaced by that of ``new``."""
        site = self.branch.site
        if site.num_components == 1:
            return new.reshape(site.shape)
        is_moved = jnp.arange(site.num_components) == self.element
        is_moved = is_moved.reshape(*site.batch_shape, *(1 for _ in site.event_shape))
        return jnp.where(is_moved, new, old)

    def reduce(self, terms: Sequence[Array | None]) -> Array:
        """Sum all terms that there are."""
        return sum((jnp.sum(term) for term in terms if term is not None), start=jnp.zeros(()))

    def total(self, parts: Sequence[Array]) -> Array:
        """Sum numbers, whatever elements they belong to."""
        return self.reduce(parts)

    def of_moved(self, per_element: Array) -> Array:
        """Return the number that belongs to the moved element."""
        return per_element.reshape(-1)[self.element]

    def accept_words(self) -> Array:
        """Return the random word that decides on acceptance."""
        return self.words[ACCEPT_WORD]

    def value_words(self) -> Array:
        """Return the random word that draws a value."""
        return self.words[self.branch.key_start]

    def try_all(self, score: Callable[[Array], Array], candidates: Array) -> Array:
        """Score candidates side by side: there is one number for each."""
        return jax.vmap(score)(candidates)

    def choose(
        self, is_accepted: Array, new: Sequence[Array], old: Sequence[Array]
    ) -> tuple[Array, ...]:
        """Take all that is new, or nothing."""
        return tuple(jnp.where(is_accepted, n, o) for n, o in zip(new, old, strict=True))

    choose_values = choose_terms = choose

    def settle(self, proposed: Proposed, before: Before, is_accepted: Array) -> tuple:
        """Take all that was proposed, or nothing: values, terms and outputs."""
        branch, old_values = self.branch, [before.reads[index] for index in self.branch.moved]
        made = branch.outputs.run(proposed.known)
        outputs = branch.keep_outputs(proposed.known, made, before.outputs)
        return (
            self.choose(is_accepted, proposed.values, old_values),
            self.choose(is_accepted, proposed.log_terms, before.log_terms),
            self.choose(is_accepted, outputs, before.outputs),
        )


@dataclass(frozen=True)
class Block:
    """All elements move at once; each is decided upon by its own terms.

    Attributes
    ----------
    branch, words
        The computations, and the chain's random words.
    pace
        How far proposals go.
    """

    branch: Branch
    words: Array
    pace: Pace

    def put(self, old: Array, new: Array) -> Array:
        """Return the new value of the whole site."""
        del old
        return new.reshape(self.branch.site.shape)

    def reduce(self, terms: Sequence[Array | None]) -> Array:
        """Sum the terms that there are by the element that they belong to."""
        shape = self.branch.site.batch_shape
        return sum(
            (
                reduce_to_elements(term, axes, shape)
                for term, axes in zip(terms, self.branch.term_axes, strict=True)
                if term is not None
            ),
            start=jnp.zeros(shape),
        )

    def total(self, parts: Sequence[Array]) -> Array:
        """Sum numbers of the same element."""
        return sum(parts, start=jnp.zeros(self.branch.site.batch_shape))

    def of_moved(self, per_element: Array) -> Array:
        """Return the numbers of all elements."""
        return per_element

    def accept_words(self) -> Array:
        """Return a random word for each element's decision."""
        return jax.random.bits(self._key(), self.branch.site.batch_shape, "uint32")

    def value_words(self) -> Array:
        """Return a random word for each element's value."""
        shape = self.branch.site.batch_shape
        return jax.random.bits(jax.random.fold_in(self._key(), 1), shape, "uint32")

    def _key(self) -> Array:
        start = self.branch.key_start
        return jax.random.wrap_key_data(self.words[start : start + KEY_WORDS], impl="threefry2x32")

    def try_all(self, score: Callable[[Array], Array], candidates: Array) -> Array:
        """Score candidates in turn: each is as large as the block."""
        return jax.lax.map(score, candidates)

    def choose_values(
        self, is_accepted: Array, new: Sequence[Array], old: Sequence[Array]
    ) -> tuple[Array, ...]:
        """Take the elements that are accepted."""
        wide = is_accepted.reshape(is_accepted.shape + (1,) * len(self.branch.site.event_shape))
        return tuple(jnp.where(wide, n, o) for n, o in zip(new, old, strict=True))

    def choose_terms(
        self, is_accepted: Array, new: Sequence[Array], old: Sequence[Array]
    ) -> tuple[Array, ...]:
        """Take the terms of the elements that are accepted."""
        return tuple(
            jnp.where(spread_to_term(is_accepted, axes, n.shape), n, o)
            for axes, n, o in zip(self.branch.term_axes, new, old, strict=True)
        )

    def settle(self, proposed: Proposed, before: Before, is_accepted: Array) -> tuple:
        """Take the accepted elements, with their terms, and compute the outputs there."""
        branch = self.branch
        values = self.choose_values(is_accepted, proposed.values, before.reads[:1])
        terms = self.choose_terms(is_accepted, proposed.log_terms, before.log_terms)
        outputs = branch.outputs.run({**proposed.known, branch.reads[0].number: values[0]})
        return values, terms, tuple(outputs)


Scope = SingleElement | Block


def compare(scope: Scope, new: Sequence[Array], old: Sequence[Array]) -> Array:
    """Return log p(x') - log p(x), by what is decided upon; terms of the data count beta times.

    Differences are summed, not terms: sums of many terms would lose digits.
    """
    is_data = scope.branch.is_tempered
    differs = [n - o for n, o in zip(new, old, strict=True)]
    prior = [None if of_data else d for d, of_data in zip(differs, is_data, strict=True)]
    data = [d if of_data else None for d, of_data in zip(differs, is_data, strict=True)]
    if not any(is_data):
        return scope.reduce(prior)
    return scope.reduce(prior) + scope.pace.beta * scope.reduce(data)
