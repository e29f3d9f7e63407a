"""Whether a function does the same each time it is traced, with the same numbers."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from jax.extend import core

from adlmh_jax.graph.constants import to_bytes


def begins_with(whole: core.ClosedJaxpr, start: core.ClosedJaxpr) -> bool:
    """Return whether one trace begins with the operations, and with the results, of another one.

    Literals, constants and parameters are compared, not which values go where.
    """
    pairs = (
        (whole.jaxpr.eqns, start.jaxpr.eqns),
        (whole.jaxpr.outvars, start.jaxpr.outvars),
        (whole.consts, start.consts),
    )
    return all(_are_alike(first[: len(second)], second) for first, second in pairs)


def _is_alike(first: Any, second: Any) -> bool:
    """Return whether two parts of traces are the same, as far as can be told."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, (core.ClosedJaxpr, core.Jaxpr)):  # in JAX 0.12 these are one
        parts = zip(_parts(first), _parts(second), strict=True)
        return all(_are_alike(a, b) for a, b in parts)
    if isinstance(first, core.JaxprEqn):
        is_same = first.primitive is second.primitive and _is_alike(first.params, second.params)
        return is_same and _are_alike(first.invars, second.invars)
    if isinstance(first, core.Literal):
        return _is_alike(first.val, second.val)
    if isinstance(first, (tuple, list)):
        return _are_alike(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_is_alike(first[n], second[n]) for n in first)
    if hasattr(first, "shape") and hasattr(first, "dtype"):
        is_like = first.shape == second.shape and first.dtype == second.dtype
        return is_like and to_bytes(first) == to_bytes(second)
    if isinstance(first, (bool, int, float, complex, str)):
        return repr(first) == repr(second)  # NaN is NaN
    return True  # a variable, or a function that was made anew


def _parts(traced: Any) -> tuple[Sequence[Any], ...]:
    """Return the operations, the results and the constants of a trace, open or closed."""
    return traced.eqns, getattr(traced, "jaxpr", traced).outvars, getattr(traced, "consts", ())


def _are_alike(first: Sequence[Any], second: Sequence[Any]) -> bool:
    missing = object()
    return all(_is_alike(a, b) for a, b in zip_longest(first, second, fillvalue=missing))
