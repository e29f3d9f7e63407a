"""Sums and statistics that ride along with the chains."""

from adlmh_jax.statistics.nested import nested_r_hats
from adlmh_jax.statistics.streaming import (
    Moments,
    Statistics,
    Summary,
    Tallies,
    add_value,
    init_moments,
    init_statistics,
    init_tallies,
    merge_moments,
    moments_of_chains,
    summarise,
    update_statistics,
    update_tallies,
)
from adlmh_jax.statistics.tally import (
    CompensatedSum,
    Tally,
    compensated,
    compensated_add,
    tally_total,
)

__all__ = [
    "CompensatedSum",
    "Moments",
    "Statistics",
    "Summary",
    "Tallies",
    "Tally",
    "add_value",
    "compensated",
    "compensated_add",
    "init_moments",
    "init_statistics",
    "init_tallies",
    "merge_moments",
    "moments_of_chains",
    "nested_r_hats",
    "summarise",
    "tally_total",
    "update_statistics",
    "update_tallies",
]
