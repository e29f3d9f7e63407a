"""`merge`: parts of a run, made on whatever machines, put together as one run."""

import contextlib
import glob
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from adlmh_jax.engine import RunConfig
from adlmh_jax.store.base import StoreError
from adlmh_jax.store.directory import COUNTS, DRAWS, FORMAT, STATE
from adlmh_jax.store.lock import Lock
from adlmh_jax.store.snapshot import Header, damaged, read_arrays, read_header, write_snapshot
from adlmh_jax.store.zarr import ARRAY, GrowingArray, ZarrGroups, choose_chunk

PART = "part"


@dataclass(frozen=True)
class Part:
    """A stored part of a run.

    Attributes
    ----------
    directory
        Where it is.
    header
        What its state file declares.
    numbers
        Its superchains.
    """

    directory: Path
    header: Header
    numbers: range

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for all parts."""
        return {name: v for name, v in self.header["settings"].items() if name != PART}

    @property
    def counts(self) -> dict[str, int]:
        """How far it is."""
        return {name: self.header[name] for name in COUNTS}

    def read_state(self) -> list[np.ndarray]:
        """Return the arrays of its state, ``[S, ...]``."""
        like = [
            jax.ShapeDtypeStruct(entry["shape"], np.dtype(entry["dtype"]))
            for entry in self.header["arrays"]
        ]
        return read_arrays(self.directory / STATE, like)

    def read_draws(self, name: str) -> np.ndarray:
        """Return its draws of one array, ``[chain, draw, ...]``."""
        entry, path = self.header["draws"][name], self.directory / DRAWS / name
        try:
            kind = json.loads((path / ARRAY).read_text())
            shape, dtype = kind["shape"], np.dtype(kind["dtype"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(path / ARRAY, f"it cannot be read ({error})") from error
        like = np.zeros((shape[0], 0, *shape[2:]), dtype)
        array = GrowingArray(path, like, entry["chunk_draws"], list(entry["checks"]))
        num_checked = self.header["num_samples"]
        return array.read(num_checked, self.header["num_stored"] - num_checked)


def merge(parts: str | Path | Sequence[str | Path], into: str | Path) -> Path:
    """Put stored parts of a run together, as the stored run of all its superchains.

    Parameters
    ----------
    parts
        The directories of ``sample(..., superchains=range(...), store=...)``, or a pattern such as
        ``"run/*"``. They stay as they are.
    into
        The directory to make. ``sample(..., store=into, resume=True)``, without ``superchains``,
        returns its `Result`: bit for bit that of a run that was never divided, which can go on.

    Returns
    -------
    The directory.

    Raises
    ------
    StoreError
        If they are parts of different runs, not equally far, overlapping, or if some are missing.

    Examples
    --------
    ::

        run = functools.partial(adlmh.sample, 0, model, (readings,), num_superchains=4)
        run(superchains=range(0, 2), store="parts/0")  # on one machine
        run(superchains=range(2, 4), store="parts/1")  # on another
        directory = adlmh.merge("parts/*", into="whole")
        result = run(store=directory, resume=True)
    """
    with contextlib.ExitStack() as locks:
        found = [_open(directory, locks) for directory in _list(parts)]
        found.sort(key=lambda part: part.numbers.start)
        _check(found)
        target = Path(into)
        if (target / STATE).exists() or (target / DRAWS).exists():
            raise StoreError(f"`into` = {str(target)!r} holds a run already. Name another one.")
        target.mkdir(parents=True, exist_ok=True)
        _lock(target, locks)
        try:
            _write(found, target)
        except BaseException:
            clear_draws(target)
            raise
    return target


def _lock(directory: Path, locks: contextlib.ExitStack) -> None:
    """Let nobody write in a directory; one that cannot be written needs no lock."""
    lock = Lock(directory)
    with contextlib.suppress(OSError):
        lock.take()
        locks.callback(lock.release)


def clear_draws(directory: Path) -> None:
    """Remove the draws of a merge that did not come to its end: there is no state beside them."""
    if not (directory / STATE).exists():
        shutil.rmtree(directory / DRAWS, ignore_errors=True)


def _list(parts: str | Path | Sequence[str | Path]) -> list[Path]:
    if isinstance(parts, (str, Path)):
        found = [str(parts)] if Path(parts).is_dir() else sorted(glob.glob(str(parts)))
        directories = [Path(path) for path in found if Path(path).is_dir()]
    else:
        directories = list(map(Path, parts))
    if not directories:
        raise StoreError(f"There are no directories {str(parts)!r} to merge.")
    return directories


def _open(directory: Path, locks: contextlib.ExitStack) -> Part:
    path = directory / STATE
    if path.exists():
        _lock(directory, locks)
    header = read_header(path)
    if header is None:
        raise StoreError(f"{str(directory)!r} holds no stored run: there is no {STATE} in it.")
    settings = header.get("settings")
    if header.get("format") != FORMAT or not isinstance(settings, dict):
        raise damaged(path, "it is not of this version of adlmh_jax")
    ends = settings.get(PART) or (0, _num_superchains(settings))
    return Part(directory, header, range(*ends))


def _num_superchains(settings: dict[str, Any]) -> int:
    """Return how many superchains the whole run has."""
    number = settings["num_superchains"]
    return RunConfig(num_chains=settings["num_chains"], num_superchains=number).superchains


def _check(parts: Sequence[Part]) -> None:
    """Refuse what is not one run, or not all of it."""
    first = parts[0]
    for part in parts[1:]:
        names = {*first.settings, *part.settings}
        other = [n for n in sorted(names) if first.settings.get(n) != part.settings.get(n)]
        if other:
            raise StoreError(
                f"{str(part.directory)!r} and {str(first.directory)!r} are parts of different "
                f"runs: they differ in {', '.join(other)}."
            )
        if part.counts != first.counts:
            raise StoreError(
                f"{_progress(part)}, {_progress(first)}. Go on with the shorter one "
                "(`resume=True`) until all have as many."
            )
    end = 0
    missing = []
    for part in parts:
        if part.numbers.start < end:
            raise StoreError(
                f"The superchains {part.numbers} in {str(part.directory)!r} overlap with others."
            )
        if part.numbers.start > end:
            missing.append(range(end, part.numbers.start))
        end = part.numbers.stop
    total = _num_superchains(first.settings)
    if end < total:
        missing.append(range(end, total))
    if missing:
        raise StoreError(
            f"The run has {total} superchains, and {', '.join(map(str, missing))} "
            f"{'is' if len(missing) == 1 else 'are'} missing."
        )


def _progress(part: Part) -> str:
    return f"{str(part.directory)!r} has {part.header['num_stored']} draws"


def _write(parts: Sequence[Part], target: Path) -> None:
    """Write the draws, one array after the other, then the state."""
    counts = parts[0].counts
    num_draws = counts["num_stored"]
    groups: dict[str, list[GrowingArray]] = {"posterior": [], "sample_stats": []}
    draws = {}
    for name in parts[0].header["draws"]:
        values = np.concatenate([part.read_draws(name) for part in parts])
        empty = values[:, :0].copy()
        group, _ = name.split("/", 1)
        growing = GrowingArray(target / DRAWS / name, empty, choose_chunk(empty, num_draws))
        growing.directory.mkdir(parents=True)
        growing.write(0, values, counts["num_samples"], 0)
        groups[group].append(growing)
        draws[name] = {"chunk_draws": growing.chunk_draws, "checks": growing.checks}
    ZarrGroups(target / DRAWS, groups).create(num_draws)
    states = [part.read_state() for part in parts]
    leaves = [np.concatenate(leaves) for leaves in zip(*states, strict=True)]
    settings = {**parts[0].settings, PART: None}
    write_snapshot(
        target / STATE, {"format": FORMAT, **counts, "settings": settings, "draws": draws}, leaves
    )
