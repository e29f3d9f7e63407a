"""The program: its table, what touches what, its groups, and update == evaluate.

The constructs of the catalogue are moved in `test_constructs.py`; here it is the case studies.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from constructs import CONSTRUCTS
from numpyro.distributions import constraints
from updates import check_updates, draw_positions, move_each_component, prior_kernel

import adlmh_jax
from adlmh_jax.model.supports import describe_support
from adlmh_jax.paper import zoo

pytestmark = pytest.mark.filterwarnings("ignore:Held at the initial value")


def compile_problem(problem):
    return adlmh_jax.compile_model(
        problem.model, problem.args, problem.kwargs, outputs=list(problem.outputs)
    )


def compile_construct(name):
    construct = next(c for c in CONSTRUCTS if c.name == name)
    return adlmh_jax.compile_model(
        construct.model, construct.args, construct.kwargs, outputs=construct.outputs
    )


# The table


def mixed():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    high = numpyro.sample("high", dist.DiscreteUniform(1, 6))
    numpyro.sample("low", dist.DiscreteUniform(0, high))
    with numpyro.plate("rows", 4):
        kind = numpyro.sample("kind", dist.Categorical(probs=weights))
        numpyro.sample("y", dist.Poisson(rate * (1 + kind)), obs=jnp.array([1, 0, 3, 2]))
    numpyro.deterministic("ratio", rate / high)


MIXED = """\
Program of 8 components in 5 latent sites, 12 terms, 2 outputs: ratio, rate

