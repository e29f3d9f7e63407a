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

STEP = 1000.0  # operations on a number that take as long as what every step does (fitted by eye)
DEAR = 10.0  # operations that a function such as a logarithm takes
RANDOM = 30.0  # and a random number
DEAR_OPERATIONS = frozenset(
    "acos asin atan atan2 cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1 igamma igammac "
    "lgamma log log1p logistic pow regularized_incomplete_beta sin sinh tan tanh".split()
)
RANDOM_OPERATIONS = frozenset({"threefry2x32", "random_bits", "random_gamma"})
PRICES = dict.fromkeys(DEAR_OPERATIONS, DEAR) | dict.fromkeys(RANDOM_OPERATIONS, RANDOM)


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
        return count_operations(traced.jaxpr)

    work = np.array([work_of(index) for index in range(len(kernel.groups))])
    return as_array(1.0 + work[group_of].mean(axis=0) / STEP, float_type())


def count_operations(jaxpr: Any) -> float:
    """Return about how many operations on single numbers a computation consists of."""
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
            total += turns * sum(count_operations(getattr(p, "jaxpr", p)) for p in inner)
        elif name == "dynamic_update_slice":  # in place
            total += math.prod(equation.invars[1].aval.shape)
        else:
            size = sum(math.prod(out.aval.shape) for out in equation.outvars)
            total += size * PRICES.get(name, 1.0)
    return total
