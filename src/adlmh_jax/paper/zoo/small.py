"""The paper's small examples: two programs of section 3.1 and the one of Lemma 1 (section 3.2)."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.optimize import brentq
from scipy.special import ndtr

from adlmh_jax.paper.zoo.problem import Problem, Truth

_REFERENCE = {
    "normal": "The second parameter of the paper's normal distribution is taken for the standard "
    "deviation, as it is in its logistic regression and in the authors' language.",
    "truth": "Worked by hand: everything is Gaussian or a mixture of two Gaussians.",
}


def two_variables_model() -> None:
    """x1 ~ Bernoulli(0.5), x2 ~ Normal(x1, 1); both are predicted."""
    x1 = numpyro.sample("x1", dist.Bernoulli(0.5))
    numpyro.sample("x2", dist.Normal(jnp.asarray(x1, dtype=float), 1.0))


def three_variables_model(y1: Any) -> None:
    """x1 ~ Normal(1, 10), x2 ~ Normal(x1, 1), y1 ~ Normal(x2, 1); x1 is predicted."""
    x1 = numpyro.sample("x1", dist.Normal(1.0, 10.0))
    x2 = numpyro.sample("x2", dist.Normal(x1, 1.0))
    numpyro.sample("y1", dist.Normal(x2, 1.0), obs=y1)


def lemma_model() -> None:
    """x1 and x2 are independent and unobserved; x1 alone is predicted.

    A prior proposal for either is always accepted, so beta_1 = beta_2 = 1; a new x1 always changes
    the output and a new x2 never does, so gamma_1 = 1 and gamma_2 = 0.
    """
    numpyro.sample("x1", dist.Normal(0.0, 1.0))
    numpyro.sample("x2", dist.Normal(0.0, 1.0))


def lemma_equilibrium(beta_1: float = 1.0, beta_2: float = 1.0) -> float:
    """Solve eq. 16 for the equilibrium of Lemma 1.

    Parameters
    ----------
    beta_1, beta_2
        Probabilities that a proposal for x1, which always changes the output, and for x2, which
        never does, is accepted.

    Returns
    -------
    float
        alpha_2 / alpha_1, more than 0 and at most 1/3.
    """
    if not (0.0 < beta_1 <= 1.0 and 0.0 < beta_2 <= 1.0):
        raise ValueError(
            "`beta_1` and `beta_2` must be probabilities greater than 0; "
            f"got {beta_1} and {beta_2}."
        )

    def excess(ratio: float) -> float:
        # Eq. 11, divided by alpha_1.
        return _unit_reward(beta_1 / (beta_1 + ratio * beta_2)) - ratio

    # The unit reward falls from 1/3 as x2 is selected more often.
    return float(brentq(excess, 0.0, 1.0 / 3.0))


def _unit_reward(p_1: float) -> float:
    """Return the expected unit reward of x2, B(p_1) in eq. 16."""
    if p_1 > 1.0 - 1e-6:  # B(1) = 1/3; its derivative there is 4/27
        return 1.0 / 3.0 - 4.0 / 27.0 * (1.0 - p_1)
    tail = p_1 * np.log(p_1) / (1.0 - p_1)
    return (1.0 + tail) / (1.0 / p_1 + tail)


def _normal_truth(mean: float, sd: float) -> Truth:
    """Truth of one normally distributed output."""
    scores = np.linspace(-8.0, 8.0, 2001)
    return Truth(np.array([mean]), np.array([sd]), grid=(mean + sd * scores,), cdf=(ndtr(scores),))


def two_variables() -> Problem:
    """Section 3.1's first example, a Bernoulli choice and a normal one, nothing observed.

    The paper's single output is the pair (x1, x2); as two outputs they are rewarded separately.
    """
    # The law of total variance: 1 within a value of x1, 1/4 between the two.
    truth = Truth(mean=np.array([0.5, 0.5]), sd=np.sqrt([0.25, 1.25]))
    return Problem(
        name="two_variables",
        model=two_variables_model,
        args=(),
        outputs=("x1", "x2"),
        distance="l2",
        reference=_REFERENCE,
        truth=lambda: truth,
    )


def three_variables() -> Problem:
    """Section 3.1's second example, whose output changes only with x1; y1 = 2 is observed."""
    precision = 1.0 / 100.0 + 1.0 / 2.0  # given x1, y1 has the variance 1 + 1
    mean = (1.0 / 100.0 + 2.0 / 2.0) / precision
    return Problem(
        name="three_variables",
        model=three_variables_model,
        args=(np.array(2.0),),
        outputs=("x1",),
        distance="ks",
        reference=_REFERENCE,
        truth=functools.cache(functools.partial(_normal_truth, mean, precision**-0.5)),
    )


def lemma() -> Problem:
    """Lemma 1's two variables; `lemma_equilibrium` gives the ratio of their selections."""
    return Problem(
        name="lemma",
        model=lemma_model,
        args=(),
        outputs=("x1",),
        distance="ks",
        reference=_REFERENCE,
        truth=functools.cache(functools.partial(_normal_truth, 0.0, 1.0)),
    )
