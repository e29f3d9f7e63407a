"""Results on disk: a file is complete or absent, and is used again only for the same settings."""

import errno
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

Arrays = dict[str, np.ndarray]
_SETTINGS = "settings"
PART = ".part"


def save_arrays(path: Path, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays and the settings that made them."""
    marked: dict[str, Any] = {**arrays, _SETTINGS: np.array(_canonical(settings))}
    _write(path, lambda file: np.savez_compressed(file, **marked))


def load_arrays(path: Path, settings: Mapping[str, Any]) -> Arrays | None:
    """Return the arrays of a complete file made with the same settings; else None."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    return arrays if str(arrays.pop(_SETTINGS, "")) == _canonical(settings) else None


def save_json(path: Path, data: Any) -> None:
    """Write data that a person may read."""
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    save_text(path, text)


def save_text(path: Path, text: str) -> None:
    """Write a text file."""
    _write(path, lambda file: file.write(text.encode()))


def load_json(path: Path) -> Any:
    """Read what `save_json` wrote; None if there is nothing."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def make_directory(path: Path) -> Path:
    """Make a directory and check that files can be written there, or raise `OSError`."""
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path):
        pass
    return path


def _canonical(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def _write(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, write)


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write under a temporary name, then rename: whoever reads sees all of it or nothing."""
    temporary = path.with_name(f".{path.name}{PART}")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_directory(path.parent)


def _flush_directory(path: Path) -> None:
    """Make sure that the names of new files survive a loss of power; Windows cannot."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_parts(directory: Path) -> None:
    """Remove what processes that died left behind."""
    for path in directory.glob(f".*{PART}"):
        path.unlink(missing_ok=True)


def is_regular(path: Path) -> bool:
    """Return whether there is a file to read; raise `OSError` if it is something else."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return True
