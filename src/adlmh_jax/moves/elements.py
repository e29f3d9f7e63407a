"""A site seen from one of its elements: what a move of that element alone must read and compute.

Where everything that a site touches is aligned with it, entry by entry, a move of one element needs
one entry of each term, of each output, and of every other site in the same plate. The cost of such
a move has no part in the size of the plate.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph import (
    Band,
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
    inner
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
    inner: Box
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
        return all(low <= i < high for i, (low, high) in zip(index, self.inner, strict=True))


def view_element(
    traced: Traced, site: Site, touches: Touches, proposals: Sequence[int]
) -> Element | None:
    """Return the site seen from one of its inner elements, moved by the given proposals.

    None where that cannot be: something that the site touches, or a proposal, does not keep to
    one element and a few at fixed distances from it, or the parts are not consecutive rows. And
    where most elements are not inner ones.

    Parameters
    ----------
    traced
        The model; nodes are added to its graph.
    site, touches
        The site, and what it touches.
    proposals
        Numbers of the site's traced proposals; -1 for a prior draw.
    """
    name, keys = site.name, [(site.name, proposal) for proposal in proposals]
    bands = find_bands(traced.graph, traced.values[name], site.batch_shape)
    tables = (traced.proposed, traced.log_q_ratios)
    proposed = [table[key] for table in tables for key in keys if key in table]
    own = [bands[value] for value in (traced.draws[name], traced.priors[name], *proposed)]
    numbers = [traced.terms[term] for term in touches.terms]
    numbers += [traced.outputs[output] for output in touches.outputs]
    inner = _inner([band for band in own if band], [b for n in numbers if (b := bands[n])], site)
    if inner is None:
        return None
    graph, num_axes = traced.graph, len(site.batch_shape)
    batch_axes = {axis: axis for axis, size in enumerate(site.batch_shape) if size > 1}
    index = jax.ShapeDtypeStruct((), jnp.int32)
    indices = tuple(add_input(graph, f"index {a} of {name}", index) for a in range(num_axes))
    slicer = Slicer(graph, indices, inner)

    def along_batch(value: int) -> int:
        return slicer.compute(value, batch_axes)

    def touched(numbers: Mapping[str, int]) -> list[Touched | None]:
        found: list[Touched | None] = []
        for entry, value in numbers.items():
            band = bands[value]
            axes = {a: batch for batch, a in enumerate(band.axes if band else ()) if a >= 0}
            for distance in band.reached() if band else ():
                part = _part(graph.avals[value].shape, to_demand(axes, distance), num_axes)
                number = slicer.compute(value, axes, distance)
                found.append(Touched(entry, number, part) if part else None)
        return found

    values = {**traced.values, name: along_batch(traced.values[name])}
    terms = touched({term: traced.terms[term] for term in touches.terms})
    outputs = touched({output: traced.outputs[output] for output in touches.outputs})
    view = dataclasses.replace(
        traced,
        values=values,
        scales={**traced.scales, name: along_batch(traced.scales[name])},
        priors={**traced.priors, name: along_batch(traced.priors[name])},
        draws={**traced.draws, name: along_batch(traced.draws[name])},
        proposed=_at(traced.proposed, keys, along_batch),
        log_q_ratios=_at(traced.log_q_ratios, keys, along_batch),
    )
    element = Element(
        traced=view,
        site=dataclasses.replace(site, batch_shape=(1,) * num_axes),
        batch_shape=site.batch_shape,
        inner=inner,
        indices=indices,
        reads=_parts_of_sites(traced, slicer, num_axes),
        noise=_parts_of_noise(slicer),
        terms=tuple(entry for entry in terms if entry),
        outputs=tuple(entry for entry in outputs if entry),
    )
    is_whole = None not in (*terms, *outputs)
    return element if is_whole and _keeps_to_element(traced, element, slicer, site, keys) else None


def _inner(own: Sequence[Band], touched: Sequence[Band], site: Site) -> Box | None:
    """Return the elements that can be moved on their own; None if they are not most of them.

    Parameters
    ----------
    own
        How the site's proposals depend on its elements: of each, the element's own entry is needed.
    touched
        How terms and outputs do: of these, all entries that the element reaches.
    site
        The site.
    """
    if not all(band.is_narrow for band in (*own, *touched)):
        return None
    boxes = [tuple((0, size) for size in site.batch_shape), *(band.inside() for band in touched)]
    boxes += [box for band in own for box in (band.inner, band.regular)]
    inner = tuple(
        (max(low for low, _ in ranges), min(high for _, high in ranges))
        for ranges in zip(*boxes, strict=True)
    )
    number = math.prod(max(0, high - low) for low, high in inner)
    return inner if 2 * number >= site.num_components else None


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
    batch_axes = [axis for axis, size in enumerate(site.batch_shape) if size > 1]
    rows = [demand for value, demand in slicer.found if demand and value == traced.values[name]]
    are_rows = all([(a, batch) for a, (batch, _) in row] == _twice(batch_axes) for row in rows)
    return is_sliced_one_way and are_rows and not used & ({traced.values[name], *once} - given)


def _twice(axes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the demand for an element itself: along each of its axes by its own index."""
    return [(axis, axis) for axis in axes]
