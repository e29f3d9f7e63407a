"""Random-walk proposals: on the unconstrained scale for continuous sites, by integers for counts.

Each is a function of (key, value, distribution, values, scale) that returns the proposed value of
every element of the site and the log ratio of its proposal densities.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to, constraints

from adlmh_jax.model.errors import ModelError
from adlmh_jax.model.sites import Site, in_support
from adlmh_jax.types import Array, Key


def walk_real(
    key: Key, value: Array, fn: Any, values: Mapping[str, Array], scale: Array
) -> tuple[Array, Array]:
    """Add a normal step of standard deviation ``scale`` on the unconstrained scale."""
    del values
    num_batch = jnp.ndim(value) - fn.event_dim
    support = fn.support
    if support is constraints.real or isinstance(support, type(constraints.real)):
        step = jax.random.normal(key, value.shape, value.dtype)
        return value + _wide(scale, value) * step, jnp.zeros(value.shape[:num_batch])
    transform = biject_to(support)
    free = transform._inverse(value)
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


def user_proposal(site: Site, function: Any) -> Any:
    """Wrap a user's proposal, and check what it returns when it is traced."""

    def propose(
        key: Key, value: Array, fn: Any, values: Mapping[str, Array], scale: Array
    ) -> tuple[Array, Array]:
        del scale
        result = function(key, value, dict(values), fn)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ModelError(
                f"The proposal of `{site.name}` must return (new value, log q ratio), got "
                f"{type(result).__name__}."
            )
        new, log_ratio = jnp.asarray(result[0]), jnp.asarray(result[1], jnp.float32)
        if new.shape != site.shape or new.dtype.name != site.dtype:
            raise ModelError(
                f"The proposal of `{site.name}` returned a value of shape {new.shape} and dtype "
                f"{new.dtype}; the site has shape {site.shape} and dtype {site.dtype}."
            )
        if log_ratio.shape not in (site.batch_shape, ()):
            raise ModelError(
                f"The proposal of `{site.name}` returned log ratios of shape {log_ratio.shape}; "
                f"the site's elements have shape {site.batch_shape}."
            )
        return new, log_ratio

    return propose
