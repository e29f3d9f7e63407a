"""What a run gives back: draws, verdicts, ArviZ data, plots."""

from adlmh_jax.results.calibration import Calibration, rank
from adlmh_jax.results.collect import collect
from adlmh_jax.results.diagnose import measure
from adlmh_jax.results.many import Results, collect_many
from adlmh_jax.results.mixing import autocovariance, effective_size
from adlmh_jax.results.plots import plot_convergence, plot_sbc, plot_schedule, unit_rewards
from adlmh_jax.results.precision import PrecisionWarning
from adlmh_jax.results.reading import DIAGNOSIS, read_record
from adlmh_jax.results.report import write_report
from adlmh_jax.results.result import Result
from adlmh_jax.results.schedule import ScheduleReport
from adlmh_jax.results.verdict import ConvergenceWarning

__all__ = [
    "DIAGNOSIS",
    "Calibration",
    "ConvergenceWarning",
    "rank",
    "Results",
    "collect_many",
    "PrecisionWarning",
    "Result",
    "ScheduleReport",
    "autocovariance",
    "collect",
    "effective_size",
    "measure",
    "plot_convergence",
    "plot_sbc",
    "plot_schedule",
    "read_record",
    "unit_rewards",
    "write_report",
]
