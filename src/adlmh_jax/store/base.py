"""What a run needs of a place that keeps it. To add a format, write these three methods."""

from typing import Protocol

from adlmh_jax.engine import Devices, Done, Kept, RunState


class Store(Protocol):
    """A place that keeps a run."""

    def load(self, fresh: RunState, kept: Kept, devices: Devices) -> Done:
        """Return how far the run is.

        Parameters
        ----------
        fresh
            The state of a run that has not begun.
        kept
            Shapes of what is kept of a draw.
        devices
            Where the state is to be put.
        """

    def save(self, done: Done) -> None:
        """Take note of a chunk: the state after it, and what it recorded."""

    def close(self) -> None:
        """Write all that was noted."""


class Nowhere:
    """Keeps nothing."""

    def load(self, fresh: RunState, kept: Kept, devices: Devices) -> Done:
        """Return the run at its beginning."""
        del kept, devices
        return Done(fresh, 0, 0, [])

    def save(self, done: Done) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
