"""How the component to move is selected: `uniform` is LMH, `ucb` is AdLMH.

A schedule sees sizes and arrays, never a model. ``init`` makes its state, ``weights`` gives the
selection probabilities alpha (eq. 5), and ``award`` learns from the log of an epoch (Algorithm 3).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from adlmh_jax.statistics.tally import CompensatedSum, compensated, compensated_add
from adlmh_jax.types import Array, EpochLog

FLOOR = 0.1  # alpha_k >= 0.1 / N: the ergodicity condition alpha_k > eps, by construction
# Entries of a superchain's histories, K x N for each chain that counts. An epoch passes over all of
# them: with more, learning would take longer than the steps that it learns from.
MOST_HISTORY = 1 << 16
MOST_OF_A_SCOUT = 1 << 24  # entries of the histories of one chain


class Schedule(NamedTuple):
    """A selection rule as three pure functions.

    Attributes
    ----------
    init
        ``(num_components, num_outputs, num_chains) -> state``.
    weights
        ``state -> alpha``, the selection probabilities ``[N]``.
    award
        ``(state, log) -> state``, after an epoch; None if the schedule never learns.
    num_scouts
        ``(num_components, num_outputs, num_chains) ->`` how many of the chains the log covers.
    name
        For people.
    """

    init: Callable[[int, int, int], Any]
    weights: Callable[[Any], Array]
    award: Callable[[Any, EpochLog], Any] | None
    num_scouts: Callable[[int, int, int], int]
    name: str


class UniformState(NamedTuple):
    """Nothing is learned; the weights are kept to have their number."""

    alpha: Array


class UcbState(NamedTuple):
    """What Algorithm 3 keeps.

    Attributes
    ----------
    rewards, counts
        The paper's r and c, ``[N]``, summed over the superchain's chains. Both start at 1.
    history
        Per output, how often each component was accepted since the output's last change: a
        multiset, ``[K, N, C]``.
    """

    rewards: CompensatedSum
    counts: CompensatedSum
    history: Array


@functools.cache
def uniform() -> Schedule:
    """Select every component with equal probability: LMH."""

    def init(num_components: int, num_outputs: int, num_chains: int) -> UniformState:
        del num_outputs, num_chains
        return UniformState(jnp.full(num_components, 1.0 / num_components))

    return Schedule(init, lambda state: state.alpha, None, lambda n, k, c: 0, "uniform()")


@functools.cache
def ucb(exploration: float = 0.5, joint_output: bool = False) -> Schedule:
    """Select components by upper confidence bounds on their unit rewards: AdLMH.

    Parameters
    ----------
    exploration
        C of eq. 17; 0.5 in all of the paper's experiments (section 5).
    joint_output
        Treat the whole output vector as one output, instead of one history per scalar.

    Notes
    -----
    In a superchain of many chains, rewards and counts are sums over its chains, so the exploration
    term shrinks with the evidence of all of them; with one chain they are the paper's. Where
    K x N histories for every chain would take more than 65,536 entries, only the first
    few chains count (at least one): their rewards are exact, and memory stays bounded. Where those
    of a single chain would take more than sixteen million, neighbouring outputs are taken together.
    """
    if exploration < 0:
        raise ValueError(f"`exploration` must not be negative, got {exploration}.")

    def count_histories(num_components: int, num_outputs: int) -> int:
        if joint_output:
            return 1
        return min(num_outputs, max(1, MOST_OF_A_SCOUT // num_components))

    def num_scouts(num_components: int, num_outputs: int, num_chains: int) -> int:
        num_histories = count_histories(num_components, num_outputs)
        return max(1, min(num_chains, MOST_HISTORY // max(1, num_histories * num_components)))

    def init(num_components: int, num_outputs: int, num_chains: int) -> UcbState:
        num_histories = count_histories(num_components, num_outputs)
        scouts = num_scouts(num_components, num_outputs, num_chains)
        ones = jnp.ones(num_components)
        history = jnp.zeros((num_histories, num_components, scouts))
        return UcbState(compensated(ones), compensated(ones), history)

    def weights(state: UcbState) -> Array:
        rewards, counts = state.rewards.value, state.counts.value
        # Eq. 17, with eq. 5 to normalise.
        bound = rewards / counts + exploration * jnp.sqrt(jnp.log(jnp.sum(counts)) / counts)
        return apply_floor(bound / jnp.sum(bound))

    def award(state: UcbState, log: EpochLog) -> UcbState:
        log = log._replace(changed=pool_outputs(log.changed, state.history.shape[0]))
        rewards, penalties, history = propagate_rewards(state.history, log)
        return UcbState(
            compensated_add(state.rewards, rewards),
            compensated_add(state.counts, rewards + penalties),
            history,
        )

    name = f"ucb(exploration={exploration}, joint_output={joint_output})"
    return Schedule(init, weights, award, num_scouts, name)


def pool_outputs(changed: Array, num_histories: int) -> Array:
    """Make neighbouring outputs one, which changes when any of them does: ``[E, K, C]``."""
    num_steps, num_outputs, num_chains = changed.shape
    if num_outputs == num_histories:
        return changed
    size = -(-num_outputs // num_histories)
    padding = ((0, 0), (0, size * num_histories - num_outputs), (0, 0))
    parts = jnp.pad(changed, padding).reshape(num_steps, num_histories, size, num_chains)
    return jnp.any(parts, axis=2)


def apply_floor(alpha: Array) -> Array:
    """Raise small probabilities to the floor, at the expense of the others in proportion.

    Where none is below the floor, nothing changes.
    """
    floor = FLOOR / alpha.size
    above = jnp.maximum(alpha, floor) - floor
    return floor + above * ((1.0 - FLOOR) / jnp.sum(above))


def propagate_rewards(history: Array, log: EpochLog) -> tuple[Array, Array, Array]:
    """Run Algorithm 3 over the log of an epoch, for all outputs and chains at once.

    An output that changes at step t shares a reward of one among the history since its last
    change, ``1 / |history|`` for each entry (lines 3-7). So an entry made at step s earns the share
    of the first change at or after s: one pass forward finds the shares, one pass backward hands
    them out. Each output weighs 1/K.

    Returns
    -------
    Rewards ``[N]`` (added to r and to c), penalties ``[N]`` (line 9, added to c), and the history
    after the epoch.
    """
    num_outputs, num_components, _ = history.shape
    accepted = log.is_accepted.astype(history.dtype)

    def find_share(length: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        is_accepted, changed = step
        length = length + is_accepted
        return jnp.where(changed, 0.0, length), jnp.where(changed, 1.0 / length, 0.0)

    _, shares = lax.scan(find_share, jnp.sum(history, axis=1), (accepted, log.changed))

    def hand_out(carry: tuple, step: tuple) -> tuple[tuple, Array]:
        share, is_pending, history = carry
        component, is_accepted, changed, new_share = step
        share = jnp.where(changed, new_share, share)
        is_pending = is_pending & ~changed
        earned = jnp.sum(is_accepted * share)
        row = lax.dynamic_index_in_dim(history, component, axis=1)
        row = row + (is_accepted * is_pending)[:, None, :]
        history = lax.dynamic_update_index_in_dim(history, row, component, axis=1)
        return (share, is_pending, history), earned

    no_share = jnp.zeros_like(shares[0])
    start = (no_share, jnp.ones_like(no_share, bool), jnp.zeros_like(history))
    components = jnp.maximum(log.components, 0)  # a step that was not made accepts nothing
    steps = (components, accepted, log.changed, shares)
    (first_share, is_pending, new_history), earned = lax.scan(hand_out, start, steps, reverse=True)

    old_earned = jnp.einsum("knc,kc->n", history, first_share)
    num_changed = jnp.sum(log.changed, axis=1)
    penalty = jnp.sum(accepted * num_outputs - num_changed, axis=1)
    rewards = old_earned + jax.ops.segment_sum(earned, components, num_components)
    penalties = jax.ops.segment_sum(penalty, components, num_components)
    history = new_history + history * is_pending[:, None, :]
    return rewards / num_outputs, penalties / num_outputs, history
