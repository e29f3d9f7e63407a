"""A site seen from one of its elements: what a move of that element alone must read and compute.

Where everything that a site touches is aligned with it, entry by entry, a move of one element needs
one entry of each term, of each output, and of every other site in the same plate. In a series it
needs a few entries, at fixed distances, and the site's own values next to the element. The cost of
such a move has no part in the size of the plate, or in the length of the series.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph import (
    Band,
    Bands,
    Box,
    Cutter,
    Demand,
    Graph,
    Slicer,
    add_input,
    find_bands,
    to_demand,
)
from adlmh_jax.model import Site, Touches, Traced

NOISE = ("random_bits", "random_split")
MAX_BOXES = 9  # beyond this many, elements at the ends are no branches of their own
Strides = tuple[int, ...]  # rows from one index of each batch axis to the next


@dataclass(frozen=True)
class Part:
    """Consecutive rows of an array that belong to one element.

    Attributes
    ----------
    shape
        Of the part.
    strides
        How far the parts of neighbouring elements lie apart, for each batch axis of the site.
    offset
        How many rows after the first one that of the first element begins; it may be negative.
    """

    shape: tuple[int, ...]
    strides: Strides
    offset: int = 0


@dataclass(frozen=True)
class At:
    """Where a branch finds the one element that it moves.

    Attributes
    ----------
    batch_shape
        Of the whole site; to the branch, it has one element.
    indices
        Numbers of the values that say which element, where they are needed; None elsewhere.
    terms, outputs
        Where the parts lie of what is touched.
    """

    batch_shape: tuple[int, ...]
    indices: tuple[int | None, ...]
    terms: tuple[Part, ...]
    outputs: tuple[Part, ...]


@dataclass(frozen=True)
class Touched:
    """A part of a term, or of an output, that a move of one element changes.

    Attributes
    ----------
    name
        Of the term or the output.
    number
        Of the part's value.
    part
        Where it lies.
    """

    name: str
    number: int
    part: Part


@dataclass(frozen=True)
class Element:
    """What `cut_branch` needs to cut out a move of one element.

    Attributes
    ----------
    traced
        The model's numbers, with the parts of one element in the place of whole values.
    site
        The site as if it had one element.
    batch_shape
        Its real batch shape.
    box
        The elements that can be moved so: along each batch axis, from where to where.
    indices
        Numbers of the inputs that say which element, one for each batch axis.
    reads
        Parts of latent sites, by number: the site's name, and where the part lies.
    noise
        Parts of random bits and keys: a part of fresh bits is fresh bits.
    terms, outputs
        The touched parts. Of one term there may be several.
    """

    traced: Traced
    site: Site
    batch_shape: tuple[int, ...]
    box: Box
    indices: tuple[int, ...]
    reads: dict[int, tuple[str, Part]]
    noise: frozenset[int]
    terms: tuple[Touched, ...]
    outputs: tuple[Touched, ...]

    def at(self, cutter: Cutter) -> At:
        """Return where a branch whose fragments have been cut finds the element."""
        number_of = {value: number for number, value in cutter.inputs.items()}
        return At(
            batch_shape=self.batch_shape,
            indices=tuple(number_of.get(index) for index in self.indices),
            terms=tuple(entry.part for entry in self.terms),
            outputs=tuple(entry.part for entry in self.outputs),
        )

    def has(self, element: int) -> bool:
        """Whether an element can be moved so."""
        index = np.unravel_index(element, self.batch_shape)
        return all(low <= i < high for i, (low, high) in zip(index, self.box, strict=True))


def view_elements(
    traced: Traced, site: Site, touches: Touches, proposals: Sequence[int]
) -> list[Element]:
    """Return the site seen from one of its inner elements, moved by the given proposals.

    Then, as far as can be, from elements at the ends, such as the first and the last of a series.
    Nothing where something that the site touches, or a proposal, does not keep to one element and a
    few at fixed distances from it, or the parts are not consecutive rows. And where most elements
    are not inner ones.

    Parameters
    ----------
    traced
        The model; nodes are added to its graph.
    site, touches
        The site, and what it touches.
    proposals
        Numbers of the site's traced proposals; -1 for a prior draw.
    """
    keys = [(site.name, proposal) for proposal in proposals]
    bands = find_bands(traced.graph, traced.values[site.name], site.batch_shape)
    view = _View(traced, site, touches, keys, bands)
    inner = view.inner()
    elements = [view.at(box) for box in _boxes(inner, site.batch_shape)] if inner else [None]
    return [element for element in elements if element] if elements[0] else []


def _boxes(inner: Box, batch_shape: Sequence[int]) -> list[Box]:
    """Return the inner elements, and each of the ends on its own unless these are many."""
    ranges = [
        [(low, high), *((i, i + 1) for i in range(size) if not low <= i < high)]
        for (low, high), size in zip(inner, batch_shape, strict=True)
    ]
    boxes = list(itertools.product(*ranges))
    return boxes if len(boxes) <= MAX_BOXES else [inner]


@dataclass(frozen=True)
class _View:
    """A site about to be seen from one element.

    Attributes
    ----------
    traced, site, touches
        The model, the site, and what it touches.
    keys
        Of the site's traced proposals.
    bands
        How each value depends on the elements of the site.
    """

    traced: Traced
    site: Site
    touches: Touches
    keys: Sequence[tuple[str, int]]
    bands: Bands

    def _bands_of(self, numbers: Iterable[int]) -> list[Band]:
        return [band for number in numbers if (band := self.bands[number])]

    @property
    def own(self) -> list[int]:
        """What is needed at the element itself: prior, draw and proposals."""
        traced, name = self.traced, self.site.name
        tables = (traced.proposed, traced.log_q_ratios)
        proposed = [table[key] for table in tables for key in self.keys if key in table]
        return [traced.draws[name], traced.priors[name], *proposed]

    @property
    def touched(self) -> list[int]:
        """Of what all entries are needed that the element reaches: terms and outputs."""
        traced, touches = self.traced, self.touches
        terms = [traced.terms[term] for term in touches.terms]
        return [*terms, *(traced.outputs[output] for output in touches.outputs)]

    def inner(self) -> Box | None:
        """Return the elements that are all moved alike; None if they are not most of them."""
        own, touched = self._bands_of(self.own), self._bands_of(self.touched)
        if not all(band.is_narrow for band in (*own, *touched)):
            return None
        boxes = [tuple((0, size) for size in self.site.batch_shape)]
        boxes += [band.inside() for band in touched]
        boxes += [box for band in own for box in (band.inner, band.regular)]
        inner = tuple(
            (max(low for low, _ in ranges), min(high for _, high in ranges))
            for ranges in zip(*boxes, strict=True)
        )
        number = math.prod(max(0, high - low) for low, high in inner)
        return inner if 2 * number >= self.site.num_components else None

    def at(self, box: Box) -> Element | None:
        """Return the site seen from one element among some; None if that cannot be."""
        traced, site, name = self.traced, self.site, self.site.name
        if not all(
            low <= first and last <= high
            for band in self._bands_of([*self.own, *self.touched])
            for (low, high), (first, last) in zip(band.inner, box, strict=True)
        ):
            return None
        graph, num_axes = traced.graph, len(site.batch_shape)
        batch_axes = {axis: axis for axis, size in enumerate(site.batch_shape) if size > 1}
        index = jax.ShapeDtypeStruct((), jnp.int32)
        indices = tuple(add_input(graph, f"index {a} of {name}", index) for a in range(num_axes))
        slicer = Slicer(graph, indices, box)

        def along_batch(value: int) -> int:
            return slicer.compute(value, batch_axes)

        terms = self._parts(slicer, traced.terms, self.touches.terms)
        outputs = self._parts(slicer, traced.outputs, self.touches.outputs)
        if terms is None or outputs is None:
            return None
        view = dataclasses.replace(
            traced,
            values={**traced.values, name: along_batch(traced.values[name])},
            scales={**traced.scales, name: along_batch(traced.scales[name])},
            priors={**traced.priors, name: along_batch(traced.priors[name])},
            draws={**traced.draws, name: along_batch(traced.draws[name])},
            proposed=_at(traced.proposed, self.keys, along_batch),
            log_q_ratios=_at(traced.log_q_ratios, self.keys, along_batch),
        )
        element = Element(
            traced=view,
            site=dataclasses.replace(site, batch_shape=(1,) * num_axes),
            batch_shape=site.batch_shape,
            box=box,
            indices=indices,
            reads=_parts_of_sites(traced, slicer, num_axes),
            noise=_parts_of_noise(slicer),
            terms=tuple(terms),
            outputs=tuple(outputs),
        )
        keeps = _keeps_to_element(traced, element, slicer, site, self.keys)
        return element if keeps else None

    def _parts(
        self, slicer: Slicer, numbers: Mapping[str, int], names: Iterable[str]
    ) -> list[Touched] | None:
        """Return the parts that the element reaches; None if they are not rows that all have."""
        found, num_axes = [], len(self.site.batch_shape)
        for name in names:
            value = numbers[name]
            band, shape = self.bands[value], slicer.graph.avals[value].shape
            axes = {a: batch for batch, a in enumerate(band.axes if band else ()) if a >= 0}
            for distance in band.reached() if band else ():
                demand = to_demand(axes, distance)
                rows = [
                    (slicer.inner[batch][0] + step, slicer.inner[batch][1] + step, shape[axis])
                    for axis, (batch, step) in demand
                ]
                if any(end <= 0 or start >= size for start, end, size in rows):
                    continue
                part = _part(shape, demand, num_axes)
                if part is None or any(start < 0 or end > size for start, end, size in rows):
                    return None
                found.append(Touched(name, slicer.compute(value, axes, distance), part))
        return found


def _at(
    table: dict[Any, int], keys: Sequence[Any], along_batch: Callable[[int], int]
) -> dict[Any, int]:
    return table | {key: along_batch(table[key]) for key in keys if key in table}


def _part(shape: Sequence[int], demand: Demand, num_axes: int) -> Part | None:
    """Return where a slice lies among the rows of its array; None if it is not in one piece."""
    where = dict(demand)
    end = max(where, default=-1) + 1
    if any(axis not in where and shape[axis] > 1 for axis in range(end)):
        return None
    strides, offset = [0] * num_axes, 0
    for axis, (batch, distance) in demand:
        strides[batch] = math.prod(shape[axis + 1 :])
        offset += distance * strides[batch]
    sizes = tuple(1 if axis in where else size for axis, size in enumerate(shape))
    return Part(sizes, tuple(strides), offset)


def _parts_of_sites(traced: Traced, slicer: Slicer, num_axes: int) -> dict[int, tuple[str, Part]]:
    """Return the slices of latent sites that can be read on their own."""
    site_of = {number: name for name, number in traced.values.items()}
    reads = {}
    for (value, demand), number in slicer.found.items():
        if value in site_of and demand:
            part = _part(traced.graph.avals[value].shape, demand, num_axes)
            if part:
                reads[number] = (site_of[value], part)
    return reads


def _parts_of_noise(slicer: Slicer) -> frozenset[int]:
    found = slicer.found.items()
    return frozenset(n for (value, demand), n in found if demand and _is_noise(slicer.graph, value))


def _is_noise(graph: Graph, value: int) -> bool:
    """Whether a value is random bits, or random keys: independent from entry to entry."""
    index = graph.producer.get(value)
    return index is not None and graph.nodes[index].primitive.name in NOISE


def _keeps_to_element(
    traced: Traced, element: Element, slicer: Slicer, site: Site, keys: Sequence[tuple[str, int]]
) -> bool:
    """Whether the parts can be computed from single parts of the site, its scale, and its noise.

    Were any of them read both whole and in part, or in two ways, the two would not fit together.
    Parts of the site at different distances from the element are different ones.
    """
    view, graph, name = element.traced, traced.graph, site.name
    tables = (view.proposed, view.log_q_ratios)
    wanted = [view.draws[name], view.priors[name], *(t[k] for t in tables for k in keys if k in t)]
    wanted += [entry.number for entry in (*element.terms, *element.outputs)]
    given = {view.values[name], view.scales[name], *element.reads, *element.noise}
    needed = graph.ancestors(wanted, given)
    used = {number for index in needed for number in graph.nodes[index].inputs} | set(wanted)
    once = {value for value, _ in slicer.found if _is_noise(graph, value)} | {traced.scales[name]}
    sliced = [value for value, demand in slicer.found if demand and value in once]
    is_sliced_one_way = len(sliced) == len(set(sliced))
    straight = [(axis, axis) for axis, size in enumerate(site.batch_shape) if size > 1]
    rows = [demand for value, demand in slicer.found if demand and value == traced.values[name]]
    are_rows = all([(axis, batch) for axis, (batch, _) in row] == straight for row in rows)
    return is_sliced_one_way and are_rows and not used & ({traced.values[name], *once} - given)
