"""The models of the comparison with their data, exact answers and marginalised twins."""

import functools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats
from scipy.special import logsumexp

from adlmh_jax.paper.zoo import gp
from adlmh_jax.paper.zoo.gp import gp_quadrature
from benchmarks import plates
from benchmarks.classics import CLASSICS
from benchmarks.classics.case import Classic, Moments
from benchmarks.classics.exact import (
    mesh,
    moments,
    normalise_on_grid,
    positive_axis,
    real_axis,
    unit_axis,
)
from benchmarks.results import HERE

LONG_RUN = HERE / "data" / "dawid_skene_truth.json"  # by ``python -m benchmarks.peers.long_run``
READINGS, NOISE, MAX_PHOTONS = np.array([3.2, 4.9, 0.8, 2.1, 4.4]), 0.5, 60
# Of chances of 0 and 1 there are no gradients, nor, summed out, of those of `clamp_probs`.
CHANCES = 1e-6, 1 - 1e-6
HMM_ARGUMENTS = ("observations", "initial", "transition", "means")
SHARES = np.array([0.3, 0.3, 0.4])  # of the three normals of `plates.mixture`


def simulate_captures(num_animals=80, num_times=7, survival=0.8, recapture=0.5):
    """Return whether each animal, marked and released at time 0, was seen at each time."""
    random = np.random.default_rng(5)
    is_alive = np.ones(num_animals, int)
    captures = [is_alive]
    for _ in range(num_times - 1):
        is_alive = is_alive * (random.random(num_animals) < survival)
        captures.append(is_alive * (random.random(num_animals) < recapture))
    return np.array(captures).T


CAPTURES = simulate_captures()


class Case(NamedTuple):
    """A model of the comparison.

    Attributes
    ----------
    classic
        Model, arguments, outputs, truth and marginalised twin.
    data
        The arguments by name, for peers that read no NumPyro models.
    source
        Where the truth comes from.
    errors
        Standard errors of the true means, where they are not exact.
    """

    classic: Classic
    data: Mapping[str, Any]
    source: str
    errors: Mapping[str, float] = {}


def photons_model(readings):
    """README's example: pixels that count photons and are read out with noise."""
    rate = numpyro.sample("rate", dist.LogNormal(1.0, 1.0))
    with numpyro.plate("pixels", len(readings)):
        photons = numpyro.sample("photons", dist.Poisson(rate))
        numpyro.sample("reading", dist.Normal(photons, NOISE), obs=readings)


def photons_truth():
    """Sum the photons out on a grid of rates."""
    axis, counts = positive_axis(0.2, 30.0, 400), np.arange(MAX_PHOTONS)
    log_prior = stats.poisson.logpmf(counts, axis.points[:, None])
    log_joint = log_prior[:, None] + stats.norm.logpdf(READINGS[:, None], counts, NOISE)
    log_evidence = logsumexp(log_joint, axis=-1, keepdims=True)
    log_weights = axis.log_weights + stats.lognorm.logpdf(axis.points, 1.0, scale=np.e)
    weights = normalise_on_grid(log_weights + log_evidence.sum(axis=(1, 2)))
    # The photons of a pixel, whatever the rate.
    shares = np.einsum("r,rpn->pn", weights, np.exp(log_joint - log_evidence))
    named = {f"photons[{i}]": moments(share, counts) for i, share in enumerate(shares)}
    return {"rate": moments(weights, axis.points), **named}


def photons_marginal(readings):
    """Sum the photons out by hand, up to a bound."""
    rate = numpyro.sample("rate", dist.LogNormal(1.0, 1.0))
    counts = jnp.arange(MAX_PHOTONS)
    log_seen = dist.Normal(counts, NOISE).log_prob(jnp.asarray(readings)[:, None])
    log_joint = dist.Poisson(rate).log_prob(counts) + log_seen
    numpyro.factor("reading", jnp.sum(jax.nn.logsumexp(log_joint, axis=1)))


