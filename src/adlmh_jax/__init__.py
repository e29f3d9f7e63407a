"""Output-sensitive adaptive Metropolis-Hastings for NumPyro models, on JAX."""

from adlmh_jax.engine.host import use_all_cores, use_compilation_cache
from adlmh_jax.interop.numpyro_kernel import LMH, AdLMH
from adlmh_jax.results.plots import plot_convergence, plot_schedule
from adlmh_jax.model import Program, compile_model
from adlmh_jax.proposals.plan import custom, gibbs, mixture, prior, random_walk
from adlmh_jax.results.result import Result
from adlmh_jax.sampling import sample
from adlmh_jax.schedules.base import ucb, uniform

__all__ = [
    "LMH",
    "AdLMH",
    "Program",
    "Result",
    "compile_model",
    "custom",
    "gibbs",
    "mixture",
    "plot_convergence",
    "plot_schedule",
    "prior",
    "random_walk",
    "sample",
    "ucb",
    "uniform",
    "use_compilation_cache",
]
__version__ = "0.1.0"

use_all_cores()
