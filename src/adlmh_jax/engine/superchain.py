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

from adlmh_jax.engine.annealing import (
    Annealing,
    Particles,
    Way,
    anneal,
    annealing_weights,
    init_annealing,
)
from adlmh_jax.engine.entry import Steps
from adlmh_jax.engine.step import Counts, empty_counts, locate_walks, move
from adlmh_jax.graph import Rows, take_rows
from adlmh_jax.moves import Kernel, KernelData, to_uniform
from adlmh_jax.proposals import Evidence, Tuning, init_tuning, tune, watch
from adlmh_jax.schedules import Schedule, select
from adlmh_jax.statistics import (
    Statistics,
    Tallies,
    init_statistics,
    init_tallies,
    update_statistics,
    update_tallies,
)
from adlmh_jax.types import Array, Banks, Chains, EpochLog, Key, float_type

RUNGS = 0xFFFFFFFF  # no epoch has this number: for the keys of annealing


class SuperchainState(NamedTuple):
    """What the next step of a superchain needs, and the statistics so far.

    Attributes
    ----------
    chains
        Where the chains are.
    schedule, tuning
        What was learned about entries and about proposals.
    tallies, entry_tallies
        What happened to components, and to the components of each entry.
    statistics
        Moments of the outputs.
    has_moved
        Whether each component has changed in each chain since warm-up, ``[N, C]``.
    annealing
        How far the superchain is on its way from prior to posterior.
    """

    chains: Chains
    schedule: Any
    tuning: Tuning
    tallies: Tallies
    entry_tallies: Tallies
    statistics: Statistics
    has_moved: Array
    annealing: Annealing


@dataclass(frozen=True)
class RoundPlan:
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


