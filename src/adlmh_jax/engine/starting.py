"""Starting points of finite density: prior draws, and repairs where they fail."""

import itertools
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.engine.annealing import MIN_PARTICLES, MIN_ROUNDS
from adlmh_jax.engine.build import Engine
from adlmh_jax.engine.compiling import compile_quickly
from adlmh_jax.engine.config import RunConfig
from adlmh_jax.engine.inputs import join, split
from adlmh_jax.engine.keys import Addresses, fold_in_words
from adlmh_jax.engine.rounds import anneal_until, warmup_epochs
from adlmh_jax.engine.step import draw, move
from adlmh_jax.engine.superchain import Start
from adlmh_jax.model import Program
from adlmh_jax.moves import Kernel, KernelData, accept_unless_worse, build_kernel, build_start
from adlmh_jax.proposals import plan_sites, walk_or_draw
from adlmh_jax.types import Array, Chains, Key, Position

MAX_TRIES = 100  # prior draws of all sites
MIN_FOUND = 1 / 8  # of the chains: where more found a start, the others begin there, to be annealed
MAX_STEPS = 1 << 15  # by which single choices are moved while no chain gets any better
STEPS_PER_CALL = 256


class Started(NamedTuple):
    """Chains at starting points, and how they were found.

    Attributes
    ----------
    chains
        At points of finite density, ``[S, ..., C]``, on the host.
    num_runs, num_found
        How often the program was run, and how many of these runs were of finite density, ``[S]``.
    is_repaired
        Whether some chains of a superchain are no prior draws, but had single choices moved,
        ``[S]``.
    """

    chains: Chains
    num_runs: np.ndarray
    num_found: np.ndarray
    is_repaired: np.ndarray


def start_superchains(
    program: Program,
    addresses: Addresses,
    num_chains: int,
    together: bool = False,
    is_annealed: bool = False,
) -> Started:
    """Start chains at points of finite density: prior draws, repaired choice by choice if need be.

    What becomes of a superchain depends on its own key alone, not on which others there are.

    Parameters
    ----------
    program
        The compiled model.
    addresses
        Of the superchains.
    num_chains
        Of each superchain.
    together
        Whether the chains of a superchain start at one point.
    is_annealed
        Whether the chains will be particles: then several may begin at one point.

    Raises
    ------
    ModelError
        If a chain finds no point of finite density; it names the terms that prevent it.
    """
    each = 1 if together else num_chains
    given = {name: _for_each_chain(program, name, addresses.numbers, each) for name in program.init}
    owners = np.repeat(addresses.datasets, each)
    empty = _by_superchain(program.empty_chains(owners.size, given, owners), each)
    kernel, data = build_start(program)
    is_given = np.array([name in given for name in program.sites.names])
    inputs = split(data, addresses.datasets)
    drawn = _draw_each(kernel, inputs.common, inputs.own, empty, addresses.start_keys, is_given)
    chains, num_runs = jax.tree.map(np.asarray, drawn)
    is_found = _num_impossible(chains) == 0
    chains = _begin_where_others_do(chains, is_found) if is_annealed else chains
    is_repaired = np.any(_num_impossible(chains), axis=1)
    if is_repaired.any():
        keys = fold_in_words(addresses.start_keys, np.array(MAX_TRIES))
        chains = repair(program, keys, chains, given, addresses.datasets)
    _check_start(program, addresses, chains, given)
    if together:
        chains = jax.tree.map(lambda leaf: np.repeat(leaf, num_chains, axis=-1), chains)
    return Started(chains, num_runs.sum(axis=1), is_found.sum(axis=1), is_repaired)


def _begin_where_others_do(chains: Chains, is_found: np.ndarray) -> Chains:
    """Put chains that found no start where others of their superchain did, if these are enough.

    So particles of weight zero are resampled; each of the others has about as many copies.
    """
    ancestors = np.broadcast_to(np.arange(is_found.shape[1]), is_found.shape).copy()
    for own, found in zip(ancestors, is_found, strict=True):
        where, lost = np.flatnonzero(found), np.flatnonzero(~found)
        if len(where) >= MIN_FOUND * len(found):
            own[lost] = where[np.arange(len(lost)) % len(where)]
    return jax.tree.map(
        lambda leaf: np.take_along_axis(leaf, ancestors[:, None, :], axis=-1), chains
    )


def _for_each_chain(program: Program, name: str, numbers: np.ndarray, each: int) -> Any:
    """Return the starting values of a site, ``[S * C, ...]``: one for all chains, or one for each.

    Superchains that fill up the devices start where the last chain does.
    """
    value, shape = np.asarray(program.init[name]), program.sites[name].shape
    chains = (numbers[:, None] * each + np.arange(each)).ravel()
    if value.shape == shape:
        return np.broadcast_to(value, (chains.size, *shape))
    return value[np.minimum(chains, len(value) - 1)]


