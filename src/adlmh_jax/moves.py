"""One proposal for one chain: a new value of a component, what it touches, and its ratio."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from adlmh_jax.program.branches import Branch
from adlmh_jax.types import Array


class Proposed(NamedTuple):
    """A proposal for one chain: values of the moved sites, terms, outputs, and the ratio."""

    values: tuple[Array, ...]
    log_terms: tuple[Array, ...]
    outputs: tuple[Array, ...]
    log_ratio: Array
    is_invalid: Array


def propose(
    branch: Branch,
    constants: Mapping[int, Any],
    words: Array,
    reads: tuple[Array, ...],
    old_terms: tuple[Array, ...],
    element: Array,
) -> Proposed:
    """Propose a value of one element of the branch's site in one chain, and score it."""
    known = bind(branch, constants, words, reads)
    old = dict(known)
    own = branch.reads[0].number

    new_value, *given_ratio = branch.propose.run(known)
    known[own] = _put_element(branch, reads[0], new_value, element)
    redrawn, redraw_ratio = _redraw(branch, known, old)

    scores = branch.score.run(known)
    log_terms, outputs = scores[: branch.num_terms], scores[branch.num_terms :]
    log_p_ratio = sum(
        (jnp.sum(new - old_term) for new, old_term in zip(log_terms, old_terms, strict=True)),
        start=jnp.zeros((), log_terms[0].dtype),
    )
    if given_ratio:
        log_q = given_ratio[0]
    else:
        # A prior draw: q(x | x') / q(x' | x) is the ratio of the prior densities, without NumPyro's
        # scale and mask; where the site has neither, they are its own terms.
        log_q = _prior_ratio(branch, old, known, old_terms, log_terms)
    log_q_ratio = log_q.reshape(-1)[element] + redraw_ratio
    log_ratio = log_p_ratio + log_q_ratio
    is_invalid = jnp.isnan(log_ratio) | jnp.isposinf(log_p_ratio)
    return Proposed(
        (known[own], *redrawn),
        tuple(log_terms),
        tuple(outputs),
        jnp.where(is_invalid, -jnp.inf, log_ratio),
        is_invalid,
    )


def bind(
    branch: Branch, constants: Mapping[int, Any], words: Array, reads: tuple[Array, ...]
) -> dict[int, Any]:
    """Return the known values of a branch, by number: constants, sites read, random inputs."""
    known = dict(constants)
    known.update({read.number: value for read, value in zip(branch.reads, reads, strict=True)})
    known.update({number: noise.make(words) for number, noise in branch.noise})
    return known


def _prior_ratio(
    branch: Branch, old: Mapping, new: Mapping, old_terms: tuple, new_terms: list[Array]
) -> Array:
    """Return log prior(old) - log prior(new) for every element of the moved site."""
    if branch.prior is None:
        return old_terms[branch.own_term] - new_terms[branch.own_term]
    return branch.prior.run(old)[0] - branch.prior.run(new)[0]


def _put_element(branch: Branch, old: Array, new: Array, element: Array) -> Array:
    """Return the site's old value with one element replaced by that of ``new``."""
    site = branch.site
    if site.num_components == 1:
        return new.reshape(site.shape)
    is_moved = jnp.arange(site.num_components) == element
    is_moved = is_moved.reshape(*site.batch_shape, *(1 for _ in site.event_shape))
    return jnp.where(is_moved, new, old)


def _redraw(branch: Branch, new: dict, old: Mapping) -> tuple[list[Array], Array]:
    r"""Redraw from the prior, in program order, what fell out of its support.

    Returns the values and the log ratio p(x\x') / p(x'\x) of eq. 4. The reverse move can lead
    back only if it redraws the same choices: if the new value lies in the old support it would be
    reused, not redrawn, and the ratio is zero.
    """
    values, ratio = [], jnp.zeros(())
    for redraw in branch.redraws:
        number = branch.reads[redraw.read].number
        old_value = old[number]
        stays = redraw.inside.run(new)[0]
        wide = stays.reshape(stays.shape + (1,) * (old_value.ndim - stays.ndim))
        new[number] = jnp.where(wide, old_value, redraw.draw.run(new)[0])
        log_prior_old, log_prior_new = redraw.prior.run(old)[0], redraw.prior.run(new)[0]
        would_stay = redraw.inside.run({**old, number: new[number]})[0]
        log_q = jnp.where(would_stay, -jnp.inf, log_prior_old - log_prior_new)
        ratio = ratio + jnp.sum(jnp.where(stays, 0.0, log_q))
        values.append(new[number])
    return values, ratio


def log_uniform(words: Array) -> Array:
    """Return the logarithm of a uniform number in (0, 1] made of 32 random bits."""
    return jnp.log((words.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32))


def is_different(new: Array, old: Array) -> Array:
    """Whether outputs differ; NaN equals NaN, or a NaN output would be rewarded forever."""
    differs = new != old
    if jnp.issubdtype(new.dtype, jnp.inexact):
        differs &= ~(jnp.isnan(new) & jnp.isnan(old))
    return differs
