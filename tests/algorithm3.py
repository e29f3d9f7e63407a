"""Algorithm 3 as the paper prints it, beside what the schedule makes of the same log."""

import importlib
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax import schedules
from adlmh_jax.types import EpochLog, Sizes

UCB = importlib.import_module("adlmh_jax.schedules.ucb")  # `schedules.ucb` is the function

# Ten steps of one chain on three components and two outputs: (pick, accepted, changed outputs).
SCRIPT = [
    (0, True, (False, False)),
    (1, True, (True, False)),
    (1, False, (False, False)),
    (2, True, (False, False)),
    (0, True, (False, True)),
    (0, True, (True, False)),
    (2, False, (False, False)),
    (2, True, (True, True)),
    (1, True, (False, False)),
    (1, True, (False, True)),
]


def algorithm_3(script, num_components, num_outputs):
    """Run Algorithm 3 as the paper prints it, in exact fractions; each output weighs 1/K."""
    rewards = [Fraction(1)] * num_components
    counts = [Fraction(1)] * num_components
    histories = [[] for _ in range(num_outputs)]
    for pick, accepted, changed in script:
        if not accepted:
            continue  # Algorithm 2: W stays as it is
        for history, is_changed in zip(histories, changed, strict=True):
            history.append(pick)
            if is_changed:
                share = Fraction(1, len(history) * num_outputs)
                for entry in history:
                    rewards[entry] += share
                    counts[entry] += share
                history.clear()
            else:
                counts[pick] += Fraction(1, num_outputs)
    return rewards, counts, [[h.count(k) for k in range(num_components)] for h in histories]


def sizes_of(num_entries, num_outputs, num_chains):
    """Return the sizes of a program whose entries are single components, each of one scalar."""
    return Sizes(
        num_entries=num_entries,
        num_outputs=num_outputs,
        num_chains=num_chains,
        num_slots=num_entries,
        num_scalars=num_entries,
        base=np.full(num_entries, 1.0 / num_entries),
    )


def run_schedule(scripts, num_components, num_outputs, epoch, schedule):
    """Give the logs of several chains (which share the picks) to a schedule, in epochs."""
    state = schedule.init(sizes_of(num_components, num_outputs, len(scripts)))
    length = len(scripts[0])
    award = jax.jit(lambda state, log: schedule.award(state, log))  # traced anew each time
    for start in range(0, length, epoch):
        part = [script[start : start + epoch] for script in scripts]
        picks = [step[0] for step in part[0]]
        accepted = np.array([[step[1] for step in script] for script in part]).T
        changed = np.array([[step[2] for step in script] for script in part]).transpose(1, 2, 0)
        padding = epoch - len(picks)  # steps that were not made
        picks = np.pad(np.array(picks, np.int32), (0, padding), constant_values=-1)
        accepted = np.pad(accepted, ((0, padding), (0, 0)))
        changed = np.pad(changed, ((0, padding), (0, 0), (0, 0)))
        state = award(state, EpochLog(*map(jnp.asarray, (picks, accepted, changed))))
    return state


def check_against_algorithm_3():
    expected = algorithm_3(SCRIPT, 3, 2)
    # The first rewards and counts, worked by hand: steps 0-1 share output 0's reward of 1/2.
    assert expected[0][1] > 1 and expected[1][0] > expected[0][0]
    for epoch in (1, 3, 10, 16):
        state = run_schedule([SCRIPT], 3, 2, epoch, schedules.ucb(0.5, False))
        np.testing.assert_allclose(state.rewards.value, [float(r) for r in expected[0]], rtol=1e-6)
        np.testing.assert_allclose(state.counts.value, [float(c) for c in expected[1]], rtol=1e-6)
        np.testing.assert_array_equal(state.history[:, :, 0], expected[2])
