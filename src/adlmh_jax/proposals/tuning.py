"""Learning of proposals during warm-up: the scales of walks, and the shares of mixtures."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from adlmh_jax.proposals.covariance import Walks, init_walks
from adlmh_jax.types import Array

DECAY = 0.6  # of the Robbins-Monro gains: they vanish, but their sum does not
MAX_GAIN = 3.0  # for one epoch
MIN_SHARE = 0.05  # of either variant of a mixture, so that a mode jump stays possible
MEMORY = 0.99  # how much of the acceptance counts of an entry is kept from try to try
# Shares go with this power of the worth: high enough that the worse of two variants costs less
# than a tenth, low enough that the noise of the worths does not decide.
SHARPNESS = 3.0
MIN_MOVES = 32  # of a walk before it is judged: until then its scale is of no account


class Traits(NamedTuple):
    """What tuning must know of slots and entries.

    A *slot* is a component as one entry moves it, L of them; those of an entry are next to each
    other. Where no entry moves several sites, slots are components.

    Attributes
    ----------
    entry_of
        Entry of each slot, ``[L]``.
    component_of
        Component of each slot, ``[L]``.
    dimension, step_dimension
        Numbers in one choice of each slot's component, and numbers that a step of its entry
        proposes at once, ``[L]``: more where sites walk together.
    scaled_variant
        Which variant of each entry has a scale, ``[M]``; -1 for none.
    given_share
        Probability of the second variant of each entry, ``[M]``; `LEARNED` if it is to be learned.
    walk_dimensions
        Of the sites that walk together, ``[J]``.
    """

    entry_of: Array
    component_of: Array
    dimension: Array
    step_dimension: Array
    scaled_variant: Array
    given_share: Array
    walk_dimensions: Array


class Tuning(NamedTuple):
    """What is learned about proposals.

    Attributes
    ----------
    log_scale
        Logarithm of the scale of each slot, ``[L]``.
    num_moves
        Walks made with each slot's scale, ``[L]``.
    second_share
        Probability of the second variant of each entry, ``[M]``; 0 where there is one.
    taken, tries
        Accepted proposals and tries of both variants of each entry, ``[2, M]``.
    walks
        The covariances of sites that walk together.
    """

    log_scale: Array
    num_moves: Array
    second_share: Array
    taken: Array
    tries: Array
    walks: Walks


class Evidence(NamedTuple):
    """What an epoch says about proposals.

    Attributes
    ----------
    entries, variants
        Of its steps, ``[E]``; entry -1 where no step was made.
    scaled
        Accepted proposals that have a scale, over all chains, ``[L]``.
    taken
        Accepted proposals of each of the two variants, where they are compared, ``[L, 2]``.
    num_chains
        Chains of the superchain.
    """

    entries: Array
    variants: Array
    scaled: Array
    taken: Array
    num_chains: int


def init_tuning(traits: Traits, walk_dimension: int = 0) -> Tuning:
    """Start with scales of one and, where shares are learned, equal ones.

    ``walk_dimension`` is the largest of the dimensions of sites that walk together.
    """
    num_slots, num_entries = traits.entry_of.size, traits.given_share.size
    zeros = jnp.zeros(num_slots)
    both = jnp.zeros((2, num_entries))
    return Tuning(
        log_scale=zeros,
        num_moves=zeros,
        second_share=_shares(traits, 0.5),
        taken=both,
        tries=both,
        walks=init_walks(traits.walk_dimensions.size, walk_dimension),
    )


def tune(traits: Traits, tuning: Tuning, evidence: Evidence) -> Tuning:
    """Learn from an epoch."""
    num_entries, num_chains = traits.given_share.size, evidence.num_chains
    entries, variants = evidence.entries, evidence.variants
    made = jnp.where(entries < 0, 0.0, 1.0)
    entries = jnp.maximum(entries, 0)
    tries = jnp.stack(
        [
            jax.ops.segment_sum(made * (variants == variant), entries, num_entries)
            for variant in (0, 1)
        ]
    )

    # Robbins-Monro: towards the target rate, with the evidence of all chains.
    scaled = jnp.take_along_axis(tries, jnp.maximum(traits.scaled_variant, 0)[None], axis=0)[0]
    scaled = jnp.where(traits.scaled_variant < 0, 0.0, scaled)[traits.entry_of]
    rate = evidence.scaled / jnp.maximum(scaled * num_chains, 1.0)
    num_moves = tuning.num_moves + scaled
    gain = jnp.minimum(scaled * jnp.maximum(num_moves, 1.0) ** -DECAY, MAX_GAIN)
    log_scale = tuning.log_scale + gain * (rate - best_rate(traits.step_dimension))

    # By acceptance. Distances would be sharper, but during the approach of the posterior those of
    # prior draws are so large that nothing later weighs against them.
    accepted = jax.ops.segment_sum(evidence.taken, traits.entry_of, num_entries).T
    kept = MEMORY ** tries.sum(axis=0)
    taken = kept * tuning.taken + accepted / num_chains
    tried = kept * tuning.tries + tries
    dimension = jnp.ones(num_entries).at[traits.entry_of].set(traits.dimension)
    is_walk = jnp.arange(2)[:, None] == traits.scaled_variant
    worth = jnp.where(is_walk, walk_worth(dimension), 1.0) * taken / jnp.maximum(tried, 1.0)
    weight = (worth / jnp.maximum(worth.max(axis=0), jnp.finfo(worth.dtype).tiny)) ** SHARPNESS
    share = weight[1] / jnp.maximum(weight.sum(axis=0), 1.0)
    moves = jnp.full(num_entries, jnp.inf).at[traits.entry_of].min(num_moves)
    is_tuned = (moves >= MIN_MOVES) | (traits.scaled_variant < 0)
    is_known = is_tuned & (tried.min(axis=0) > 1.0) & (worth.max(axis=0) > 0.0)
    share = jnp.clip(jnp.where(is_known, share, 0.5), MIN_SHARE, 1.0 - MIN_SHARE)
    return Tuning(
        log_scale=log_scale,
        num_moves=num_moves,
        second_share=_shares(traits, share),
        taken=taken,
        tries=tried,
        walks=tuning.walks,
    )


def _shares(traits: Traits, learned: Array | float) -> Array:
    """Return the shares of the second variants: as given, or as learned."""
    return jnp.where(traits.given_share < 0.0, learned, traits.given_share)


def best_rate(dimension: Array) -> Array:
    """Return the acceptance rate at which a walk in some dimensions mixes best.

    From 0.44 to 0.234, through the values for normal targets of Gelman, Roberts and Gilks (1996).
    """
    return 0.234 + 0.206 / dimension


def walk_worth(dimension: Array) -> Array:
    """Return what an accepted step of a walk is worth, in accepted independent draws.

    At its best rate a walk has the efficiency (same source: 0.23, 0.14, 0.10, ..., 0.03 in ten
    dimensions) of independent draws that are accepted at the rate 0.38, 0.24, 0.18, ..., 0.06.
    """
    return 0.38 * dimension**-0.75 / best_rate(dimension)
