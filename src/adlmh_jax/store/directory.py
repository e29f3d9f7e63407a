"""A run in a directory: its draws and its last state survive whatever ends the process."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from adlmh_jax.engine import Devices, Done, Draws, RunState, restore, to_host
from adlmh_jax.store.base import StoreError
from adlmh_jax.store.files import remove_parts
from adlmh_jax.store.lock import Lock
from adlmh_jax.store.snapshot import (
    Header,
    damaged,
    read_arrays,
    read_header,
    write_snapshot,
)
from adlmh_jax.store.zarr import GrowingArray, ZarrGroups, choose_chunk, storable

SECONDS_BETWEEN = 5.0  # writing takes time: not after every chunk
STATE, DRAWS = "state.bin", "draws.zarr"
FORMAT = "adlmh_jax run 2"
MAX_COUNT = 2**31 - 1
COUNTS = ("next_round", "num_warmup", "num_samples", "num_stored")


class Directory:
    """The directory of one run: ``draws.zarr``, for everybody, and ``state.bin``, to go on.

    The state is written after the draws that led to it, and says how many they are: draws beyond,
    of a process that died in between, are written anew.
    """

    def __init__(
        self,
        directory: str | Path,
        settings: Mapping[str, Any],
        num_superchains: int,
        num_samples: int,
        resume: bool,
    ) -> None:
        self._directory = Path(directory)
        self._settings = json.loads(json.dumps(settings, default=int))
        self._num_superchains, self._num_samples = num_superchains, num_samples
        self._last: Done | None = None
        self._waiting: list[Draws] = []
        self._num_stored = 0
        self._lock, self._is_open = Lock(self._directory), True
        with self._reporting("written"):
            if jax.process_index() == 0:
                self._make()
                self._lock.take()
        try:
            self._open(resume)
        except BaseException:
            self.release()
            raise
        self._written = time.monotonic()

    def _make(self) -> None:
        """Make the directory, if it is not there."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            path = next(p for p in (self._directory, *self._directory.parents) if p.exists())
            raise StoreError(
                f"`store` = {str(self._directory)!r} cannot be written: {str(path)!r} is a file, "
                "not a directory. Name another one."
            ) from None

    def _open(self, resume: bool) -> None:
        """Read how far the run is, or begin it."""
        with self._reporting("read"):
            self._header = read_header(self._directory / STATE)
            has_draws = (self._directory / DRAWS).exists()
        if self._header is not None:
            if not resume:
                raise StoreError(
                    f"`store` = {str(self._directory)!r} holds a run already. Pass `resume=True` "
                    "to go on with it, or name another directory."
                )
            self._check(self._header)
            self._check_number(self._header["num_stored"])
        elif has_draws:
            raise self._no_state()
        elif jax.process_index() == 0:
            with self._reporting("written"):
                self._write_state(dict.fromkeys(COUNTS, 0), [])

    def _no_state(self) -> StoreError:
        return StoreError(
            f"`store` = {str(self._directory)!r} has draws, but its file {STATE} is missing: the "
            "run cannot go on. Name another directory."
        )

    def _check(self, header: Header) -> None:
        """Refuse to mix runs."""
        known = header.get("settings")
        if header.get("format") != FORMAT or not isinstance(known, dict):
            raise damaged(self._directory / STATE, "it is not of this version of adlmh_jax")
        names = {n for n in {*known, *self._settings} if known.get(n) != self._settings.get(n)}
        if names:
            raise StoreError(
                f"The run in `store` = {str(self._directory)!r} is another one: it differs in "
                f"{', '.join(sorted(names))}. Name another directory."
            )
        for name in COUNTS:
            self._count(header, name)

    def _check_number(self, num_stored: int) -> None:
        """Refuse to make fewer draws than there are."""
        if num_stored > self._num_samples:
            raise StoreError(
                f"`store` = {str(self._directory)!r} holds {num_stored} draws already, more than "
                f"`num_samples` = {self._num_samples}, which counts them all, not those to come. "
                f"Ask for at least {num_stored}."
            )

    def _count(self, header: Header, name: str) -> int:
        number = header.get(name)
        if type(number) is not int or not 0 <= number <= MAX_COUNT:
            raise damaged(self._directory / STATE, f"`{name}` is {number!r}, which is no count")
        return number

    def load(self, fresh: RunState, empty: Draws, devices: Devices) -> Done:
        """Return how far the run is; a run that has not begun is at its fresh state."""
        header = self._header
        self._files = self._lay_out(empty, header)
        done = Done(state=fresh, num_warmup=0, num_samples=0, parts=[])
        with self._reporting("read"):
            if header is not None and self._has_begun(header):
                done = self._read(header, fresh, devices)
        self._header = None
        if jax.process_index() == 0:
            with self._reporting("written"):
                remove_parts(self._directory)
                self._files.create(self._num_stored)
        return done

    def _has_begun(self, header: Header) -> bool:
        """Return whether there is a state; without one nothing has been counted either."""
        return bool(header.get("arrays")) or any(header[name] for name in COUNTS)

    def _read(self, header: Header, fresh: RunState, devices: Devices) -> Done:
        num_samples = header["num_samples"]
        self._num_stored = header["num_stored"]
        num_warmup, all_warmup = header["num_warmup"], self._settings["num_warmup"]
        is_early = num_warmup > all_warmup or (num_warmup < all_warmup and num_samples)
        if num_samples > self._num_stored or is_early:
            raise damaged(self._directory / STATE, "its counts contradict each other")
        like = [self._stored_shape(leaf) for leaf in jax.tree.leaves(fresh.superchains)]
        leaves = read_arrays(self._directory / STATE, like)
        superchains = restore(devices, fresh.superchains, leaves)
        arrays = {a.directory: a.read(num_samples) for a in self._files.arrays}
        return Done(
            state=RunState(header["next_round"], superchains),
            num_warmup=header["num_warmup"],
            num_samples=num_samples,
            parts=[self._as_draws(arrays, num_samples)] if num_samples else [],
        )

    def _stored_shape(self, leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self._num_superchains, *leaf.shape[1:]), leaf.dtype)

    def _lay_out(self, empty: Draws, header: Header | None) -> ZarrGroups:
        """Return where the draws are, or will be."""
        root = self._directory / DRAWS
        self._empty = empty
        self._paths = {n: root / "posterior" / s for n, s in storable(empty.values).items()}
        self._lp = root / "sample_stats" / "lp"
        known = {} if header is None else header.get("draws", {})
        posterior = [self._grow(p, empty.values[n], known) for n, p in self._paths.items()]
        stats = [self._grow(self._lp, empty.log_density, known)] if empty.values else []
        return ZarrGroups(root, {"posterior": posterior, "sample_stats": stats})

    def _grow(self, path: Path, like: np.ndarray, known: Any) -> GrowingArray:
        if not known:
            return GrowingArray(path, like, choose_chunk(like, self._num_samples))
        name = f"{path.parent.name}/{path.name}"
        entry = known.get(name) if isinstance(known, dict) else None
        entry = entry if isinstance(entry, dict) else {}
        checks = entry.get("checks")
        if not isinstance(checks, list):
            raise damaged(self._directory / STATE, f"it does not know the draws of `{name}`")
        chunk = self._count(entry, "chunk_draws")
        if not chunk:
            raise damaged(self._directory / STATE, f"the chunks of `{name}` have no draws")
        return GrowingArray(path, like, chunk, checks)

    def _as_draws(self, arrays: Mapping[Path, np.ndarray], num_draws: int) -> Draws:
        values = {name: arrays[path] for name, path in self._paths.items()}
        nothing = np.zeros((0, num_draws), self._empty.log_density.dtype)
        return Draws(values, arrays.get(self._lp, nothing))

    def save(self, done: Done) -> None:
        """Take note of a chunk; write, if it is time."""
        if not self._is_open:
            self._return()
        self._last = done
        self._waiting.extend(done.parts)
        if time.monotonic() - self._written >= SECONDS_BETWEEN:
            self._write(done)

    def close(self) -> None:
        """Write the last chunks."""
        if self._last is not None:
            self._write(self._last)

    def release(self) -> None:
        """Let other processes use the directory."""
        self._is_open = False
        self._lock.release()

    def _return(self) -> None:
        """Go on with a run that others may have gone on with in between."""
        with self._reporting("written"):
            if jax.process_index() == 0:
                self._lock.take()
            header = read_header(self._directory / STATE)
        if header is None:
            raise self._no_state()
        self._check(header)
        self._num_stored = max(self._num_stored, header["num_stored"])
        self._is_open = True

    def _write(self, done: Done) -> None:
        start = done.resumption
        leaves = jax.tree.leaves(to_host(start.state.superchains))
        counts = (start.state.next_round, done.num_warmup, start.num_samples)
        num_visible, self._num_stored = self._num_stored, max(self._num_stored, done.num_samples)
        if jax.process_index() == 0:
            with self._reporting("written"):
                self._write_draws(done, num_visible)
                numbers = dict(zip(COUNTS, (*counts, self._num_stored), strict=True))
                self._write_state(numbers, [leaf[: self._num_superchains] for leaf in leaves])
        self._waiting.clear()
        self._last = None
        self._written = time.monotonic()

    def _write_draws(self, done: Done, num_visible: int) -> None:
        num_new = sum(part.log_density.shape[1] for part in self._waiting)
        if not num_new:
            return
        position = done.num_samples - num_new
        by_path = {path: [d.values[n] for d in self._waiting] for n, path in self._paths.items()}
        by_path[self._lp] = [draws.log_density for draws in self._waiting]
        for array in self._files.arrays:
            new = np.concatenate(by_path[array.directory], axis=1)
            array.write(position, new, done.resumption.num_samples, num_visible)
        self._files.publish(self._num_stored)

    def _write_state(self, counts: Mapping[str, int], leaves: list[np.ndarray]) -> None:
        arrays = self._files.arrays if leaves else []
        draws = {
            f"{a.directory.parent.name}/{a.directory.name}": {
                "chunk_draws": a.chunk_draws,
                "checks": a.checks,
            }
            for a in arrays
        }
        header = {"format": FORMAT, **counts, "settings": self._settings, "draws": draws}
        write_snapshot(self._directory / STATE, header, leaves)

    @contextmanager
    def _reporting(self, verb: str) -> Iterator[None]:
        """Turn errors of the operating system into one sentence, and what to do."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"`store` = {str(self._directory)!r} cannot be {verb}: {error}. What it held "
                "before is as it was: put the directory in order (is it there, is it writable, is "
                "the disk full?) and pass `resume=True` to go on."
            ) from error


class Counts(NamedTuple):
    """How many draws a stored run has made in warm-up, and how many are stored."""

    num_warmup: int
    num_stored: int


def read_counts(directory: str | Path) -> Counts | None:
    """Return how far the run in a directory is; None if there is none that can be read."""
    try:
        header = read_header(Path(directory) / STATE)
        return None if header is None else Counts(header["num_warmup"], header["num_stored"])
    except (OSError, StoreError, KeyError):
        return None


def read_settings(directory: str | Path) -> dict[str, Any]:
    """Return the settings of the run that a directory holds."""
    path = Path(directory) / STATE
    header = read_header(path)
    if header is None:
        raise StoreError(f"{str(directory)!r} holds no stored run: there is no {STATE} in it.")
    settings = header.get("settings")
    if header.get("format") != FORMAT or not isinstance(settings, dict):
        raise damaged(path, "it is not of this version of adlmh_jax")
    return settings
