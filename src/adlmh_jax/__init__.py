"""Output-sensitive adaptive Metropolis-Hastings for NumPyro models, on JAX."""

from adlmh_jax.calibrating import sbc
from adlmh_jax.engine import (
    InterruptedWarning,
    use_all_cores,
    use_compilation_cache,
    use_default_cache,
)
from adlmh_jax.interop import LMH, AdLMH, as_algorithm
from adlmh_jax.many import sample_many
from adlmh_jax.model import ModelError, Program, compile_model
from adlmh_jax.proposals import collapse, custom, gibbs, mixture, prior, random_walk
from adlmh_jax.results import (
    Calibration,
    ConvergenceWarning,
    PrecisionWarning,
    Result,
    Results,
    plot_convergence,
    plot_sbc,
    plot_schedule,
)
from adlmh_jax.sampling import sample
from adlmh_jax.schedules import Schedule, influence, ucb, uniform
from adlmh_jax.store import StoreError, merge
from adlmh_jax.version import VERSION

__all__ = [
    "LMH",
    "AdLMH",
    "Calibration",
    "ConvergenceWarning",
    "InterruptedWarning",
    "ModelError",
    "PrecisionWarning",
    "Program",
    "Result",
    "Results",
    "Schedule",
    "StoreError",
    "as_algorithm",
    "collapse",
    "compile_model",
    "custom",
    "gibbs",
    "influence",
    "merge",
    "mixture",
    "plot_convergence",
    "plot_sbc",
    "plot_schedule",
    "prior",
    "random_walk",
    "sample",
    "sample_many",
    "sbc",
    "ucb",
    "uniform",
    "use_compilation_cache",
]
__version__ = VERSION

use_all_cores()
use_default_cache()
