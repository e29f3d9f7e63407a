"""Series in time: a change point, a local level, a Poisson HMM, and the HMM of the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats
from scipy.special import gammaln

from adlmh_jax.paper.zoo import hmm
from benchmarks.classics.case import Classic
from benchmarks.classics.exact import (
    binary_moments,
    mesh,
    moments,
    normalise,
    normalise_on_grid,
    positive_axis,
    real_axis,
    smooth,
)

# Disasters in British coal mines in each year from 1851 to 1961.
DISASTERS = np.array(
    [4, 5, 4, 0, 1, 4, 3, 4, 0, 6, 3, 3, 4, 0, 2, 6, 3, 3, 5, 4, 5, 3, 1, 4, 4, 1, 5, 5,
     3, 4, 2, 5, 2, 2, 3, 4, 2, 1, 3, 2, 2, 1, 1, 1, 1, 3, 0, 0, 1, 0, 1, 1, 0, 0, 3, 1,
     0, 3, 2, 2, 0, 1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 1, 1, 0, 2, 3, 3, 1, 1,
     2, 1, 1, 1, 1, 2, 4, 2, 0, 0, 1, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1]
)  # fmt: skip
TRANSITION = np.array([[0.95, 0.05], [0.08, 0.92]])


def simulate_levels(num_times=30):
    """Return counts whose log rate is a random walk."""
    random = np.random.default_rng(11)
    return random.poisson(np.exp(1.5 + np.cumsum(random.normal(0.0, 0.5, num_times))))


def simulate_states(num_times=100):
    """Return counts whose rate is 1 or 2.7, for stretches of time."""
    random = np.random.default_rng(23)
    state, counts = 0, []
    for _ in range(num_times):
        counts.append(random.poisson((1.0, 2.7)[state]))
        state = random.choice(2, p=TRANSITION[state])
    return np.array(counts)


def change_point_model(counts):
    """Yearly counts whose rate changes once."""
    early = numpyro.sample("early", dist.Exponential(1.0))
    late = numpyro.sample("late", dist.Exponential(1.0))
    switch = numpyro.sample("switch", dist.DiscreteUniform(0, len(counts) - 1))
    rate = jnp.where(jnp.arange(len(counts)) < switch, early, late)
    with numpyro.plate("year", len(counts)):
        numpyro.sample("count", dist.Poisson(rate), obs=counts)


def change_point_truth():
    """Enumerate the change point; given it both rates are gamma."""
    years = np.arange(len(DISASTERS))
    before = np.array([DISASTERS[:switch].sum() for switch in years])
    early_shape, early_rate = 1 + before, 1 + years
    late_shape, late_rate = 1 + DISASTERS.sum() - before, 1 + len(DISASTERS) - years
    log_evidence = gammaln(early_shape) - early_shape * np.log(early_rate)
    log_evidence = log_evidence + gammaln(late_shape) - late_shape * np.log(late_rate)
    weights = normalise(log_evidence)
    return {
        "early": moments(weights, early_shape / early_rate, early_shape / early_rate**2),
        "late": moments(weights, late_shape / late_rate, late_shape / late_rate**2),
        "switch": moments(weights, years),
    }


def change_point_marginal(counts):
    """Sum the change point out by hand."""
    early = numpyro.sample("early", dist.Exponential(1.0))
    late = numpyro.sample("late", dist.Exponential(1.0))
    log_early = dist.Poisson(early).log_prob(counts)
    log_late = dist.Poisson(late).log_prob(counts)
    years = jnp.arange(len(counts))
    is_early = years < years[:, None]  # [switch, year]
    log_joint = jnp.where(is_early, log_early, log_late).sum(axis=1)
    numpyro.factor("count", jax.nn.logsumexp(log_joint))


def change_point():
    """The coal-mining disasters."""
    return Classic(
        change_point_model,
        (DISASTERS,),
        ["early", "late", "switch"],
        change_point_truth,
        "`early`, `late` ~ Exponential, `switch` ~ DiscreteUniform(0, 110), "
        "`count` [111] ~ Poisson(early or late) observed",
        change_point_marginal,
    )


def local_level_model(counts):
    """Counts whose log rate is a random walk, every level a site of its own."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    level = numpyro.sample("level_0", dist.Normal(1.0, 1.0))
    for time, count in enumerate(counts):
        if time:
            level = numpyro.sample(f"level_{time}", dist.Normal(level, sigma))
        numpyro.sample(f"count_{time}", dist.Poisson(jnp.exp(level)), obs=count)


