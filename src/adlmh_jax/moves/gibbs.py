"""Gibbs steps: every value of a finite support is tried.

A plain step draws from the full conditional p. A *metropolised* one (Liu, 1996) draws from p
without the present value x and accepts the new one, x', with probability
min(1, (1 - p(x)) / (1 - p(x'))). It evaluates the same, and goes from each value to each other one
at least as often, so that no average over steps has a larger variance (Peskun, 1973).
"""

import math
from typing import Any

import jax.numpy as jnp
from jax.nn import logsumexp

from adlmh_jax.graph import pick
from adlmh_jax.moves.branch import Branch
from adlmh_jax.moves.metropolis import accept_by_ratio, to_uniform
from adlmh_jax.moves.scope import Before, Moved, Scope, compare
from adlmh_jax.types import Array

# Of fair coins, each step would flip one: after an even number of steps their parity would be what
# it was, always. So now and then a flip is not made; but no value is left less often than by p.
LOG_DAMPING = math.log(0.9)


def gibbs(branch: Branch, old: dict[int, Any], before: Before, scope: Scope) -> Moved:
    """Draw what the scope covers from its full conditional; elements do not see each other."""
    own, site = branch.reads[0].number, branch.site

    def put(value: Array) -> Array:
        full = jnp.broadcast_to(value, site.shape).astype(site.dtype)
        return scope.put(old[own], full)

    def score(value: Array) -> Array:
        return compare(scope, branch.score.run({**old, own: put(value)}), before.log_terms)

    candidates = jnp.asarray(branch.variant.candidates, site.dtype)
    # Scores of NaN or +inf have no probability; where nothing has any, nothing can move.
    scores = scope.try_all(score, candidates)
    is_bad = jnp.isnan(scores) | jnp.isposinf(scores)
    scores = jnp.where(is_bad, -jnp.inf, scores)
    uniforms = to_uniform(scope.value_words())
    if branch.variant.is_metropolised:
        here = scope.of_moved(old[own])
        is_here = candidates.reshape(-1, *(1 for _ in here.shape)) == here
        chosen, log_ratio = draw_other(scores, is_here, uniforms)
        is_accepted = accept_by_ratio(scope, log_ratio, (), ())
    else:
        chosen, log_ratio = draw_any(scores, uniforms)
        is_accepted = jnp.isposinf(log_ratio)
    new = {**old, own: jnp.where(is_accepted, put(candidates[chosen]), old[own])}
    return Moved(
        values=(new[own],),
        log_terms=tuple(branch.score.run(new)),
        outputs=tuple(branch.outputs.run(new)),
        is_accepted=is_accepted,
        is_invalid=jnp.any(is_bad, axis=0),
        log_ratio=log_ratio,
    )


def draw_any(scores: Array, uniforms: Array) -> tuple[Array, Array]:
    """Draw an index with probabilities proportional to ``exp(scores)`` along the first axis.

    Returns it, and the logarithm of the ratio by which it is accepted: always, or never.
    """
    can_move = jnp.isfinite(jnp.max(scores, axis=0))
    return pick(scores, uniforms), jnp.where(can_move, jnp.inf, -jnp.inf)


def draw_other(scores: Array, is_here: Array, uniforms: Array) -> tuple[Array, Array]:
    """Draw another index than the present one, and return the log ratio by which it is accepted.

    1 - p is the sum over the other values: a difference would lose all digits where p is near 1.
    """
    others = jnp.where(is_here, -jnp.inf, scores)
    can_move = jnp.isfinite(jnp.max(others, axis=0))
    chosen = pick(others, uniforms)
    numbers = jnp.arange(scores.shape[0]).reshape(-1, *(1 for _ in chosen.shape))
    log_others = logsumexp(others, axis=0)
    log_without_chosen = logsumexp(jnp.where(numbers == chosen, -jnp.inf, scores), axis=0)
    damped = LOG_DAMPING + jnp.minimum(log_others - log_without_chosen, 0.0)
    log_ratio = jnp.maximum(damped, log_others - logsumexp(scores, axis=0))
    return chosen, jnp.where(can_move, log_ratio, -jnp.inf)
