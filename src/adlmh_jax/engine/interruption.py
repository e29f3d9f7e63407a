"""Signals that end a run: the first after the current chunk, the second at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptedWarning(UserWarning):
    """A run was interrupted: it has fewer draws than were asked for."""


class Interruption:
    """Whether a run is to end."""

    def __init__(self) -> None:
        self.is_asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; a second one ends whatever runs."""
        del frame
        if self.is_asked:
            raise KeyboardInterrupt(f"a second signal, {signal.Signals(number).name}")
        self.is_asked = True


@contextmanager
def watch_signals() -> Iterator[Interruption]:
    """Turn Ctrl-C and SIGTERM into a wish.

    Signals that the process ignores, as those of a job in the background, it goes on ignoring; in
    other threads than the main one, signals stay as they are.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    previous = {n: handler for n, handler in handlers.items() if handler is not signal.SIG_IGN}
    try:
        for number in previous:
            signal.signal(number, interruption.ask)
        yield interruption
    finally:
        for number, handler in previous.items():
            # None: a handler that was not installed from Python, and cannot be from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
