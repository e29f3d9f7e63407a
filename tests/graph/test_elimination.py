"""Sums over discrete variables, and draws of them, against enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from adlmh_jax.graph import Table, Variable, plan_elimination
from adlmh_jax.graph.elimination import Buckets, Chain, pick

CASES = {
    "alone": ([Variable(3)], [(0,)]),
    "pair": ([Variable(2), Variable(3)], [(0,), (0, 1)]),
    "chain": (
        [Variable(2)] * 5,
        [(0,), *[(t, t + 1) for t in range(4)], *[(t,) for t in range(5)]],
    ),
    "chain in two parts": ([Variable(3)] * 4, [(0, 1), (2, 3), (1,), (2,)]),
    "tree": ([Variable(2), Variable(3), Variable(2), Variable(2)], [(0, 1), (0, 2), (1, 3)]),
    "loop": ([Variable(2), Variable(2), Variable(3)], [(0, 1), (1, 2), (0, 2)]),
    "three at once": ([Variable(2), Variable(2), Variable(3)], [(0, 1, 2), (1,)]),
    "apart": ([Variable(2), Variable(3)], [(0,), (1,)]),
}


def make_tables(variables, scopes, seed=0):
    generator = np.random.default_rng(seed)
    tables = []
    for scope in scopes:
        shape = [variables[v].num_values for v in scope]
        tables.append(Table((scope,), jnp.asarray(generator.normal(size=[*shape, 1]) * 2.0)))
    return tables


def enumerate_all(variables, tables):
    """Return all states, and the log weight of each."""
    states = list(itertools.product(*(range(v.num_values) for v in variables)))
    log_weights = [
        sum(
            float(t.log_weights[(*(state[v] for v in scope), i)])
            for t in tables
            for i, scope in enumerate(t.scopes)
        )
        for state in states
    ]
    return states, np.array(log_weights)


@pytest.mark.parametrize("name", CASES)
def test_sum_is_that_of_enumeration(name):
    with jax.enable_x64(True):
        variables, scopes = CASES[name]
        tables = make_tables(variables, scopes)
        elimination, _ = plan_elimination(variables, scopes, max_size=100)
        assert isinstance(elimination, Chain if name.startswith("chain") else Buckets)
        parts, _ = elimination.run(tables)
        _, log_weights = enumerate_all(variables, tables)
        np.testing.assert_allclose(sum(map(float, parts)), special.logsumexp(log_weights), 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_right_frequencies(name):
    """A chi-square test at a false-alarm rate of 1e-5."""
    variables, scopes = CASES[name]
    tables = make_tables(variables, scopes)
    elimination, _ = plan_elimination(variables, scopes, max_size=100)
    _, memory = elimination.run(tables)
    states, log_weights = enumerate_all(variables, tables)
    num = 100_000
    uniforms = jax.random.uniform(jax.random.key(0), (num, len(variables)))

    @jax.jit
    @jax.vmap
    def draw(uniforms):
        return jnp.stack(list(elimination.draw(memory, list(uniforms))))

    numbers = {state: i for i, state in enumerate(states)}
    drawn = np.asarray(draw(uniforms)).tolist()
    counts = np.bincount([numbers[tuple(state)] for state in drawn], minlength=len(states))
    expected = special.softmax(log_weights) * num
    few = expected < 5
    observed = [*counts[~few], counts[few].sum()] if few.any() else counts
    wanted = [*expected[~few], expected[few].sum()] if few.any() else expected
    assert stats.chisquare(observed, wanted).pvalue > 1e-5


def test_plates_are_products():
    """Elements of a plate meet a choice that they all hang on."""
    with jax.enable_x64(True):
        variables = [Variable(3), Variable(2, (4,)), Variable(2, (4,))]
        generator = np.random.default_rng(1)
        top = generator.normal(size=(3, 1))
        first = generator.normal(size=(3, 2, 1, 4))  # [values of 0, values of 1, -, elements]
        second = generator.normal(size=(2, 2, 1, 4))
        tables = [
            Table(((0,),), jnp.asarray(top)),
            Table(((0, 1),), jnp.asarray(first)),
            Table(((1, 2),), jnp.asarray(second)),
        ]
        elimination, _ = plan_elimination(variables, [(0,), (0, 1), (1, 2)], max_size=100)
        parts, _ = elimination.run(tables)
        joint = first[:, :, None, 0] + second[None, :, :, 0]  # [v0, v1, v2, elements]
        by_element = special.logsumexp(joint, axis=(1, 2)).sum(axis=-1)
        expected = special.logsumexp(top[:, 0] + by_element)
        np.testing.assert_allclose(sum(float(jnp.sum(part)) for part in parts), expected, 1e-12)


def test_impossible_values_have_no_weight():
    variables, scopes = CASES["pair"]
    tables = make_tables(variables, scopes)
    nothing = tables[1].log_weights.at[0].set(-jnp.inf)
    elimination, _ = plan_elimination(variables, scopes, max_size=100)
    parts, memory = elimination.run([tables[0], tables[1]._replace(log_weights=nothing)])
    assert np.isfinite(float(parts[0]))
    for uniform in (1e-9, 0.5, 1.0):
        drawn = elimination.draw(memory, [jnp.asarray(uniform)] * 2)
        assert int(drawn[0]) == 1


def test_too_large_tables_are_named():
    variables = [Variable(10), Variable(10), Variable(10)]
    elimination, too_many = plan_elimination(variables, [(0, 1), (1, 2), (0, 2)], max_size=500)
    assert elimination is None
    assert too_many == [0, 1, 2]


def test_first_and_last_uniform_draw_values_that_have_weight():
    log_weights = jnp.array([-jnp.inf, 0.0, -jnp.inf, 0.0, -jnp.inf])
    assert int(pick(log_weights, jnp.asarray(1e-10))) == 1
    assert int(pick(log_weights, jnp.asarray(1.0))) == 3


@pytest.mark.parametrize("num_values", [16, 17, 111, 256])
def test_draws_of_many_values_have_their_probabilities(num_values):
    """A grid of uniforms draws each value as often as its weight says, and none without weight."""
    generator = np.random.default_rng(1)
    log_weights = generator.normal(size=(num_values, 2)) * 3.0
    log_weights[generator.random((num_values, 2)) < 0.3] = -np.inf
    log_weights[:, 1][: num_values // 2] = -np.inf
    size = 400_000
    uniforms = np.stack([(np.arange(size) + 0.5) / size] * 2)
    uniforms[:, -1] = 1.0
    drawn = np.asarray(
        jax.vmap(lambda u: pick(jnp.asarray(log_weights, jnp.float32), u), 1)(
            jnp.asarray(uniforms, jnp.float32)
        )
    )
    assert np.all(np.diff(drawn, axis=0) >= 0)
    for column in range(2):
        share = np.bincount(drawn[:, column], minlength=num_values) / size
        np.testing.assert_allclose(share, special.softmax(log_weights[:, column]), atol=1e-5)
        assert np.all(share[np.isinf(log_weights[:, column])] == 0)
