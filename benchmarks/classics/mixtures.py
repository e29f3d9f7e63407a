"""Plates of binary latents: occupancy, spike and slab, a mixture of two normals."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import logsumexp
from scipy import stats

from benchmarks.classics.case import Classic
from benchmarks.classics.exact import (
    mesh,
    moments,
    normalise_on_grid,
    positive_axis,
    real_axis,
    unit_axis,
)

_random = np.random.default_rng(3)
# Visits, of 4, on which each of 60 sites showed its animal: 60 % of the sites have it, and a
# visit to them finds it with probability 0.3.
VISITS, SITES = 4, 60
DETECTED = _random.binomial(VISITS, 0.3 * (_random.random(SITES) < 0.6))
# Eight predictors, each like its neighbour, of which three matter.
DESIGN = _random.normal(size=(40, 8))
DESIGN[:, 1:] = 0.6 * DESIGN[:, :-1] + 0.8 * DESIGN[:, 1:]
RESPONSE = DESIGN @ np.array([1.0, 0, 0, -0.8, 0, 0.4, 0, 0]) + _random.normal(size=40)
SLAB, INCLUSION = 2.0, 0.3
# Two normals two standard deviations apart: every datum has its doubts.
POINTS = _random.normal(size=150) + 2.0 * (_random.random(150) < 0.35)


def occupancy_model(detected):
    """Sites that an animal lives at or not, and visits that may miss it."""
    occupancy = numpyro.sample("occupancy", dist.Uniform(0.0, 1.0))
    detection = numpyro.sample("detection", dist.Uniform(0.0, 1.0))
    with numpyro.plate("site", len(detected)):
        is_there = numpyro.sample("is_there", dist.Bernoulli(occupancy))
        numpyro.sample("detected", dist.Binomial(VISITS, is_there * detection), obs=detected)
    numpyro.deterministic("occupied", jnp.sum(is_there))


def occupancy_truth():
    """Sum the sites out on a grid; those without a detection are occupied independently."""
    occupancy, detection, log_weights = mesh(
        unit_axis(1e-3, 1 - 1e-9, 300), unit_axis(1e-3, 0.9, 300)
    )
    found = DETECTED[DETECTED > 0]
    num_silent = SITES - len(found)
    log_found = len(found) * np.log(occupancy) + stats.binom.logpmf(
        found, VISITS, detection[..., None]
    ).sum(axis=-1)
    missed = occupancy * (1 - detection) ** VISITS
    silent = missed + 1 - occupancy
    weights = normalise_on_grid(log_weights + log_found + num_silent * np.log(silent))
    share = missed / silent
    return {
        "occupancy": moments(weights, occupancy),
        "detection": moments(weights, detection),
        "occupied": moments(
            weights, len(found) + num_silent * share, num_silent * share * (1 - share)
        ),
    }


def occupancy_marginal(detected):
    """Sum the sites out by hand."""
    occupancy = numpyro.sample("occupancy", dist.Uniform(0.0, 1.0))
    detection = numpyro.sample("detection", dist.Uniform(0.0, 1.0))
    log_there = jnp.log(occupancy) + dist.Binomial(VISITS, detection).log_prob(detected)
    log_absent = jnp.where(detected == 0, jnp.log1p(-occupancy), -jnp.inf)
    numpyro.factor("detected", jnp.sum(jnp.logaddexp(log_there, log_absent)))


def occupancy():
    """Occupancy of 60 sites with imperfect detection."""
    about = (
        "`occupancy`, `detection` ~ Uniform, `is_there` [60] ~ Bernoulli(occupancy), "
        "`detected` [60] ~ Binomial(4, is_there * detection) observed; `occupied` deterministic"
    )
    return Classic(
        occupancy_model,
        (DETECTED,),
        ["occupancy", "detection", "occupied"],
        occupancy_truth,
        about,
        occupancy_marginal,
    )


def spike_and_slab_model(design, response):
    """Regression in which each predictor is in or out."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("predictor", design.shape[1]):
        is_in = numpyro.sample("is_in", dist.Bernoulli(INCLUSION))
        slope = numpyro.sample("slope", dist.Normal(0.0, SLAB))
    effect = numpyro.deterministic("effect", is_in * slope)
    numpyro.sample("response", dist.Normal(jnp.asarray(design) @ effect, sigma), obs=response)


