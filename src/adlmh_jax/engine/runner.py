"""Many superchains: where they run, in what chunks, and what the host gets back.

The only file that touches devices and time.
"""

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from adlmh_jax.engine.build import Engine
from adlmh_jax.engine.chunks import CHUNK_SECONDS, next_rounds
from adlmh_jax.engine.compiling import compile_quickly
from adlmh_jax.engine.config import RunConfig
from adlmh_jax.engine.done import Done, Resumption, RunState
from adlmh_jax.engine.inputs import Inputs, join
from adlmh_jax.engine.keeping import Draws
from adlmh_jax.engine.looking import Look, View, pick, take_look
from adlmh_jax.engine.progress import Meter
from adlmh_jax.engine.rounds import Kept, Phase, warmup_epochs
from adlmh_jax.engine.superchain import (
    EngineSpec,
    Start,
    SuperchainState,
    init_superchain,
    run_round,
)
from adlmh_jax.moves import KernelData
from adlmh_jax.types import Array, Chains, as_array

AXIS = "superchains"
ONE_BY_ONE = ("cpu",)  # platforms where superchains take turns on a device: elsewhere, all at once
LOOK_SHARE = 0.02  # of the time of a run, that looking at it may take
PHASE_NAMES = {"warmup": "warm-up", "samples": "sampling"}  # as people see them


class Host(NamedTuple):
    """What the host does between chunks.

    Attributes
    ----------
    label
        Makes draws of the first so many that a chunk kept.
    meter
        Shows how far the run is.
    save
        Is handed every chunk: the state after it and its draws.
    is_stopping
        Says whether the run is to end.
    view
        What is shown of the run; None if nobody is to see it.
    """

    label: Callable[[Kept, int], Draws]
    meter: Meter
    save: Callable[[Done], None]
    is_stopping: Callable[[], bool]
    view: View | None


@dataclass(frozen=True)
class Devices:
    """The devices of a run and how superchains are laid on them.

    Attributes
    ----------
    mesh
        The devices, which share the superchains evenly.
    is_mapped
        Whether the superchains of a device run one after the other, each by the branch of the
        entry that it moves. If not, they run together, and by all the branches that any of them
        needs.
    """

    mesh: Mesh
    is_mapped: bool

    @property
    def sharding(self) -> NamedSharding:
        """Of arrays whose first axis is the superchain."""
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    def fill(self, num_superchains: int) -> int:
        """Return a number of superchains that all devices share evenly; the last run in vain."""
        return -(-num_superchains // self.mesh.size) * self.mesh.size

    def free_bytes(self) -> int | None:
        """Return how much memory of their own the devices have free; None if they have none."""
        own = [device.memory_stats() or {} for device in self.mesh.local_devices]
        free = [stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0) for stats in own]
        return min(free) * self.mesh.size if all("bytes_limit" in stats for stats in own) else None


def choose_devices(devices: Sequence[Any] | None, num_superchains: int) -> Devices:
    """Lay superchains over devices: those given, or as many as there are superchains."""
    chosen = list(jax.devices() if devices is None else devices)
    if devices is not None and (not chosen or num_superchains % len(chosen)):
        raise ValueError(
            f"{num_superchains} superchains cannot be shared evenly by {len(chosen)} devices. "
            "Choose `num_superchains` as a multiple of the number of `devices`."
        )
    chosen = chosen[: max(1, min(len(chosen), num_superchains))]
    mesh = Mesh(np.array(chosen), (AXIS,), axis_types=(AxisType.Auto,))
    # One superchain of a device has nothing to run together with: its branch can be a branch.
    is_alone = len(chosen) == num_superchains
    return Devices(mesh, is_alone or chosen[0].platform in ONE_BY_ONE)


def place(devices: Devices, engine: Engine, data: Inputs, chains: Chains, start: Start) -> RunState:
    """Put the superchains on their devices; their chains, ``[S, ...]``, come from the host."""
    learned = engine.init_schedule(chains.log_terms.shape[-1])
    return RunState(0, _init_superchains(engine.spec, devices, data, learned, chains, start))


@compile_quickly(static_argnums=(0, 1))
def _init_superchains(
    spec: EngineSpec,
    devices: Devices,
    data: Inputs,
    learned: Any,
    chains: Chains,
    start: Start,
) -> SuperchainState:
    """Return superchains at their chains, laid over the devices."""

    def init(own: Any, chains: Chains, start: Start) -> SuperchainState:
        return init_superchain(spec, join(data.common, own), learned, chains, start)

    fresh = jax.vmap(init)(data.own, chains, start)
    return lax.with_sharding_constraint(fresh, devices.sharding)


