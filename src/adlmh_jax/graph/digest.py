"""Short texts that tell a computation, and the data in it, from others: in any process."""

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from jax.extend import core

from adlmh_jax.graph.constants import to_bytes
from adlmh_jax.graph.graph import Graph

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest_computation(graph: Graph, wanted: Iterable[int]) -> str:
    """Return a digest of the operations that compute some values, with the model's literals."""
    state = hashlib.blake2b(digest_size=16)

    def take(*parts: Any) -> None:
        state.update(repr(parts).encode())

    wanted = list(wanted)
    take(sorted(graph.inputs.items()), wanted)
    for index in graph.ancestors(wanted):
        node = graph.nodes[index]
        params = [(name, _stable(node.params[name])) for name in sorted(node.params)]
        take(node.primitive.name, params, node.inputs, node.outputs)
    for number in sorted(graph.literals):
        take(number, _stable(np.asarray(graph.constants[number])))
    for number, aval in enumerate(graph.avals):
        take(number, aval.shape, str(aval.dtype))
    return state.hexdigest()


def digest_data(graph: Graph) -> str:
    """Return a digest of the constants that are no literals."""
    state = hashlib.blake2b(digest_size=16)
    for number in sorted(set(graph.constants) - graph.literals):
        value = graph.constants[number]
        state.update(f"{number} {value.shape} {value.dtype} ".encode())
        state.update(to_bytes(value))
    return state.hexdigest()


def _stable(value: Any) -> Any:
    """Return what stands for a parameter in every process: no addresses in memory."""
    if isinstance(value, core.ClosedJaxpr):
        return str(value.jaxpr), [_stable(constant) for constant in value.consts]
    if isinstance(value, (tuple, list)):
        return [_stable(item) for item in value]
    if isinstance(value, dict):
        return [(key, _stable(item)) for key, item in value.items()]
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return value.shape, str(value.dtype), to_bytes(value)
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return ADDRESS.sub("", str(value))
