"""Which elements of a site's value each entry of each computed value can depend on.

An abstract interpretation of the graph for one site. Along each batch axis of the site, a value is
*aligned* if it has an axis whose entry i depends only on the site's elements with index i. Where
every touched term is aligned, the elements are conditionally independent given all else, and can
move at once, each with a decision of its own.

All knowledge of primitives is in `carried_axes`; a primitive that is not in its table depends on
everything.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph.graph import Graph
from adlmh_jax.graph.operations import Node
from adlmh_jax.types import Array

ALL = -1  # depends on every index of the site's batch axis
TRIVIAL = -2  # the batch axis has one index only: nothing to tell apart

Axes = tuple[int, ...]  # for each batch axis of the site: an axis of the value, ALL or TRIVIAL
Alignments = list[Axes | None]  # for each value of the graph; None if the site does not touch it
State = TypeVar("State")

Shape = tuple[int, ...]
Carried = list[dict[int, int]]  # for each operand: which of its axes goes to which of the result
Rule = Callable[[dict[str, Any], list[Shape], Shape], Carried | None]

ELEMENTWISE = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e
    bitcast_convert_type cbrt ceil clamp clz complex conj convert_element_type copy cos cosh
    digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac
    imag integer_pow is_finite le le_to lgamma log log1p log2 logistic lt lt_to max min mul mulhi
    ne neg nextafter not one_minus_square or polygamma polynomial population_count pow
    random_gamma real reduce_precision regularized_incomplete_beta rem round rsqrt select_n
    shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient
    sub tan tanh xor zeta
"""
REDUCTIONS = """
    argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor
"""
CUMULATIVE = "cumlogsumexp cummax cummin cumprod cumsum"


def _elementwise(params: dict, shapes: list[Shape], result: Shape) -> Carried | None:
    """Keep all axes; scalars, and axes of size one, go to every entry of the result."""
    del params
    if any(len(shape) not in (0, len(result)) for shape in shapes):
        return None
    return [{a: a for a, size in enumerate(shape) if size == result[a]} for shape in shapes]


def _broadcast_in_dim(params: dict, shapes: list[Shape], result: Shape) -> Carried | None:
    if len(shapes) != 1:
        return None
    targets = enumerate(params["broadcast_dimensions"])
    return [{axis: to for axis, to in targets if shapes[0][axis] == result[to]}]


def _transpose(params: dict, shapes: list[Shape], result: Shape) -> Carried:
    del shapes, result
    return [{axis: to for to, axis in enumerate(params["permutation"])}]


def _dropping(name: str) -> Rule:
    """Keep all axes but those that the parameter ``name`` says, which vanish."""

    def rule(params: dict, shapes: list[Shape], result: Shape) -> Carried:
        del result
        lost = np.atleast_1d(np.asarray(params[name], int))
        left = [axis for axis in range(len(shapes[0])) if axis not in lost]
        return [{axis: to for to, axis in enumerate(left)}]

    return rule


def _reshape(params: dict, shapes: list[Shape], result: Shape) -> Carried | None:
    """Keep an axis with as many entries before it, and in it, as one of the result."""
    if params["dimensions"] is not None or len(shapes) != 1 or 0 in result:
        return None
    places, targets = [
        {(int(np.prod(shape[:axis])), size): axis for axis, size in enumerate(shape) if size > 1}
        for shape in (shapes[0], result)
    ]
    return [{axis: targets[place] for place, axis in places.items() if place in targets}]


def _except_along(name: str) -> Rule:
    """Keep all axes but the one(s) that the parameter ``name`` says."""

    def rule(params: dict, shapes: list[Shape], result: Shape) -> Carried:
        lost = np.atleast_1d(np.asarray(params[name], int))
        axes = {axis: axis for axis in range(len(result)) if axis not in lost}
        return [axes for _ in shapes]

    return rule


def _pad(params: dict, shapes: list[Shape], result: Shape) -> Carried:
    del shapes, result
    return [{axis: axis for axis, pad in enumerate(params["padding_config"]) if not any(pad)}, {}]


def _stack(params: dict, shapes: list[Shape], result: Shape) -> Carried:
    kept = [axis for axis in range(len(result)) if axis != params["axis"]]
    return [dict(enumerate(kept)) for _ in shapes]


