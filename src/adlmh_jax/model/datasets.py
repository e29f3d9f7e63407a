"""Many data sets for one model: what they have in common, and the arrays in which they differ."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from adlmh_jax.graph import PerDataset, host_array
from adlmh_jax.model import errors

Arguments = tuple[tuple, dict[str, Any]]
EXPECTED = (
    "`datasets` must be a list of data sets, each a tuple or dict of the model's arguments, or one "
    "tuple or dict of arrays whose first axis is the data set"
)


def read_datasets(
    datasets: Any, names: Sequence[str] | None = None
) -> tuple[Arguments, dict[int, PerDataset], int]:
    """Return the first data set, what differs between data sets, and how many there are.

    Parameters
    ----------
    datasets
        A list of data sets, each a tuple of arguments, a dict of keyword arguments, or a pair of
        both; or one tuple or dict of arrays ``[D, ...]``.
    names
        What the data sets are called; None: by their numbers.

    Returns
    -------
    Arguments of the first data set; the arrays that differ, by the place of the leaf among those of
    the arguments; the number of data sets.
    """
    if isinstance(datasets, (tuple, Mapping)):
        divided = _divide(_as_arguments(datasets))
        _check_names(names, divided[2])
        return divided
    if not isinstance(datasets, Sequence) or isinstance(datasets, (str, bytes)):
        raise TypeError(f"{EXPECTED}, got {errors.shown(datasets)}.")
    if not datasets:
        raise ValueError("`datasets` is empty: there is nothing to sample.")
    _check_names(names, len(datasets))
    called = [
        f"data set {name if names is None else f'`{name}`'}"
        for name in names or range(len(datasets))
    ]
    return _gather([_as_arguments(*pair) for pair in zip(datasets, called, strict=True)], called)


def _check_names(names: Sequence[str] | None, number: int) -> None:
    """Refuse names that do not tell the data sets from each other."""
    if names is None:
        return
    if isinstance(names, str) or len(names) != number or len(set(names)) < number:
        raise ValueError(
            f"`names` must be {number} different names, one for each data set, got "
            f"{errors.shown(names)}."
        )


def _as_arguments(dataset: Any, called: str = "") -> Arguments:
    if isinstance(dataset, Mapping):
        return (), dict(dataset)
    if not isinstance(dataset, tuple):
        raise TypeError(
            f"{_begin(called)} must be a tuple of arguments, a dict of keyword arguments, or a "
            f"pair of both, got {errors.shown(dataset)}. Write `(data,)` for a single argument."
        )
    if len(dataset) == 2 and isinstance(dataset[0], tuple) and isinstance(dataset[1], Mapping):
        return dataset[0], dict(dataset[1])
    return dataset, {}


def _divide(stacked: Arguments) -> tuple[Arguments, dict[int, PerDataset], int]:
    """Take arrays ``[D, ...]`` apart; plain numbers and all else are common to all data sets."""
    paths, tree = jax.tree_util.tree_flatten_with_path(stacked)
    leaves = [leaf for _, leaf in paths]
    own = {place: host_array(leaf) for place, leaf in enumerate(leaves) if np.ndim(leaf)}
    sizes = {_name(paths[place][0]): len(array) for place, array in own.items()}
    if not sizes:
        raise ValueError(f"{EXPECTED}, but there are no arrays in {errors.shown(stacked)}.")
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(
            f"The first axis of every array in `datasets` is the data set, but {found}. Give what "
            "is common to all data sets to the model by `functools.partial`."
        )
    (number,) = set(sizes.values())
    if not number:
        raise ValueError("`datasets` is empty: there is nothing to sample.")
    first = [own[place][0] if place in own else leaf for place, leaf in enumerate(leaves)]
    arrays = {place: PerDataset(array) for place, array in own.items()}
    return jax.tree.unflatten(tree, first), arrays, number


def _gather(
    each: list[Arguments], called: list[str]
) -> tuple[Arguments, dict[int, PerDataset], int]:
    """Find what differs between data sets that are given one by one."""
    paths, tree = jax.tree_util.tree_flatten_with_path(each[0])
    rows = [[leaf for _, leaf in paths]]
    for number, arguments in enumerate(each[1:], start=1):
        leaves, other = jax.tree.flatten(arguments)
        if other != tree:  # type: ignore[operator]
            raise ValueError(
                f"{_begin(called[number])} has other arguments than {called[0]}: all data sets are "
                "given to one model in the same way."
            )
        rows.append(leaves)
    arrays = {}
    for place, (path, first) in enumerate(paths):
        column = [row[place] for row in rows]
        if all(_is_same(leaf, first) for leaf in column[1:]):
            continue
        if not all(_is_number(leaf) for leaf in column):
            number = next(n for n, leaf in enumerate(column) if not _is_same(leaf, first))
            raise ValueError(
                f"{_begin(_name(path))} is {errors.shown(first)} in {called[0]} and "
                f"{errors.shown(column[number])} in {called[number]}: data sets can differ in "
                "numbers and arrays alone."
            )
        values = _as_floats(list(map(host_array, column)))
        for number, value in enumerate(values):
            if value.shape != values[0].shape or value.dtype != values[0].dtype:
                raise ValueError(
                    f"{_begin(_name(path))} of {called[number]} has {_kind(value)}, that of "
                    f"{called[0]} has {_kind(values[0])}. Data sets differ in value, not in shape: "
                    "pad them, and mask what was padded (`numpyro.handlers.mask`)."
                )
        arrays[place] = PerDataset(np.stack(values))
    return each[0], arrays, len(each)


def _is_same(leaf: Any, other: Any) -> bool:
    """Whether an argument is common to two data sets: the same object, or an equal plain value."""
    is_plain = isinstance(leaf, (str, bytes, bool, int, float)) and type(leaf) is type(other)
    return leaf is other or (is_plain and leaf == other)


def _as_floats(values: list[np.ndarray]) -> list[np.ndarray]:
    """Return numbers as they are; whole ones as floats, where some of them are floats."""
    types = {value.dtype for value in values}
    if len(types) == 1 or not all(kind.kind in "iuf" for kind in types):
        return values
    floats = [kind for kind in types if kind.kind == "f"]
    return [value.astype(np.result_type(*floats)) for value in values] if floats else values


def _begin(words: str) -> str:
    """Return words as a sentence begins; names stay as they are."""
    return words[:1].upper() + words[1:]


def _kind(array: np.ndarray) -> str:
    return f"shape {array.shape} and dtype {array.dtype}"


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, np.generic, jax.Array, int, float, bool))


def _name(path: Sequence[Any]) -> str:
    """Return how a person would call an argument: by its keyword, or by its number."""
    (kind, *rest) = path
    first = rest[0] if rest else kind
    name = f"`{first.key}`" if hasattr(first, "key") else f"argument {first.idx + 1}"
    return name + jax.tree_util.keystr(tuple(rest[1:]))
