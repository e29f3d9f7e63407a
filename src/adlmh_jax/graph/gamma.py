"""Gamma variates of few numbers at a time.

JAX's own sampler hashes its keys in loops made for large arrays: for a proposal of some hundred
chains they take ten times as long as all the rest of a step. Here a try is one hash of two words.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.types import Array, Key

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Hash a counter of two words with a key of two words: Threefry-2x32 of 20 rounds."""
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    left, right = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            left = left + right
            right = (right << distance) | (right >> (32 - distance))
            right = left ^ right
        left = left + keys[(group + 1) % 3]
        right = right + keys[(group + 2) % 3] + np.uint32(group + 1)
    return left, right


def draw_gamma(key: Key, alpha: Array, log_space: bool) -> Array:
    """Draw gamma variates of shape parameters ``alpha``, or their logarithms.

    Marsaglia and Tsang (2000): most tries succeed. Below one, a variate of ``alpha + 1`` is
    multiplied by a power of a uniform number.
    """
    words = jax.random.key_data(key)
    extra = alpha.ndim - key.ndim
    shape = key.shape + (1,) * extra
    pair = (words[..., 0].reshape(shape), words[..., 1].reshape(shape))
    number = lax.broadcasted_iota(jnp.uint32, (alpha.size,), 0).reshape(alpha.shape)
    is_small = alpha < 1.0
    d = jnp.where(is_small, alpha + 1.0, alpha) - 1.0 / 3.0
    c = 1.0 / (3.0 * jnp.sqrt(d))

    def attempt(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, cube, is_done = state
        first, second = threefry(pair, (number, jnp.full_like(number, count)))
        x = np.float32(np.sqrt(2.0)) * lax.erf_inv(2.0 * _uniform(first) - 1.0)
        new = (1.0 + c * x) ** 3
        safe = jnp.where(new > 0.0, new, 1.0)
        bound = 0.5 * x * x + d * (1.0 - safe + jnp.log(safe))
        is_good = (new > 0.0) & (jnp.log(_uniform(second)) < bound)
        return count + 1, jnp.where(is_done, cube, safe), is_done | is_good | jnp.isnan(d)

    start = (jnp.uint32(0), jnp.ones_like(alpha), jnp.zeros(alpha.shape, bool))
    _, cube, _ = lax.while_loop(lambda state: ~jnp.all(state[2]), attempt, start)
    last, _ = threefry(pair, (number, jnp.full_like(number, np.uint32(0xFFFFFFFF))))
    log_boost = jnp.where(is_small, jnp.log(_uniform(last)) / alpha, 0.0)
    if log_space:
        return jnp.log(d) + jnp.log(cube) + log_boost
    return d * cube * jnp.exp(log_boost)


def _uniform(words: Array) -> Array:
    """Return numbers strictly between 0 and 1, of 24 bits."""
    return ((words >> 8).astype(jnp.float32) + 0.5) * np.float32(2.0**-24)


def can_draw(key: Any, alpha: Any) -> bool:
    """Whether `draw_gamma` can stand in for JAX's sampler: Threefry keys, single precision."""
    is_threefry = str(key.dtype) == "key<fry>"
    return is_threefry and alpha.dtype == jnp.float32 and alpha.size < 2**32 - 1
