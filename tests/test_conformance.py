"""Every proposal with every schedule through one protocol: what a new one must do."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from algorithm3 import sizes_of

import adlmh_jax as adlmh
from adlmh_jax.engine import build_engine
from adlmh_jax.schedules import Schedule
from adlmh_jax.types import EpochLog


def nudge(key, value, values, distribution):
    """A symmetric proposal of one's own: a step of -1, 0 or 1, refused outside of the support."""
    new = value + jax.random.randint(key, value.shape, -1, 2)
    inside = distribution.support(new)
    return jnp.where(inside, new, value), jnp.where(inside, 0.0, -jnp.inf)


PROPOSALS = {
    "prior": adlmh.prior(),
    "gibbs": adlmh.gibbs(),
    "random_walk": adlmh.random_walk(),
    "custom": adlmh.custom(nudge),
    "learned mixture": adlmh.random_walk() | adlmh.prior(),
    "given mixture": adlmh.mixture(adlmh.prior(), adlmh.custom(nudge), 0.3),
}
SCHEDULES = {
    "uniform": adlmh.uniform(),
    "ucb": adlmh.ucb(),
    "joint ucb": adlmh.ucb(joint_output=True),
    "influence": adlmh.influence(),
}
each_proposal = pytest.mark.parametrize("proposal", PROPOSALS.values(), ids=PROPOSALS)
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)


def model():
    """Two counts of few values, one of them in a plate, that are seen through their sum."""
    a = numpyro.sample("a", dist.Binomial(3, 0.4))
    with numpyro.plate("items", 2):
        b = numpyro.sample("b", dist.DiscreteUniform(0, 2))
        numpyro.sample("y", dist.Normal(a + b, 1.0), obs=jnp.array([2.5, 1.0]))


def exact_means():
    """Return the posterior means of a, b[0] and b[1], by enumeration."""
    a, b, c = np.meshgrid(np.arange(4), np.arange(3), np.arange(3), indexing="ij")
    prior = np.array([0.216, 0.432, 0.288, 0.064])[a]
    weights = prior * np.exp(-0.5 * ((2.5 - a - b) ** 2 + (1.0 - a - c) ** 2))
    return [float(np.sum(x * weights) / np.sum(weights)) for x in (a, b, c)]


@each_schedule
@each_proposal
def test_means_are_right(proposal, schedule):
    """Three means by superchains against enumeration, at a false-alarm rate of 1e-6 each."""
    result = adlmh.sample(
        7, model, proposals={"*": proposal}, schedule=schedule, num_chains=256, num_superchains=16,
        num_warmup=60, num_samples=200, progress=False,
    )  # fmt: skip
    draws = np.concatenate([result.draws["a"][..., None], result.draws["b"]], axis=-1)
    means = draws.reshape(16, -1, 3).mean(axis=1)
    errors = (means.mean(axis=0) - exact_means()) / (means.std(axis=0, ddof=1) / 4)
    assert np.all(np.abs(errors) < 7.4)  # Student's t of 15 degrees: 1e-6, two-sided
    assert str(proposal) in result.proposals["a"]
    assert result.schedule.rule == schedule.name
    assert np.all(result.schedule.accepted > 0)


@each_schedule
def test_a_schedule_keeps_its_promises(schedule):
    """Weights sum to one and stay above the floor; what is reported has one number per entry."""
    assert isinstance(schedule, Schedule)
    num_entries, num_outputs, num_chains = 5, 2, 3
    sizes = sizes_of(num_entries, num_outputs, num_chains)
    state, num_logged = schedule.init(sizes), schedule.num_logged(sizes)
    rng = np.random.default_rng(0)
    for _ in range(3 if schedule.award else 0):
        accepted = rng.random((8, num_logged)) < 0.5
        changed = (rng.random((8, num_outputs, num_logged)) < 0.5) & accepted[:, None]
        entries = np.append(rng.integers(0, num_entries, 7), -1).astype(np.int32)
        log = EpochLog(*map(jnp.asarray, (entries, accepted.copy(), changed)))
        state = schedule.award(state, log)
        alpha = np.asarray(schedule.weights(state))
        assert alpha.sum() == pytest.approx(1.0, abs=1e-5)
        assert alpha.min() >= 0.1 / num_entries - 1e-6
    for array in schedule.report(state).values():
        assert array.shape[0] == num_entries


@each_proposal
def test_a_proposal_is_part_of_a_kernel(proposal):
    """The same plan gives equal code, so that a second run compiles nothing."""
    program = adlmh.compile_model(model)
    engines = [
        build_engine(program, schedule=adlmh.ucb(), proposals={"*": proposal}) for _ in range(2)
    ]
    assert engines[0].spec == engines[1].spec
    assert hash(engines[0].spec) == hash(engines[1].spec)
