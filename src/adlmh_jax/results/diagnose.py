"""Figures and verdicts on the outputs of a run."""

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from adlmh_jax.model import Program, element_names
from adlmh_jax.results.mixing import Mixing, measure_mixing
from adlmh_jax.results.verdict import (
    Diagnosis,
    Finding,
    OutputVerdict,
    judge_components,
    judge_mixing,
    judge_stuck,
)

MIN_THINNED = 50  # draws of a chain that thinning leaves


def scalars(
    draws: Mapping[str, np.ndarray], chosen: Collection[str] | None = None
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield the name of each array, the name of each of its (chosen) scalars, and its draws."""
    for name, array in draws.items():
        flat = array.reshape(*array.shape[:2], -1)
        for index, scalar in enumerate(element_names(name, array.shape[2:])):
            if chosen is not None and scalar not in chosen:
                continue
            values = np.ascontiguousarray(flat[..., index])
            yield name, scalar, values.astype(np.int8) if values.dtype == bool else values


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


def summarise_outputs(
    draws: Mapping[str, np.ndarray], mixing: Mapping[str, Mixing], quantiles: Sequence[float]
) -> Any:
    """Return a table with one row for each scalar output."""
    import pandas

    rows = {}
    for _, scalar, values in scalars(draws):
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            rows[scalar] = _describe(values, mixing[scalar], quantiles)
    return pandas.DataFrame.from_dict(rows, orient="index")


def _describe(values: np.ndarray, m: Mixing, quantiles: Sequence[float]) -> dict[str, float]:
    mean = np.mean(values, dtype=float)
    sd = np.std(values, ddof=min(1, values.size - 1), dtype=float)
    squares = np.square(values - mean)
    error_of_variance = np.sqrt(np.var(squares) / m.ess_square)
    return {
        "mean": mean,
        "sd": sd,
        **{f"{100 * q:g}%": np.quantile(values, q) for q in quantiles},
        "mcse_mean": sd / np.sqrt(m.ess_mean),
        # The delta method: an error of the variance is 2 sd errors of the sd.
        "mcse_sd": error_of_variance / (2 * np.sqrt(np.mean(squares))),
        "ess_bulk": m.ess_bulk,
        "ess_tail": m.ess_tail,
        "r_hat": m.r_hat,
        "nested_r_hat": m.nested_r_hat,
    }


def summarise_sites(
    program: Program, selected: np.ndarray, accepted: np.ndarray, num_chains: int
) -> Any:
    """Return a table with one row for each site: how often its components moved."""
    import pandas

    names = np.array(program.sites.component_names)
    site_of = np.array(program.sites.site_of)
    all_tried, all_taken = selected.sum(axis=0), accepted.sum(axis=0)
    rows = {}
    for index, site in enumerate(program.sites.sites):
        own = site_of == index
        tried, taken = all_tried[own], all_taken[own]
        rates = taken / np.maximum(1, tried)
        worst = int(np.argmin(rates))
        rows[site.name] = {
            "components": site.num_components,
            "selected": tried.mean() / num_chains,
            "acceptance_rate": taken.sum() / max(1, tried.sum()),
            "least_rate": rates[worst],
            "least_moved": names[own][worst],
        }
    return pandas.DataFrame.from_dict(rows, orient="index")


def diagnose_run(
    program: Program,
    mixing: Mapping[str, Mixing],
    draws: Mapping[str, np.ndarray],
    selected: np.ndarray,
    accepted: np.ndarray,
    stuck: Sequence[str] = (),
    drawn_exactly: Collection[str] = (),
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
    selected, accepted
        Tallies of each component, ``[superchain, component]``.
    stuck
        Components that never changed in some chains, which hold them at different values.
    drawn_exactly
        Sites that are drawn anew whenever those that they hang on move: that one of them hardly
        changes is no sign of anything.
    """
    num_chains, num_draws = next(iter(draws.values())).shape[:2]
    names, site_of = np.array(program.sites.component_names), np.array(program.sites.site_of)
    group_of = connected_groups(program)
    group_of_component = np.array([group_of[site] for site in program.sites.names])[site_of]

    is_moved = np.array([site not in drawn_exactly for site in program.sites.names])[site_of]

    @functools.cache
    def judge_groups(groups: frozenset[int]) -> tuple[Finding, ...]:
        own = np.isin(group_of_component, list(groups))
        judged = own & is_moved
        tallies = selected[:, judged], accepted[:, judged]
        found = judge_components(list(names[judged]), *tallies, num_chains // len(selected))
        return (*judge_stuck([name for name in names[own] if name in stuck]), *found)

    judged = []
    for name, array in draws.items():
        groups = frozenset(
            group_of[site]
            for site, touched in program.touches.items()
            if site == name or name in touched.outputs
        )
        for scalar in filter(mixing.__contains__, element_names(name, array.shape[2:])):
            findings: tuple[Finding, ...] = ()
            if groups:  # an output that no random choice reaches is what it is
                findings = (*judge_mixing(mixing[scalar], num_chains, num_draws),)
                findings += judge_groups(groups)
            judged.append(OutputVerdict(scalar, findings, mixing[scalar]))
    sites = summarise_sites(program, selected, accepted, num_chains)
    return Diagnosis(tuple(judged), sites["acceptance_rate"].to_dict())


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
