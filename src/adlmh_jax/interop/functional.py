"""One superchain as pure functions, `init` and `step`, for loops of your own.

The pair is that of BlackJAX's sampling algorithms, so its runners take it as it is.
"""

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from adlmh_jax.engine import (
    EngineSpec,
    Phase,
    SuperchainState,
    build_draw,
    build_engine,
    compile_quickly,
    init_superchain,
    run_round,
)
from adlmh_jax.model import Program, listed
from adlmh_jax.moves import KernelData
from adlmh_jax.schedules import Schedule, ucb
from adlmh_jax.statistics import Tallies
from adlmh_jax.types import Array, Key, Position


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
        Steps of an iteration. Default: a sweep's worth, one step for each component or block, and
        one for each number of sites that walk together.
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

        keys = jax.random.split(jax.random.key(0), 501)
        algorithm = adlmh.as_algorithm(adlmh.compile_model(model, (readings,)))
        position, _ = algorithm.start(keys[0], 100)  # 100 chains
        state = algorithm.init(position)
        state, _ = jax.lax.scan(lambda s, k: algorithm.step(k, s, True), state, keys[1:251])
        state, info = jax.lax.scan(lambda s, k: algorithm.step(k, s), state, keys[251:])
    """
    _check_held(program, held)
    for name, number in (("num_steps", num_steps), ("epoch", epoch)):
        if number is not None and number < 1:
            raise ValueError(f"`{name}` must be at least 1, got {number}.")
    engine = build_engine(
        program,
        schedule=schedule,
        proposals=proposals,
        blocks=blocks,
        thinning=num_steps,
        epoch=epoch,
        held=held,
        has_one_draw=True,
    )
    spec, data = engine.spec, engine.data
    draw_start = build_draw(program)

    @jax.jit
    def make_state(position: Position) -> SuperchainState:
        chains = program.chains_at(position)
        learned = engine.init_schedule(chains.log_terms.shape[-1])
        return init_superchain(spec, data, learned, chains)

    def init(position: Position, rng_key: Key | None = None) -> SuperchainState:
        del rng_key
        return make_state(_check_position(program, position))

    def step(
        rng_key: Key, state: SuperchainState, is_adapting: Array | bool = False
    ) -> tuple[SuperchainState, IterationInfo]:
        return _iterate(spec, data, jnp.asarray(is_adapting), rng_key, state)

    def start(
        rng_key: Key, num_chains: int, given: Mapping[str, Any] | None = None
    ) -> tuple[Position, Array]:
        checked = check_values(program, given or {}, "given", (num_chains,))
        chains, _ = draw_start(rng_key, num_chains, checked)
        position = program.latent_layout.unpack(chains.latent)
        is_finite = jnp.all(jnp.isfinite(chains.log_terms), axis=0)
        # Prior draws lie in their supports.
        return position, is_finite & _is_inside(program, position) if checked else is_finite

    return Algorithm(
        init=init,
        step=step,
        start=start,
        values=functools.partial(_values, program),
        weights=lambda state: spec.schedule.weights(state.schedule),
        entries=engine.entry_names,
        num_steps=spec.plan.thinning,
    )


@compile_quickly(static_argnums=0)
def _iterate(
    spec: EngineSpec, data: KernelData, is_adapting: Array, key: Key, state: SuperchainState
) -> tuple[SuperchainState, IterationInfo]:
    """Run one round and say what happened in it."""
    phase = Phase(is_adapting, max_draws=jnp.int32(0), num_warmup=jnp.int32(0))
    new, _ = run_round(spec, data, phase, key, jnp.int32(0), state)
    selected, accepted, invalid = _new_counts(state.tallies, new.tallies)
    rate = jnp.sum(accepted) / jnp.maximum(1, jnp.sum(selected))
    weights = spec.schedule.weights(new.schedule)
    return new, IterationInfo(
        acceptance_rate=rate,
        log_density=jnp.sum(new.chains.log_terms, axis=-2),
        weights=weights,
        selected=selected,
        accepted=accepted,
        invalid=invalid,
    )


def _is_inside(program: Program, position: Position) -> Array:
    """Return whether each chain is inside all supports, ``[C]``."""
    inside = jax.vmap(program.in_supports)(position).values()
    return jnp.all(jnp.stack(list(inside)), axis=0)


def _new_counts(old: Tallies, new: Tallies) -> tuple[Array, ...]:
    """Return the counts of one iteration: the low words wrap, their difference does not."""
    return tuple(
        (after.low - before.low).astype(jnp.int32) for before, after in zip(old, new, strict=True)
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
    return outputs | program.latent_layout.unpack(state.chains.latent)


def _check_position(program: Program, position: Mapping[str, Any]) -> Position:
    """Return positions with the sites' dtypes; refuse wrong names and shapes."""
    names = program.sites.names
    if set(position) != set(names):
        raise ValueError(
            f"`position` has values of {listed(sorted(position)) or 'nothing'}; expected one for "
            f"each latent site: {listed(sorted(names))}."
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
