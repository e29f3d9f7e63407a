"""`influence`: components are selected by what they have to do with the outputs.

Warm-up is a *cycle*. In its first half the schedule looks at the chains: windows of growing length,
each of which ends with new weights (`dependence`, `design`). In its second half the weights, mixed
with more or less of uniform ones, and those of UCB race (`race`); the winner is kept. Where
learning goes on after warm-up, cycles follow each other, each twice as long as the one before.
"""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.schedules.base import Schedule, Watch, no_start
from adlmh_jax.schedules.dependence import (
    THRESHOLD,
    Units,
    Window,
    explain,
    first_units,
    init_units,
    init_window,
    look,
    new_units,
    plan_groups,
)
from adlmh_jax.schedules.design import design, mix, mobility
from adlmh_jax.schedules.race import (
    MIN_LOOKS,
    NUM_CANDIDATES,
    SHARES,
    WORST,
    Race,
    decide,
    follow,
    init_race,
    judge,
    measure,
)
from adlmh_jax.schedules.ucb import ucb
from adlmh_jax.types import Array, EpochLog, Sight, Sizes, as_array, float_type

FIRST_CYCLE = 64  # epochs, where nobody says how long warm-up is
WINDOW_ENDS = (1, 2, 4, 8)  # sixteenths of a cycle; what follows the last one is the race
LEARNING_SHARE = 0.5  # of uniform while there are weights that have not raced yet


class Clock(NamedTuple):
    """Where in its cycle a schedule is: epochs done, epochs in all, and cycles done before."""

    epoch: Array
    length: Array
    num_cycles: Array


class InfluenceState(NamedTuple):
    """What the schedule keeps.

    Attributes
    ----------
    ucb
        What UCB learns beside it.
    settled, playing
        The winner's weights, and those of the next epoch of learning, ``[M]``.
    value_units, output_units
        Of latent scalars and of outputs.
    window, race
        Of the present cycle.
    clock
        Where in it the schedule is.
    influence
        What the components of each entry explain of each output, ``[M, K]``, or of all, ``[M, 1]``.
    mobility
        Share of the variance of its components that a move of each entry renews, ``[M]``.
    scores, winner
        Of the last race.
    cost_power
        1 if costs count, 0 if not.
    base
        Weights of which all candidates but UCB's have a share, ``[M]``.
    """

    ucb: Any
    settled: Array
    playing: Array
    value_units: Units
    output_units: Units
    window: Window
    race: Race
    clock: Clock
    influence: Array
    mobility: Array
    scores: Array
    winner: Array
    cost_power: Array
    base: Array


@functools.cache
def influence(per: Literal["second", "step"] = "second") -> Schedule:
    """Select components by what they explain of the outputs, and by how slowly they move.

    Parameters
    ----------
    per
        Whether effective draws of the outputs are to be many ``"second"`` by second, which takes
        account of what a move of each component costs, or step by ``"step"``.

    Notes
    -----
    During warm-up each superchain learns which components have to do with the outputs (see
    ``docs/schedules.md``) and how far their moves take them. Then weights that follow from it,
    mixed with 0.1 to 1 of uniform ones, race against each other and against those of `ucb`, which
    learns beside it. The fastest is kept; no component has less than a tenth of uniform weight.
    """
    if per not in ("second", "step"):
        raise ValueError(f'`per` must be "second" or "step", got {per!r}.')

    def init(sizes: Sizes) -> InfluenceState:
        num_entries, base = sizes.num_entries, as_array(sizes.base, float_type())
        num_reported = 1 if plan_groups(sizes).num_sums else sizes.num_outputs
        return InfluenceState(
            ucb=ucb().init(sizes),
            settled=base,
            playing=base,
            value_units=init_units(sizes.num_scalars),
            output_units=init_units(sizes.num_outputs),
            window=init_window(sizes),
            race=init_race(sizes),
            clock=Clock(*(as_array(n, np.int32) for n in (0, FIRST_CYCLE, 0))),
            influence=as_array(np.zeros((num_entries, num_reported)), float_type()),
            mobility=as_array(np.zeros(num_entries), float_type()),
            scores=as_array(np.zeros(NUM_CANDIDATES), float_type()),
            winner=as_array(NUM_CANDIDATES - 1, np.int32),
            cost_power=as_array(per == "second", float_type()),
            base=base,
        )

    return _rule()._replace(init=init, name=f'influence(per="{per}")')


