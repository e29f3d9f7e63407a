"""The arrays of a kernel: those that all superchains read, and those that each has of its own.

Superchains of one run read the same data; those of different data sets do not.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from adlmh_jax.graph import PerDataset, of_dataset
from adlmh_jax.types import Array


class Inputs(NamedTuple):
    """A tree of arrays, taken apart; where the one has an array the other has None.

    Attributes
    ----------
    common
        What all superchains read.
    own
        What each has of its own, ``[S, ...]``.
    """

    common: Any
    own: Any


def split(tree: Any, datasets: Sequence[int] | np.ndarray) -> Inputs:
    """Take arrays apart, given the data set of each superchain."""

    def choose(leaf: Any) -> np.ndarray | None:
        return leaf.values[np.asarray(datasets)] if isinstance(leaf, PerDataset) else None

    return Inputs(
        common=jax.tree.map(lambda leaf: None if isinstance(leaf, PerDataset) else leaf, tree),
        own=jax.tree.map(choose, tree),
    )


def first_of(tree: Any) -> Any:
    """Return the arrays of the first data set."""
    return jax.tree.map(lambda leaf: of_dataset(leaf, 0), tree)


def join(common: Any, own: Any) -> Any:
    """Put the arrays of one superchain together again."""

    def choose(shared: Array | None, mine: Array | None) -> Array | None:
        return shared if mine is None else mine

    return jax.tree.map(choose, common, own, is_leaf=lambda leaf: leaf is None)
