"""The sampler inside other programs: as functions, as a NumPyro kernel, as a command."""

from adlmh_jax.interop.functional import Algorithm, as_algorithm
from adlmh_jax.interop.numpyro_kernel import LMH, AdLMH
from adlmh_jax.interop.user_datasets import doubtful_names, headline, run_datasets
from adlmh_jax.interop.user_model import Files, run_model

__all__ = [
    "AdLMH",
    "Algorithm",
    "Files",
    "LMH",
    "as_algorithm",
    "doubtful_names",
    "headline",
    "run_datasets",
    "run_model",
]