def recapture_model(captures):
    """Animals that survive and are seen again or not."""
    survival = numpyro.sample("survival", dist.Uniform(0.0, 1.0))
    recapture = numpyro.sample("recapture", dist.Uniform(0.0, 1.0))
    num_animals, num_times = captures.shape
    is_alive, animals = jnp.ones(num_animals, int), numpyro.plate("animals", num_animals)
    for time in range(1, num_times):
        with animals:
            chance = jnp.clip(is_alive * survival, *CHANCES)
            is_alive = numpyro.sample(f"is_alive_{time}", dist.Bernoulli(chance))
            chance = jnp.clip(is_alive * recapture, *CHANCES)
            numpyro.sample(f"captured_{time}", dist.Bernoulli(chance), obs=captures[:, time])


def recapture_truth():
    """Sum lives out on a grid; an animal that is seen no more is dead or missed."""
    survival, recapture, log_weights = mesh(unit_axis(0.3, 0.9999, 200), unit_axis(0.05, 0.98, 200))
    num_times = CAPTURES.shape[1]
    never = [np.ones_like(survival)]  # not seen in the last 0, 1, ... times
    for _ in range(num_times - 1):
        never.append(1 - survival + survival * (1 - recapture) * never[-1])
    for captures in CAPTURES:
        last = np.flatnonzero(captures).max()
        seen = captures[1 : last + 1].sum()
        log_weights = log_weights + last * np.log(survival) + seen * np.log(recapture)
        log_weights = log_weights + (last - seen) * np.log1p(-recapture)
        log_weights = log_weights + np.log(never[num_times - 1 - last])
    weights = normalise_on_grid(log_weights)
    return {"survival": moments(weights, survival), "recapture": moments(weights, recapture)}


def recapture_marginal(captures):
    """Sum lives out by hand, with the forward recursion of alive and dead."""
    survival = numpyro.sample("survival", dist.Uniform(0.0, 1.0))
    recapture = numpyro.sample("recapture", dist.Uniform(0.0, 1.0))

    def forward(weights, captured):
        alive, dead = weights
        dead = jnp.where(captured, 0.0, dead + alive * (1 - survival))
        alive = alive * survival * jnp.where(captured, recapture, 1 - recapture)
        return (alive, dead), None

    start = jnp.ones(len(captures)), jnp.zeros(len(captures))
    (alive, dead), _ = jax.lax.scan(forward, start, jnp.asarray(captures[:, 1:].T))
    numpyro.factor("captured", jnp.sum(jnp.log(alive + dead)))


def mixture_truth(points):
    """Sum the assignments out on a grid of means around their most likely values."""
    points, means = np.asarray(points, float), np.asarray(plates.MEANS)
    for _ in range(200):  # of expectation and maximisation
        likelihood = SHARES * stats.norm.pdf(points[:, None], means)
        share = likelihood / likelihood.sum(axis=1, keepdims=True)
        num = share.sum(axis=0)
        means = (plates.MEANS + points @ share) / (1 + num)  # the prior is worth one point
    reach = 12.0 / np.sqrt(num)  # wider than if it were known who belongs where
    ends = zip(means - reach, means + reach, strict=True)
    axes = [real_axis(low, high, 32) for low, high in ends]
    *grid, log_weights = mesh(*axes)
    for mean, prior in zip(grid, np.asarray(plates.MEANS), strict=True):
        log_weights = log_weights + stats.norm.logpdf(mean, prior, 1.0)
    parts = [
        share * stats.norm.pdf(points, axis.points[:, None])
        for share, axis in zip(SHARES, axes, strict=True)
    ]
    for i, j in np.ndindex(log_weights.shape[:2]):
        log_weights[i, j] += np.log(parts[0][i] + parts[1][j] + parts[2]).sum(axis=1)
    weights = normalise_on_grid(log_weights)
    return {f"means[{i}]": moments(weights, mean) for i, mean in enumerate(grid)}


