"""Random discrete programs against enumeration: moves leave the posterior as it is.

Chains start at exact draws of the posterior and make moves of random entries; how often each state
is then met is compared with its probability. A chi-square test for each program, at a false-alarm
rate of 1e-5 divided by the number of tests.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_programs import enumerate_states, make_model, positions_of, sketch
from scipy import stats

from adlmh_jax.engine.step import move
from adlmh_jax.model import compile_model
from adlmh_jax.moves import build_kernel
from adlmh_jax.proposals import plan_sites
from adlmh_jax.types import float_type

NUM_PROGRAMS = 200
NUM_CHAINS = 20_000
NUM_MOVES = 24
MODES = {"auto": ("auto", "auto"), "prior": ("prior", "auto"), "single": ("auto", "never")}
FALSE_ALARM = 1e-5 / (NUM_PROGRAMS * len(MODES) * 2)
MIN_EXPECTED = 5.0  # states that are expected less often are counted together


@functools.lru_cache(maxsize=2)  # the modes of a program, in both precisions, come in turn
def enumerate_program(seed, precision):
    """Return a program, its states, and their probabilities."""
    del precision  # of the program, as JAX has it
    program = compile_model(make_model(*sketch(seed)))
    states, shapes = enumerate_states(program)

    @jax.jit
    @jax.vmap
    def log_density(position):
        inside = jnp.stack(list(program.in_supports(position).values()))
        return jnp.where(jnp.all(inside), program.log_density(position), -jnp.inf)

    log_pi = np.asarray(log_density(positions_of(states, shapes)), float)
    pi = np.exp(log_pi - log_pi.max())
    return program, states, shapes, pi / pi.sum()


def check(seed, mode):
    """Run the moves of one program, and test the states in which chains end."""
    program, states, shapes, pi = enumerate_program(seed, float_type())
    rng = np.random.default_rng(seed)
    kernel, data = build_kernel(program, plan_sites(program, *MODES[mode]))
    start = states[rng.choice(len(states), NUM_CHAINS, p=pi)]
    chains = jax.jit(program.chains_at)(positions_of(start, shapes))
    entries = jnp.asarray(rng.integers(0, kernel.num_entries, NUM_MOVES), jnp.int32)
    variants = jnp.asarray(rng.integers(0, 2, NUM_MOVES), jnp.int32)

    @jax.jit
    def run(data, chains, key):
        def step(chains, inputs):
            key, entry, variant = inputs
            words = jax.random.bits(key, (kernel.num_words, NUM_CHAINS), "uint32")
            return move(kernel, data, words, chains, entry, variant)[0], None

        keys = jax.random.split(key, NUM_MOVES)
        return jax.lax.scan(step, chains, (keys, entries, variants))[0]

    values = program.latent_layout.unpack(run(data, chains, jax.random.key(seed)).latent)
    ends = np.concatenate([np.asarray(v).reshape(NUM_CHAINS, -1) for v in values.values()], axis=1)
    powers = 3 ** np.arange(ends.shape[1])[::-1]
    counts = np.bincount(ends @ powers, minlength=len(states))
    expected = pi * NUM_CHAINS
    assert counts[expected == 0].sum() == 0
    common = expected >= MIN_EXPECTED
    found = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    found, wanted = found[wanted > 0], wanted[wanted > 0]
    statistic = np.sum((found - wanted) ** 2 / wanted)
    if len(wanted) > 1:
        assert statistic < stats.chi2.isf(FALSE_ALARM, len(wanted) - 1), (seed, mode, statistic)


@pytest.mark.parametrize("mode", MODES)
def test_one_program(mode):
    check(0, mode)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(NUM_PROGRAMS))
def test_many_programs(seed, mode, precision):
    with jax.enable_x64(precision == "float64"):
        check(seed, mode)


def test_a_missing_correction_is_caught(monkeypatch):
    """Mutant: prior draws are accepted without the ratio of their densities."""

    def no_ratio(branch, *others):
        del others
        return jnp.zeros(branch.site.batch_shape)

    monkeypatch.setattr("adlmh_jax.moves.metropolis.log_q_ratio", no_ratio)
    with pytest.raises(AssertionError):
        check(0, "prior")
