"""A slice at an element equals that of the full evaluation, at a cost in which n has no part."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from test_alignment import (
    CASES,
    INDEPENDENT,
    dawid_skene_flat,
    events,
    fits_together,
    local_scales,
    mixture,
    nested,
    nested_outer,
    numbers,
    plate_of,
    programs,
    random_program,
    regression,
    rows_on_simplex,
    scaled,
    sketch,
)

from adlmh_jax.graph.alignment import ALL, align
from adlmh_jax.graph.fragments import Cutter
from adlmh_jax.graph.graph import trace_graph
from adlmh_jax.graph.slicing import Slicer, add_input


def add_slices(graph, wanted, alignments, num_axes):
    """Return the numbers of the slices and of the indices."""
    index = jax.ShapeDtypeStruct((), jnp.int32)
    indices = [add_input(graph, f"index {axis}", index) for axis in range(num_axes)]
    slicer = Slicer(graph, tuple(indices))
    slices = []
    for value in wanted:
        axes = enumerate(alignments[value] or ())
        slices.append(slicer.compute(value, {axis: batch for batch, axis in axes if axis >= 0}))
    return slices, indices


def cut(graph, wanted, given):
    """Return a function of the given values and the constants, and the constants."""
    cutter = Cutter(graph, dict.fromkeys(given))
    fragment = cutter.cut(wanted)
    constants = {number: graph.constants[value] for number, value in cutter.constants.items()}

    def run(values, constants):
        known = {n: values[given.index(value)] for n, value in cutter.inputs.items()}
        return fragment.run({**known, **constants})

    return run, constants


def slice_of(full, axes, element):
    """Slice a computed value, as a check."""
    for axis, index in zip(axes, element, strict=True):
        if axis >= 0:
            full = np.take(full, [index], axis)
    return full


def sliced_terms(drawn, site):
    """Return names of touched terms, numbers of the site's slice and of theirs, and the inputs."""
    graph, alignments = drawn.graph, drawn.align(site)
    names, source = list(drawn.axes(site)), graph.inputs[site]
    wanted = [source, *(drawn.terms[name] for name in names)]
    slices, indices = add_slices(graph, wanted, alignments, len(drawn.batch_shapes[site]))
    return names, slices, indices


