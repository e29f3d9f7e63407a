"""The production `move` against exact transition matrices."""

import jax
import numpy as np
import pytest
from exact import (
    PROGRAMS,
    check_balance,
    check_decisions,
    check_reaches_everything,
    prepare,
    transition_matrix,
)

each_program = pytest.mark.parametrize("discrete", PROGRAMS, ids=lambda p: p.name)


def random_weights(exact, seed=0):
    weights = np.random.default_rng(seed).dirichlet(np.ones(exact.program.num_components))
    return lambda state: weights


@each_program
@pytest.mark.parametrize("use_x64", [False, True], ids=["float32", "float64"])
def test_transition_matrix_keeps_posterior(discrete, use_x64):
    with jax.enable_x64(use_x64):
        exact = prepare(discrete)
        check_balance(exact, transition_matrix(exact, random_weights(exact)))


@each_program
def test_tempered_matrix_keeps_tempered_posterior(discrete):
    exact = prepare(discrete, beta=0.3)
    check_balance(exact, transition_matrix(exact, random_weights(exact)))


@each_program
def test_every_state_is_reached(discrete):
    check_reaches_everything(prepare(discrete))


@pytest.mark.parametrize("discrete", PROGRAMS[:3], ids=lambda p: p.name)
def test_accepts_with_the_right_probability(discrete):
    check_decisions(prepare(discrete))


def test_state_dependent_weights_need_their_ratio():
    """Weights that depend on the state break balance: the check sees a missing alpha ratio."""
    exact = prepare(PROGRAMS[0])

    def alpha(state):
        weights = np.array([2.0 + state[1], 1.0, 1.0 + 2.0 * state[0]])
        return weights / weights.sum()

    with pytest.raises(AssertionError):
        check_balance(exact, transition_matrix(exact, alpha))
