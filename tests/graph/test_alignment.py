"""Which sites' elements are conditionally independent, and that no perturbation says otherwise."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpyro import handlers
from numpyro.contrib.control_flow import scan

from adlmh_jax.graph.alignment import (
    ALL,
    TRIVIAL,
    align,
    axes_of_terms,
    find_users,
    is_independent,
    reduce_to_elements,
    spread_to_term,
)
from adlmh_jax.graph.graph import Graph, trace_graph
from adlmh_jax.graph.probing import Probe, find_offender
from adlmh_jax.model.call import run_model
from adlmh_jax.model.distributions import log_terms

SIZE = 5


def numbers(*shape):
    """Return data: the same for the same shape."""
    return jnp.asarray(np.random.default_rng(shape).normal(size=shape), jnp.float32)


def labels(count, *shape):
    return jnp.asarray(np.random.default_rng(shape).integers(0, count, shape), jnp.int32)


def plate_of(transform, noise=1.0, length=SIZE):
    """Return a model of local latents whose data see a transform of them all."""

    def model(size=length):
        with numpyro.plate("items", size):
            x = numpyro.sample("x", dist.Normal())
        mean = transform(x)
        numpyro.sample("y", dist.Normal(mean, noise).to_event(0), obs=numbers(*jnp.shape(mean)))

    return model


def nested(size=SIZE):
    with numpyro.plate("groups", 3, dim=-1):
        mu = numpyro.sample("mu", dist.Normal())
        with numpyro.plate("items", size, dim=-2):
            x = numpyro.sample("x", dist.Normal(mu, 1))
            numpyro.sample("y", dist.Normal(x, 1), obs=numbers(size, 3))


def nested_outer(size=SIZE):
    groups = numpyro.plate("groups", size, dim=-2)
    with groups:
        mu = numpyro.sample("mu", dist.Normal())
    with groups, numpyro.plate("items", 4, dim=-1):
        numpyro.sample("y", dist.Normal(mu, 1), obs=numbers(size, 4))


def with_factor(size=SIZE):
    with numpyro.plate("items", size):
        x = numpyro.sample("x", dist.Normal())
        numpyro.sample("y", dist.Normal(x, 1), obs=numbers(size))
    numpyro.factor("whole", -(jnp.sum(x) ** 2))


def masked(size=SIZE):
    with numpyro.plate("items", size), handlers.mask(mask=jnp.arange(size) % 2 == 0):
        x = numpyro.sample("x", dist.Gamma(2, 2))
        numpyro.sample("y", dist.Poisson(x), obs=labels(6, size))


def scaled(size=SIZE):
    with numpyro.plate("items", size), handlers.scale(scale=2.5):
        x = numpyro.sample("x", dist.Beta(2, 2))
        numpyro.sample("y", dist.Binomial(10, x), obs=labels(10, size))


def scanned(size=SIZE):
    def step(previous, y):
        x = numpyro.sample("x", dist.Normal(previous, 1))
        numpyro.sample("y", dist.Normal(x, 1), obs=y)
        return x, None

    scan(step, 0.0, numbers(size))


def mixture(size=SIZE):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("clusters", 3):
        mu = numpyro.sample("mu", dist.Normal(0, 3))
    with numpyro.plate("items", size):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(mu[z], 1), obs=numbers(size))


def same_family(size=SIZE):
    with numpyro.plate("clusters", 3):
        mu = numpyro.sample("mu", dist.Normal(0, 3))
    parts = dist.Normal(mu, 1)
    with numpyro.plate("items", size):
        x = numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), parts))
        numpyro.sample("y", dist.Normal(x, 1), obs=numbers(size))


def dawid_skene(size=SIZE, annotators=4, classes=3):
    prevalence = numpyro.sample("prevalence", dist.Dirichlet(jnp.ones(classes)))
    with numpyro.plate("annotators", annotators, dim=-2), numpyro.plate("classes", classes):
        confusion = numpyro.sample("confusion", dist.Dirichlet(jnp.ones(classes)))
    with numpyro.plate("items", size, dim=-2):
        c = numpyro.sample("c", dist.Categorical(prevalence))
        with numpyro.plate("ratings", annotators, dim=-1):
            rows = confusion[jnp.arange(annotators), c]
            numpyro.sample("y", dist.Categorical(rows), obs=labels(classes, size, annotators))


def dawid_skene_flat(size=SIZE, annotators=4, classes=3):
    prevalence = numpyro.sample("prevalence", dist.Dirichlet(jnp.ones(classes)))
    plates = numpyro.plate("annotators", annotators, dim=-2), numpyro.plate("classes", classes)
    with plates[0], plates[1]:
        confusion = numpyro.sample("confusion", dist.Dirichlet(jnp.ones(classes)))
    with numpyro.plate("items", size):
        c = numpyro.sample("c", dist.Categorical(prevalence))
    rows = confusion[jnp.arange(annotators), c[:, None]]
    numpyro.sample("y", dist.Categorical(rows), obs=labels(classes, size, annotators))


def events(size=SIZE):
    with numpyro.plate("items", size):
        x = numpyro.sample("x", dist.Normal(jnp.zeros(3), 1).to_event(1))
        tril = jnp.eye(3) + jnp.tril(0.1 * jnp.ones((3, 3)))
        y = numbers(size, 3)
        numpyro.sample("y", dist.MultivariateNormal(jnp.cumsum(x, -1), scale_tril=tril), obs=y)


def rows_on_simplex(size=SIZE):
    with numpyro.plate("items", size):
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
        numpyro.sample("y", dist.Categorical(p), obs=labels(3, size))


def regression(size=SIZE):
    with numpyro.plate("features", 3):
        beta = numpyro.sample("beta", dist.Normal())
    with numpyro.plate("items", size):
        x = numpyro.sample("x", dist.Normal(jnp.zeros(3), 1).to_event(1))
        numpyro.sample("y", dist.Normal(x @ beta, 1), obs=numbers(size))


def local_scales(size=SIZE):
    """Other sites' elements, data, and the element's position all meet in one term."""
    with numpyro.plate("items", size):
        s = numpyro.sample("s", dist.HalfNormal(numbers(size) ** 2 + 0.1))
        x = numpyro.sample("x", dist.StudentT(4.0, jnp.arange(size) / size, s))
        table = numbers(size, 2)
        k = numpyro.sample("k", dist.Bernoulli(0.3))
        seen = jnp.take_along_axis(table, k[:, None], axis=-1)[:, 0]
        y = numbers(size)
        numpyro.sample("y", dist.TruncatedNormal(x + seen, s, low=-9.0), obs=jnp.abs(y))


def matrix(transform):
    def model(size=SIZE):
        with numpyro.plate("columns", 3, dim=-1), numpyro.plate("rows", size, dim=-2):
            x = numpyro.sample("x", dist.Normal())
        mean = transform(x)
        numpyro.sample("y", dist.Normal(mean, 1), obs=numbers(*jnp.shape(mean)))

    return model


TABLE = numbers(4)
INDEX = jnp.array([0, 0, 1, 2, 4])


def looked_up(size=SIZE):
    with numpyro.plate("items", size):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(4) / 4))
        numpyro.sample("y", dist.Normal(TABLE[z], 1), obs=numbers(size))


def one_hot(size=SIZE):
    with numpyro.plate("items", size):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(4) / 4))
        mean = jax.nn.one_hot(z, 4) @ TABLE
        numpyro.sample("y", dist.Normal(mean, 1), obs=numbers(size))


# name: (model, site, whether its elements are conditionally independent given the rest)
CASES = {
    "identity": (plate_of(lambda x: x), "x", True),
    "function": (plate_of(lambda x: jnp.exp(-(x**2)) + jnp.arange(x.size)), "x", True),
    "copies": (plate_of(lambda x: jnp.stack([x, 2 * x])), "x", True),
    "columns": (plate_of(lambda x: x[:, None] * jnp.arange(3.0)), "x", True),
    "full slice": (plate_of(lambda x: x[:]), "x", True),
    "mean": (plate_of(jnp.mean), "x", False),
    "centred": (plate_of(lambda x: x - jnp.mean(x)), "x", False),
    "softmax": (plate_of(jax.nn.softmax), "x", False),
    "reversed": (plate_of(lambda x: x[::-1]), "x", False),
    "rolled": (plate_of(lambda x: jnp.roll(x, 1)), "x", False),
    "cumulative": (plate_of(jnp.cumsum), "x", False),
    "sorted": (plate_of(jnp.sort), "x", False),
    "differences": (plate_of(jnp.diff), "x", False),
    "shifted": (plate_of(lambda x: jnp.pad(x[:-1], (1, 0))), "x", False),
    "repeated index": (plate_of(lambda x: x[INDEX]), "x", False),
    "one element": (plate_of(lambda x: x + x[0]), "x", False),
    "static update": (plate_of(lambda x: x.at[0].set(x[1])), "x", False),
    "outer product": (plate_of(lambda x: x[:, None] * x), "x", False),
    "product": (plate_of(lambda x: numbers(SIZE, SIZE) @ x), "x", False),
    "fold": (plate_of(lambda x: jax.lax.fori_loop(0, 2, lambda _, v: 2 * v, x)), "x", False),
    "condition": (plate_of(lambda x: jnp.where(jnp.any(x > 0), x, -x)), "x", False),
    "scalar": (plate_of(lambda x: jnp.cumsum(x), length=1), "x", True),
    "nested": (nested, "x", True),
    "nested, its column": (nested, "mu", True),
    "nested, outer": (nested_outer, "mu", True),
    "factor": (with_factor, "x", False),
    "mask": (masked, "x", True),
    "scale": (scaled, "x", True),
    "scan": (scanned, "x", False),
    "assignments": (mixture, "z", True),
    "means of clusters": (mixture, "mu", False),
    "weights": (mixture, "weights", True),
    "mixture marginally": (same_family, "x", True),
    "means, marginally": (same_family, "mu", False),
    "item classes": (dawid_skene, "c", True),
    "item classes, flat": (dawid_skene_flat, "c", True),
    "confusion": (dawid_skene, "confusion", False),
    "events": (events, "x", True),
    "simplex": (rows_on_simplex, "p", True),
    "covariates": (regression, "x", True),
    "coefficients": (regression, "beta", False),
    "scales": (local_scales, "s", True),
    "take along axis": (local_scales, "k", True),
    "truncated": (local_scales, "x", True),
    "table": (looked_up, "z", True),
    "one hot": (one_hot, "z", True),
    "transposed": (matrix(lambda x: x.T), "x", True),
    "transposed and not": (matrix(lambda x: (x @ x.T)[:, :3] + x), "x", False),
    "row sums": (matrix(lambda x: jnp.sum(x, 1)), "x", False),
    "flattened": (matrix(lambda x: jnp.reshape(x, -1)), "x", False),
    "unit axes": (matrix(lambda x: jnp.reshape(x, (SIZE, 1, 3, 1))), "x", True),
}
INDEPENDENT = {name: case[:2] for name, case in CASES.items() if case[2]}


@dataclass(frozen=True)
class Sketch:
    """A model's terms as a graph, and as compiled code."""

    graph: Graph
    terms: dict
    batch_shapes: dict
    draws: tuple
    evaluate: Callable

    def align(self, site):
        return align(self.graph, self.graph.inputs[site], self.batch_shapes[site])

    def axes(self, site):
        return axes_of_terms(self.align(site), self.terms)