@pytest.mark.parametrize("name", INDEPENDENT)
def test_equals_the_slice_of_the_full_evaluation(name):
    model, site = INDEPENDENT[name]
    drawn, (here, _) = sketch(model), sketch(model).draws
    names, slices, indices = sliced_terms(drawn, site)
    given = [*(drawn.graph.inputs[name] for name in here), *indices]
    run, constants = cut(drawn.graph, slices[1:], given)
    compiled, full, axes = jax.jit(run), drawn.evaluate(here), drawn.axes(site)
    for element in np.ndindex(drawn.batch_shapes[site]):
        found = compiled([*here.values(), *map(np.int32, element)], constants)
        for term, array in zip(names, found, strict=True):
            expected = slice_of(np.asarray(full[term]), axes[term], element)
            assert array.shape == expected.shape
            np.testing.assert_allclose(array, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", INDEPENDENT)
def test_depends_on_the_site_through_its_slice_alone(name):
    """The slice of the site's value, when given, replaces the site: that is how it is moved."""
    model, site = INDEPENDENT[name]
    drawn, (here, other) = sketch(model), sketch(model).draws
    names, slices, indices = sliced_terms(drawn, site)
    others = [drawn.graph.inputs[name] for name in here if name != site]
    run, constants = cut(drawn.graph, slices[1:], [slices[0], *others, *indices])
    batch_shape, axes = drawn.batch_shapes[site], drawn.axes(site)
    element = tuple(size - 1 for size in batch_shape)
    new = slice_of(np.asarray(other[site]), range(len(batch_shape)), element)
    values = [new, *(here[name] for name in here if name != site), *map(np.int32, element)]
    full = drawn.evaluate({**here, site: here[site].at[element].set(other[site][element])})
    for term, array in zip(names, jax.jit(run)(values, constants), strict=True):
        expected = slice_of(np.asarray(full[term]), axes[term], element)
        np.testing.assert_allclose(array, expected, rtol=2e-5, atol=2e-5)


def test_terms_that_are_not_aligned_stay_whole():
    drawn = sketch(CASES["row sums"][0])
    _, slices, _ = sliced_terms(drawn, "x")
    assert [drawn.graph.avals[number].shape for number in slices] == [(1, 1), (1, 1), (1,)]
    drawn = sketch(CASES["cumulative"][0])
    _, slices, _ = sliced_terms(drawn, "x")
    assert slices[-1] == drawn.terms["y"]


def test_slicing_twice_adds_nothing():
    drawn = sketch(mixture)
    first = sliced_terms(drawn, "z")
    num_nodes = len(drawn.graph.nodes)
    assert sliced_terms(drawn, "z") == first
    assert len(drawn.graph.nodes) == num_nodes


def test_deep_graphs():
    def deep(inputs):
        value = inputs["x"]
        for step in range(3000):
            value = value * np.float32(1 + step)
        return value

    graph, result = trace_graph(deep, {"x": numbers(4)})
    alignments = align(graph, graph.inputs["x"], (4,))
    (number,), _ = add_slices(graph, [result], alignments, 1)
    assert graph.avals[number].shape == (1,)


def cost(model, site, size, is_sliced=True):
    """Return the operations and bytes of one element's terms; all arrays are arguments."""
    drawn = sketch(model, size)
    names, slices, indices = sliced_terms(drawn, site)
    wanted = slices[1:] if is_sliced else [drawn.terms[name] for name in names]
    values = drawn.draws[0]
    given = [*(drawn.graph.inputs[name] for name in values), *indices]
    run, constants = cut(drawn.graph, wanted, given)
    arguments = [*values.values(), *(np.int32(0) for _ in indices)]
    analysis = jax.jit(run).lower(arguments, constants).compile().cost_analysis()
    analysis = analysis[0] if isinstance(analysis, list) else analysis
    return analysis["flops"], analysis["bytes accessed"]


PLATES = {
    "identity": (plate_of(lambda x: jnp.exp(x) + jnp.arange(x.size)), "x"),
    "nested": (nested, "x"),
    "nested, outer": (nested_outer, "mu"),
    "scale": (scaled, "x"),
    "assignments": (mixture, "z"),
    "item classes": (dawid_skene_flat, "c"),
    "events": (events, "x"),
    "simplex": (rows_on_simplex, "p"),
    "covariates": (regression, "x"),
    "scales": (local_scales, "s"),
    "take along axis": (local_scales, "k"),
}


@pytest.mark.parametrize("name", PLATES)
def test_cost_does_not_grow(name):
    model, site = PLATES[name]
    small, large = cost(model, site, 100), cost(model, site, 100_000)
    np.testing.assert_allclose(large, small, rtol=0.01)


def test_cost_of_whole_terms_grows():
    """The measure is one that would notice."""
    small, large = (np.array(cost(*PLATES["assignments"], n, False)) for n in (100, 10_000))
    assert np.all(large > 50 * small)


@settings(max_examples=15, deadline=None)
@given(programs)
def test_random_programs(program):
    (batch_shape, event_shape), steps = program
    run, shape = random_program(steps), batch_shape + event_shape
    assume(fits_together(run, shape))
    graph, results = trace_graph(run, {"x": jax.ShapeDtypeStruct(shape, jnp.float32)})
    alignments = align(graph, graph.inputs["x"], batch_shape)
    assume(any(a != ALL for a in alignments[results[-1]] or ()))
    slices, indices = add_slices(graph, results, alignments, len(batch_shape))
    both, constants = cut(graph, [*results, *slices], [graph.inputs["x"], *indices])
    compiled = jax.jit(functools.partial(both, constants=constants))
    for element in [(0,) * len(batch_shape), tuple(size - 1 for size in batch_shape)]:
        found = compiled([numbers(*shape), *map(np.int32, element)])
        for number, full, part in zip(results, found, found[len(results) :], strict=False):
            expected = slice_of(np.asarray(full), alignments[number] or (), element)
            np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-4)
