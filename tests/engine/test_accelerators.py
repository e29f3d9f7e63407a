"""The way of accelerators, where superchains run together: the same draws, and code that they run.

No accelerator is needed: superchains run together on a CPU too, and code is lowered for others
without being compiled.
"""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax.engine import (
    Keep,
    Phase,
    address,
    build_engine,
    choose_devices,
    init_superchain,
    make_key,
    runner,
    split,
    start_superchains,
)
from adlmh_jax.engine.counts import empty_counts
from adlmh_jax.engine.inputs import first_of
from adlmh_jax.engine.step import move
from adlmh_jax.paper import zoo
from adlmh_jax.proposals import foresee_functions

SIZES = {"num_chains": 64, "num_superchains": 4, "progress": False, "keep": "all"}
READINGS = np.array([3.2, 4.9, 0.8, 2.1, 4.4])


@pytest.fixture
def together(monkeypatch):
    """Let superchains run as on accelerators, from now on."""
    return lambda: monkeypatch.setattr(runner, "ONE_BY_ONE", ())


def photons(readings):
    """Return nothing: README's example, whose photons are summed out, and move as a block."""
    rate = numpyro.sample("rate", dist.LogNormal(1.0, 1.0))
    with numpyro.plate("pixels", len(readings)):
        count = numpyro.sample("photons", dist.Poisson(rate))
        numpyro.sample("reading", dist.Normal(count, 0.5), obs=readings)


def labels(y):
    """Gibbs steps, of a single choice and of a block over a plate."""
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    shift = numpyro.sample("shift", dist.Categorical(jnp.ones(3) / 3))
    with numpyro.plate("items", len(y)):
        label = numpyro.sample("label", dist.Bernoulli(share))
        numpyro.sample("y", dist.Normal(label + shift, 1.0), obs=y)


def line(y):
    """Two sites that walk together, and one whose support depends on a count."""
    ends = numpyro.sample("start", dist.Normal(0.0, 2.0)), numpyro.sample("end", dist.Normal())
    count = numpyro.sample("count", dist.Poisson(3.0))
    top = numpyro.sample("top", dist.Uniform(0.0, 1.0 + count))
    numpyro.sample("y", dist.Normal(ends[0] + ends[1] * np.arange(len(y)) + top, 0.5), obs=y)


PAPER = {"proposals": "prior", "blocks": "never"}
HMM = zoo.PROBLEMS["hmm"]()
RUNS = {
    "hmm": (HMM.model, HMM.args, {"outputs": list(HMM.outputs), **PAPER}),
    "plates": (labels, (READINGS[:3],), {"proposals": {"share": adlmh.prior()}}),
    "summing out": (photons, (READINGS,), {"schedule": adlmh.influence()}),
    "walks": (line, (READINGS[:4],), {"proposals": {"count": adlmh.prior()}}),
}
CASES = [(name, name == "walks") for name in RUNS]


@pytest.mark.parametrize(("name", "is_double"), CASES)
def test_superchains_that_run_together_make_the_same_draws(name, is_double, together):
    model, args, options = RUNS[name]
    options = {"num_warmup": 320, "num_samples": 16, **SIZES, **options}
    with jax.enable_x64(is_double):
        apart = adlmh.sample(3, model, args, **options)
        together()
        same = adlmh.sample(3, model, args, **options)
    check = functools.partial(np.testing.assert_allclose, rtol=1e-9 if is_double else 1e-5)
    for site, draws in apart.draws.items():
        is_discrete = np.issubdtype(draws.dtype, np.integer)
        (np.testing.assert_array_equal if is_discrete else check)(same.draws[site], draws)
    check(same.log_density, apart.log_density)
    check(same.schedule.weights, apart.schedule.weights)
    np.testing.assert_array_equal(same.schedule.accepted, apart.schedule.accepted)
    evidence, same_evidence = (run.log_evidence.by_superchain for run in (apart, same))
    check(same_evidence, evidence)  # they have come from the prior


NUM_CHAINS = 7  # a number that no other axis has