def position_of(latent, seed):
    """Return values inside the supports of all the models here."""
    random, position = np.random.default_rng(seed), {}
    for name, message in latent.items():
        fn, shape = message["fn"], jnp.shape(message["value"])
        value = random.uniform(0.1, 0.9, shape)
        if fn.support is dist.constraints.simplex:
            value = value / value.sum(-1, keepdims=True)
        elif fn.support.is_discrete:
            value = random.permutation(np.arange(value.size) % 2).reshape(shape)
        position[name] = jnp.asarray(value, message["value"].dtype)
    return position


@functools.cache
def sketch(model, *args):
    latent = {}

    def draw(key):
        latent.update(run_model(model, args, {}, {}, key).latent)

    jax.eval_shape(draw, jax.random.key(0))
    ends = {name: jnp.ndim(m["value"]) - m["fn"].event_dim for name, m in latent.items()}
    batch_shapes = {name: jnp.shape(latent[name]["value"])[:end] for name, end in ends.items()}

    def evaluate(position):
        run = run_model(model, args, {}, position, jax.random.key(0))
        terms = {name: jnp.asarray(log_terms(message)) for name, message in run.scored.items()}
        for name, shape in batch_shapes.items():
            terms[name] = jnp.broadcast_to(terms[name], shape)
        return terms

    draws = position_of(latent, 1), position_of(latent, 2)
    return Sketch(*trace_graph(evaluate, draws[0]), batch_shapes, draws, jax.jit(evaluate))


