"""`collapse`: moves of a site with other, discrete ones summed out."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from adlmh_jax.graph import Variable, plan_elimination
from adlmh_jax.model import Program, Site, listed
from adlmh_jax.proposals.base import JointPlan, Mixture, Proposal

WINDOW = 16  # consecutive integers that are tried of a count without a bound
MAX_TABLE = 1024  # combinations of values that are tried at once


@dataclass(frozen=True)
class Collapse:
    """A move of a site with others summed out; see `collapse`.

    Attributes
    ----------
    summed
        Names or globs of the others.
    proposal
        How the site itself is proposed; None for what "auto" would choose.
    window
        Length of the windows of counts without a bound.
    group
        The name or glob that it was given for: sites of one group are drawn together.
    """

    summed: tuple[str, ...]
    proposal: Proposal | Mixture | None
    window: int
    group: str = ""


def collapse(
    *summed: str, proposal: Proposal | Mixture | None = None, window: int = WINDOW
) -> Collapse:
    """Move a site with discrete ones summed out, which are then drawn anew: exact.

    ``proposals={"rate": collapse("z")}`` moves ``rate`` as if ``z`` had been marginalised by hand.
    ``proposals={"state_*": collapse()}``, without names, draws all sites that match at once, from
    their joint conditional distribution.

    Parameters
    ----------
    summed
        Names or globs of the sites to sum out: of finite support, or counts without a bound, each
        with independent elements if it has several.
    proposal
        How the site itself is proposed; it must not look at what is summed out. Default: a random
        walk, or a prior draw where there is none.
    window
        Counts without a bound are drawn among this many consecutive integers around their present
        value; a power of two.

    Examples
    --------
    ::

        proposals = {"rate": adlmh.collapse("photons")}
        result = adlmh.sample(0, model, (readings,), proposals=proposals)
        result.proposals  # how each site was moved
    """
    for name in summed:
        if not isinstance(name, str):
            raise TypeError(f"`collapse` takes names of sites, got {name!r}.")
    if not isinstance(proposal, Proposal | Mixture | None):
        raise TypeError(
            "The `proposal` of `collapse` must be `prior()`, `random_walk()`, `custom(...)` or a "
            f"mixture, got {proposal!r}."
        )
    check_window(window)
    return Collapse(summed, proposal, window)


def check_window(window: int) -> None:
    """Refuse what is no length of a window."""
    if not isinstance(window, int) or window < 2 or window & (window - 1):
        raise ValueError(f"`window` must be a power of two, such as 32, got {window!r}.")


def why_not_summed(program: Program, site: Site) -> str:
    """Return why a site cannot be summed out; nothing if it can."""
    name = site.name
    if not site.is_discrete:
        return f"it is continuous ({site.support})"
    if site.event_shape:
        return f"one choice is an array of shape {site.event_shape}"
    deciders = [n for n, touches in program.touches.items() if name in touches.redraws]
    if deciders:
        return f"its support depends on {listed(deciders)}"
    if program.touches[name].redraws:
        return f"the support of {listed(program.touches[name].redraws)} depends on it"
    if site.num_components > 1 and not program.is_block(name):
        return "its elements depend on each other"
    if not site.candidates and site.dtype == "bool":
        return "its values are not known in advance"
    return ""


def window_of(site: Site, window: int) -> int:
    """Return the length of a site's window; 0 if its values are a finite list."""
    return 0 if site.candidates else window


def do_plates_fit(program: Program, first: str, second: str) -> bool:
    """Whether elements of two sites meet only one to one, wherever they share a term."""
    sites = [program.sites[name] for name in (first, second)]
    if any(site.num_components == 1 for site in sites):
        return True
    axes = [program.axes_by_term(site.name) for site in sites]
    shared = axes[0].keys() & axes[1].keys()
    same_shape = sites[0].batch_shape == sites[1].batch_shape
    return not shared or (same_shape and all(axes[0][term] == axes[1][term] for term in shared))


def find_scopes(program: Program, names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return which of some sites each term depends on, by their numbers."""
    touched: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        for term in program.touches[name].terms:
            touched.setdefault(term, []).append(number)
    return [tuple(numbers) for numbers in touched.values()]


def find_too_many(
    program: Program, names: Sequence[str], window: int, max_table: int = MAX_TABLE
) -> list[str]:
    """Return sites that would have to be tried in too many combinations; empty if there are none.

    Those among which plates do not fit are such sites too.
    """
    variables = []
    for name in names:
        site = program.sites[name]
        plate = site.batch_shape if site.num_components > 1 else ()
        variables.append(Variable(window_of(site, window) or len(site.candidates), plate))
    scopes = find_scopes(program, names)
    for scope in scopes:
        for i, first in enumerate(scope):
            for second in scope[i + 1 :]:
                if not do_plates_fit(program, names[first], names[second]):
                    return [names[first], names[second]]
    _, too_many = plan_elimination(variables, scopes, max_table)
    return [names[number] for number in too_many]


def match_summed(program: Program, mover: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the sites that are to be summed out, in program order, or raise."""
    names = program.sites.names
    found: set[str] = set()
    for pattern in patterns:
        matching = [n for n in names if n == pattern] or [
            n for n in names if fnmatch.fnmatchcase(n, pattern) and n != mover
        ]
        if not matching:
            raise ValueError(f"No latent site matches `{pattern}`. There are {listed(names)}.")
        if mover in matching:
            raise ValueError(f"Site `{mover}` cannot be summed out of its own move.")
        found.update(matching)
    return tuple(name for name in names if name in found)


def check_summed(program: Program, mover: str, summed: Sequence[str], window: int) -> None:
    """Refuse what cannot be summed out, in a sentence that names the sites."""
    own = set(program.touches[mover].terms) if mover else set()
    for name in summed:
        if reason := why_not_summed(program, program.sites[name]):
            raise ValueError(f"Site `{name}` cannot be summed out: {reason}.")
        if mover and name in program.touches[mover].redraws:
            raise ValueError(f"Site `{name}` cannot be summed out: `{mover}` changes its support.")
    if mover:
        strangers = [n for n in summed if not set(program.touches[n].terms) & own]
        if len(strangers) == len(summed):
            raise ValueError(
                f"Site `{mover}` has no term in common with {listed(strangers)}: there is nothing "
                "to gain from summing out."
            )
        if program.touches[mover].redraws:
            raise ValueError(
                f"Site `{mover}` cannot move with others summed out: the support of "
                f"{listed(program.touches[mover].redraws)} depends on it."
            )
    if too_many := find_too_many(program, summed, window):
        raise ValueError(
            f"The sites {listed(too_many)} cannot be summed out together: their values would have "
            f"to be tried in more than {MAX_TABLE} combinations at once, or their elements do not "
            "meet one to one. Leave one of them out."
        )


def joint_plan(summed: Sequence[str], program: Program, window: int, **mover: object) -> JointPlan:
    """Return the plan that sums some sites out."""
    windows = tuple(window_of(program.sites[name], window) for name in summed)
    return JointPlan(summed=tuple(summed), windows=windows, **mover)  # type: ignore[arg-type]
