"""What a move leaves behind: other values as they were, terms and outputs of the new position."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.engine import run_branch, view_entry
from adlmh_jax.engine.entry import first_steps
from adlmh_jax.moves import build_kernel
from adlmh_jax.proposals import plan_sites

TOLERANCES = {"float64": 1e-11}
TOLERANCE = 2e-5  # of other dtypes


def prior_kernel(program):
    """Return the kernel of the paper's moves, and its arrays."""
    return build_kernel(program, plan_sites(program, "prior", "never"))


def draw_positions(program, num_chains, seed=0):
    """Return prior draws ``[C, ...]`` of all latent sites."""
    draws = [program.draw_prior(key) for key in jax.random.split(jax.random.key(seed), num_chains)]
    return {name: jnp.stack([draw[name] for draw in draws]) for name in draws[0]}


class Decision(NamedTuple):
    """What the production move decided in each chain, ``[C]``."""

    is_accepted: object
    log_ratio: object


def one_step(kernel, data, words, chains, entry, variant=0, beta=1.0):
    """Make the production move of one entry; return the chains and what was decided."""
    steps = first_steps(kernel)._replace(beta=beta)
    nobody = jnp.zeros(words.shape[-1], bool)
    nothing = Decision(nobody, jnp.zeros(nobody.shape, chains.log_terms.dtype))

    def run(group, turn, carry):
        del turn
        view = view_entry(kernel, data, group, entry, variant)
        chains, moved, _ = view.move(words, carry[0], steps)
        return chains, Decision(moved.is_accepted, moved.log_ratio)

    group = data.group_of[variant, entry]
    return run_branch(group, len(kernel.groups), run, (chains, nothing))


def move_each_component(program, chains, seed=0):
    """Yield each component with the chains after it alone has moved, and what was decided.

    The accept word is 0, so that every proposal of a ratio above 1e-10 is taken.
    """
    kernel, data = prior_kernel(program)
    step = jax.jit(lambda words, component: one_step(kernel, data, words, chains, component))
    generator = np.random.default_rng(seed)
    shape = (kernel.num_words, chains.log_terms.shape[-1])
    for component in range(program.num_components):
        words = generator.integers(0, 2**32, shape, dtype=np.uint32)
        words[0] = 0
        moved, decision = step(words, component)
        yield component, moved, decision


def check_cache(program, chains, evaluate=None):
    """Terms and outputs of the chains are those of their position."""
    evaluate = evaluate or jax.jit(program.chains_at)
    fresh = evaluate(program.latent_layout.unpack(chains.latent))
    kept, true = jax.tree.leaves(chains), jax.tree.leaves(fresh)
    assert [leaf.dtype for leaf in kept] == [leaf.dtype for leaf in true]
    for kept_leaf, true_leaf in zip(kept, true, strict=True):
        tolerance = TOLERANCES.get(str(kept_leaf.dtype), TOLERANCE)
        np.testing.assert_allclose(kept_leaf, true_leaf, rtol=tolerance, atol=tolerance)


def check_others_stay(program, component, before, after):
    """Only the component has another value, and the sites that are redrawn with it."""
    sites = program.sites
    site = sites.sites[sites.site_of[component]]
    element = component - sites.first_components[site.name]
    old = program.latent_layout.unpack(before.latent)
    new = program.latent_layout.unpack(after.latent)
    for name in sites.names:
        if name in program.touches[site.name].redraws:
            continue
        size = sites[name].event_size
        same = np.reshape(old[name] == new[name], (-1, sites[name].num_components, size))
        stays = np.arange(sites[name].num_components) != (element if name == site.name else -1)
        assert same[:, stays].all()


def check_updates(program, chains):
    """Move each component from the same chains, and look at what it leaves behind.

    Returns the chains after each move.
    """
    evaluate = jax.jit(program.chains_at)
    results = []
    for component, moved, info in move_each_component(program, chains):
        assert np.any(info.is_accepted), program.sites.component_names[component]
        check_others_stay(program, component, chains, moved)
        check_cache(program, moved, evaluate)
        results.append(moved)
    return results
