"""One move of one chain: a new value, what it touches, and whether it is taken."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from adlmh_jax.graph.alignment import reduce_to_elements, spread_to_term
from adlmh_jax.moves.branch import ACCEPT_WORD, Branch
from adlmh_jax.graph.randomness import KEY_WORDS
from adlmh_jax.types import Array, Key


class Moved(NamedTuple):
    """A chain after a move.

    Attributes
    ----------
    values
        Of the moved site, then of the sites redrawn with it.
    log_terms, outputs
        What was touched.
    is_accepted, is_invalid, log_ratio
        The decision: scalars, or one for each element of a block.
    """

    values: tuple[Array, ...]
    log_terms: tuple[Array, ...]
    outputs: tuple[Array, ...]
    is_accepted: Array
    is_invalid: Array
    log_ratio: Array


class Before(NamedTuple):
    """A chain before a move: the sites that are read, and what will be touched."""

    reads: tuple[Array, ...]
    log_terms: tuple[Array, ...]
    outputs: tuple[Array, ...]


def move_one(
    branch: Branch,
    constants: Mapping[int, Any],
    scale: Array,
    words: Array,
    before: Before,
    element: Array,
    is_mending: bool = False,
) -> Moved:
    """Move one element of the branch's site, or all of them if the branch is a block.

    Mending accepts a proposal unless it makes more terms impossible, whatever their densities.
    """
    known = bind(branch, constants, scale, words, before.reads)
    if branch.way.candidates:
        if branch.way.is_block:
            return _gibbs_block(branch, known, words, before)
        return _gibbs(branch, known, words, before, element)
    if branch.way.is_block:
        return _metropolis_block(branch, known, words, before, is_mending)
    return _metropolis(branch, known, words, before, element, is_mending)


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
    return known


def _metropolis(
    branch: Branch,
    old: dict[int, Any],
    words: Array,
    before: Before,
    element: Array,
    is_mending: bool,
) -> Moved:
    """Propose a value of one element, score it, and accept or reject it."""
    own = branch.reads[0].number
    new = dict(old)
    new_value, *given_ratio = branch.propose.run(old)
    new[own] = _put_element(branch, old[own], new_value, element)
    redrawn, redraw_ratio = _redraw(branch, new, old)

    log_terms = branch.score.run(new)
    log_p_ratio = sum(
        (jnp.sum(term - old) for term, old in zip(log_terms, before.log_terms, strict=True)),
        start=jnp.zeros(()),
    )
    log_q = _log_q_ratio(branch, given_ratio, old, new, before.log_terms, log_terms)
    log_ratio = log_p_ratio + log_q.reshape(-1)[element] + redraw_ratio
    is_invalid = jnp.isnan(log_ratio) | jnp.isposinf(log_p_ratio)
    log_ratio = jnp.where(is_invalid, -jnp.inf, log_ratio)
    # Eq. 6: alpha'_k / alpha_k = 1, since weights change only after the decision and N is fixed.
    is_accepted = log_uniform(words[ACCEPT_WORD]) < log_ratio
    if is_mending:
        changes = map(jnp.sum, _newly_impossible(log_terms, before.log_terms))
        is_accepted = sum(changes, start=jnp.zeros(())) <= 0

    def choose(new: Sequence[Array], old: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(jnp.where(is_accepted, n, o) for n, o in zip(new, old, strict=True))

    old_values = [old[own], *(before.reads[redraw.read] for redraw in branch.redraws)]
    return Moved(
        choose([new[own], *redrawn], old_values),
        choose(log_terms, before.log_terms),
        choose(branch.outputs.run(new), before.outputs),
        is_accepted,
        is_invalid,
        log_ratio,
    )


def _metropolis_block(
    branch: Branch, old: dict[int, Any], words: Array, before: Before, is_mending: bool
) -> Moved:
    """Propose all elements at once; each is accepted or rejected by its own terms."""
    own, batch_shape = branch.reads[0].number, branch.site.batch_shape
    new = dict(old)
    new[own], *given_ratio = branch.propose.run(old)
    new[own] = new[own].reshape(branch.site.shape)
    log_terms = branch.score.run(new)
    log_p_ratio = _by_element(
        branch, [t - o for t, o in zip(log_terms, before.log_terms, strict=True)]
    )
    log_q = _log_q_ratio(branch, given_ratio, old, new, before.log_terms, log_terms)
    log_ratio = log_p_ratio + log_q
    is_invalid = jnp.isnan(log_ratio) | jnp.isposinf(log_p_ratio)
    log_ratio = jnp.where(is_invalid, -jnp.inf, log_ratio)
    uniforms = jax.random.bits(_block_key(branch, words), batch_shape, "uint32")
    is_accepted = log_uniform(uniforms) < log_ratio
    if is_mending:
        is_accepted = _by_element(branch, _newly_impossible(log_terms, before.log_terms)) <= 0
    return _settle_block(branch, old, new[own], log_terms, before, is_accepted, is_invalid)


def _gibbs(
    branch: Branch, old: dict[int, Any], words: Array, before: Before, element: Array
) -> Moved:
    """Draw one element from its full conditional: every value is tried, none rejected."""
    own = branch.reads[0].number

    def put(value: Array) -> Array:
        full = jnp.full(branch.site.shape, value, branch.site.dtype)
        return _put_element(branch, old[own], full, element)

    def score(value: Array) -> Array:
        return sum(
            (jnp.sum(term) for term in branch.score.run({**old, own: put(value)})),
            start=jnp.zeros(()),
        )

    candidates = jnp.asarray(branch.way.candidates, branch.site.dtype)
    chosen, is_invalid, can_move = _draw_candidate(
        jax.vmap(score)(candidates), uniform(words[branch.key_start])
    )
    new = {**old, own: jnp.where(can_move, put(candidates[chosen]), old[own])}
    return Moved(
        (new[own],),
        tuple(branch.score.run(new)),
        tuple(branch.outputs.run(new)),
        can_move,
        is_invalid,
        jnp.where(can_move, jnp.inf, -jnp.inf),
    )


def _gibbs_block(branch: Branch, old: dict[int, Any], words: Array, before: Before) -> Moved:
    """Draw every element from its full conditional; elements do not see each other."""
    own, shape = branch.reads[0].number, branch.site.shape

    def score(value: Array) -> Array:
        full = jnp.full(shape, value, branch.site.dtype)
        return _by_element(branch, branch.score.run({**old, own: full}))

    candidates = jnp.asarray(branch.way.candidates, branch.site.dtype)
    bits = jax.random.bits(_block_key(branch, words), shape, "uint32")
    scores = jax.lax.map(score, candidates)
    chosen, is_invalid, can_move = _draw_candidate(scores, uniform(bits))
    value = jnp.where(can_move, candidates[chosen], old[own])
    log_terms = branch.score.run({**old, own: value})
    return _settle_block(branch, old, value, log_terms, before, can_move, is_invalid)


def _draw_candidate(scores: Array, uniforms: Array) -> tuple[Array, Array, Array]:
    """Draw an index with probabilities proportional to ``exp(scores)`` along the first axis.

    Scores of NaN or +inf have no probability; where nothing has any, nothing can move.
    """
    is_bad = jnp.isnan(scores) | jnp.isposinf(scores)
    scores = jnp.where(is_bad, -jnp.inf, scores)
    top = jnp.max(scores, axis=0)
    can_move = jnp.isfinite(top)
    weights = jnp.exp(scores - jnp.where(can_move, top, 0.0))
    upper = jnp.cumsum(weights, axis=0)
    chosen = jnp.sum(uniforms * upper[-1] > upper[:-1], axis=0)
    return chosen, jnp.any(is_bad, axis=0), can_move


def _settle_block(
    branch: Branch,
    old: dict[int, Any],
    value: Array,
    log_terms: Sequence[Array],
    before: Before,
    is_accepted: Array,
    is_invalid: Array,
) -> Moved:
    """Take the accepted elements, with their terms, and compute the outputs there."""
    own, site = branch.reads[0].number, branch.site
    wide = is_accepted.reshape(is_accepted.shape + (1,) * len(site.event_shape))
    settled = jnp.where(wide, value, old[own])
    terms = tuple(
        jnp.where(spread_to_term(is_accepted, axes, new.shape), new, kept)
        for axes, new, kept in zip(branch.term_axes, log_terms, before.log_terms, strict=True)
    )
    outputs = tuple(branch.outputs.run({**old, own: settled}))
    return Moved((settled,), terms, outputs, is_accepted, is_invalid, jnp.zeros(()))


def _newly_impossible(new: Sequence[Array], old: Sequence[Array]) -> list[Array]:
    """Return 1 for terms that become impossible, -1 for those that become possible, else 0."""
    return [
        jnp.isfinite(o).astype(jnp.float32) - jnp.isfinite(n).astype(jnp.float32)
        for n, o in zip(new, old, strict=True)
    ]


def _by_element(branch: Branch, differences: Sequence[Array]) -> Array:
    """Sum differences of terms by the element that they belong to."""
    shape = branch.site.batch_shape
    return sum(
        (
            reduce_to_elements(difference, axes, shape)
            for difference, axes in zip(differences, branch.term_axes, strict=True)
        ),
        start=jnp.zeros(shape),
    )


def _block_key(branch: Branch, words: Array) -> Key:
    """Return the key of a block's decisions."""
    mine = words[branch.key_start : branch.key_start + KEY_WORDS]
    return jax.random.wrap_key_data(mine, impl="threefry2x32")