site     components  batch  event  support                    touches terms  touches outputs
-------  ----------  -----  -----  -------------------------  -------------  ---------------
rate     1           -      -      positive                   rate, y        ratio, rate
weights  1           -      3      simplex                    weights, kind  -
high     1           -      -      integers 1..6              high, low      ratio
low      1           -      -      integers, depends on high  low            -
kind     4           4      -      integers 0..2              kind, y        -"""


def test_table():
    program = adlmh_jax.compile_model(mixed, outputs=["ratio", "rate"])
    assert repr(program) == str(program) == MIXED


def test_wide_table_is_shortened():
    num_sites, size = 40, 7
    long_name = "a_site_with_a_name_that_is_much_longer_than_anyone_would_like"

    def wide():
        x = [numpyro.sample(f"x_{i}", dist.Normal(0.0, 1.0).expand([size])) for i in range(39)]
        z = numpyro.sample(long_name, dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(sum(x) + z, 1.0), obs=jnp.zeros(size))

    lines = str(adlmh_jax.compile_model(wide)).splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) < 180
    assert f"in {num_sites} latent sites" in lines[0]
    assert re.search(r"274 outputs: x_0\[0\], x_0\[1\], .*… \(274 in all\)$", lines[0])
    assert sum("more sites" in line for line in lines) == 1
    assert "… 16 more sites" in lines
    assert lines[-1].startswith(long_name[:30])
    assert "…" in lines[-1].split()[0]


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (constraints.real, "real"),
        (constraints.real_vector, "real"),
        (constraints.independent(constraints.positive, 1), "positive"),
        (constraints.nonnegative, "non-negative"),
        (constraints.softplus_positive, "positive"),
        (constraints.unit_interval, "unit interval"),
        (constraints.interval(-1.0, 2.5), "interval -1 to 2.5"),
        (constraints.open_interval(0.0, jnp.array([2.0, 2.0])), "interval 0 to 2"),
        (constraints.interval(0.0, np.array([1.0, 2.0])), "interval"),
        (constraints.greater_than(2), "real > 2"),
        (constraints.less_than_eq(-0.5), "real <= -0.5"),
        (constraints.boolean, "0 or 1"),
        (constraints.integer_interval(0, 2), "integers 0..2"),
        (constraints.nonnegative_integer, "integers from 0"),
        (constraints.positive_integer, "integers from 1"),
        (constraints.multinomial(6), "counts of sum 6"),
        (constraints.simplex, "simplex"),
        (constraints.circular, "angle"),
        (constraints.corr_cholesky, "Cholesky factor of a correlation matrix"),
        (constraints.positive_definite, "positive definite matrix"),
        (constraints.ordered_vector, "ordered vector"),
    ],
)
def test_supports_in_words(constraint, words):
    assert str(describe_support(constraint)) == words


# What touches what


def touches_of(model, outputs=None):
    program = adlmh_jax.compile_model(model, outputs=outputs)
    return {
        name: (set(touches.terms), set(touches.outputs), touches.redraws)
        for name, touches in program.touches.items()
    }


def test_touches_of_a_chain():
    def chain():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(a, 1.0))
        c = numpyro.sample("c", dist.Normal(b, 1.0))
        numpyro.sample("y", dist.Normal(c, 1.0), obs=1.0)
        numpyro.sample("alone", dist.Normal(0.0, 1.0))
        return a + c

    assert touches_of(chain, ["return", "b"]) == {
        "a": ({"a", "b"}, {"return"}, ()),
        "b": ({"b", "c"}, {"b"}, ()),
        "c": ({"c", "y"}, {"return"}, ()),
        "alone": ({"alone"}, set(), ()),
    }


def test_touches_through_arithmetic_that_cancels_in_the_graph():
    def unused():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        pair = jnp.stack([a, b])
        first, second = {"pair": pair, "other": b}["pair"], jnp.zeros_like(b)
        numpyro.sample("y", dist.Normal(first[0], 1.0), obs=1.0)
        numpyro.sample("w", dist.Normal(second, 1.0), obs=1.0)

    touches = touches_of(unused, "a")
    assert touches["a"] == ({"a", "y"}, {"a"}, ())
    # Whole arrays are followed, not their elements; but zeros of b's shape do not depend on b.
    assert touches["b"] == ({"b", "y"}, set(), ())


def test_touches_of_observed_data_factors_and_control_flow():
    def model():
        switch = numpyro.sample("switch", dist.Bernoulli(0.5))
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        chosen = jax.lax.cond(switch == 1, lambda: a, lambda: b)
        numpyro.deterministic("chosen", chosen)
        numpyro.factor("penalty", -(a**2))
        numpyro.factor("constant", -1.0)
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=b)

    assert touches_of(model, "chosen") == {
        "switch": ({"switch"}, {"chosen"}, ()),
        "a": ({"a", "penalty"}, {"chosen"}, ()),
        "b": ({"b", "y"}, {"chosen"}, ()),
    }


def test_dependent_supports_are_listed():
    def model():
        a = numpyro.sample("a", dist.HalfNormal(1.0))
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Uniform(0.0, a))
        c = numpyro.sample("c", dist.Normal(b + mean, 1.0))
        d = numpyro.sample("d", dist.Uniform(b, b + 1.0))
        numpyro.sample("y", dist.Normal(c + d, 1.0), obs=1.0)

    touches = touches_of(model, ["c", "d"])
    # Moving a may redraw b, and so d; what these touch, a touches.
    assert touches["a"] == ({"a", "b", "c", "d", "y"}, {"d"}, ("b", "d"))
    assert touches["b"] == ({"b", "c", "d", "y"}, {"d"}, ("d",))
    assert touches["mean"] == ({"mean", "c"}, set(), ())
    assert touches["d"] == ({"d", "y"}, {"d"}, ())
    program = adlmh_jax.compile_model(model)
    assert "interval, depends on a, b" in str(program)


@pytest.mark.parametrize(
    ("construct", "redraws"),
    [
        ("Uniform(0, x)", {"x": ("z", "w"), "z": ("w",), "w": ()}),
        ("TruncatedNormal(low=x)", {"x": ("z",), "z": ()}),
        ("Binomial(total_count=n)", {"n": ("k",), "k": ()}),
        ("DiscreteUniform(0, n)", {"high": ("k",), "k": ()}),
        ("nested plates", {"scale": (), "column_effect": (), "cell": ()}),
    ],
)
def test_redraws_of_constructs(construct, redraws):
    touches = compile_construct(construct).touches
    assert {name: touch.redraws for name, touch in touches.items()} == redraws


# Names and numbers


def test_components_and_outputs_are_named_in_program_order():
    def model():
        numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2, 2]))
        numpyro.sample("a", dist.Normal(0.0, 1.0))
        pair = numpyro.sample("pair", dist.Dirichlet(jnp.ones((2, 3))))
        return {"first": pair[0], "total": pair.sum()}

    program = adlmh_jax.compile_model(model, outputs="return")
    names = ["z[0,0]", "z[0,1]", "z[1,0]", "z[1,1]", "a", "pair[0]", "pair[1]"]
    assert program.sites.component_names == names
    assert program.num_components == len(names)
    outputs = ["return.first[0]", "return.first[1]", "return.first[2]", "return.total"]
    assert program.output_names == outputs


def test_outputs_by_function():
    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]))
        numpyro.deterministic("square", x**2)

    program = adlmh_jax.compile_model(
        model, outputs=lambda values: {"norm": jnp.sqrt(values["square"].sum()), "x": values["x"]}
    )
    _, outputs = program.evaluate({"x": jnp.array([1.0, 2.0, 2.0])})
    assert outputs["norm"] == 3.0
    np.testing.assert_array_equal(outputs["x"], [1.0, 2.0, 2.0])
    assert program.output_names == ["norm", "x[0]", "x[1]", "x[2]"]


# Groups


@pytest.mark.parametrize(
    ("problem", "max_groups"), [(zoo.hmm(), 4), (zoo.hmm(length=50), 4), (zoo.kalman(), 6)]
)
def test_equal_sites_share_a_group(problem, max_groups):
    kernel, _ = prior_kernel(compile_problem(problem))
    assert len(kernel.groups) <= max_groups


def test_hmm_groups_are_first_middle_and_last():
    _, data = prior_kernel(compile_problem(zoo.hmm()))
    groups = np.asarray(data.group_of[0]).tolist()
    assert len({groups[0], groups[1], groups[17]}) == 3
    assert len(set(groups[2:16])) == 1


def other_data(array):
    """Return other data of the same shape: data change compiled code no more than draws do."""
    is_real = np.issubdtype(np.asarray(array).dtype, np.floating)
    return array + 0.125 if is_real else array


@pytest.mark.parametrize("name", ["hmm", "gp", "kalman"])
def test_other_data_give_the_same_code(name):
    problem = zoo.PROBLEMS[name]()
    first, _ = prior_kernel(compile_problem(problem))
    args = (other_data(problem.args[0]), *problem.args[1:])
    outputs = list(problem.outputs)
    second, _ = prior_kernel(adlmh_jax.compile_model(problem.model, args, outputs=outputs))
    assert first == second
    assert hash(first) == hash(second)
    authors, _ = prior_kernel(compile_problem(zoo.hmm(length=20)))
    assert first != authors


@pytest.mark.parametrize(
    "name",
    [
        "scan",
        "scan of a discrete state",
        "cond",
        "Binomial(total_count=n)",
        "LKJCholesky",
        "Gamma",
        "ZeroInflated",
        "TransformedDistribution",
    ],
)
def test_compiling_again_gives_the_same_code(name):
    first, _ = prior_kernel(compile_construct(name))
    second, _ = prior_kernel(compile_construct(name))
    assert first == second
    assert hash(first) == hash(second)


# Update and evaluate


@pytest.mark.parametrize("name", zoo.PROBLEMS)
def test_update_is_evaluate(name):
    program = compile_problem(zoo.PROBLEMS[name]())
    chains = program.chains_at(draw_positions(program, num_chains=64))
    check_updates(program, chains)


def test_evaluate_is_numpyros_log_density():
    problem = zoo.hmm()
    program = compile_problem(problem)
    position = program.draw_prior(jax.random.key(1))
    expected, _ = numpyro.infer.util.log_density(problem.model, problem.args, {}, position)
    np.testing.assert_allclose(program.log_density(position), expected, rtol=1e-5)


def test_a_flat_prior_that_is_not_validated():
    """Its term does not depend on the site, which is then no term that the site touches."""

    def flat():
        a = numpyro.sample("a", dist.Uniform(-1.0, 4.0, validate_args=False))
        numpyro.sample("alone", dist.Uniform(-1.0, 4.0, validate_args=False))
        numpyro.sample("y", dist.Normal(a, 0.7), obs=4.0)

    program = adlmh_jax.compile_model(flat)
    chains = program.chains_at(draw_positions(program, num_chains=8))
    old = np.asarray(chains.log_terms).sum(axis=0)
    for _, moved, info in move_each_component(program, chains):
        # The prior cancels, so that the ratio is that of the likelihoods.
        change = np.asarray(moved.log_terms).sum(axis=0) - old
        np.testing.assert_allclose(info.log_ratio, change, rtol=1e-5, atol=1e-5)
