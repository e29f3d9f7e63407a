"""Which entries an element reaches at fixed distances; slices there equal those of the whole."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_alignment import numbers
from test_slicing import cut

from adlmh_jax.graph.alignment import ALL
from adlmh_jax.graph.bands import find_bands
from adlmh_jax.graph.graph import trace_graph
from adlmh_jax.graph.slicing import Slicer, add_input

SIZE, WHOLE = 8, (0, 8)


def shifted(x, by=1):
    return jnp.concatenate([jnp.zeros((by, *x.shape[1:])), x[:-by]])


# name: (function of an array of shape (8, 3), distances of what entries depend on, inner elements)
SERIES = {
    "itself": (lambda x: jnp.exp(x), {0}, WHOLE),
    "differences": (lambda x: x[1:] - x[:-1], {0, 1}, WHOLE),
    "shifted": (shifted, {-1}, WHOLE),
    "two lags": (lambda x: x - 0.5 * shifted(x) + 0.2 * shifted(shifted(x)), {0, -1, -2}, WHOLE),
    "padded": (lambda x: jnp.pad(x[:-2], ((2, 0), (0, 0))) * x, {0, -2}, WHOLE),
    "cropped by padding": (
        lambda x: jax.lax.pad(x, 0.0, ((-1, 1, 0), (0, 0, 0))),
        {1},
        WHOLE,
    ),
    "columns of differences": (lambda x: jnp.sum(x[1:] - x[:-1], 1), {0, 1}, WHOLE),
    "a year before": (lambda x: x[5:] - x[:-5], {0, 5}, WHOLE),
    "both neighbours": (lambda x: shifted(x) + jnp.concatenate([x[1:], x[:1]]), {-1, 1}, (1, 8)),
    "rolled": (lambda x: x + jnp.roll(x, 1, 0), {0, -1}, (0, 7)),
    "against the first": (lambda x: x - x[0], {0}, (1, 8)),
    "the last": (lambda x: x[-1] ** 2, set(), (0, 7)),
    "put end to end": (lambda x: jnp.concatenate([x[2:], 2 * x]), {2, -6}, WHOLE),
    "looked up": (lambda x: numbers(4)[jnp.floor(shifted(x)).astype(int) % 4], {-1}, WHOLE),
    "cumulative": (lambda x: jnp.cumsum(x, 0), ALL, WHOLE),
    "backwards": (lambda x: x + x[::-1], ALL, WHOLE),
    "every other": (lambda x: x[::2], ALL, WHOLE),
    "disordered": (lambda x: x[jnp.array([1, 0, 3, 2, 5, 4, 7, 6])], ALL, WHOLE),
    "sum": (lambda x: jnp.sum(x, 0), ALL, WHOLE),
    "between": (lambda x: jax.lax.pad(x, 0.0, ((0, 0, 1), (0, 0, 0))), ALL, WHOLE),
    "transposed and not": (lambda x: x[:3] + x[:3].T, ALL, WHOLE),
    "many distances": (lambda x: sum(shifted(x, by) for by in range(1, 7)), None, WHOLE),
}


def band_of(function, shape=(SIZE, 3), num_axes=1):
    graph, number = trace_graph(
        lambda inputs: function(inputs["x"]), {"x": jax.ShapeDtypeStruct(shape, jnp.float32)}
    )
    return graph, number, find_bands(graph, graph.inputs["x"], shape[:num_axes])[number]


@pytest.mark.parametrize("name", SERIES)
def test_bands(name):
    function, distances, inner = SERIES[name]
    _, _, band = band_of(function)
    if distances == ALL:
        assert not band.is_narrow
    elif distances is not None:
        assert band.is_narrow
        assert {distance for (distance,) in band.distances} == distances
    assert band.inner == (inner,)


def test_too_many_distances_are_none(monkeypatch):
    monkeypatch.setattr("adlmh_jax.graph.bands.MAX_DISTANCES", 5)
    assert not band_of(SERIES["many distances"][0])[2].is_narrow


def grid(x):
    """Each entry and its four neighbours."""
    rows, columns = shifted(x), jnp.pad(x[:, 1:], ((0, 0), (0, 1)))
    return x * (rows + columns)


def test_two_axes():
    _, _, band = band_of(grid, (6, 7), 2)
    assert band.axes == (0, 1)
    assert band.distances == {(0, 0), (-1, 0), (0, 1)}
    assert band.inside() == ((1, 5), (1, 6))


NARROW = {
    **{name: (f, (SIZE, 3), 1) for name, (f, d, _) in SERIES.items() if d not in (ALL, None)},
    "grid": (grid, (6, 7), 2),
}


@pytest.mark.parametrize("name", NARROW)
def test_an_element_reaches_nothing_else(name):
    function, shape, num_axes = NARROW[name]
    _, _, band = band_of(function, shape, num_axes)
    x, other = numbers(2, *shape)
    before = np.asarray(function(x))
    for element in itertools.product(*(range(low, high) for low, high in band.inner)):
        changed = np.asarray(function(x.at[element].set(other[element]))) != before
        allowed = np.zeros(changed.shape, bool)
        for distance in band.reached():
            place = [slice(None)] * changed.ndim
            for axis, index, step in zip(band.axes, element, distance, strict=True):
                place[axis] = slice(max(index + step, 0), max(index + step + 1, 0))
            allowed[tuple(place)] = True
        assert not np.any(changed & ~allowed)


@pytest.mark.parametrize("name", NARROW)
def test_slices_equal_those_of_the_whole(name):
    """They do so when the element's own row is given, and all else is as it was."""
    function, shape, num_axes = NARROW[name]
    graph, number, band = band_of(function, shape, num_axes)
    x, other = numbers(2, *shape)
    box = band.inside()
    index = jax.ShapeDtypeStruct((), jnp.int32)
    indices = tuple(add_input(graph, f"index {axis}", index) for axis in range(num_axes))
    slicer, batch_axes = Slicer(graph, indices, box), {a: a for a in range(num_axes)}
    own = slicer.compute(graph.inputs["x"], batch_axes)
    axes = {axis: batch for batch, axis in enumerate(band.axes)}
    parts = [slicer.compute(number, axes, distance) for distance in band.reached()]
    run, constants = cut(graph, parts, [own, graph.inputs["x"], *indices])
    for element in itertools.product(*(range(low, high) for low, high in box)):
        new = other[element].reshape((1,) * num_axes + shape[num_axes:])
        found = run([new, x, *map(np.int32, element)], constants)
        full = np.asarray(function(x.at[element].set(other[element])))
        for distance, part in zip(band.reached(), found, strict=True):
            expected = full
            for axis, i, step in zip(band.axes, element, distance, strict=True):
                expected = np.take(expected, [i + step], axis)
            np.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-6)