def spike_and_slab_truth():
    """Enumerate the 256 subsets on a grid of sigmas; slopes are integrated by conjugacy."""
    axis = positive_axis(0.3, 4.0, 60)
    num_predictors = DESIGN.shape[1]
    subsets = np.array(list(itertools.product((0, 1), repeat=num_predictors)))
    parts = [_given_subset(DESIGN[:, subset == 1], axis.points) for subset in subsets]
    prior = np.log(np.where(subsets, INCLUSION, 1 - INCLUSION)).sum(axis=1)
    log_weights = axis.log_weights + stats.halfnorm.logpdf(axis.points, scale=2.0)
    log_weights = (log_weights + prior[:, None] + np.array([part[0] for part in parts])).T
    weights = normalise_on_grid(log_weights, num_axes=1)
    mean = np.zeros((num_predictors, *weights.shape))
    variance = np.zeros_like(mean)
    for number, (subset, part) in enumerate(zip(subsets, parts, strict=True)):
        mean[subset == 1, :, number], variance[subset == 1, :, number] = part[1:]
    answers = {"sigma": moments(weights, axis.points[:, None])}
    for i in range(num_predictors):
        answers[f"is_in[{i}]"] = moments(weights, subsets[:, i])
        answers[f"effect[{i}]"] = moments(weights, mean[i], variance[i])
    return answers


def _given_subset(columns, sigmas):
    """Return, for each sigma, the log evidence of some columns and their slopes' moments."""
    # In the eigenvectors of the normal equations slopes are independent for every sigma.
    values, vectors = np.linalg.eigh(columns.T @ columns)
    projected = vectors.T @ columns.T @ RESPONSE
    precision = values[:, None] / sigmas**2 + SLAB**-2
    mean = projected[:, None] / sigmas**2 / precision
    log_evidence = (
        stats.norm.logpdf(RESPONSE[:, None], 0.0, sigmas).sum(axis=0)
        + 0.5 * np.sum(mean**2 * precision, axis=0)
        - 0.5 * np.sum(np.log(precision * SLAB**2), axis=0)
    )
    return log_evidence, vectors @ mean, vectors**2 @ (1 / precision)


def spike_and_slab():
    """Regression on eight correlated predictors, each in or out."""
    about = (
        "`sigma` ~ HalfNormal, `is_in` [8] ~ Bernoulli(0.3), `slope` [8] ~ Normal, "
        "`response` [40] ~ Normal(design @ (is_in * slope), sigma) observed; `effect` deterministic"
    )
    names = ["sigma", "is_in", "effect"]
    args = (DESIGN, RESPONSE)
    return Classic(spike_and_slab_model, args, names, spike_and_slab_truth, about)


def _mixture_parameters():
    """Means in order, so that no chain can exchange them, and the share of the higher one."""
    low = numpyro.sample("low", dist.Normal(0.0, 5.0))
    high = numpyro.sample("high", dist.Normal(0.0, 5.0))
    numpyro.factor("order", jnp.where(low < high, 0.0, -jnp.inf))
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    return low, high, share


def mixture_model(points):
    """Two normals, and which of them each point comes from."""
    low, high, share = _mixture_parameters()
    with numpyro.plate("point", len(points)):
        is_high = numpyro.sample("is_high", dist.Bernoulli(share))
        numpyro.sample("value", dist.Normal(jnp.where(is_high, high, low), 1.0), obs=points)


def mixture_truth():
    """Sum the assignments out on a grid of means and shares."""
    low_axis, high_axis = real_axis(-2.2, 1.6, 120), real_axis(0.2, 4.8, 120)
    share_axis = unit_axis(0.001, 0.996, 60)
    low, high, share, log_weights = mesh(low_axis, high_axis, share_axis)
    log_weights = log_weights + stats.norm.logpdf(low, 0, 5) + stats.norm.logpdf(high, 0, 5)
    log_weights = log_weights + stats.beta.logpdf(share, 2, 2) + np.where(low < high, 0, -np.inf)
    near = stats.norm.pdf(POINTS[:, None], low_axis.points)[:, :, None, None]
    far = stats.norm.pdf(POINTS[:, None], high_axis.points)[:, None, :, None]
    rest = 1 - share_axis.points
    for i in range(len(POINTS)):
        log_weights = log_weights + np.log(rest * near[i] + share_axis.points * far[i])
    weights = normalise_on_grid(log_weights)
    return {
        "low": moments(weights, low),
        "high": moments(weights, high),
        "share": moments(weights, share),
    }


def mixture_marginal(points):
    """Sum the assignments out by hand."""
    low, high, share = _mixture_parameters()
    log_joint = jnp.stack(
        [
            jnp.log1p(-share) + dist.Normal(low, 1.0).log_prob(points),
            jnp.log(share) + dist.Normal(high, 1.0).log_prob(points),
        ]
    )
    numpyro.factor("value", jnp.sum(logsumexp(log_joint, axis=0)))


def mixture():
    """Two overlapping normals with 150 assignments."""
    about = (
        "`low`, `high` ~ Normal with a factor for their order, `share` ~ Beta, `is_high` [150] ~ "
        "Bernoulli(share), `value` [150] ~ Normal(high if is_high else low, 1) observed"
    )
    names = ["low", "high", "share"]
    return Classic(mixture_model, (POINTS,), names, mixture_truth, about, mixture_marginal)
