"""Deliberate errors in the sampler: each must be caught by the checks of the other tests."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from algorithm3 import UCB, check_against_algorithm_3
from exact import (
    PROGRAMS,
    DiscreteProgram,
    check_balance,
    check_decisions,
    check_reaches_everything,
    prepare,
    transition_matrix,
)

from adlmh_jax.engine import entry, step
from adlmh_jax.model import compile as compiling
from adlmh_jax.model import touches
from adlmh_jax.moves import branch as branches
from adlmh_jax.moves import entries, metropolis, scope
from adlmh_jax.types import Chains

BY_NAME = {discrete.name: discrete for discrete in PROGRAMS}


def check_program(name, beta=1.0):
    exact = prepare(BY_NAME[name], beta=beta)
    weights = np.random.default_rng(0).dirichlet(np.ones(exact.program.num_components))
    check_balance(exact, transition_matrix(exact, lambda state: weights))


def check_chain_decisions():
    check_decisions(prepare(BY_NAME["chain"]))


def not_a_number():
    a = numpyro.sample("a", dist.Categorical(jnp.array([0.3, 0.3, 0.4])))
    numpyro.factor("hole", jnp.where(a == 2, jnp.nan, 0.0))


def check_nan_is_rejected():
    """A NaN density is never accepted, and is counted."""
    exact = prepare(DiscreteProgram("hole", not_a_number, {"a": (0, 1)}))
    words = np.random.default_rng(0).integers(0, 2**32, (exact.kernel.num_words, 64), np.uint32)
    words[0] = 0
    start = exact.program.chains_at({"a": jnp.zeros(64, jnp.int32)})
    chains, _, counts = step.move(exact.kernel, exact.data, jnp.asarray(words), start, 0)
    assert not np.any(chains.latent["int32"] == 2)
    assert 0 < counts.invalid[0] < 64


def no_q_correction(patch):
    def ratio(branch, *others):
        return jnp.zeros(branch.site.batch_shape)

    patch.setattr(metropolis, "log_q_ratio", ratio)


def q_from_scaled_terms(patch):
    real = branches.cut_branch

    def cut(traced, *others, **options):
        traced = traced.__class__(**{**vars(traced), "priors": traced.terms})
        return real(traced, *others, **options)

    patch.setattr(entries, "cut_branch", cut)


def drop_terms(is_dropped):
    def mutate(patch):
        real = touches.find_touches

        def find(traced, sites):
            found = real(traced, sites)
            return {
                site: touches.__class__(
                    tuple(t for t in touches.terms if not is_dropped(site, t)),
                    touches.outputs,
                    touches.redraws,
                )
                for site, touches in found.items()
            }

        patch.setattr(compiling, "find_touches", find)

    return mutate


def accept_too_often(patch):
    real = metropolis.log_uniform
    patch.setattr(metropolis, "log_uniform", lambda words: real(words) - np.log(1.001))


def wrong_element(patch):
    real = scope.SingleElement.put

    def put(self, old, new):
        element = (self.element + 1) % self.branch.site.num_components
        return real(scope.SingleElement(self.branch, self.words, element, self.pace), old, new)

    patch.setattr(scope.SingleElement, "put", put)


def stale_terms(patch):
    real = entry.EntryView.move

    def move(self, words, chains, *others):
        moved, *rest = real(self, words, chains, *others)
        return Chains(moved.latent, chains.log_terms, moved.outputs), *rest

    patch.setattr(entry.EntryView, "move", move)


def accept_nan(patch):
    patch.setattr(metropolis.jnp, "isnan", lambda x: jnp.zeros(jnp.shape(x), bool))
    patch.setattr(metropolis, "log_uniform", NotGreater)


class NotGreater:
    """A comparison the wrong way round: ``not (u >= ratio)`` is true for NaN."""

    def __init__(self, words):
        self.uniform = jnp.log(metropolis.to_uniform(words))

    def __lt__(self, ratio):
        return ~(self.uniform >= ratio)


def redraw_without_ratio(patch):
    real = metropolis._redraw

    def redraw(branch, new, old, must_finish):
        return real(branch, new, old, must_finish)[0], jnp.zeros(())

    patch.setattr(metropolis, "_redraw", redraw)


def never_redraw(patch):
    real = touches._redraws
    patch.setattr(touches, "_redraws", lambda *args: dict.fromkeys(real(*args), ()))


def history_not_flushed(patch):
    real = UCB.propagate_rewards

    def propagate(history, log):
        rewards, penalties, _ = real(history, log)
        return rewards, penalties, history

    patch.setattr(UCB, "propagate_rewards", propagate)


def no_penalty(patch):
    real = UCB.propagate_rewards

    def propagate(history, log):
        rewards, penalties, new = real(history, log)
        return rewards, 0.0 * penalties, new

    patch.setattr(UCB, "propagate_rewards", propagate)


def temper_prior_too(patch):
    real = scope.compare

    def compare(scope, new, old):
        everything = dataclasses.replace(
            scope.branch, is_tempered=(True,) * len(scope.branch.is_tempered)
        )
        return real(dataclasses.replace(scope, branch=everything), new, old)

    patch.setattr(metropolis, "compare", compare)


def never_temper(patch):
    real = scope.compare

    def compare(scope, new, old):
        return real(dataclasses.replace(scope, pace=scope.pace._replace(beta=1.0)), new, old)

    patch.setattr(metropolis, "compare", compare)


MUTANTS = [
    (temper_prior_too, lambda: check_program("chain", beta=0.3)),
    (never_temper, lambda: check_program("chain", beta=0.3)),
    (no_q_correction, lambda: check_program("chain")),
    (q_from_scaled_terms, lambda: check_program("observed collider")),
    (drop_terms(lambda site, term: (site, term) == ("b", "c")), lambda: check_program("chain")),
    (drop_terms(lambda site, term: term.startswith("y")), lambda: check_program("chain")),
    (accept_too_often, check_chain_decisions),
    (wrong_element, lambda: check_program("plate and global")),
    (stale_terms, lambda: check_program("chain")),
    (accept_nan, check_nan_is_rejected),
    (redraw_without_ratio, lambda: check_program("shifting support")),
    (never_redraw, lambda: check_reaches_everything(prepare(BY_NAME["shifting support"]))),
    (history_not_flushed, check_against_algorithm_3),
    (no_penalty, check_against_algorithm_3),
]
IDS = [
    "prior tempered too",
    "data never tempered",
    "missing q-correction",
    "q from scaled terms",
    "child not rescored",
    "data ignored",
    "acceptance x 1.001",
    "wrong element updated",
    "stale term cache",
    "accept on NaN",
    "redraw without the ratio of eq. 4",
    "never redrawn",
    "history not flushed",
    "no penalty",
]


@pytest.mark.parametrize(("mutate", "check"), MUTANTS, ids=IDS)
def test_mutant_is_caught(mutate, check, monkeypatch):
    mutate(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        check()


@pytest.mark.parametrize("check", [check_nan_is_rejected, check_chain_decisions])
def test_original_passes(check):
    check()