@pytest.fixture(scope="module")
def one_step():
    """Return a step of one superchain, and arguments for superchains that move all there is."""
    options = {"share": adlmh.prior() | adlmh.random_walk(), "label": adlmh.gibbs()}
    program = adlmh.compile_model(labels, (READINGS[:3],), proposals=None)
    engine = build_engine(program, schedule=adlmh.influence(), proposals=options)
    kernel, data = engine.spec.kernel, first_of(engine.data)
    places = [(-1, 0), *itertools.product(range(kernel.num_entries), (0, 1))]
    addresses = address([make_key(0)], range(len(places)))
    chains = start_superchains(program, addresses, NUM_CHAINS).chains
    shape = (len(places), kernel.num_words, NUM_CHAINS)
    words = jax.random.bits(jax.random.key(1), shape, "uint32")
    has_moved = jnp.zeros((kernel.num_components, NUM_CHAINS), bool)
    units = {bank: jnp.ones(rows.shape[1]) for bank, rows in chains.latent.items()}

    def step(words, chains, entry, variant):
        counts = empty_counts(kernel.num_slots, has_moved, True)
        options = {"counts": counts, "units": units, "num_logged": NUM_CHAINS - 1}
        return move(kernel, data, words, chains, entry, variant, **options)

    return step, (words, chains, *np.array(places, np.int32).T)


def test_a_superchain_moves_its_own_entry_and_nothing_else(one_step):
    """Chains, counts, jumps and what the schedule learns from: those of each one on its own."""
    step, superchains = one_step
    together = jax.jit(jax.vmap(step))(*superchains)
    alone = jax.lax.map(lambda superchain: step(*superchain), superchains)
    jax.tree.map(np.testing.assert_array_equal, together, alone)
    jumps = together[2].jumps
    assert (jumps[1:].sum(axis=1) > 0).all() and not jumps[0].any()


def test_a_step_writes_what_moves_and_not_all_chains(one_step):
    step, superchains = one_step
    text = jax.jit(jax.vmap(step)).lower(*superchains).as_text()
    size = "x".join(map(str, superchains[1].log_terms.shape))
    assert f"tensor<{size}xf32>" in text
    assert not re.search(rf"stablehlo.select.*tensor<{size}xf32>", text)


def lower_chunk(problem, platforms):
    """Return the text of the loop of steps, of two superchains on each device."""
    model, args, kwargs, outputs = problem
    program = adlmh.compile_model(model, args, kwargs, outputs=outputs, proposals=foresee)
    engine = build_engine(program, schedule=adlmh.ucb(), keep=Keep(program.output_layout.rows()))
    devices = choose_devices(None, 4)
    assert not devices.is_mapped
    learned = engine.init_schedule(NUM_CHAINS)
    init = functools.partial(init_superchain, engine.spec, first_of(engine.data), learned)
    one = jax.eval_shape(init, jax.eval_shape(lambda: program.empty_chains(NUM_CHAINS)))
    state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((4, *leaf.shape), leaf.dtype), one)
    number = np.int32(1)
    stretch = runner.Stretch(Phase(np.bool_(True), number, number), number, number)
    arguments = split(engine.data, np.zeros(4, int)), stretch, np.zeros((4, 2), np.uint32), state
    chunk = functools.partial(runner._run_chunk, engine.spec, devices, 2)
    traced = jax.jit(lambda *arguments: chunk(*arguments)).trace(*arguments)
    return {name: traced.lower(lowering_platforms=(name,)).as_text() for name in platforms}


foresee = functools.partial(foresee_functions, proposals="auto")
LIBRARIES = {"cuda": r"cu(solver|blas|dnn|_)\w*", "tpu": "nothing"}  # that come with JAX
TO_THE_HOST = ("callback", "infeed", "outfeed", "stablehlo.send", "stablehlo.recv")


@pytest.mark.parametrize("name", [*zoo.PROBLEMS, "photons"])
def test_the_loop_of_steps_can_be_lowered_for_accelerators(name, together):
    """In single precision, with no other libraries than JAX has there, and without the host."""
    together()
    if name == "photons":
        problem = photons, (READINGS,), None, ["rate", "photons"]
    else:
        made = zoo.PROBLEMS[name]()
        problem = made.model, made.args, made.kwargs, list(made.outputs)
    for platform, text in lower_chunk(problem, ("cuda", "tpu")).items():
        assert "stablehlo.while" in text
        assert "f64" not in text
        assert not [word for word in TO_THE_HOST if word in text]
        called = set(re.findall(r"custom_call @(\w+)", text))
        assert not [target for target in called if not re.fullmatch(LIBRARIES[platform], target)]


def test_superchains_run_together_where_there_are_several_on_an_accelerator(together):
    assert choose_devices(None, 4).is_mapped
    together()
    devices = jax.devices()
    assert not choose_devices(None, 4).is_mapped
    assert choose_devices(None, len(devices)).is_mapped
    assert choose_devices(devices[:1], 1).is_mapped
    assert not choose_devices(devices[:1], 2).is_mapped
