"""What each component has to do with each output: how much of its variance it explains.

Values are seen through two *features*: the value, standardised and clipped, and what its square
says beyond it. Together they span all functions of two or three values, and the functions of
second order of others. A component explains of an output the sum of their squared correlations.

Squares of noisy numbers are too large on average. So chains form groups that know nothing of each
other, and the square of a correlation is the mean product over pairs of groups, a U-statistic: its
noise has mean zero. Where there are few chains, parts of the time stand for groups.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.types import Array, Sight, Sizes, as_array, float_type

NUM_GROUPS = 16
MAX_OUTPUTS = 16  # that are looked at one by one; of more, random sums
NUM_SUMS = 16
MAX_NUMBERS = 1 << 22  # of products in a superchain, unless its chains take more
CLIP = 4.0  # standard deviations: one far value must not outweigh all others
MIN_CURVATURE = 0.01  # of a square that says less beyond the value, nothing is asked
MIN_VARIANCE = 1e-5  # of the mean square: what has less does not move, but for rounding
THRESHOLD = 4.0  # standard deviations of the noise: what explains less explains nothing


class Units(NamedTuple):
    """How numbers become features: centre, spread, skewness and curvature of each."""

    centre: Array
    spread: Array
    skewness: Array
    curvature: Array


class Window(NamedTuple):
    """Sums over a stretch of warm-up; the groups are parts of time x groups of chains.

    Attributes
    ----------
    number
        Snapshots in each part of the time, ``[P]``.
    values, outputs
        Sums of the features of latent scalars, ``[P, G, 2R]``, and of outputs, ``[P, G, J]``.
    products
        Of both, ``[P, G, 2R, J]``.
    value_powers, output_powers
        Sums of the first four powers of standardised numbers, ``[4, R]`` and ``[4, K]``.
    value_squares, output_squares
        Sums of squares of the features, ``[2R]`` and ``[J]``.
    jumps, tries
        Squared jumps, and moves, of each slot, ``[L]``.
    """

    number: Array
    values: Array
    outputs: Array
    products: Array
    value_powers: Array
    output_powers: Array
    value_squares: Array
    output_squares: Array
    jumps: Array
    tries: Array


class Groups(NamedTuple):
    """How a superchain is divided: parts of time, groups of chains, and sums of outputs (or 0)."""

    num_parts: int
    num_groups: int
    num_sums: int


def plan_groups(sizes: Sizes) -> Groups:
    """Divide a superchain so that what is kept of it is bounded."""
    num_groups = min(sizes.num_chains, NUM_GROUPS)
    num_parts = -(-NUM_GROUPS // num_groups)
    num_sums = 0 if sizes.num_outputs <= MAX_OUTPUTS else NUM_SUMS
    room = max(MAX_NUMBERS // (2 * sizes.num_scalars), sizes.num_chains)
    while num_sums > 4 and num_parts * num_groups * num_sums > room:
        num_sums //= 2
    return Groups(num_parts, num_groups, num_sums)


def init_window(sizes: Sizes) -> Window:
    """Return the sums of nothing."""
    groups = plan_groups(sizes)
    num_features = groups.num_sums or 2 * sizes.num_outputs
    each = (groups.num_parts, groups.num_groups)

    def zeros(*shape: int) -> Array:
        return as_array(np.zeros(shape), float_type())

    return Window(
        number=zeros(groups.num_parts),
        values=zeros(*each, 2 * sizes.num_scalars),
        outputs=zeros(*each, num_features),
        products=zeros(*each, 2 * sizes.num_scalars, num_features),
        value_powers=zeros(4, sizes.num_scalars),
        output_powers=zeros(4, sizes.num_outputs),
        value_squares=zeros(2 * sizes.num_scalars),
        output_squares=zeros(num_features),
        jumps=zeros(sizes.num_slots),
        tries=zeros(sizes.num_slots),
    )


def init_units(number: int) -> Units:
    """Return units of numbers of which nothing is known."""
    zeros, ones = np.zeros(number, float_type()), np.ones(number, float_type())
    return Units(*map(as_array, (zeros, ones, zeros, zeros)))


def first_units(values: Array) -> Units:
    """Return units from one look at the chains, ``[R, C]``."""
    values = jnp.where(jnp.isfinite(values), values, 0.0)
    centre = jnp.median(values, axis=1)
    distances = jnp.median(jnp.abs(values - centre[:, None]), axis=1)
    spread = jnp.where(distances > 0.0, 1.5 * distances, 1.0 + jnp.abs(centre))
    zeros = jnp.zeros_like(centre)
    return Units(centre, spread, zeros, zeros)


def standardise(values: Array, units: Units) -> Array:
    """Return numbers ``[R, C]`` in their units, clipped; 0 for what is no number."""
    scaled = (values - units.centre[:, None]) / units.spread[:, None]
    return jnp.where(jnp.isnan(scaled), 0.0, jnp.clip(scaled, -CLIP, CLIP))


def to_features(scaled: Array, units: Units) -> Array:
    """Return the two features of standardised numbers, ``[2R, C]``: all first ones come first."""
    beyond = scaled**2 - 1.0 - units.skewness[:, None] * scaled
    has_curvature = units.curvature > MIN_CURVATURE
    scale = jnp.where(has_curvature, lax.rsqrt(jnp.maximum(units.curvature, MIN_CURVATURE)), 0.0)
    return jnp.concatenate([scaled, beyond * scale[:, None]])


def look(window: Window, units: tuple[Units, Units], sight: Sight, part: Array) -> Window:
    """Take in the end of an epoch, in the given part of the window's time."""
    num_groups, num_features = window.outputs.shape[1:]
    scaled = standardise(sight.values, units[0]), standardise(sight.outputs, units[1])
    values, outputs = to_features(scaled[0], units[0]), to_features(scaled[1], units[1])
    # Whole numbers are estimated as distributions, others as means: of these, no squares.
    of_outputs = jnp.concatenate([jnp.ones_like(sight.anatomy.is_count), sight.anatomy.is_count])
    outputs = outputs * of_outputs[:, None]
    if num_features != outputs.shape[0]:
        signs = _random_signs(num_features, outputs.shape[0])
        outputs = signs @ outputs * (num_features**-0.5)
    size = values.shape[1] // num_groups
    used = size * num_groups
    by_group = [f[:, :used].reshape(-1, num_groups, size) for f in (values, outputs)]
    products = jnp.einsum("rgc,jgc->grj", *by_group)

    def powers(scaled: Array) -> Array:
        return jnp.stack([jnp.mean(scaled**power, axis=1) for power in (1, 2, 3, 4)])

    return Window(
        number=window.number.at[part].add(1.0),
        values=window.values.at[part].add(jnp.mean(by_group[0], axis=2).T),
        outputs=window.outputs.at[part].add(jnp.mean(by_group[1], axis=2).T),
        products=window.products.at[part].add(products / size),
        value_powers=window.value_powers + powers(scaled[0]),
        output_powers=window.output_powers + powers(scaled[1]),
        value_squares=window.value_squares + jnp.mean(values**2, axis=1),
        output_squares=window.output_squares + jnp.mean(outputs**2, axis=1),
        jumps=window.jumps + sight.jumps,
        tries=window.tries + sight.tries,
    )


