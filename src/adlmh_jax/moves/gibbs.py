"""Gibbs steps: every value of a finite support is tried, and none rejected."""

from typing import Any

import jax.numpy as jnp

from adlmh_jax.graph import pick
from adlmh_jax.moves.branch import Branch
from adlmh_jax.moves.metropolis import to_uniform
from adlmh_jax.moves.scope import Before, Moved, Scope, compare
from adlmh_jax.types import Array


def gibbs(branch: Branch, old: dict[int, Any], before: Before, scope: Scope) -> Moved:
    """Draw what the scope covers from its full conditional; elements do not see each other."""
    own, site = branch.reads[0].number, branch.site

    def put(value: Array) -> Array:
        full = jnp.broadcast_to(value, site.shape).astype(site.dtype)
        return scope.put(old[own], full)

    def score(value: Array) -> Array:
        return compare(scope, branch.score.run({**old, own: put(value)}), before.log_terms)

    candidates = jnp.asarray(branch.variant.candidates, site.dtype)
    scores = scope.try_all(score, candidates)
    chosen, is_invalid, can_move = _draw_candidate(scores, to_uniform(scope.value_words()))
    new = {**old, own: jnp.where(can_move, put(candidates[chosen]), old[own])}
    return Moved(
        values=(new[own],),
        log_terms=tuple(branch.score.run(new)),
        outputs=tuple(branch.outputs.run(new)),
        is_accepted=can_move,
        is_invalid=is_invalid,
        log_ratio=jnp.where(can_move, jnp.inf, -jnp.inf),
    )


def _draw_candidate(scores: Array, uniforms: Array) -> tuple[Array, Array, Array]:
    """Draw an index with probabilities proportional to ``exp(scores)`` along the first axis.

    Scores of NaN or +inf have no probability; where nothing has any, nothing can move.
    """
    is_bad = jnp.isnan(scores) | jnp.isposinf(scores)
    scores = jnp.where(is_bad, -jnp.inf, scores)
    can_move = jnp.isfinite(jnp.max(scores, axis=0))
    return pick(scores, uniforms), jnp.any(is_bad, axis=0), can_move
