"""Binomial variates of few numbers at a time, whatever their parameters are.

NumPyro's sampler never ends where chains run together (`jax.vmap`) and one of them has a
probability below 0: its checks become choices between values that are both computed. Proposals that
are about to be rejected have such probabilities: an epidemic with -1 infected. Here all numbers are
drawn in one loop, whose turn is one hash of two words, and nothing is drawn with parameters that
make no sense.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from adlmh_jax.graph.gamma import threefry
from adlmh_jax.types import Array, Key

MIN_MEAN = 10.0  # of what is drawn by rejection, which is good from there on
SQUEEZE = 0.43  # |u| up to which Hörmann takes v <= v_r without a look at the density
# log k! less Stirling's (k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2, for k = 0 .. 9
TAILS = (
    0.0810614667953272,
    0.0413406959554093,
    0.0276779256849983,
    0.0207906721037651,
    0.0166446911898212,
    0.0138761288230707,
    0.0118967099458918,
    0.0104112652619720,
    0.0092554621827127,
    0.0083305634333629,
)


def draw_binomial(key: Key, probs: Array, counts: Array) -> Array:
    """Draw binomial variates; parameters that make no sense give 0.

    Of a mean below 10, the gaps between successes are added up; from there on it is the rejection
    of Hörmann (1993), algorithm BTRS. The mean is that of the rarer outcome.
    """
    words = jax.random.key_data(key)
    number = lax.broadcasted_iota(jnp.uint32, (probs.size,), 0).reshape(probs.shape)
    is_known = (probs > 0) & (probs < 1) & (counts > 0)
    # Where there is nothing to draw, or not in this way, numbers that make sense stand in.
    n = jnp.where(is_known, counts, 1).astype(probs.dtype)
    p = jnp.where(is_known, jnp.minimum(probs, 1 - probs), 0.5)
    is_large = n * p >= MIN_MEAN
    log_miss = jnp.log1p(-jnp.where(is_large, 0.5, p))
    reject = _rejection(jnp.where(is_large, n, 40.0), jnp.where(is_large, p, 0.5))

    def attempt(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        turn, drawn, place, is_done = state
        pair = threefry((words[0], words[1]), (number, jnp.full_like(number, turn)))
        u, v = (_uniform(word, probs.dtype) for word in pair)
        tried, is_good = reject(u, v)
        place = place + jnp.floor(jnp.log(u) / log_miss) + 1  # of the next success
        is_over = place > n
        new = jnp.where(is_large, tried, jnp.where(is_over, drawn, drawn + 1))
        ends = jnp.where(is_large, is_good, is_over)
        return turn + 1, jnp.where(is_done, drawn, new), place, is_done | ends

    start = (jnp.uint32(0), jnp.zeros_like(n), jnp.zeros_like(n), ~is_known)
    rarer = lax.while_loop(lambda state: ~jnp.all(state[3]), attempt, start)[1]
    rarer = rarer.astype(counts.dtype)
    is_certain = (probs >= 1) & (counts > 0)
    others = jnp.where(is_certain, counts, 0)
    return jnp.where(is_known, jnp.where(probs <= 0.5, rarer, counts - rarer), others)


def _rejection(n: Array, p: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return what makes of two uniform numbers a variate, and whether it is to be taken.

    Names are those of Hörmann's paper.
    """
    mean, log_odds = n * p, jnp.log(p) - jnp.log1p(-p)
    deviation = jnp.sqrt(mean * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * deviation
    v_r = 0.92 - 4.2 / b
    m = jnp.floor((n + 1) * p)
    h = (m + 0.5) * (jnp.log((m + 1) / (n - m + 1)) - log_odds) + _tail(m) + _tail(n - m)

    def reject(u: Array, v: Array) -> tuple[Array, Array]:
        u = u - 0.5
        to_edge = 0.5 - jnp.abs(u)
        tried = jnp.floor((2 * a / to_edge + b) * u + mean + 0.5)
        is_inside = (tried >= 0) & (tried <= n)
        k = jnp.where(is_inside, tried, m)
        log_f = (
            h
            + (n + 1) * jnp.log((n - m + 1) / (n - k + 1))
            + (k + 0.5) * (jnp.log((n - k + 1) / (k + 1)) + log_odds)
            - _tail(k)
            - _tail(n - k)
        )
        is_below = jnp.log(v * alpha / (a / to_edge**2 + b)) <= log_f
        is_squeezed = (jnp.abs(u) <= SQUEEZE) & (v <= v_r)
        return k, is_inside & (is_squeezed | is_below)

    return reject


def _tail(k: Array) -> Array:
    """Return what log k! is more than Stirling's formula, for k of at least zero."""
    inverse = 1 / (k + 1)
    square = inverse * inverse
    tail = (1 / 12 - (1 / 360 - square / 1260) * square) * inverse
    for small, exact in enumerate(TAILS):
        tail = jnp.where(k == small, exact, tail)
    return tail


def _uniform(words: Array, dtype: Any) -> Array:
    """Return numbers strictly between 0 and 1, of 24 bits in single precision."""
    if jnp.finfo(dtype).bits > 32:
        return (words.astype(dtype) + 0.5) * 2.0**-32
    return ((words >> 8).astype(dtype) + 0.5) * 2.0**-24
