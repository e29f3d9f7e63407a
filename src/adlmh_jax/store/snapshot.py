"""The state of a run in one file: a line of JSON, then the bytes of its arrays.

The line begins with its own checksum and has the checksums of the arrays. Nothing that the file
declares is believed: shapes and dtypes must be those that the run expects, and are compared before
any memory is taken.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from adlmh_jax.store.base import StoreError
from adlmh_jax.store.files import is_regular, write_whole

MAX_HEADER_BYTES = 1 << 26
REMEDY = "Take it from a copy of the directory, or sample anew into another one."

Header = dict[str, Any]


def checksum(array: np.ndarray) -> int:
    """Return a number that tells the bytes of an array from others."""
    return zlib.crc32(array.tobytes())


def write_snapshot(path: Path, header: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> None:
    """Write numbers and texts, and arrays."""
    for array in arrays:
        if array.dtype.hasobject:
            raise StoreError(f"`store` holds numbers, not objects: got dtype {array.dtype}.")
    described = [{**_describe(array), "check": checksum(array)} for array in arrays]
    text = json.dumps({**header, "arrays": described}).encode()

    def write(file: IO[bytes]) -> None:
        file.write(b"%08x %s\n" % (zlib.crc32(text), text))
        for array in arrays:
            file.write(array.tobytes())

    write_whole(path, write)


def read_header(path: Path) -> Header | None:
    """Return what stands in the first line of a snapshot; None if there is no file."""
    if not is_regular(path):
        return None
    with open(path, "rb") as file:
        return _parse(path, file.readline(MAX_HEADER_BYTES))


def read_arrays(path: Path, expected: Sequence[Any]) -> list[np.ndarray]:
    """Return the arrays of a snapshot, whose shapes and dtypes are known."""
    with open(path, "rb") as file:
        line = file.readline(MAX_HEADER_BYTES)
        described = _parse(path, line).get("arrays")
        checks = _match(path, described, expected)
        sizes = [int(np.prod(like.shape)) * np.dtype(like.dtype).itemsize for like in expected]
        if path.stat().st_size != len(line) + sum(sizes):
            raise damaged(path, f"it has {path.stat().st_size} bytes, not those that it declares")
        arrays = []
        for like, size, check in zip(expected, sizes, checks, strict=True):
            data = file.read(size)
            if len(data) != size or zlib.crc32(data) != check:
                raise damaged(path, "an array in it was changed")
            arrays.append(np.frombuffer(data, like.dtype).reshape(like.shape))
    return arrays


def damaged(path: Path, reason: str) -> StoreError:
    """Return the error of a file that cannot be used."""
    return StoreError(f"The file `{path}` of a stored run is damaged: {reason}. {REMEDY}")


def _match(path: Path, described: Any, expected: Sequence[Any]) -> list[int]:
    """Return the checksums, if the arrays are of the shapes and dtypes that are expected."""
    if not isinstance(described, list) or len(described) != len(expected):
        raise damaged(path, f"it does not have the {len(expected)} arrays of the run's state")
    checks = []
    for number, (entry, like) in enumerate(zip(described, expected, strict=True)):
        wanted = _describe(like)
        found = {name: entry.get(name) for name in wanted} if isinstance(entry, dict) else {}
        if found != wanted:
            raise damaged(path, f"its array {number} should be {wanted}, and is {found}")
        checks.append(entry.get("check"))
    return checks


def _parse(path: Path, line: bytes) -> Header:
    check, _, text = line.removesuffix(b"\n").partition(b" ")
    if not line.endswith(b"\n") or check != b"%08x" % zlib.crc32(text):
        raise damaged(path, "its first line was changed or cut off")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"its first line is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise damaged(path, "its first line is no JSON object")
    return header


def _describe(array: Any) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": str(np.dtype(array.dtype))}
