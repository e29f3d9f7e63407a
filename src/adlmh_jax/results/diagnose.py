"""Figures and verdicts on the outputs of a run."""

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from adlmh_jax.model import Program, element_names
from adlmh_jax.results.advice import Ending, advise
from adlmh_jax.results.mixing import Mixing, measure_mixing
from adlmh_jax.results.rules import (
    ARRIVED,
    MIN_CHAINS,
    UNMOVED,
    judge_components,
    judge_mixing,
    judge_stuck,
)
from adlmh_jax.results.scalars import scalars
from adlmh_jax.results.verdict import Diagnosis, Finding, OutputVerdict

MIN_THINNED = 50  # draws of a chain that thinning leaves


def measure(
    draws: Mapping[str, np.ndarray],
    num_superchains: int,
    max_values: int | None = None,
    max_scalars: int | None = None,
) -> dict[str, Mixing]:
    """Measure the mixing of each scalar.

    Parameters
    ----------
    draws
        By name, ``[chain, draw, ...]``; chains of a superchain are next to each other.
    num_superchains
        Superchains, of equally many chains.
    max_values
        Where there are more values, only every second, third, ... draw is used.
    max_scalars
        Where there are more scalars, only some are measured, evenly spread.
    """
    names = [s for n, a in draws.items() for s in element_names(n, a.shape[2:])]
    stride = 1 if max_scalars is None else math.ceil(len(names) / max_scalars)
    chosen = set(names[::stride])
    total = sum(array.size for array in draws.values()) // stride
    num_draws = next(iter(draws.values())).shape[1] if draws else 0
    step = 1
    if max_values is not None and total > max_values:
        step = max(1, min(math.ceil(total / max_values), num_draws // MIN_THINNED))
    thinned = {name: array[:, ::step] for name, array in draws.items()}
    return {
        scalar: measure_mixing(values, num_superchains)
        for _, scalar, values in scalars(thinned, chosen)
    }


class Tallies(NamedTuple):
    """What is known of the components of a run.

    Attributes
    ----------
    selected, accepted
        Steps of chains in which each was selected, and moved, ``[superchain, component]``.
    stuck, settled
        Names of those that chains hold at different values, and at one that they came to.
    drawn_exactly
        Sites that are drawn anew whenever those that they hang on move: that one of them hardly
        changes is no sign of anything.
    """

    selected: np.ndarray
    accepted: np.ndarray
    stuck: Sequence[str] = ()
    settled: Collection[str] = ()
    drawn_exactly: Collection[str] = ()


def diagnose_run(
    program: Program,
    mixing: Mapping[str, Mixing],
    draws: Mapping[str, np.ndarray],
    tallies: Tallies,
    ending: Callable[[dict[str, float]], Ending] = lambda acceptance: Ending(),
) -> Diagnosis:
    """Judge every scalar output of a run.

    Parameters
    ----------
    program
        The compiled model.
    mixing
        What `measure` gave for each scalar that is to be judged.
    draws
        The draws that were measured.
    tallies
        Of the components.
    ending
        Says how the run ended, given the acceptance rates of sites; asked if something is wrong.
    """
    num_chains, num_draws = next(iter(draws.values())).shape[:2]
    groups = connected_groups(program)
    judge_groups = _judge_of_groups(program, groups, tallies, num_chains)
    moves_of = _moves(program, tallies.accepted)
    judged: list[OutputVerdict] = []
    concerned: set[int] = set()
    for name, array in draws.items():
        behind = [
            site
            for site, touched in program.touches.items()
            if site == name or name in touched.outputs
        ]
        own = frozenset(groups[site] for site in behind)
        for scalar in filter(mixing.__contains__, element_names(name, array.shape[2:])):
            if not own:  # an output that no random choice reaches is what it is
                judged.append(OutputVerdict(scalar, (), mixing[scalar]))
                continue
            note = ""
            if mixing[scalar].is_constant and num_chains >= MIN_CHAINS:
                is_moved = moves_of.get(scalar, sum(map(moves_of.__getitem__, behind))) > 0
                note = (ARRIVED if scalar in moves_of else UNMOVED) * is_moved
            found = [] if note else judge_mixing(mixing[scalar], num_chains, num_draws)
            findings = (*found, *judge_groups(own))
            judged.append(OutputVerdict(scalar, findings, mixing[scalar], note))
            concerned |= own if findings else frozenset()
    acceptance = acceptance_rates(program, tallies)
    advice: tuple[str, ...] = ()
    if concerned:
        sites = [site for site, group in groups.items() if group in concerned]
        advice = advise(program, ending(acceptance), sites)
    return Diagnosis(tuple(judged), acceptance, advice)


def diagnose_draws(mixing: Mapping[str, Mixing], num_chains: int, num_draws: int) -> Diagnosis:
    """Judge scalars by their draws alone, where nothing is known of what was moved."""
    judged = [
        OutputVerdict(name, tuple(judge_mixing(m, num_chains, num_draws)), m)
        for name, m in mixing.items()
    ]
    return Diagnosis(tuple(judged), {})


def _judge_of_groups(
    program: Program, group_of: Mapping[str, int], tallies: Tallies, num_chains: int
) -> Callable[[frozenset[int]], tuple[Finding, ...]]:
    """Return a function that says what is wrong with the components of groups of sites."""
    names, site_of = np.array(program.sites.component_names), np.array(program.sites.site_of)
    group_of_component = np.array([group_of[site] for site in program.sites.names])[site_of]
    is_moved = np.array([site not in tallies.drawn_exactly for site in program.sites.names])
    stuck = set(tallies.stuck)

    @functools.cache
    def judge_groups(groups: frozenset[int]) -> tuple[Finding, ...]:
        own = np.isin(group_of_component, list(groups))
        judged = own & is_moved[site_of]
        found = judge_components(
            list(names[judged]),
            tallies.selected[:, judged],
            tallies.accepted[:, judged],
            num_chains // len(tallies.selected),
            tallies.settled,
        )
        return (*judge_stuck([name for name in names[own] if name in stuck]), *found)

    return judge_groups


def _moves(program: Program, accepted: np.ndarray) -> dict[str, int]:
    """Return how often each site, and each of its scalars, changed in the whole run."""
    moves: dict[str, int] = {}
    for site in program.sites.sites:
        first = program.sites.first_components[site.name]
        own = accepted[:, first : first + site.num_components].sum(axis=0)
        each = np.repeat(own, site.event_size)
        moves |= dict(zip(element_names(site.name, site.shape), map(int, each), strict=True))
        moves[site.name] = int(own.sum())
    return moves


def acceptance_rates(program: Program, tallies: Tallies) -> dict[str, float]:
    """Return the share of accepted proposals of each site."""
    rates = {}
    for site in program.sites.sites:
        first = program.sites.first_components[site.name]
        own = slice(first, first + site.num_components)
        tried, taken = tallies.selected[:, own].sum(), tallies.accepted[:, own].sum()
        rates[site.name] = float(taken / max(1, tried))
    return rates


def connected_groups(program: Program) -> dict[str, int]:
    """Give numbers to the groups of latent sites that hang together through shared terms."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for site, touched in program.touches.items():
        for term in touched.terms:  # its own among them, which has its name
            parent[root(term)] = root(site)
    numbers: dict[str, int] = {}
    return {s: numbers.setdefault(root(s), len(numbers)) for s in program.touches}
