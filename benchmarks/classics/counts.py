"""Latent counts: an N-mixture, a multinomial that is seen in part, a chain-binomial epidemic."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.special
from jax.nn import logsumexp
from scipy import stats
from scipy.special import gammaln

from benchmarks.classics.case import Classic
from benchmarks.classics.exact import (
    mesh,
    moments,
    normalise,
    normalise_on_grid,
    positive_axis,
    unit_axis,
)

_random = np.random.default_rng(7)
# Animals seen on 3 visits to 20 sites, where 8 live on average: each is seen every other time.
SEEN = _random.binomial(_random.poisson(8.0, 20), 0.5, (3, 20))  # [visits, sites]
MAX_COUNT = 250  # of the animals at a site, for the sums
CAUGHT, NUM_FISH, CATCH = np.array([5, 3, 1]), 20, 0.4
REPORTED, NUM_SUSCEPTIBLE, REPORTING = np.array([2, 4, 3, 1]), 20, 0.6


def n_mixture_model(seen):
    """Animals at sites, counted on several visits: nobody knows how many were missed."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.2))
    detection = numpyro.sample("detection", dist.Beta(2.0, 2.0))
    with numpyro.plate("site", seen.shape[1], dim=-1):
        count = numpyro.sample("count", dist.Poisson(rate))
        with numpyro.plate("visit", seen.shape[0], dim=-2):
            numpyro.sample("seen", dist.Binomial(count, detection), obs=seen)
    numpyro.deterministic("total", jnp.sum(count))


def n_mixture_truth():
    """Sum the counts out on a grid of rates and detections.

    Given the rest, a count has weights ``rate**n (1 - detection)**(visits n) c(n)`` with a
    combinatorial factor c that does not depend on the parameters.
    """
    rate, detection, log_weights = mesh(positive_axis(2.0, 120.0, 120), unit_axis(0.005, 0.95, 120))
    log_weights = log_weights + stats.gamma.logpdf(rate, 2.0, scale=5.0)
    log_weights = log_weights + stats.beta.logpdf(detection, 2.0, 2.0)
    log_odds = np.log(detection) - np.log1p(-detection)
    log_base = np.log(rate) + len(SEEN) * np.log1p(-detection)
    mean, variance = 0.0, 0.0
    counts = np.arange(MAX_COUNT)
    for site in SEEN.T:
        parts = log_base[..., None] * counts + _log_ways(site)
        log_total = scipy.special.logsumexp(parts, axis=-1)
        log_weights = log_weights + log_total - rate + site.sum() * log_odds
        shares = np.exp(parts - log_total[..., None])
        site_mean = shares @ counts
        mean, variance = mean + site_mean, variance + shares @ counts**2 - site_mean**2
    weights = normalise_on_grid(log_weights)
    return {
        "rate": moments(weights, rate),
        "detection": moments(weights, detection),
        "total": moments(weights, mean, variance),
    }


def _log_ways(seen):
    """Return log(prod_t binomial(n, seen[t]) / n!) for each count n."""
    counts = np.arange(MAX_COUNT)
    left = counts[:, None] - seen
    with np.errstate(invalid="ignore"):
        ways = gammaln(counts + 1)[:, None] - gammaln(seen + 1) - gammaln(left + 1)
    ways = np.where(left >= 0, ways, -np.inf)
    return ways.sum(axis=1) - gammaln(counts + 1)