def _random_signs(num_sums: int, num_features: int) -> Array:
    """Return the signs with which the features of outputs enter random sums."""
    bits = jax.random.bits(jax.random.key(0), (num_sums, num_features), "uint8")
    return jnp.where(bits & 1, 1.0, -1.0)


def new_units(units: Units, powers: Array, number: Array) -> Units:
    """Return the units that the powers of a window say are right."""
    mean, second, third, fourth = powers / jnp.maximum(number, 1.0)
    variance = second - mean**2
    has_moved = variance > MIN_VARIANCE * second
    sd = jnp.sqrt(jnp.where(has_moved, variance, 1.0))
    skewness = (third - 3 * mean * second + 2 * mean**3) / sd**3
    kurtosis = (fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4) / sd**4
    return Units(
        units.centre + units.spread * mean,
        units.spread * sd,
        jnp.where(has_moved, skewness, 0.0),
        jnp.where(has_moved, kurtosis - 1.0 - skewness**2, 0.0),
    )


def explain(window: Window, num_outputs: int) -> tuple[Array, Array]:
    """Return what latent scalars explain of outputs, unbiased and so sometimes below 0; its noise.

    Both are ``[R, J]``, for each feature of an output: its share of variance explained. Of random
    sums, what is explained of all outputs is found by adding them up.
    """
    number = jnp.maximum(jnp.sum(window.number), 1.0)
    each = jnp.maximum(window.number, 1.0)[:, None, None]
    values, outputs = window.values / each, window.outputs / each
    mean_value = jnp.mean(jnp.sum(window.values, axis=0), axis=0) / number
    mean_output = jnp.mean(jnp.sum(window.outputs, axis=0), axis=0) / number
    covariances = (
        window.products / each[..., None]
        - values[..., None] * mean_output
        - mean_value[:, None] * outputs[..., None, :]
        + mean_value[:, None] * mean_output
    )
    is_seen = jnp.repeat(window.number > 0, values.shape[1])
    covariances = covariances.reshape(-1, *covariances.shape[2:])
    covariances = jnp.where(is_seen[:, None, None], covariances, 0.0)
    square, noise = square_of_mean(covariances, jnp.sum(is_seen))
    value_variance = _variance(window.value_squares / number, mean_value)
    output_variance = _variance(window.output_squares / number, mean_output)
    if mean_output.size != 2 * num_outputs:  # of random sums: what they are sums of has variance 1
        output_variance = jnp.ones_like(output_variance)
    variance = value_variance[:, None] * output_variance
    is_moving = variance > 0.0
    scale = jnp.where(is_moving, 1.0 / jnp.where(is_moving, variance, 1.0), 0.0)

    def add_features(array: Array) -> Array:
        return array.reshape(2, -1, array.shape[-1]).sum(axis=0)

    return add_features(square * scale), jnp.sqrt(add_features((noise * scale) ** 2))


def _variance(second: Array, mean: Array) -> Array:
    """Return variances from mean squares and means; 0 for what does not move."""
    variance = second - mean**2
    return jnp.where(variance > MIN_VARIANCE * second, variance, 0.0)


def square_of_mean(numbers: Array, count: Array) -> tuple[Array, Array]:
    """Return an unbiased square of the mean of independent numbers, and the sd of its noise.

    The numbers ``[G, ...]`` may have zeros among them that do not count. The noise is that around a
    mean of zero.
    """
    pairs = jnp.maximum(count * (count - 1), 1)
    total, squares = jnp.sum(numbers, axis=0), jnp.sum(numbers**2, axis=0)
    variance = (squares - total**2 / jnp.maximum(count, 1)) / jnp.maximum(count - 1, 1)
    return (total**2 - squares) / pairs, jnp.sqrt(2.0 / pairs) * variance
