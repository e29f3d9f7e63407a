"""How much memory a run takes, asked before anything is compiled."""

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from adlmh_jax.engine.build import Engine
from adlmh_jax.engine.config import RunConfig
from adlmh_jax.engine.inputs import first_of
from adlmh_jax.engine.superchain import init_superchain

MEMORY = Path("/proc/meminfo")
NUM_STATES = 2  # the one that runs, and a copy: on the host, or from which the run can go on
NUM_WORDS = 4  # copies of the random words of an epoch: XLA takes two to four on a CPU
WORD = 4  # bytes


class Needs(NamedTuple):
    """What a run keeps, in bytes.

    Attributes
    ----------
    draws, joining
        Of the draws, and while they are joined: on the host.
    chains
        Of the chains, of what is learned and of statistics, where superchains run.
    steps
        Of what their steps draw, log and keep in a round, where superchains run.
    """

    draws: int
    joining: int
    chains: int
    steps: int


def check_memory(
    engine: Engine, config: RunConfig, names: Sequence[str], on_devices: int | None = None
) -> None:
    """Refuse a run whose draws, chains and statistics do not fit into what is free.

    Parameters
    ----------
    engine, config
        The run.
    names
        What is kept of each draw.
    on_devices
        How much the devices have free, if they have memory of their own.
    """
    slots = _kept_slots(engine, names)
    needs = _estimate(engine, config, slots)
    said = (
        f"{config.num_run:,} chains x {config.num_samples:,} draws x {_count(slots)} = "
        f"{in_words(needs.draws)} of draws, {in_words(needs.joining)} while they are joined"
    )
    on_host = needs.draws + needs.joining
    chains = f"{in_words(needs.chains)} of chains and statistics"
    if on_devices is None:
        on_host += needs.chains
        said += f", and {chains}"
    free = free_bytes()
    if free is not None and on_host > free:
        raise ValueError(
            f"The run needs more memory than the {in_words(free)} that are free: {said}. Keep "
            "fewer scalars with `keep=` (`keep=()` keeps running statistics only), make fewer "
            "draws with a larger `thinning=` and a smaller `num_samples`, or take a smaller "
            "`num_chains`."
        )
    if on_devices is not None and needs.chains + needs.steps > on_devices:
        raise ValueError(
            f"The run needs more memory than the {in_words(on_devices)} that are free on its "
            f"devices: {config.num_run:,} chains take {chains}, and {in_words(needs.steps)} "
            "while they run. Take a smaller `num_chains`, or more `devices`."
        )


def _estimate(engine: Engine, config: RunConfig, slots: Sequence[tuple[int, int]]) -> Needs:
    """Return what a run needs, given scalars and their bytes of what a draw of a chain keeps."""
    draws = config.num_run * config.num_samples
    return Needs(
        draws=draws * sum(number * size for number, size in slots),
        joining=draws * max((number * size for number, size in slots), default=0),
        chains=NUM_STATES * state_bytes(engine, config),
        steps=step_bytes(engine, config, slots),
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
    start = functools.partial(init_superchain, engine.spec, first_of(engine.data), learned)
    leaves = jax.tree.leaves(jax.eval_shape(start, chains))
    each = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
    return each * len(config.numbers)


def step_bytes(engine: Engine, config: RunConfig, slots: Sequence[tuple[int, int]]) -> int:
    """Return the bytes of an epoch's random words and log, and of a round's draws, twice."""
    spec, each = engine.spec, config.chains_each
    words = NUM_WORDS * WORD * spec.kernel.num_words * each
    log = spec.num_logged(each) * (1 + spec.kernel.num_outputs)
    kept = each * spec.plan.num_draws * sum(number * size for number, size in slots)
    return len(config.numbers) * (spec.plan.epoch_steps * (words + log) + NUM_STATES * kept)


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
