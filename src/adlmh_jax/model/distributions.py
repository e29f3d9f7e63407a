"""What the sampler asks of a NumPyro distribution: densities, supports, draws, transforms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.util import is_identically_one

from adlmh_jax.graph import draw_binomial
from adlmh_jax.model import errors
from adlmh_jax.types import Array, Key, float_type


def unwrapped(fn: Any) -> Any:
    """Strip the wrappers that do not change the kind of a distribution."""
    wrappers = (dist.MaskedDistribution, dist.ExpandedDistribution, dist.Independent)
    while isinstance(fn, wrappers):
        fn = fn.base_dist
    return fn


def unmasked(fn: Any) -> Any:
    """Return the distribution without masks: what a prior draw is drawn from."""
    if isinstance(fn, dist.MaskedDistribution):
        return unmasked(fn.base_dist)
    if isinstance(fn, dist.Independent):
        base = unmasked(fn.base_dist)
        return fn if base is fn.base_dist else base.to_event(fn.reinterpreted_batch_ndims)
    if isinstance(fn, dist.ExpandedDistribution):
        base = unmasked(fn.base_dist)
        return fn if base is fn.base_dist else base.expand(fn.batch_shape)
    return fn


def is_delta(fn: Any) -> bool:
    """Whether a distribution has a single value."""
    return isinstance(unwrapped(fn), dist.Delta)


def is_factor(fn: Any) -> bool:
    """Whether a distribution is that of `numpyro.factor`, which has no value."""
    return isinstance(unwrapped(fn), dist.Unit)


def is_improper(fn: Any) -> bool:
    """Whether a distribution cannot be drawn from."""
    return isinstance(unwrapped(fn), dist.ImproperUniform)


def log_terms(message: dict[str, Any]) -> Array:
    """Return the log-probabilities of a site's batch elements, scaled and masked as NumPyro's."""
    # A NumPy value would make NumPyro check supports with NumPy, which traced bounds do not allow.
    fn, value = message["fn"], jnp.asarray(message["value"])
    try:
        if message["intermediates"]:
            terms = fn.log_prob(value, message["intermediates"])
        else:
            terms = fn.log_prob(value)
    except (TypeError, ValueError) as error:
        raise errors.cannot_score(message["name"], message, error) from error
    scale = message["scale"]
    return terms if scale is None or is_identically_one(scale) else terms * scale


def in_support(fn: Any, value: Array, batch_shape: tuple[int, ...]) -> Array:
    """Return whether each batch element lies in the support of its distribution.

    We ask the support itself: with validation off, NumPyro's log-probabilities are finite outside.
    """
    inside = jnp.asarray(fn.support(value))
    extra = tuple(range(len(batch_shape), inside.ndim))
    return jnp.broadcast_to(jnp.all(inside, axis=extra) if extra else inside, batch_shape)


INTERVALS = (
    constraints.interval,
    constraints.integer_interval,
    constraints.greater_than,
    constraints.less_than,
    constraints.integer_greater_than,
)


def unknown_bounds(fn: Any, batch_shape: tuple[int, ...]) -> tuple[Array | None, Array | None]:
    """Return the ends of an interval of support that are not known before the model runs."""
    if not isinstance(fn.support, INTERVALS):
        return None, None
    ends = [getattr(fn.support, name, None) for name in ("lower_bound", "upper_bound")]
    lower, upper = (
        jnp.broadcast_to(end, batch_shape) if isinstance(end, jax.core.Tracer) else None
        for end in ends
    )
    return lower, upper


def unconstraining(fn: Any) -> Any:
    """Return the transform from the unconstrained scale to the support; None if they are one."""
    is_real = fn.support is constraints.real or isinstance(fn.support, type(constraints.real))
    return None if is_real else biject_to(fn.support)


def free_shape(fn: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of a value on the unconstrained scale; None if there is no such scale."""
    if fn.support.is_discrete:
        return None
    try:
        transform = unconstraining(fn)
    except NotImplementedError:  # NumPyro's word for a support that it cannot transform
        return None
    return shape if transform is None else tuple(transform.inverse_shape(shape))


def to_free(fn: Any, value: Array) -> Array:
    """Return a value on the unconstrained scale."""
    transform = unconstraining(fn)
    return value if transform is None else transform._inverse(value)


def from_free(fn: Any, free: Array) -> tuple[Array, Array]:
    """Return a value, and the logarithm of the Jacobian, given it on the unconstrained scale."""
    transform = unconstraining(fn)
    if transform is None:
        return free, jnp.zeros(())
    value = transform(free)
    return value, jnp.sum(transform.log_abs_det_jacobian(free, value))


def mean_of(fn: Any, shape: tuple[int, ...]) -> Array | None:
    """Return the means of a site's elements; None if its distribution does not say."""
    try:
        return jnp.broadcast_to(fn.mean, shape)
    except (AttributeError, NotImplementedError, ValueError):  # NumPyro has no formula for it
        return None


def enumerate_support(fn: Any) -> tuple[Array | None, bool]:
    """Return the values of a finite scalar support, if they are the same for every element.

    Return also whether that can be said; it cannot where an end of the support is not known.
    """
    if not fn.has_enumerate_support or fn.event_shape:
        return None, True
    try:
        return fn.enumerate_support(expand=False), True
    except NotImplementedError:  # NumPyro's word for supports that differ between elements
        return None, True
    except jax.errors.ConcretizationTypeError:
        return None, False


def draw(fn: Any, key: Key, sample_shape: tuple[int, ...]) -> Array:
    """Draw from the prior of a site: its distribution without masks."""
    fn = unmasked(fn)
    inner = unwrapped(fn)
    if fn.event_shape[-1:] == (1,) and isinstance(fn.support, type(constraints.simplex)):
        return jnp.ones(sample_shape + fn.shape())  # NumPyro's draws keep away from 1
    if isinstance(inner, (dist.CategoricalProbs, dist.CategoricalLogits)) and not sample_shape:
        return _draw_category(inner.probs, key, fn.batch_shape + fn.event_shape)
    if isinstance(inner, (dist.BinomialProbs, dist.BinomialLogits)) and not sample_shape:
        shape = fn.batch_shape
        probs = jnp.broadcast_to(jnp.asarray(inner.probs, float_type()), shape)
        return draw_binomial(key, probs, jnp.broadcast_to(inner.total_count, shape))
    return fn.sample(key, sample_shape) if sample_shape else fn.sample(key)


def _draw_category(probs: Array, key: Key, shape: tuple[int, ...]) -> Array:
    """Draw by the inverse of the distribution function: one uniform instead of one per category."""
    upper = jnp.cumsum(probs, axis=-1)[..., :-1] / jnp.sum(probs, axis=-1, keepdims=True)
    uniform = jax.random.uniform(key, shape, probs.dtype)
    return jnp.sum(uniform[..., None] >= upper, axis=-1).astype(jnp.int32)
