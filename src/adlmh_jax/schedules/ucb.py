"""`ucb`: upper confidence bounds on unit rewards, which is AdLMH."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from adlmh_jax.schedules.base import Schedule, apply_floor, no_start
from adlmh_jax.schedules.rewards import pool_outputs, propagate_rewards
from adlmh_jax.statistics import CompensatedSum, compensated, compensated_add
from adlmh_jax.types import Array, EpochLog, Sizes, as_array, float_type

# Numbers in a superchain's histories, K x M for each chain that counts. An epoch passes over all of
# them: with more, learning would take longer than the steps that it learns from.
MAX_HISTORY = 1 << 16
MAX_CHAIN_HISTORY = 1 << 24  # numbers in the histories of one chain


class UcbState(NamedTuple):
    """What Algorithm 3 keeps.

    Attributes
    ----------
    rewards, counts
        The paper's r and c, ``[M]``, summed over the superchain's chains. Both start at 1.
    history
        Per output, how often each entry was accepted since the output's last change: a multiset,
        ``[K, M, C]``.
    exploration
        C of eq. 17.
    base
        By how much more than others entries are selected that are worth the same, ``[M]``: all are
        equal, unless several sites walk together.
    """

    rewards: CompensatedSum
    counts: CompensatedSum
    history: Array
    exploration: Array
    base: Array


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
    term shrinks with the evidence of all of them; with one chain they are the paper's. Where the
    histories of every chain would take more than 65,536 numbers, only the first few chains count
    (at least one): their rewards are exact, and memory stays bounded. Where those of a single chain
    would take more than sixteen million, neighbouring outputs are taken together.
    """
    if exploration < 0:
        raise ValueError(f"`exploration` must not be negative, got {exploration}.")
    rule = _rule(joint_output)

    def init(sizes: Sizes) -> UcbState:
        num_entries = sizes.num_entries
        num_histories = _count_histories(num_entries, sizes.num_outputs, joint_output)
        logged = rule.num_logged(sizes)
        ones = np.ones(num_entries, float_type())
        return UcbState(
            rewards=compensated(ones),
            counts=compensated(ones),
            history=as_array(np.zeros((num_histories, num_entries, logged)), float_type()),
            exploration=as_array(exploration, float_type()),
            base=as_array(sizes.base, float_type()),
        )

    name = f"ucb(exploration={exploration}, joint_output={joint_output})"
    return rule._replace(init=init, name=name)


@functools.cache
def _rule(joint_output: bool) -> Schedule:
    """Return the functions that schedules of every exploration share, so that they share code."""

    def num_logged(sizes: Sizes) -> int:
        num_histories = _count_histories(sizes.num_entries, sizes.num_outputs, joint_output)
        numbers = max(1, num_histories * sizes.num_entries)
        return max(1, min(sizes.num_chains, MAX_HISTORY // numbers))

    return Schedule(
        init=no_start,
        weights=_weights,
        award=_award,
        report=_report,
        num_logged=num_logged,
        name="",
    )


def _count_histories(num_entries: int, num_outputs: int, joint_output: bool) -> int:
    if joint_output:
        return 1
    return min(num_outputs, max(1, MAX_CHAIN_HISTORY // num_entries))


def _weights(state: UcbState) -> Array:
    rewards, counts = state.rewards.value, state.counts.value
    # Eq. 17, with eq. 5 to normalise.
    bound = rewards / counts + state.exploration * jnp.sqrt(jnp.log(jnp.sum(counts)) / counts)
    alpha = state.base * bound
    return apply_floor(alpha / jnp.sum(alpha))


def _award(state: UcbState, log: EpochLog) -> UcbState:
    log = log._replace(changed=pool_outputs(log.changed, state.history.shape[0]))
    rewards, penalties, history = propagate_rewards(state.history, log)
    return UcbState(
        rewards=compensated_add(state.rewards, rewards),
        counts=compensated_add(state.counts, rewards + penalties),
        history=history,
        exploration=state.exploration,
        base=state.base,
    )


def _report(state: UcbState) -> dict[str, Array]:
    return {"rewards": state.rewards.value, "counts": state.counts.value}
