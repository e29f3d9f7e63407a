"""Supports that hang on each other: one branch for a chain of them, whichever site moves."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exact import PROGRAMS, DiscreteProgram, check_balance, prepare, transition_matrix

from adlmh_jax.engine.step import draw, move
from adlmh_jax.model import compile_model
from adlmh_jax.moves import accept_unless_worse, build_kernel, build_start, cascade
from adlmh_jax.proposals import plan_sites

LENGTH = 5  # long enough for sums and terms to be computed as arrays


def epidemic(num_weeks=LENGTH, num_susceptible=2):
    """A chain-binomial epidemic: new supports are parts of the old ones, or the reverse."""
    susceptible = num_susceptible
    for week in range(num_weeks):
        infected = numpyro.sample(f"infected_{week}", dist.Binomial(susceptible, 0.4))
        numpyro.sample(f"seen_{week}", dist.Normal(infected, 1.0), obs=0.5 * week)
        susceptible = susceptible - infected
    numpyro.deterministic("left", susceptible)


def stairs():
    """Each step is as high as the last one, or one higher: supports overlap in part."""
    height = 0
    for number in range(LENGTH):
        height = numpyro.sample(f"step_{number}", dist.DiscreteUniform(height, height + 1))
    numpyro.sample("y", dist.Normal(height, 1.0), obs=2.0)


def parity():
    """The support of each choice depends on the sum of all before it."""
    total = 0
    for number in range(LENGTH):
        low = total % 2
        value = numpyro.sample(f"value_{number}", dist.DiscreteUniform(low, low + 1))
        numpyro.sample(f"y_{number}", dist.Normal(value, 1.0), obs=0.3 * number)
        total = total + value


EPIDEMIC = DiscreteProgram("epidemic", epidemic, {f"infected_{n}": range(3) for n in range(LENGTH)})
STAIRS = DiscreteProgram("stairs", stairs, {f"step_{n}": range(n + 2) for n in range(LENGTH)})
PARITY = DiscreteProgram("parity", parity, {f"value_{n}": range(3) for n in range(LENGTH)})
SHIFTING = next(discrete for discrete in PROGRAMS if discrete.name == "shifting support")
each_program = pytest.mark.parametrize(
    "discrete", [EPIDEMIC, STAIRS, PARITY], ids=lambda discrete: discrete.name
)


def check(discrete):
    """The posterior is kept, and reached from everywhere."""
    exact = prepare(discrete)
    number = exact.program.num_components
    matrix = transition_matrix(exact, lambda state: np.full(number, 1 / number))
    check_balance(exact, matrix)
    reached = np.linalg.matrix_power(matrix, 5000)
    np.testing.assert_allclose(reached, np.broadcast_to(exact.pi, matrix.shape), atol=1e-3)


@each_program
def test_transition_matrix_keeps_posterior(discrete):
    check(discrete)


def test_transition_matrix_keeps_posterior_in_double_precision():
    with jax.enable_x64(True):
        check(STAIRS)


@pytest.mark.parametrize("discrete", [EPIDEMIC, STAIRS], ids=lambda discrete: discrete.name)
def test_sites_of_a_chain_share_a_branch(discrete):
    kernel = prepare(discrete).kernel
    assert len(kernel.groups) == 2  # the last site decides on no other's support
    kinds = [group.branch.cascade.kinds for group in kernel.groups if group.branch.cascade]
    assert max(len(kind.numbers) for (*_, kind) in kinds) >= LENGTH - 2


def reverse_always_possible(patch):
    real = cascade._draw
    patch.setattr(cascade.Kind, "are_narrower", lambda self, *_: self.wide(_none(self)))
    patch.setattr(cascade, "_draw", lambda *args: (real(*args)[0], jnp.zeros(())))


def _none(kind):
    return jnp.zeros(len(kind.numbers), bool)


def taken_for_narrower(patch):
    patch.setattr(cascade.Kind, "are_narrower", lambda self, *_: self.wide(~_none(self)))


def moved_site_not_in_place(patch):
    patch.setattr(cascade.Cascade, "put", lambda self, known, value: {**known, self.own: value})


MUTANTS = [
    (reverse_always_possible, STAIRS),
    (taken_for_narrower, SHIFTING),
    (moved_site_not_in_place, STAIRS),
]


@pytest.mark.parametrize(
    ("mutate", "discrete"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS]
)
def test_mutant_is_caught(mutate, discrete, monkeypatch):
    mutate(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        check(discrete)


def test_repair_redraws_whatever_the_ratio():
    """To mend a start, a move is made though there is no way back, and all values are inside."""
    exact = prepare(EPIDEMIC)
    start = exact.program.chains_at(
        {f"infected_{n}": jnp.full(64, int(n == 3), jnp.int32) for n in range(LENGTH)}
    )
    rng = np.random.default_rng(0)
    words = jnp.asarray(rng.integers(0, 2**32, (exact.kernel.num_words, 64), np.uint32))
    chains, _, _ = move(exact.kernel, exact.data, words, start, 0, accept=accept_unless_worse)
    counts = np.asarray(chains.latent["int32"])
    assert (counts[0] == 2).any()  # nobody is left for week 3
    assert (counts.sum(axis=0) <= 2).all()


def count_equations(jaxpr):
    """Return the number of equations of a computation, and of all inside it."""
    inner = [
        getattr(part, "jaxpr", part)
        for equation in jaxpr.eqns
        for value in equation.params.values()
        for part in (value if isinstance(value, tuple | list) else (value,))
        if hasattr(getattr(part, "jaxpr", part), "eqns")
    ]
    return len(jaxpr.eqns) + sum(map(count_equations, inner))


def sizes_of(num_weeks):
    """Return the sizes of a step, of one that repairs, and of a prior draw."""
    program = compile_model(epidemic, (num_weeks, 100))
    kernel, data = build_kernel(program, plan_sites(program))
    start, start_data = build_start(program)
    chains = jax.eval_shape(lambda: program.empty_chains(2))
    words, number = jax.ShapeDtypeStruct((kernel.num_words, 2), jnp.uint32), jnp.int32(0)
    start_words = jax.ShapeDtypeStruct((start.num_words, 2), jnp.uint32)

    def step(data, words, chains, entry):
        return move(kernel, data, words, chains, entry)

    def repair(data, words, chains, entry):
        return move(kernel, data, words, chains, entry, accept=accept_unless_worse)

    def draw_site(data, words, chains, site):
        return draw(start, data, words, chains, site, False)

    runs = [(step, data, words), (repair, data, words), (draw_site, start_data, start_words)]
    return np.array(
        [count_equations(jax.make_jaxpr(f)(*a, chains, number).jaxpr) for f, *a in runs]
    )


def test_code_grows_no_faster_than_the_chain():
    sizes = [sizes_of(num_weeks) for num_weeks in (4, 8, 16)]
    for size, twice in zip(sizes, sizes[1:], strict=False):
        assert (twice <= 2 * size).all()
