"""The annealed start: the chains of a superchain as particles on their way from prior to posterior.

The weight beta of the data's terms is raised from 0 to 1. At each rung particles are weighted by
how well they explain the data, resampled, and moved by ordinary steps at the new beta until they
have forgotten where they were. The product of the mean weights estimates the evidence (sequential
Monte Carlo samplers: Del Moral, Doucet and Jasra 2006; rungs by effective size: Jasra et al. 2011).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp

from adlmh_jax.engine.step import locate_walks
from adlmh_jax.graph import Rows
from adlmh_jax.moves import Kernel, KernelData
from adlmh_jax.proposals import Walks, forget, watch
from adlmh_jax.types import Array, Chains, Key, float_type

MIN_PARTICLES = 16  # fewer say too little about the next rung
MIN_ROUNDS = 4  # that annealing may take, or it is not worth beginning
# Of the particles' effective size, from rung to rung; the first that there is time for. With 0.5,
# 5 of 24 superchains came to a mixture's modes so late that some of their chains were left outside;
# with 0.9 none did, and the estimates of the evidence spread by 1 instead of 6.
KEPT_SIZES = (0.9, 0.8, 0.7, 0.6, 0.5)
MAX_MEMORY = 0.1  # squared correlation with the place where particles were resampled
MAX_WAIT = 1 / 8  # of what is left of the rounds, for one rung
NUM_HALVINGS = 40  # of the interval in which the next beta is sought
WALK_SHARE = 0.5  # of the steps that walks of several sites get


class Annealing(NamedTuple):
    """How far a superchain is on its way to the posterior.

    Attributes
    ----------
    beta
        By how much the terms of the data count; 1 when it is there.
    log_evidence
        Logarithm of the estimate so far; NaN if there is none.
    num_rungs, num_waited, num_rounds
        Values of beta so far, rounds at the present one, and rounds on the way.
    reference
        What the particles were like when they were resampled, ``[features, C]``.
    """

    beta: Array
    log_evidence: Array
    num_rungs: Array
    num_waited: Array
    num_rounds: Array
    reference: Array


class Particles(NamedTuple):
    """What annealing changes of a superchain."""

    chains: Chains
    walks: Walks
    annealing: Annealing


class Way(NamedTuple):
    """What annealing knows of the program: its moves, and where the terms of the data are."""

    kernel: Kernel
    data: KernelData
    likelihood: Rows

    def log_likelihood(self, chains: Chains) -> Array:
        """Return the sum of the data's terms, ``[C]``; -inf where it is not finite."""
        rows = [chains.log_terms[at : at + size] for _, at, size in self.likelihood]
        total = sum((jnp.sum(r, axis=0) for r in rows), start=jnp.zeros(chains.log_terms.shape[-1]))
        return jnp.where(jnp.isfinite(total), total, -jnp.inf)

    def features(self, chains: Chains) -> Array:
        """Return what the memory of particles is judged by, ``[features, C]``."""
        free = locate_walks(self.kernel, self.data, chains)
        return jnp.concatenate(
            [free.reshape(-1, free.shape[-1]), self.log_likelihood(chains)[None]]
        )


def init_annealing(way: Way, chains: Chains, beta: Any, log_evidence: Any) -> Annealing:
    """Start at a beta, which is raised at once if it is not 1."""
    shape = jax.eval_shape(way.features, chains)
    return Annealing(
        beta=jnp.asarray(beta, float_type()),
        log_evidence=jnp.asarray(log_evidence, float_type()),
        num_rungs=jnp.int32(0),
        num_waited=jnp.int32(0),
        num_rounds=jnp.int32(0),
        reference=jnp.zeros(shape.shape, shape.dtype),
    )


def anneal(way: Way, key: Key, rounds_left: Array, particles: Particles) -> Particles:
    """Climb to the next rung if the particles are ready for it; at beta = 1 do nothing.

    Parameters
    ----------
    way
        The program.
    key
        Of this look.
    rounds_left
        Until beta must be 1.
    particles
        The superchain.
    """

    def look(particles: Particles) -> Particles:
        annealing = particles.annealing
        is_due = (
            (annealing.num_rungs == 0)
            | (annealing.num_waited >= jnp.floor(rounds_left * MAX_WAIT))
            | ~remembers(annealing.reference, way.features(particles.chains))
        )
        waiting = annealing._replace(num_waited=annealing.num_waited + 1)
        particles = particles._replace(annealing=waiting)
        particles = _once_if(is_due, lambda p: climb(way, key, rounds_left, p), particles)
        annealing = particles.annealing
        num_rounds = annealing.num_rounds + (annealing.beta < 1.0)
        return particles._replace(annealing=annealing._replace(num_rounds=num_rounds))

    # Loops of zero or one turns: unlike conditionals they leave the chains in place.
    return _once_if(particles.annealing.beta < 1.0, look, particles)


def _once_if(
    condition: Array, run: Callable[[Particles], Particles], carry: Particles
) -> Particles:
    return lax.fori_loop(0, condition.astype(jnp.int32), lambda _, c: run(c), carry)