def _windows(params: dict, shapes: list[Shape], result: Shape) -> Carried:
    """Keep the axes that are read, and written, from end to end; starts are scalars."""
    del params
    arrays = [shape for shape in shapes if shape]
    sizes = enumerate(result)
    whole = {axis: axis for axis, size in sizes if all(shape[axis] == size for shape in arrays)}
    return [whole if shape else {} for shape in shapes]


def _gather(params: dict, shapes: list[Shape], result: Shape) -> Carried:
    """Keep the axes of the indices; of the operand, batching axes and whole windows."""
    numbers, (operand, indices) = params["dimension_numbers"], shapes
    offsets = [int(axis) for axis in numbers.offset_dims]
    batch = [axis for axis in range(len(result)) if axis not in offsets]
    inside = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    windows = [axis for axis in range(len(operand)) if axis not in inside]
    targets = zip(windows, offsets, strict=True)
    carried = {axis: to for axis, to in targets if params["slice_sizes"][axis] == operand[axis]}
    pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    carried |= {int(axis): batch[to] for axis, to in pairs}
    return [carried, {axis: batch[axis] for axis in range(len(indices) - 1)}]


def _dot_general(params: dict, shapes: list[Shape], result: Shape) -> Carried:
    """Order of the result's axes: batch, free of the left operand, free of the right one."""
    del result
    contracted, batched = params["dimension_numbers"]
    carried, num_axes = [], len(batched[0])
    for shape, summed, batch in zip(shapes, contracted, batched, strict=True):
        free = [axis for axis in range(len(shape)) if axis not in {*summed, *batch}]
        axes = {int(axis): to for to, axis in enumerate(batch)}
        carried.append(axes | {axis: num_axes + to for to, axis in enumerate(free)})
        num_axes += len(free)
    return carried


def _matrices(params: dict, shapes: list[Shape], result: Shape) -> Carried | None:
    """Keep all axes but the last two; and the one that counts the systems to be solved."""
    if any(shape[:-2] != result[:-2] for shape in shapes):
        return None
    carried = [{axis: axis for axis in range(len(result) - 2)} for _ in shapes]
    if "left_side" in params:
        systems = len(result) - (1 if params["left_side"] else 2)
        carried[1][systems] = systems
    return carried


RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE.split(), _elementwise),
    **dict.fromkeys(REDUCTIONS.split(), _dropping("axes")),
    **dict.fromkeys([*CUMULATIVE.split(), "split", "top_k"], _except_along("axis")),
    **dict.fromkeys(["concatenate", "sort"], _except_along("dimension")),
    **dict.fromkeys(["cholesky", "triangular_solve"], _matrices),
    **dict.fromkeys(["dynamic_slice", "dynamic_update_slice", "slice", "tile"], _windows),
    "broadcast_in_dim": _broadcast_in_dim,
    "dot_general": _dot_general,
    "gather": _gather,
    "pad": _pad,
    "reshape": _reshape,
    "rev": _except_along("dimensions"),
    "stack": _stack,
    "squeeze": _dropping("dimensions"),
    "transpose": _transpose,
    "unstack": _dropping("axis"),
}


def carried_axes(graph: Graph, node: Node) -> Carried | None:
    """Return which axes of each operand go, index by index, to which axes of the results.

    Entry i along such an axis of the result depends on the operand only through its entry i. None:
    nothing is known.
    """
    rule = RULES.get(node.primitive.name)
    if rule is None:
        return None
    shapes = [graph.avals[number].shape for number in node.inputs]
    return rule(node.params, shapes, graph.avals[node.outputs[0]].shape)


