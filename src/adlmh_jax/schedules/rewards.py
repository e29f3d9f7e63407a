"""The reward: Algorithm 3 over the log of an epoch, for all outputs and chains at once."""

import jax
import jax.numpy as jnp
from jax import lax

from adlmh_jax.types import Array, EpochLog


def propagate_rewards(history: Array, log: EpochLog) -> tuple[Array, Array, Array]:
    """Run Algorithm 3 over the log of an epoch, for all outputs and chains at once.

    An output that changes at step t shares a reward of one among the history since its last
    change, ``1 / |history|`` for each member (lines 3-7). So what was accepted at step s earns the
    share of the first change at or after s: one pass forward finds the shares, one pass backward
    hands them out. Each output weighs 1/K.

    Returns
    -------
    Rewards ``[M]`` (added to r and to c), penalties ``[M]`` (line 9, added to c), and the history
    after the epoch.
    """
    num_outputs, num_entries, _ = history.shape
    accepted = log.is_accepted.astype(history.dtype)

    def find_share(length: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        is_accepted, changed = step
        length = length + is_accepted
        return jnp.where(changed, 0.0, length), jnp.where(changed, 1.0 / length, 0.0)

    _, shares = lax.scan(find_share, jnp.sum(history, axis=1), (accepted, log.changed))

    def hand_out(carry: tuple, step: tuple) -> tuple[tuple, Array]:
        share, is_pending, history = carry
        entry, is_accepted, changed, new_share = step
        share = jnp.where(changed, new_share, share)
        is_pending = is_pending & ~changed
        earned = jnp.sum(is_accepted * share)
        row = lax.dynamic_index_in_dim(history, entry, axis=1)
        row = row + (is_accepted * is_pending)[:, None, :]
        history = lax.dynamic_update_index_in_dim(history, row, entry, axis=1)
        return (share, is_pending, history), earned

    no_share = jnp.zeros_like(shares[0])
    start = (no_share, jnp.ones_like(no_share, bool), jnp.zeros_like(history))
    entries = jnp.maximum(log.entries, 0)  # a step that was not made accepts nothing
    steps = (entries, accepted, log.changed, shares)
    (first_share, is_pending, new_history), earned = lax.scan(hand_out, start, steps, reverse=True)

    old_earned = jnp.einsum("knc,kc->n", history, first_share)
    num_changed = jnp.sum(log.changed, axis=1)
    penalty = jnp.sum(accepted * num_outputs - num_changed, axis=1)
    rewards = old_earned + jax.ops.segment_sum(earned, entries, num_entries)
    penalties = jax.ops.segment_sum(penalty, entries, num_entries)
    history = new_history + history * is_pending[:, None, :]
    return rewards / num_outputs, penalties / num_outputs, history


def pool_outputs(changed: Array, num_histories: int) -> Array:
    """Make neighbouring outputs one, which changes when any of them does: ``[E, K, C]``."""
    num_steps, num_outputs, num_chains = changed.shape
    if num_outputs == num_histories:
        return changed
    size = -(-num_outputs // num_histories)
    padding = ((0, 0), (0, size * num_histories - num_outputs), (0, 0))
    parts = jnp.pad(changed, padding).reshape(num_steps, num_histories, size, num_chains)
    return jnp.any(parts, axis=2)
