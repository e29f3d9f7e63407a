"""Keys: every random number of a run follows from one key and the number of its superchain."""

from collections.abc import Sequence
from typing import Any, NamedTuple

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
    words = fold_in_words(words_of(key), np.array(number))
    return jax.random.wrap_key_data(as_array(words), impl="threefry2x32")


class Addresses(NamedTuple):
    """What tells superchains from each other, ``[S]``: all that becomes of them follows from it.

    Attributes
    ----------
    numbers
        Number of each in the run of its data set.
    datasets
        The data set that each reads; 0 where there is but one.
    run_keys, start_keys
        Words of the keys of their steps and of their starting points, ``[S, 2]``.
    """

    numbers: np.ndarray
    datasets: np.ndarray
    run_keys: np.ndarray
    start_keys: np.ndarray

    def fill(self, size: int) -> "Addresses":
        """Return as many as there is room for: the last one runs again, in vain."""
        which = np.minimum(np.arange(size), len(self.numbers) - 1)
        return Addresses(*(array[which] for array in self))


def address(keys: Sequence[Key], numbers: Sequence[int]) -> Addresses:
    """Return the addresses of these superchains of every data set, given a key for each of them."""
    words = np.stack([words_of(key) for key in keys])[:, None]
    every = np.broadcast_to(np.asarray(numbers), (len(keys), len(numbers)))
    own = np.broadcast_to(np.arange(len(keys))[:, None], every.shape)
    starts = fold_in_words(words, np.array(START))
    return Addresses(
        numbers=every.ravel(),
        datasets=own.ravel(),
        run_keys=fold_in_words(words, every).reshape(-1, 2),
        start_keys=fold_in_words(starts, every).reshape(-1, 2),
    )


def words_of(key: Key) -> np.ndarray:
    """Return the two words of a key."""
    return np.asarray(jax.random.key_data(key))


def fold_in_words(words: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Fold numbers ``[...]`` into keys given by their words ``[..., 2]``."""
    first, second, counters = np.broadcast_arrays(words[..., 0], words[..., 1], numbers)
    counters = counters.astype(np.uint32)
    with np.errstate(over="ignore"):  # words wrap around
        return np.stack(threefry((first, second), (np.zeros_like(counters), counters)), axis=-1)


def seed_of(key: Key) -> int:
    """Return the key as one integer."""
    words = words_of(key).ravel()
    return int("".join(f"{int(word):08x}" for word in words), 16)