def share(devices: Devices, data: Inputs) -> Inputs:
    """Put arrays that all superchains read on every device, and others where they are read."""
    everywhere = NamedSharding(devices.mesh, PartitionSpec())
    return Inputs(_put(data.common, everywhere), _put(data.own, devices.sharding))


def _put(tree: Any, sharding: NamedSharding) -> Any:
    """Put arrays on devices; with several processes each has the whole arrays, from the host."""
    if jax.process_count() > 1:
        tree = jax.tree.map(np.asarray, tree)
    return jax.device_put(tree, sharding)


def restore(devices: Devices, fresh: SuperchainState, leaves: Sequence[np.ndarray]) -> Any:
    """Put the arrays of stored superchains on the devices, in the place of fresh ones.

    Superchains that fill up the devices are not stored: the last one stands in for them.
    """

    def fill(leaf: np.ndarray, like: Array) -> np.ndarray:
        return np.concatenate([leaf, np.repeat(leaf[-1:], len(like) - len(leaf), axis=0)])

    filled = [fill(*pair) for pair in zip(leaves, jax.tree.leaves(fresh), strict=True)]
    return _put(jax.tree.unflatten(jax.tree.structure(fresh), filled), devices.sharding)


def to_host(tree: Any) -> Any:
    """Bring arrays to the host, from all processes to all processes."""
    if jax.process_count() > 1:
        return multihost_utils.process_allgather(tree, tiled=True)
    return jax.tree.map(np.asarray, tree)


class Stretch(NamedTuple):
    """Which rounds a chunk runs, and in which phase."""

    phase: Phase
    first_round: Array
    num_rounds: Array


@compile_quickly(static_argnums=(0, 1, 2), donate_argnums=6)
def _run_chunk(
    spec: EngineSpec,
    devices: Devices,
    max_rounds: int,
    data: Inputs,
    stretch: Stretch,
    key_data: Array,
    superchains: SuperchainState,
) -> tuple[SuperchainState, Kept]:
    """Run a stretch of all superchains; keep ``[S, max_rounds * draws, ...]``."""

    def run_local(
        data: Inputs, stretch: Stretch, key_data: Array, superchains: SuperchainState
    ) -> tuple[SuperchainState, Kept]:
        def run_one(
            superchain: tuple[Any, Array, SuperchainState],
        ) -> tuple[SuperchainState, Kept]:
            own, key_data, state = superchain
            own_data = join(data.common, own)
            return _run_rounds(spec, max_rounds, own_data, stretch, key_data, state)

        over_superchains = lax.map if devices.is_mapped else lambda f, xs: jax.vmap(f)(xs)
        return over_superchains(run_one, (data.own, key_data, superchains))

    sharded, everywhere = PartitionSpec(AXIS), PartitionSpec()
    return jax.shard_map(
        run_local,
        mesh=devices.mesh,
        in_specs=(Inputs(everywhere, sharded), everywhere, sharded, sharded),
        out_specs=(sharded, sharded),
        check_vma=False,
    )(data, stretch, key_data, superchains)


def _run_rounds(
    spec: EngineSpec,
    max_rounds: int,
    data: KernelData,
    stretch: Stretch,
    key_data: Array,
    state: SuperchainState,
) -> tuple[SuperchainState, Kept]:
    """Run a stretch of one superchain; keep ``[max_rounds * draws, ...]``."""
    key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    shapes = jax.eval_shape(spec.keep.record, state.chains)
    size = (max_rounds, spec.plan.num_draws)
    empty = jax.tree.map(lambda leaf: jnp.zeros((*size, *leaf.shape), leaf.dtype), shapes)

    def one_round(number: Array, carry: tuple[SuperchainState, Kept]) -> tuple:
        state, kept = carry
        index = stretch.first_round + number
        state, new = run_round(spec, data, stretch.phase, key, index, state)

        def put(buffer: Array, rows: Array) -> Array:
            return lax.dynamic_update_index_in_dim(buffer, rows, number, 0)

        return state, jax.tree.map(put, kept, new)

    state, kept = lax.fori_loop(0, stretch.num_rounds, one_round, (state, empty))
    num_kept = max_rounds * spec.plan.num_draws
    return state, jax.tree.map(lambda leaf: leaf.reshape(num_kept, *leaf.shape[2:]), kept)


class Run(NamedTuple):
    """What stays the same while a run goes on.

    Attributes
    ----------
    spec, data
        The engine, its arrays on the devices.
    devices
        Where it runs.
    key_data
        Words of the keys of the superchains, ``[S, 2]``.
    max_rounds
        Of a chunk.
    """

    spec: EngineSpec
    data: Inputs
    devices: Devices
    key_data: np.ndarray
    max_rounds: int


