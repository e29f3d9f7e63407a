"""The best weights, given what components explain of the outputs and how far moves take them.

A random scan is P = sum_k alpha_k P_k. The asymptotic variance of an output f is convex in alpha,

    v(alpha) = 2 sup_g [2 <f, g> - sum_k alpha_k E_k(g)] - Var f,

E_k(g) = 1/2 E[(g(X') - g(X))^2 | k moves]. Among functions g that are sums of functions of single
components, the supremum is sum_i r_i / sum_k alpha_k e_ki, where r_i is the variance of f that
component i explains, and e_ki the share of its own variance that a move of entry k renews. So

    v(alpha) >= 2 sum_i r_i / (sum_k alpha_k e_ki) - Var f,

and the weights here make the right-hand side least. Where no component is moved by two entries they
are alpha_k ~ sqrt(sum_i r_i / e_ki): a component is worth selecting as far as it explains the
output and as far as it moves slowly for its spread. Of several outputs a norm of the bounds is made
least that comes close to the largest of them: a run is as good as its worst output.
"""

import jax
import jax.numpy as jnp
from jax import lax

from adlmh_jax.types import Anatomy, Array

MIN_MOBILITY = 0.01  # nothing gets more than ten times the weight of what moves freely
NORM = 8  # of the bounds of several outputs: 1 is their sum, infinity the largest of them
NUM_TURNS = 100  # of the multiplicative algorithm: an error is a third after five


def mobility(anatomy: Anatomy, jumps: Array, tries: Array, variance: Array, extra: Array) -> Array:
    """Return the share of its variance that a move of each slot renews, ``[L]``.

    As if ``extra`` moves more had renewed all of it: what was never tried is not thought stuck.

    Parameters
    ----------
    anatomy
        What entries move.
    jumps, tries
        Sums of squared jumps, and moves, of each slot, ``[L]``.
    variance
        Of each component in the units of the jumps, ``[N]``.
    extra
        How many moves are made up.
    """
    variance = jnp.maximum(variance[anatomy.slot_component], jnp.finfo(variance.dtype).tiny)
    renewed = 0.5 * jumps / (anatomy.scalars_of * variance)
    return jnp.maximum((renewed + extra) / (tries + extra), MIN_MOBILITY)


def design(anatomy: Anatomy, explained: Array, mobile: Array, costs: Array) -> Array:
    """Return the weights that make the bound of the variance, times what a step costs, least.

    Each turn multiplies the weights by a root of what they lack (the multiplicative algorithm of
    optimal design: Silvey, Titterington and Torsney, 1978).

    Parameters
    ----------
    anatomy
        What entries move.
    explained
        What each component explains of each output, not negative, ``[N, K]``.
    mobile
        From `mobility`, ``[L]``.
    costs
        Of the entries, ``[M]``.
    """
    num_entries, norm = costs.size, NORM if explained.shape[1] > 1 else 1

    def turn(_: int, alpha: Array) -> Array:
        moved = jnp.append(alpha, 0.0)[jnp.minimum(anatomy.entry_of, num_entries)] * mobile
        renewal = jax.ops.segment_sum(moved, anatomy.slot_component, len(explained))
        is_moved = renewal > 0.0
        slowness = jnp.where(is_moved, 1.0 / jnp.where(is_moved, renewal, 1.0), 0.0)
        bounds = slowness @ explained
        largest = jnp.maximum(jnp.max(bounds), jnp.finfo(bounds.dtype).tiny)
        urgency = (bounds / largest) ** (norm - 1)
        gain = (explained @ urgency) * slowness**2
        gains = jax.ops.segment_sum(
            gain[anatomy.slot_component] * mobile, anatomy.entry_of, num_entries
        )
        new = alpha * (gains / costs) ** (1 / (norm + 1))
        total = jnp.sum(new)
        return jnp.where(total > 0.0, new / jnp.where(total > 0.0, total, 1.0), alpha)

    uniform = jnp.full(num_entries, 1.0 / num_entries)
    return lax.fori_loop(0, NUM_TURNS, turn, uniform)


def mix(alpha: Array, base: Array, share: Array | float) -> Array:
    """Return weights of which a share is that of a schedule that knows nothing."""
    return (1.0 - share) * alpha + share * base
