"""What each site gets: the user's choice by name or glob, and what "auto" chooses for the rest."""

import dataclasses
import fnmatch
from collections.abc import Collection, Mapping
from typing import Any

from adlmh_jax.model import Program, Proposals, Site, SiteTable, listed
from adlmh_jax.proposals.automatic import (
    MAX_ELEMENTS,
    find_clusters,
    find_summed,
    is_decided_by_element,
)
from adlmh_jax.proposals.base import (
    PRIOR,
    JointPlan,
    Mixture,
    Plan,
    Proposal,
    SitePlan,
    Variant,
)
from adlmh_jax.proposals.collapse import (
    WINDOW,
    Collapse,
    check_summed,
    joint_plan,
    match_summed,
)
from adlmh_jax.proposals.custom import custom
from adlmh_jax.proposals.gibbs import gibbs
from adlmh_jax.proposals.prior import prior
from adlmh_jax.proposals.random_walk import random_walk
from adlmh_jax.proposals.together import find_walks

# Entries from which on Gibbs steps are metropolised: averages over steps are the better for it, and
# those over draws if others move in between. A lone choice is drawn afresh at each step as it is.
MIN_METROPOLISED = 4
MAX_GIBBS_VALUES = 32  # larger supports are walked, not enumerated, by "auto"

Chosen = str | Mapping[str, Any]  # "auto", "prior", or proposals by site name or glob


def choose_automatically(site: Site, can_enumerate: bool) -> Proposal | Mixture:
    """Choose what "auto" is: Gibbs where finite and small, else `walk_or_draw`."""
    if site.has_prior and can_enumerate and len(site.candidates) <= MAX_GIBBS_VALUES:
        return gibbs()
    return walk_or_draw(site)


def walk_or_draw(site: Site) -> Proposal | Mixture:
    """Return a walk mixed with the prior, or the one of them that the site allows."""
    if not site.has_prior:
        return random_walk()
    return prior() if site.is_discrete and site.event_shape else random_walk() | prior()


def plan_sites(
    program: Program,
    proposals: Chosen = "auto",
    blocks: str = "auto",
    held: Collection[str] = (),
) -> Plan:
    """Decide how each site is moved.

    Parameters
    ----------
    program
        The compiled model.
    proposals
        ``"prior"``, ``"auto"``, or proposals by site name or glob; sites not named are ``"auto"``.
    blocks
        ``"auto"`` moves several choices at once where that is sound: conditionally independent
        elements, and discrete choices that hang together. ``"never"`` does not.
    held
        Sites that are never moved, nor summed out.
    """
    if blocks not in ("auto", "never"):
        raise ValueError(f'`blocks` must be "auto" or "never", got {blocks!r}.')
    chosen = _choose(program.sites, proposals)
    joint = _plan_asked(program, chosen, held)
    if blocks == "auto":
        automatic = [n for n in program.sites.names if n not in chosen and n not in held]
        joint += _plan_automatic(program, automatic)
    drawn_together = {name for plan in joint if not plan.movers for name in plan.summed}
    plans = {}
    for site in program.sites.sites:
        proposal = chosen.get(site.name)
        if site.name in held:
            plans[site.name] = SitePlan()
            continue
        if isinstance(proposal, Collapse) or site.name in drawn_together:
            plans[site.name] = SitePlan(variants=())
            continue
        if proposal is None:
            proposal = choose_automatically(site, program.can_enumerate(site.name))
        for part in proposal.parts:
            part.check(program, site)
        may_block = blocks == "auto" and all(part.is_elementwise for part in proposal.parts)
        is_block = may_block and program.is_block(site.name)
        plans[site.name] = _plan(site, proposal, is_block)
    num_entries = sum(
        1 if plan.is_block else program.sites[name].num_components
        for name, plan in plans.items()
        if plan.variants and name not in held
    )
    if num_entries + len(joint) >= MIN_METROPOLISED:
        plans = {name: _metropolise(plan) for name, plan in plans.items()}
    return Plan(plans, tuple(joint))


def _metropolise(plan: SitePlan) -> SitePlan:
    """Let Gibbs steps never draw the present value."""
    variants = (dataclasses.replace(v, is_metropolised=bool(v.candidates)) for v in plan.variants)
    return dataclasses.replace(plan, variants=tuple(variants))


def _plan_asked(
    program: Program, chosen: Mapping[str, Any], held: Collection[str]
) -> list[JointPlan]:
    """Return the moves that sum out what the user asked for."""
    plans = []
    together: dict[Collapse, list[str]] = {}
    for site in program.sites.sites:
        proposal = chosen.get(site.name)
        if not isinstance(proposal, Collapse) or site.name in held:
            continue
        if not proposal.summed:
            together.setdefault(proposal, []).append(site.name)
            continue
        summed = match_summed(program, site.name, proposal.summed)
        check_summed(program, site.name, summed, proposal.window)
        if is_held := [name for name in summed if name in held]:
            raise ValueError(f"{listed(is_held)} cannot be summed out: it is not to be moved.")
        inner = proposal.proposal or _walk(site)
        plans.append(_plan_mover(program, site, summed, inner, proposal.window))
    for proposal, names in together.items():
        check_summed(program, "", names, proposal.window)
        plans.append(joint_plan(names, program, proposal.window))
    return plans


