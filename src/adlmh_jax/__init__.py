"""Output-sensitive adaptive Metropolis-Hastings for NumPyro models, on JAX."""

from adlmh_jax.program import Program, compile_model
from adlmh_jax.proposals import prior
from adlmh_jax.result import Result
from adlmh_jax.sampling import sample
from adlmh_jax.schedules import ucb, uniform

__all__ = ["Program", "Result", "compile_model", "prior", "sample", "ucb", "uniform"]
__version__ = "0.1.0"
