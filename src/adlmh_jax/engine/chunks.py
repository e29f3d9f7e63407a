"""How many rounds a chunk has: as many as the host can wait for, and the devices can hold."""

import jax

from adlmh_jax.engine.superchain import EngineSpec, SuperchainState

CHUNK_SECONDS = 0.5  # how often the host looks in
MAX_CHUNK_BYTES = 1 << 24  # of draws that wait on the device
MAX_CHUNK_ROUNDS = 64  # that keep draws: a chunk of one round fills room for all of them with zeros
MAX_BARE_ROUNDS = 1 << 16  # that keep none


def max_chunk_rounds(spec: EngineSpec, superchains: SuperchainState) -> int:
    """Return how many rounds a chunk may have: its draws wait on the device, so not too many.

    The number of draws that are asked for plays no part, lest another one be compiled anew.
    """
    shapes = jax.eval_shape(jax.vmap(spec.keep.record), superchains.chains)
    num_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    if not num_bytes:
        return MAX_BARE_ROUNDS
    fitting = MAX_CHUNK_BYTES // (num_bytes * spec.plan.num_draws)
    return max(1, min(fitting, MAX_CHUNK_ROUNDS))


def next_rounds(requested: int, done: int, seconds: float) -> int:
    """Aim at chunks of `CHUNK_SECONDS`, at most doubling."""
    wanted = int(done * CHUNK_SECONDS / max(seconds, 1e-6))
    return max(1, min(2 * requested, wanted)) if done == requested else requested
