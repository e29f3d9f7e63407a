"""Chains that stay behind: whose log density never comes up to that of the others."""

from collections.abc import Mapping, Sequence

import numpy as np

from adlmh_jax.model import Site, element_names

MIN_DRAWS = 20  # of each chain, of which the later half is looked at
MIN_GAP = 5.0  # nats between a straggler at its highest and the others at their lowest
MAX_SCALARS = 3  # that are named


def find_stragglers(log_density: np.ndarray, superchain_of: np.ndarray) -> np.ndarray:
    """Return which chains stay below the others of their superchain, ``[chain]``.

    In the later half of its draws, a straggler never comes up to where most of the others are at
    their lowest. A chain that mixes at all does.

    Parameters
    ----------
    log_density
        Of each draw, ``[chain, draw]``.
    superchain_of
        Superchain of each chain.
    """
    is_behind = np.zeros(len(log_density), bool)
    num_draws = log_density.shape[1]
    if num_draws < MIN_DRAWS:
        return is_behind
    late = log_density[:, num_draws // 2 :]
    highest, lowest = late.max(axis=1), late.min(axis=1)
    for superchain in np.unique(superchain_of):
        own = superchain_of == superchain
        is_behind[own] = highest[own] + MIN_GAP < np.median(lowest[own])
    return is_behind


def describe_stragglers(
    is_behind: np.ndarray,
    log_density: np.ndarray,
    sites: Sequence[Site],
    values: Mapping[str, np.ndarray],
) -> str:
    """Say how many chains stay behind, by how much, and what they hold; nothing if none does."""
    if not is_behind.any():
        return ""
    last = log_density[:, -1]
    gap = np.median(last[~is_behind]) - np.median(last[is_behind])
    held = []
    for site in sites:
        flat = values[site.name].reshape(len(is_behind), -1).astype(float)
        for name, column in zip(element_names(site.name, site.shape), flat.T, strict=True):
            there, here = np.median(column[is_behind]), np.median(column[~is_behind])
            spread = np.subtract(*np.percentile(column[~is_behind], [75, 25]))
            held.append((abs(there - here) / max(spread, 1e-9), name, there, here))
    named = sorted(held, reverse=True)[:MAX_SCALARS]
    texts = [f"`{name}` {there:.4g} (the others {here:.4g})" for _, name, there, here in named]
    number = int(is_behind.sum())
    return (
        f"{number} of {len(is_behind)} chains stay {gap:.0f} nats of log density below the others. "
        f"They hold {', '.join(texts)}. A prior nearer to the data, or more chains in a "
        'superchain for the annealed start (`start="anneal"`), helps; running longer hardly does.'
    )
