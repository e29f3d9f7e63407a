"""Models of NumPyro's documentation and examples, rewritten from their published descriptions.

The data are small and synthetic, and written here or drawn from a fixed seed. Each model comes with
what its posterior is compared with: exact means where sums or integrals over few numbers give them,
else a second model without discrete sites that NUTS can sample.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from scipy import special, stats

PROPOSALS = "auto"


@dataclass(frozen=True)
class Example:
    """A model with its data, and where its posterior is known from.

    Attributes
    ----------
    name
        What the model is; the test's identifier.
    model, args
        The NumPyro model and what it is called with.
    outputs
        What is compared.
    truth
        Exact posterior means by output, or None.
    reference
        A model of the same posterior for NUTS, called with the same arguments; ``model`` itself if
        None and there is no truth.
    settings
        Of the run, where they differ from the test's.
    """

    name: str
    model: Callable
    args: tuple
    outputs: tuple[str, ...]
    truth: Mapping[str, Any] | None = None
    reference: Callable | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def mean_over(weights, values):
    """Return the mean of values ``[n, ...]`` under unnormalised log weights ``[n]``."""
    return np.tensordot(special.softmax(np.asarray(weights, float)), np.asarray(values), axes=1)


# Annotation (Dawid and Skene 1979; NumPyro's `annotation` example)

ANNOTATIONS = np.array(
    [[0, 0, 0], [1, 1, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 1]]
)
CONFUSION = np.array([[4.0, 1.0], [1.0, 4.0]])


def dawid_skene(annotations):
    num_items, num_annotators = annotations.shape
    with numpyro.plate("annotator", num_annotators, dim=-2), numpyro.plate("class", 2):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.asarray(CONFUSION)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("item", num_items, dim=-2):
        c = numpyro.sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
        with numpyro.plate("position", num_annotators):
            rows = jnp.arange(num_annotators)
            numpyro.sample("y", dist.Categorical(beta[rows, c]), obs=annotations)


def dawid_skene_marginal(annotations):
    num_items, num_annotators = annotations.shape
    with numpyro.plate("annotator", num_annotators, dim=-2), numpyro.plate("class", 2):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.asarray(CONFUSION)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(2)))
    # log p(y_i, c) for each item and class
    log_votes = jnp.log(beta)[jnp.arange(num_annotators), :, annotations]
    log_joint = jnp.log(pi) + log_votes.sum(axis=1)
    numpyro.factor("y", jax.nn.logsumexp(log_joint, axis=1).sum())


# A mixture with discrete assignments (the documentation's Gaussian mixture)

MIXED = np.array([-2.3, -1.9, -1.2, -2.6, 1.1, 1.8, 2.2, 0.4, 2.9, 1.6])
CENTRES = np.array([-2.0, 2.0])


def mixture(data):
    weight = numpyro.sample("weight", dist.Beta(2.0, 2.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("components", 2):
        locs = numpyro.sample("locs", dist.Normal(jnp.asarray(CENTRES), 1.0))
    with numpyro.plate("data", len(data)):
        assignment = numpyro.sample("assignment", dist.Bernoulli(weight))
        numpyro.sample("y", dist.Normal(locs[assignment], scale), obs=data)


def mixture_marginal(data):
    weight = numpyro.sample("weight", dist.Beta(2.0, 2.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("components", 2):
        locs = numpyro.sample("locs", dist.Normal(jnp.asarray(CENTRES), 1.0))
    weights = dist.Categorical(jnp.stack([1.0 - weight, weight]))
    with numpyro.plate("data", len(data)):
        parts = dist.Normal(locs[None, :], scale)
        numpyro.sample("y", dist.MixtureSameFamily(weights, parts), obs=data)


# Capture and recapture (the Cormack-Jolly-Seber model of the `capture_recapture` example)

CAPTURES = np.array(
    [[1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 1, 1]]
)


def capture_recapture(history):
    """All animals are first seen at time 0; z says whether they are still alive."""
    num_animals, _ = history.shape
    phi = numpyro.sample("phi", dist.Uniform(0.0, 1.0))
    rho = numpyro.sample("rho", dist.Uniform(0.0, 1.0))

    def transition(alive, captured):
        with numpyro.plate("animals", num_animals):
            alive = numpyro.sample("z", dist.Bernoulli(probs=alive * phi))
            numpyro.sample("y", dist.Bernoulli(probs=alive * rho), obs=captured)
        return alive, None

    scan(transition, jnp.ones(num_animals, int), jnp.asarray(history[:, 1:].T))


def capture_truth():
    """Integrate phi and rho over a grid; given them, animals are independent."""
    grid = (np.arange(400) + 0.5) / 400
    phi, rho = np.meshgrid(grid, grid, indexing="ij")
    log_likelihood = np.zeros_like(phi)
    for history in CAPTURES:
        last = np.flatnonzero(history).max()
        for seen in history[1 : last + 1]:
            log_likelihood += np.log(phi * np.where(seen, rho, 1 - rho))
        never = np.ones_like(phi)  # seen no more: dead, or alive and missed
        for _ in range(len(history) - 1 - last):
            never = 1 - phi + phi * (1 - rho) * never
        log_likelihood += np.log(never)
    flat = log_likelihood.ravel()
    return {"phi": mean_over(flat, phi.ravel()), "rho": mean_over(flat, rho.ravel())}


# A Poisson change point (the coal-mining disasters, shortened)

DISASTERS = np.array([4, 5, 4, 1, 6, 3, 4, 1, 0, 2, 1, 0, 1, 1])


def change_point(counts):
    num_years = len(counts)
    tau = numpyro.sample("tau", dist.DiscreteUniform(1, num_years - 1))
    early = numpyro.sample("early", dist.Exponential(0.5))
    late = numpyro.sample("late", dist.Exponential(0.5))
    rate = jnp.where(jnp.arange(num_years) < tau, early, late)
    numpyro.sample("y", dist.Poisson(rate), obs=counts)


def change_point_truth():
    """Sum over tau: given it, both rates have Gamma posteriors."""
    taus = np.arange(1, len(DISASTERS))
    log_weights, means = [], []
    for tau in taus:
        log_weight, rates = 0.0, []
        for part in (DISASTERS[:tau], DISASTERS[tau:]):
            shape, rate = 1 + part.sum(), 0.5 + len(part)
            log_weight += special.gammaln(shape) - shape * np.log(rate)
            rates.append(shape / rate)
        log_weights.append(log_weight)
        means.append([tau, *rates])
    return dict(zip(("tau", "early", "late"), mean_over(log_weights, means), strict=True))


# A zero-inflated count model (the `zero_inflated_poisson` example, gates written out)

FISH = np.array([0, 0, 3, 0, 1, 5, 0, 2, 0, 4])
CAMPERS = np.linspace(-1.0, 1.0, 10)


def zero_inflated(x, counts):
    gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(counts)):
        is_zero = numpyro.sample("is_zero", dist.Bernoulli(gate))
        rate = jnp.where(is_zero == 1, 1e-6, jnp.exp(intercept + slope * x))
        numpyro.sample("y", dist.Poisson(rate), obs=counts)


def zero_inflated_marginal(x, counts):
    gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(counts)):
        rate = jnp.exp(intercept + slope * x)
        numpyro.sample("y", dist.ZeroInflatedPoisson(gate, rate), obs=counts)


# A hidden Markov model by `scan` (model 1 of the `hmm_enum` example, one sequence)

NOTES = np.array([0, 0, 1, 0, 1, 1, 1, 0])


def hmm(notes):
    probs_x = numpyro.sample("probs_x", dist.Dirichlet(0.9 * jnp.eye(2) + 0.5).to_event(1))
    probs_y = numpyro.sample("probs_y", dist.Beta(jnp.array([2.0, 5.0]), jnp.array([5.0, 2.0])))

    def transition(x_before, note):
        x = numpyro.sample("x", dist.Categorical(probs_x[x_before]))
        numpyro.sample("y", dist.Bernoulli(probs_y[x]), obs=note)
        return x, None

    scan(transition, 0, jnp.asarray(notes))


def hmm_marginal(notes):
    probs_x = numpyro.sample("probs_x", dist.Dirichlet(0.9 * jnp.eye(2) + 0.5).to_event(1))
    probs_y = numpyro.sample("probs_y", dist.Beta(jnp.array([2.0, 5.0]), jnp.array([5.0, 2.0])))

    def forward(log_alpha, note):
        log_y = dist.Bernoulli(probs_y).log_prob(note)
        return jax.nn.logsumexp(log_alpha[:, None] + jnp.log(probs_x), axis=0) + log_y, None

    start = jnp.array([0.0, -jnp.inf])
    log_alpha, _ = jax.lax.scan(forward, start, jnp.asarray(notes))
    numpyro.factor("y", jax.nn.logsumexp(log_alpha))


# A hierarchical linear regression (the documentation's model of lung function, smaller)

PATIENT = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
WEEK = np.tile(np.array([-1.0, 0.0, 1.0]), 3)
LUNG = np.array([1.2, 0.9, 0.2, -0.4, -0.7, -0.5, 0.6, 0.1, -0.3])


def hierarchical_regression(patient, week, lung):
    mean_a = numpyro.sample("mean_a", dist.Normal(0.0, 1.0))
    scale_a = numpyro.sample("scale_a", dist.HalfNormal(1.0))
    mean_b = numpyro.sample("mean_b", dist.Normal(0.0, 1.0))
    with numpyro.plate("patients", 3):
        a = numpyro.sample("a", dist.Normal(mean_a, scale_a))
        b = numpyro.sample("b", dist.Normal(mean_b, 0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    with numpyro.plate("data", len(lung)):
        numpyro.sample("y", dist.Normal(a[patient] + b[patient] * week, sigma), obs=lung)


# Item response (two parameters per item)

ANSWERS = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]])


def item_response(answers):
    num_people, num_items = answers.shape
    with numpyro.plate("people", num_people, dim=-2):
        ability = numpyro.sample("ability", dist.Normal(0.0, 1.0))
    with numpyro.plate("items", num_items):
        difficulty = numpyro.sample("difficulty", dist.Normal(0.0, 1.0))
        discrimination = numpyro.sample("discrimination", dist.LogNormal(0.0, 0.3))
    logits = discrimination * (ability - difficulty)
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=answers)


# A Bayesian network with observed evidence (the alarm of Pearl 1988, less certain)


def network(john_calls, mary_calls):
    burglary = numpyro.sample("burglary", dist.Bernoulli(0.1))
    earthquake = numpyro.sample("earthquake", dist.Bernoulli(0.2))
    rings = jnp.array([[0.05, 0.3], [0.9, 0.95]])
    alarm = numpyro.sample("alarm", dist.Bernoulli(rings[burglary, earthquake]))
    numpyro.sample("john", dist.Bernoulli(jnp.array([0.1, 0.9])[alarm]), obs=john_calls)
    numpyro.sample("mary", dist.Bernoulli(jnp.array([0.05, 0.7])[alarm]), obs=mary_calls)


def network_truth():
    """Both call."""
    rings = np.array([[0.05, 0.3], [0.9, 0.95]])
    states = np.array(list(itertools.product((0, 1), repeat=3)))
    weights = []
    for burglary, earthquake, alarm in states:
        p = stats.bernoulli.pmf(burglary, 0.1) * stats.bernoulli.pmf(earthquake, 0.2)
        p *= stats.bernoulli.pmf(alarm, rings[burglary, earthquake])
        weights.append(p * (0.1, 0.9)[alarm] * (0.05, 0.7)[alarm])
    names = ("burglary", "earthquake", "alarm")
    return dict(zip(names, mean_over(np.log(weights), states), strict=True))


# Stochastic volatility (the example of the same name, few days, a wider prior)

RETURNS = np.array([0.3, -1.1, 0.2, 2.4, -1.9, 0.4])


def stochastic_volatility(returns):
    sigma = numpyro.sample("sigma", dist.Exponential(2.0))
    nu = numpyro.sample("nu", dist.Exponential(0.1))
    s = numpyro.sample("s", dist.GaussianRandomWalk(scale=sigma, num_steps=len(returns)))
    numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)


def stochastic_volatility_noncentred(returns):
    """For NUTS: as written above the walk is a funnel, whose neck it leaves out (`sigma` 0.03 off).

    Importance sampling from the prior says `sigma` 0.2767, as AdLMH does.
    """
    sigma = numpyro.sample("sigma", dist.Exponential(2.0))
    nu = numpyro.sample("nu", dist.Exponential(0.1))
    steps = numpyro.sample("steps", dist.Normal().expand([len(returns)]).to_event(1))
    s = numpyro.deterministic("s", sigma * jnp.cumsum(steps))
    numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)


# Partial pooling of batting averages (the `baseball` example)

HITS = np.array([18, 17, 16, 11, 9])


def baseball(at_bats, hits):
    m = numpyro.sample("m", dist.Uniform(0.0, 1.0))
    kappa = numpyro.sample("kappa", dist.Pareto(1.0, 1.5))
    with numpyro.plate("players", len(hits)):
        phi = numpyro.sample("phi", dist.Beta(m * kappa, (1.0 - m) * kappa))
        numpyro.sample("y", dist.Binomial(at_bats, probs=phi), obs=hits)


# Counts of hidden animals (an N-mixture model: latent Poisson counts, which no gradient moves)

SIGHTINGS = np.array([[2, 3], [0, 1], [4, 2]])


def n_mixture(sightings):
    rate = numpyro.sample("rate", dist.Gamma(4.0, 1.0))
    detection = numpyro.sample("detection", dist.Beta(3.0, 3.0))
    with numpyro.plate("sites", len(sightings)):
        count = numpyro.sample("count", dist.Poisson(rate))
        numpyro.sample("y", dist.Binomial(count[:, None], detection).to_event(1), obs=sightings)


def n_mixture_marginal(sightings):
    sightings = jnp.asarray(sightings)  # NumPyro checks NumPy's arrays by NumPy: no tracers
    rate = numpyro.sample("rate", dist.Gamma(4.0, 1.0))
    detection = numpyro.sample("detection", dist.Beta(3.0, 3.0))
    counts = jnp.arange(60)
    log_count = dist.Poisson(rate).log_prob(counts)
    possible = counts >= sightings.max(axis=1)[:, None]
    safe = jnp.where(possible, counts, 60)
    seen = dist.Binomial(safe[..., None], detection).log_prob(sightings[:, None, :]).sum(axis=-1)
    log_joint = jnp.where(possible, log_count + seen, -jnp.inf)
    numpyro.factor("y", jax.nn.logsumexp(log_joint, axis=1).sum())


EXAMPLES = (
    Example(
        "annotation",
        dawid_skene,
        (ANNOTATIONS,),
        ("beta", "pi"),
        reference=dawid_skene_marginal,
    ),
    Example(
        "mixture",
        mixture,
        (MIXED,),
        ("weight", "scale", "locs"),
        reference=mixture_marginal,
    ),
    Example(
        "capture and recapture",
        capture_recapture,
        (CAPTURES,),
        ("phi", "rho"),
        truth=capture_truth(),
    ),
    Example(
        "change point",
        change_point,
        (DISASTERS,),
        ("tau", "early", "late"),
        truth=change_point_truth(),
    ),
    Example(
        "zero-inflated counts",
        zero_inflated,
        (CAMPERS, FISH),
        ("gate", "intercept", "slope"),
        reference=zero_inflated_marginal,
    ),
    Example(
        "hidden Markov model",
        hmm,
        (NOTES,),
        ("probs_x", "probs_y"),
        reference=hmm_marginal,
    ),
    Example(
        "hierarchical regression",
        hierarchical_regression,
        (PATIENT, WEEK, LUNG),
        ("mean_a", "scale_a", "mean_b", "sigma"),
    ),
    Example("item response", item_response, (ANSWERS,), ("ability", "difficulty")),
    Example(
        "Bayesian network",
        network,
        (1, 1),
        ("burglary", "earthquake", "alarm"),
        truth=network_truth(),
    ),
    Example(
        "stochastic volatility",
        stochastic_volatility,
        (RETURNS,),
        ("sigma", "s"),
        reference=stochastic_volatility_noncentred,
    ),
    Example("batting averages", baseball, (45, HITS), ("m", "phi")),
    Example(
        "hidden counts",
        n_mixture,
        (SIGHTINGS,),
        ("rate", "detection"),
        reference=n_mixture_marginal,
    ),
)
