"""How far a run is: a tqdm bar, in a terminal or a notebook, or nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tqdm.auto import tqdm

from adlmh_jax.statistics import tally_total

BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} draws [{elapsed}<{remaining}{postfix}]"
BARE = "{desc} [{elapsed}]"  # as long as nobody knows how many draws there will be


class Meter(Protocol):
    """What a run tells of itself: the phase that it enters, and how far it is after each chunk."""

    def enter(self, phase: str) -> None:
        """Tell what is being done now, in a word or two."""

    def begin(self, num_draws: int, steps_per_draw: int) -> None:
        """Tell how many draws are to be made, of how many steps of chains; the first compiles."""

    def update(self, num_draws: int, seconds: float, tallies: Any) -> None:
        """Tell that ``num_draws`` draws were made."""

    def reach(self, num_draws: int, note: str) -> None:
        """Tell how many draws there are by now, of a run that others make."""

    def close(self) -> None:
        """Tell that the run is over."""


class SilentMeter:
    """Says nothing."""

    def enter(self, phase: str) -> None:
        """Do nothing."""

    def begin(self, num_draws: int, steps_per_draw: int) -> None:
        """Do nothing."""

    def update(self, num_draws: int, seconds: float, tallies: Any) -> None:
        """Do nothing."""

    def reach(self, num_draws: int, note: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class BarMeter:
    """A bar for all chains: phase, draws, time left, steps of chains per second, acceptance."""

    def __init__(self) -> None:
        self._bar = tqdm(desc="starting", bar_format=BARE)
        self._phase = "starting"
        self._steps_per_draw = 0
        self._is_compiling = False

    def enter(self, phase: str) -> None:
        """Show what is being done; what is compiled first is shown as that."""
        self._phase = phase
        if not self._is_compiling:
            self._bar.set_description_str(phase)

    def begin(self, num_draws: int, steps_per_draw: int) -> None:
        """Show an empty bar."""
        self._steps_per_draw, self._is_compiling = steps_per_draw, True
        self._bar.total, self._bar.bar_format = num_draws, BAR
        self._bar.set_description_str("compiling")

    def update(self, num_draws: int, seconds: float, tallies: Any) -> None:
        """Move the bar."""
        if self._is_compiling:
            self._is_compiling = False
            self._bar.write(f"Compiled in {seconds:.1f} s.", file=sys.stderr)
            self._bar.set_description_str(self._phase, refresh=False)
            self._bar.unpause()  # the time left follows from what is yet to be done
        else:
            rate = num_draws * self._steps_per_draw / max(seconds, 1e-9)
            selected = tally_total(tallies.selected).sum()
            accepted = tally_total(tallies.accepted).sum() / max(selected, 1)
            text = f"{rate / 1e6:.2f} M chain-steps/s, accepted {accepted:.2f}"
            self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(num_draws)

    def reach(self, num_draws: int, note: str) -> None:
        """Move the bar; compilation is not seen from here."""
        is_news = self._is_compiling or num_draws != self._bar.n or note not in self._bar.postfix
        self._is_compiling = False
        self._bar.set_description_str(self._phase, refresh=False)
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(num_draws - self._bar.n)
        if is_news:
            self._bar.refresh()

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()


@contextmanager
def make_meter(progress: bool) -> Iterator[Meter]:
    """Give a bar, or nothing to see."""
    meter: Meter = BarMeter() if progress else SilentMeter()
    try:
        yield meter
    finally:
        meter.close()
