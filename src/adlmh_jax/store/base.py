"""What a run needs of a place that keeps it. To add a format, write these four methods."""

from typing import Protocol

from adlmh_jax.engine import Devices, Done, Draws, RunState


class StoreError(ValueError):
    """A stored run cannot be written, read or gone on with."""


class Store(Protocol):
    """A place that keeps a run."""

    def load(self, fresh: RunState, empty: Draws, devices: Devices) -> Done:
        """Return how far the run is.

        Parameters
        ----------
        fresh
            The state of a run that has not begun.
        empty
            No draws, but their names, shapes and dtypes.
        devices
            Where the state is to be put.
        """

    def save(self, done: Done) -> None:
        """Take note of a chunk: the state after it, and the draws that it recorded.

        They end at draw ``done.num_samples``. Where the run goes on from `Done.resumption`, draws
        may come again; they are the same.
        """

    def close(self) -> None:
        """Write all that was noted."""

    def release(self) -> None:
        """Let others use the place: the run has ended, in whatever way.

        It may go on later, with another `save`.
        """


class Nowhere:
    """Keeps nothing."""

    def load(self, fresh: RunState, empty: Draws, devices: Devices) -> Done:
        """Return the run at its beginning."""
        del empty, devices
        return Done(state=fresh, num_warmup=0, num_samples=0, parts=[])

    def save(self, done: Done) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""
