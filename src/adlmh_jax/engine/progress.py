"""How far a run is: a tqdm bar, or nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tqdm.auto import tqdm

from adlmh_jax.statistics import tally_total


class Meter(Protocol):
    """What the runner tells after each chunk."""

    def update(self, num_draws: int, seconds: float, tallies: Any) -> None:
        """Tell that ``num_draws`` draws were made."""

    def close(self) -> None:
        """Tell that the run is over."""


class SilentMeter:
    """Says nothing."""

    def update(self, num_draws: int, seconds: float, tallies: Any) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class BarMeter:
    """A tqdm bar with draws, steps of chains per second, and the acceptance rate."""

    def __init__(self, num_draws: int, steps_per_draw: int) -> None:
        self._bar = tqdm(total=num_draws, desc="compiling", unit="draw")
        self._steps_per_draw = steps_per_draw
        self._num_chunks = 0

    def update(self, num_draws: int, seconds: float, tallies: Any) -> None:
        """Move the bar."""
        if self._num_chunks == 0:
            self._bar.write(f"Compiled in {seconds:.1f} s.")
            self._bar.set_description("sampling")
        else:
            rate = num_draws * self._steps_per_draw / max(seconds, 1e-9)
            selected = tally_total(tallies.selected).sum()
            accepted = tally_total(tallies.accepted).sum() / max(selected, 1)
            self._bar.set_postfix_str(f"{rate / 1e6:.2f} M chain-steps/s, accepted {accepted:.2f}")
        self._num_chunks += 1
        self._bar.update(num_draws)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()


@contextmanager
def make_meter(progress: bool, num_draws: int, steps_per_draw: int) -> Iterator[Meter]:
    """Give a bar for a number of draws, or nothing to see."""
    meter: Meter = BarMeter(num_draws, steps_per_draw) if progress else SilentMeter()
    try:
        yield meter
    finally:
        meter.close()
