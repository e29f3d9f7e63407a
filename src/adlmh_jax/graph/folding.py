"""Values that are known before a model runs: data, literals, and what follows from them alone.

Running each operation as it is met would compile it by itself. They are put off until the first
value is asked for, and then compiled together; those that only move or compare numbers are done by
NumPy, which compiles nothing.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph.constants import PerDataset, of_dataset
from adlmh_jax.graph.operations import Code, Fragment, Node, run_unfused, run_unfused_at_each

# Cheap to recompute and larger than their inputs: they stay nodes even when their value is known.
EXPANDING = {"broadcast_in_dim", "iota"}


def _broadcast(params: dict[str, Any], operand: np.ndarray) -> np.ndarray:
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], operand.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(operand.reshape(shape), params["shape"])


def _count(params: dict[str, Any]) -> np.ndarray:
    shape, axis = params["shape"], params["dimension"]
    along = np.arange(shape[axis]).astype(params["dtype"])
    others = tuple(other for other in range(len(shape)) if other != axis)
    return np.broadcast_to(np.expand_dims(along, others), shape)


def _slice(params: dict[str, Any], operand: np.ndarray) -> np.ndarray:
    strides = params["strides"] or (1,) * operand.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return operand[tuple(slice(*bound) for bound in bounds)]


# Exact whoever does them; keyed by the name of the primitive.
ON_HOST: dict[str, Callable[..., np.ndarray]] = {
    "broadcast_in_dim": _broadcast,
    "iota": _count,
    "slice": _slice,
    "reshape": lambda params, operand: operand.reshape(params["new_sizes"]),
    "squeeze": lambda params, operand: operand.squeeze(params["dimensions"]),
    "transpose": lambda params, operand: operand.transpose(params["permutation"]),
    "concatenate": lambda params, *parts: np.concatenate(parts, params["dimension"]),
    "eq": lambda params, *pair: np.equal(*pair),
    "ne": lambda params, *pair: np.not_equal(*pair),
    "lt": lambda params, *pair: np.less(*pair),
    "le": lambda params, *pair: np.less_equal(*pair),
    "gt": lambda params, *pair: np.greater(*pair),
    "ge": lambda params, *pair: np.greater_equal(*pair),
    "and": lambda params, *pair: np.bitwise_and(*pair),
    "or": lambda params, *pair: np.bitwise_or(*pair),
    "reduce_and": lambda params, operand: np.all(operand, axis=params["axes"]),
}
# Exact for integers.
ON_HOST_INTEGERS: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda params, *pair: np.add(*pair),
    "mul": lambda params, *pair: np.multiply(*pair),
    "sub": lambda params, *pair: np.subtract(*pair),
    "convert_element_type": lambda params, operand: operand.astype(params["new_dtype"]),
    "select_n": lambda params, which, *cases: np.where(which, cases[1], cases[0]),
}


class Constants(MutableMapping[int, Any]):
    """The known values of a graph by number; those put off are computed when one is asked for."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}
        self._pending: dict[int, Node] = {}

    def __setitem__(self, number: int, value: Any) -> None:
        """Note a known value."""
        self._values[number] = value

    def __getitem__(self, number: int) -> Any:
        """Return a value, having computed all that were put off."""
        if number in self._pending:
            self.settle(self._pending)
        return self._values[number]

    def __contains__(self, number: object) -> bool:
        """Whether a value is known."""
        return number in self._values or number in self._pending

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers of known values."""
        return iter([*self._values, *self._pending])

    def __len__(self) -> int:
        """Return how many values are known."""
        return len(self._values) + len(self._pending)

    def __delitem__(self, number: int) -> None:
        """Forget a value."""
        self._values.pop(number, None)
        self._pending.pop(number, None)

    def put_off(self, node: Node) -> None:
        """Take in an operation between known values."""
        operands = [self._values.get(number) for number in node.inputs]
        if _can_run_on_host(node, operands):
            self._note(node, _run_on_host(node, operands))
        else:
            self._pending.update(dict.fromkeys(node.outputs, node))

    def on_host(self, number: int) -> np.ndarray | None:
        """Return a value that the host has, without a computation."""
        value = self._values.get(number)
        return np.asarray(value) if _is_on_host(value) else None

    def settle(self, wanted: Iterable[int]) -> None:
        """Compute values that were put off, and what they follow from, in one go."""
        nodes = self._needed(wanted)
        for part in self._by_datasets(nodes):
            self._compute(part)

    def _by_datasets(self, nodes: list[Node]) -> tuple[list[Node], list[Node]]:
        """Tell what is the same for all data sets from what each has of its own."""
        own = {number for number, value in self._values.items() if isinstance(value, PerDataset)}
        parts: tuple[list[Node], list[Node]] = ([], [])
        for node in nodes:
            is_own = not own.isdisjoint(node.inputs)
            parts[is_own].append(node)
            own.update(node.outputs if is_own else ())
        return parts

    def _compute(self, nodes: list[Node]) -> None:
        """Compute operations that follow each other."""
        computed = [node for node in nodes if node.primitive.name not in EXPANDING]
        made = {number for node in nodes for number in node.outputs}
        given = {n: self._values[n] for node in nodes for n in node.inputs if n not in made}
        outputs = tuple(number for node in computed for number in node.outputs)
        if outputs:
            results = _compute(Fragment(tuple(nodes), outputs), given)
            self._values.update(zip(outputs, map(_to_host, results), strict=True))
        for node in nodes:
            if node.primitive.name in EXPANDING:
                self._note(node, _run_expanding(node, [self._values[n] for n in node.inputs]))
            for number in node.outputs:
                self._pending.pop(number, None)

    def of_dataset(self, number: int) -> "Constants":
        """Return the values of one data set."""
        self.settle(self._pending)
        own = Constants()
        own._values = {n: of_dataset(value, number) for n, value in self._values.items()}
        return own

    def _note(self, node: Node, results: list[Any]) -> None:
        self._values.update(zip(node.outputs, results, strict=True))

    def _needed(self, wanted: Iterable[int]) -> list[Node]:
        """Return the operations that were put off and are needed for some values, in order."""
        needed: set[int] = set()
        stack = [number for number in wanted if number in self._pending]
        while stack:
            number = stack.pop()
            if number not in needed and number in self._pending:
                node = self._pending[number]
                needed.update(node.outputs)
                stack.extend(node.inputs)
        found = {id(node): node for number, node in self._pending.items() if number in needed}
        return list(found.values())


def _compute(fragment: Fragment, given: dict[int, Any]) -> list[Any]:
    """Compute a fragment now, even if what asks for it is being traced."""
    if any(isinstance(value, jax.core.Tracer) for value in given.values()):
        return fragment.run(given)
    own = {n: value.values for n, value in given.items() if isinstance(value, PerDataset)}
    common = {n: value for n, value in given.items() if n not in own}
    with jax.ensure_compile_time_eval():
        if own:
            results = run_unfused_at_each(Code(fragment), common, own)
            return [PerDataset(np.asarray(result)) for result in results]
        return run_unfused(Code(fragment), common)


def _run_expanding(node: Node, operands: list[Any]) -> list[Any]:
    """Apply a primitive of `EXPANDING`, for each data set if they differ."""
    own = [operand for operand in operands if isinstance(operand, PerDataset)]
    if own:
        each = [
            _run_on_host(node, [of_dataset(operand, number) for operand in operands])[0]
            for number in range(len(own[0].values))
        ]
        return [PerDataset(np.stack(each))]
    return _run_on_host(node, operands) if all(map(_is_on_host, operands)) else node.run(operands)


def host_array(value: Any) -> Any:
    """Return a copy of an array that cannot change, in the precision that JAX computes with."""
    array = np.asarray(value)
    return np.array(array, jax.dtypes.canonicalize_dtype(array.dtype))


def _can_run_on_host(node: Node, operands: list[Any]) -> bool:
    """Whether NumPy does an operation at once, and exactly."""
    if not all(map(_is_on_host, operands)):
        return False
    if node.primitive.name not in ON_HOST_INTEGERS:
        return node.primitive.name in ON_HOST
    made = node.params.get("new_dtype", np.int32)
    are_two = node.primitive.name != "select_n" or len(operands) == 3
    return are_two and all(_is_integer(dtype) for dtype in (made, *(o.dtype for o in operands)))


def _is_integer(dtype: Any) -> bool:
    return np.issubdtype(dtype, np.integer) or np.issubdtype(dtype, np.bool_)


def _run_on_host(node: Node, operands: list[Any]) -> list[np.ndarray]:
    """Apply a primitive of `ON_HOST`."""
    function = (ON_HOST | ON_HOST_INTEGERS)[node.primitive.name]
    with np.errstate(over="ignore"):  # integers wrap around
        result = function(node.params, *map(np.asarray, operands))
    return [np.asarray(result)]


def _is_on_host(value: Any) -> bool:
    """Whether NumPy can read an array: keys and values that JAX is tracing are opaque to it."""
    if isinstance(value, jax.Array):
        return not isinstance(value, jax.core.Tracer) and not _is_key(value)
    return isinstance(value, np.ndarray)


def _to_host(value: Any) -> Any:
    return np.asarray(value) if _is_on_host(value) else value


def _is_key(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
