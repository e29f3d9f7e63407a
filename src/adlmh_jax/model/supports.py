"""Supports in words, for people."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpyro.distributions import constraints

# What NumPyro's name of a constraint does not say well enough.
_WORDS: dict[str, str] = {
    "boolean": "0 or 1",
    "circular": "angle",
    "corr_cholesky": "Cholesky factor of a correlation matrix",
    "corr_matrix": "correlation matrix",
    "l1_ball": "L1 ball",
    "lower_cholesky": "Cholesky factor",
    "nonnegative": "non-negative",
    "positive_definite": "positive definite matrix",
    "positive_semi_definite": "positive semi-definite matrix",
    "scaled_unit_lower_cholesky": "Cholesky factor",
    "softplus_lower_cholesky": "Cholesky factor",
    "softplus_positive": "positive",
    "sphere": "unit vector",
    "zero_sum": "array of sum 0",
}

_RELATIONS: dict[str, str] = {
    "greater_than": ">",
    "greater_than_eq": ">=",
    "less_than": "<",
    "less_than_eq": "<=",
}


@dataclass(frozen=True)
class Support:
    """A support in words.

    Attributes
    ----------
    kind
        What its members are, such as ``"integers"``.
    bounds
        Which of them, such as ``"0..2"``; may be empty.
    """

    kind: str
    bounds: str = ""

    def __str__(self) -> str:
        """Return both, such as ``"integers 0..2"``."""
        return f"{self.kind} {self.bounds}" if self.bounds else self.kind


def bounds_of(constraint: Any) -> tuple[Any, Any]:
    """Return the lower and the upper bound of a NumPyro constraint; None where there is none."""
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    return getattr(constraint, "lower_bound", None), getattr(constraint, "upper_bound", None)


def describe_support(constraint: Any, bounds: tuple[Any, Any] | None = None) -> Support:
    """Describe a NumPyro constraint, whose bounds may be known better than to itself."""
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    name = _snake_case(type(constraint).__name__)
    low, high = map(_number, bounds_of(constraint) if bounds is None else bounds)
    if name.startswith("integer"):
        return Support("integers", _integer_bounds(low, high))
    if name in ("interval", "open_interval"):
        return Support("interval", f"{low} to {high}" if low and high else "")
    if name in _RELATIONS:
        bound = low or high
        return Support("real", f"{_RELATIONS[name]} {bound}" if bound else "")
    if name == "multinomial":
        return Support("counts", f"of sum {high}" if high else "")
    return Support(_WORDS.get(name, name.replace("_", " ")))


def _integer_bounds(low: str, high: str) -> str:
    if low and high:
        return f"{low}..{high}"
    return f"from {low}" if low else ""


def _number(bound: Any) -> str:
    """Return a bound as text, if it is the same for every element."""
    if bound is None:
        return ""
    values = np.unique(np.asarray(bound))
    return f"{values[0]:.6g}" if values.size == 1 else ""


def _snake_case(name: str) -> str:
    """Turn NumPyro's class name of a constraint into words joined by underscores."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).strip("_")
