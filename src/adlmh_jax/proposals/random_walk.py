"""`random_walk`: on the unconstrained scale for continuous sites, by integers for counts."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from adlmh_jax.model import Propose, Site, in_support, unconstraining
from adlmh_jax.proposals.base import Proposal
from adlmh_jax.types import Array, Key


def random_walk() -> Proposal:
    """Take a step from the current value, of a length that is learned during warm-up.

    Continuous choices walk on the unconstrained scale; integers by integer steps.
    """
    return Proposal("random_walk()", function_for=_function_for)


def _function_for(site: Site) -> Propose:
    if site.is_discrete and site.event_shape:
        raise ValueError(
            f"Site `{site.name}` cannot have `random_walk()`: one choice is an array of integers "
            f"of shape {site.event_shape}. Use `prior()` or a function of your own."
        )
    return walk_integers if site.is_discrete else walk_real


def walk_real(
    key: Key, value: Array, fn: Any, values: Mapping[str, Array], scale: Array
) -> tuple[Array, Array]:
    """Add a normal step of standard deviation ``scale`` on the unconstrained scale."""
    del values
    num_batch = jnp.ndim(value) - fn.event_dim
    transform = unconstraining(fn)
    if transform is None:
        step = jax.random.normal(key, value.shape, value.dtype)
        return value + _wide(scale, value) * step, jnp.zeros(value.shape[:num_batch])
    free = transform._inverse(value)
    if free.size == 0:  # a choice without freedom, such as a simplex of one
        return value, jnp.zeros(value.shape[:num_batch])
    step = jax.random.normal(key, free.shape, free.dtype)
    new_free = free + _wide(scale, free) * step
    new = transform(new_free)
    # The density on the unconstrained scale has the Jacobian of the transform as a factor.
    log_ratio = _log_jacobian(transform, new_free, new) - _log_jacobian(transform, free, value)
    extra = tuple(range(num_batch, log_ratio.ndim))
    return new, jnp.sum(log_ratio, axis=extra) if extra else log_ratio


def _log_jacobian(transform: Any, free: Array, value: Array) -> Array:
    return transform.log_abs_det_jacobian(free, value)


def walk_integers(
    key: Key, value: Array, fn: Any, values: Mapping[str, Array], scale: Array
) -> tuple[Array, Array]:
    """Add or subtract 1 plus a geometric number of mean ``scale``.

    The step is symmetric. One that would leave the support is refused: its ratio is zero, and the
    value stays, so that no density is asked for outside the support.
    """
    del values
    key_size, key_sign = jax.random.split(key)
    uniform = jax.random.uniform(key_size, value.shape, minval=jnp.finfo(jnp.float32).tiny)
    size = 1 + jnp.floor(jnp.log(uniform) / jnp.log1p(-1.0 / (1.0 + scale))).astype(value.dtype)
    sign = jax.random.bernoulli(key_sign, shape=value.shape)
    new = value + jnp.where(sign, size, -size)
    inside = in_support(fn, new, value.shape)
    return jnp.where(inside, new, value), jnp.where(inside, 0.0, -jnp.inf)


def _wide(scale: Array, value: Array) -> Array:
    """Give a scale per element the axes of one choice."""
    return scale.reshape(scale.shape + (1,) * (jnp.ndim(value) - jnp.ndim(scale)))
