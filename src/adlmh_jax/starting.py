"""Starting points: prior draws of finite density."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from adlmh_jax.kernel import Kernel, KernelData, build_kernel
from adlmh_jax.program import Program
from adlmh_jax.step import draw
from adlmh_jax.types import Array, Chains, Key

MOST_TRIES = 100


def start_chains(program: Program, key: Key, num_chains: int) -> Chains:
    """Start chains at prior draws; those of density zero draw again, up to 100 times.

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
    if program.init:
        return _start_at_init(program, _run_program(kernel, data, empty, key, sites))
    chains = _run_program(kernel, data, empty, key, sites)
    for attempt in range(1, MOST_TRIES):
        is_bad = ~np.all(np.isfinite(chains.log_terms), axis=0)
        if not is_bad.any():
            return chains
        fresh = _run_program(kernel, data, empty, jax.random.fold_in(key, attempt), sites)
        chains = jax.tree.map(lambda new, old, bad=is_bad: jnp.where(bad, new, old), fresh, chains)
    if np.all(np.isfinite(chains.log_terms)):
        return chains
    raise program.no_finite_start(chains, MOST_TRIES)


def _start_at_init(program: Program, chains: Chains) -> Chains:
    """Put the sites that have starting values there; the others stay at their draws."""
    position = program.position_layout.unpack(chains.position)
    for name, value in program.init.items():
        position[name] = jnp.broadcast_to(value, position[name].shape)
    chains = jax.jit(program.chains_at)(position)
    if not np.all(np.isfinite(chains.log_terms)):
        raise program.no_finite_start(chains, 1)
    return chains


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