def plan_rounds(thinning: int, epoch: int, has_one_draw: bool = False) -> RoundPlan:
    """Choose epochs of about ``epoch`` steps that fit draws of ``thinning`` steps.

    A round of one draw has epochs no longer than the draw.
    """
    epoch = min(epoch, thinning) if has_one_draw else epoch
    if thinning <= epoch:
        num_draws = max(1, epoch // thinning)
        return RoundPlan(thinning, 1, num_draws, num_draws * thinning)
    num_epochs = -(-thinning // epoch)
    return RoundPlan(thinning, num_epochs, 1, -(-thinning // num_epochs))


def anneal_until(plan: RoundPlan, num_warmup: int) -> int:
    """Return the round before which annealing must have ended: half of the warm-up is left."""
    return num_warmup // plan.num_draws // 2


class Phase(NamedTuple):
    """What changes between warm-up and sampling: numbers, so that both share their code.

    Attributes
    ----------
    is_adapting
        Whether the schedule learns.
    max_draws
        How many draws the statistics take in; 0 during warm-up.
    anneal_until
        The round before which annealing must have come to its end.
    """

    is_adapting: Array
    max_draws: Array
    anneal_until: Array


class Kept(NamedTuple):
    """What is recorded of a draw: rows of outputs and of latent values, and the log density.

    The log density has no chains where it is not kept.
    """

    outputs: Banks
    latent: Banks
    log_density: Array


@dataclass(frozen=True)
class Keep:
    """Which rows of the banks to record, and whether the density."""

    outputs: Rows = ()
    latent: Rows = ()
    log_density: bool = True

    def record(self, chains: Chains) -> Kept:
        """Return the rows to keep."""
        log_terms = chains.log_terms if self.log_density else chains.log_terms[..., :0]
        return Kept(
            _by_bank(chains.outputs, self.outputs),
            _by_bank(chains.latent, self.latent),
            jnp.sum(log_terms, axis=-2),
        )


def _by_bank(banks: Banks, rows: Rows) -> Banks:
    parts: dict[str, list[Array]] = {}
    for (bank, _, _), part in zip(rows, take_rows(banks, rows), strict=True):
        parts.setdefault(bank, []).append(part)
    return {bank: jnp.concatenate(taken, axis=-2) for bank, taken in parts.items()}


@dataclass(frozen=True)
class EngineSpec:
    """Everything about a run that is not an array: what is compiled once.

    Attributes
    ----------
    kernel, schedule
        How entries are moved, and the rule by which they are selected.
    plan
        How steps make draws.
    keep
        What is recorded of a draw.
    outputs
        Where the scalar outputs are, in the order of the program.
    likelihood
        Where the terms of the data are: those of no latent site.
    """

    kernel: Kernel
    schedule: Schedule
    plan: RoundPlan
    keep: Keep
    outputs: Rows
    likelihood: Rows

    def num_logged(self, num_chains: int) -> int:
        """Return how many chains the schedule learns from."""
        kernel = self.kernel
        return self.schedule.num_logged(kernel.num_entries, kernel.num_outputs, num_chains)


class Start(NamedTuple):
    """How a superchain begins: at which beta, and with what estimate of the evidence."""

    beta: Any
    log_evidence: Any


THERE = Start(beta=1.0, log_evidence=float("nan"))  # at the posterior, without an estimate


def init_superchain(
    spec: EngineSpec, data: KernelData, learned: Any, chains: Chains, start: Start = THERE
) -> SuperchainState:
    """Return a superchain at its chains, whose schedule knows what it does at the start."""
    kernel, num_chains = spec.kernel, chains.log_terms.shape[-1]
    tuning = init_tuning(data.traits, kernel.walk_dimension)
    return SuperchainState(
        chains=chains,
        schedule=jax.tree.map(jnp.asarray, learned),
        tuning=_watch_walks(spec, data, chains, tuning),
        tallies=init_tallies(kernel.num_components),
        entry_tallies=init_tallies(kernel.num_entries),
        statistics=init_statistics(kernel.num_outputs, num_chains),
        has_moved=jnp.zeros((kernel.num_components, num_chains), bool),
        annealing=init_annealing(Way(kernel, data, spec.likelihood), chains, *start),
    )


def _watch_walks(spec: EngineSpec, data: KernelData, chains: Chains, tuning: Tuning) -> Tuning:
    """Learn the covariances of walks from where the chains are."""
    free = locate_walks(spec.kernel, data, chains)
    return tuning._replace(walks=watch(tuning.walks, free, data.traits.walk_dimensions))


def run_epoch(
    spec: EngineSpec,
    data: KernelData,
    phase: Phase,
    key: Key,
    state: SuperchainState,
    num_steps: Array,
) -> tuple[SuperchainState, Kept]:
    """Make ``num_steps`` steps with frozen weights, then learn from them in an adapting phase.

    Returns the new state, and what is kept of the epoch's draws.
    """
    kernel, plan = spec.kernel, spec.plan
    num_chains = state.chains.log_terms.shape[-1]
    num_logged = spec.num_logged(num_chains)
    words, entries, variants = _draw_steps(spec, key, state, num_chains)
    entries = jnp.where(jnp.arange(plan.epoch_steps) < num_steps, entries, -1)
    steps = Steps(jnp.exp(state.tuning.log_scale), state.tuning.walks.factor, state.annealing.beta)

    def step(carry: tuple[Chains, Counts], inputs: tuple) -> tuple[tuple, tuple]:
        (chains, counts), (words, entry, variant) = carry, inputs
        chains, info, counts = move(
            kernel,
            data,
            words,
            chains,
            entry,
            variant,
            steps=steps,
            counts=counts,
            num_logged=num_logged,
        )
        return (chains, counts), (info.is_accepted[:num_logged], info.changed)

    is_draw_end = num_steps <= plan.epoch_steps
    max_draws = jnp.where(is_draw_end, phase.max_draws, 0)

    def one_draw(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
        chains, counts, statistics = carry
        (chains, counts), log = lax.scan(step, (chains, counts), inputs)
        statistics = update_statistics(statistics, all_outputs(spec, chains), max_draws)
        return (chains, counts, statistics), (log, spec.keep.record(chains))

    by_draw = _split((words, entries, variants), plan.num_draws)
    start = (state.chains, empty_counts(kernel.num_slots, state.has_moved), state.statistics)
    (chains, counts, statistics), (log, kept) = lax.scan(one_draw, start, by_draw)

    def learn_pace(tuning: Tuning) -> Tuning:
        evidence = Evidence(
            entries=entries,
            variants=variants,
            scaled=counts.scaled,
            taken=counts.taken,
            num_chains=num_chains,
        )
        tuning = tune(data.traits, tuning, evidence) if kernel.has_tuning else tuning
        return _watch_walks(spec, data, chains, tuning) if kernel.walks else tuning

    tuning = lax.cond(phase.is_adapting, learn_pace, lambda same: same, state.tuning)
    schedule = state.schedule
    if spec.schedule.award is not None:
        schedule = lax.cond(
            phase.is_adapting & (state.annealing.beta >= 1.0),
            spec.schedule.award,
            lambda same, _: same,
            schedule,
            EpochLog(entries, *_join(log)),
        )
    tallies, entry_tallies = _tally(kernel, data, state, entries, counts)
    new = SuperchainState(
        chains=chains,
        schedule=schedule,
        tuning=tuning,
        tallies=tallies,
        entry_tallies=entry_tallies,
        statistics=statistics,
        has_moved=counts.has_moved & (phase.max_draws > 0),
        annealing=state.annealing,
    )
    return new, kept


def _draw_steps(
    spec: EngineSpec, key: Key, state: SuperchainState, num_chains: int
) -> tuple[Array, Array, Array]:
    """Draw the random words, the entries and the variants of an epoch's steps, in bulk."""
    num_steps, num_words = spec.plan.epoch_steps, spec.kernel.num_words
    bits = jax.random.bits(key, (num_steps * (2 + num_words * num_chains),), "uint32")
    weights = jnp.where(
        state.annealing.beta < 1.0,
        annealing_weights(spec.kernel),
        spec.schedule.weights(state.schedule),
    )
    entries = select(bits[:num_steps], weights)
    variants = to_uniform(bits[num_steps : 2 * num_steps]) < state.tuning.second_share[entries]
    words = bits[2 * num_steps :].reshape(num_steps, num_words, num_chains)
    return words, entries, variants.astype(jnp.int32)


def _tally(
    kernel: Kernel, data: KernelData, state: SuperchainState, entries: Array, counts: Counts
) -> tuple[Tallies, Tallies]:
    """Count the steps of an epoch, per component and per entry."""
    made = jnp.where(entries < 0, 0, state.chains.log_terms.shape[-1])
    selected = jax.ops.segment_sum(made, jnp.maximum(entries, 0), kernel.num_entries)
    by_slot = (selected[data.traits.entry_of], counts.accepted, counts.invalid)

    def gather(numbers: Array, size: int) -> list[Array]:
        if size == kernel.num_slots:  # then they are the slots
            return list(by_slot)
        return [jax.ops.segment_sum(count, numbers, size) for count in by_slot]

    return (
        update_tallies(state.tallies, *gather(data.traits.component_of, kernel.num_components)),
        update_tallies(state.entry_tallies, *gather(data.traits.entry_of, kernel.num_entries)),
    )


def all_outputs(spec: EngineSpec, chains: Chains) -> Array:
    """Return all scalar outputs as numbers, ``[K, C]``."""
    parts = take_rows(chains.outputs, spec.outputs)
    return jnp.concatenate([jnp.asarray(part, float_type()) for part in parts])


def _split(tree: Any, num_parts: int) -> Any:
    return jax.tree.map(lambda array: array.reshape(num_parts, -1, *array.shape[1:]), tree)


def _join(tree: Any) -> Any:
    return jax.tree.map(
        lambda array: array.reshape(array.shape[0] * array.shape[1], *array.shape[2:]), tree
    )


def _anneal(
    spec: EngineSpec, data: KernelData, key: Key, rounds_left: Array, state: SuperchainState
) -> SuperchainState:
    """Let a superchain that is still on its way climb to the next rung, if it is time."""
    annealing = state.annealing
    key_rung = jax.random.fold_in(jax.random.fold_in(key, RUNGS), annealing.num_rungs)
    chains, walks, annealing = anneal(
        Way(spec.kernel, data, spec.likelihood),
        key_rung,
        rounds_left,
        Particles(state.chains, state.tuning.walks, annealing),
    )
    tuning = state.tuning._replace(walks=walks)
    return state._replace(chains=chains, tuning=tuning, annealing=annealing)


def run_round(
    spec: EngineSpec,
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
    plan = spec.plan
    state = _anneal(spec, data, key, phase.anneal_until - index, state)

    def epoch(state: SuperchainState, number: Array) -> tuple[SuperchainState, Kept]:
        key_epoch = jax.random.fold_in(key, index * plan.num_epochs + number)
        left = plan.thinning * plan.num_draws - number * plan.epoch_steps
        return run_epoch(spec, data, phase, key_epoch, state, left)

    if plan.num_epochs == 1:
        return epoch(state, jnp.int32(0))
    state, kept = lax.scan(epoch, state, jnp.arange(plan.num_epochs))
    return state, jax.tree.map(lambda array: array[-1], kept)
