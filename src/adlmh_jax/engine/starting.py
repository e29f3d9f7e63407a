"""Starting points of finite density: prior draws, and mending where they fail."""

import functools
from collections.abc import Container

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.moves.table import Kernel, KernelData, build_kernel
from adlmh_jax.model import Program
from adlmh_jax.proposals.plan import plan_sites, walk_or_draw
from adlmh_jax.engine.step import draw, move
from adlmh_jax.types import Array, Chains, Key

MOST_TRIES = 100  # prior draws of all sites
MOST_STEPS = 1 << 15  # by which single choices are moved while no chain gets any better
STEPS_PER_CALL = 256


def start_chains(program: Program, key: Key, num_chains: int) -> Chains:
    """Start chains at prior draws of finite density.

    Chains of density zero draw all sites again, up to 100 times; then choice by choice: see `mend`.

    Parameters
    ----------
    program
        The compiled model.
    key
        Of all starting points.
    num_chains
        How many.

    Returns
    -------
    The chains.

    Raises
    ------
    ModelError
        If a chain finds no point of finite density; it names the terms in the way.
    """
    kernel, data = build_kernel(program, is_start=True)
    empty = program.empty_chains(num_chains)
    sites = jnp.asarray(list(program.sites.first_components.values()), jnp.int32)
    put_init = jax.jit(functools.partial(_put_init, program))

    def run_program(attempt: int) -> Chains:
        key_attempt = jax.random.fold_in(key, attempt) if attempt else key
        chains = _run_program(kernel, data, empty, key_attempt, sites)
        return put_init(chains) if program.init else chains

    chains = run_program(0)
    for attempt in range(1, MOST_TRIES):
        is_bad = _num_impossible(chains) > 0
        if not is_bad.any():
            return chains
        chains = _replace(is_bad, run_program(attempt), chains)
    chains = mend(program, jax.random.fold_in(key, MOST_TRIES), chains, program.init)
    if _num_impossible(chains).any():
        raise program.no_finite_start(chains, MOST_TRIES)
    return chains


def mend(program: Program, key: Key, chains: Chains, held: Container[str] = ()) -> Chains:
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
    entries = np.unique(np.asarray(data.entry_of)[~is_held[program.sites.site_of]])
    num_sweeps = max(1, STEPS_PER_CALL // max(1, entries.size))
    steps = np.tile(entries.astype(np.int32), num_sweeps)
    sweep_of = np.repeat(np.arange(num_sweeps, dtype=np.int32), entries.size)
    least, patience, number = np.inf, 0, 0
    while (num_bad := _num_impossible(chains)).any() and steps.size:
        if num_bad.sum() < least:
            least, patience = num_bad.sum(), -(-MOST_STEPS // steps.size)
        if not patience:
            break
        ways = (sweep_of + number) % 2
        key_call = jax.random.fold_in(key, number)
        mended = _move_in_turn(kernel, data, chains, key_call, jnp.asarray(steps), ways)
        chains = _replace(num_bad > 0, mended, chains)
        patience, number = patience - 1, number + 1
    return chains


def _num_impossible(chains: Chains) -> np.ndarray:
    """Return the number of terms that are not finite in each chain, ``[C]``."""
    return np.sum(~np.isfinite(chains.log_terms), axis=0)


def _replace(is_bad: np.ndarray, new: Chains, old: Chains) -> Chains:
    return jax.tree.map(lambda new, old: jnp.where(is_bad, new, old), new, old)


def _put_init(program: Program, chains: Chains) -> Chains:
    """Put the sites that have starting values there; the others stay at their draws."""
    position = program.position_layout.unpack(chains.position)
    for name, value in program.init.items():
        position[name] = jnp.broadcast_to(value, position[name].shape)
    return program.chains_at(position)


@functools.partial(jax.jit, static_argnums=0)
def _move_in_turn(
    kernel: Kernel, data: KernelData, chains: Chains, key: Key, entries: Array, ways: Array
) -> Chains:
    """Move entries, one after the other, in the ways given."""

    def move_entry(chains: Chains, inputs: tuple[Array, Array, Array]) -> tuple[Chains, None]:
        number, entry, way = inputs
        shape = (kernel.num_words, chains.log_terms.shape[-1])
        words = jax.random.bits(jax.random.fold_in(key, number), shape, "uint32")
        return move(kernel, data, words, chains, entry, way, is_mending=True)[0], None

    return lax.scan(move_entry, chains, (jnp.arange(entries.size), entries, ways))[0]


@functools.partial(jax.jit, static_argnums=0)
def _run_program(
    kernel: Kernel, data: KernelData, empty: Chains, key: Key, first_components: Array
) -> Chains:
    """Draw every site from its prior, in program order."""
    num_chains = empty.log_terms.shape[-1]

    def draw_site(chains: Chains, inputs: tuple[Array, Array]) -> tuple[Chains, None]:
        number, component = inputs
        key_site = jax.random.fold_in(key, number)
        words = jax.random.bits(key_site, (kernel.num_words, num_chains), "uint32")
        return draw(kernel, data, words, chains, component), None

    numbers = jnp.arange(first_components.size)
    return lax.scan(draw_site, empty, (numbers, first_components))[0]