def _plan_automatic(program: Program, names: Collection[str]) -> list[JointPlan]:
    """Return what "auto" draws together, and the moves for which it sums others out."""
    clusters = find_clusters(program, names)
    plans = [joint_plan(cluster, program, WINDOW) for cluster in clusters if len(cluster) > 1]
    in_clusters = {name for plan in plans for name in plan.summed}
    walks = find_walks(program, names, clusters)
    for site in program.sites.sites:
        is_walked = (
            not choose_automatically(site, program.can_enumerate(site.name)).parts[0].is_gibbs
        )
        if site.name not in names or site.name in in_clusters or not is_walked:
            continue
        summed = find_summed(program, site, clusters)
        if not summed:
            continue
        plan = _plan_mover(program, site, summed, _walk(site), WINDOW)
        walks_so = any(
            site.name in w.movers and set(summed) <= {*w.summed, *w.riders} for w in walks
        )
        if plan.is_block or (site.num_components <= MAX_ELEMENTS and not walks_so):
            plans.append(plan)
    return [*plans, *walks]


def _plan_mover(
    program: Program,
    site: Site,
    summed: tuple[str, ...],
    proposal: Proposal | Mixture,
    window: int,
) -> JointPlan:
    """Return the plan of a move of one site with others summed out."""
    is_elementwise = all(part.is_elementwise for part in proposal.parts)
    is_block = is_elementwise and is_decided_by_element(program, site, summed)
    plan = _plan(site, proposal, is_block)
    return joint_plan(
        summed,
        program,
        window,
        movers=(site.name,),
        variants=plan.variants,
        functions=plan.functions,
        second_share=plan.second_share,
    )


def _walk(site: Site) -> Proposal:
    """Return how a site is proposed while others are summed out: a walk where there is one."""
    return prior() if site.is_discrete and site.event_shape else random_walk()


def foresee_functions(sites: SiteTable, proposals: Chosen = "auto") -> Proposals:
    """Return the functions that `plan_sites` will ask for, before the model is traced.

    Whether a finite support depends on other sites is not known yet; it is taken not to.
    """
    chosen = _choose(sites, proposals)
    functions: dict = {}
    for site in sites.sites:
        proposal = chosen.get(site.name) or choose_automatically(site, bool(site.candidates))
        if isinstance(proposal, Collapse):
            proposal = proposal.proposal or (_walk(site) if proposal.summed else prior())
        functions |= _functions(site, proposal)
    return functions


def _choose(sites: SiteTable, proposals: Chosen) -> dict[str, Any]:
    """Return the proposals of the sites that have one without "auto"."""
    if not isinstance(proposals, str):
        return _by_site(sites, proposals)
    if proposals not in ("auto", "prior"):
        raise ValueError(
            f'`proposals` must be "auto", "prior", or a dict from site names to proposals, got '
            f"{proposals!r}."
        )
    return dict.fromkeys(sites.names, prior()) if proposals == "prior" else {}


def _by_site(sites: SiteTable, proposals: Mapping[str, Any]) -> dict[str, Any]:
    """Match names and globs: an exact name wins, then the last glob that matches."""
    chosen: dict[str, Any] = {}
    by_glob_first = sorted(proposals.items(), key=lambda item: item[0] in sites.names)
    for pattern, proposal in by_glob_first:
        if callable(proposal) and not isinstance(proposal, Proposal | Mixture):
            proposal = custom(proposal)
        if isinstance(proposal, Collapse):
            proposal = dataclasses.replace(proposal, group=pattern)
        if not isinstance(proposal, Proposal | Mixture | Collapse):
            raise TypeError(
                f"The proposal of `{pattern}` must be `prior()`, `gibbs()`, `random_walk()`, "
                f"`collapse(...)` or a function, got {proposal!r}."
            )
        is_name = pattern in sites.names
        names = [n for n in sites.names if n == pattern or fnmatch.fnmatchcase(n, pattern)]
        names = [pattern] if is_name else names
        if not names:
            raise ValueError(
                f"No latent site matches `{pattern}`. There are {listed(sites.names)}."
            )
        chosen.update(dict.fromkeys(names, proposal))
    return chosen


def _plan(site: Site, proposal: Proposal | Mixture, is_block: bool) -> SitePlan:
    functions = _functions(site, proposal)
    variants = tuple(
        Variant(
            proposal=number if (site.name, number) in functions else PRIOR,
            candidates=site.candidates if part.is_gibbs else (),
            is_block=is_block,
            is_compared=len(proposal.parts) > 1,
        )
        for number, part in enumerate(proposal.parts)
    )
    text = f"{proposal}, all elements at once" if is_block else str(proposal)
    return SitePlan(variants, functions, proposal.second_share, text)


def _functions(site: Site, proposal: Proposal | Mixture) -> Proposals:
    """Return the functions to trace for a site, by (site, number)."""
    made = {(site.name, n): part.function_for(site) for n, part in enumerate(proposal.parts)}
    return {key: function for key, function in made.items() if function is not None}
