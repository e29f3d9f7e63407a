"""Starting points of finite density: prior draws, and repairs where they fail."""

import functools
from collections.abc import Callable, Container
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.engine.annealing import MIN_PARTICLES, MIN_ROUNDS
from adlmh_jax.engine.build import Engine
from adlmh_jax.engine.config import RunConfig
from adlmh_jax.engine.keys import START, fold_in
from adlmh_jax.engine.rounds import anneal_until, warmup_epochs
from adlmh_jax.engine.step import draw, move
from adlmh_jax.engine.superchain import Start
from adlmh_jax.model import Program
from adlmh_jax.moves import Kernel, KernelData, accept_unless_worse, build_kernel, build_start
from adlmh_jax.proposals import plan_sites, walk_or_draw
from adlmh_jax.types import Array, Chains, Key, Position

MAX_TRIES = 100  # prior draws of all sites
MAX_STEPS = 1 << 15  # by which single choices are moved while no chain gets any better
STEPS_PER_CALL = 256


class Started(NamedTuple):
    """Chains at starting points, and how they were found.

    Attributes
    ----------
    chains
        At points of finite density.
    num_runs
        How often the program was run for each chain, ``[C]``.
    is_repaired
        Whether some are no prior draws, but had single choices moved.
    """

    chains: Chains
    num_runs: Any
    is_repaired: bool


def start_chains(
    program: Program, key: Key, num_chains: int, given: Position | None = None
) -> Started:
    """Start chains at points of finite density: prior draws, repaired choice by choice if need be.

    Parameters
    ----------
    program
        The compiled model.
    key
        Of all starting points.
    num_chains
        How many.
    given
        Values ``[C, ...]`` of the sites that are not to be drawn. Default: those that the program
        is to start with.

    Returns
    -------
    The chains.

    Raises
    ------
    ModelError
        If a chain finds no point of finite density; it names the terms that prevent it.
    """
    if given is None:
        given = {n: _for_each_chain(program, n, num_chains) for n in program.init}
    chains, num_runs = build_draw(program)(key, num_chains, given)
    is_repaired = bool(_num_impossible(chains).any())
    if is_repaired:
        chains = repair(program, fold_in(key, MAX_TRIES), chains, given)
    program.check_given(chains, given)
    if _num_impossible(chains).any():
        raise program.no_finite_start(chains, MAX_TRIES)
    return Started(chains, num_runs, is_repaired)


def _for_each_chain(program: Program, name: str, num_chains: int) -> Any:
    """Return the starting values of a site, ``[C, ...]``: one for all chains, or one for each.

    Superchains that fill up the devices start where the last chain does.
    """
    value, shape = np.asarray(program.init[name]), program.sites[name].shape
    if value.shape == shape:
        return np.broadcast_to(value, (num_chains, *shape))
    missing = num_chains - len(value)
    return np.concatenate([value, np.repeat(value[-1:], max(0, missing), axis=0)])[:num_chains]


def start_superchains(
    program: Program, key: Key, num_superchains: int, num_chains: int, together: bool = False
) -> Started:
    """Start all chains, ``[S, ..., C]``, on the host; those of a superchain together, if asked."""
    each = 1 if together else num_chains
    started = start_chains(program, fold_in(key, START), num_superchains * each)

    def by_superchain(leaf: Array) -> np.ndarray:
        array = np.asarray(leaf)
        spread = np.repeat(array, num_chains, axis=-1) if together else array
        return np.moveaxis(spread.reshape(len(array), num_superchains, num_chains), 1, 0)

    chains = jax.tree.map(by_superchain, started.chains)
    num_runs = np.asarray(started.num_runs).reshape(num_superchains, each)
    return Started(chains, num_runs, started.is_repaired)


def can_anneal(engine: Engine, config: RunConfig) -> bool:
    """Whether a run goes from prior to posterior: there are particles, a prior, and time."""
    program = engine.program
    traced, names = program.traced, program.sites.names
    # What is drawn from the prior must have the density that the terms of the prior say.
    is_plain = all(traced.priors[name] == traced.terms[name] for name in names)
    num_epochs = warmup_epochs(engine.spec.plan, config.num_warmup)
    has_time = anneal_until(engine.spec.plan, num_epochs) >= MIN_ROUNDS
    is_asked = config.start == "anneal" and config.chains_each >= MIN_PARTICLES
    has_data = bool(engine.spec.likelihood)
    return is_asked and has_time and has_data and is_plain and not program.init


def first_beta(started: Started, is_annealed: bool) -> Start:
    """Return where superchains begin, ``[S]``.

    Prior draws of density zero were drawn anew: the evidence has their share as a factor.
    """
    num_superchains, num_chains = started.num_runs.shape
    log_evidence = np.log(num_chains / started.num_runs.sum(axis=1))
    is_known = is_annealed and not started.is_repaired
    return Start(
        beta=np.full(num_superchains, 0.0 if is_annealed else 1.0),
        log_evidence=np.where(is_known, log_evidence, np.nan),
    )


