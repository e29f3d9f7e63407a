"""What moving a site can change."""

from dataclasses import dataclass

from adlmh_jax.model.sites import SiteTable
from adlmh_jax.model.tracing import Traced


@dataclass(frozen=True)
class Touches:
    """What moving a site can change: names of terms, of outputs, and of sites to be redrawn."""

    terms: tuple[str, ...]
    outputs: tuple[str, ...]
    redraws: tuple[str, ...]


def find_touches(traced: Traced, sites: SiteTable) -> dict[str, Touches]:
    """Return what each site touches."""
    reached = traced.graph.reach([traced.values[name] for name in sites.names])
    redraws = _redraws(traced, sites, reached)
    movers: dict[str, list[str]] = {name: [name] for name in sites.names}
    for name, others in redraws.items():
        for other in others:
            movers[other].append(name)
    terms = _touched(traced.terms, reached, sites, movers)
    outputs = _touched(traced.outputs, reached, sites, movers)
    return {n: Touches(tuple(terms[n]), tuple(outputs[n]), redraws[n]) for n in sites.names}


def find_completed(traced: Traced, sites: SiteTable) -> dict[str, Touches]:
    """Return for each site what is known once it is drawn, after the sites before it."""
    reached = traced.graph.reach([traced.values[name] for name in sites.names])

    def completed(numbers: dict[str, int]) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {name: [] for name in sites.names}
        for name, number in numbers.items():
            if reached[number]:
                names[sites.names[reached[number].bit_length() - 1]].append(name)
        return names

    terms, outputs = completed(traced.terms), completed(traced.outputs)
    return {n: Touches(tuple(terms[n]), tuple(outputs[n]), ()) for n in sites.names}


def _touched(
    numbers: dict[str, int], reached: list[int], sites: SiteTable, movers: dict[str, list[str]]
) -> dict[str, list[str]]:
    """Return for each site the names whose value it can change, itself or by a redraw."""
    touched: dict[str, dict[str, None]] = {name: {} for name in sites.names}
    for name, number in numbers.items():
        mask = reached[number]
        while mask:
            site = sites.names[(mask & -mask).bit_length() - 1]
            for mover in movers[site]:
                touched[mover][name] = None
            mask &= mask - 1
    return {site: list(names) for site, names in touched.items()}


def _redraws(traced: Traced, sites: SiteTable, reached: list[int]) -> dict[str, tuple[str, ...]]:
    """Return for each site those later ones whose support it can change, directly or not."""
    dynamic = {}
    for index, name in enumerate(sites.names):
        others = reached[traced.supports[name]] & ~(1 << index)
        if others:
            dynamic[name] = others
    found = {}
    for index, name in enumerate(sites.names):
        moved, names = 1 << index, []
        for other in dynamic:
            position = sites.names.index(other)
            if position > index and dynamic[other] & moved:
                moved |= 1 << position
                names.append(other)
        found[name] = tuple(names)
    return found
