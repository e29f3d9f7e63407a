"""What "auto" moves together: which discrete choices are drawn at once, and which summed out."""

from collections.abc import Collection, Sequence

from adlmh_jax.model import Program, Site
from adlmh_jax.proposals.collapse import (
    WINDOW,
    do_plates_fit,
    find_too_many,
    why_not_summed,
    window_of,
)

MAX_AUTOMATIC_TABLE = 256  # combinations of values that are tried at once
MAX_ELEMENTS = 16  # of a site whose elements move one by one with others summed out


def find_clusters(program: Program, names: Collection[str]) -> list[tuple[str, ...]]:
    """Return sets of sites that can be summed out, given all others, as large as they may be.

    Sites of finite support are together if they share terms, directly or through others; where
    they are too many, those in the largest table that most others meet are left out. A count
    without a bound is a set of its own: to draw two of them at once takes too many combinations.
    """
    sites = [
        site
        for site in program.sites.sites
        if site.name in names and not why_not_summed(program, site)
    ]
    clusters: list[tuple[str, ...]] = [(s.name,) for s in sites if window_of(s, WINDOW)]
    finite = [site.name for site in sites if not window_of(site, WINDOW)]
    for connected in connect(program, finite):
        left = list(connected)
        while too_many := find_too_many(program, left, WINDOW, MAX_AUTOMATIC_TABLE):
            left.remove(max(too_many, key=lambda name: _num_terms(program, name)))
        clusters.extend(connect(program, left))
    return clusters


def find_summed(
    program: Program, site: Site, clusters: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """Return what is to be summed out when a site moves; nothing if that cannot be."""
    if not has_fixed_support(program, site) or (site.is_discrete and site.event_shape):
        return ()
    summed = find_met(program, [site.name], clusters)
    if site.is_discrete and any(window_of(program.sites[n], WINDOW) for n in summed):
        return ()
    return summed


def find_met(
    program: Program, movers: Sequence[str], clusters: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """Return what movers share terms with and can be summed out, all of it together, or nothing."""
    terms = {term for name in movers for term in program.touches[name].terms}
    met = [
        cluster
        for cluster in clusters
        if not set(movers) & set(cluster)
        and any(terms & set(program.touches[name].terms) for name in cluster)
    ]
    summed = {name for cluster in met for name in cluster}
    order = tuple(name for name in program.sites.names if name in summed)
    return () if find_too_many(program, order, WINDOW, MAX_AUTOMATIC_TABLE) else order


def has_fixed_support(program: Program, site: Site) -> bool:
    """Whether a site decides on no other site's support, and no other site on its own."""
    is_dynamic = any(site.name in other.redraws for other in program.touches.values())
    return not is_dynamic and not program.touches[site.name].redraws


def is_decided_by_element(program: Program, site: Site, summed: Sequence[str]) -> bool:
    """Whether the elements of a moved site meet those of the summed ones one to one."""
    if site.num_components == 1 or not program.is_block(site.name):
        return False
    same = [program.sites[name].batch_shape == site.batch_shape for name in summed]
    return all(same) and all(do_plates_fit(program, site.name, name) for name in summed)


def connect(program: Program, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Put sites together that share terms, directly or through others."""
    groups: list[tuple[set[str], set[str]]] = []  # sites, and the terms that they touch
    for name in names:
        sites, terms = {name}, set(program.touches[name].terms)
        apart = []
        for group in groups:
            if group[1] & terms:
                sites |= group[0]
                terms |= group[1]
            else:
                apart.append(group)
        groups = [*apart, (sites, terms)]
    return [tuple(name for name in names if name in sites) for sites, _ in groups]


def _num_terms(program: Program, name: str) -> int:
    return len(program.touches[name].terms)