def _log_q_ratio(
    branch: Branch,
    given_ratio: Sequence[Array],
    old: Mapping[int, Any],
    new: Mapping[int, Any],
    old_terms: Sequence[Array],
    new_terms: Sequence[Array],
) -> Array:
    """Return log q(x | x') - log q(x' | x) for every element of the moved site.

    For a prior draw it is the ratio of the prior densities, without NumPyro's scale and mask; where
    the site has neither, they are its own terms.
    """
    if given_ratio:
        ratio = given_ratio[0]
    elif branch.prior is None:
        ratio = old_terms[branch.own_term] - new_terms[branch.own_term]
    else:
        ratio = branch.prior.run(old)[0] - branch.prior.run(new)[0]
    return jnp.asarray(ratio)  # it may be a constant


def _put_element(branch: Branch, old: Array, new: Array, element: Array) -> Array:
    """Return the site's old value with one element replaced by that of ``new``."""
    site = branch.site
    if site.num_components == 1:
        return new.reshape(site.shape)
    is_moved = jnp.arange(site.num_components) == element
    is_moved = is_moved.reshape(*site.batch_shape, *(1 for _ in site.event_shape))
    return jnp.where(is_moved, new, old)


def _redraw(
    branch: Branch, new: dict[int, Any], old: Mapping[int, Any]
) -> tuple[list[Array], Array]:
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


def uniform(words: Array) -> Array:
    """Return a uniform number in (0, 1] made of 32 random bits."""
    return (words.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32)


def log_uniform(words: Array) -> Array:
    """Return the logarithm of a uniform number; it is finite."""
    return jnp.log(uniform(words))


def is_different(new: Array, old: Array) -> Array:
    """Whether outputs differ; NaN equals NaN, or a NaN output would be rewarded forever."""
    differs = new != old
    if jnp.issubdtype(new.dtype, jnp.inexact):
        differs &= ~(jnp.isnan(new) & jnp.isnan(old))
    return differs