def climb(way: Way, key: Key, rounds_left: Array, particles: Particles) -> Particles:
    """Raise beta, weigh the particles, and resample them."""
    chains, walks, annealing = particles
    log_likelihood = way.log_likelihood(chains)
    left = 1.0 - annealing.beta
    step = jnp.where(rounds_left <= 0, left, choose_step(log_likelihood, annealing, rounds_left))
    log_weights = step * log_likelihood
    ancestors = resample(key, log_weights)
    chains = jax.tree.map(lambda leaf: leaf[..., ancestors], chains)
    free = locate_walks(way.kernel, way.data, chains)
    return Particles(
        chains=chains,
        walks=watch(forget(walks), free, way.data.traits.walk_dimensions),
        annealing=Annealing(
            beta=jnp.where(step >= left, 1.0, annealing.beta + step),
            log_evidence=annealing.log_evidence + log_mean(log_weights),
            num_rungs=annealing.num_rungs + 1,
            num_waited=jnp.int32(0),
            num_rounds=annealing.num_rounds,
            reference=way.features(chains),
        ),
    )


def choose_step(log_likelihood: Array, annealing: Annealing, rounds_left: Array) -> Array:
    """Return by how much to raise beta: by the finest step for which there is time.

    Steps grow with beta; it is taken that each raises it by the same ratio, and that a rung takes
    as many rounds as those before.
    """
    beta, sizes = annealing.beta, jnp.asarray(KEPT_SIZES, annealing.beta.dtype)
    steps = jax.vmap(lambda kept: next_step(log_likelihood, 1.0 - beta, kept))(sizes)
    is_first = beta <= 0.0
    growths = jnp.log1p(steps / jnp.where(is_first, 1.0, beta))
    num_left = jnp.where(is_first, 0.0, -jnp.log(jnp.where(is_first, 1.0, beta)) / growths)
    pace = (annealing.num_rounds + 1.0) / (annealing.num_rungs + 1.0)
    has_time = (num_left * pace <= rounds_left).at[-1].set(True)
    return steps[jnp.argmax(has_time)]


def next_step(log_likelihood: Array, left: Array, kept_size: Array | float) -> Array:
    """Return by how much beta can be raised while a part of the effective size is kept."""
    min_size = kept_size * log_likelihood.size

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        is_fine = effective_size(middle * log_likelihood) >= min_size
        return jnp.where(is_fine, middle, low), jnp.where(is_fine, high, middle)

    is_all_fine = effective_size(left * log_likelihood) >= min_size
    # The upper end: it is never zero.
    high = lax.fori_loop(0, NUM_HALVINGS, halve, (jnp.zeros_like(left), left))[1]
    return jnp.where(is_all_fine, left, high)


def effective_size(log_weights: Array) -> Array:
    """Return (sum w)^2 / sum w^2."""
    return jnp.exp(2.0 * logsumexp(log_weights) - logsumexp(2.0 * log_weights))


def log_mean(log_weights: Array) -> Array:
    """Return the logarithm of the mean weight."""
    return logsumexp(log_weights) - jnp.log(jnp.asarray(log_weights.size, log_weights.dtype))


def resample(key: Key, log_weights: Array) -> Array:
    """Return systematic draws of particles by their weights: numbers of the ancestors, ``[C]``."""
    size = log_weights.size
    upper = jnp.cumsum(jnp.exp(log_weights - jnp.max(log_weights)))
    start = jax.random.uniform(key, (), log_weights.dtype)
    places = (jnp.arange(size) + start) / size * upper[-1]
    chosen = jnp.searchsorted(upper, places, side="right")
    return jnp.minimum(chosen, jnp.sum(upper < upper[-1]))


def remembers(before: Array, now: Array) -> Array:
    """Whether particles still know where they were: by the mean squared correlation of features."""
    size = now.shape[-1]
    apart = [f - jnp.mean(f, axis=-1, keepdims=True) for f in (before, now)]
    covariance = jnp.mean(apart[0] * apart[1], axis=-1)
    variances = jnp.mean(apart[0] ** 2, axis=-1) * jnp.mean(apart[1] ** 2, axis=-1)
    is_known = jnp.isfinite(variances) & (variances > 0.0)
    squares = jnp.where(is_known, covariance**2 / jnp.where(is_known, variances, 1.0), 0.0)
    # Independent particles have a squared correlation of 1 / size on average.
    return jnp.sum(squares) > (MAX_MEMORY + 1.0 / size) * jnp.sum(is_known)


def annealing_weights(kernel: Kernel) -> Array:
    """Return the selection probabilities on the way: walks have half of the steps, ``[M]``."""
    num_walks, num_others = len(kernel.walks), kernel.num_entries - len(kernel.walks)
    share = WALK_SHARE if num_walks and num_others else float(num_walks > 0)
    weights = np.full(kernel.num_entries, (1.0 - share) / max(1, num_others), float_type())
    weights[[entry for entry, _ in kernel.walks]] = share / max(1, num_walks)
    return jnp.asarray(weights)
