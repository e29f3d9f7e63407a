"""A run in a directory: its draws and its last state survive whatever ends the process."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from adlmh_jax.engine import Devices, Done, Kept, RunState, restore, to_host
from adlmh_jax.store.files import load_arrays, load_json, make_directory, save_arrays, save_json

SECONDS_BETWEEN = 5.0  # writing takes time: not after every chunk
SETTINGS, STATE = "run.json", "state.npz"


class Directory:
    """The directory of one run.

    A state is written after the draws that led to it, and knows how many files of draws belong to
    it: a process that dies in between leaves a file that is written anew.
    """

    def __init__(
        self,
        directory: str | Path,
        settings: Mapping[str, Any],
        num_superchains: int,
        resume: bool,
    ) -> None:
        self._directory = make_directory(Path(directory))
        known = load_json(self._directory / SETTINGS)
        if known is not None and not resume:
            raise ValueError(
                f"`store` = {str(directory)!r} holds a run already. Pass `resume=True` to go on "
                "with it, or name another directory."
            )
        self._settings = dict(settings)
        if known is not None and known != self._settings:
            names = [name for name in known if known[name] != self._settings.get(name)]
            raise ValueError(
                f"The run in `store` = {str(directory)!r} is another one: it differs in "
                f"{', '.join(sorted(names))}. Name another directory."
            )
        save_json(self._directory / SETTINGS, self._settings)
        self._num_superchains = num_superchains
        self._last: Done | None = None
        self._waiting: list[Kept] = []
        self._num_files = 0
        self._written = time.monotonic()

    def load(self, fresh: RunState, kept: Kept, devices: Devices) -> Done:
        """Return how far the run is; a run that has not begun is at its fresh state."""
        arrays = load_arrays(self._directory / STATE, self._settings)
        if arrays is None:
            return Done(fresh, 0, 0, [])
        next_round, num_warmup, num_samples, self._num_files = map(int, arrays["counts"])
        leaves = [arrays[f"leaf_{i}"] for i in range(len(jax.tree.leaves(fresh.superchains)))]
        state = RunState(next_round, restore(devices, fresh.superchains, leaves))
        parts = [self._load_part(number, kept) for number in range(self._num_files)]
        return Done(state, num_warmup, num_samples, parts)

    def _load_part(self, number: int, kept: Kept) -> Kept:
        arrays = load_arrays(self._path(number), self._settings)
        if arrays is None:
            raise ValueError(f"`store` lacks its file {self._path(number).name}.")
        leaves = [arrays[f"leaf_{i}"] for i in range(len(jax.tree.leaves(kept)))]
        return jax.tree.unflatten(jax.tree.structure(kept), leaves)

    def _path(self, number: int) -> Path:
        return self._directory / f"draws-{number:05d}.npz"

    def save(self, done: Done) -> None:
        """Take note of a chunk; write, if it is time."""
        self._last = done
        self._waiting.extend(done.parts)
        if time.monotonic() - self._written >= SECONDS_BETWEEN:
            self._write(done)

    def close(self) -> None:
        """Write the last chunks."""
        if self._last is not None:
            self._write(self._last)

    def _write(self, done: Done) -> None:
        state = to_host(done.state.superchains)
        if jax.process_index() == 0:
            if self._waiting:
                joined: Any = jax.tree.map(lambda *p: np.concatenate(p, axis=1), *self._waiting)
                save_arrays(self._path(self._num_files), self._settings, _leaves(joined))
            self._num_files += bool(self._waiting)
            counts = (done.state.next_round, done.num_warmup, done.num_samples, self._num_files)
            leaves = _leaves(jax.tree.map(lambda leaf: leaf[: self._num_superchains], state))
            arrays = {"counts": np.array(counts), **leaves}
            save_arrays(self._directory / STATE, self._settings, arrays)
        self._waiting.clear()
        self._last = None
        self._written = time.monotonic()


def _leaves(tree: Any) -> dict[str, np.ndarray]:
    return {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
