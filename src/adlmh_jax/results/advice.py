"""What to do about a run that has not converged, from what it left behind.

Looks at where the chains ended, how sites were moved, and what precision could carry; called only
where something speaks against convergence.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import stats

from adlmh_jax.model import Program, Site, element_names, listed

STRONG = 0.9  # rank correlation over chains from which on single moves creep
MIN_CHAINS = 32  # that a correlation is believed of: it is then 8 standard errors from zero
MAX_SCALARS = 200  # that are compared with each other
MAX_PAIRS = 3  # that are named
POOR_RATE = 0.05  # accepted prior draws below which a walk is worth a try


@dataclass(frozen=True)
class Ending:
    """How a run ended, as far as advice follows from it.

    Attributes
    ----------
    values
        Where the chains ended: by site, ``[chain, ...]``.
    proposals
        How each site was moved, in words.
    acceptance
        Share of accepted proposals of each site.
    stuck
        Components that some chains never changed and hold at different values.
    imprecise
        Sites whose log-probabilities single precision does not carry, and their errors.
    stragglers
        What is to be said of chains that stay behind.
    """

    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    proposals: Mapping[str, str] = field(default_factory=dict)
    acceptance: Mapping[str, float] = field(default_factory=dict)
    stuck: Sequence[str] = ()
    imprecise: Mapping[str, float] = field(default_factory=dict)
    stragglers: str = ""


class Pair(NamedTuple):
    """Two scalars that go together: their sites, their names, their rank correlation."""

    sites: tuple[Site, Site]
    names: tuple[str, str]
    correlation: float


def advise(program: Program, ending: Ending, concerned: Collection[str]) -> tuple[str, ...]:
    """Return advice on the sites that doubtful outputs hang on, the most telling first."""
    sites = [site for site in program.sites.sites if site.name in concerned]
    held = [
        site
        for site in sites
        if any(name in ending.stuck for name in element_names(site.name, site.batch_shape))
    ]
    on_held = list(_on_held(held))
    pairs = [
        pair
        for pair in find_pairs(sites, ending.values)
        if not (on_held and all(site in held for site in pair.sites))
    ]
    return (
        *([ending.stragglers] if ending.stragglers else []),
        *_on_precision(ending),
        *on_held,
        *(_on_pair(pair, ending) for pair in pairs),
        *_on_prior_draws(sites, ending),
    )


def _on_precision(ending: Ending) -> Iterator[str]:
    if ending.imprecise:
        yield (
            f"Single precision does not carry {listed(ending.imprecise)}. Switch double precision "
            "on, before anything else is done with JAX: "
            '`jax.config.update("jax_enable_x64", True)`.'
        )


def _on_held(held: Sequence[Site]) -> Iterator[str]:
    """Say how sites that hold each other can move together."""
    if len(held) > 1 and all(site.is_discrete for site in held):
        first, second = held[:2]
        yield (
            f"{listed(site.name for site in held)} hold each other: sum one out while the other "
            f'moves, `proposals={{"{first.name}": adlmh.collapse("{second.name}")}}`. With '
            '`blocks="auto"` and `proposals="auto"` that is done where it can be.'
        )


def find_pairs(sites: Sequence[Site], values: Mapping[str, np.ndarray]) -> list[Pair]:
    """Return the scalars of different sites that go together most closely, over chains."""
    columns: list[np.ndarray] = []
    owners: list[Site] = []
    names: list[str] = []
    for site in sites:
        if site.name not in values:
            continue
        flat = values[site.name].reshape(len(values[site.name]), -1)
        scalars = element_names(site.name, values[site.name].shape[1:])
        for name, column in list(zip(scalars, flat.T, strict=True))[: MAX_SCALARS - len(names)]:
            if len(column) >= MIN_CHAINS and np.all(np.isfinite(column)) and np.ptp(column) > 0:
                columns.append(stats.rankdata(column))
                owners.append(site)
                names.append(name)
    if len(columns) < 2:
        return []
    correlations = np.corrcoef(columns)
    pairs = [
        Pair((owners[i], owners[j]), (names[i], names[j]), float(correlations[i, j]))
        for i, j in zip(*np.nonzero(np.triu(np.abs(correlations) > STRONG, k=1)), strict=True)
        if owners[i] is not owners[j]
    ]
    return sorted(pairs, key=lambda pair: -abs(pair.correlation))[:MAX_PAIRS]


def _on_pair(pair: Pair, ending: Ending) -> str:
    """Say what frees two scalars of each other."""
    one, other = pair.names
    words = (
        f"`{one}` and `{other}` go together (their ranks have a correlation of "
        f"{pair.correlation:.2f} over chains), and moves of one choice at a time creep along: "
    )
    discrete = [site for site in pair.sites if site.is_discrete]
    if not discrete:
        return words + (
            "free them of each other. Centre and scale the predictor that one of them multiplies, "
            "write effects as a mean plus a scale times a standard normal, or one of the two in "
            "terms of the other."
        )
    summed = discrete[-1].name
    mover = next(site.name for site in pair.sites if site.name != summed)
    if f"`{summed}` summed out" in ending.proposals.get(mover, ""):
        return words + "a joint proposal for both, or the model in other variables, is needed."
    return words + (
        f"sum `{summed}` out while `{mover}` moves, "
        f'`proposals={{"{mover}": adlmh.collapse("{summed}")}}`.'
    )


def _on_prior_draws(sites: Sequence[Site], ending: Ending) -> Iterator[str]:
    poor = [
        site.name
        for site in sites
        if ending.proposals.get(site.name) == "prior()"
        and ending.acceptance.get(site.name, 1.0) < POOR_RATE
    ]
    if poor:
        least = min(ending.acceptance[name] for name in poor)
        yield (
            f"Of the prior draws proposed for {listed(poor)} as few as {100 * least:.2g} % were "
            f'accepted: let them walk, `proposals={{"{poor[0]}": adlmh.random_walk() | '
            'adlmh.prior()}`, or leave the choice to `proposals="auto"`.'
        )
