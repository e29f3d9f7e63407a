"""Where named arrays live inside a few flat ones: one *bank* of rows for each dtype."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.types import Array

Rows = tuple[tuple[str, int, int], ...]  # (bank, offset, size)


@dataclass(frozen=True)
class Slot:
    """The rows of one named array.

    Attributes
    ----------
    bank
        Name of the dtype, which is the name of the bank.
    offset
        First row.
    shape
        Shape of the array, without the chain axis.
    """

    bank: str
    offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of rows."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The slots of a set of named arrays, in order."""

    names: tuple[str, ...]
    slots: tuple[Slot, ...]

    @cached_property
    def _by_name(self) -> dict[str, Slot]:
        return dict(zip(self.names, self.slots, strict=True))

    def __getitem__(self, name: str) -> Slot:
        """Return the slot of ``name``."""
        return self._by_name[name]

    @cached_property
    def starts(self) -> dict[str, int]:
        """Number of the first scalar of each array when all are counted through."""
        ends = itertools.accumulate((slot.size for slot in self.slots), initial=0)
        return dict(zip(self.names, ends, strict=False))

    @property
    def num_scalars(self) -> int:
        """Number of scalars in all arrays."""
        return sum(slot.size for slot in self.slots)

    @cached_property
    def bank_sizes(self) -> dict[str, int]:
        """Number of rows of each bank."""
        sizes: dict[str, int] = {}
        for slot in self.slots:
            sizes[slot.bank] = max(sizes.get(slot.bank, 0), slot.offset + slot.size)
        return sizes

    def rows(self, names: Iterable[str] | None = None) -> Rows:
        """Return where some arrays live, in their order; neighbours are taken together."""
        merged: list[tuple[str, int, int]] = []
        for slot in map(self.__getitem__, self.names if names is None else names):
            bank, offset, size = merged[-1] if merged else ("", 0, 0)
            if bank == slot.bank and offset + size == slot.offset:
                merged[-1] = (bank, offset, size + slot.size)
            else:
                merged.append((slot.bank, slot.offset, slot.size))
        return tuple(merged)

    def pack(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """Flatten arrays ``[C, *shape]`` into banks ``[rows, C]``."""
        # NumPy's arrays stay its own: nothing is compiled for them.
        library = np if all(isinstance(value, np.ndarray) for value in values.values()) else jnp
        parts: dict[str, list[Any]] = {bank: [] for bank in self.bank_sizes}
        for name, slot in zip(self.names, self.slots, strict=True):
            value = library.asarray(values[name], slot.bank)
            parts[slot.bank].append(value.reshape(value.shape[0], -1).T)
        return {bank: library.concatenate(rows) for bank, rows in parts.items()}

    def unpack(self, banks: Mapping[str, Array]) -> dict[str, Array]:
        """Invert `pack`; further leading axes of the banks stay in front of the chain's."""
        values = {}
        for name, slot in zip(self.names, self.slots, strict=True):
            rows = banks[slot.bank][..., slot.offset : slot.offset + slot.size, :]
            value = rows.swapaxes(-1, -2)
            values[name] = value.reshape(*value.shape[:-1], *slot.shape)
        return values


def take_rows(banks: Mapping[str, Array], rows: Rows) -> list[Array]:
    """Return the rows ``[..., size, C]`` of banks ``[..., rows, C]``, in order."""
    return [banks[bank][..., offset : offset + size, :] for bank, offset, size in rows]


def make_layout(shapes: Mapping[str, tuple[tuple[int, ...], str]]) -> Layout:
    """Lay out arrays of the given ``(shape, dtype)`` one after the other."""
    ends: dict[str, int] = {}
    slots = []
    for shape, bank in shapes.values():
        slot = Slot(bank, ends.get(bank, 0), tuple(shape))
        ends[bank] = slot.offset + slot.size
        slots.append(slot)
    return Layout(tuple(shapes), tuple(slots))


def read_rows(bank: Array, offset: Array | int, size: int) -> Array:
    """Return ``size`` rows ``[size, C]`` from ``offset``, without a copy where XLA can fuse it."""
    if isinstance(offset, int):
        return lax.slice_in_dim(bank, offset, offset + size, axis=0)
    return lax.dynamic_slice_in_dim(bank, offset, size, axis=0, allow_negative_indices=False)


def write_rows(bank: Array, rows: Array, offset: Array | int) -> Array:
    """Return the bank with ``rows`` at ``offset``; in place inside a loop."""
    return lax.dynamic_update_slice_in_dim(bank, rows, offset, 0, allow_negative_indices=False)


def read_row(array: Array, index: Array | int) -> Array:
    """Return ``array[index]``; JAX would look whether the index is negative, at each of them."""
    return lax.dynamic_index_in_dim(array, index, keepdims=False, allow_negative_indices=False)
