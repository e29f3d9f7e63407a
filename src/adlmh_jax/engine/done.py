"""How far a run is, and from where it can go on."""

from typing import NamedTuple

from adlmh_jax.engine.keeping import Draws
from adlmh_jax.engine.superchain import SuperchainState


class RunState(NamedTuple):
    """Everything that a run needs to go on: with the run's key, a checkpoint."""

    next_round: int
    superchains: SuperchainState


class Resumption(NamedTuple):
    """Where a run can go on: at the end of a round all of whose draws were recorded."""

    state: RunState
    num_samples: int


class Done(NamedTuple):
    """How far a run is.

    Attributes
    ----------
    state
        The chains where they are.
    num_warmup, num_samples
        Draws made in warm-up and in sampling.
    parts
        Recorded draws.
    before_last
        Where to go on if the last round made draws that were not asked for: before it.
    """

    state: RunState
    num_warmup: int
    num_samples: int
    parts: list[Draws]
    before_last: Resumption | None = None

    @property
    def resumption(self) -> Resumption:
        """Where to go on."""
        return self.before_last or Resumption(self.state, self.num_samples)