def run_phases(run: Run, config: RunConfig, done: Done, host: Host) -> Done:
    """Warm up, then sample, from where the run is, until it is done or is to stop."""
    if not _agree(host.meter.is_seen):
        host = host._replace(view=None)
    parts = list(done.parts)
    made = {"warmup": done.num_warmup, "samples": done.num_samples}
    last = done

    def note(
        phase: str, kept: Kept, num_new: int, state: RunState, before: RunState | None
    ) -> None:
        nonlocal last
        num_before = made["samples"]
        made[phase] += num_new
        is_recorded = phase == "samples"
        new = [host.label(kept, num_new)] if is_recorded else []
        parts.extend(new)
        last = Done(
            state=state,
            num_warmup=made["warmup"],
            num_samples=made["samples"],
            parts=new,
            before_last=Resumption(before, num_before) if before and is_recorded else None,
        )
        host.save(last)

    num_warmup = as_array(warmup_epochs(run.spec.plan, config.num_warmup), np.int32)
    warmup = Phase(as_array(True), as_array(0, np.int32), num_warmup)
    num_samples = as_array(config.num_samples, np.int32)
    sampling = Phase(as_array(config.adapt == "always"), num_samples, num_warmup)
    for name, phase, total in (
        ("warmup", warmup, config.num_warmup),
        ("samples", sampling, config.num_samples),
    ):
        left = total - made[name]
        host.meter.enter(PHASE_NAMES[name])
        if run_draws(run, last.state, phase, left, host, functools.partial(note, name)):
            break
    return last._replace(parts=parts)


def run_draws(
    run: Run,
    state: RunState,
    phase: Phase,
    num_draws: int,
    host: Host,
    note: Callable[[Kept, int, RunState, RunState | None], None],
) -> bool:
    """Make ``num_draws`` draws, chunk by chunk; return whether the run is to stop.

    ``note`` is handed what a chunk kept, how many of its draws are wanted, and the state after it.
    A round may hold several draws. A last round that makes more than are wanted is a chunk of its
    own, and ``note`` is handed the state before it too: whoever wants those draws later runs it
    again.
    """
    per_round = run.spec.plan.num_draws
    chunk_rounds = 1
    unseen, pause = math.inf, 0.0  # seconds since the last look, and from one to the next
    while num_draws > 0:
        whole = num_draws // per_round
        num_rounds = max(1, min(whole, chunk_rounds, run.max_rounds))
        num_new = min(num_rounds * per_round, num_draws)
        before = None if whole else copy_state(state)
        started = time.perf_counter()
        state, kept = run_chunk(run, state, phase, num_rounds)
        jax.block_until_ready(state.superchains)
        seconds = _slowest(time.perf_counter() - started)
        num_draws -= num_new
        note(to_host(kept), num_new, state, before)
        unseen += seconds
        look = None
        if host.view is not None and (unseen >= pause or num_draws <= 0):
            started = time.perf_counter()
            look, unseen = _look(host.view, state, phase), 0.0
            pause = max(CHUNK_SECONDS, _slowest(time.perf_counter() - started) / LOOK_SHARE)
        host.meter.update(num_new, seconds, look)
        if _agree(host.is_stopping()):
            return True
        chunk_rounds = next_rounds(chunk_rounds, num_rounds, seconds)
    return False


def _look(view: View, state: RunState, phase: Phase) -> Look:
    """Look at superchains, from all processes."""
    return take_look(view, to_host(pick(view, state.superchains, int(phase.max_draws) > 0)))


def copy_state(state: RunState) -> RunState:
    """Return a state that outlives the chunk that uses up the other."""

    def copy(leaf: Array) -> Array:
        return jax.device_put(leaf, leaf.sharding, may_alias=False)

    return RunState(state.next_round, jax.tree.map(copy, state.superchains))


def _slowest(seconds: float) -> float:
    """Return what all processes take for the duration of a chunk: what follows must not differ."""
    if jax.process_count() > 1:
        return float(np.max(multihost_utils.process_allgather(np.array(seconds))))
    return seconds


def _agree(is_stopping: bool) -> bool:
    """Stop all processes if one of them is to stop."""
    if jax.process_count() > 1:
        return bool(np.any(multihost_utils.process_allgather(np.array(is_stopping))))
    return is_stopping


def run_chunk(run: Run, state: RunState, phase: Phase, num_rounds: int) -> tuple[RunState, Kept]:
    """Run some rounds of all superchains; the state that was given is used up."""
    stretch = Stretch(phase, as_array(state.next_round, np.int32), as_array(num_rounds, np.int32))
    superchains, kept = _run_chunk(
        run.spec,
        run.devices,
        run.max_rounds,
        run.data,
        stretch,
        run.key_data,
        state.superchains,
    )
    return RunState(state.next_round + num_rounds, superchains), kept