@pytest.mark.parametrize("name", CASES)
def test_classification(name):
    model, site, expected = CASES[name]
    drawn = sketch(model)
    assert is_independent(drawn.align(site), drawn.terms.values()) == expected


def probe(evaluate, draws, site, axes, elements):
    """Return the term that moves when it should not."""
    found = find_offender(
        lambda positions: jax.tree.map(np.asarray, jax.lax.map(evaluate, positions)),
        draws,
        [Probe(site, axes, list(elements))],
    )
    return found and found[1]


@pytest.mark.parametrize("name", CASES)
def test_probe_agrees(name):
    model, site, _ = CASES[name]
    drawn = sketch(model)
    elements = list(np.ndindex(drawn.batch_shapes[site]))
    assert probe(drawn.evaluate, drawn.draws, site, drawn.axes(site), elements) is None


@pytest.mark.parametrize("name", ["mean", "reversed", "cumulative", "repeated index", "factor"])
def test_probe_finds_a_wrong_analysis(name):
    model, site, _ = CASES[name]
    drawn = sketch(model)
    wrong = {term: (0,) for term, number in drawn.terms.items() if drawn.graph.avals[number].shape}
    offender = probe(drawn.evaluate, drawn.draws, site, wrong, [(0,), (SIZE - 1,)])
    assert offender == ("whole" if name == "factor" else "y")


