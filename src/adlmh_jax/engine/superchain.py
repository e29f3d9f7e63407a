"""Epochs and rounds of one superchain.

An *epoch* is a stretch of steps with frozen weights: its random words and its components are drawn
in bulk, and the schedule learns from its log afterwards. A *round* is the least number of whole
epochs that is also a whole number of draws.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from adlmh_jax.moves.table import Counts, Kernel, KernelData, empty_counts, select
from adlmh_jax.moves.metropolis import uniform
from adlmh_jax.schedules.base import Schedule
from adlmh_jax.engine.step import move
from adlmh_jax.statistics.streaming import Statistics, Tallies, update_statistics, update_tallies
from adlmh_jax.proposals.tuning import Tuning, tune
from adlmh_jax.types import Array, Chains, EpochLog, Key


class SuperchainState(NamedTuple):
    """What the next step of a superchain needs, and the statistics so far."""

    chains: Chains
    schedule: Any
    tuning: Tuning
    tallies: Tallies
    statistics: Statistics


@dataclass(frozen=True)
class Plan:
    """How steps make epochs, draws and rounds.

    Attributes
    ----------
    thinning
        Steps of a draw.
    num_epochs, num_draws
        Of a round; one of them is 1.
    epoch_steps
        Steps of an epoch; the last epoch of a draw may make fewer.
    """

    thinning: int
    num_epochs: int
    num_draws: int
    epoch_steps: int


def make_plan(thinning: int, epoch: int) -> Plan:
    """Choose epochs of about ``epoch`` steps that fit draws of ``thinning`` steps."""
    if thinning <= epoch:
        num_draws = max(1, epoch // thinning)
        return Plan(thinning, 1, num_draws, num_draws * thinning)
    num_epochs = -(-thinning // epoch)
    return Plan(thinning, num_epochs, 1, -(-thinning // num_epochs))


class Phase(NamedTuple):
    """What changes between warm-up and sampling: numbers, so that both share their code.

    Attributes
    ----------
    is_adapting
        Whether the schedule learns.
    most_draws
        How many draws the statistics take in; 0 during warm-up.
    """

    is_adapting: Array
    most_draws: Array


class Kept(NamedTuple):
    """What is recorded of a draw: rows of outputs and of latent values, and the log density.

    The log density has no chains where it is not kept.
    """

    outputs: dict[str, Array]
    position: dict[str, Array]
    log_density: Array


@dataclass(frozen=True)
class Keep:
    """Which rows of the banks to record, as ``(bank, offset, size)``, and whether the density."""

    outputs: tuple[tuple[str, int, int], ...]
    position: tuple[tuple[str, int, int], ...]
    log_density: bool = True

    def record(self, chains: Chains) -> Kept:
        """Return the rows to keep."""
        log_terms = chains.log_terms if self.log_density else chains.log_terms[:, :0]
        return Kept(
            _take(chains.outputs, self.outputs),
            _take(chains.position, self.position),
            jnp.sum(log_terms, axis=0),
        )


def _take(banks: dict[str, Array], places: tuple[tuple[str, int, int], ...]) -> dict[str, Array]:
    parts: dict[str, list[Array]] = {}
    for bank, offset, size in places:
        parts.setdefault(bank, []).append(banks[bank][offset : offset + size])
    return {bank: jnp.concatenate(rows) for bank, rows in parts.items()}


@dataclass(frozen=True)
class Code:
    """What is compiled once for a run: everything about it that is not an array."""

    kernel: Kernel
    schedule: Schedule
    plan: Plan
    keep: Keep

    def num_scouts(self, num_chains: int) -> int:
        """Return how many chains the schedule learns from."""
        kernel = self.kernel
        return self.schedule.num_scouts(kernel.num_entries, kernel.num_outputs, num_chains)


def run_epoch(
    code: Code,
    data: KernelData,
    phase: Phase,
    key: Key,
    state: SuperchainState,
    num_steps: Array,
) -> tuple[SuperchainState, Kept]:
    """Make ``num_steps`` steps with frozen weights, then learn from them in an adapting phase.

    Returns the new state, and what is kept of the epoch's draws.
    """
    kernel, schedule, plan = code.kernel, code.schedule, code.plan
    num_chains = state.chains.log_terms.shape[-1]
    num_scouts = code.num_scouts(num_chains)
    words, entries, ways = _draw_steps(code, key, state, num_chains)
    entries = jnp.where(jnp.arange(plan.epoch_steps) < num_steps, entries, -1)
    scales = jnp.exp(state.tuning.log_scale)

    def step(carry: tuple[Chains, Counts], inputs: tuple) -> tuple[tuple, tuple]:
        chains, counts = carry
        chains, info, counts = move(
            kernel, data, inputs[0], chains, inputs[1], inputs[2], scales, counts, num_scouts
        )
        return (chains, counts), (info.is_accepted[:num_scouts], info.changed)

    is_draw_end = num_steps <= plan.epoch_steps
    most_draws = jnp.where(is_draw_end, phase.most_draws, 0)

    def one_draw(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
        (chains, counts), log = lax.scan(step, carry[:2], inputs)
        statistics = update_statistics(carry[2], all_outputs(chains), most_draws)
        return (chains, counts, statistics), (log, code.keep.record(chains))

    by_draw = _split((words, entries, ways), plan.num_draws)
    start = (state.chains, empty_counts(kernel.num_components), state.statistics)
    (chains, counts, statistics), (log, kept) = lax.scan(one_draw, start, by_draw)

    def learn(learned: tuple[Any, Tuning]) -> tuple[Any, Tuning]:
        schedule_state, tuning = learned
        if schedule.award is not None:
            schedule_state = schedule.award(schedule_state, EpochLog(entries, *_join(log)))
        if kernel.has_tuning:
            tuning = tune(data, tuning, counts, entries, ways, num_chains)
        return schedule_state, tuning

    learned, tuning = lax.cond(
        phase.is_adapting, learn, lambda same: same, (state.schedule, state.tuning)
    )
    tallies = _tally(state.tallies, data, entries, counts, num_chains)
    return SuperchainState(chains, learned, tuning, tallies, statistics), kept


def _draw_steps(
    code: Code, key: Key, state: SuperchainState, num_chains: int
) -> tuple[Array, Array, Array]:
    """Draw the random words, the entries and the ways of an epoch's steps, in bulk."""
    num_steps, num_words = code.plan.epoch_steps, code.kernel.num_words
    bits = jax.random.bits(key, (num_steps * (2 + num_words * num_chains),), "uint32")
    entries = select(bits[:num_steps], code.schedule.weights(state.schedule))
    ways = uniform(bits[num_steps : 2 * num_steps]) < state.tuning.second_share[entries]
    words = bits[2 * num_steps :].reshape(num_steps, num_words, num_chains)
    return words, entries, ways.astype(jnp.int32)


