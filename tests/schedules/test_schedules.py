"""Algorithm 3 by hand, Lemma 1, and the floor."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm3 import SCRIPT, UCB, algorithm_3, check_against_algorithm_3, run_schedule, sizes_of
from jax import lax

from adlmh_jax import schedules
from adlmh_jax.engine.config import MAX_NUMBER, RunConfig
from adlmh_jax.paper.zoo import lemma_equilibrium
from adlmh_jax.schedules.base import apply_floor, select
from adlmh_jax.schedules.rewards import pool_outputs
from adlmh_jax.statistics.streaming import BATCH, init_moments, merge_moments
from adlmh_jax.statistics.tally import Tally, compensated, compensated_add, tally_add, tally_total
from adlmh_jax.types import EpochLog


def test_algorithm_3_by_hand():
    check_against_algorithm_3()
    rewards, counts, histories = algorithm_3(SCRIPT, 3, 2)
    # Output 0 changes at steps 1 (history 0 1), 5 (2 0 0) and 7 (2): shares 1/4, 1/6, 1/2.
    # Output 1 changes at steps 4 (0 1 2 0), 7 (0 2) and 9 (1 1): shares 1/8, 1/4, 1/4.
    f = Fraction
    assert rewards == [
        1 + f(1, 4) + 2 * f(1, 6) + 2 * f(1, 8) + f(1, 4),
        1 + f(1, 4) + f(1, 8) + 2 * f(1, 4),
        1 + f(1, 6) + f(1, 2) + f(1, 8) + f(1, 4),
    ]
    # Penalties: component 0 at step 0 (twice), 4 (output 0), 5 (output 1); 1 at 1, 8 (twice), 9;
    # 2 at step 3 (twice); each 1/2.
    penalties = [f(4, 2), f(4, 2), f(2, 2)]
    assert counts == [r + p for r, p in zip(rewards, penalties, strict=True)]
    assert histories == [[0, 2, 0], [0, 0, 0]]


@pytest.mark.parametrize("joint_output", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_random_logs_match_algorithm_3(seed, joint_output):
    """Several chains, random logs: sums over chains, whatever the epoch."""
    rng = np.random.default_rng(seed)
    num_components, num_outputs, num_chains, length = 5, 3, 4, 57
    picks = rng.integers(0, num_components, length)
    scripts = []
    for _ in range(num_chains):
        accepted = rng.random(length) < 0.6
        changed = (rng.random((length, num_outputs)) < 0.2) & accepted[:, None]
        steps = zip(picks, accepted, changed, strict=True)
        scripts.append([(int(p), bool(a), tuple(map(bool, c))) for p, a, c in steps])
    schedule = schedules.ucb(0.5, joint_output)
    rewards, counts = np.zeros(num_components), np.zeros(num_components)
    for script in scripts:
        if joint_output:
            one = [(p, a, (any(c),)) for p, a, c in script]
            r, c, _ = algorithm_3(one, num_components, 1)
        else:
            r, c, _ = algorithm_3(script, num_components, num_outputs)
        rewards += np.array(r, float) - 1
        counts += np.array(c, float) - 1
    for epoch in (1, 8, 64):
        state = run_schedule(scripts, num_components, num_outputs, epoch, schedule)
        np.testing.assert_allclose(state.rewards.value, 1 + rewards, rtol=1e-5)
        np.testing.assert_allclose(state.counts.value, 1 + counts, rtol=1e-5)


def test_ucb_weights_are_equation_17():
    schedule = schedules.ucb(0.5, False)
    state = run_schedule([SCRIPT], 3, 2, 1, schedule)
    r, c, _ = algorithm_3(SCRIPT, 3, 2)
    r, c = np.array(r, float), np.array(c, float)
    bound = r / c + 0.5 * np.sqrt(np.log(c.sum()) / c)
    np.testing.assert_allclose(schedule.weights(state), bound / bound.sum(), rtol=1e-5)


def simulate_lemma(beta, num_steps=4000, num_chains=256, seed=0):
    """Return alpha_2 / alpha_1 of two variables, only the first of which changes the output."""
    schedule = schedules.ucb(0.0, False)

    def step(state, key):
        key_pick, key_accept = jax.random.split(key)
        pick = select(jax.random.bits(key_pick, (1,)), schedule.weights(state))
        accepted = jax.random.uniform(key_accept, (1, num_chains)) < jnp.array(beta)[pick]
        changed = accepted[:, None, :] & (pick == 0)
        return schedule.award(state, EpochLog(pick, accepted, changed)), None

    state = schedule.init(sizes_of(2, 1, num_chains))
    keys = jax.random.split(jax.random.key(seed), num_steps)
    state = jax.jit(lambda s, k: lax.scan(step, s, k)[0])(state, keys)
    alpha = schedule.weights(state)
    return float(alpha[1] / alpha[0])


@pytest.mark.parametrize("beta", [(1.0, 1.0), (0.3, 1.0), (1.0, 0.4), (0.5, 0.25)])
def test_lemma_1(beta):
    """Pooled over 256 chains and 4000 steps the ratio is within 0.01 of eq. 16 (sd 0.002)."""
    expected = lemma_equilibrium(*beta)
    assert 0 < expected <= 1 / 3
    if beta == (1.0, 1.0):
        assert expected == pytest.approx(0.2954, abs=1e-4)
    assert simulate_lemma(beta) == pytest.approx(expected, abs=0.012)


def test_floor_holds_whatever_the_rewards():
    rng = np.random.default_rng(0)
    for scale in (1e-8, 1e-3, 1.0):
        alpha = rng.dirichlet(np.full(20, scale) + 1e-12)
        floored = np.asarray(apply_floor(jnp.asarray(alpha, jnp.float32)))
        assert floored.min() >= 0.1 / 20 - 1e-8
        assert floored.sum() == pytest.approx(1.0, abs=1e-6)


def test_floor_changes_nothing_above_it():
    alpha = jnp.array([0.3, 0.25, 0.45])
    np.testing.assert_allclose(apply_floor(alpha), alpha, rtol=1e-6)


def test_never_accepted_component_does_not_absorb_the_schedule():
    """Its confidence bound grows like sqrt(log t): slowly, and the others keep their share."""
    schedule = schedules.ucb(0.5, False)
    state = schedule.init(sizes_of(3, 1, 8))
    picks = jnp.array([0, 1] * 32, jnp.int32)
    accepted = jnp.ones((64, 8), bool)
    changed = jnp.broadcast_to((picks == 0)[:, None, None], (64, 1, 8))
    award = jax.jit(lambda state, log: schedule.award(state, log))  # traced anew each time
    for _ in range(500):
        state = award(state, EpochLog(picks, accepted, changed))
    alpha = np.asarray(schedule.weights(state))
    assert alpha[2] < 0.8
    assert alpha.min() >= 0.1 / 3 - 1e-6


def test_histories_stay_bounded():
    schedule = schedules.ucb()
    assert schedule.num_logged(sizes_of(18, 2, 512)) == 512
    assert schedule.num_logged(sizes_of(1000, 1000, 256)) == 1
    assert schedule.init(sizes_of(100, 10, 256)).history.size <= UCB.MAX_HISTORY
    assert schedule.init(sizes_of(1000, 1000, 256)).history.size <= 1 << 20  # that of one chain


def test_tallies_pass_32_bits():
    tally = Tally(jnp.array([2**32 - 5], jnp.uint32), jnp.array([0], jnp.uint32))
    for _ in range(3):
        tally = tally_add(tally, jnp.array([7]))
    assert tally_total(tally)[0] == 2**32 - 5 + 21


def test_sums_pass_24_bits():
    total = compensated(jnp.array([2.0**24], jnp.float32))
    total = lax.fori_loop(0, 1000, lambda i, t: compensated_add(t, jnp.ones(1)), total)
    assert float(total.value[0]) == 2**24 + 1000


def test_numbers_of_draws_are_exact_up_to_the_largest_run():
    """Batches are counted in floating-point numbers, of 24 bits."""
    many = init_moments((1,))._replace(number=jnp.float32(MAX_NUMBER - BATCH))
    batch = init_moments((1,))._replace(number=jnp.float32(BATCH))
    assert int(merge_moments(many, batch).number) == MAX_NUMBER
    many = many._replace(number=jnp.float32(MAX_NUMBER // BATCH - 1))
    one = batch._replace(number=jnp.float32(1))
    assert int(merge_moments(many, one).number) == MAX_NUMBER // BATCH
    with pytest.raises(ValueError, match=f"`num_samples` must be at most {MAX_NUMBER}"):
        RunConfig(num_samples=MAX_NUMBER + 1)


def test_negative_exploration_is_refused():
    with pytest.raises(ValueError, match="exploration"):
        schedules.ucb(-1.0)


def test_outputs_are_pooled_where_histories_would_be_too_many(monkeypatch):
    """Two outputs with room for one history are one output, which changes when either does."""
    monkeypatch.setattr(UCB, "MAX_CHAIN_HISTORY", 3)
    pooled = run_schedule([SCRIPT], 3, 2, 4, schedules.ucb(0.5, False))
    joint = run_schedule([SCRIPT], 3, 2, 4, schedules.ucb(0.5, True))
    assert pooled.history.shape == joint.history.shape == (1, 3, 1)
    np.testing.assert_array_equal(pooled.rewards.value, joint.rewards.value)
    np.testing.assert_array_equal(pooled.counts.value, joint.counts.value)


def test_pooling_keeps_neighbours_together():
    changed = jnp.zeros((1, 5, 1), bool).at[0, 2].set(True)
    np.testing.assert_array_equal(pool_outputs(changed, 3)[0, :, 0], [False, True, False])
