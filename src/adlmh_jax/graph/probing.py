"""What an analysis says about dependencies, tried out: single elements are moved."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adlmh_jax.graph.alignment import Axes, Shape
from adlmh_jax.types import Position

MAX_PROBES = 64  # positions that are looked at at once


@dataclass(frozen=True)
class Probe:
    """Elements of a site to move one at a time, and what they may move.

    Attributes
    ----------
    site
        Name of the site.
    axes
        Its `axes_of_terms`: a term that is not among them must not move at all.
    elements
        Indices into the site's batch shape.
    """

    site: str
    axes: Mapping[str, Axes]
    elements: Sequence[tuple[int, ...]]


def find_offender(
    evaluate: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
    draws: tuple[Position, Position],
    probes: Sequence[Probe],
) -> tuple[str, str] | None:
    """Move single elements of sites, and see whether terms move that should not.

    Parameters
    ----------
    evaluate
        Computes all terms at positions ``[B, ...]``, the same code at each.
    draws
        Two draws from the prior: where to look, and where a moved element's value comes from.
    probes
        What to move.

    Returns
    -------
    The names of a site and of a term that contradict the analysis; None if there are none.
    """
    here, other = ({name: np.asarray(v) for name, v in draw.items()} for draw in draws)
    moves = [(probe, element) for probe in probes for element in probe.elements]
    num_rows = 1 + min(len(moves), MAX_PROBES)  # the first row is where nothing has moved
    for start in range(0, len(moves), MAX_PROBES):
        batch = moves[start : start + MAX_PROBES]
        positions = {name: np.stack([value] * num_rows) for name, value in here.items()}
        for row, (probe, element) in enumerate(batch, start=1):
            positions[probe.site][(row, *element)] = other[probe.site][element]
        for name, terms in evaluate(positions).items():
            for row, (probe, element) in enumerate(batch, start=1):
                is_nan = np.isnan(terms[0]) & np.isnan(terms[row])
                is_moved = (terms[0] != terms[row]) & ~is_nan
                if np.any(is_moved & ~_may_move(probe.axes.get(name), element, is_moved.shape)):
                    return probe.site, name
    return None


def _may_move(axes: Axes | None, element: tuple[int, ...], shape: Shape) -> np.ndarray:
    """Return which entries of a term may depend on one element of the site."""
    allowed = np.full(shape, axes is not None)
    for axis, index in zip(axes or (), element, strict=axes is not None):
        if axis >= 0:
            allowed &= np.indices(shape, sparse=True)[axis] == index
    return allowed
