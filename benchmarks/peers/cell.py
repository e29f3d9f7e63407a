"""One sampler on one model in a process of its own: ``python -m benchmarks.peers.cell``.

It imports what the sampler needs and nothing else, so that the start is the one of a user.
"""

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Run(NamedTuple):
    """What a sampler gave.

    Attributes
    ----------
    draws
        By name of the output, ``[chain, draw, ...]``.
    startup, warmup, sampling
        Seconds: of import and compilation since the process began; of draws that were thrown away
        and what was learned from them; of those that were kept.
    settings
        In words, with versions.
    updates
        Updates of single random choices in warm-up and sampling; None where that means nothing.
    is_whole
        Whether nobody sees a draw before the run is over.
    """

    draws: Mapping[str, np.ndarray]
    startup: float
    warmup: float
    sampling: float
    settings: str
    updates: float | None = None
    is_whole: bool = False


class Refused(Exception):
    """What a sampler cannot do, and why."""


class Clock:
    """Seconds since the process began, without what is no part of a user's program."""

    def __init__(self, born):
        self._born = born

    def seconds(self):
        return time.monotonic() - self._born

    @contextlib.contextmanager
    def outside(self):
        """Do not count what happens inside: reading the benchmark's models, pilot runs."""
        started = time.monotonic()
        yield
        self._born += time.monotonic() - started


class Compilation:
    """Seconds that JAX spent on tracing, lowering and compiling, as it says itself."""

    def __init__(self):
        import jax

        self._spans = []
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, name, duration, **_):
        if name.startswith("/jax/core/compile/"):
            now = time.monotonic()
            self._spans.append((now - duration, now))

    def seconds(self):
        """Return the length of all spans together; what overlaps counts once."""
        total, end = 0.0, -np.inf
        for start, stop in sorted(self._spans):
            total += max(0.0, stop - max(start, end))
            end = max(end, stop)
        return total


def main(peer, model, folder, limit, born):
    """Run, and leave draws and figures in the folder."""
    folder, clock = Path(folder), Clock(float(born))
    record, draws = {}, {}
    try:
        sampler = importlib.import_module(f"benchmarks.peers.samplers.{peer}")
        data = json.loads((folder / "data.json").read_text())
        run = sampler.run(model, {k: np.array(v) for k, v in data.items()}, float(limit), clock)
        draws, record = dict(run.draws), {**run._asdict(), "draws": None, "total": clock.seconds()}
    except Refused as error:
        record["refused"] = str(error)
    except Exception as error:  # whatever the sampler says is what a user sees
        record["refused"] = f"{type(error).__name__}: {error}"
    np.savez(folder / "draws.npz", **draws)
    (folder / "run.json").write_text(json.dumps(record, default=float))


def read_case(model: str, clock: Clock) -> Any:
    """Return the model of the benchmark; only samplers that read NumPyro models can ask."""
    with clock.outside():
        from benchmarks.peers.cases import CASES

        return CASES[model]()


if __name__ == "__main__":
    from benchmarks.peers import cell  # the one whose `Refused` samplers raise

    cell.main(*sys.argv[1:])
