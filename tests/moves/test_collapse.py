"""Moves with choices summed out: exact transition matrices from the production move."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exact import DiscreteProgram, check_balance, prepare
from joint_exact import joint_matrix, prepare_joint
from scipy import stats

import adlmh_jax as adlmh
from adlmh_jax.engine.step import move
from adlmh_jax.graph import elimination, switches
from adlmh_jax.model import compile_model
from adlmh_jax.moves import build_kernel, collapse, joint
from adlmh_jax.proposals import plan_sites


def pair():
    """A choice with one that hangs on it, scaled."""
    a = numpyro.sample("a", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    with numpyro.handlers.scale(scale=1.7):
        b = numpyro.sample("b", dist.Bernoulli(0.1 + 0.3 * a))
    numpyro.sample("y", dist.Normal(a - 2.0 * b, 0.8), obs=0.3)


def plated():
    """Elements of a plate, one of them masked, under one choice."""
    a = numpyro.sample("a", dist.Categorical(jnp.array([0.3, 0.3, 0.4])))
    mask = jnp.array([True, False, True])
    with numpyro.plate("items", 3):
        z = numpyro.sample("z", dist.Bernoulli(0.2 + 0.3 * a).mask(mask))
        numpyro.sample("y", dist.Normal(z - 0.5 * a, 0.8), obs=jnp.array([0.1, 0.9, -0.4]))


def vector_mover():
    """Both elements of a vector meet every element of a plate."""
    with numpyro.plate("kinds", 2):
        a = numpyro.sample("a", dist.Bernoulli(jnp.array([0.3, 0.6])))
    with numpyro.plate("items", 2):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(a[z] + z, 0.7), obs=jnp.array([0.2, 1.4]))


def chain():
    """A hidden chain that is long enough to be filtered, under one choice."""
    a = numpyro.sample("a", dist.Bernoulli(0.3))
    transition = jnp.array([[0.8, 0.2], [0.3, 0.7]])
    b = numpyro.sample("b_0", dist.Bernoulli(0.4))
    for t, y in enumerate((0.1, 0.8, 1.3, -0.2)):
        if t:
            b = numpyro.sample(f"b_{t}", dist.Categorical(transition[b]))
        numpyro.sample(f"y_{t}", dist.Normal(b * (1.0 + a), 0.6), obs=y)


def tree():
    """A tree, with a leaf of three values."""
    root = numpyro.sample("b", dist.Bernoulli(0.4))
    c = numpyro.sample("c", dist.Categorical(jnp.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])[root]))
    d = numpyro.sample("d", dist.Bernoulli(0.3 + 0.4 * root))
    a = numpyro.sample("a", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(c - a, 0.9), obs=0.4)
    numpyro.sample("x", dist.Bernoulli(0.1 + 0.4 * d + 0.4 * a), obs=1)


def loop():
    """Three choices that all meet: no forest, but few enough."""
    b = numpyro.sample("b", dist.Bernoulli(0.4))
    c = numpyro.sample("c", dist.Bernoulli(0.2 + 0.5 * b))
    d = numpyro.sample("d", dist.Categorical(jnp.array([0.3, 0.3, 0.4])))
    numpyro.sample("y", dist.Normal(b + c * d, 0.7), obs=1.2)


def plate_under_choice():
    """A plate and the choice that it hangs on, drawn at once."""
    b = numpyro.sample("b", dist.Categorical(jnp.array([0.5, 0.2, 0.3])))
    with numpyro.plate("items", 3):
        z = numpyro.sample("z", dist.Bernoulli(0.1 + 0.4 * b))
        w = numpyro.sample("w", dist.Bernoulli(0.3 + 0.5 * z))
        numpyro.sample("y", dist.Normal(w + b, 0.8), obs=jnp.array([0.4, 1.9, 0.7]))


def change_point():
    """A choice that the data meet by yes or no alone; after it some are impossible."""
    a = numpyro.sample("a", dist.Bernoulli(0.4))
    b = numpyro.sample("b", dist.Categorical(jnp.array([0.3, 0.1, 0.2, 0.3, 0.1])))
    rate = jnp.where(jnp.arange(6) < b, 0.5 + a, jnp.array([2.0, 1.0, 0.0, 2.0, 1.0, 1.0]))
    with numpyro.plate("years", 6):
        numpyro.sample("y", dist.Poisson(rate), obs=jnp.array([0, 1, 2, 2, 3, 1]))


def counts():
    """Counts without a bound, all but for a factor."""
    a = numpyro.sample("a", dist.Bernoulli(0.4))
    n = numpyro.sample("n", dist.Poisson(1.0 + a))
    numpyro.sample("y", dist.Normal(n, 1.0), obs=1.6)
    numpyro.factor("few", jnp.where(n > 3, -jnp.inf, 0.0))


def plated_counts():
    """The same in a plate."""
    a = numpyro.sample("a", dist.Bernoulli(0.4))
    with numpyro.plate("items", 2):
        n = numpyro.sample("n", dist.Poisson(1.0 + a))
        numpyro.sample("y", dist.Normal(n, 1.0), obs=jnp.array([0.7, 1.6]))
        numpyro.factor("few", jnp.where(n > 2, -jnp.inf, 0.0))


def local():
    """Elements of one plate that move with those of another summed out, each on its own."""
    with numpyro.plate("items", 2):
        a = numpyro.sample("a", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
        b = numpyro.sample("b", dist.Bernoulli(0.2 + 0.3 * a))
        numpyro.sample("y", dist.Normal(a + b, 0.8), obs=jnp.array([0.3, 2.1]))


PRIOR = adlmh.prior()
CASES = {
    "pair": (pair, {"a": range(3), "b": range(2)}, {"a": adlmh.collapse("b", proposal=PRIOR)}),
    "plate": (plated, {"a": range(3), "z": range(2)}, {"a": adlmh.collapse("z", proposal=PRIOR)}),
    "elements of a vector": (
        vector_mover,
        {"a": range(2), "z": range(2)},
        {"a": adlmh.collapse("z", proposal=PRIOR)},
    ),
    "chain": (
        chain,
        dict.fromkeys(["a", "b_0", "b_1", "b_2", "b_3"], range(2)),
        {"a": adlmh.collapse("b_*", proposal=PRIOR)},
    ),
    "tree": (
        tree,
        {"a": range(2), "b": range(2), "c": range(3), "d": range(2)},
        {"a": adlmh.collapse("b", "c", "d", proposal=PRIOR)},
    ),
    "path alone": (
        chain,
        dict.fromkeys(["a", "b_0", "b_1", "b_2", "b_3"], range(2)),
        {"b_*": adlmh.collapse()},
    ),
    "loop alone": (
        loop,
        {"b": range(2), "c": range(2), "d": range(3)},
        {"[bcd]": adlmh.collapse()},
    ),
    "plate and choice alone": (
        plate_under_choice,
        {"b": range(3), "z": range(2), "w": range(2)},
        {"[bzw]": adlmh.collapse()},
    ),
    "yes or no": (
        change_point,
        {"a": range(2), "b": range(3, 5)},
        {"a": adlmh.collapse("b", proposal=PRIOR)},
    ),
    "windows": (
        counts,
        {"a": range(2), "n": range(4)},
        {"a": adlmh.collapse("n", proposal=PRIOR, window=4)},
    ),
    "windows in a plate": (
        plated_counts,
        {"a": range(2), "n": range(3)},
        {"a": adlmh.collapse("n", proposal=PRIOR, window=2)},
    ),
}


def check_case(name, beta=1.0):
    model, values, proposals = CASES[name]
    movers = prepare_joint(DiscreteProgram(name, model, values), proposals, beta)
    assert movers
    for mover in movers:
        matrix = joint_matrix(mover)
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-6)
        # A draw is of a word of 32 bits: its probabilities have steps of 2e-10.
        check_balance(mover.exact, matrix, 1e-8 if jax.config.jax_enable_x64 else 1e-6)


@pytest.mark.parametrize("use_x64", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_transition_matrix_keeps_posterior(name, use_x64):
    with jax.enable_x64(use_x64):
        check_case(name)


@pytest.mark.parametrize("name", ["plate", "chain", "windows"])
def test_tempered_matrix_keeps_tempered_posterior(name):
    check_case(name, beta=0.3)


def test_elements_of_a_plate_are_decided_upon_each_on_its_own():
    """As a block, two elements move as one would: states are as likely as they should be."""
    model, proposals = local, {"a": adlmh.collapse("b", proposal=PRIOR)}
    num_chains = 200_000
    program = compile_model(model)
    plan = plan_sites(program, proposals)
    assert [joint.is_block for joint in plan.joint] == [True]
    kernel, data = build_kernel(program, plan)
    exact = prepare(DiscreteProgram("local", model, {"a": range(3), "b": range(2)}), "prior")
    rng = np.random.default_rng(0)
    start = np.array(exact.states)[rng.choice(len(exact.states), num_chains, p=exact.pi)]
    chains = program.chains_at({"a": jnp.asarray(start[:, :2]), "b": jnp.asarray(start[:, 2:])})
    words = rng.integers(0, 2**32, (kernel.num_words, num_chains), np.uint32)
    entry = kernel.num_entries - 1
    after, info, _ = jax.jit(move, static_argnums=0)(kernel, data, words, chains, entry)
    assert 0.3 < np.mean(info.is_accepted) < 1.0
    values = program.latent_layout.unpack(after.latent)
    ends = np.concatenate([np.asarray(values[name]) for name in ("a", "b")], axis=1)
    assert np.mean(ends != start) > 0.1
    numbers = {state: i for i, state in enumerate(exact.states)}
    counts = np.bincount([numbers[tuple(end)] for end in ends.tolist()], minlength=len(numbers))
    assert stats.chisquare(counts, exact.pi * num_chains).pvalue > 1e-5


def wrong_side(patch):
    real = collapse._sum_both

    def sum_both(*others):
        log_z, memories = real(*others)
        return [part[::-1] for part in log_z], memories

    patch.setattr(collapse, "_sum_both", sum_both)


def not_redrawn(patch):
    real, seen = collapse._present, {}

    def present(joint, before):
        seen["values"] = real(joint, before)
        return seen["values"]

    def values_at(joint, candidates, drawn):
        return [seen["values"][variable.number] for variable in joint.variables]

    patch.setattr(collapse, "_present", present)
    patch.setattr(collapse, "_values_at", values_at)


def redrawn_from_old(patch):
    patch.setattr(collapse, "_choose_memory", lambda _, memories: tuple(m[0] for m in memories))


def redrawn_from_new(patch):
    patch.setattr(collapse, "_choose_memory", lambda _, memories: tuple(m[1] for m in memories))


def terms_counted_twice(patch):
    real = joint._split_terms

    def split(program, plan):
        plain, factors = real(program, plan)
        return [
            *plain,
            *(t for t in program.touches[plan.movers[0]].terms if t in factors),
        ], factors

    patch.setattr(joint, "_split_terms", split)
    patch.setattr(joint, "_check_proposal", lambda *others: None)


def window_not_redrawn(patch):
    real = collapse._split_words

    def split(*others):
        places, uniforms = real(*others)
        return [None if place is None else 0 * place for place in places], uniforms

    patch.setattr(collapse, "_split_words", split)


def window_pushed_into_support(patch):
    real = collapse._candidates

    def candidates(variable, old, place):
        return real(variable, old, jnp.minimum(place, old[variable.number]))

    patch.setattr(collapse, "_candidates", candidates)


def yes_for_no(patch):
    real = switches.Switched.find_settings

    def find_settings(self, known, shape):
        return real(self, known, shape)[::-1]

    patch.setattr(switches.Switched, "find_settings", find_settings)


def wrong_filter(patch):
    real = elimination.Chain.draw

    def draw(self, memory, uniforms):
        return real(self, (jnp.roll(memory[0], 1, axis=0), memory[1]), uniforms)

    patch.setattr(elimination.Chain, "draw", draw)


MUTANTS = [
    (wrong_side, "pair"),
    (not_redrawn, "pair"),
    (redrawn_from_old, "pair"),
    (redrawn_from_new, "pair"),
    (terms_counted_twice, "pair"),
    (window_not_redrawn, "windows"),
    (window_pushed_into_support, "windows"),
    (yes_for_no, "yes or no"),
    (wrong_filter, "path alone"),
]


@pytest.mark.parametrize(
    ("mutate", "case"), MUTANTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_mutant_is_caught(mutate, case, monkeypatch):
    mutate(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):  # KeyError: it went where no state can be
        check_case(case)
