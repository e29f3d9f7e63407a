"""Statistics that ride along with the chains, as ``init`` and ``update`` of small states."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from adlmh_jax.tally import Tally, tally_add, tally_zeros
from adlmh_jax.types import Array


class Tallies(NamedTuple):
    """How often each component was selected, accepted and invalid, in steps of chains, ``[N]``.

    These are apart from the counts of rewards: the paper shows both.
    """

    selected: Tally
    accepted: Tally
    invalid: Tally


def init_tallies(num_components: int) -> Tallies:
    """Start all counts at zero."""
    return Tallies(*(tally_zeros((num_components,)) for _ in Tallies._fields))


def update_tallies(
    tallies: Tallies, components: Array, num_accepted: Array, num_invalid: Array, num_chains: int
) -> Tallies:
    """Count the steps of an epoch; component -1 is a step that was not made."""
    num_components = tallies.selected.low.size
    made = jnp.where(components < 0, 0, num_chains)
    components = jnp.maximum(components, 0)

    def count(tally: Tally, numbers: Array) -> Tally:
        return tally_add(tally, jax.ops.segment_sum(numbers, components, num_components))

    return Tallies(
        count(tallies.selected, made),
        count(tallies.accepted, num_accepted),
        count(tallies.invalid, num_invalid),
    )
