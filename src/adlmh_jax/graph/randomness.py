"""Random draws from plain random words.

A draw written with `jax.random` spends most of its time hashing keys when it makes a handful of
numbers. The sampler therefore makes random words in bulk and hands them to the draws: in the graph
of a draw, every ``random_bits`` becomes an input, and whatever needs a real key (rejection
samplers) gets one made of two words.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph.graph import Graph
from adlmh_jax.types import Array, as_array

# Beyond this many words a draw is large enough to hash for itself.
MAX_BULK_WORDS = 16
KEY_WORDS = 2
_DERIVING = {
    "random_split",
    "random_fold_in",
    "slice",
    "squeeze",
    "reshape",
    "transpose",
    "dynamic_slice",
    "gather",
    "broadcast_in_dim",
    "concatenate",
    "copy",
    "copy_p",
}


@dataclass(frozen=True)
class Noise:
    """A value of the graph that is made of random words.

    Attributes
    ----------
    kind
        ``"bits"``, or ``"key"`` for a key made of two words.
    shape, dtype
        Of the value.
    start
        Its first word within the draw's words.
    """

    kind: str
    shape: tuple[int, ...]
    dtype: str
    start: int

    @property
    def num_words(self) -> int:
        """How many words it takes."""
        each = KEY_WORDS if self.kind == "key" or self.dtype == "uint64" else 1
        return each * math.prod(self.shape)

    def make(self, words: Array) -> Array:
        """Make the value from a chain's words ``[W]``."""
        mine = words[self.start : self.start + self.num_words]
        if self.kind == "key":
            data = mine.reshape(*self.shape, KEY_WORDS)
            return jax.random.wrap_key_data(data, impl="threefry2x32")
        if self.dtype == "uint64":
            pairs = mine.reshape(*self.shape, 2).astype(jnp.uint64)
            return (pairs[..., 0] << 32) | pairs[..., 1]
        return mine.reshape(self.shape).astype(self.dtype)


def key_struct() -> jax.ShapeDtypeStruct:
    """Return the type of the key that a traced draw takes."""
    return jax.ShapeDtypeStruct((), fixed_key().dtype)


def fixed_key() -> Array:
    """Return ``jax.random.key(0)``, without the compilation of it."""
    words = as_array(np.zeros(KEY_WORDS), np.uint32)
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def noise_sources(
    graph: Graph, wanted: list[int], key: int, start: int, parts: frozenset[int] = frozenset()
) -> dict[int, Noise]:
    """Return the values at which random words enter the computation of ``wanted`` from ``key``.

    Parts of random bits and keys, if there are any, are bits and keys of their own.
    """
    keys = {key}
    sources: dict[int, Noise] = {}
    end = start

    def add(number: int, kind: str) -> None:
        nonlocal end
        aval = graph.avals[number]
        if number not in sources:
            sources[number] = Noise(kind, aval.shape, str(aval.dtype), end)
            end += sources[number].num_words

    needed = graph.ancestors(wanted, parts)
    used_parts = parts & {number for index in needed for number in graph.nodes[index].inputs}
    for number in sorted(used_parts | parts.intersection(wanted)):
        add(number, "key" if _is_key(graph.avals[number]) else "bits")
    for index in needed:
        node = graph.nodes[index]
        used = [number for number in node.inputs if number in keys]
        if not used:
            continue
        output = graph.avals[node.outputs[0]]
        if node.primitive.name == "random_bits":
            add(node.outputs[0], "bits")
        elif node.primitive.name in _DERIVING and _is_key(output):
            keys.update(node.outputs)
        else:
            for number in used:
                add(number, "key")
    if end - start <= MAX_BULK_WORDS or used_parts:
        return sources
    aval = graph.avals[key]
    return {key: Noise("key", aval.shape, str(aval.dtype), start)}


def _is_key(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)
