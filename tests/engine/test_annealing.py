"""The annealed start: weights, resampling, rungs and evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import adlmh_jax as adlmh
from adlmh_jax.engine import (
    address,
    annealing,
    build_engine,
    init_superchain,
    start_superchains,
)

WEIGHTS = np.array([0.2, 0.5, 0.3])
LIKELIHOOD = np.array([0.7, 0.1, 0.4])


LOG_LIKELIHOOD = jnp.asarray(np.random.default_rng(0).normal(0.0, 50.0, 200), jnp.float32)


def three_states():
    state = numpyro.sample("state", dist.Categorical(jnp.asarray(WEIGHTS)))
    numpyro.factor("data", jnp.log(jnp.asarray(LIKELIHOOD))[state])


def conjugate(y):
    """Normal data with a normal mean, and a kind that shifts them."""
    kind = numpyro.sample("kind", dist.Bernoulli(0.3))
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    numpyro.sample("y", dist.Normal(mean + 2.0 * kind, 1.0), obs=y)


def conjugate_evidence(y):
    covariance = np.eye(len(y)) + 25.0
    parts = [
        np.log(p) + stats.multivariate_normal(np.full(len(y), 2.0 * k), covariance).logpdf(y)
        for k, p in enumerate((0.7, 0.3))
    ]
    return special.logsumexp(parts)


def test_systematic_draws_are_as_many_as_they_should_be():
    """Each particle has the whole part of its expected number of children, or one more."""
    log_weights = np.log(np.array([0.05, 0.45, 0.0, 0.3, 0.2]) + 1e-300)
    for seed in range(20):
        ancestors = annealing.resample(jax.random.key(seed), jnp.asarray(log_weights))
        numbers = np.bincount(ancestors, minlength=5)
        expected = 5 * np.exp(log_weights)
        assert numbers.sum() == 5
        assert (np.abs(numbers - expected) < 1.0).all()


def test_impossible_particles_have_no_children():
    log_weights = jnp.array([-jnp.inf, 0.0, -jnp.inf, -1.0, -jnp.inf])
    for seed in range(20):
        ancestors = np.asarray(annealing.resample(jax.random.key(seed), log_weights))
        assert set(ancestors) <= {1, 3}


@pytest.mark.parametrize("kept_size", [0.5, 0.9])
def test_next_rung_keeps_a_part_of_the_effective_size(kept_size):
    step = annealing.next_step(LOG_LIKELIHOOD, jnp.float32(1.0), kept_size)
    weights = np.exp(np.float64(step) * (np.asarray(LOG_LIKELIHOOD) - LOG_LIKELIHOOD.max()))
    size = weights.sum() ** 2 / (weights**2).sum()
    assert size == pytest.approx(200.0 * kept_size, rel=1e-3)
    left = jnp.float32(0.6)
    assert annealing.next_step(1e-3 * LOG_LIKELIHOOD, left, kept_size) == left


@pytest.mark.parametrize(("rounds_left", "kept_size"), [(1000, 0.9), (6, 0.5)])
def test_rungs_are_as_fine_as_there_is_time_for(rounds_left, kept_size):
    """From beta = 1/64, in two rounds a rung: steps that keep half more than double it."""
    now = annealing.Annealing(
        beta=jnp.float32(1 / 64),
        log_evidence=jnp.float32(0.0),
        num_rungs=jnp.int32(9),
        num_waited=jnp.int32(0),
        num_rounds=jnp.int32(19),
        reference=jnp.zeros((1, 200)),
    )
    step = annealing.choose_step(LOG_LIKELIHOOD, now, jnp.int32(rounds_left))
    assert step == annealing.next_step(LOG_LIKELIHOOD, jnp.float32(63 / 64), kept_size)


def test_memory_of_particles():
    rng = np.random.default_rng(0)
    before = jnp.asarray(rng.normal(size=(3, 64)))
    constant = jnp.ones((1, 64))
    assert annealing.remembers(before, before + 0.5)
    assert not annealing.remembers(before, jnp.asarray(rng.normal(size=(3, 64))))
    assert not annealing.remembers(constant, constant)


def check_climb():
    """One rung by hand: a thousand particles in the proportions of the prior."""
    program = adlmh.compile_model(three_states)
    engine = build_engine(program, schedule=adlmh.uniform())
    way = annealing.Way(engine.spec.kernel, engine.data, engine.spec.likelihood)
    states = np.repeat(np.arange(3), [200, 500, 300])
    chains = program.chains_at({"state": jnp.asarray(states)})
    walks = init_superchain(engine.spec, engine.data, (), chains).tuning.walks
    start = annealing.init_annealing(way, chains, 0.0, 0.0)
    before = annealing.Particles(chains, walks, start)
    after = annealing.climb(way, jax.random.key(0), jnp.int32(0), before)
    assert after.annealing.beta == 1.0
    assert after.annealing.log_evidence == pytest.approx(np.log(WEIGHTS @ LIKELIHOOD), abs=1e-5)
    posterior = WEIGHTS * LIKELIHOOD / (WEIGHTS @ LIKELIHOOD)
    (bank,) = after.chains.latent.values()
    numbers = np.bincount(np.asarray(bank)[0], minlength=3)
    assert (np.abs(numbers - 1000 * posterior) <= 2.0).all()
    expected = program.chains_at({"state": jnp.asarray(bank)[0]})
    np.testing.assert_array_equal(after.chains.log_terms, expected.log_terms)


def test_a_rung_by_hand():
    check_climb()


def evidence_of(model, args=(), seed=0, **settings):
    """Return the estimates of many superchains; annealing takes several rungs."""
    result = adlmh.sample(
        seed, model, args, num_warmup=1000, num_samples=20, progress=False, **settings
    )
    assert np.min(result.state.superchains.annealing.beta) == 1.0
    return result


def check_evidence(model, args, truth, seed=0, sizes=(64, 32)):
    """The mean over superchains is the evidence, at four standard errors."""
    num_superchains, each = sizes
    num_chains = num_superchains * each
    result = evidence_of(model, args, seed, num_chains=num_chains, num_superchains=num_superchains)
    ratios = np.exp(result.log_evidence.by_superchain - truth)
    error = np.std(ratios, ddof=1) / np.sqrt(num_superchains)
    assert error < 0.1
    assert abs(ratios.mean() - 1.0) < 4.0 * error
    return result


def test_evidence_of_three_states_is_exact():
    check_evidence(three_states, (), np.log(WEIGHTS @ LIKELIHOOD))


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(1).normal(4.0, 1.0, 30)


def test_evidence_of_a_conjugate_model(data):
    result = check_evidence(conjugate, (data,), conjugate_evidence(data))
    assert np.min(result.state.superchains.annealing.num_rungs) >= 3


@pytest.mark.slow
def test_evidence_over_seeds(data):
    """Discrete, and mixed: with so many chains each that their choice of rungs does not show."""
    for seed in range(1, 21):
        check_evidence(three_states, (), np.log(WEIGHTS @ LIKELIHOOD), seed, (32, 256))
        check_evidence(conjugate, (data,), conjugate_evidence(data), seed, (32, 256))


def weights_not_reset(patch):
    real = annealing.log_mean
    patch.setattr(annealing, "log_mean", lambda log_weights: 2.0 * real(log_weights))


def not_resampled(patch):
    patch.setattr(annealing, "resample", lambda key, weights: jnp.arange(weights.size))


def wrong_ancestors(patch):
    real = annealing.resample
    patch.setattr(annealing, "resample", lambda key, weights: real(key, -weights))


@pytest.mark.parametrize("mutate", [weights_not_reset, not_resampled, wrong_ancestors])
def test_mutant_is_caught(mutate, monkeypatch):
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        check_climb()


def impossible_priors(y):
    """Most prior draws of the bound are below the data."""
    bound = numpyro.sample("bound", dist.Exponential(1.0))
    numpyro.factor("inside", jnp.where(bound > y, 0.0, -jnp.inf))


@pytest.mark.parametrize("y", [1.5, 5.0])
def test_impossible_draws_count_in_the_evidence(y):
    """Of an exponential number above 1.5; above 5, half of the chains find no start."""
    result = check_evidence(impossible_priors, (y,), -y)
    ends = result.draws["bound"][:, -1].reshape(64, 32)
    assert abs(ends.mean() - (y + 1.0)) < 4.0 * ends.mean(axis=1).std(ddof=1) / 8.0


def test_chains_that_find_no_start_begin_where_others_of_their_superchain_do():
    program = adlmh.compile_model(impossible_priors, (6.0,))
    addresses = address([jax.random.key(0)], [0, 1])
    started = start_superchains(program, addresses, 64, is_annealed=True)
    plain = start_superchains(program, addresses, 64)
    assert not started.is_repaired.any()
    assert plain.is_repaired.all()
    assert np.isfinite(started.chains.log_terms).all()
    for chains, num_found in zip(started.chains.latent["float32"], started.num_found, strict=True):
        values, copies = np.unique(chains, return_counts=True)
        assert len(values) == num_found < 64
        assert copies.max() - copies.min() <= 1


COUNTS = np.array([4, 5, 4, 0, 1, 4, 3, 4, 0, 6, 3, 3, 4, 0, 2, 1, 0, 1, 0, 1, 1, 0, 2, 0])


def steady(counts):
    rate = numpyro.sample("rate", dist.Exponential(0.5))
    numpyro.sample("count", dist.Poisson(rate), obs=counts)


def changing(counts):
    switch = numpyro.sample("switch", dist.DiscreteUniform(1, len(counts) - 1))
    early = numpyro.sample("early", dist.Exponential(0.5))
    late = numpyro.sample("late", dist.Exponential(0.5))
    rate = jnp.where(jnp.arange(len(counts)) < switch, early, late)
    numpyro.sample("count", dist.Poisson(rate), obs=counts)


def evidence_of_counts(counts):
    """Of counts with one rate."""
    total, number = counts.sum(), len(counts)
    integral = special.gammaln(total + 1) - (total + 1) * np.log(number + 0.5)
    return np.log(0.5) + integral - special.gammaln(counts + 1).sum()


def test_evidence_compares_models_with_and_without_a_change_point():
    """The two models of `docs/annealing.md`: the logarithm of the Bayes factor is 5.32."""
    check_evidence(steady, (COUNTS,), evidence_of_counts(COUNTS), sizes=(16, 64))
    parts = [(COUNTS[:k], COUNTS[k:]) for k in range(1, len(COUNTS))]
    by_switch = [evidence_of_counts(a) + evidence_of_counts(b) for a, b in parts]
    truth = special.logsumexp(by_switch) - np.log(len(parts))
    check_evidence(changing, (COUNTS,), truth, sizes=(16, 64))


def vague_regression(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 100.0))
    level = numpyro.sample("level", dist.Normal(0.0, 10_000.0))
    noise = numpyro.sample("noise", dist.HalfCauchy(100.0))
    numpyro.sample("y", dist.Normal(level + slope * x, noise), obs=y)


def test_no_chain_stays_behind():
    """On raw years the level and the slope are one ridge, far from most prior draws."""
    years = 1960.0 + np.arange(40)
    y = 0.05 * (years - 1980.0) + np.random.default_rng(2).normal(0.0, 0.5, 40)
    result = adlmh.sample(0, vague_regression, (years, y), progress=False)
    densities = result.log_density.mean(axis=1)
    assert densities.min() > np.median(densities) - 3.0
    centred = np.linalg.lstsq(np.stack([years - 1980.0, np.ones(40)], 1), y, rcond=None)[0]
    summary = result.summary()
    error = abs(summary.loc["slope", "mean"] - centred[0]) / summary.loc["slope", "mcse_mean"]
    assert error < 6.0  # the prior is vague, not flat
    assert result.diagnose().verdict == "converged"


def test_small_superchains_start_at_the_prior():
    result = adlmh.sample(0, three_states, num_chains=32, num_superchains=4, progress=False)
    assert result.log_evidence is None


def test_start_is_checked():
    with pytest.raises(ValueError, match='`start` must be "anneal" or "prior"'):
        adlmh.sample(0, three_states, start="posterior")
