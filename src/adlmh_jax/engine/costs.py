"""What a move of each entry costs, estimated from the operations that it consists of.

Times would be exact, but would need every branch to be compiled and run on its own before a run,
and would make its draws hang on what else the machine does.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.engine.entry import Steps, first_steps, view_entry
from adlmh_jax.moves import Kernel, KernelData
from adlmh_jax.types import Array, Chains, as_array, float_type

# In units of what every step does, whatever it moves. From the times of 31 entries of ten models,
# 64 chains each, by least squares: estimates are off by a factor of 1.5 (root mean square).
PLAIN = 4e-5  # a number that is added, compared or chosen: many are computed at once
DEAR = 5e-3  # a logarithm or an exponential; a number that is fetched or put elsewhere
LINEAR = 0.015  # a number of a product of matrices, or of a decomposition
SPECIAL = 0.05  # a gamma function and the like
RANDOM = 0.1  # a random number
TURN = 0.08  # a turn of a loop
KINDS = {
    DEAR: "cbrt concatenate dynamic_slice exp exp2 expm1 gather log log1p logistic pow rsqrt "
    "scatter sort sqrt tanh",
    LINEAR: "cholesky dot_general triangular_solve",
    SPECIAL: "acos asin atan atan2 cos cosh digamma erf erf_inv erfc igamma igammac lgamma "
    "regularized_incomplete_beta sin sinh tan",
    RANDOM: "random_bits random_gamma threefry2x32",
}
PRICES = {name: price for price, names in KINDS.items() for name in names.split()}
LOOPS = ("scan", "while")


def estimate_costs(kernel: Kernel, data: KernelData, chains: Chains) -> Array:
    """Return the costs of all entries, ``[M]``, in units of an empty step.

    Parameters
    ----------
    kernel, data
        From `build_kernel`.
    chains
        Shapes of a single chain.
    """
    group_of = np.asarray(data.group_of)
    words = jax.ShapeDtypeStruct((kernel.num_words, 1), jnp.uint32)
    steps = jax.eval_shape(lambda: first_steps(kernel))

    def work_of(index: int) -> float:
        variant, entry = (np.int32(numbers[0]) for numbers in np.nonzero(group_of == index))

        def move(
            data: KernelData,
            place: tuple[Array, Array],
            chains: Chains,
            words: Array,
            steps: Steps,
        ) -> Chains:
            return view_entry(kernel, data, index, *place).move(words, chains, steps)[0]

        # Everything is an argument: what is not would be computed, and compiled, at once.
        traced = jax.make_jaxpr(move)(data, (entry, variant), chains, words, steps)
        return price(traced.jaxpr)

    work = np.array([work_of(index) for index in range(len(kernel.groups))])
    return as_array(1.0 + work[group_of].mean(axis=0), float_type())


def price(jaxpr: Any) -> float:
    """Return about what a computation costs, for each of many chains."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [
            part
            for value in equation.params.values()
            for part in (value if isinstance(value, tuple | list) else (value,))
            if hasattr(part, "eqns") or hasattr(part, "jaxpr")
        ]
        name = equation.primitive.name
        if inner:
            turns = equation.params.get("length", 1)
            if name == "cond":  # one of the branches is run
                turns = 1 / len(inner)
            once = sum(price(getattr(part, "jaxpr", part)) for part in inner)
            total += turns * (once + (TURN if name in LOOPS else 0.0))
        elif name == "dynamic_update_slice":  # in place
            total += math.prod(equation.invars[1].aval.shape) * DEAR
        else:
            size = sum(math.prod(out.aval.shape) for out in equation.outvars)
            total += size * PRICES.get(name, PLAIN)
    return total
