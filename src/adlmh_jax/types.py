"""Names for the arrays and callables that every module speaks of.

Dimension letters used in comments: S superchains, C chains of a superchain, N components, M entries
of the schedule, L slots, R latent scalars, K scalar outputs, T terms, E steps of an epoch, W random
words.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

Array = jax.Array
Key = jax.Array
Model = Callable[..., Any]
Position = dict[str, Array]  # a value for each latent site, by name
Banks = dict[str, Array]  # flat arrays [rows, C], by dtype


def float_type() -> Any:
    """Return the dtype of terms, ratios and statistics: float64 where JAX has it switched on."""
    return jax.dtypes.canonicalize_dtype(float)


def as_array(values: Any, dtype: Any = None) -> Array:
    """Return numbers as an array of JAX's: `jnp.asarray` would compile something for it."""
    return jax.device_put(np.asarray(values, dtype))  # where JAX likes: no device is chosen


class Chains(NamedTuple):
    """The chains of one superchain; the chain is the last axis of every array.

    Attributes
    ----------
    latent
        Values of the latent sites, flat.
    log_terms
        Log-probability of every term at these values, ``[T, C]``.
    outputs
        Values of the outputs there, flat.
    """

    latent: Banks
    log_terms: Array
    outputs: Banks


class EpochLog(NamedTuple):
    """The log of one epoch, from which a schedule computes rewards.

    Attributes
    ----------
    entries
        The entry selected at each step, ``[E]``; -1 where no step was made.
    is_accepted
        ``[E, C]``.
    changed
        ``[E, K, C]``; an output changes only if its proposal was accepted.
    """

    entries: Array
    is_accepted: Array
    changed: Array


class Sizes(NamedTuple):
    """How many there are of what a schedule has to do with, in one superchain.

    Attributes
    ----------
    num_entries, num_outputs, num_chains, num_slots, num_scalars
        Numbers of them.
    base
        The selection probabilities of a schedule that knows nothing, ``[M]``.
    """

    num_entries: int
    num_outputs: int
    num_chains: int
    num_slots: int
    num_scalars: int
    base: np.ndarray


class Anatomy(NamedTuple):
    """What entries move, and what it costs.

    Attributes
    ----------
    entry_of, scalars_of
        Entry of each slot, and how many scalars its component has, ``[L]``.
    component_of, slot_component
        Component of each latent scalar, ``[R]``, and of each slot, ``[L]``.
    costs
        Of a move of each entry, ``[M]``, in units of the cheapest thinkable.
    is_count
        Whether each output is a whole number, ``[K]``.
    """

    entry_of: Array
    scalars_of: Array
    component_of: Array
    slot_component: Array
    costs: Array
    is_count: Array


class Sight(NamedTuple):
    """What a schedule that watches the chains sees of an epoch.

    Attributes
    ----------
    values
        All latent scalars at its end, ``[R, C]``.
    outputs
        All outputs there, ``[K, C]``.
    course
        Number, means and sums of squared deviations of the outputs of each chain in its course,
        ``[K, C]``.
    jumps
        Squared jumps of each slot over all moves and chains, in units of the schedule, ``[L]``.
    tries
        Moves of each slot over all chains, ``[L]``.
    num_warmup
        Epochs of the whole warm-up; 0 if nobody knows.
    anatomy
        What entries move.
    """

    values: Array
    outputs: Array
    course: Any
    jumps: Array
    tries: Array
    num_warmup: Array
    anatomy: Anatomy
