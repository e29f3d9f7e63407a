"""Keys: every random number of a run follows from one key and the number of its superchain."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph import threefry
from adlmh_jax.types import Key, as_array

START = 0xFFFFFFFF  # in the place of a superchain's number: the key of the starting points


def make_key(key: Any) -> Key:
    """Return a key; integers beyond 32 bits keep all their bits."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if not -(2**63) <= key < 2**64:
            raise ValueError(f"`key` must be an integer of at most 64 bits, got {key}.")
        words = np.array([(int(key) >> 32) & 0xFFFFFFFF, int(key) & 0xFFFFFFFF], np.uint32)
        return jax.random.wrap_key_data(as_array(words), impl="threefry2x32")
    if not isinstance(key, jax.Array):
        raise TypeError(
            f"`key` must be `jax.random.key(seed)` or an integer, got {key!r} of type "
            f"{type(key).__name__}."
        )
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape != (2,) or key.dtype != jnp.uint32:
            raise TypeError(
                "`key` must be `jax.random.key(seed)` or an integer, got an array of shape "
                f"{key.shape} and dtype {key.dtype}."
            )
        return jax.random.wrap_key_data(key, impl="threefry2x32")
    if key.shape:
        raise TypeError(
            f"`key` must be a single key, got an array of keys of shape {key.shape}. One key "
            "serves all chains."
        )
    return key


def fold_in(key: Key, number: int) -> Key:
    """Return what `jax.random.fold_in` does, without compiling it."""
    words = _fold_in(key, np.array([number]))[0]
    return jax.random.wrap_key_data(as_array(words), impl="threefry2x32")


def superchain_keys(key: Key, num_superchains: int) -> np.ndarray:
    """Return the words of the key of each superchain, ``[S, 2]``."""
    return _fold_in(key, np.arange(num_superchains))


def _fold_in(key: Key, numbers: np.ndarray) -> np.ndarray:
    """Return the words of the keys with these numbers folded in."""
    first, second = np.asarray(jax.random.key_data(key))
    counters = numbers.astype(np.uint32)
    pair = np.full_like(counters, first), np.full_like(counters, second)
    return np.stack(threefry(pair, (np.zeros_like(counters), counters)), axis=-1)


def seed_of(key: Key) -> int:
    """Return the key as one integer."""
    words = np.asarray(jax.random.key_data(key)).ravel()
    return int("".join(f"{int(word):08x}" for word in words), 16)
