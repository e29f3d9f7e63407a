"""The model side: the only package that knows NumPyro models."""

from adlmh_jax.model.program import Program, compile_model

__all__ = ["Program", "compile_model"]
