"""A race of schedules: theory proposes weights, and what the chains do with them decides.

Each candidate runs for a stretch. What counts is, of each output, the variance *between* the means
of the chains over the variance *within* chains: for a stretch much longer than the memory of the
output it is the asymptotic variance in units of the output's variance, up to a factor that all
candidates share; for a shorter one it still falls as chains move faster.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from adlmh_jax.statistics import Moments, merge_moments
from adlmh_jax.types import Array, Sizes, as_array, float_type

SHARES = (0.1, 0.3, 0.5, 0.7, 1.0)  # of uniform among the candidates; the safest is the last
NUM_CANDIDATES = 1 + len(SHARES)  # the first are UCB's weights
MIN_LOOKS = 16  # at the outputs in a stretch: after fewer nothing is decided
MIN_COURSES = 16  # whose means are compared: fewer chains are cut into parts
TOLERANCE = 0.05  # by which a score may be worse than the best one to count as equal
WORST = 1e6  # what is measured of an output that no chain moved
STUCK = 10.0  # more than that: the stretch is much shorter than the memory of the output


class Race(NamedTuple):
    """How far a race is.

    Attributes
    ----------
    candidates
        The weights that race, ``[candidate, M]``.
    ratios
        What was measured of each output in the stretches so far, ``[candidate, K]``.
    courses
        Moments of the outputs in the parts of the present stretch, ``[P, K, C]``; the numbers are
        ``[P, 1, 1]``.
    """

    candidates: Array
    ratios: Array
    courses: Moments


def init_race(sizes: Sizes) -> Race:
    """Return a race that has not begun."""
    num_parts = -(-MIN_COURSES // sizes.num_chains)
    shape = (num_parts, sizes.num_outputs, sizes.num_chains)

    def zeros(*shape: int) -> Array:
        return as_array(np.zeros(shape), float_type())

    return Race(
        candidates=zeros(NUM_CANDIDATES, sizes.num_entries),
        ratios=zeros(NUM_CANDIDATES, sizes.num_outputs),
        courses=Moments(zeros(num_parts, 1, 1), zeros(*shape), zeros(*shape)),
    )


def follow(courses: Moments, course: Moments, part: Array) -> Moments:
    """Take in how the outputs went in an epoch, in the given part of the stretch."""
    is_part = (jnp.arange(courses.number.shape[0]) == part)[:, None, None]
    number = course.number * is_part
    new = Moments(number, course.mean[None], course.squares * is_part)
    return merge_moments(courses, new)


def measure(courses: Moments) -> Array:
    """Return the variance between courses over that within them, of each output, ``[K]``."""
    number = courses.number
    is_seen = number > 0
    num_courses = jnp.maximum(jnp.sum(is_seen) * courses.mean.shape[2], 2)
    mean = jnp.sum(courses.mean * is_seen, axis=(0, 2), keepdims=True) / num_courses
    between = jnp.sum((courses.mean - mean) ** 2 * is_seen, axis=(0, 2)) / (num_courses - 1)
    within = jnp.sum(courses.squares, axis=(0, 2)) / (jnp.sum(number) * courses.mean.shape[2])
    ratios = between / jnp.maximum(within, between / WORST)
    return jnp.where(between > 0.0, jnp.minimum(ratios, WORST), 0.0)  # a NaN is no evidence


def judge(ratios: Array) -> Array:
    """Return the scores of candidates: the root mean square of what was measured, ``[candidate]``.

    The worst outputs count most. Those that no candidate moves, because its chains sit in different
    modes, say, would drown the others and are left out.
    """
    is_stuck = jnp.min(ratios, axis=0) > STUCK
    is_left = ~is_stuck | jnp.all(is_stuck)
    return jnp.sqrt(jnp.sum(jnp.where(is_left, ratios, 0.0) ** 2, axis=1) / jnp.sum(is_left))


def decide(scores: Array) -> Array:
    """Return the number of the winner: the last one that is about as good as the best."""
    is_good = scores <= jnp.min(scores) * (1.0 + TOLERANCE)
    return jnp.max(jnp.where(is_good, jnp.arange(scores.size), 0))
