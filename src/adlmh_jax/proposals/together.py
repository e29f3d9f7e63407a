"""Which continuous sites "auto" lets walk together."""

import math
from collections.abc import Collection, Sequence

from adlmh_jax.model import Program, Site
from adlmh_jax.proposals.automatic import connect, find_met, has_fixed_support
from adlmh_jax.proposals.base import JointPlan, Variant
from adlmh_jax.proposals.collapse import WINDOW, joint_plan

MAX_DIMENSION = 64  # of a walk: in more dimensions its steps become too short to be of use


def find_walks(
    program: Program, names: Collection[str], clusters: Sequence[tuple[str, ...]]
) -> list[JointPlan]:
    """Return the walks of several continuous sites, with what they meet summed out if it can be.

    There is one for each connected part of the model: sites that share terms, directly or through
    others. Where a part has too many dimensions, its largest sites, and of these the ones that
    touch fewest terms, are left out: local ones, as a rule, such as the states of a series.
    """
    plans = []
    for connected in connect(program, program.sites.names):
        movers = [
            name for name in connected if name in names and _can_walk(program, program.sites[name])
        ]
        while sum(free_size(program.sites[name]) for name in movers) > MAX_DIMENSION:
            extents = {n: _extent(program, n) for n in movers}
            movers = [n for n in movers if extents[n] < max(extents.values())]
        if is_worthwhile(program, movers):
            riders = find_riders(program, movers, names)
            finite = [cluster for cluster in clusters if not set(cluster) & set(riders)]
            plans.append(
                joint_plan(
                    find_met(program, [*movers, *riders], finite),
                    program,
                    WINDOW,
                    movers=tuple(movers),
                    riders=riders,
                    variants=(Variant(is_walk=True),),
                )
            )
    return plans


def find_riders(program: Program, movers: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """Return the counts whose means change when some sites move.

    They go along: otherwise they would hold the sites back on which they hang, and to sum so many
    values out costs more than it gains.
    """
    terms = {term for name in movers for term in program.touches[name].terms}
    return tuple(
        site.name
        for site in program.sites.sites
        if site.name in names
        and site.name in program.traced.means
        and site.name in terms
        and has_fixed_support(program, site)
    )


def _extent(program: Program, name: str) -> tuple[int, int]:
    return free_size(program.sites[name]), -len(program.touches[name].terms)


def free_size(site: Site) -> int:
    """Return the number of dimensions of a site on the unconstrained scale."""
    return math.prod(site.free_shape or ())


def _can_walk(program: Program, site: Site) -> bool:
    is_free = site.free_shape is not None and free_size(site) > 0
    return is_free and has_fixed_support(program, site)


def is_worthwhile(program: Program, movers: Sequence[str]) -> bool:
    """Whether there are several numbers that may be correlated."""
    if len(movers) == 1:
        (site,) = (program.sites[name] for name in movers)
        return free_size(site) > 1 and not (
            program.is_block(site.name) and free_size(site) == site.num_components
        )
    return len(movers) > 1
