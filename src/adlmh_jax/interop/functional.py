"""One superchain as pure functions, `init` and `step`, for loops of your own.

The pair is that of BlackJAX's sampling algorithms, so its runners take it as it is.
"""

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.engine.config import default_epoch
from adlmh_jax.moves.table import KernelData, build_kernel
from adlmh_jax.model import Program
from adlmh_jax.model.sites import element_names, in_support, run_model
from adlmh_jax.proposals.plan import SitePlan, plan_prior, plan_sites
from adlmh_jax.schedules.base import Schedule, ucb
from adlmh_jax.engine.starting import MOST_TRIES
from adlmh_jax.statistics.streaming import Tallies, init_statistics, init_tallies
from adlmh_jax.engine.superchain import Code, Keep, Phase, SuperchainState, make_plan, run_round
from adlmh_jax.proposals.tuning import init_tuning
from adlmh_jax.types import Array, EpochLog, Key, Position


class IterationInfo(NamedTuple):
    """What an observer learns from one iteration of a superchain.

    Attributes
    ----------
    acceptance_rate
        Of the iteration's proposals, over all chains.
    log_density
        Log joint density where each chain stands, ``[C]``.
    weights
        Selection probability of each entry after the iteration, ``[M]``.
    selected, accepted, invalid
        Steps of chains in which each component was selected, its proposal accepted, and its density
        NaN or +inf, ``[N]``.
    """

    acceptance_rate: Array
    log_density: Array
    weights: Array
    selected: Array
    accepted: Array
    invalid: Array


class Algorithm(NamedTuple):
    """A superchain of AdLMH as pure functions.

    Attributes
    ----------
    init
        ``(position, rng_key=None) -> state``: chains at the given values ``[C, ...]`` of every
        latent site.
    step
        ``(rng_key, state, is_adapting=False) -> (state, info)``: one iteration. The schedule
        learns from it only if ``is_adapting``.
    start
        ``(rng_key, num_chains, given=None) -> (position, is_finite)``: prior draws, tried up to 100
        times for a finite density, and whether each chain found one, ``[C]``. Sites in ``given``
        stand at its values ``[C, ...]``.
    values
        ``state -> dict``: latent values and outputs by name, ``[C, ...]``.
    weights
        ``state -> alpha``: the selection probability of each entry, ``[M]``.
    entries
        Names of what steps select from, components or blocks of them, ``[M]``.
    num_steps
        Steps of an iteration.
    """

    init: Callable[..., SuperchainState]
    step: Callable[..., tuple[SuperchainState, IterationInfo]]
    start: Callable[..., tuple[Position, Array]]
    values: Callable[[SuperchainState], Position]
    weights: Callable[[SuperchainState], Array]
    entries: tuple[str, ...]
    num_steps: int