def test_probe_finds_an_untouched_term_that_moves():
    drawn = sketch(CASES["identity"][0])
    assert probe(drawn.evaluate, drawn.draws, "x", {"x": (0,)}, [(2,)]) == "y"


def test_states():
    assert sketch(nested_outer).axes("mu") == {"mu": (0, TRIVIAL), "y": (0, TRIVIAL)}
    assert sketch(CASES["transposed"][0]).axes("x") == {"x": (0, 1), "y": (1, 0)}
    assert sketch(CASES["row sums"][0]).axes("x")["y"] == (0, ALL)
    assert sketch(mixture).axes("z") == {"z": (0,), "y": (0,)}
    assert sketch(mixture).axes("weights") == {"weights": (), "z": ()}


def test_shared_users():
    drawn = sketch(mixture)
    graph = drawn.graph
    assert align(graph, graph.inputs["z"], (SIZE,), find_users(graph)) == drawn.align("z")


@pytest.mark.parametrize("name", INDEPENDENT)
def test_a_block_of_moves_equals_single_moves(name):
    """Reduced differences are each element's own; spread decisions take the right terms."""
    model, site = INDEPENDENT[name]
    drawn = sketch(model)
    batch_shape, axes, (here, other) = drawn.batch_shapes[site], drawn.axes(site), drawn.draws
    before, after = drawn.evaluate(here), drawn.evaluate({**here, site: other[site]})
    found = sum(reduce_to_elements(after[t] - before[t], axes[t], batch_shape) for t in axes)
    assert found.shape == batch_shape
    for element in np.ndindex(batch_shape):
        value = here[site].at[element].set(other[site][element])
        alone = drawn.evaluate({**here, site: value})
        change = sum(jnp.sum(alone[t] - before[t]) for t in before)
        np.testing.assert_allclose(found[element], change, rtol=1e-4, atol=1e-4)
        is_moved = jnp.zeros(batch_shape, bool).at[element].set(True)
        for term in axes:
            chosen = spread_to_term(is_moved, axes[term], before[term].shape)
            np.testing.assert_array_equal(jnp.where(chosen, after[term], before[term]), alone[term])


