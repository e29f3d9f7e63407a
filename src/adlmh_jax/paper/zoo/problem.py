"""The record of a benchmark: a model, its data, what it predicts, what is known of the answer."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adlmh_jax.paper import distances


@dataclass(frozen=True, eq=False)
class Truth:
    """What is known of the exact posterior of a problem's outputs, in the order of the outputs.

    Attributes
    ----------
    mean, sd
        Posterior mean and standard deviation of each output, ``[outputs]``.
    probabilities
        Probability of each value 0, 1, ... of each output, ``[outputs, values]``; empty unless the
        outputs are discrete.
    grid, cdf
        For each output an increasing array of values and the distribution function there; empty
        unless the outputs are continuous.
    """

    mean: np.ndarray
    sd: np.ndarray
    probabilities: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    grid: tuple[np.ndarray, ...] = ()
    cdf: tuple[np.ndarray, ...] = ()

    def cdf_functions(self) -> tuple[Callable[[np.ndarray], np.ndarray], ...]:
        """Return, for each output, its distribution function, linear between grid points."""
        return tuple(
            functools.partial(_interpolated_cdf, grid=grid, cdf=cdf)
            for grid, cdf in zip(self.grid, self.cdf, strict=True)
        )


def _interpolated_cdf(values: np.ndarray, grid: np.ndarray, cdf: np.ndarray) -> np.ndarray:
    """Distribution function between the points of its grid; 0 below them and 1 above."""
    return np.asarray(np.interp(values, grid, cdf, left=0.0, right=1.0))


@dataclass(frozen=True, eq=False)
class Problem:
    """A benchmark.

    Attributes
    ----------
    name
        Short name, with the variant if it is not the default one.
    model
        A NumPyro model, called as ``model(*args, **kwargs)``.
    args, kwargs
        The model's data.
    outputs
        Names of the sites that are predicted; each is a scalar.
    truth
        A function without arguments, computed once on its first call; None if nothing is known.
    distance
        Name of the distance between draws and truth: ``"kl"``, ``"ks"``, ``"l2"`` or
        ``"classification_error"``.
    reference
        For each group of numbers a sentence that says where they come from.
    """

    name: str
    model: Callable[..., Any]
    args: tuple[Any, ...]
    outputs: tuple[str, ...]
    distance: str
    reference: Mapping[str, str]
    truth: Callable[[], Truth] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def distance_function(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function from draws ``[..., draws, outputs]`` to their distances ``[...]``.

        The result is what `adlmh_jax.paper.distances.running_curve` expects.
        """
        if self.distance == "classification_error":
            # The two outputs are the probabilities that the left-out records are setosa; the first
            # one is, the second is not, so the error is how far the mean is from (1, 0).
            return functools.partial(distances.mean_absolute_error, target=np.array([1.0, 0.0]))
        if self.truth is None:
            raise ValueError(f"Problem `{self.name}` has no truth to compare its draws with.")
        truth = self.truth()
        if self.distance == "kl":
            return functools.partial(distances.kl_of_draws, probabilities=truth.probabilities)
        if self.distance == "ks":
            return functools.partial(distances.ks_of_draws, cdfs=truth.cdf_functions())
        if self.distance == "l2":
            return functools.partial(distances.l2_of_draws, target=truth.mean)
        raise ValueError(
            f"Problem `{self.name}` has the unknown distance `{self.distance}`; expected `kl`, "
            "`ks`, `l2` or `classification_error`."
        )
