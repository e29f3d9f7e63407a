"""Names for the arrays and callables that every module speaks of.

Dimension letters used in comments: S superchains, C chains of a superchain, N components, K scalar
outputs, T terms, E steps of an epoch.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

Array = jax.Array
Key = jax.Array
Position = dict[str, Array]
Model = Callable[..., Any]
Values = Mapping[str, Array]


class Chains(NamedTuple):
    """The chains of one superchain; the chain is the last axis of every array.

    Attributes
    ----------
    position
        Values of the latent sites, flat: one array ``[rows, C]`` for each dtype.
    log_terms
        Log-probability of every term at ``position``, ``[T, C]``.
    outputs
        Values of the outputs at ``position``, flat, as ``position``.
    """

    position: dict[str, Array]
    log_terms: Array
    outputs: dict[str, Array]


class StepInfo(NamedTuple):
    """What an observer learns from one step of a superchain.

    Attributes
    ----------
    is_accepted
        Whether each chain took its proposal, ``[C]``.
    is_invalid
        Whether the proposal's density was NaN or +inf (such a proposal is never taken), ``[C]``.
    log_ratio
        Logarithm of the ratio of eq. 6, ``[C]``.
    changed
        Which outputs changed, ``[K, C]``.
    """

    is_accepted: Array
    is_invalid: Array
    log_ratio: Array
    changed: Array


class EpochLog(NamedTuple):
    """The log of one epoch, from which a schedule computes rewards.

    Attributes
    ----------
    components
        The component selected at each step, ``[E]``; -1 where no step was made.
    is_accepted
        ``[E, C]``.
    changed
        ``[E, K, C]``; an output changes only if its proposal was accepted.
    """

    components: Array
    is_accepted: Array
    changed: Array
