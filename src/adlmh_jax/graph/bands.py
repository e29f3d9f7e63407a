"""Which entries of each value an element of a site reaches, where they lie at fixed distances.

`align` asks for entries that depend on one element each. In a series, an entry may depend on its
own element and on those next to it: on elements j + d for a few distances d, a *band*. Then an
element reaches a few entries of each value, and all do so alike, but for some at the ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adlmh_jax.graph.alignment import ALL, TRIVIAL, carried_axes, propagate
from adlmh_jax.graph.graph import Graph
from adlmh_jax.graph.operations import Node

MAX_DISTANCES = 16  # of more, the moves of single elements would be much code

Range = tuple[int, int]  # the first of some consecutive integers, and the one after the last
Box = tuple[Range, ...]  # a range along each batch axis
Shifted = list[dict[int, tuple[int, int]]]  # of each operand: axis -> (axis of the result, shift)


@dataclass(frozen=True)
class Band:
    """How a value depends on the inner elements of a site.

    Attributes
    ----------
    axes
        For each batch axis of the site the axis of the value whose entry j depends on elements that
        lie around j; `ALL` if there is none, `TRIVIAL` where the batch axis has one index.
    distances
        How far from j they lie along each batch axis. Empty if no inner element matters.
    regular
        The entries, along these axes, that are computed alike.
    inner
        The inner elements. Others may matter in any way.
    """

    axes: tuple[int, ...]
    distances: frozenset[tuple[int, ...]]
    regular: Box
    inner: Box

    @property
    def is_narrow(self) -> bool:
        """Whether an inner element reaches a few entries at fixed distances, or none."""
        return ALL not in self.axes or not self.distances

    def reached(self) -> list[tuple[int, ...]]:
        """Return how far from an inner element the entries lie that it reaches."""
        return sorted(tuple(-step for step in distance) for distance in self.distances)

    def inside(self) -> Box:
        """Return the inner elements that reach nothing but regular entries."""
        box = []
        for position, (low, high) in enumerate(self.inner):
            start, end = self.regular[position]
            steps = {d[position] for d in self.distances} if self.axes[position] >= 0 else ()
            ranges = [(start + step, end + step) for step in steps]
            box.append(_common([(low, high), *ranges]))
        return tuple(box)


Bands = list[Band | None]  # for each value of the graph; None if the site does not touch it


def find_bands(graph: Graph, source: int, batch_shape: Sequence[int]) -> Bands:
    """Find how each value depends on the elements of one site.

    Parameters
    ----------
    graph
        The model's computations.
    source
        Number of the site's value.
    batch_shape
        The site's batch shape: its leading axes.
    """
    whole = tuple((0, size) for size in batch_shape)
    axes = tuple(a if size > 1 else TRIVIAL for a, size in enumerate(batch_shape))
    first = Band(axes, frozenset({(0,) * len(axes)}), whole, whole)
    return propagate(graph, source, first, _step)


def shifted_axes(graph: Graph, node: Node) -> Shifted | None:
    """Return which axes of each operand go, shifted by how much, to which axes of the results.

    Entry j along such an axis of the result depends on the operand through its entry j + shift
    alone, if there is such an entry. None: nothing is known.
    """
    name, params = node.primitive.name, node.params
    shapes = [graph.avals[number].shape for number in node.inputs]
    if name == "slice":
        strides = params["strides"] or (1,) * len(shapes[0])
        starts = zip(params["start_indices"], strides, strict=True)
        return [{axis: (axis, start) for axis, (start, step) in enumerate(starts) if step == 1}]
    if name == "pad":
        config = enumerate(params["padding_config"])
        return [{axis: (axis, -int(low)) for axis, (low, _, between) in config if not between}, {}]
    carried = carried_axes(graph, node)
    if carried is None:
        return None
    shifted = [{axis: (to, 0) for axis, to in axes.items()} for axes in carried]
    if name == "concatenate":
        along, start = params["dimension"], 0
        for axes, shape in zip(shifted, shapes, strict=True):
            axes[along] = (along, -start)
            start += shape[along]
    return shifted


def _step(graph: Graph, node: Node, bands: Sequence[Band | None]) -> Band:
    """Return the band of a node's results, joined over its touched operands."""
    shifted = shifted_axes(graph, node)
    own = [
        _carry(graph, node, position, band, shifted[position] if shifted else {})
        for position, number in enumerate(node.inputs)
        if (band := bands[number]) is not None
    ]
    inner = tuple(_common(ranges) for ranges in zip(*(band.inner for band in own), strict=True))
    seen = [band for band in own if band.distances]
    if not seen:
        return replace(own[0], inner=inner)
    axes = tuple(
        column[0] if len(set(column)) == 1 else ALL
        for column in zip(*(band.axes for band in seen), strict=True)
    )
    regular = _regular(node, seen, axes)
    distances = frozenset(
        tuple(step if axis >= 0 else 0 for step, axis in zip(distance, axes, strict=True))
        for band in seen
        for distance in band.distances
    )
    if len(distances) > MAX_DISTANCES:
        axes = tuple(axis if axis == TRIVIAL else ALL for axis in axes)
        distances = frozenset({(0,) * len(axes)})
    return Band(axes, distances, regular, inner)


def _regular(node: Node, seen: Sequence[Band], axes: Sequence[int]) -> Box:
    """Return the entries that are computed alike: of what is put end to end, those of one part."""
    is_joined = node.primitive.name == "concatenate"
    box = []
    for position, axis in enumerate(axes):
        ranges = [band.regular[position] for band in seen]
        is_along = is_joined and axis == node.params["dimension"]
        box.append(max(ranges, key=_length) if is_along else _common(ranges))
    return tuple(box)


def _carry(
    graph: Graph, node: Node, position: int, band: Band, shifted: dict[int, tuple[int, int]]
) -> Band:
    """Return the band of a node's results as they depend on one operand."""
    before, after = graph.avals[node.inputs[position]].shape, graph.avals[node.outputs[0]].shape
    axes: list[int] = []
    shifts: list[int] = []
    regular: list[Range] = []
    inner: list[Range] = []
    is_end = False
    for axis, (start, end), (low, high) in zip(band.axes, band.regular, band.inner, strict=True):
        to, shift = shifted.get(axis, (ALL, 0))
        if axis >= 0 and to >= 0:
            start, end = max(start - shift, 0), min(end - shift, after[to])
            if after[to] == 1 < before[axis]:  # a single row: other elements do not matter
                low, high = _without(band, len(axes), shift, (low, high))
                is_end = True
        axes.append(axis if axis == TRIVIAL else to)
        shifts.append(shift)
        regular.append((start, end))
        inner.append((low, high))
    distances = frozenset(
        tuple(step + shift for step, shift in zip(distance, shifts, strict=True))
        for distance in band.distances
    )
    return Band(tuple(axes), frozenset() if is_end else distances, tuple(regular), tuple(inner))


def _without(band: Band, position: int, row: int, inner: Range) -> Range:
    """Return the inner elements but those that one row depends on, from the nearer end."""
    low, high = inner
    for distance in band.distances:
        element = row + distance[position]
        if element - low < high - element:
            low = max(low, element + 1)
        else:
            high = min(high, element)
    return low, high


def _common(ranges: Sequence[Range]) -> Range:
    return max(low for low, _ in ranges), min(high for _, high in ranges)


def _length(range_: Range) -> int:
    return range_[1] - range_[0]
