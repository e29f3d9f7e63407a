"""Moves of one element: they read and touch its part alone, and leave what whole moves leave."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from updates import check_cache, check_others_stay, check_updates, draw_positions

from adlmh_jax import compile_model
from adlmh_jax.engine.step import move
from adlmh_jax.moves import build_kernel, elements
from adlmh_jax.proposals import plan_sites

DATA = jnp.array([0.3, -0.2, 1.1, 0.4, 0.9])
TABLE = jnp.arange(15.0).reshape(5, 3) / 10.0


def mixture():
    """Discrete assignments among three means."""
    means = numpyro.sample("means", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    with numpyro.plate("items", 5):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
        numpyro.sample("y", dist.Normal(means[z], 1.0), obs=DATA)


def local_scales():
    """Two sites in the same plate, each in the terms of the other."""
    with numpyro.plate("items", 5):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        s = numpyro.sample("s", dist.Exponential(1.0))
        numpyro.sample("y", dist.Normal(x, s), obs=DATA)
    numpyro.deterministic("ratio", x / s)


def nested():
    """A row effect read by every column; elements of the inner plate have two indices."""
    with numpyro.plate("rows", 5, dim=-2):
        row = numpyro.sample("row", dist.Normal(0.0, 1.0))
        with numpyro.plate("columns", 3, dim=-1):
            cell = numpyro.sample("cell", dist.Poisson(jnp.exp(row)))
            numpyro.sample("y", dist.Normal(cell, 1.0), obs=TABLE)


def vectors():
    """Each element is a vector."""
    with numpyro.plate("items", 5):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(x, 1.0).to_event(1), obs=TABLE)


def columns():
    """The plate is the second axis of the data: the parts of a term are not consecutive."""
    with numpyro.plate("columns", 3, dim=-1):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 5, dim=-2):
            numpyro.sample("y", dist.Normal(x, 1.0), obs=TABLE)


def pooled():
    """The mean of all elements is observed: no element is on its own."""
    with numpyro.plate("items", 5):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x.mean(), 1.0), obs=0.5)


MODELS = [mixture, local_scales, nested, vectors, columns, pooled]
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)


def branches(model, proposals="prior"):
    """Return the branches of each site that move one element."""
    program = compile_model(model)
    kernel, _ = build_kernel(program, plan_sites(program, proposals, "never"))
    return {group.branch.site.name: group.branch for group in kernel.groups if group.branch.at}


@pytest.mark.parametrize("proposals", ["prior", "auto"])
def test_which_sites_are_moved_element_by_element(proposals):
    assert set(branches(mixture, proposals)) == {"z"}
    assert set(branches(local_scales, proposals)) == {"x", "s"}
    assert set(branches(nested, proposals)) == {"row", "cell"}
    assert set(branches(vectors, proposals)) == {"x"}
    assert not branches(columns, proposals)
    assert not branches(pooled, proposals)


def test_other_sites_are_read_in_part():
    reads = branches(nested)["cell"].reads
    assert [read.strides for read in reads[:2]] == [(3, 1), (1, 0)]
    assert [read.shape for read in branches(mixture)["z"].reads] == [(1,), (3,)]


def test_a_draw_takes_words_for_one_element():
    assert branches(local_scales)["x"].num_words == 2
    assert branches(vectors)["x"].num_words == 4


@each_model
def test_prior_moves_leave_the_right_terms(model):
    program = compile_model(model)
    check_updates(program, program.chains_at(draw_positions(program, 16)))


@each_model
def test_automatic_moves_leave_the_right_terms(model):
    program = compile_model(model)
    chains = program.chains_at(draw_positions(program, 16))
    kernel, data = build_kernel(program, plan_sites(program, "auto", "never"))
    step = jax.jit(
        lambda words, entry, variant: move(kernel, data, words, chains, entry, variant)[0]
    )
    generator, evaluate = np.random.default_rng(0), jax.jit(program.chains_at)
    for entry in range(kernel.num_entries):
        for variant in (0, 1):
            words = generator.integers(0, 2**32, (kernel.num_words, 16), dtype=np.uint32)
            words[0] = 0
            moved = step(words, entry, variant)
            check_others_stay(program, entry, chains, moved)
            check_cache(program, moved, evaluate)


def test_wrong_strides_are_caught(monkeypatch):
    """Mutant: the parts of a two-way plate are looked for in the wrong rows."""
    real = elements._part

    def transposed(shape, demand, num_axes):
        part = real(shape, demand, num_axes)
        return part and elements.Part(part.shape, part.strides[::-1])

    monkeypatch.setattr(elements, "_part", transposed)
    program = compile_model(nested)
    with pytest.raises(AssertionError):
        check_updates(program, program.chains_at(draw_positions(program, 16)))
