"""What a move leaves behind: other values as they were, terms and outputs of the new position."""

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.moves.table import build_kernel
from adlmh_jax.engine.step import move

TOLERANCE = 2e-5


def draw_positions(program, num_chains, seed=0):
    """Return prior draws ``[C, ...]`` of all latent sites."""
    draws = [program.draw_prior(key) for key in jax.random.split(jax.random.key(seed), num_chains)]
    return {name: jnp.stack([draw[name] for draw in draws]) for name in draws[0]}


def move_each_component(program, chains, seed=0):
    """Yield each component with the chains after it alone has moved, and what `move` says of it.

    The accept word is 0, so that every proposal of a ratio above 1e-10 is taken.
    """
    kernel, data = build_kernel(program)
    step = jax.jit(lambda words, component: move(kernel, data, words, chains, component)[:2])
    generator = np.random.default_rng(seed)
    shape = (kernel.num_words, chains.log_terms.shape[-1])
    for component in range(program.num_components):
        words = generator.integers(0, 2**32, shape, dtype=np.uint32)
        words[0] = 0
        moved, info = step(words, component)
        yield component, moved, info


def check_cache(program, chains, evaluate=None):
    """Terms and outputs of the chains are those of their position."""
    evaluate = evaluate or jax.jit(program.chains_at)
    fresh = evaluate(program.position_layout.unpack(chains.position))
    kept, true = jax.tree.leaves(chains), jax.tree.leaves(fresh)
    assert [leaf.dtype for leaf in kept] == [leaf.dtype for leaf in true]
    for kept_leaf, true_leaf in zip(kept, true, strict=True):
        np.testing.assert_allclose(kept_leaf, true_leaf, rtol=TOLERANCE, atol=TOLERANCE)


def check_others_stay(program, component, before, after):
    """Only the component has another value, and the sites that are redrawn with it."""
    sites = program.sites
    site, element = sites.sites[sites.site_of[component]], sites.element_of[component]
    old = program.position_layout.unpack(before.position)
    new = program.position_layout.unpack(after.position)
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
