"""Moves of one element of a series: of a site in a `scan`, or next to others in an array."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exact import (
    DiscreteProgram,
    chains_at,
    check_balance,
    gibbs_matrix,
    prepare,
    state_of,
    transition_matrix,
)
from numpyro.contrib.control_flow import scan
from updates import check_cache, check_others_stay, check_updates, draw_positions, one_step

from adlmh_jax import compile_model, gibbs, prior, random_walk
from adlmh_jax.graph import bands, slicing
from adlmh_jax.moves import build_kernel, elements
from adlmh_jax.proposals import plan_sites

DATA = jnp.array([0.3, 1.1, -0.4, 0.9, 0.5, 1.4, -0.2, 0.8])
TRANSITION = jnp.array([[0.7, 0.3], [0.2, 0.8]])


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compile without optimising: nothing here runs for long."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


def states(before, y, at=""):
    z = numpyro.sample(f"z{at}", dist.Categorical(TRANSITION[before]))
    numpyro.sample(f"y{at}", dist.Normal(1.0 * z, 1.0), obs=y)
    return z, None


def levels(before, y, at=""):
    x = numpyro.sample(f"x{at}", dist.Normal(0.9 * before, 0.5))
    numpyro.sample(f"y{at}", dist.Normal(x, 1.0), obs=y)
    return x, None


def rates(before, y, at=""):
    """Positive numbers, the prior of which is scaled."""
    with numpyro.handlers.scale(scale=1.5):
        x = numpyro.sample(f"x{at}", dist.LogNormal(0.3 * before, 0.5))
    numpyro.sample(f"y{at}", dist.Normal(x, 1.0), obs=y)
    return x, None


def as_scan(step, first, length=5):
    return lambda: scan(step, first, DATA[:length])


def as_loop(step, first, length=5):
    def model():
        carry = first
        for i in range(length):
            carry, _ = step(carry, DATA[i], f"_{i}")

    return model


def level():
    """A local level with unknown scale and start; outputs follow each step, and the last alone."""
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    first = numpyro.sample("first", dist.Normal(0.0, 1.0))

    def step(before, y):
        x = numpyro.sample("x", dist.Normal(before, scale))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
        return x, x

    last, path = scan(step, first, DATA)
    numpyro.deterministic("last", last)
    numpyro.deterministic("steps", path[1:] - path[:-1])


def two_lags():
    def step(carry, y):
        before, earlier = carry
        x = numpyro.sample("x", dist.Normal(0.5 * before - 0.3 * earlier, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
        return (x, before), None

    scan(step, (0.0, 0.0), DATA)


def two_sites():
    """A hidden state, and next to it a level that moves by it; no data."""

    def step(carry, _):
        state, level = carry
        state = numpyro.sample("state", dist.Categorical(TRANSITION[state]))
        level = numpyro.sample("level", dist.Normal(0.8 * level + state, 1.0))
        return (state, level), None

    scan(step, (0, 0.0), None, length=7)


def plate_inside():
    def step(before, y):
        with numpyro.plate("items", 3):
            x = numpyro.sample("x", dist.Normal(before, 1.0))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
        return x, None

    scan(step, jnp.zeros(3), jnp.arange(18.0).reshape(6, 3) / 9.0)


def vectors():
    def step(before, y):
        x = numpyro.sample("x", dist.Normal(before, 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(x.sum(), 1.0), obs=y)
        return x, None

    scan(step, jnp.zeros(2), DATA)


def differences():
    with numpyro.plate("steps", 8):
        x = numpyro.sample("x", dist.Normal(DATA, 1.0))
    with numpyro.plate("pairs", 7):
        numpyro.factor("smooth", -((x[1:] - x[:-1]) ** 2))


def grid():
    with numpyro.plate("rows", 7, dim=-2), numpyro.plate("columns", 8, dim=-1):
        x = numpyro.sample("x", dist.Bernoulli(0.5))
    spin = 2.0 * x - 1.0
    numpyro.factor("along", 0.3 * spin[1:, 1:] * spin[:-1, 1:])
    numpyro.factor("across", 0.3 * spin[:, 1:] * spin[:, :-1])


SERIES = [level, two_lags, two_sites, plate_inside, vectors, differences]
each_series = pytest.mark.parametrize("model", SERIES, ids=lambda model: model.__name__)


def is_moved_alone(program, name, proposals="prior"):
    """Return for each element of a site whether its move reads and touches its own part alone."""
    kernel, data = build_kernel(program, plan_sites(program, proposals, "never"))
    first, size = program.sites.first_components[name], program.sites[name].num_components
    groups = np.asarray(data.group_of)[0, first : first + size]
    return [kernel.groups[group].branch.at is not None for group in groups]


def test_every_element_is_moved_alone():
    for model in (two_lags, plate_inside, vectors, differences):
        assert all(is_moved_alone(compile_model(model), "x")), model
    program = compile_model(two_sites)
    assert all(is_moved_alone(program, "state") + is_moved_alone(program, "level"))


def test_an_output_of_the_last_step_is_no_matter_of_the_others():
    assert is_moved_alone(compile_model(level), "x") == [True] * 7 + [False]


def test_few_elements_are_moved_as_before():
    program = compile_model(as_scan(states, 0, 3))
    assert not any(is_moved_alone(program, "z"))


def running_sum(total, y):
    shock = numpyro.sample("shock", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(total + shock, 1.0), obs=y)
    return total + shock, None


def test_what_hangs_on_all_steps_before_is_computed_whole():
    program = compile_model(as_scan(running_sum, 0.0))
    assert not any(is_moved_alone(program, "shock"))
    check_updates(program, program.chains_at(draw_positions(program, 16)))


@each_series
def test_prior_moves_leave_the_right_terms(model):
    program = compile_model(model)
    check_updates(program, program.chains_at(draw_positions(program, 16)))


@pytest.mark.parametrize("model", [level, two_sites], ids=lambda model: model.__name__)
def test_automatic_moves_leave_the_right_terms(model):
    program = compile_model(model)
    chains = program.chains_at(draw_positions(program, 16))
    kernel, data = build_kernel(program, plan_sites(program, "auto", "never"))
    step = jax.jit(lambda w, entry, v: one_step(kernel, data, w, chains, entry, v)[0])
    generator, evaluate = np.random.default_rng(0), jax.jit(program.chains_at)
    for entry in range(kernel.num_entries):
        for variant in (0, 1):
            words = generator.integers(0, 2**32, (kernel.num_words, 16), dtype=np.uint32)
            words[0] = 0
            moved = step(words, entry, variant)
            check_others_stay(program, entry, chains, moved)
            check_cache(program, moved, evaluate)


def test_elements_of_a_grid():
    program = compile_model(grid)
    assert all(is_moved_alone(program, "x"))
    check_updates(program, program.chains_at(draw_positions(program, 32)))


MOVES = [
    (states, 0, "z", prior()),
    (states, 0, "z", gibbs()),
    (levels, 0.0, "x", prior()),
    (levels, 0.0, "x", random_walk()),
    (rates, 1.0, "x", prior()),
    (rates, 1.0, "x", random_walk()),
]


@pytest.mark.parametrize(("step", "first", "name", "proposal"), MOVES)
def test_equals_the_same_model_as_a_loop(step, first, name, proposal):
    """With the same random words, each element goes to the same place, by the same ratio."""
    results = []
    positions = None
    for model, pattern in ((as_scan, name), (as_loop, f"{name}_*")):
        program = compile_model(model(step, first))
        if positions is None:
            positions = draw_positions(program, 16)[name]
        own = {name: positions}
        if pattern != name:
            own = {f"{name}_{i}": positions[:, i] for i in range(positions.shape[1])}
        kernel, data = build_kernel(program, plan_sites(program, {pattern: proposal}, "never"))
        chains, moves = program.chains_at(own), jax.jit(one_step, static_argnums=0)
        for entry in range(kernel.num_entries):
            words = np.random.default_rng(entry).integers(0, 2**32, (8, 16), np.uint32)
            moved, decision = moves(kernel, data, jnp.asarray(words), chains, entry)
            (latent,) = moved.latent.values()
            results.append((latent, decision.log_ratio, moved.log_terms.sum(0)))
    half = len(results) // 2
    for scanned, looped in zip(results[:half], results[half:], strict=True):
        for found, expected in zip(scanned, looped, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("proposal", [prior(), gibbs()], ids=["prior", "gibbs"])
def test_exact_transition_matrix(proposal):
    """It keeps the posterior, and is that of the model as a loop."""
    matrices = []
    weights = np.random.default_rng(0).dirichlet(np.ones(4))
    for model, names in ((as_scan, ["z"]), (as_loop, [f"z_{i}" for i in range(4)])):
        discrete = DiscreteProgram("states", model(states, 0, 4), dict.fromkeys(names, (0, 1)))
        exact = prepare(discrete, dict.fromkeys(names, proposal))
        assemble = gibbs_matrix if proposal.is_gibbs else transition_matrix
        matrices.append(assemble(exact, lambda state: weights))
        check_balance(exact, matrices[-1])
    np.testing.assert_allclose(*matrices, atol=1e-6)


def backwards():
    def step(before, y):
        z = numpyro.sample("z", dist.Categorical(jnp.array([[0.95, 0.05], [0.5, 0.5]])[before]))
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y)
        return z, None

    scan(step, 0, jnp.array([0.3, 2.8]), reverse=True)


def test_a_scan_in_reverse_keeps_its_posterior():
    """NumPyro says the prior of each step in another order than it takes the values of steps."""
    program = compile_model(backwards)
    assert program.traced.priors["z"] == program.traced.terms["z"]
    exact = prepare(DiscreteProgram("backwards", backwards, {"z": (0, 1)}))
    num_chains = 2**17
    words = np.random.default_rng(0).integers(
        0, 2**32, (exact.kernel.num_words, num_chains), dtype=np.uint32
    )
    step = jax.jit(lambda chains, k: one_step(exact.kernel, exact.data, words, chains, k)[0])
    for component in (0, 1):
        matrix = np.zeros((4, 4))
        for row, state in enumerate(exact.states):
            moved = state_of(exact, step(chains_at(exact, state, num_chains), component))
            matrix[row] = [moved.count(other) / num_chains for other in exact.states]
        assert np.abs(exact.pi @ matrix - exact.pi).max() < 5 / np.sqrt(num_chains)


def sizes(length):
    """Return the number of nodes of the graph, and of those in each branch."""

    def model():
        scan(states, 0, jnp.zeros(length))

    program = compile_model(model)
    kernel, _ = build_kernel(program, plan_sites(program, "prior", "never"))
    branches = [group.branch for group in kernel.groups]
    nodes = [(len(b.score.nodes), len(b.propose.nodes), len(b.outputs.nodes)) for b in branches]
    return len(program.traced.graph.nodes), nodes


def test_code_does_not_grow_with_the_length():
    assert sizes(50) == sizes(200)


def one_row_off(patch):
    real = elements._part

    def part(shape, demand, num_axes):
        found = real(shape, demand, num_axes)
        return found and elements.Part(found.shape, found.strides, found.offset + 1)

    patch.setattr(elements, "_part", part)


def one_entry_short(patch):
    real = bands.Band.reached
    patch.setattr(bands.Band, "reached", lambda band: real(band)[:-1] or real(band))


def no_shift(patch):
    real = slicing.shifted_axes

    def unshifted(graph, node):
        found = real(graph, node)
        return found and [{a: (to, 0) for a, (to, _) in axes.items()} for axes in found]

    patch.setattr(slicing, "shifted_axes", unshifted)


def all_in_the_first_part(patch):
    patch.setattr(slicing.Slicer, "_is_in", lambda *_: True)


@pytest.mark.parametrize("mutate", [one_row_off, one_entry_short, no_shift, all_in_the_first_part])
def test_mutant_is_caught(mutate, monkeypatch):
    mutate(monkeypatch)
    program = compile_model(two_lags)
    with pytest.raises(AssertionError):
        check_updates(program, program.chains_at(draw_positions(program, 16)))
