"""The record of a classic: a model, its data, what is asked of it, and the exact answer."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Moments(NamedTuple):
    """Mean, standard deviation and kurtosis (3 for a normal), which says how sure an sd can be."""

    mean: float
    sd: float
    kurtosis: float


class Classic(NamedTuple):
    """A model with its exact answer.

    Attributes
    ----------
    model, args
        The NumPyro model and its data.
    outputs
        Names of the sites that are asked for.
    truth
        A function without arguments: moments of scalar outputs by their names in
        ``result.summary()``, of more than are asked for or fewer.
    about
        Sites and shapes in one line.
    marginal
        The same model with its discrete latents summed out by hand, called with the same
        arguments, for NUTS; None where that is no simple thing.
    """

    model: Callable[..., None]
    args: tuple[Any, ...]
    outputs: Sequence[str]
    truth: Callable[[], dict[str, Moments]]
    about: str
    marginal: Callable[..., None] | None = None
