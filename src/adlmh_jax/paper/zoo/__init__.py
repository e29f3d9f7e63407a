"""The paper's case studies: models, data and what is known of the answers; no sampler."""

from collections.abc import Callable

from adlmh_jax.paper.zoo.gp import gp
from adlmh_jax.paper.zoo.hmm import hmm
from adlmh_jax.paper.zoo.iris import iris, leave_two_out
from adlmh_jax.paper.zoo.kalman import kalman
from adlmh_jax.paper.zoo.problem import Problem, Truth
from adlmh_jax.paper.zoo.small import lemma, lemma_equilibrium, three_variables, two_variables

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "hmm": hmm,
    "gp": gp,
    "iris": iris,
    "kalman": kalman,
    "two_variables": two_variables,
    "three_variables": three_variables,
    "lemma": lemma,
}

__all__ = [
    "PROBLEMS",
    "Problem",
    "Truth",
    "gp",
    "hmm",
    "iris",
    "kalman",
    "leave_two_out",
    "lemma",
    "lemma_equilibrium",
    "three_variables",
    "two_variables",
]