def find_users(graph: Graph) -> dict[int, list[int]]:
    """Return for each value the indices of the nodes that use it."""
    users: dict[int, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        for number in set(node.inputs):
            users.setdefault(number, []).append(index)
    return users


def align(
    graph: Graph,
    source: int,
    batch_shape: Sequence[int],
    users: Mapping[int, Sequence[int]] | None = None,
) -> Alignments:
    """Find on which elements of one site the entries of each value depend.

    Parameters
    ----------
    graph
        The model's computations.
    source
        Number of the site's value.
    batch_shape
        The site's batch shape: its leading axes.
    users
        What `find_users` returns, where several sites of one graph are asked for.

    Returns
    -------
    For each value of the graph None if the site does not touch it; else, for each batch axis, the
    axis of the value whose entry i depends only on the elements with index i, or `ALL`. Batch axes
    of size one are `TRIVIAL`.
    """
    first = tuple(a if size > 1 else TRIVIAL for a, size in enumerate(batch_shape))
    return propagate(graph, source, first, _step, users)


def propagate(
    graph: Graph,
    source: int,
    first: State,
    step: Callable[[Graph, Node, Sequence[State | None]], State],
    users: Mapping[int, Sequence[int]] | None = None,
) -> list[State | None]:
    """Return a state for each value that depends on the source, and None for the others.

    Parameters
    ----------
    graph, source, first
        The computations, and the number and the state of the value that they are followed from.
    step
        The state of a node's results, from the states of all values met before.
    users
        What `find_users` returns.
    """
    users = find_users(graph) if users is None else users
    states: list[State | None] = [None] * len(graph.avals)
    states[source] = first
    waiting = sorted(users.get(source, ()))  # a heap: nodes are met in an order they can run in
    done: set[int] = set()
    while waiting:
        index = heapq.heappop(waiting)
        if index in done:
            continue
        done.add(index)
        state = step(graph, graph.nodes[index], states)
        for number in graph.nodes[index].outputs:
            states[number] = state
            for user in users.get(number, ()):
                heapq.heappush(waiting, user)
    return states


def _step(graph: Graph, node: Node, alignments: Sequence[Axes | None]) -> Axes:
    """Return the state of a node's results, the join over its touched operands."""
    carried = carried_axes(graph, node)
    states = []
    for position, number in enumerate(node.inputs):
        state = alignments[number]
        if state is not None:
            axes = carried[position] if carried is not None else {}
            states.append([a if a == TRIVIAL else axes.get(a, ALL) for a in state])
    columns = zip(*states, strict=True)
    return tuple(column[0] if len(set(column)) == 1 else ALL for column in columns)


def is_independent(alignments: Alignments, terms: Iterable[int]) -> bool:
    """Return whether a site's elements are conditionally independent given everything else.

    ``terms`` are the numbers of all terms, and of what else must depend on one element at most.
    """
    return all(ALL not in (alignments[number] or ()) for number in terms)


def axes_of_terms(alignments: Alignments, terms: Mapping[str, int]) -> dict[str, Axes]:
    """Return for each touched term which of its axes carries which batch axis of the site."""
    return {name: axes for name, n in terms.items() if (axes := alignments[n]) is not None}


def reduce_to_elements(difference: Array, axes: Axes, batch_shape: Sequence[int]) -> Array:
    """Sum a term's entries that depend on the same element of the site.

    Parameters
    ----------
    difference
        An array of the term's shape.
    axes
        The term's `axes_of_terms`, without `ALL`.
    batch_shape
        The site's batch shape, which is the shape of the result.
    """
    kept = [axis for axis in axes if axis >= 0]
    free = tuple(axis for axis in range(jnp.ndim(difference)) if axis not in kept)
    order = tuple(sorted(kept).index(axis) for axis in kept)
    return jnp.reshape(jnp.transpose(jnp.sum(difference, free), order), tuple(batch_shape))


def spread_to_term(per_element: Array, axes: Axes, term_shape: Sequence[int]) -> Array:
    """Give each entry of a term what belongs to the element of the site that it depends on.

    Parameters
    ----------
    per_element
        An array of the site's batch shape.
    axes
        The term's `axes_of_terms`, without `ALL`.
    term_shape
        The term's shape, which is the shape of the result.
    """
    kept = [axis for axis in axes if axis >= 0]
    array = jnp.reshape(per_element, [term_shape[axis] for axis in kept])
    array = jnp.transpose(array, tuple(kept.index(axis) for axis in sorted(kept)))
    shape = [size if axis in kept else 1 for axis, size in enumerate(term_shape)]
    return jnp.broadcast_to(jnp.reshape(array, shape), tuple(term_shape))
