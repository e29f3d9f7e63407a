"""Hidden Markov model with three states, predicting the first and the last one (section 5)."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from adlmh_jax.paper.zoo.problem import Problem, Truth

_OBSERVATIONS = {
    "paper": (0.9, 0.8, 0.7, 0, -0.025, 5, 2, 0.1, 0, 0.13, 0.45, 6, 0.2, 0.3, -1, -1),
    "authors": (0.9, 0.8, 0.7, 0, -0.025, -5, -2, -0.1, 0, 0.13, 0.45, 6, 0.2, 0.3, -1, -1),
}
_INITIAL = (1 / 3, 1 / 3, 1 / 3)
_TRANSITION = ((0.1, 0.5, 0.4), (0.2, 0.2, 0.6), (0.15, 0.15, 0.7))
_MEANS = (-1.0, 1.0, 0.0)

_REFERENCE = {
    "observations": "Printed in section 5; the authors' program has -5, -2 and -0.1 where the "
    "paper prints 5, 2 and 0.1 (variant `authors`).",
    "observation variance": "1.0, printed in section 5.",
    "initial": "Called known in section 5; uniform in the authors' program.",
    "transition": "Called known in section 5; the rows are those of the authors' program.",
    "means": "Not in the paper; -1, 1 and 0 in the authors' program.",
    "states": "Section 5 counts 18 choices and predicts states 0 and 17: states 1 to 16 are "
    "observed, 17 is one more transition.",
    "truth": "Forward-backward algorithm, computed here in float64.",
}


def hmm_model(observations: Any, initial: Any, transition: Any, means: Any) -> None:
    """Hidden Markov model whose every state is a site of its own.

    States 1 .. len(observations) are observed with unit variance; state 0 comes before the first
    observation, and one more state follows the last.
    """
    initial, transition, means = map(jnp.asarray, (initial, transition, means))
    state = numpyro.sample("state_0", dist.Categorical(probs=initial))
    for time, observation in enumerate(observations, start=1):
        state = numpyro.sample(f"state_{time}", dist.Categorical(probs=transition[state]))
        numpyro.sample(f"obs_{time}", dist.Normal(means[state], 1.0), obs=observation)
    numpyro.sample(f"state_{len(observations) + 1}", dist.Categorical(probs=transition[state]))


def forward_backward(
    initial: np.ndarray, transition: np.ndarray, log_likelihood: np.ndarray
) -> np.ndarray:
    """Posterior marginals of the states of a Markov chain.

    Parameters
    ----------
    initial
        Distribution of state 0, ``[values]``.
    transition
        Row i is the distribution of the state that follows state i, ``[values, values]``.
    log_likelihood
        Of each value at each time, ``[times, values]``; zero where nothing is observed.

    Returns
    -------
    np.ndarray
        ``[times, values]``; every row sums to 1.
    """
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=-1, keepdims=True))
    forward = np.empty_like(likelihood)
    backward = np.ones_like(likelihood)
    predicted = initial
    for time in range(len(likelihood)):
        forward[time] = _normalised(predicted * likelihood[time])
        predicted = forward[time] @ transition
    for time in range(len(likelihood) - 1, 0, -1):
        backward[time - 1] = _normalised(transition @ (likelihood[time] * backward[time]))
    return _normalised(forward * backward)


def _normalised(weights: np.ndarray) -> np.ndarray:
    """Divide by the sum over the last axis."""
    return weights / weights.sum(axis=-1, keepdims=True)


def hmm_marginals(
    observations: np.ndarray, initial: np.ndarray, transition: np.ndarray, means: np.ndarray
) -> np.ndarray:
    """Posterior marginals ``[states, values]`` of all states of `hmm_model`."""
    log_likelihood = np.zeros((len(observations) + 2, len(means)))
    log_likelihood[1:-1] = -0.5 * np.square(observations[:, None] - means)
    return forward_backward(initial, transition, log_likelihood)


def _truth(*args: np.ndarray) -> Truth:
    """Marginals of the first and the last state."""
    probabilities = hmm_marginals(*args)[[0, -1]]
    values = np.arange(probabilities.shape[-1])
    mean = probabilities @ values
    return Truth(mean, np.sqrt(probabilities @ values**2 - mean**2), probabilities)


def hmm(observations: str = "paper", length: int = 18) -> Problem:
    """Hidden Markov model, predicting its first and last state.

    Parameters
    ----------
    observations
        ``"paper"`` as printed, or ``"authors"`` as in the authors' program.
    length
        Number of states. Beyond 18 the 16 observations are repeated, for benchmarks.
    """
    if observations not in _OBSERVATIONS:
        raise ValueError(
            f"`observations` must be one of {sorted(_OBSERVATIONS)}; got `{observations}`."
        )
    if length < 3:
        raise ValueError(f"`length` must be at least 3, for one observed state; got {length}.")
    args = (
        np.resize(np.array(_OBSERVATIONS[observations], dtype=np.float64), length - 2),
        np.array(_INITIAL),
        np.array(_TRANSITION),
        np.array(_MEANS),
    )
    return Problem(
        name="hmm" if (observations, length) == ("paper", 18) else f"hmm-{observations}-{length}",
        model=hmm_model,
        args=args,
        outputs=("state_0", f"state_{length - 1}"),
        distance="kl",
        reference=_REFERENCE,
        truth=functools.cache(functools.partial(_truth, *args)),
    )
