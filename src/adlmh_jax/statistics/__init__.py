"""Sums and statistics that ride along with the chains."""

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
    "summarise",
    "tally_total",
    "update_statistics",
    "update_tallies",
]
