"""One move of one chain: what a branch knows, and how it moves."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from adlmh_jax.moves.branch import Branch
from adlmh_jax.moves.collapse import collapse
from adlmh_jax.moves.gibbs import gibbs
from adlmh_jax.moves.metropolis import Accept, accept_by_ratio, metropolis
from adlmh_jax.moves.scope import Before, Block, Moved, Pace, Scope, SingleElement
from adlmh_jax.types import Array


def move_one(
    branch: Branch,
    constants: Mapping[int, Any],
    pace: Pace,
    words: Array,
    before: Before,
    element: Array,
    accept: Accept = accept_by_ratio,
) -> Moved:
    """Move one element of the branch's site, or all of them; others with it."""
    known = bind(branch, constants, pace.scale, words, before.reads)
    scope: Scope = (
        Block(branch, words, pace)
        if branch.variant.is_block
        else SingleElement(branch, words, element, pace)
    )
    if branch.joint:
        return collapse(branch, known, before, scope, words, accept, jnp.minimum(element, 0))
    if branch.variant.candidates:
        return gibbs(branch, known, before, scope)
    return metropolis(branch, known, before, scope, accept)


def bind(
    branch: Branch,
    constants: Mapping[int, Any],
    scale: Array,
    words: Array,
    reads: tuple[Array, ...],
) -> dict[int, Any]:
    """Return the known values of a branch, by number: constants, sites read, random inputs."""
    known = dict(constants)
    known.update({read.number: value for read, value in zip(branch.reads, reads, strict=True)})
    known.update({number: noise.make(words) for number, noise in branch.noise})
    if branch.scale is not None:
        known[branch.scale] = scale
    if branch.cascade:
        known |= branch.cascade.spread(known)
    return known


def is_different(new: Array, old: Array) -> Array:
    """Whether outputs differ; NaN equals NaN, or a NaN output would be rewarded forever."""
    differs = new != old
    if jnp.issubdtype(new.dtype, jnp.inexact):
        differs &= ~(jnp.isnan(new) & jnp.isnan(old))
    return differs
