"""The model side: the only package that knows NumPyro models."""

from adlmh_jax.model import predictive
from adlmh_jax.model.call import Outputs, conditioned
from adlmh_jax.model.compile import compile_datasets, compile_model
from adlmh_jax.model.distributions import in_support, is_factor, unconstraining
from adlmh_jax.model.errors import ModelError, NoLatentSites, listed, nearest
from adlmh_jax.model.program import Program
from adlmh_jax.model.sites import Site, SiteTable, element_names
from adlmh_jax.model.touches import Touches, find_completed
from adlmh_jax.model.tracing import Proposals, Propose, Traced

__all__ = [
    "ModelError",
    "NoLatentSites",
    "Outputs",
    "Program",
    "Proposals",
    "Propose",
    "Site",
    "SiteTable",
    "Touches",
    "Traced",
    "compile_datasets",
    "conditioned",
    "is_factor",
    "compile_model",
    "element_names",
    "find_completed",
    "in_support",
    "listed",
    "nearest",
    "predictive",
    "unconstraining",
]