@functools.cache
def _rule() -> Schedule:
    """Return the functions that all such schedules share."""
    return Schedule(
        init=no_start,
        weights=lambda state: state.settled,
        award=_award,
        report=_report,
        num_logged=ucb().num_logged,
        name="",
        watch=Watch(
            learn=_learn,
            units=lambda state: state.value_units.spread,
            weights=lambda state: state.playing,
            report=_report_race,
        ),
    )


def _award(state: InfluenceState, log: EpochLog) -> InfluenceState:
    return state._replace(ucb=ucb().award(state.ucb, log))  # type: ignore[misc]


def _learn(state: InfluenceState, sight: Sight) -> InfluenceState:
    """Take in an epoch: study the chains, or go on with the race."""
    state = lax.cond(
        (state.clock.epoch == 0) & (state.clock.num_cycles == 0), _begin, _same, state, sight
    )
    clock = state.clock
    state = lax.cond(clock.epoch < _race_start(clock), _study, _run_race, state, sight)
    is_over = clock.epoch + 1 >= clock.length
    return state._replace(
        clock=Clock(
            jnp.where(is_over, 0, clock.epoch + 1),
            jnp.where(is_over, 2 * clock.length, clock.length),
            clock.num_cycles + is_over,
        )
    )


def _same(state: InfluenceState, sight: Sight) -> InfluenceState:
    del sight
    return state


def _begin(state: InfluenceState, sight: Sight) -> InfluenceState:
    """Take the first units from where the chains are, and the first cycle as long as warm-up."""
    known = sight.num_warmup
    return state._replace(
        value_units=first_units(sight.values),
        output_units=first_units(sight.outputs),
        clock=state.clock._replace(length=jnp.where(known > 0, known, state.clock.length)),
    )


