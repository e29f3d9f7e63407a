"""The paper's experiments as tables of cases, methods and budgets, with results on disk."""

from adlmh_jax.paper.experiments.budget import Budget, quick_budget
from adlmh_jax.paper.experiments.cases import CASE_NAMES
from adlmh_jax.paper.experiments.demonstration import demo
from adlmh_jax.paper.experiments.report import readme_section, summary_table
from adlmh_jax.paper.experiments.reproduction import load_numbers, reproduce

__all__ = [
    "CASE_NAMES",
    "Budget",
    "demo",
    "load_numbers",
    "quick_budget",
    "readme_section",
    "reproduce",
    "summary_table",
]
