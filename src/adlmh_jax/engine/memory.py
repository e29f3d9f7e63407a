"""How much memory a run takes, asked before anything is compiled."""

import functools
import math
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp

from adlmh_jax.engine.build import Engine
from adlmh_jax.engine.config import RunConfig
from adlmh_jax.engine.superchain import init_superchain

MEMORY = Path("/proc/meminfo")
NUM_STATES = 2  # the one that runs, and a copy: on the host, or from which the run can go on


def check_memory(engine: Engine, config: RunConfig, names: Sequence[str]) -> None:
    """Refuse a run whose draws, chains and statistics do not fit into what is free."""
    free = free_bytes()
    if free is None:
        return
    slots = _kept_slots(engine, names)
    each = config.num_chains * config.num_samples
    draws = each * sum(number * size for number, size in slots)
    joining = each * max((number * size for number, size in slots), default=0)
    state = NUM_STATES * state_bytes(engine, config)
    if draws + joining + state <= free:
        return
    raise ValueError(
        f"The run needs more memory than the {in_words(free)} that are free: "
        f"{config.num_chains:,} chains x {config.num_samples:,} draws x {_count(slots)} = "
        f"{in_words(draws)} of draws, {in_words(joining)} while they are joined, and "
        f"{in_words(state)} of chains and statistics. Keep fewer scalars with `keep=` (`keep=()` "
        "keeps running statistics only), make fewer draws with a larger `thinning=` and a smaller "
        "`num_samples`, or take a smaller `num_chains`."
    )


def _kept_slots(engine: Engine, names: Sequence[str]) -> list[tuple[int, int]]:
    """Return scalars, and bytes of each, of every array that a draw of a chain keeps."""
    program, slots = engine.program, []
    for name in names:
        is_output = name in program.output_layout.names
        slot = (program.output_layout if is_output else program.latent_layout)[name]
        slots.append((slot.size, jnp.dtype(slot.bank).itemsize))
    log_terms = jax.eval_shape(lambda: program.empty_chains(1)).log_terms
    return [*slots, (1, log_terms.dtype.itemsize)] if names else []


def _count(slots: Sequence[tuple[int, int]]) -> str:
    """Write down scalars and bytes: ``(3 scalars x 4 bytes + 1 scalars x 8 bytes)``."""
    totals: dict[int, int] = {}
    for number, size in slots:
        totals[size] = totals.get(size, 0) + number
    products = [f"{number:,} scalars x {size} bytes" for size, number in totals.items()]
    if len(products) == 1:
        return products[0]
    return f"({' + '.join(products)})" if products else "no scalars"


def state_bytes(engine: Engine, config: RunConfig) -> int:
    """Return the bytes of all chains, of what is learned, and of the running statistics."""
    chains = jax.eval_shape(lambda: engine.program.empty_chains(config.chains_each))
    learned = engine.init_schedule(config.chains_each)
    start = functools.partial(init_superchain, engine.spec, engine.data, learned)
    leaves = jax.tree.leaves(jax.eval_shape(start, chains))
    each = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
    return each * config.superchains


def free_bytes() -> int | None:
    """Return how much memory is free for a process; None where the system does not say."""
    try:
        lines = MEMORY.read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(available.split()[1]) * 1024
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def in_words(num_bytes: int) -> str:
    """Return a number of bytes as people say it."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes:,} bytes"
