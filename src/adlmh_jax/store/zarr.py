"""Draws as zarr arrays (format 2, not compressed), which grow while others read them.

Chunks are written first, as whole files; then the new shapes, those of all arrays of a group in one
file: a reader sees the same number of draws in all of them. The layout is simple enough to be
written without the zarr library, in an order and with guarantees that it does not give. Format 2 is
read by version 2 of that library, which ArviZ 0.23 insists on, and by version 3.
"""

import functools
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from adlmh_jax.store.base import StoreError
from adlmh_jax.store.files import is_regular, remove_parts, write_whole
from adlmh_jax.store.snapshot import checksum, damaged

GROUP, ARRAY, ATTRIBUTES, ALL = ".zgroup", ".zarray", ".zattrs", ".zmetadata"
GROWING = (ARRAY, ALL)  # what changes with the number of draws
GROUP_METADATA = {GROUP: {"zarr_format": 2}, ATTRIBUTES: {"inference_library": "adlmh_jax"}}
CHUNK_BYTES = 1 << 20  # about; of all chains and some draws
TYPES = {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
TYPES |= {"float16", "float32", "float64"}
RESERVED = ("chain", "draw", "")

Metadata = dict[str, Any]  # what stands in each file, by its path


def storable(names: Iterable[str]) -> dict[str, str]:
    """Return names that can be directories and xarray variables, all different."""
    taken, storable = set(RESERVED), {}
    for name in names:
        new = name.replace("/", ".").replace("\\", ".").replace("\0", ".").lstrip("._") or "_"
        while new in taken:
            new += "_"
        taken.add(new)
        storable[name] = new
    return storable


def choose_chunk(array: np.ndarray, num_draws: int) -> int:
    """Return how many draws of an array ``[chain, draw, ...]`` a chunk has."""
    num_bytes = math.prod((len(array), *array.shape[2:])) * array.dtype.itemsize
    return max(1, min(CHUNK_BYTES // max(1, num_bytes), 1 << (num_draws - 1).bit_length()))


@dataclass
class GrowingArray:
    """An array ``[chain, draw, ...]`` on disk.

    Attributes
    ----------
    directory
        Where it is; its name is the array's.
    like
        An array of the same kind without draws.
    chunk_draws
        Draws of a chunk.
    checks
        Checksums of the draws in each chunk, up to where the run can go on.
    """

    directory: Path
    like: np.ndarray
    chunk_draws: int
    checks: list[int] = field(default_factory=list)

    def write(self, position: int, values: np.ndarray, num_checked: int, num_visible: int) -> None:
        """Write draws from a position on.

        Draws up to ``num_checked`` are to be trusted later. Readers see ``num_visible`` already:
        those beyond the new ones stay as they are.
        """
        size, end = self.chunk_draws, position + values.shape[1]
        del self.checks[position // size :]
        for number in range(position // size, -(-end // size)):
            first = number * size
            start, stop = max(first, position), min(first + size, end)
            is_begun = start > first or min(num_visible, first + size) > stop
            chunk = self._begun(number) if is_begun else self._blank()
            chunk[:, start - first : stop - first] = values[:, start - position : stop - position]
            self._save(number, chunk)
            if num_checked > first:
                self.checks.append(checksum(chunk[:, : num_checked - first]))

    def read(self, num_draws: int, num_more: int = 0) -> np.ndarray:
        """Return the first draws, if they are those that were written, and some after them."""
        size, end = self.chunk_draws, num_draws + num_more
        if len(self.checks) != -(-num_draws // size):
            raise damaged(self.directory, f"it should have {-(-num_draws // size)} chunks of draws")
        for number in range(-(-end // size)):
            self._require(number)
        values = np.empty(self._shape(end), self.like.dtype)
        for number in range(-(-end // size)):
            first = number * size
            chunk = self._read(number)[:, : end - first]
            checked = chunk[:, : max(0, num_draws - first)]
            if checked.shape[1] and checksum(checked) != self.checks[number]:
                raise damaged(self._path(number), "its draws were changed")
            values[:, first : first + size] = chunk
        return values

    def describe(self, num_draws: int) -> Metadata:
        """Return the array's metadata."""
        name = self.directory.name
        own = [f"{name}_dim_{axis}" for axis in range(self.like.ndim - 2)]
        array = {
            "zarr_format": 2,
            "shape": list(self._shape(num_draws)),
            "chunks": list(self._shape(self.chunk_draws)),
            "dtype": self._type.str,
            "order": "C",
            "dimension_separator": ".",
            "fill_value": None,  # any other would be read as a missing value
            "compressor": None,
            "filters": None,
        }
        return {ARRAY: array, ATTRIBUTES: {"_ARRAY_DIMENSIONS": ["chain", "draw", *own]}}

    @property
    def _type(self) -> np.dtype:
        return self.like.dtype.newbyteorder("<")

    def _shape(self, num_draws: int) -> tuple[int, ...]:
        return (len(self.like), num_draws, *self.like.shape[2:])

    def _path(self, number: int) -> Path:
        axes = (0, number, *(0 for _ in self.like.shape[2:]))
        return self.directory / ".".join(map(str, axes))

    def _require(self, number: int) -> None:
        """Refuse a chunk that is missing or of another size."""
        path = self._path(number)
        if not is_regular(path):
            raise damaged(path, "it is missing")
        wanted = math.prod(self._shape(self.chunk_draws)) * self._type.itemsize
        if path.stat().st_size != wanted:
            raise damaged(path, f"it has {path.stat().st_size} bytes instead of {wanted}")

    def _blank(self) -> np.ndarray:
        return np.zeros(self._shape(self.chunk_draws), self._type)

    def _begun(self, number: int) -> np.ndarray:
        """Return a chunk to go on with; raise `OSError` if it is gone."""
        self._path(number).stat()
        return self._read(number)

    def _save(self, number: int, chunk: np.ndarray) -> None:
        write_whole(self._path(number), lambda file: file.write(chunk.tobytes()))

    def _read(self, number: int) -> np.ndarray:
        self._require(number)
        data = bytearray(self._path(number).read_bytes())
        return np.frombuffer(data, self._type).reshape(self._shape(self.chunk_draws))


class ZarrGroups:
    """Groups of growing arrays in one directory."""

    def __init__(self, directory: Path, groups: Mapping[str, Sequence[GrowingArray]]) -> None:
        self.directory = directory
        self.groups = groups
        for array in self.arrays:
            if str(array.like.dtype) not in TYPES:
                raise StoreError(
                    f"`store` cannot hold `{array.directory.name}`, whose dtype is "
                    f"{array.like.dtype}. Leave it out with `keep=`."
                )

    @property
    def arrays(self) -> list[GrowingArray]:
        """All arrays."""
        return [array for arrays in self.groups.values() for array in arrays]

    def create(self, num_draws: int) -> None:
        """Make the directories, without what others left behind, and the metadata."""
        directories = [self.directory, *(self.directory / name for name in self.groups)]
        for directory in [*directories, *(array.directory for array in self.arrays)]:
            directory.mkdir(parents=True, exist_ok=True)
            remove_parts(directory)
        self._save(num_draws, (GROUP, ATTRIBUTES, *GROWING))

    def publish(self, num_draws: int) -> None:
        """Let readers see draws that have been written."""
        self._save(num_draws, GROWING)

    def _save(self, num_draws: int, files: Collection[str]) -> None:
        everything = dict(GROUP_METADATA)
        for name, arrays in self.groups.items():
            group = dict(GROUP_METADATA)
            for array in arrays:
                described = array.describe(num_draws)
                _save(array.directory, described, files)
                group |= _below(array.directory.name, described)
            _save(self.directory / name, _with_all(group), files)
            everything |= _below(name, group)
        _save(self.directory, _with_all(everything), files)


def _below(name: str, metadata: Metadata) -> Metadata:
    """Return metadata with paths that begin one level higher."""
    return {f"{name}/{path}": content for path, content in metadata.items()}


def _with_all(below: Metadata) -> Metadata:
    """Return the metadata of a group, with a file that has all that is below it too."""
    return {**GROUP_METADATA, ALL: {"zarr_consolidated_format": 1, "metadata": below}}


def _save(directory: Path, metadata: Metadata, files: Collection[str]) -> None:
    texts = {n: json.dumps(c, indent=1).encode() for n, c in metadata.items() if n in files}
    for name, text in texts.items():
        write_whole(directory / name, functools.partial(_write, text))


def _write(text: bytes, file: IO[bytes]) -> None:
    file.write(text)
