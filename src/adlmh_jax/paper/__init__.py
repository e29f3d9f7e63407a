"""The paper's case studies: models, distances, experiments."""

from adlmh_jax.paper.distances import log_checkpoints, quartiles, running_curve

__all__ = [
    "log_checkpoints",
    "quartiles",
    "running_curve",
]
