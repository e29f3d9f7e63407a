"""How the entry to move is selected: LMH, AdLMH, by influence."""

from adlmh_jax.schedules.base import Schedule, restrict, rule_of, select
from adlmh_jax.schedules.influence import influence
from adlmh_jax.schedules.ucb import ucb
from adlmh_jax.schedules.uniform import uniform

__all__ = [
    "Schedule",
    "influence",
    "restrict",
    "rule_of",
    "select",
    "ucb",
    "uniform",
]
