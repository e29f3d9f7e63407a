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

from adlmh_jax.graph import ALL, Alignments, Demand, Graph, Slicer, add_input
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
    """

    shape: tuple[int, ...]
    strides: Strides


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
    indices
        Numbers of the inputs that say which element, one for each batch axis.
    reads
        Parts of latent sites, by number: the site's name, and where the part lies.
    noise
        Parts of random bits and keys: a part of fresh bits is fresh bits.
    terms, outputs
        Where the touched parts lie.
    """

    traced: Traced
    site: Site
    batch_shape: tuple[int, ...]
    indices: tuple[int, ...]
    reads: dict[int, tuple[str, Part]]
    noise: frozenset[int]
    terms: tuple[Part, ...]
    outputs: tuple[Part, ...]


def view_element(
    traced: Traced,
    site: Site,
    touches: Touches,
    alignments: Alignments,
    proposals: Sequence[int],
) -> Element | None:
    """Return the site seen from one element, moved by the given proposals.

    None where that cannot be: something that the site touches, or a proposal, does not keep to
    one element, or its parts are not consecutive rows.

    Parameters
    ----------
    traced
        The model; nodes are added to its graph.
    site, touches
        The site, and what it touches.
    alignments
        How each value is aligned with the site.
    proposals
        Numbers of the site's traced proposals; -1 for a prior draw.
    """
    name, keys = site.name, [(site.name, proposal) for proposal in proposals]
    tables = (traced.proposed, traced.log_q_ratios)
    proposed = [table[key] for table in tables for key in keys if key in table]
    own_values = [traced.draws[name], traced.priors[name], *proposed]
    touched = [traced.terms[term] for term in touches.terms]
    touched += [traced.outputs[output] for output in touches.outputs]
    if any(ALL in (alignments[value] or ()) for value in [*touched, *own_values]):
        return None
    graph, num_axes = traced.graph, len(site.batch_shape)
    batch_axes = {axis: axis for axis, size in enumerate(site.batch_shape) if size > 1}
    index = jax.ShapeDtypeStruct((), jnp.int32)
    indices = tuple(add_input(graph, f"index {a} of {name}", index) for a in range(num_axes))
    slicer = Slicer(graph, indices)

    def along_batch(value: int) -> int:
        return slicer.compute(value, batch_axes)

    def aligned(value: int) -> tuple[int, Part | None]:
        axes = {axis: batch for batch, axis in enumerate(alignments[value] or ()) if axis >= 0}
        part = _part(graph.avals[value].shape, tuple(axes.items()), num_axes)
        return slicer.compute(value, axes), part

    values = {**traced.values, name: along_batch(traced.values[name])}
    terms = {term: aligned(traced.terms[term]) for term in touches.terms}
    outputs = {output: aligned(traced.outputs[output]) for output in touches.outputs}
    view = dataclasses.replace(
        traced,
        values=values,
        scales={**traced.scales, name: along_batch(traced.scales[name])},
        terms={**traced.terms, **_numbers(terms)},
        outputs={**traced.outputs, **_numbers(outputs)},
        priors={**traced.priors, name: along_batch(traced.priors[name])},
        draws={**traced.draws, name: along_batch(traced.draws[name])},
        proposed=_at(traced.proposed, keys, along_batch),
        log_q_ratios=_at(traced.log_q_ratios, keys, along_batch),
    )
    element = Element(
        traced=view,
        site=dataclasses.replace(site, batch_shape=(1,) * num_axes),
        batch_shape=site.batch_shape,
        indices=indices,
        reads=_parts_of_sites(traced, slicer, num_axes),
        noise=_parts_of_noise(slicer),
        terms=tuple(part for _, part in terms.values() if part),
        outputs=tuple(part for _, part in outputs.values() if part),
    )
    is_whole = len(element.terms) == len(terms) and len(element.outputs) == len(outputs)
    return element if is_whole and _keeps_to_element(traced, element, slicer, name, keys) else None


def _numbers(parts: Mapping[str, tuple[int, Part | None]]) -> dict[str, int]:
    return {name: number for name, (number, _) in parts.items()}


def _at(
    table: dict[Any, int], keys: Sequence[Any], along_batch: Callable[[int], int]
) -> dict[Any, int]:
    return table | {key: along_batch(table[key]) for key in keys if key in table}


def _part(shape: Sequence[int], demand: Demand, num_axes: int) -> Part | None:
    """Return where a slice lies among the rows of its array; None if it is not in one piece."""
    batch_of = dict(demand)
    end = max(batch_of, default=-1) + 1
    if any(axis not in batch_of and shape[axis] > 1 for axis in range(end)):
        return None
    strides = [0] * num_axes
    for axis, batch in demand:
        strides[batch] = math.prod(shape[axis + 1 :])
    sizes = tuple(1 if axis in batch_of else size for axis, size in enumerate(shape))
    return Part(sizes, tuple(strides))


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
    traced: Traced, element: Element, slicer: Slicer, name: str, keys: Sequence[tuple[str, int]]
) -> bool:
    """Whether the parts can be computed from one part of the site, its scale, and its noise.

    Were any of them read both whole and in part, or in two ways, the two would not fit together.
    """
    view, graph = element.traced, traced.graph
    tables = (view.proposed, view.log_q_ratios)
    wanted = [view.draws[name], view.priors[name], *(t[k] for t in tables for k in keys if k in t)]
    wanted += [view.terms[term] for term in view.terms if view.terms[term] != traced.terms[term]]
    wanted += [v for o, v in view.outputs.items() if v != traced.outputs[o]]
    given = {view.values[name], view.scales[name], *element.reads, *element.noise}
    needed = graph.ancestors(wanted, given)
    used = {number for index in needed for number in graph.nodes[index].inputs} | set(wanted)
    sources = {value for value, _ in slicer.found if _is_noise(graph, value)}
    sources |= {traced.values[name], traced.scales[name]}
    sliced = [value for value, demand in slicer.found if demand and value in sources]
    is_sliced_one_way = len(sliced) == len(set(sliced))
    return is_sliced_one_way and not used & (sources - given)