def build_draw(program: Program) -> Callable[[Key, int, Position], tuple[Chains, Array]]:
    """Return ``(key, num_chains, given) -> (chains, number of runs of each)``, which can be traced.

    What is not given is drawn from the prior; chains of density zero draw again, up to 100 times.
    Those that found no point of finite density have terms that are not finite.
    """
    kernel, data = build_start(program)

    def draw_start(key: Key, num_chains: int, given: Position) -> tuple[Chains, Array]:
        is_given = np.array([name in given for name in program.sites.names])
        empty = program.empty_chains(num_chains, given)
        return _draw_until_finite(kernel, data, empty, key, is_given)

    return draw_start


@functools.partial(jax.jit, static_argnums=0)
def _draw_until_finite(
    kernel: Kernel, data: KernelData, empty: Chains, key: Key, is_given: Array
) -> tuple[Chains, Array]:
    """Run the program for every chain, again for those where a term is impossible.

    Returns the chains, and the number of runs of each.
    """

    def run_program(key: Key) -> Chains:
        def draw_site(chains: Chains, inputs: tuple[Array, Array]) -> tuple[Chains, None]:
            site, is_given = inputs
            shape = (kernel.num_words, empty.log_terms.shape[-1])
            words = jax.random.bits(jax.random.fold_in(key, site), shape, "uint32")
            return draw(kernel, data, words, chains, site, is_given), None

        return lax.scan(draw_site, empty, (jnp.arange(is_given.size), is_given))[0]

    def is_needed(carry: tuple[Array, Chains, Array]) -> Array:
        attempt, chains, _ = carry
        is_bad = ~jnp.all(jnp.isfinite(chains.log_terms))
        return (attempt == 0) | ((attempt < MAX_TRIES) & is_bad)

    def run(carry: tuple[Array, Chains, Array]) -> tuple[Array, Chains, Array]:
        attempt, chains, num_runs = carry
        is_first = attempt == 0
        is_bad = is_first | ~jnp.all(jnp.isfinite(chains.log_terms), axis=0)
        key_attempt = jnp.where(is_first, key, jax.random.fold_in(key, attempt))
        return attempt + 1, _replace(is_bad, run_program(key_attempt), chains), num_runs + is_bad

    # The first attempt is a turn of the loop too: the program is compiled once.
    none = jnp.zeros(empty.log_terms.shape[-1], jnp.int32)
    return lax.while_loop(is_needed, run, (jnp.int32(0), empty, none))[1:]


def repair(program: Program, key: Key, chains: Chains, held: Container[str] = ()) -> Chains:
    """Move choices, one after the other, in chains where a term is impossible.

    They walk, and are drawn from the prior, in turn. A move is made unless it makes more terms
    impossible, until none is. Many counts that must each exceed an observed one are found in this
    way, though a draw of all of them at once never would. Sites that are ``held`` stay where they
    are.
    """
    sites = program.sites.sites
    proposals = {site.name: walk_or_draw(site) for site in sites}
    kernel, data = build_kernel(program, plan_sites(program, proposals))
    is_held = np.array([site.name in held for site in sites])
    entries = np.unique(np.asarray(data.traits.entry_of)[~is_held[program.sites.site_of]])
    num_sweeps = max(1, STEPS_PER_CALL // max(1, entries.size))
    steps = np.tile(entries.astype(np.int32), num_sweeps)
    sweep_of = np.repeat(np.arange(num_sweeps, dtype=np.int32), entries.size)
    least, patience, number = np.inf, 0, 0
    while (num_bad := _num_impossible(chains)).any() and steps.size:
        if num_bad.sum() < least:
            least, patience = num_bad.sum(), -(-MAX_STEPS // steps.size)
        if not patience:
            break
        variants = (sweep_of + number) % 2
        repaired = _move_in_turn(kernel, data, chains, fold_in(key, number), steps, variants)
        chains = _replace(num_bad > 0, repaired, chains)
        patience, number = patience - 1, number + 1
    return chains


@functools.partial(jax.jit, static_argnums=0)
def _move_in_turn(
    kernel: Kernel, data: KernelData, chains: Chains, key: Key, entries: Array, variants: Array
) -> Chains:
    """Move entries, one after the other, in the variants given."""

    def move_entry(chains: Chains, inputs: tuple[Array, Array, Array]) -> tuple[Chains, None]:
        number, entry, variant = inputs
        shape = (kernel.num_words, chains.log_terms.shape[-1])
        words = jax.random.bits(jax.random.fold_in(key, number), shape, "uint32")
        moved = move(kernel, data, words, chains, entry, variant, accept=accept_unless_worse)
        return moved[0], None

    return lax.scan(move_entry, chains, (jnp.arange(entries.size), entries, variants))[0]


def _num_impossible(chains: Chains) -> np.ndarray:
    """Return the number of terms that are not finite in each chain, ``[C]``."""
    return np.sum(~np.isfinite(chains.log_terms), axis=0)


def _replace(is_bad: Array | np.ndarray, new: Chains, old: Chains) -> Chains:
    return jax.tree.map(lambda new, old: jnp.where(is_bad, new, old), new, old)