def as_algorithm(
    program: Program,
    *,
    schedule: Schedule = ucb(),
    proposals: str | Mapping[str, Any] = "auto",
    blocks: str = "auto",
    num_steps: int | None = None,
    epoch: int | None = None,
    held: Collection[str] = (),
) -> Algorithm:
    """Return a superchain of a compiled model as `init` and `step`.

    Parameters
    ----------
    program
        From `compile_model`.
    schedule
        ``ucb()`` is AdLMH, ``uniform()`` is LMH.
    proposals, blocks
        As for `sample`.
    num_steps
        Steps of an iteration. Default: a sweep's worth, one step for each component or block.
    epoch
        Steps between updates of the weights; 1 is exactly the paper. Default: 64, or a quarter of a
        sweep where that is more.
    held
        Latent sites that are never moved: they stay where `init` puts them.

    Returns
    -------
    An `Algorithm`. Its functions can be traced, vmapped and put in a ``lax.scan``.

    Examples
    --------
    ::

        algorithm = as_algorithm(compile_model(model, (data,)))
        position, _ = algorithm.start(key_start, 100)
        state = algorithm.init(position)
        for key in jax.random.split(key_warmup, 500):
            state, _ = algorithm.step(key, state, True)
        state, info = jax.lax.scan(lambda s, k: algorithm.step(k, s), state, keys)
    """
    _check_held(program, held)
    for name, number in (("num_steps", num_steps), ("epoch", epoch)):
        if number is not None and number < 1:
            raise ValueError(f"`{name}` must be at least 1, got {number}.")
    plans = plan_sites(program, proposals, blocks)
    plans |= {name: plan_prior(program.sites[name]) for name in held}
    kernel, data = build_kernel(program, plans)
    names, moved = _entries(program, plans, held)
    steps = num_steps or len(moved)
    plan = make_plan(steps, min(epoch or default_epoch(kernel.num_entries), steps))
    code = Code(kernel, _among(schedule, moved, kernel.num_entries), plan, Keep((), ()))

    def init(position: Position, rng_key: Key | None = None) -> SuperchainState:
        del rng_key
        return make_state(_check_position(program, position))

    @jax.jit
    def make_state(position: Position) -> SuperchainState:
        chains = program.chains_at(position)
        num_chains = chains.log_terms.shape[-1]
        return SuperchainState(
            chains,
            code.schedule.init(kernel.num_entries, kernel.num_outputs, num_chains),
            init_tuning(data),
            init_tallies(kernel.num_components),
            init_statistics(kernel.num_outputs, num_chains),
        )

    def step(
        rng_key: Key, state: SuperchainState, is_adapting: Array | bool = False
    ) -> tuple[SuperchainState, IterationInfo]:
        return _iterate(code, data, jnp.asarray(is_adapting), rng_key, state)

    draw_start = jax.jit(functools.partial(_draw_start, program), static_argnums=1)

    def start(
        rng_key: Key, num_chains: int, given: Mapping[str, Any] | None = None
    ) -> tuple[Position, Array]:
        checked = check_values(program, given or {}, "given", (num_chains,))
        return draw_start(rng_key, num_chains, checked)

    def weights(state: SuperchainState) -> Array:
        return code.schedule.weights(state.schedule)

    values = functools.partial(_values, program)
    return Algorithm(init, step, start, values, weights, tuple(names), steps)


@functools.partial(jax.jit, static_argnums=0)
def _iterate(
    code: Code, data: KernelData, is_adapting: Array, key: Key, state: SuperchainState
) -> tuple[SuperchainState, IterationInfo]:
    """Run one round and say what happened in it."""
    phase = Phase(is_adapting, most_draws=jnp.int32(0))
    new, kept = run_round(code, data, phase, key, jnp.int32(0), state)
    selected, accepted, invalid = _new_counts(state.tallies, new.tallies)
    rate = jnp.sum(accepted) / jnp.maximum(1, jnp.sum(selected))
    weights = code.schedule.weights(new.schedule)
    return new, IterationInfo(rate, kept.log_density[-1], weights, selected, accepted, invalid)


def _new_counts(old: Tallies, new: Tallies) -> tuple[Array, ...]:
    """Return the counts of one iteration: the low words wrap, their difference does not."""
    return tuple(
        (after.low - before.low).astype(jnp.int32) for before, after in zip(old, new, strict=True)
    )


def _entries(
    program: Program, plans: Mapping[str, SitePlan], held: Collection[str]
) -> tuple[list[str], tuple[int, ...]]:
    """Return the names of all entries, and the numbers of those that are not held."""
    names: list[str] = []
    moved: list[int] = []
    for site in program.sites.sites:
        elements = element_names(site.name, site.batch_shape)
        own = [f"{site.name}[:]"] if plans[site.name].is_block else elements
        if site.name not in held:
            moved.extend(range(len(names), len(names) + len(own)))
        names.extend(own)
    return names, tuple(moved)


@functools.cache
def _among(schedule: Schedule, moved: tuple[int, ...], num_entries: int) -> Schedule:
    """Return the schedule of some of the entries; the others have weight zero."""
    if len(moved) == num_entries:
        return schedule
    chosen = np.array(moved)
    number_of = np.full(num_entries, -1, np.int32)
    number_of[chosen] = np.arange(len(moved))

    def weights(state: Any) -> Array:
        return jnp.zeros(num_entries).at[chosen].set(schedule.weights(state))

    def award_moved(award: Callable, state: Any, log: EpochLog) -> Any:
        numbers = jnp.where(log.components < 0, -1, jnp.asarray(number_of)[log.components])
        return award(state, log._replace(components=numbers))

    return schedule._replace(
        init=lambda _, outputs, chains: schedule.init(len(moved), outputs, chains),
        weights=weights,
        award=schedule.award and functools.partial(award_moved, schedule.award),
        num_scouts=lambda _, outputs, chains: schedule.num_scouts(len(moved), outputs, chains),
    )


