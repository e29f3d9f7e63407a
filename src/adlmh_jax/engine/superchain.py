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
from adlmh_jax.engine.counts import Counts, empty_counts
from adlmh_jax.engine.entry import Steps
from adlmh_jax.engine.rounds import Keep, Kept, Phase, RoundPlan, anneal_until
from adlmh_jax.engine.sight import (
    all_outputs,
    all_values,
    by_rows,
    count_tries,
    find_anatomy,
)
from adlmh_jax.engine.step import locate_walks, move
from adlmh_jax.graph import Rows
from adlmh_jax.moves import Kernel, KernelData, to_uniform
from adlmh_jax.proposals import Evidence, Tuning, init_tuning, tune, watch
from adlmh_jax.schedules import Schedule, select
from adlmh_jax.statistics import (
    Moments,
    Statistics,
    Tallies,
    add_value,
    init_moments,
    init_statistics,
    init_tallies,
    update_statistics,
    update_tallies,
)
from adlmh_jax.types import (
    Array,
    Chains,
    EpochLog,
    Key,
    Sight,
    Sizes,
)

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

    def sizes(self, num_chains: int) -> Sizes:
        """Return how many there are of what the schedule has to do with."""
        kernel = self.kernel
        return Sizes(
            num_entries=kernel.num_entries,
            num_outputs=kernel.num_outputs,
            num_chains=num_chains,
            num_slots=kernel.num_slots,
            num_scalars=kernel.num_scalars,
            base=kernel.base_weights,
        )

    def num_logged(self, num_chains: int) -> int:
        """Return how many chains the schedule learns from."""
        return self.schedule.num_logged(self.sizes(num_chains))


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
    words, entries, variants = _draw_steps(spec, phase, key, state)
    entries = jnp.where(jnp.arange(plan.epoch_steps) < num_steps, entries, -1)
    max_draws = jnp.where(num_steps <= plan.epoch_steps, phase.max_draws, 0)
    by_draw = _split((words, entries, variants), plan.num_draws)
    (chains, counts, statistics, course), (log, kept) = _make_steps(
        spec, data, state, by_draw, max_draws
    )

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

    def learn_schedule(learned: Any) -> Any:
        award, watching = spec.schedule.award, spec.schedule.watch
        learned = award(learned, EpochLog(entries, *_join(log))) if award else learned
        if not watching:
            return learned
        sight = Sight(
            values=all_values(chains),
            outputs=all_outputs(chains, spec.outputs),
            course=course,
            jumps=counts.jumps,
            tries=count_tries(kernel, data, entries, num_chains),
            num_warmup=phase.num_warmup - state.annealing.num_rounds * plan.num_epochs,
            anatomy=find_anatomy(data, spec.outputs),
        )
        return watching.learn(learned, sight)

    def learn_when_there(learned: Any) -> Any:
        return lax.cond(state.annealing.beta >= 1.0, learn_schedule, _as_it_is, learned)

    # One condition in the other: the phase is the same for superchains that run together, and a
    # condition in which they may differ would be computed for all of them in both phases.
    tuning = lax.cond(phase.is_adapting, learn_pace, _as_it_is, state.tuning)
    schedule = lax.cond(phase.is_adapting, learn_when_there, _as_it_is, state.schedule)
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


def _make_steps(
    spec: EngineSpec, data: KernelData, state: SuperchainState, by_draw: Any, max_draws: Array
) -> tuple[tuple[Chains, Counts, Statistics, Moments], tuple[tuple[Array, Array], Kept]]:
    """Make the steps of an epoch's draws; return where they lead, their log, and what is kept."""
    kernel, watching = spec.kernel, spec.schedule.watch
    num_chains = state.chains.log_terms.shape[-1]
    num_logged = spec.num_logged(num_chains)
    steps = Steps(jnp.exp(state.tuning.log_scale), state.tuning.walks.factor, state.annealing.beta)
    units = by_rows(watching.units(state.schedule), state.chains) if watching else None

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
            units=units,
        )
        return (chains, counts), (info.is_accepted[:num_logged], info.changed)

    def one_draw(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
        chains, counts, statistics, course = carry
        (chains, counts), log = lax.scan(step, (chains, counts), inputs)
        outputs = all_outputs(chains, spec.outputs)
        statistics = update_statistics(statistics, outputs, max_draws)
        if watching:
            course = add_value(course, outputs)
        return (chains, counts, statistics, course), (log, spec.keep.record(chains))

    counts = empty_counts(kernel.num_slots, state.has_moved, watching is not None)
    course = init_moments((kernel.num_outputs, num_chains if watching else 0))
    return lax.scan(one_draw, (state.chains, counts, state.statistics, course), by_draw)


def _draw_steps(
    spec: EngineSpec, phase: Phase, key: Key, state: SuperchainState
) -> tuple[Array, Array, Array]:
    """Draw the random words, the entries and the variants of an epoch's steps, in bulk."""
    kernel, schedule = spec.kernel, spec.schedule
    num_steps, num_words = spec.plan.epoch_steps, kernel.num_words
    num_chains = state.chains.log_terms.shape[-1]
    weights = schedule.weights(state.schedule)
    if schedule.watch:
        weights = jnp.where(phase.is_adapting, schedule.watch.weights(state.schedule), weights)
    bits = jax.random.bits(key, (num_steps * (2 + num_words * num_chains),), "uint32")
    is_annealing = state.annealing.beta < 1.0
    weights = jnp.where(is_annealing, annealing_weights(kernel), weights)
    entries = select(bits[:num_steps], weights)
    variants = to_uniform(bits[num_steps : 2 * num_steps]) < state.tuning.second_share[entries]
    words = bits[2 * num_steps :].reshape(num_steps, num_words, num_chains)
    return words, entries, variants.astype(jnp.int32)


def _tally(
    kernel: Kernel, data: KernelData, state: SuperchainState, entries: Array, counts: Counts
) -> tuple[Tallies, Tallies]:
    """Count the steps of an epoch, per component and per entry."""
    tries = count_tries(kernel, data, entries, state.chains.log_terms.shape[-1])
    by_slot = (tries, counts.accepted, counts.invalid)

    def gather(numbers: Array, size: int) -> list[Array]:
        if size == kernel.num_slots:  # then they are the slots
            return list(by_slot)
        return [jax.ops.segment_sum(count, numbers, size) for count in by_slot]

    return (
        update_tallies(state.tallies, *gather(data.traits.component_of, kernel.num_components)),
        update_tallies(state.entry_tallies, *gather(data.traits.entry_of, kernel.num_entries)),
    )


def _as_it_is(same: Any) -> Any:
    return same


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
    rounds_left = anneal_until(plan, phase.num_warmup) - index
    state = _anneal(spec, data, key, rounds_left, state)

    def epoch(state: SuperchainState, number: Array) -> tuple[SuperchainState, Kept]:
        key_epoch = jax.random.fold_in(key, index * plan.num_epochs + number)
        left = plan.thinning * plan.num_draws - number * plan.epoch_steps
        return run_epoch(spec, data, phase, key_epoch, state, left)

    if plan.num_epochs == 1:
        return epoch(state, jnp.int32(0))
    state, kept = lax.scan(epoch, state, jnp.arange(plan.num_epochs))
    return state, jax.tree.map(lambda array: array[-1], kept)
