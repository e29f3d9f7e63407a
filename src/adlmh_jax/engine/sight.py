"""What a schedule sees of the chains and of the program: arrays, in one order throughout.

Latent scalars are counted through the banks, in the order of the banks' names.
"""

import jax
import jax.numpy as jnp

from adlmh_jax.graph import Rows, take_rows
from adlmh_jax.moves import Kernel, KernelData
from adlmh_jax.types import Anatomy, Array, Banks, Chains, float_type


def count_tries(kernel: Kernel, data: KernelData, entries: Array, num_chains: int) -> Array:
    """Return how often each slot was to move in an epoch, over all chains, ``[L]``."""
    made = jnp.where(entries < 0, 0, num_chains)
    selected = jax.ops.segment_sum(made, jnp.maximum(entries, 0), kernel.num_entries)
    return selected[data.traits.entry_of]


def find_anatomy(data: KernelData, outputs: Rows) -> Anatomy:
    """Return what the schedule may know of the program."""
    is_count = [
        not jnp.issubdtype(bank, jnp.inexact) for bank, _, size in outputs for _ in range(size)
    ]
    return Anatomy(
        entry_of=data.traits.entry_of,
        scalars_of=data.traits.dimension,
        component_of=data.scalar_component,
        slot_component=data.traits.component_of,
        costs=data.costs,
        is_count=jnp.array(is_count, float_type()),
    )


def all_values(chains: Chains) -> Array:
    """Return all latent scalars as numbers, ``[R, C]``, bank by bank."""
    banks = [chains.latent[bank] for bank in sorted(chains.latent)]
    return jnp.concatenate([jnp.asarray(bank, float_type()) for bank in banks])


def by_rows(numbers: Array, chains: Chains) -> Banks:
    """Return numbers ``[R]`` by the rows of the banks."""
    parts, start = {}, 0
    for bank in sorted(chains.latent):
        size = chains.latent[bank].shape[0]
        parts[bank] = numbers[start : start + size]
        start += size
    return parts


def all_outputs(chains: Chains, rows: Rows) -> Array:
    """Return all scalar outputs as numbers, ``[K, C]``."""
    parts = take_rows(chains.outputs, rows)
    return jnp.concatenate([jnp.asarray(part, float_type()) for part in parts])
