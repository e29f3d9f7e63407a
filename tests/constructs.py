"""A catalogue of small NumPyro models, one for each construct that `adlmh_jax` supports.

Every model has at least one latent site and one observed site (or factor) that depends on it. The
data are fixed, and written here. `docs/constructs.md` says what `adlmh_jax` does with each.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan
from numpyro.distributions import transforms
from numpyro.infer.reparam import LocScaleReparam, TransformReparam


@dataclass(frozen=True)
class Construct:
    """One model of the catalogue, with what it is called with.

    Attributes
    ----------
    name
        What the model is an example of; the test's identifier.
    model
        The NumPyro model, handlers included.
    args, kwargs
        What the model is called with.
    outputs
        The `outputs` to sample; None for every latent and deterministic site.
    """

    name: str
    model: Callable
    args: tuple = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Any = None


THREE = np.array([0.3, -0.8, 1.4], np.float32)
FIVE = np.array([0.9, 1.3, -0.2, 0.4, 2.1], np.float32)
TEN = np.linspace(-1.0, 1.5, 10, dtype=np.float32)
GRID = np.array([[0.1, 0.7, -0.4], [1.2, -0.3, 0.5]], np.float32)
ROWS = np.array([[0.2, -0.1, 0.5], [1.1, 0.3, -0.6], [-0.7, 0.4, 0.2], [0.6, 0.9, 0.1]], np.float32)
COUNTS = np.array([3, 0, 5], np.int32)
SUBSAMPLE = np.array([1, 4, 5, 8], np.int32)
PRESENT = np.array([True, False, True, True, False])


# Plates, shapes, masks and scales


def scalar_and_vector():
    scalar = numpyro.sample("scalar", dist.Normal(0.0, 1.0))
    vector = numpyro.sample("vector", dist.Normal(jnp.zeros(3), jnp.array([1.0, 2.0, 0.5])))
    numpyro.sample("y", dist.Normal(scalar + vector, 1.0), obs=THREE)


def plate():
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    with numpyro.plate("data", 5):
        local = numpyro.sample("local", dist.Normal(mean, 1.0))
        numpyro.sample("y", dist.Normal(local, 0.5), obs=FIVE)


def plate_dims():
    with numpyro.plate("column", 3, dim=-1):
        column = numpyro.sample("column_effect", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", 2, dim=-2):
        row = numpyro.sample("row_effect", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(row + column, 1.0), obs=GRID)


def nested_plates():
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("column", 3):
        column = numpyro.sample("column_effect", dist.Normal(0.0, scale))
        with numpyro.plate("row", 2):
            cell = numpyro.sample("cell", dist.Normal(column, 1.0))
            numpyro.sample("y", dist.Normal(cell, 0.5), obs=GRID)


def expand():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([2, 3]))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=GRID)


def to_event():
    x = numpyro.sample("x", dist.Normal(jnp.zeros((2, 3)), 1.0).to_event(1))
    numpyro.sample("y", dist.Normal(x, 1.0).to_event(2), obs=GRID)


def expand_to_event():
    with numpyro.plate("row", 2):
        x = numpyro.sample("x", dist.Exponential(1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=GRID)


def sample_shape():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0), sample_shape=(3,))
    block = numpyro.sample("block", dist.Normal(jnp.zeros(3), 1.0).to_event(1), sample_shape=(2,))
    numpyro.sample("y", dist.Normal(x + block, 1.0), obs=GRID)


def mask_handler():
    with numpyro.plate("data", 5), handlers.mask(mask=PRESENT):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, 0.5), obs=FIVE)


def mask_distribution():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).mask(False))
    with numpyro.plate("data", 5):
        local = numpyro.sample("local", dist.HalfNormal(2.0).mask(PRESENT))
        numpyro.sample("y", dist.Normal(x + local, 0.5).mask(PRESENT), obs=FIVE)


def scale_handler():
    with handlers.scale(scale=0.5):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", 5), handlers.scale(scale=np.linspace(0.5, 2.5, 5)):
        local = numpyro.sample("local", dist.Normal(x, 1.0))
        numpyro.sample("y", dist.Normal(local, 1.0), obs=FIVE)


def subsampled(data):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", 10, subsample_size=4) as index:
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=jnp.asarray(data)[index])


def subsampled_local(data):
    with numpyro.plate("data", 10, subsample_size=4):
        batch = numpyro.subsample(data, event_dim=0)
        local = numpyro.sample("local", dist.HalfNormal(2.0))
        numpyro.sample("y", dist.Normal(local, 1.0), obs=batch)


def fixed_subsample(model):
    return handlers.substitute(model, data={"data": jnp.asarray(SUBSAMPLE)})


# Factors, deterministic sites, parameters, missing data, reparametrisation


def factor():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.factor("likelihood", -jnp.abs(x - 1.0))


def factor_in_plate():
    with numpyro.plate("data", 5):
        x = numpyro.sample("x", dist.Exponential(1.0))
        numpyro.factor("likelihood", -jnp.square(x - FIVE))


def deterministic():
    with numpyro.plate("data", 3):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        square = numpyro.deterministic("square", x**2)
    total = numpyro.deterministic("total", jnp.sum(square))
    numpyro.sample("y", dist.Normal(total, 1.0), obs=2.0)


def param():
    weight = numpyro.param("weight", 1.5)
    width = numpyro.param("width", 0.7, constraint=dist.constraints.positive)
    x = numpyro.sample("x", dist.Normal(weight, 1.0))
    numpyro.sample("y", dist.Normal(weight * x, width), obs=0.4)


def obs_mask(data):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", 5):
        y = numpyro.sample("y", dist.Normal(mean, 1.0), obs=data, obs_mask=PRESENT)
    numpyro.sample("total", dist.Normal(jnp.sum(y), 1.0), obs=3.0)


def obs_mask_discrete():
    rate = numpyro.sample("rate", dist.LogNormal(0.5, 0.5))
    with numpyro.plate("data", 3):
        y = numpyro.sample("y", dist.Poisson(rate), obs=COUNTS, obs_mask=PRESENT[:3])
    numpyro.sample("total", dist.Normal(jnp.sum(y), 1.0), obs=10.0)


def hierarchical():
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("group", 3):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
        numpyro.sample("y", dist.Normal(effect, 1.0), obs=THREE)


def transformed():
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    affine = transforms.AffineTransform(mean, 2.0)
    with numpyro.plate("group", 3):
        effect = numpyro.sample(
            "effect", dist.TransformedDistribution(dist.Normal(0.0, 1.0), affine)
        )
        numpyro.sample("y", dist.Normal(effect, 1.0), obs=THREE)


# Handlers around the model, arguments, return values


def generative():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    z = numpyro.sample("z", dist.Normal(x, 1.0))
    weight = numpyro.param("weight", 1.5)
    numpyro.sample("side", dist.Normal(z, 1.0), obs=-0.5)
    return numpyro.sample("y", dist.Normal(weight * z, 0.5))


GENERATIVE = handlers.condition(generative, data={"y": 1.0})


def with_arguments(data, scale=1.0, *, prior_mean, offsets=None):
    x = numpyro.sample("x", dist.Normal(prior_mean, scale))
    mean = x if offsets is None else x + offsets["first"] - offsets["second"]
    with numpyro.plate("data", len(data)):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=data)


def returns_array():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=THREE)
    return jnp.cumsum(x)


def returns_tuple():
    n = numpyro.sample("n", dist.Poisson(3.0))
    numpyro.sample("y", dist.Normal(n, 1.0), obs=4.2)
    return n, jnp.stack([n, 2 * n])


def returns_dict():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    is_large = numpyro.sample("is_large", dist.Bernoulli(0.4))
    numpyro.sample("y", dist.Normal(x + 3 * is_large, 1.0), obs=2.5)
    return {"shifted": x + 3 * is_large, "pair": jnp.stack([x, -x])}


# Control flow


def scan_continuous(data):
    def transition(previous, observation):
        x = numpyro.sample("x", dist.Normal(0.9 * previous, 0.5))
        numpyro.deterministic("double", 2 * x)
        numpyro.sample("y", dist.Normal(x, 0.3), obs=observation)
        return x, x

    first = numpyro.sample("first", dist.Normal(0.0, 1.0))
    last, _ = scan(transition, first, data)
    numpyro.sample("end", dist.Normal(last, 1.0), obs=1.0)


def scan_discrete(data):
    rows = jnp.array([[0.1, 0.5, 0.4], [0.2, 0.2, 0.6], [0.15, 0.15, 0.7]])
    means = jnp.array([-1.0, 1.0, 0.0])

    def transition(previous, observation):
        state = numpyro.sample("state", dist.Categorical(probs=rows[previous]))
        numpyro.sample("y", dist.Normal(means[state], 1.0), obs=observation)
        return state, state

    first = numpyro.sample("first", dist.Categorical(probs=jnp.full(3, 1 / 3)))
    _, states = scan(transition, first, data)
    return states


def scan_without_data():
    def transition(previous, _):
        with numpyro.plate("series", 3):
            x = numpyro.sample("x", dist.Normal(previous, 1.0))
            y = numpyro.sample("y", dist.Poisson(jnp.exp(0.3 * x)))
        return x, y

    _, y = scan(transition, jnp.zeros(3), None, length=4)
    return y


def cond_branches():
    is_far = numpyro.sample("is_far", dist.Bernoulli(0.4))

    def far(offset):
        x = numpyro.sample("x", dist.Normal(4.0 + offset, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=2.0)
        return x

    def near(offset):
        x = numpyro.sample("x", dist.Normal(offset, 0.5))
        numpyro.sample("y", dist.Normal(x, 2.0), obs=2.0)
        return -x

    offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
    numpyro.deterministic("value", cond(is_far == 1, far, near, offset))


def cond_discrete():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    n = cond(
        x > 0,
        lambda rate: numpyro.sample("n", dist.Poisson(rate)),
        lambda rate: numpyro.sample("n", dist.Poisson(3 * rate)),
        2.0,
    )
    numpyro.sample("y", dist.Normal(n, 1.0), obs=3.3)


# Supports that depend on other choices


def support_uniform():
    x = numpyro.sample("x", dist.HalfNormal(2.0))
    z = numpyro.sample("z", dist.Uniform(0.0, x))
    w = numpyro.sample("w", dist.Uniform(0.0, z))
    numpyro.sample("y", dist.Normal(w, 0.5), obs=0.8)


def support_truncated():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", 3):
        z = numpyro.sample("z", dist.TruncatedNormal(0.0, 1.0, low=x))
        numpyro.sample("y", dist.Normal(z, 0.5), obs=THREE)


def support_binomial():
    n = numpyro.sample("n", dist.Poisson(6.0))
    with numpyro.plate("data", 3):
        k = numpyro.sample("k", dist.Binomial(total_count=n, probs=0.4))
        numpyro.sample("y", dist.Normal(k, 1.0), obs=THREE)


def support_discrete_uniform():
    high = numpyro.sample("high", dist.DiscreteUniform(1, 6))
    k = numpyro.sample("k", dist.DiscreteUniform(0, high))
    numpyro.sample("y", dist.Normal(k, 1.0), obs=2.2)


# Distributions


def latent(build, observed):
    """Return a model with `build(strength)` as the prior of a scalar and of a plate, and observed.

    The strength is log-normal because a Gamma, say, takes ten times as long to compile.
    """

    def model():
        strength = numpyro.sample("strength", dist.LogNormal(0.2, 0.5))
        x = numpyro.sample("x", build(strength))
        with numpyro.plate("group", 3):
            z = numpyro.sample("z", build(strength))
            numpyro.sample("y", dist.Normal(jnp.tanh(x / 3) + jnp.tanh(z / 3), 1.0), obs=THREE)
        numpyro.sample("same", build(strength), obs=observed)

    return model


def odds(strength):
    """Turn a positive strength into a probability."""
    return strength / (1 + strength)


def poisson_multiplier():
    rate = numpyro.sample("rate", dist.LogNormal(0.5, 0.5))
    multiplier = numpyro.sample("multiplier", dist.Poisson(2.0))
    with numpyro.plate("data", 3):
        local = numpyro.sample("local", dist.Poisson(rate))
        numpyro.sample("y", dist.Poisson(rate * multiplier + local + 0.1), obs=COUNTS)


def categorical():
    row = numpyro.sample("row", dist.Categorical(logits=jnp.array([0.0, 1.0])))
    probs = jnp.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    with numpyro.plate("data", 3):
        column = numpyro.sample("column", dist.Categorical(probs=probs[row]))
        numpyro.sample("y", dist.Normal(jnp.array([-1.0, 0.0, 1.0])[column], 0.5), obs=THREE)


def multinomial():
    counts = numpyro.sample("counts", dist.Multinomial(6, probs=jnp.array([0.2, 0.3, 0.5])))
    with numpyro.plate("row", 4):
        local = numpyro.sample("local", dist.Multinomial(3, logits=jnp.array([0.0, 0.5, 1.0])))
        numpyro.sample("y", dist.Normal(local - counts, 1.0).to_event(1), obs=ROWS)


def ordered_logistic():
    predictor = numpyro.sample("predictor", dist.Normal(0.0, 1.0))
    cuts = jnp.array([-1.0, 0.5, 2.0])
    with numpyro.plate("data", 3):
        grade = numpyro.sample("grade", dist.OrderedLogistic(predictor, cuts))
        numpyro.sample("y", dist.Normal(grade, 1.0), obs=THREE)
    numpyro.sample("rating", dist.OrderedLogistic(predictor, cuts), obs=2)


def dirichlet():
    concentration = numpyro.sample("concentration", dist.LogNormal(1.0, 0.5))
    weights = numpyro.sample("weights", dist.Dirichlet(concentration * jnp.ones(3)))
    with numpyro.plate("row", 2):
        local = numpyro.sample("local", dist.Dirichlet(1.0 + 5 * weights))
        counts = np.array([[2, 1, 4], [0, 3, 4]])
        numpyro.sample("y", dist.Multinomial(7, probs=local), obs=counts)


def multivariate_normal():
    covariance = jnp.array([[1.0, 0.5, 0.0], [0.5, 2.0, 0.3], [0.0, 0.3, 1.5]])
    mean = numpyro.sample("mean", dist.MultivariateNormal(jnp.zeros(3), covariance))
    with numpyro.plate("row", 4):
        local = numpyro.sample("local", dist.MultivariateNormal(mean, precision_matrix=covariance))
        numpyro.sample("y", dist.MultivariateNormal(local, scale_tril=jnp.eye(3)), obs=ROWS)


def lkj_cholesky():
    scales = numpyro.sample("scales", dist.HalfNormal(1.0).expand([3]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(3, concentration=2.0))
    with numpyro.plate("row", 4):
        scale_tril = scales[:, None] * factor
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(3), scale_tril=scale_tril), obs=ROWS)


def mixture():
    gap = numpyro.sample("gap", dist.HalfNormal(2.0))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    components = dist.Normal(jnp.stack([-gap, gap]), jnp.array([0.5, 1.0]))
    prior = dist.MixtureSameFamily(dist.Categorical(probs=weights), components)
    x = numpyro.sample("x", prior)
    with numpyro.plate("data", 3):
        z = numpyro.sample("z", prior)
        numpyro.sample("y", dist.Normal(x + z, 1.0), obs=THREE)


def zero_inflated():
    rate = numpyro.sample("rate", dist.LogNormal(0.5, 0.5))
    zeros = dist.ZeroInflatedDistribution(dist.NegativeBinomial2(rate, 2.0), gate=0.3)
    n = numpyro.sample("n", dist.ZeroInflatedPoisson(0.3, rate))
    with numpyro.plate("data", 3):
        k = numpyro.sample("k", zeros)
        numpyro.sample("y", dist.Normal(n + k, 1.0), obs=THREE)
    numpyro.sample("count", dist.ZeroInflatedPoisson(0.3, rate), obs=0)


def delta():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    double = numpyro.sample("double", dist.Delta(2 * x, log_density=-0.3 * x**2))
    pair = numpyro.sample("pair", dist.Delta(jnp.stack([x, double]), event_dim=1))
    with numpyro.plate("data", 3):
        same = numpyro.sample("same", dist.Delta(x))
        numpyro.sample("y", dist.Normal(same + double + pair[0], 1.0), obs=THREE)


SHAPES = (
    Construct("scalars and vectors", scalar_and_vector),
    Construct("plate", plate),
    Construct("plate dim=-1 and dim=-2", plate_dims),
    Construct("nested plates", nested_plates),
    Construct("expand", expand),
    Construct("to_event", to_event),
    Construct("expand and to_event in a plate", expand_to_event),
    Construct("sample_shape", sample_shape),
    Construct("mask handler", mask_handler),
    Construct("mask distribution", mask_distribution),
    Construct("scale", scale_handler),
    Construct("plate with a fixed subsample", fixed_subsample(subsampled), (TEN,)),
    Construct("latents in a fixed subsample", fixed_subsample(subsampled_local), (TEN,)),
)

STATEMENTS = (
    Construct("factor", factor),
    Construct("factor in a plate", factor_in_plate),
    Construct("deterministic", deterministic, outputs=("total", "square")),
    Construct("param", param),
    Construct("obs_mask", obs_mask, (np.where(PRESENT, FIVE, np.nan),)),
    Construct("obs_mask of a discrete site", obs_mask_discrete),
)

HANDLERS = (
    Construct(
        "LocScaleReparam", handlers.reparam(hierarchical, config={"effect": LocScaleReparam(0.0)})
    ),
    Construct(
        "LocScaleReparam with a param",
        handlers.reparam(hierarchical, config={"effect": LocScaleReparam()}),
    ),
    Construct(
        "TransformReparam", handlers.reparam(transformed, config={"effect": TransformReparam()})
    ),
    Construct("condition", GENERATIVE),
    Construct("substitute a sample site", handlers.substitute(GENERATIVE, data={"x": 0.7})),
    Construct("substitute a param", handlers.substitute(GENERATIVE, data={"weight": -2.0})),
    Construct("block an observed site", handlers.block(GENERATIVE, hide=["side"])),
    Construct(
        "block a substituted site",
        handlers.block(handlers.substitute(GENERATIVE, data={"x": 0.7}), hide=["x"]),
    ),
    Construct("do", handlers.do(GENERATIVE, data={"z": 0.7})),
)

CALLS = (
    Construct("arguments", with_arguments, (FIVE, 2.0), {"prior_mean": 0.5}),
    Construct(
        "keyword arguments",
        with_arguments,
        kwargs={
            "data": FIVE,
            "prior_mean": np.float32(0.5),
            "offsets": {"first": FIVE, "second": 1.0},
        },
    ),
    Construct("return an array", returns_array, outputs="return"),
    Construct("return a tuple", returns_tuple, outputs="return"),
    Construct("return a dict", returns_dict, outputs="return"),
)

CONTROL_FLOW = (
    Construct("scan", scan_continuous, (FIVE,)),
    Construct("scan of a discrete state", scan_discrete, (FIVE,)),
    Construct(
        "scan with a plate, conditioned",
        handlers.condition(scan_without_data, data={"y": jnp.arange(12).reshape(4, 3) % 4}),
    ),
    Construct("cond", cond_branches),
    Construct("cond with a discrete site", cond_discrete),
)

SUPPORTS = (
    Construct("Uniform(0, x)", support_uniform),
    Construct("TruncatedNormal(low=x)", support_truncated),
    Construct("Binomial(total_count=n)", support_binomial),
    Construct("DiscreteUniform(0, n)", support_discrete_uniform),
)

DISTRIBUTIONS = (
    Construct("Bernoulli (probs)", latent(lambda s: dist.Bernoulli(odds(s)), 1)),
    Construct("Bernoulli (logits)", latent(lambda s: dist.Bernoulli(logits=s - 1.5), 0)),
    Construct("Categorical", categorical),
    Construct("Binomial (probs)", latent(lambda s: dist.Binomial(10, odds(s)), 4)),
    Construct("Binomial (logits)", latent(lambda s: dist.Binomial(10, logits=s - 1.5), 4)),
    Construct("BetaBinomial", latent(lambda s: dist.BetaBinomial(s, 2.0, 8), 3)),
    Construct("Poisson", poisson_multiplier),
    Construct("Geometric (probs)", latent(lambda s: dist.Geometric(odds(s)), 2)),
    Construct("Geometric (logits)", latent(lambda s: dist.Geometric(logits=s - 1.5), 2)),
    Construct(
        "NegativeBinomial (probs)", latent(lambda s: dist.NegativeBinomialProbs(4, odds(s)), 2)
    ),
    Construct("NegativeBinomial (mean)", latent(lambda s: dist.NegativeBinomial2(2.0, s), 2)),
    Construct("ZeroInflated", zero_inflated),
    Construct("DiscreteUniform", latent(lambda _: dist.DiscreteUniform(1, 4), 4)),
    Construct("Multinomial", multinomial),
    Construct("OrderedLogistic", ordered_logistic),
    Construct("Normal", latent(lambda s: dist.Normal(s, 2.0), 0.3)),
    Construct("StudentT", latent(lambda s: dist.StudentT(4.0, s, 1.0), 0.3)),
    Construct("Cauchy", latent(lambda s: dist.Cauchy(0.0, s), 0.3)),
    Construct("Laplace", latent(lambda s: dist.Laplace(0.0, s), 0.3)),
    Construct("Gamma", latent(lambda s: dist.Gamma(2.0, s), 0.8)),
    Construct("InverseGamma", latent(lambda s: dist.InverseGamma(3.0, s), 0.8)),
    Construct("Beta", latent(lambda s: dist.Beta(s, 2.0), 0.4)),
    Construct("Exponential", latent(lambda s: dist.Exponential(s), 0.8)),
    Construct("HalfNormal", latent(lambda s: dist.HalfNormal(s), 0.8)),
    Construct("HalfCauchy", latent(lambda s: dist.HalfCauchy(s), 0.8)),
    Construct("LogNormal", latent(lambda s: dist.LogNormal(0.0, s), 0.8)),
    Construct("Uniform", latent(lambda _: dist.Uniform(-1.0, 2.0), 0.3)),
    Construct(
        "TruncatedNormal (low)", latent(lambda s: dist.TruncatedNormal(0.0, s, low=-0.5), 0.3)
    ),
    Construct(
        "TruncatedNormal (high)", latent(lambda s: dist.TruncatedNormal(0.0, s, high=0.5), 0.3)
    ),
    Construct(
        "TruncatedNormal (low and high)",
        latent(lambda s: dist.TruncatedNormal(s, 1.0, low=-1.0, high=2.0), 0.3),
    ),
    Construct("Dirichlet", dirichlet),
    Construct("MultivariateNormal", multivariate_normal),
    Construct("LKJCholesky", lkj_cholesky),
    Construct("MixtureSameFamily", mixture),
    Construct(
        "TransformedDistribution",
        latent(
            lambda s: dist.TransformedDistribution(
                dist.Normal(0.0, 1.0),
                [transforms.AffineTransform(s, 0.5), transforms.SigmoidTransform()],
            ),
            0.6,
        ),
    ),
    Construct("VonMises", latent(lambda s: dist.VonMises(0.5, s), 0.3)),
    Construct("Delta", delta),
)

CONSTRUCTS = SHAPES + STATEMENTS + HANDLERS + CALLS + CONTROL_FLOW + SUPPORTS + DISTRIBUTIONS
