"""What a run gives back."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from adlmh_jax.program import Program
from adlmh_jax.runner import RunState


class ScheduleReport(NamedTuple):
    """The schedule of each superchain at the end of the run, per component.

    Attributes
    ----------
    names
        Component names, ``[N]``.
    weights
        Selection probabilities, ``[S, N]``.
    rewards, counts
        The paper's r and c, ``[S, N]``; None for a schedule that does not learn.
    selected, accepted, invalid
        Steps of chains in which the component was selected, its proposal accepted, and its density
        NaN or +inf, ``[S, N]``.
    """

    names: list[str]
    weights: np.ndarray
    rewards: np.ndarray | None
    counts: np.ndarray | None
    selected: np.ndarray
    accepted: np.ndarray
    invalid: np.ndarray

    @property
    def rejected(self) -> np.ndarray:
        """Steps of chains whose proposal was rejected."""
        return self.selected - self.accepted


@dataclass(frozen=True)
class Result:
    """Draws, and how they were made.

    Attributes
    ----------
    draws
        By name, ``[chain, draw, ...]``; chains of a superchain are next to each other.
    log_density
        Log joint density of each draw, ``[chain, draw]``.
    schedule
        Weights, rewards, counts and tallies per component.
    superchain_of
        Superchain of each chain.
    config
        The settings of the run.
    program
        The compiled model.
    state
        The chains at the end of the run.
    """

    draws: dict[str, np.ndarray]
    log_density: np.ndarray
    schedule: ScheduleReport
    superchain_of: np.ndarray
    config: Any
    program: Program
    state: RunState

    def __repr__(self) -> str:
        """Return the sizes of the run."""
        num_chains, num_draws = self.log_density.shape
        rate = self.schedule.accepted.sum() / max(1, self.schedule.selected.sum())
        return (
            f"Result with {num_draws} draws of {num_chains} chains in "
            f"{self.superchain_of.max() + 1} superchains: {', '.join(self.draws)}; "
            f"acceptance rate {rate:.2f}"
        )
