"""The covariances of walks: learned from where the chains of a superchain are."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from adlmh_jax.types import Array, float_type

BEST_STEP = 2.38  # over the root of the dimension (Gelman, Roberts and Gilks 1996)
FIRST_STEP = 0.1  # on the unconstrained scale, as long as nothing is known
MIN_SEEN = 2.0  # points for each dimension before a covariance is believed
JITTER = 1e-6  # of each variance, so that rounded covariances have a root


class Walks(NamedTuple):
    """What is known about the sites that walk together: J walks of at most D dimensions.

    Attributes
    ----------
    mean, covariance
        Of the chains on the unconstrained scale, ``[J, D]`` and ``[J, D, D]``; later chains count
        more.
    num_seen
        How often they were looked at, ``[J]``.
    factor
        Roots of the covariances of the steps, ``[J, D, D]``.
    """

    mean: Array
    covariance: Array
    num_seen: Array
    factor: Array


def init_walks(num_walks: int, dimension: int) -> Walks:
    """Start with steps of a tenth."""
    dtype = float_type()
    eye = jnp.broadcast_to(jnp.eye(dimension, dtype=dtype), (num_walks, dimension, dimension))
    return Walks(
        mean=jnp.zeros((num_walks, dimension), dtype),
        covariance=jnp.zeros_like(eye),
        num_seen=jnp.zeros(num_walks, dtype),
        factor=FIRST_STEP * eye,
    )


def watch(walks: Walks, free: Array, dimensions: Array) -> Walks:
    """Learn from where the chains are.

    Parameters
    ----------
    walks
        What was known.
    free
        The chains on the unconstrained scale, ``[J, D, C]``; rows beyond a walk's dimension are 0.
    dimensions
        Of the walks, ``[J]``.
    """
    if not walks.num_seen.size:  # nothing walks: no matrices without entries for the device
        return walks
    return jax.vmap(_watch)(walks, free, dimensions)


def forget(walks: Walks) -> Walks:
    """Let what is seen next stand alone: the distribution has changed. Steps stay as they are."""
    return walks._replace(num_seen=jnp.zeros_like(walks.num_seen))


def _watch(walks: Walks, free: Array, dimension: Array) -> Walks:
    is_finite = jnp.all(jnp.isfinite(free), axis=0)
    num_chains = jnp.sum(is_finite)
    free = jnp.where(is_finite, free, 0.0)
    share = is_finite / jnp.maximum(num_chains, 1)
    here = free @ share
    apart = jnp.where(is_finite, free - here[:, None], 0.0)
    within = (apart * share) @ apart.T
    # The k-th look has a weight in proportion to k: what was seen on the way there is forgotten.
    gain = jnp.where(num_chains > 0, 2.0 / (walks.num_seen + 2.0), 0.0)
    shift = here - walks.mean
    covariance = (1.0 - gain) * (walks.covariance + gain * jnp.outer(shift, shift)) + gain * within
    num_seen = walks.num_seen + 1.0
    num_points = num_seen * num_chains
    factor = _root(covariance, num_points, dimension)
    has_spread = jnp.all((jnp.diagonal(covariance) > 0.0) | (jnp.arange(here.size) >= dimension))
    is_known = (num_points >= MIN_SEEN * dimension) & has_spread & jnp.all(jnp.isfinite(factor))
    return Walks(
        mean=walks.mean + gain * shift,
        covariance=covariance,
        num_seen=num_seen,
        factor=jnp.where(is_known, factor, walks.factor),
    )


def _root(covariance: Array, num_points: Array, dimension: Array) -> Array:
    """Return a root of the covariance of the steps.

    Covariances of few points are drawn towards their diagonal. Those of many are not: that would
    blunt the ridges for which the walk is there.
    """
    variances = jnp.diagonal(covariance)
    blunt = 0.5 * jnp.exp(-num_points / (2.0 * dimension))
    is_padding = jnp.arange(variances.size) >= dimension
    extra = jnp.where(is_padding, 1.0, JITTER * variances)
    shrunk = (1.0 - blunt) * covariance + jnp.diag(blunt * variances + extra)
    return jnp.linalg.cholesky(shrunk) * (BEST_STEP / jnp.sqrt(dimension))