def mixture_marginal(points):
    """Sum the assignments out by hand."""
    means = numpyro.sample("means", dist.Normal(plates.MEANS, 1.0).to_event(1))
    with numpyro.plate("data", len(points)):
        parts = dist.MixtureSameFamily(dist.Categorical(jnp.asarray(SHARES)), dist.Normal(means, 1))
        numpyro.sample("y", parts, obs=points)


def dawid_skene_marginal(annotations):
    """Sum the classes out by hand."""
    num_annotators = annotations.shape[1]
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("annotators", num_annotators):
        prior = dist.Dirichlet(jnp.ones(3) + 4 * jnp.eye(3)).to_event(1)
        confusion = numpyro.sample("confusion", prior)
    judged = jnp.log(confusion)[jnp.arange(num_annotators), :, annotations]
    log_joint = jnp.log(share) + judged.sum(axis=1)  # [items, classes]
    numpyro.factor("y", jnp.sum(jax.nn.logsumexp(log_joint, axis=1)))


def dawid_skene_truth():
    """Return what a long run of NUTS on the marginalised model found."""
    return {name: Moments(*figures) for name, figures in _long_run()["moments"].items()}


def _long_run():
    return json.loads(LONG_RUN.read_text()) if LONG_RUN.exists() else {"errors": {}}


def gp_truth():
    """Integrate the mean function out, and its scales on a grid."""
    points = gp_quadrature(*gp().args)
    parts = zip("abc", points.means.T, np.square(points.sds).T, strict=True)
    return {name: moments(points.weights, mean, variance) for name, mean, variance in parts}


def _gp():
    problem = gp()
    classic = Classic(problem.model, problem.args, list(problem.outputs), gp_truth, "")
    return Case(classic, dict(zip("xy", problem.args, strict=True)), "quadrature")


def _mixture(size):
    args = plates.mixture_data(size)
    truth = functools.partial(mixture_truth, args[0])
    classic = Classic(plates.mixture, args, ["means"], truth, "", mixture_marginal)
    return Case(classic, {"y": args[0]}, "quadrature")


def _dawid_skene():
    args = plates.dawid_skene_data(1000)
    classic = Classic(
        plates.dawid_skene, args, ["share"], dawid_skene_truth, "", dawid_skene_marginal
    )
    source, errors = "a long run of NUTS, marginalised", _long_run()["errors"]
    return Case(classic, {"y": args[0]}, source, errors)


def _recapture():
    classic = Classic(
        recapture_model, (CAPTURES,), ["survival", "recapture"], recapture_truth, "",
        recapture_marginal,
    )  # fmt: skip
    return Case(classic, {"captures": CAPTURES}, "quadrature")


def _photons():
    classic = Classic(
        photons_model, (READINGS,), ["rate", "photons"], photons_truth, "", photons_marginal
    )
    return Case(classic, {"readings": READINGS}, "quadrature")


def _classic(name, arguments, source):
    classic = CLASSICS[name]
    return Case(classic, dict(zip(arguments, classic.args, strict=True)), source)


# Made when they are asked for: a process needs one of them.
CASES = {
    "hmm": lambda: _classic("paper_hmm", HMM_ARGUMENTS, "forward recursion"),
    "gp": _gp,
    "mixture_200": lambda: _mixture(200),
    "mixture_10000": lambda: _mixture(10_000),
    "dawid_skene": _dawid_skene,
    "change_point": lambda: _classic("change_point", ["counts"], "enumeration"),
    "n_mixture": lambda: _classic("n_mixture", ["seen"], "quadrature"),
    "occupancy": lambda: _classic("occupancy", ["detected"], "quadrature"),
    "recapture": _recapture,
    "poisson_hmm": lambda: _classic("poisson_hmm", ["counts"], "forward recursion"),
    "photons": _photons,
}
