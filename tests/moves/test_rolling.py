"""Runs of equal terms: found where they are, scored as NumPyro does, and nowhere else."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from updates import check_updates, draw_positions, prior_kernel

from adlmh_jax import compile_model
from adlmh_jax.moves import rolling

DATA = jnp.array([0.3, -0.2, 1.1, 0.4, 0.9, -0.7])


def walk(data):
    """States one after the other; the first has another parent, so another computation."""
    drift = numpyro.sample("drift", dist.Normal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.Exponential(1.0))
    state = 0.5
    for time, value in enumerate(data):
        state = numpyro.sample(f"x_{time}", dist.Normal(0.8 * state + drift, noise))
        numpyro.sample(f"y_{time}", dist.StudentT(4.0, state, 0.5 + 0.1 * time), obs=value)


def vectors(data):
    """Vector states, a scale of the data, and constants that differ from term to term."""
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    for time, value in enumerate(data):
        x = numpyro.sample(f"x_{time}", dist.Normal(jnp.zeros(2), 1.0 + time).to_event(1))
        numpyro.sample(f"y_{time}", dist.Normal(x.sum(), scale), obs=value)


def discrete(data):
    """Counts whose rate is a parameter's: integers are read as a run."""
    rate = numpyro.sample("rate", dist.Exponential(1.0))
    for time, value in enumerate(data):
        count = numpyro.sample(f"n_{time}", dist.Poisson(2.0 * rate))
        numpyro.sample(f"y_{time}", dist.Normal(count * rate, 1.0), obs=value)


def skipping(data):
    """Every second state is another kind, so no two equal terms are neighbours."""
    drift = numpyro.sample("drift", dist.Normal(0.0, 1.0))
    for time in range(len(data)):
        fn = dist.Normal if time % 2 else dist.Cauchy
        numpyro.sample(f"x_{time}", fn(drift, 1.0))


def chained(data):
    """The moved site is in the terms before and after it; it moves alone."""
    x = numpyro.sample("x_0", dist.Normal(0.0, 1.0))
    for time in range(1, len(data)):
        x = numpyro.sample(f"x_{time}", dist.Normal(x, 1.0))


def term_shapes(model):
    """Return the shapes of what each site's branch scores."""
    program = compile_model(model, (DATA,))
    kernel, _ = prior_kernel(program)
    return {group.branch.site.name: group.term_shapes for group in kernel.groups}


def test_runs_are_found():
    assert term_shapes(walk)["drift"] == ((), (), (5,))
    assert term_shapes(walk)["noise"] == ((), (), (5,))
    assert term_shapes(vectors)["scale"] == ((), (6,))
    assert term_shapes(discrete)["rate"] == ((), (6,), (6,))


def test_no_run_where_there_is_none():
    assert all(shape == () for shape in term_shapes(skipping)["drift"])
    assert all(shape == () for shapes in term_shapes(chained).values() for shape in shapes)


@pytest.mark.parametrize("model", [walk, vectors, discrete, skipping, chained])
def test_moves_leave_the_right_terms(model):
    program = compile_model(model, (DATA,))
    check_updates(program, program.chains_at(draw_positions(program, 16)))


def test_a_run_of_wrong_sites_is_caught(monkeypatch):
    """Mutant: reads move on where they should stay, or the other way round."""
    monkeypatch.setattr(rolling, "is_next", lambda first, second: first.bank == second.bank)
    program = compile_model(skipping_sites, (DATA,))
    with pytest.raises(AssertionError):
        check_updates(program, program.chains_at(draw_positions(program, 16)))


def skipping_sites(data):
    """Sites of another shape lie between those that the terms read."""
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    for time, value in enumerate(data):
        x = numpyro.sample(f"x_{time}", dist.Normal(0.0, 1.0))
        numpyro.sample(f"between_{time}", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        numpyro.sample(f"y_{time}", dist.Normal(x, scale), obs=value)


def test_sites_in_between_stop_a_run():
    assert all(shape == () for shape in term_shapes(skipping_sites)["scale"])
    program = compile_model(skipping_sites, (DATA,))
    check_updates(program, program.chains_at(draw_positions(program, 16)))