# name: (function of an array of shape (4, 3) whose rows are elements, the axis that follows them)
RULES = {
    "argmax of rows": (lambda x: jnp.argmax(x, 1), 0),
    "argmax of columns": (lambda x: jnp.argmax(x, 0), ALL),
    "batched product": (lambda x: jnp.einsum("ij,ijk->ik", x, numbers(4, 3, 2)), 0),
    "broadcast beside": (lambda x: jnp.broadcast_to(x, (2, 4, 3)), 1),
    "cholesky": (lambda x: jnp.linalg.cholesky(x[:, :, None] * x[:, None] + jnp.eye(3)), 0),
    "clip": (lambda x: jnp.clip(x, -1, 1), 0),
    "columns of a product": (lambda x: numbers(5, 3) @ x.T, 1),
    "concatenated columns": (lambda x: jnp.concatenate([x, x], 1), 0),
    "concatenated rows": (lambda x: jnp.concatenate([x, x]), ALL),
    "contracted rows": (lambda x: x.T @ numbers(4, 2), ALL),
    "cumulative columns": (lambda x: jnp.cumsum(x, 1), 0),
    "cumulative rows": (lambda x: jnp.cumprod(x, 0), ALL),
    "dynamic columns": (lambda x: jax.lax.dynamic_slice(x, (0, x[0, 0].astype(int)), (4, 1)), ALL),
    "dynamic rows": (lambda x: jax.lax.dynamic_slice(x, (1, 0), (2, 3)), ALL),
    "equal sizes by chance": (lambda x: jnp.reshape(x.T, (4, 3)), ALL),
    "flipped columns": (lambda x: x[:, ::-1], 0),
    "gathered columns": (lambda x: x[:, jnp.array([2, 0])], 0),
    "gathered rows": (lambda x: x[jnp.array([3, 2, 1, 0])], ALL),
    "irregular reshape": (lambda x: jnp.reshape(x, (2, 2, 3)), ALL),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, -1), 0),
    "moved axis": (lambda x: jnp.moveaxis(x[:, None] * numbers(5, 1), 0, -1), 2),
    "own entries": (lambda x: jnp.take_along_axis(x, labels(3, 4, 2), 1), 0),
    "padded columns": (lambda x: jnp.pad(x, ((0, 0), (1, 1))), 0),
    "padded rows": (lambda x: jnp.pad(x, ((1, 0), (0, 0)))[:4], ALL),
    "repeated columns": (lambda x: jnp.repeat(x, 2, 1), 0),
    "scalar predicate": (lambda x: jax.lax.select(jnp.sum(numbers(3)) > 0, x, -x), 0),
    "scattered": (lambda x: x.at[1].set(0.0), ALL),
    "shared rows": (lambda x: x + x[:1], ALL),
    "some rows": (lambda x: x[1:], ALL),
    "sorted columns": (lambda x: jnp.sort(x, 1), 0),
    "sorted rows": (lambda x: jnp.sort(x, 0), ALL),
    "split columns": (lambda x: jnp.split(x, 3, 1)[2], 0),
    "split rows": (lambda x: jnp.split(x, 2, 0)[0], ALL),
    "stacked": (lambda x: jnp.stack([x, x]), 1),
    "tiled columns": (lambda x: jnp.tile(x, (1, 2)), 0),
    "tiled rows": (lambda x: jnp.tile(x, (2, 1)), ALL),
    "top columns": (lambda x: jax.lax.top_k(x, 2)[0], 0),
    "top rows": (lambda x: jax.lax.top_k(x.T, 4)[0], ALL),
    "two paths": (lambda x: numbers(4, 4) + x[:, :1] + x[:, 0], ALL),
    "untouched": (lambda x: jnp.zeros_like(x), None),
    "unstacked columns": (lambda x: jnp.unstack(x, axis=1)[1], 0),
    "unstacked rows": (lambda x: jnp.unstack(x, axis=0)[1], ALL),
    "updated columns": (lambda x: jax.lax.dynamic_update_slice(x, 2 * x[:, :1], (0, 1)), 0),
    "updated rows": (lambda x: jax.lax.dynamic_update_slice(x, 2 * x[:1], (1, 0)), ALL),
    "vectorised": (lambda x: jax.vmap(lambda row: row[jnp.argmax(row)])(x), 0),
    "while": (lambda x: jax.lax.while_loop(lambda v: jnp.all(v < 9), lambda v: v + 1, x), ALL),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name):
    function, axis = RULES[name]
    shape = jax.ShapeDtypeStruct((4, 3), jnp.float32)
    graph, result = trace_graph(lambda inputs: function(inputs["x"]), {"x": shape})
    expected = None if axis is None else (axis,)
    assert align(graph, graph.inputs["x"], (4,))[result] == expected


