"""`prior`: the paper's proposal."""

from adlmh_jax.model import Site
from adlmh_jax.proposals.base import Proposal


def prior() -> Proposal:
    """Draw anew from the prior, conditioned on the other choices: the paper's proposal."""
    return Proposal("prior()", function_for=_function_for)


def _function_for(site: Site) -> None:
    if not site.has_prior:
        raise ValueError(
            f"Site `{site.name}` is ImproperUniform: it has no prior to draw from. Use "
            "`random_walk()`."
        )
