"""What a schedule is: a rule by which the entry to move is selected.

A schedule sees sizes and arrays, never a model. To add one, write a factory that returns a
`Schedule` in a file of its own, and export it.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from adlmh_jax.types import Array, EpochLog, Sight, Sizes

FLOOR = 0.1  # alpha_k >= 0.1 / M: the ergodicity condition alpha_k > eps, by construction


class Watch(NamedTuple):
    """How a schedule learns from where the chains are: as pure functions.

    Attributes
    ----------
    learn
        ``(state, sight) -> state``, after an epoch of warm-up.
    units
        ``state ->`` the numbers by which jumps of the latent scalars are divided, ``[R]``.
    weights
        ``state -> alpha``, the selection probabilities while it learns, ``[M]``.
    report
        ``state -> dict`` of what was learned apart from what each entry is worth, by name.
    """

    learn: Callable[[Any, Sight], Any]
    units: Callable[[Any], Array]
    weights: Callable[[Any], Array]
    report: Callable[[Any], dict[str, Array]]


class Schedule(NamedTuple):
    """A selection rule as pure functions.

    Attributes
    ----------
    init
        ``sizes -> state``. Numbers that the state carries along can change without a new
        compilation; those that the other functions know cannot.
    weights
        ``state -> alpha``, the selection probabilities ``[M]``.
    award
        ``(state, log) -> state``, after an epoch; None if the schedule never learns.
    report
        ``state -> dict`` of what was learned about each entry, ``[M, ...]``, by name.
    num_logged
        ``sizes ->`` how many of the chains the log covers.
    name
        For people.
    watch
        How it learns from where the chains are; None if it does not ask.
    """

    init: Callable[[Sizes], Any]
    weights: Callable[[Any], Array]
    award: Callable[[Any, EpochLog], Any] | None
    report: Callable[[Any], dict[str, Array]]
    num_logged: Callable[[Sizes], int]
    name: str
    watch: Watch | None = None


def apply_floor(alpha: Array) -> Array:
    """Raise small probabilities to the floor, at the expense of the others in proportion.

    Where none is below the floor, nothing changes.
    """
    floor = FLOOR / alpha.size
    above = jnp.maximum(alpha, floor) - floor
    return floor + above * ((1.0 - FLOOR) / jnp.sum(above))


def select(words: Array, alpha: Array) -> Array:
    """Choose entries with probabilities ``alpha`` (eq. 5), one for each random word."""
    upper = jnp.cumsum(alpha)
    uniforms = words.astype(alpha.dtype) * 2.0**-32
    chosen = jnp.searchsorted(upper, uniforms * upper[-1], side="right")
    return jnp.minimum(chosen, alpha.size - 1).astype(jnp.int32)


def rule_of(schedule: Schedule) -> Schedule:
    """Return what is compiled of a schedule: the same for all that differ in how they start."""
    return schedule._replace(init=no_start, name="")


def no_start(sizes: Sizes) -> Any:
    """Refuse to start: the rule of a schedule is no schedule yet."""
    raise TypeError("The rule of a schedule has no start.")


@functools.cache
def restrict(schedule: Schedule, entries: tuple[int, ...], num_entries: int) -> Schedule:
    """Return the schedule of some of the entries; the others have weight zero."""
    if len(entries) == num_entries:
        return schedule
    chosen = np.array(entries, np.int32)
    number_of = np.full(num_entries, len(entries), np.int32)  # of the others: one that is dropped
    number_of[chosen] = np.arange(len(entries))

    def award(state: Any, log: EpochLog) -> Any:
        numbers = jnp.where(log.entries < 0, -1, jnp.asarray(number_of)[log.entries])
        return schedule.award(state, log._replace(entries=numbers)) if schedule.award else state

    def spread(array: Array) -> Array:
        return jnp.zeros((num_entries, *array.shape[1:]), array.dtype).at[chosen].set(array)

    def fewer(sizes: Sizes) -> Sizes:
        base = sizes.base[chosen]
        return sizes._replace(num_entries=len(entries), base=base / np.sum(base))

    def restrict_watch(watch: Watch) -> Watch:
        def learn(state: Any, sight: Sight) -> Any:
            anatomy = sight.anatomy
            anatomy = anatomy._replace(
                entry_of=jnp.asarray(number_of)[anatomy.entry_of], costs=anatomy.costs[chosen]
            )
            return watch.learn(state, sight._replace(anatomy=anatomy))

        return watch._replace(learn=learn, weights=lambda state: spread(watch.weights(state)))

    return schedule._replace(
        init=lambda sizes: schedule.init(fewer(sizes)),
        weights=lambda state: spread(schedule.weights(state)),
        award=schedule.award and award,
        report=lambda state: {name: spread(a) for name, a in schedule.report(state).items()},
        num_logged=lambda sizes: schedule.num_logged(fewer(sizes)),
        watch=restrict_watch(schedule.watch) if schedule.watch else None,
    )
