"""How far a run is: a tqdm bar, in a terminal or a notebook, or nothing."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tqdm.auto import tqdm

from adlmh_jax.engine.looking import Look

BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} draws [{elapsed}<{remaining}{postfix}]"
BARE = "{desc} [{elapsed}]"  # as long as nobody knows how many draws there will be


class Meter(Protocol):
    """What a run tells of itself: the phase that it enters, and how far it is after each chunk.

    Attributes
    ----------
    is_seen
        Whether anybody is told: if not, nobody looks at the run either.
    """

    is_seen: bool

    def enter(self, phase: str) -> None:
        """Tell what is being done now, in a word or two."""

    def begin(self, num_draws: int, steps_per_draw: int) -> None:
        """Tell how many draws are to be made, of how many steps of chains; the first compiles."""

    def update(self, num_draws: int, seconds: float, look: Look | None) -> None:
        """Tell that ``num_draws`` draws were made, and now and then what is seen of the run."""

    def reach(self, num_draws: int, note: str) -> None:
        """Tell how many draws there are by now, of a run that others make."""

    def close(self) -> None:
        """Tell that the run is over."""


class SilentMeter:
    """Says nothing."""

    is_seen = False

    def enter(self, phase: str) -> None:
        """Do nothing."""

    def begin(self, num_draws: int, steps_per_draw: int) -> None:
        """Do nothing."""

    def update(self, num_draws: int, seconds: float, look: Look | None) -> None:
        """Do nothing."""

    def reach(self, num_draws: int, note: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class BarMeter:
    """A bar for all chains: phase, draws, time left, convergence, steps per second, acceptance."""

    is_seen = True

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

    def update(self, num_draws: int, seconds: float, look: Look | None) -> None:
        """Move the bar."""
        rate = num_draws * self._steps_per_draw / max(seconds, 1e-9)
        speed = f"{rate / 1e6:.2f} M chain-steps/s"
        if self._is_compiling:
            self._is_compiling = False
            self._bar.write(f"Compiled in {seconds:.1f} s.", file=sys.stderr)
            self._bar.set_description_str(self._phase, refresh=False)
            self._bar.unpause()  # the time left follows from what is yet to be done
            speed = ""  # that of compiling is none
        if look is not None:
            phase = "annealing" if look.beta < 1 else self._phase
            self._bar.set_description_str(phase, refresh=False)
            # A narrow terminal cuts off what comes last.
            words = (_arrival(look), speed, f"accepted {look.acceptance:.2f}")
            self._bar.set_postfix_str(", ".join(filter(None, words)), refresh=False)
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


def _arrival(look: Look) -> str:
    """Say how far chains are from the posterior, if that is known."""
    if look.beta < 1:
        return f"beta {look.beta:.2g}"
    return "" if math.isnan(look.r_hat) else f"R-hat {look.r_hat:.3f} ({look.worst})"


@contextmanager
def make_meter(progress: bool) -> Iterator[Meter]:
    """Give a bar, or nothing to see."""
    meter: Meter = BarMeter() if progress else SilentMeter()
    try:
        yield meter
    finally:
        meter.close()