def _by_superchain(chains: Chains, each: int) -> Chains:
    """Return chains ``[..., S * C]`` as ``[S, ..., C]``."""

    def divide(leaf: Array) -> np.ndarray:
        array = np.asarray(leaf)
        return np.moveaxis(array.reshape(len(array), -1, each), 1, 0)

    return jax.tree.map(divide, chains)


def _check_start(program: Program, addresses: Addresses, chains: Chains, given: Position) -> None:
    """Raise if starting values are impossible, or if a chain found no starting point."""
    for dataset in np.unique(addresses.datasets) if given else ():
        which = np.flatnonzero(addresses.datasets == dataset)
        own = jax.tree.map(lambda leaf, which=which: np.concatenate(leaf[which], axis=-1), chains)
        program.of_dataset(int(dataset)).check_given(own, given)
    is_bad = _num_impossible(chains).any(axis=1)
    if is_bad.any():
        first = int(np.argmax(is_bad))
        own = jax.tree.map(lambda leaf: leaf[first], chains)
        raise program.of_dataset(int(addresses.datasets[first])).no_finite_start(own, MAX_TRIES)


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
    num_superchains = len(started.num_runs)
    log_evidence = np.log(np.maximum(started.num_found, 1) / started.num_runs)
    is_known = is_annealed & ~started.is_repaired
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


@compile_quickly(static_argnums=0)
def _draw_each(
    kernel: Kernel, common: Any, own: Any, empty: Chains, key_data: Array, is_given: Array
) -> tuple[Chains, Array]:
    """Run the program for every chain of all superchains."""

    def run_one(own: Any, empty: Chains, key_data: Array) -> tuple[Chains, Array]:
        key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
        return _draw_until_finite(kernel, join(common, own), empty, key, is_given)

    return jax.vmap(run_one)(own, empty, key_data)


@compile_quickly(static_argnums=0)
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


def repair(
    program: Program,
    keys: np.ndarray,
    chains: Chains,
    held: Container[str] = (),
    datasets: Sequence[int] | np.ndarray = (0,),
) -> Chains:
    """Move choices, one after the other, in chains where a term is impossible.

    They walk, and are drawn from the prior, in turn. A move is made unless it makes more terms
    impossible, until none is. Many counts that must each exceed an observed one are found in this
    way, though a draw of all of them at once never would. Sites that are ``held`` stay where they
    are. Chains are ``[S, ..., C]``, words of keys ``[S, 2]``; each superchain goes by itself.
    """
    sites = program.sites.sites
    proposals = {site.name: walk_or_draw(site) for site in sites}
    kernel, data = build_kernel(program, plan_sites(program, proposals))
    inputs = split(data, datasets)
    is_held = np.array([site.name in held for site in sites])
    entries = np.unique(np.asarray(data.traits.entry_of)[~is_held[program.sites.site_of]])
    if not entries.size:
        return chains
    num_sweeps = max(1, STEPS_PER_CALL // entries.size)
    steps = np.tile(entries.astype(np.int32), num_sweeps)
    sweep_of = np.repeat(np.arange(num_sweeps, dtype=np.int32), entries.size)
    least = np.full(len(keys), np.inf)
    patience = np.zeros(len(keys), int)
    for number in itertools.count():
        num_bad = _num_impossible(chains)
        total = num_bad.sum(axis=1)
        patience = np.where(total < least, -(-MAX_STEPS // steps.size), patience - 1)
        least = np.minimum(least, total)
        is_going = (total > 0) & (patience > 0)
        if not is_going.any():
            break
        moved = _move_each(
            kernel,
            inputs.common,
            inputs.own,
            chains,
            fold_in_words(keys, np.array(number)),
            steps,
            (sweep_of + number) % 2,
        )
        is_changed = (num_bad > 0) & is_going[:, None]
        chains = jax.tree.map(np.asarray, _replace(is_changed[:, None], moved, chains))
    return chains


@compile_quickly(static_argnums=0)
def _move_each(
    kernel: Kernel,
    common: Any,
    own: Any,
    chains: Chains,
    key_data: Array,
    entries: Array,
    variants: Array,
) -> Chains:
    """Move entries of all superchains, one after the other, in the variants given."""

    def run_one(superchain: tuple[Any, Chains, Array]) -> Chains:
        own, chains, key_data = superchain
        key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
        return _move_in_turn(kernel, join(common, own), chains, key, entries, variants)

    return lax.map(run_one, (own, chains, key_data))


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
    """Return the number of terms that are not finite in each chain, ``[S, C]``."""
    return np.sum(~np.isfinite(chains.log_terms), axis=1)


def _replace(is_bad: Array | np.ndarray, new: Chains, old: Chains) -> Chains:
    return jax.tree.map(lambda new, old: jnp.where(is_bad, new, old), new, old)