def _race_start(clock: Clock) -> Array:
    return jnp.maximum(clock.length // 2, 1)


def _study(state: InfluenceState, sight: Sight) -> InfluenceState:
    """Look at the chains; at the end of a window draw conclusions."""
    clock = state.clock
    ends = jnp.array([*(clock.length * end // 16 for end in WINDOW_ENDS[:-1]), _race_start(clock)])
    start = jnp.max(jnp.where(ends <= clock.epoch, ends, 0))
    end = jnp.min(jnp.where(ends > clock.epoch, ends, clock.length))
    num_parts = state.window.number.size
    part = (clock.epoch - start) * num_parts // (end - start)
    units = (state.value_units, state.output_units)
    state = state._replace(window=look(state.window, units, sight, part))
    return lax.cond(clock.epoch + 1 == end, _conclude, _same, state, sight)


def _conclude(state: InfluenceState, sight: Sight) -> InfluenceState:
    """Draw new weights and units from the window; after the last one let the race begin."""
    window, clock = state.window, state.clock
    number = jnp.sum(window.number)
    best, influence, mobile = propose(state, sight)
    blank = jax.tree.map(jnp.zeros_like, (window, state.race.courses))
    is_first = clock.num_cycles == 0
    playing = jnp.where(is_first, mix(best, state.base, LEARNING_SHARE), state.playing)
    mixtures = [mix(best, state.base, share) for share in SHARES]
    candidates = jnp.stack([ucb().weights(state.ucb), *mixtures])
    is_racing = clock.epoch + 1 == _race_start(clock)
    nothing = jnp.full_like(state.race.ratios, WORST).at[-1].set(0.0)  # then uniform is kept
    return state._replace(
        playing=jnp.where(is_racing, candidates[0], playing),
        value_units=new_units(state.value_units, window.value_powers, number),
        output_units=new_units(state.output_units, window.output_powers, number),
        window=blank[0],
        race=Race(candidates, nothing, blank[1]),
        influence=influence,
        mobility=mobile,
    )


def propose(state: InfluenceState, sight: Sight) -> tuple[Array, Array, Array]:
    """Return the best weights by what a window says, and what entries explain and renew."""
    window, anatomy = state.window, sight.anatomy
    num_entries, num_outputs = state.settled.size, sight.outputs.shape[0]
    num_chains = sight.outputs.shape[1]
    num_components = state.value_units.centre.size  # at most: those without a scalar stay empty

    def by_component(array: Array) -> Array:
        return jax.ops.segment_sum(array, anatomy.component_of, num_components)

    def by_entry(array: Array) -> Array:
        return jax.ops.segment_sum(array, anatomy.entry_of, num_entries)

    shares, noise = explain(window, num_outputs)
    if state.influence.shape[1] == num_outputs:  # the two features of an output, taken together
        num_features = 1.0 + (state.output_units.curvature > 0) * anatomy.is_count
        shares, noise = (a.reshape(-1, 2, num_outputs) for a in (shares, noise))
        shares, noise = shares.sum(axis=1) / num_features, jnp.sqrt((noise**2).sum(axis=1))
    else:
        shares = jnp.sum(shares, axis=1, keepdims=True) / num_outputs
        noise = jnp.sqrt(jnp.sum(noise**2, axis=1, keepdims=True)) / num_outputs
    explained, noise_each = by_component(shares), jnp.sqrt(by_component(noise**2))
    total, total_noise = jnp.sum(explained, axis=1), jnp.sqrt(jnp.sum(noise_each**2, axis=1))
    has_jumped = jax.ops.segment_sum(window.jumps, anatomy.slot_component, num_components) > 0.0
    # What never moved would not if it were selected more often.
    is_worth = has_jumped & (total > THRESHOLD * total_noise)
    explained = jnp.where(is_worth[:, None], jnp.maximum(explained, 0.0), 0.0)
    mean, second = window.value_powers[:2] / jnp.maximum(jnp.sum(window.number), 1.0)
    variance = by_component(second - mean**2) / jnp.maximum(by_component(jnp.ones_like(mean)), 1.0)
    mobile = mobility(anatomy, window.jumps, window.tries, variance, jnp.asarray(num_chains))
    best = design(anatomy, explained, mobile, anatomy.costs**state.cost_power)
    shares = by_component(jnp.where(shares > THRESHOLD * noise, shares, 0.0))
    num_slots = jnp.maximum(by_entry(jnp.ones_like(mobile)), 1.0)
    return best, by_entry(shares[anatomy.slot_component]), by_entry(mobile) / num_slots


def _run_race(state: InfluenceState, sight: Sight) -> InfluenceState:
    """Follow the candidate that runs; at the end of its stretch let the next one run."""
    race, clock = state.race, state.clock
    start = _race_start(clock)
    stretch = jnp.maximum((clock.length - start) // NUM_CANDIDATES, 1)
    runner = jnp.minimum((clock.epoch - start) // stretch, NUM_CANDIDATES - 1)
    first = start + runner * stretch
    end = jnp.where(runner == NUM_CANDIDATES - 1, clock.length, first + stretch)
    num_parts = race.courses.number.size
    part = jnp.minimum((clock.epoch - first) * num_parts // (end - first), num_parts - 1)
    courses = follow(race.courses, sight.course, part)
    is_end = clock.epoch + 1 >= end
    is_known = is_end & (jnp.sum(courses.number) >= MIN_LOOKS)
    ratios = race.ratios.at[runner].set(jnp.where(is_known, measure(courses), race.ratios[runner]))
    scores = judge(ratios) * (race.candidates @ sight.anatomy.costs**state.cost_power)
    courses = jax.tree.map(lambda leaf: jnp.where(is_end, 0.0, leaf), courses)
    is_over = clock.epoch + 1 >= clock.length
    winner = jnp.where(is_over, decide(scores), state.winner).astype(jnp.int32)
    settled = jnp.where(is_over, race.candidates[winner], state.settled)
    following = race.candidates[jnp.minimum(runner + is_end, NUM_CANDIDATES - 1)]
    return state._replace(
        settled=settled,
        playing=jnp.where(is_over, settled, following),
        race=Race(race.candidates, ratios, courses),
        scores=jnp.where(is_over, scores, state.scores),
        winner=winner,
    )


def _report(state: InfluenceState) -> dict[str, Array]:
    learned = ucb().report(state.ucb)
    return {**learned, "influence": state.influence, "mobility": state.mobility}


def _report_race(state: InfluenceState) -> dict[str, Array]:
    share = jnp.array([jnp.nan, *SHARES])[state.winner]
    return {"share_of_uniform": share, "race": state.scores}
