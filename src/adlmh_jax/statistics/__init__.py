"""Sums and statistics that ride along with the chains."""

from adlmh_jax.statistics.streaming import (
    Statistics,
    Summary,
    Tallies,
    init_statistics,
    init_tallies,
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
    "Statistics",
    "Summary",
    "Tallies",
    "Tally",
    "compensated",
    "compensated_add",
    "init_statistics",
    "init_tallies",
    "summarise",
    "tally_total",
    "update_statistics",
    "update_tallies",
]
