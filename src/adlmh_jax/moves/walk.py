"""Several continuous sites that walk together, on the unconstrained scale."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfinv

from adlmh_jax.graph import KEY_WORDS, MAX_BULK_WORDS, Fragment
from adlmh_jax.model import Site
from adlmh_jax.types import Array, float_type

INSIDE = 1.0 - 2.0**-24  # keeps uniform numbers that are rounded to 1 below it


@dataclass(frozen=True)
class Rider:
    """Counts that go along with a walk: each keeps its distance from its mean, rounded.

    Attributes
    ----------
    site
        The counts.
    number
        Of their values in the branch.
    mean, inside
        Their means given all else, and whether values are in the support.
    """

    site: Site
    number: int
    mean: Fragment
    inside: Fragment

    def follow(self, old: Mapping[int, Any], new: Mapping[int, Any]) -> tuple[Array, Array]:
        """Return new values, and whether they are in the support; if not, they are the old ones.

        Values are shifted by integers that do not depend on them: densities have no Jacobian.
        """
        before, after = (jnp.round(self.mean.run(known)[0]) for known in (old, new))
        values = old[self.number] + (after - before).astype(old[self.number].dtype)
        is_inside = jnp.all(self.inside.run({**new, self.number: values})[0])
        return jnp.where(is_inside, values, old[self.number]), is_inside


@dataclass(frozen=True)
class Walk:
    """How sites walk together: one step of all of their numbers, with learned covariances.

    Attributes
    ----------
    walkers
        The sites that walk.
    numbers
        Of their values in the branch.
    to_free, from_free
        Their values on the unconstrained scale, and the values that belong to inputs there.
    log_jacobians
        Logarithms of the Jacobians at these inputs.
    frees
        Numbers of the inputs.
    riders
        Counts that go along, in the order of the program.
    start
        First of the random words.
    """

    walkers: tuple[Site, ...]
    numbers: tuple[int, ...]
    to_free: Fragment
    from_free: Fragment
    log_jacobians: Fragment
    frees: tuple[int, ...]
    riders: tuple[Rider, ...]
    start: int

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites that move."""
        return (*self.walkers, *(rider.site for rider in self.riders))

    @property
    def dimension(self) -> int:
        """How many numbers move."""
        return sum(int(np.prod(shape)) for shape in self._shapes)

    @property
    def num_words(self) -> int:
        """Random words of a step: one for each number, or those of a key if they are many."""
        return self.dimension if self.dimension <= MAX_BULK_WORDS else KEY_WORDS

    def locate(self, known: Mapping[int, Any]) -> Array:
        """Return where a chain is, ``[dimension]``."""
        return jnp.concatenate([jnp.ravel(free) for free in self.to_free.run(known)])

    def propose(
        self, old: Mapping[int, Any], words: Array, factor: Array
    ) -> tuple[dict[int, Any], Array]:
        """Take a step; return all that is known there, and log q(x | x') - log q(x' | x).

        Parameters
        ----------
        old
            All that is known.
        words
            The chain's random words.
        factor
            A square root of the covariance of the steps.
        """
        free = self.locate(old)
        new_free = free + factor @ self._normals(words).astype(free.dtype)
        inputs = self._bind(old, new_free)
        # The density on the unconstrained scale has the Jacobians as factors.
        after, before = (self.log_jacobians.run(k) for k in (inputs, self._bind(old, free)))
        ratio = sum((a - b for a, b in zip(after, before, strict=True)), start=jnp.zeros(()))
        new = {**old, **dict(zip(self.numbers, self.from_free.run(inputs), strict=True))}
        for rider in self.riders:
            new[rider.number], is_inside = rider.follow(old, new)
            ratio = jnp.where(is_inside, ratio, -jnp.inf)
        return new, ratio

    def signature(self) -> Hashable:
        """Return what tells this walk from others."""
        fragments = (self.to_free, self.from_free, self.log_jacobians)
        kinds = tuple((s.batch_shape, s.event_shape, s.free_shape, s.dtype) for s in self.sites)
        riders = tuple((r.number, r.mean.signature(), r.inside.signature()) for r in self.riders)
        codes = tuple(fragment.signature() for fragment in fragments)
        return (kinds, codes, self.numbers, self.frees, riders, self.start)

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        return [site.free_shape or () for site in self.walkers]

    def _bind(self, known: Mapping[int, Any], free: Array) -> dict[int, Any]:
        """Return what is known with the inputs at a place."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        parts = jnp.split(free, ends[:-1])
        inputs = {
            number: part.reshape(shape)
            for number, part, shape in zip(self.frees, parts, self._shapes, strict=True)
        }
        return {**known, **inputs}

    def _normals(self, words: Array) -> Array:
        """Return standard normal numbers; their distribution is symmetric to the last bit."""
        mine = words[self.start : self.start + self.num_words]
        if self.dimension > MAX_BULK_WORDS:
            key = jax.random.wrap_key_data(mine, impl="threefry2x32")
            mine = jax.random.bits(key, (self.dimension,), "uint32")
        dtype = float_type()
        size = ((mine >> 1).astype(dtype) + dtype.type(0.5)) * dtype.type(2.0**-31 * INSIDE)
        normals = jnp.sqrt(dtype.type(2.0)) * erfinv(size)
        return jnp.where(mine & 1, -normals, normals)
