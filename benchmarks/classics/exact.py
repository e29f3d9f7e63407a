"""Exact answers: weighted moments, grids that hold a posterior, forward and backward recursions.

The trapezoidal rule converges faster than any power of the step for smooth densities that vanish
at both ends, so positive numbers get a grid on the log scale and probabilities one on the logit
scale, with the log Jacobian among the weights.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from benchmarks.classics.case import Moments

MAX_EDGE = 1e-9  # of the posterior may lie on the edges of a grid


class Axis(NamedTuple):
    """Points of a grid in one dimension, and the log weight of each, up to a constant."""

    points: np.ndarray
    log_weights: np.ndarray


def real_axis(low, high, num):
    """Return equally spaced real numbers."""
    return Axis(np.linspace(low, high, num), np.zeros(num))


def positive_axis(low, high, num):
    """Return positive numbers, equally spaced on the log scale."""
    logs = np.linspace(np.log(low), np.log(high), num)
    return Axis(np.exp(logs), logs)


def unit_axis(low, high, num):
    """Return probabilities, equally spaced on the logit scale."""
    logits = np.linspace(np.log(low / (1 - low)), np.log(high / (1 - high)), num)
    points = expit(logits)
    return Axis(points, np.log(points) + np.log1p(-points))


def mesh(*axes):
    """Return the points of a grid, one array for each axis, and the sum of their log weights."""
    points = np.meshgrid(*(axis.points for axis in axes), indexing="ij")
    logs = np.meshgrid(*(axis.log_weights for axis in axes), indexing="ij")
    return *points, sum(logs)


def normalise(log_weights):
    """Return weights that sum to 1."""
    return np.exp(log_weights - logsumexp(log_weights))


def normalise_on_grid(log_weights, num_axes=None):
    """Return weights that sum to 1, having checked that the first axes hold the posterior."""
    weights = normalise(log_weights)
    axes = range(weights.ndim if num_axes is None else num_axes)
    edges = [weights.take(end, axis=axis).sum() for axis in axes for end in (0, -1)]
    if not max(edges) < MAX_EDGE:
        raise ValueError(f"The grid is too small: its edges have the weights {edges}.")
    return weights


def moments(weights, mean, variance=0.0):
    """Return the moments of a quantity from its conditional mean and variance at each point.

    For the kurtosis alone, it counts as normal given the point.
    """
    total = np.sum(weights * mean)
    square = np.square(np.asarray(mean) - total)
    second = np.sum(weights * (square + variance))
    fourth = np.sum(weights * (square**2 + 6 * square * variance + 3 * np.square(variance)))
    return Moments(float(total), float(np.sqrt(second)), float(fourth / second**2))


def binary_moments(weights, probability):
    """Return the moments of a number that is 0 or 1 from its probability at each point."""
    chance = np.sum(weights * probability)
    return moments(np.array([1 - chance, chance]), np.array([0.0, 1.0]))


class Smoothed(NamedTuple):
    """What the forward and backward recursions of a Markov chain give.

    Attributes
    ----------
    log_likelihood
        Of all observations, ``[...]``.
    marginals
        Of the states at each time, ``[times, ..., values]``.
    """

    log_likelihood: np.ndarray
    marginals: np.ndarray


def smooth(initial, transition, log_emissions):
    """Run forward and backward over a chain whose emissions depend on parameters.

    Parameters
    ----------
    initial, transition
        Of the states, ``[values]`` and ``[values, values]``; rows say where a state goes.
    log_emissions
        ``[times, ..., values]``; what lies between are points of a grid.
    """
    highest = log_emissions.max(axis=-1, keepdims=True)
    emissions = np.exp(log_emissions - highest)
    forward = np.empty_like(emissions)
    backward = np.ones_like(emissions)
    log_likelihood = highest[..., 0].sum(axis=0)
    predicted = initial
    for time, emission in enumerate(emissions):
        joint = predicted * emission
        total = joint.sum(axis=-1, keepdims=True)
        forward[time] = joint / total
        log_likelihood = log_likelihood + np.log(total[..., 0])
        predicted = forward[time] @ transition
    for time in range(len(emissions) - 1, 0, -1):
        message = (backward[time] * emissions[time]) @ transition.T
        backward[time - 1] = message / message.sum(axis=-1, keepdims=True)
    marginals = forward * backward
    return Smoothed(log_likelihood, marginals / marginals.sum(axis=-1, keepdims=True))
