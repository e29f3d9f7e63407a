"""`custom`: proposals of the user's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from adlmh_jax.model import ModelError, Site
from adlmh_jax.proposals.base import Proposal
from adlmh_jax.types import Array, Key, float_type


def custom(function: Callable, elementwise: bool = False) -> Proposal:
    """Propose with ``function(key, value, values, distribution) -> (new value, log q ratio)``.

    It proposes for all elements of the site at once: ``new value`` has the shape and dtype of
    ``value``, and ``log q ratio``, of the site's batch shape, is log q(old | new) - log q(new |
    old). ``values`` are the current values of all latent sites.

    Parameters
    ----------
    function
        What proposes.
    elementwise
        Whether the proposal of an element looks at no other element of its site. Only then do
        conditionally independent elements move at once; else they move one at a time.
    """
    return Proposal(
        f"custom({getattr(function, '__name__', type(function).__name__)})",
        function_for=lambda site: _Custom(site, function),
        is_judged=False,
        is_elementwise=elementwise,
    )


@dataclass(frozen=True)
class _Custom:
    """A user's proposal for a site; what it returns is checked when it is traced."""

    site: Site
    function: Callable

    def __call__(
        self, key: Key, value: Array, fn: Any, values: Mapping[str, Array], scale: Array
    ) -> tuple[Array, Array]:
        del scale
        site, result = self.site, self.function(key, value, dict(values), fn)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ModelError(
                f"The proposal of `{site.name}` must return (new value, log q ratio), got "
                f"{type(result).__name__}."
            )
        new, log_ratio = jnp.asarray(result[0]), jnp.asarray(result[1], float_type())
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
