"""Metropolis-Hastings: the acceptance rule, for single elements and for blocks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from adlmh_jax.moves.branch import Branch
from adlmh_jax.moves.scope import Before, Moved, Proposed, Scope, compare
from adlmh_jax.types import Array, float_type

# (scope, log ratio, new terms, old terms) -> whether the proposal is taken
Accept = Callable[[Scope, Array, Sequence[Array], Sequence[Array]], Array]


def accept_by_ratio(
    scope: Scope, log_ratio: Array, new_terms: Sequence[Array], old_terms: Sequence[Array]
) -> Array:
    """Accept with the probability min(1, ratio): eq. 6.

    Its factor alpha'_k / alpha_k is 1: weights change only after the decision, and N is fixed.
    """
    del new_terms, old_terms
    return log_uniform(scope.accept_words()) < log_ratio


def accept_unless_worse(
    scope: Scope, log_ratio: Array, new_terms: Sequence[Array], old_terms: Sequence[Array]
) -> Array:
    """Accept unless more terms become impossible, whatever their densities: to repair a start."""
    del log_ratio
    newly_impossible = [
        jnp.isfinite(old).astype(old.dtype) - jnp.isfinite(new).astype(new.dtype)
        for new, old in zip(new_terms, old_terms, strict=True)
    ]
    return scope.reduce(newly_impossible) <= 0


def metropolis(
    branch: Branch, old: dict[int, Any], before: Before, scope: Scope, accept: Accept
) -> Moved:
    """Propose new values of what the scope covers, score them, and accept or reject them."""
    new, values, given_ratio = propose(branch, old, scope)
    redrawn, redraw_ratio = _redraw(branch, new, old, must_finish=accept is accept_unless_worse)

    log_terms = branch.keep_terms(new, branch.score.run(new), before.log_terms)
    log_p_ratio = compare(scope, log_terms, before.log_terms)
    log_q = log_q_ratio(branch, given_ratio, old, new, before.log_terms, log_terms)
    log_ratio = log_p_ratio + scope.of_moved(log_q) + redraw_ratio
    # A NaN is never accepted, nor is an infinite density, from which no chain would come back.
    is_invalid = jnp.isnan(log_ratio) | jnp.isposinf(log_p_ratio)
    log_ratio = jnp.where(is_invalid, -jnp.inf, log_ratio)
    if branch.cascade:  # what need not be redrawn is left outside its support
        is_invalid &= ~jnp.isneginf(redraw_ratio)
    is_accepted = accept(scope, log_ratio, log_terms, before.log_terms)
    taken, terms, outputs = scope.settle(
        Proposed([*values, *redrawn], log_terms, new), before, is_accepted
    )
    return Moved(
        values=taken,
        log_terms=terms,
        outputs=outputs,
        is_accepted=is_accepted,
        is_invalid=is_invalid,
        log_ratio=log_ratio,
    )


def propose(
    branch: Branch, old: Mapping[int, Any], scope: Scope
) -> tuple[dict[int, Any], list[Array], Sequence[Array]]:
    """Return what is known with new values in place, these values, and the log q ratio if given."""
    if branch.walk and scope.pace.factor is not None:
        factor = scope.pace.scale * scope.pace.factor
        new, ratio = branch.walk.propose(old, scope.words, factor)
        moved = branch.reads[: len(branch.walk.sites)]
        return new, [new[read.number] for read in moved], [ratio]
    own = branch.reads[0].number
    proposed, *given_ratio = branch.propose.run(old)
    value = scope.put(old[own], proposed)
    return branch.place(old, value), [value], given_ratio


def log_q_ratio(
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
    if given_ratio and not branch.choice:
        return jnp.asarray(given_ratio[0])  # it may be a constant
    if branch.prior is None:
        ratio = old_terms[branch.own_term] - new_terms[branch.own_term]
    else:
        ratio = branch.prior.run(old)[0] - branch.prior.run(new)[0]
    if branch.choice:
        return jnp.where(branch.choice.is_draw(dict(old)), ratio, given_ratio[0])
    return jnp.asarray(ratio)


def _redraw(
    branch: Branch, new: dict[int, Any], old: Mapping[int, Any], must_finish: bool
) -> tuple[list[Array], Array]:
    """Redraw what fell out of its support; return the values of sites that may, and a log ratio.

    Where that is minus infinity the move cannot be made, and values may be left outside, unless
    they must be drawn whatever the ratio is.
    """
    if branch.cascade is None:
        return [], jnp.zeros(())
    values, log_ratio = branch.cascade.redraw(new, old, must_finish)
    new.update(values)
    return [new[read.number] for read in branch.redrawn_reads], log_ratio


def to_uniform(words: Array) -> Array:
    """Return a uniform number in (0, 1] made of 32 random bits."""
    dtype = float_type()
    return (words.astype(dtype) + dtype.type(0.5)) * dtype.type(2.0**-32)


def log_uniform(words: Array) -> Array:
    """Return the logarithm of a uniform number; it is finite."""
    return jnp.log(to_uniform(words))