def n_mixture_marginal(seen):
    """Sum the counts out by hand, up to a bound."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.2))
    detection = numpyro.sample("detection", dist.Beta(2.0, 2.0))
    seen = jnp.asarray(seen)
    counts, least = jnp.arange(MAX_COUNT), seen.max(axis=0)[:, None]
    # Impossible counts are moved to possible ones before they are scored: gradients stay finite.
    possible = jnp.maximum(counts, least)
    log_seen = dist.Binomial(possible, detection).log_prob(seen[..., None]).sum(axis=0)
    log_joint = jnp.where(counts >= least, log_seen + dist.Poisson(rate).log_prob(counts), -jnp.inf)
    numpyro.factor("seen", jnp.sum(logsumexp(log_joint, axis=1)))


def n_mixture():
    """Poisson counts at sites, seen with a probability that nobody knows."""
    about = (
        "`rate` ~ Gamma, `detection` ~ Beta, `count` [20] ~ Poisson(rate), "
        "`seen` [3, 20] ~ Binomial(count, detection) observed; `total` deterministic"
    )
    names = ["rate", "detection", "total"]
    return Classic(n_mixture_model, (SEEN,), names, n_mixture_truth, about, n_mixture_marginal)


def multinomial_model(caught):
    """Fish of three kinds in a pond, of each of which some are caught."""
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(len(caught))))
    fish = numpyro.sample("fish", dist.Multinomial(NUM_FISH, shares))
    with numpyro.plate("kind", len(caught)):
        numpyro.sample("caught", dist.Binomial(fish, CATCH), obs=caught)


def multinomial_truth():
    """Enumerate the counts; the shares are integrated out, and given the counts Dirichlet."""
    kinds = len(CAUGHT)
    numbers = itertools.product(range(NUM_FISH + 1), repeat=kinds)
    fish = np.array([row for row in numbers if sum(row) == NUM_FISH])
    # Under a flat Dirichlet all counts have the same probability.
    weights = normalise(stats.binom.logpmf(CAUGHT, fish, CATCH).sum(axis=1))
    mean = (fish + 1) / (NUM_FISH + kinds)
    variance = mean * (1 - mean) / (NUM_FISH + kinds + 1)
    names = {f"fish[{i}]": moments(weights, fish[:, i]) for i in range(kinds)}
    shares = {f"shares[{i}]": moments(weights, mean[:, i], variance[:, i]) for i in range(kinds)}
    return {**names, **shares}


def multinomial():
    """A vector of counts of a known sum, seen in part."""
    about = (
        "`shares` ~ Dirichlet(3), `fish` ~ Multinomial(20, shares), "
        "`caught` [3] ~ Binomial(fish, 0.4) observed"
    )
    return Classic(multinomial_model, (CAUGHT,), ["fish", "shares"], multinomial_truth, about)


def epidemic_model(reported, num_susceptible):
    """Reed and Frost: each week those who are ill infect those who are not."""
    contact = numpyro.sample("contact", dist.Beta(1.0, 5.0))
    susceptible, infected = num_susceptible, 1
    for week, cases in enumerate(reported, start=1):
        risk = 1 - (1 - contact) ** infected
        infected = numpyro.sample(f"infected_{week}", dist.Binomial(susceptible, risk))
        susceptible = susceptible - infected
        numpyro.sample(f"reported_{week}", dist.Binomial(infected, REPORTING), obs=cases)
    numpyro.deterministic("left", susceptible)


def epidemic_truth():
    """Enumerate the courses of the epidemic on a grid of contact probabilities."""
    weeks = len(REPORTED)
    numbers = itertools.product(range(NUM_SUSCEPTIBLE + 1), repeat=weeks)
    courses = np.array([row for row in numbers if sum(row) <= NUM_SUSCEPTIBLE])
    courses = courses[(courses >= REPORTED).all(axis=1)]
    axis = unit_axis(1e-5, 0.9, 200)
    log_weights = axis.log_weights[:, None] + stats.beta.logpdf(axis.points, 1.0, 5.0)[:, None]
    susceptible, infected = np.full(len(courses), NUM_SUSCEPTIBLE), np.ones(len(courses))
    for week in range(weeks):
        risk = 1 - (1 - axis.points[:, None]) ** infected
        log_weights = log_weights + stats.binom.logpmf(courses[:, week], susceptible, risk)
        log_weights = log_weights + stats.binom.logpmf(REPORTED[week], courses[:, week], REPORTING)
        infected = courses[:, week]
        susceptible = susceptible - infected
    weights = normalise_on_grid(log_weights, num_axes=1)
    named = {f"infected_{i + 1}": moments(weights, courses[:, i]) for i in range(weeks)}
    contact = moments(weights, axis.points[:, None])
    return {"contact": contact, **named, "left": moments(weights, susceptible)}


def epidemic():
    """Four weeks of an epidemic, under-reported; the supports depend on earlier weeks."""
    about = (
        "`contact` ~ Beta, `infected_1` .. `infected_4` ~ Binomial(susceptible left, risk), "
        "`reported_t` ~ Binomial(infected_t, 0.6) observed; `left` deterministic"
    )
    names = ["contact", *(f"infected_{week}" for week in range(1, 5)), "left"]
    return Classic(epidemic_model, (REPORTED, NUM_SUSCEPTIBLE), names, epidemic_truth, about)