def _check_held(program: Program, held: Collection[str]) -> None:
    unknown = sorted(set(held) - set(program.sites.names))
    if unknown:
        raise ValueError(f"`held` names {listed(unknown)}, not among the latent sites.")
    moved = [name for name in program.sites.names if name not in held]
    if not moved:
        raise ValueError("All latent sites are held: leave at least one to move.")
    for name in moved:
        pulled = sorted(set(program.touches[name].redraws) & set(held))
        if pulled:
            raise ValueError(
                f"The support of {listed(pulled)} depends on `{name}`, so that moving `{name}` "
                f"may have to redraw what is held. Move them together."
            )


def _values(program: Program, state: SuperchainState) -> Position:
    """Return latent values, and outputs that are not among them, by name, ``[C, ...]``."""
    outputs = program.output_layout.unpack(state.chains.outputs)
    return outputs | program.position_layout.unpack(state.chains.position)


def _check_position(program: Program, position: Mapping[str, Any]) -> Position:
    """Return positions with the sites' dtypes; refuse wrong names and shapes."""
    names = program.sites.names
    if set(position) != set(names):
        raise ValueError(
            f"`position` has values of {listed(position) or 'nothing'}; expected one for each "
            f"latent site: {listed(names)}."
        )
    num_chains = max(jnp.shape(value)[:1] for value in position.values())
    return check_values(program, position, "position", num_chains)


def check_values(
    program: Program, values: Mapping[str, Any], called: str, chain_shape: tuple[int, ...]
) -> Position:
    """Return values ``[*chain_shape, ...]`` of some sites with the dtypes of the sites."""
    checked = {}
    for name, value in values.items():
        site, array = program.sites[name], jnp.asarray(value)
        expected = (*chain_shape, *site.shape)
        if array.shape != expected:
            chains = "one for each chain" if chain_shape else "for one chain"
            raise ValueError(
                f"`{called}` gives `{name}` the shape {array.shape}; expected {expected}: the "
                f"site's shape {site.shape}, {chains}."
            )
        if not jnp.can_cast(array.dtype, site.dtype, "same_kind"):
            raise ValueError(
                f"`{called}` gives `{name}` values of type {array.dtype}; the site takes "
                f"{site.dtype}."
            )
        checked[name] = array.astype(site.dtype)
    return checked


def _draw_start(
    program: Program, key: Key, num_chains: int, given: Position
) -> tuple[Position, Array]:
    """Draw what is not given from the prior; chains of density zero draw again, up to 100 times.

    Returns the position, and whether each chain has a finite density there, in the support.
    """
    call = program.call

    def draw_one(key: Key, given: Position) -> tuple[Position, Array]:
        run = run_model(call.model, call.args, call.kwargs, given, key)
        position, is_inside = {}, jnp.bool_(True)
        for site in program.sites.sites:
            message = run.latent[site.name]
            value = jnp.asarray(message["value"], site.dtype)
            inside = in_support(message["fn"], value, site.batch_shape)
            position[site.name], is_inside = value, is_inside & jnp.all(inside)
        terms, _ = program.evaluate(position)
        is_finite = [jnp.all(jnp.isfinite(term)) for term in terms.values()]
        return position, is_inside & jnp.all(jnp.stack(is_finite))

    def draw(carry: tuple) -> tuple:
        attempt, position, is_good = carry
        keys = jax.random.split(jax.random.fold_in(key, attempt), num_chains)
        fresh, is_good_now = jax.vmap(draw_one)(keys, given)

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(is_good.reshape(-1, *(1 for _ in old.shape[1:])), old, new)

        return attempt + 1, jax.tree.map(choose, fresh, position), is_good | is_good_now

    def is_needed(carry: tuple) -> Array:
        return (carry[0] < MOST_TRIES) & ~jnp.all(carry[2])

    nowhere = {s.name: jnp.zeros((num_chains, *s.shape), s.dtype) for s in program.sites.sites}
    first = (jnp.int32(0), nowhere, jnp.zeros(num_chains, bool))
    return lax.while_loop(is_needed, draw, first)[1:]


def listed(names: Collection[str]) -> str:
    """Return names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in sorted(names))
