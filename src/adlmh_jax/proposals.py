"""How a new value of the selected component is proposed."""

from typing import NamedTuple

from adlmh_jax.program.tracing import Propose, propose_prior


class Proposal(NamedTuple):
    """A proposal as a pure function of (key, value, distribution, values), and its name."""

    propose: Propose
    name: str


def prior() -> Proposal:
    """Draw anew from the prior, conditioned on the other choices: the paper's proposal."""
    return Proposal(propose_prior, "prior()")