def local_level_truth():
    """Filter and smooth the levels on a grid, for each of a grid of sigmas."""
    counts = simulate_levels()
    sigmas, levels = positive_axis(0.04, 4.0, 60), real_axis(-6.0, 7.0, 521).points
    log_emissions = stats.poisson.logpmf(counts[:, None], np.exp(levels))
    initial = stats.norm.pdf(levels, 1.0, 1.0)
    log_weights = sigmas.log_weights + stats.halfnorm.logpdf(sigmas.points)
    marginals = []
    for i, sigma in enumerate(sigmas.points):
        transition = stats.norm.pdf(levels, levels[:, None], sigma)
        # The step of the grid is a constant factor of every sum, the same for every sigma.
        smoothed = smooth(initial, transition, log_emissions)
        log_weights[i] += smoothed.log_likelihood
        marginals.append(smoothed.marginals)
    weights = normalise_on_grid(log_weights)
    joint = weights[:, None, None] * np.array(marginals)  # [sigmas, times, levels]
    times = (0, len(counts) // 2, len(counts) - 1)
    named = {f"level_{time}": moments(joint[:, time], levels) for time in times}
    return {"sigma": moments(weights, sigmas.points), **named}


def local_level():
    """A random walk under Poisson counts; all continuous, so NUTS takes it as it is."""
    about = (
        "`sigma` ~ HalfNormal, `level_0` .. `level_29` ~ Normal(previous level, sigma), "
        "`count_t` ~ Poisson(exp(level_t)) observed"
    )
    names = ["sigma", "level_0", "level_15", "level_29"]
    args = (simulate_levels(),)
    return Classic(local_level_model, args, names, local_level_truth, about, local_level_model)


def _rates():
    """Rates of the quiet and the busy state, in this order: no chain can exchange them."""
    low = numpyro.sample("low", dist.Gamma(2.0, 2.0))
    high = numpyro.sample("high", dist.Gamma(4.0, 1.0))
    numpyro.factor("order", jnp.where(low < high, 0.0, -jnp.inf))
    return jnp.stack([low, high])


def poisson_hmm_model(counts):
    """Counts whose rate depends on a hidden state, every state a site of its own."""
    rates = _rates()
    probabilities = jnp.array([0.5, 0.5])
    for time, count in enumerate(counts):
        state = numpyro.sample(f"z_{time}", dist.Categorical(probs=probabilities))
        numpyro.sample(f"count_{time}", dist.Poisson(rates[state]), obs=count)
        probabilities = jnp.asarray(TRANSITION)[state]


def poisson_hmm_truth():
    """Run forward and backward over the states at each point of a grid of rates."""
    counts = simulate_states()
    low, high, log_weights = mesh(positive_axis(0.005, 4.5, 200), positive_axis(0.7, 18.0, 150))
    log_weights = log_weights + stats.gamma.logpdf(low, 2.0, scale=0.5)
    log_weights = log_weights + stats.gamma.logpdf(high, 4.0) + np.where(low < high, 0.0, -np.inf)
    rates = np.stack([low, high], axis=-1)
    log_emissions = stats.poisson.logpmf(counts[:, None, None, None], rates)
    smoothed = smooth(np.array([0.5, 0.5]), TRANSITION, log_emissions)
    weights = normalise_on_grid(log_weights + smoothed.log_likelihood)
    probabilities = smoothed.marginals[..., 1]
    named = {
        f"z_{time}": binary_moments(weights, chance) for time, chance in enumerate(probabilities)
    }
    return {"low": moments(weights, low), "high": moments(weights, high), **named}


def poisson_hmm_marginal(counts):
    """Sum the states out by hand, with the forward recursion."""
    rates = _rates()
    log_emissions = dist.Poisson(rates).log_prob(counts[:, None])
    log_transition = jnp.log(TRANSITION)

    def forward(log_weights, log_emission):
        joint = log_weights[:, None] + log_transition
        return jax.nn.logsumexp(joint, axis=0) + log_emission, None

    first = jnp.log(0.5) + log_emissions[0]
    log_weights, _ = jax.lax.scan(forward, first, log_emissions[1:])
    numpyro.factor("count", jax.nn.logsumexp(log_weights))


def poisson_hmm():
    """Two states of unknown rates, 100 times, all of them with some doubt."""
    about = (
        "`low`, `high` ~ Gamma with a factor for their order, `z_0` .. `z_99` ~ Categorical(2), a "
        "chain of a known transition, `count_t` ~ Poisson(low or high) observed"
    )
    names = ["low", "high", "z_0", "z_50", "z_99"]
    args = (simulate_states(),)
    return Classic(poisson_hmm_model, args, names, poisson_hmm_truth, about, poisson_hmm_marginal)


def paper_hmm():
    """The paper's HMM as it stands, with the truth of its forward and backward recursions."""
    problem = hmm()

    def truth():
        probabilities = problem.truth().probabilities
        values = np.arange(probabilities.shape[-1])
        return {
            output: moments(row, values)
            for output, row in zip(problem.outputs, probabilities, strict=True)
        }

    about = (
        "`state_0` .. `state_17` ~ Categorical(3), a chain; `obs_1` .. `obs_16` ~ Normal observed"
    )
    return Classic(problem.model, problem.args, list(problem.outputs), truth, about)