# Operations of a random program, each from an array of any shape to an array.
OPERATIONS = (
    lambda a: jnp.tanh(a) + 0.5,
    lambda a: a * numbers(*a.shape),
    lambda a: a + jnp.arange(a.shape[-1]) if a.ndim else a,
    lambda a: jnp.swapaxes(a, 0, -1) if a.ndim else a,
    lambda a: a[None] if a.ndim < 4 else a,
    lambda a: a[..., None] * jnp.array([1.0, -2.0]) if a.ndim < 4 else a,
    lambda a: jnp.sum(a, -1) if a.ndim else a,
    lambda a: jnp.max(a, 0) if a.ndim else a,
    lambda a: jnp.cumsum(a, -1) if a.ndim else a,
    lambda a: jnp.sort(a, 0) if a.ndim else a,
    lambda a: jnp.flip(a, -1) if a.ndim else a,
    lambda a: a.reshape(a.shape[:1] + (-1,)) if a.ndim else a,
    lambda a: a.reshape((-1,) + a.shape[-1:]) if a.ndim else a,
    lambda a: a.reshape(a.shape[::-1]),
    lambda a: jnp.concatenate([a, 2 * a], -1) if a.ndim and a.size < 200 else a,
    lambda a: jnp.stack([a, -a], 1) if 0 < a.ndim < 4 else a,
    lambda a: jnp.roll(a, 1, 0) if a.ndim else a,
    lambda a: jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(1, 1)]) if a.ndim and a.size < 200 else a,
    lambda a: a[1:] if a.ndim and a.shape[0] > 1 else a,
    lambda a: a[..., ::2] if a.ndim else a,
    lambda a: jax.nn.softmax(a, -1) if a.ndim else a,
    lambda a: a @ numbers(a.shape[-1], 3) if a.ndim else a,
    lambda a: jnp.einsum("i...,j...->ij...", a, a) if 0 < a.ndim < 3 and a.size < 30 else a,
    lambda a: jnp.einsum("i...,i...->i...", a, a) if a.ndim else a,
    lambda a: jnp.take(a, jnp.array([0, 0]), 0) if a.ndim else a,
    lambda a: numbers(4)[jnp.floor(3 * a).astype(int) % 4],
    lambda a: numbers(4, 2)[jnp.floor(3 * a).astype(int) % 4] if a.ndim < 4 else a,
    lambda a: jnp.take_along_axis(a, labels(a.shape[-1], *a.shape), -1) if a.ndim else a,
    lambda a: (
        jnp.take_along_axis(numbers(*a.shape), jnp.floor(9 * a).astype(int) % a.shape[-1], axis=-1)
        if a.ndim
        else a
    ),
    lambda a: jnp.where(a > 0, a, numbers(*a.shape)),
    lambda a: jax.lax.dynamic_slice_in_dim(a, 1, 1, -1) if a.ndim else a,
    lambda a: a.at[..., 0].set(0.0) if a.ndim else a,
    lambda a: jnp.tile(a, (2,) + (1,) * (a.ndim - 1)) if a.ndim and a.size < 200 else a,
    lambda a: sum(jnp.unstack(a, axis=-1)) if a.ndim else a,
    lambda a: jax.lax.top_k(a, 1)[0] if a.ndim else a,
    lambda a: jnp.where(jnp.any(a > 0), a, 2 * a),
)
SHAPES = (((4,), ()), ((4,), (2,)), ((3, 4), ()), ((4, 4), ()), ((2, 1, 3), (2,)), ((3, 3), (3,)))
programs = st.tuples(
    st.sampled_from(SHAPES),
    st.lists(st.tuples(st.sampled_from(range(len(OPERATIONS))), st.booleans()), max_size=6),
)


def random_program(steps):
    """Return a function that applies operations, some of them beside what they are applied to."""

    def run(inputs):
        results = [inputs["x"]]
        for operation, is_added in steps:
            new, old = OPERATIONS[operation](results[-1]), results[-1]
            fits = is_added and jnp.broadcast_shapes(new.shape, old.shape) == new.shape
            results.append(new + old if fits else new)
        return results

    return run


def fits_together(run, shape):
    try:
        jax.eval_shape(run, {"x": jax.ShapeDtypeStruct(shape, jnp.float32)})
    except ValueError:  # shapes that do not broadcast
        return False
    return True


@settings(max_examples=25, deadline=None)
@given(programs)
def test_perturbation_never_contradicts_the_analysis(program):
    (batch_shape, event_shape), steps = program
    run, shape = random_program(steps), batch_shape + event_shape
    assume(fits_together(run, shape))
    graph, results = trace_graph(run, {"x": jax.ShapeDtypeStruct(shape, jnp.float32)})
    names = {str(position): number for position, number in enumerate(results)}
    axes = axes_of_terms(align(graph, graph.inputs["x"], batch_shape), names)
    draws = tuple({"x": numbers(seed, *shape)[0]} for seed in (1, 2))
    evaluate = jax.jit(lambda inputs: {str(i): a for i, a in enumerate(run(inputs))})
    assert probe(evaluate, draws, "x", axes, np.ndindex(batch_shape)) is None