def _tally(
    tallies: Tallies, data: KernelData, entries: Array, counts: Counts, num_chains: int
) -> Tallies:
    """Count the steps of an epoch, per component."""
    made = jnp.where(entries < 0, 0, num_chains)
    by_entry = jax.ops.segment_sum(made, jnp.maximum(entries, 0), data.element_of.size)
    return update_tallies(tallies, by_entry[data.entry_of], counts.accepted, counts.invalid)


def all_outputs(chains: Chains) -> Array:
    """Return all scalar outputs as numbers, ``[K, C]``, bank by bank."""
    return jnp.concatenate([jnp.asarray(bank, jnp.float32) for bank in chains.outputs.values()])


def _split(tree: Any, num_parts: int) -> Any:
    return jax.tree.map(lambda array: array.reshape(num_parts, -1, *array.shape[1:]), tree)


def _join(tree: Any) -> Any:
    return jax.tree.map(
        lambda array: array.reshape(array.shape[0] * array.shape[1], *array.shape[2:]), tree
    )


def run_round(
    code: Code,
    data: KernelData,
    phase: Phase,
    key: Key,
    index: Array,
    state: SuperchainState,
) -> tuple[SuperchainState, Kept]:
    """Run round number ``index``; return the state and what is kept, ``[num_draws, ...]``.

    Random numbers are addressed by (superchain, epoch): they depend neither on how rounds are
    grouped into chunks nor on where they run.
    """
    plan = code.plan

    def epoch(state: SuperchainState, number: Array) -> tuple[SuperchainState, Kept]:
        key_epoch = jax.random.fold_in(key, index * plan.num_epochs + number)
        left = plan.thinning * plan.num_draws - number * plan.epoch_steps
        return run_epoch(code, data, phase, key_epoch, state, left)

    if plan.num_epochs == 1:
        return epoch(state, jnp.int32(0))
    state, kept = lax.scan(epoch, state, jnp.arange(plan.num_epochs))
    return state, jax.tree.map(lambda array: array[-1], kept)
