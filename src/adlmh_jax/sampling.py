"""`sample`: from a model to a `Result`."""

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.store.directory import Done, Store, fingerprint
from adlmh_jax.results.collect import make_result, sources
from adlmh_jax.engine.config import RunConfig, default_epoch
from adlmh_jax.moves.table import KernelData, build_kernel
from adlmh_jax.graph.layout import Layout
from adlmh_jax.model import Program, compile_model
from adlmh_jax.model.errors import nearest
from adlmh_jax.model.sites import Outputs
from adlmh_jax.engine.progress import BarMeter, Meter, SilentMeter
from adlmh_jax.proposals.plan import SitePlan, plan_sites
from adlmh_jax.results.result import Result
from adlmh_jax.engine.runner import RunState, choose_devices, most_chunk_rounds, place, run_draws, share
from adlmh_jax.schedules.base import Schedule, ucb
from adlmh_jax.engine.starting import start_chains
from adlmh_jax.engine.superchain import Code, Keep, Kept, Phase, make_plan
from adlmh_jax.types import Array, Chains, Key, Model
from adlmh_jax.results.verdict import ConvergenceWarning

MOST_VALUES, MOST_OUTPUTS = 1_000_000, 100  # that are looked at for the warning at the end


def sample(
    key: Key | int,
    model: Model,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    outputs: Outputs = None,
    schedule: Schedule = ucb(),
    proposals: str | Mapping[str, Any] = "auto",
    blocks: str = "auto",
    num_chains: int = 256,
    num_superchains: int | None = None,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    thinning: int | None = None,
    epoch: int | None = None,
    adapt: Literal["warmup", "always"] = "warmup",
    keep: str | Sequence[str] = "outputs",
    init: Mapping[str, Any] | None = None,
    start_together: bool = False,
    store: str | Path | None = None,
    resume: bool = False,
    devices: Sequence[Any] | None = None,
    progress: bool = True,
) -> Result:
    """Sample a NumPyro model with many chains of AdLMH.

    Parameters
    ----------
    key
        ``jax.random.key(0)`` or an integer. The same key gives the same draws, whatever the
        devices.
    model, model_args, model_kwargs
        The model, of fixed structure, and what to call it with.
    outputs
        What you want to know: site names, ``"return"``, or a function of the dict of values. The
        schedule favours the components that move them. None: every latent and deterministic site.
    schedule
        ``ucb()`` is AdLMH, ``uniform()`` is LMH.
    proposals
        ``"prior"``: the paper's. ``"auto"``: Gibbs steps where the support is finite and small,
        else walks mixed with prior draws. Or a dict from site names or globs to `prior`, `gibbs`,
        `random_walk`, mixtures of them, or functions of your own; others are then automatic.
    blocks
        ``"auto"``: conditionally independent elements of a site move together, each accepted or
        rejected on its own. ``"never"``: the paper's single choices.
    num_chains, num_superchains
        Chains, and superchains: chains that share a schedule and the selected component. Default:
        the least number from 4 on that divides the chains.
    num_warmup, num_samples
        Draws before sampling (not recorded) and recorded draws.
    thinning
        Steps of each chain per draw. Default: a sweep's worth, one step for each component or
        block.
    epoch
        Steps between updates of the weights; 1 is exactly the paper. Default: 64, or a quarter of a
        sweep where that is more.
    adapt
        ``"warmup"`` freezes the schedule after warm-up; ``"always"`` goes on adapting, as the paper
        does (the draws are then those of an adaptive chain, right only in the limit).
    keep
        ``"outputs"``, ``"all"`` (outputs and all latent sites), names, or ``()`` for nothing but
        the running statistics of the outputs, which need no memory for draws.
    init
        Starting values by site name; other sites start at prior draws. Needed for ImproperUniform.
    start_together
        Start all chains of a superchain at one point: nested R-hat then compares superchains that
        know nothing of each other's start, as its authors assume.
    store, resume
        A directory: draws and state are written there every few seconds, and ``resume=True`` goes
        on with the run that it holds, or begins it. The draws are those of an uninterrupted run.
    devices
        Where to run; default: all devices.
    progress
        Show a progress bar.

    Returns
    -------
    A `Result`.
    """
    config = RunConfig(num_chains, num_superchains, num_warmup, num_samples, thinning, epoch, adapt)
    _check_schedule(schedule)
    key = make_key(key)
    program = compile_model(model, model_args, model_kwargs, outputs=outputs, init=init)
    plans = plan_sites(program, proposals, blocks)
    kept_names = _kept_names(program, keep)
    chosen = choose_devices(devices, config.superchains)
    # Superchains that fill up the devices run for nothing, and are dropped.
    num_superchains = -(-config.superchains // chosen.count) * chosen.count

    kernel, data = build_kernel(program, plans)
    thinning = config.thinning or kernel.num_entries
    plan = make_plan(thinning, config.epoch or default_epoch(kernel.num_entries))
    code = Code(kernel, schedule, plan, _keep(program, kept_names))
    key_data = _superchain_keys(key, num_superchains)
    chains = _start(program, key, num_superchains, config.chains_each, start_together)
    _check_blocks(program, chains)
    state = place(chosen, kernel, data, schedule, chains)

    done, disk = Done(state, 0, 0, []), None
    if store is not None:
        settings = _settings(program, config, code, plans, kept_names, _seed(key), data)
        disk = Store(store, settings, resume)
        done = disk.load(state, jax.eval_shape(code.keep.record, chains), chosen)
    started = time.perf_counter()
    left = config.num_warmup + config.num_samples - done.num_warmup - done.num_samples
    meter: Meter = BarMeter(left, thinning * config.num_chains) if progress else SilentMeter()
    most = most_chunk_rounds(code, state.superchains, num_samples)
    go = functools.partial(run_draws, code, chosen, share(chosen, data), key_data)
    state, parts = _run_phases(go, done, config, most, meter, disk)
    seconds = time.perf_counter() - started
    made = (state, _seed(key), seconds)
    result = make_result(program, config, code, plans, kept_names, parts, *made)
    warn_if_doubtful(result)
    return result


def _superchain_keys(key: Key, num_superchains: int) -> np.ndarray:
    """Return the words of the key of each superchain."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_superchains))
    return np.asarray(jax.random.key_data(keys))


def _check_schedule(schedule: Any) -> None:
    if not isinstance(schedule, Schedule):
        raise TypeError(
            f"`schedule` must be what `ucb()` or `uniform()` returns, got {schedule!r} of type "
            f"{type(schedule).__name__}."
        )


def _run_phases(
    go: Callable[..., RunState],
    done: Done,
    config: RunConfig,
    most_rounds: int,
    meter: Meter,
    disk: Store | None,
) -> tuple[RunState, list[Kept]]:
    """Warm up, then sample, from where the run is; return the last state and all draws."""
    parts = list(done.parts)
    counts = {"warmup": done.num_warmup, "samples": done.num_samples}

    def note(phase: str, kept: Kept, state: RunState) -> None:
        counts[phase] += kept.log_density.shape[1]
        if phase == "samples":
            parts.append(kept)
        if disk is not None:
            new = [kept] if phase == "samples" else []
            is_last = counts["samples"] == config.num_samples
            here = Done(state, counts["warmup"], counts["samples"], new)
            disk.save(here, config.superchains, is_last)

    state = done.state
    warmup = Phase(jnp.bool_(True), jnp.int32(0))
    sampling = Phase(jnp.bool_(config.adapt == "always"), jnp.int32(config.num_samples))
    for phase, settings, total in (
        ("warmup", warmup, config.num_warmup),
        ("samples", sampling, config.num_samples),
    ):
        left = total - counts[phase]
        state = go(state, settings, left, most_rounds, meter, functools.partial(note, phase))
    meter.close()
    return state, parts


def _settings(
    program: Program,
    config: RunConfig,
    code: Code,
    plans: Mapping[str, SitePlan],
    kept_names: Sequence[str],
    seed: int,
    data: KernelData,
) -> dict[str, Any]:
    """Return what must be the same for a stored run to go on."""
    return {
        **dataclasses.asdict(config),
        "model": repr(program),
        "data": fingerprint(data),
        "schedule": code.schedule.name,
        "proposals": {name: plan.words for name, plan in plans.items()},
        "keep": list(kept_names),
        "key": str(seed),
    }


def warn_if_doubtful(result: Result) -> None:
    """Say it, once, if the run cannot be trusted."""
    if not result.draws:
        return
    diagnosis = result.diagnose(MOST_VALUES, MOST_OUTPUTS)
    if diagnosis.verdict != "converged":
        warnings.warn(
            f"{diagnosis.headline} Print `result.diagnose()` for reasons and remedies.",
            ConvergenceWarning,
            stacklevel=3,
        )


def _seed(key: Key) -> int:
    """Return the key as one integer."""
    words = np.asarray(jax.random.key_data(key)).ravel()
    return int("".join(f"{int(word):08x}" for word in words), 16)


def _check_blocks(program: Program, chains: Chains) -> None:
    """Try out on two chains what the analysis says about blocks."""
    first = jax.tree.map(lambda leaf: jnp.concatenate(leaf[:2], axis=-1), chains.position)
    position = program.position_layout.unpack(first)
    if next(iter(position.values())).shape[0] > 1:
        here, other = ({name: v[i] for name, v in position.items()} for i in (0, 1))
        program.check_blocks((here, other))


def make_key(key: Key | int) -> Key:
    """Return a key; integers beyond 32 bits keep all their bits."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if not -(2**63) <= key < 2**64:
            raise ValueError(f"`key` must be an integer of at most 64 bits, got {key}.")
        words = np.array([(int(key) >> 32) & 0xFFFFFFFF, int(key) & 0xFFFFFFFF], np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
    if not isinstance(key, jax.Array):
        raise TypeError(
            f"`key` must be `jax.random.key(seed)` or an integer, got {key!r} of type "
            f"{type(key).__name__}."
        )
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape != (2,) or key.dtype != jnp.uint32:
            raise TypeError(
                "`key` must be `jax.random.key(seed)` or an integer, got an array of shape "
                f"{key.shape} and dtype {key.dtype}."
            )
        return jax.random.wrap_key_data(key, impl="threefry2x32")
    if key.shape:
        raise TypeError(
            f"`key` must be a single key, got an array of keys of shape {key.shape}. One key "
            "serves all chains."
        )
    return key


def _start(
    program: Program, key: Key, num_superchains: int, num_chains: int, together: bool = False
) -> Chains:
    """Start all chains at prior draws, ``[S, ..., C]``; those of a superchain at one, if asked."""
    key_start = jax.random.fold_in(key, 0xFFFFFFFF)  # no superchain has this number
    each = 1 if together else num_chains
    chains = start_chains(program, key_start, num_superchains * each)
    if together:
        chains = jax.tree.map(lambda leaf: jnp.repeat(leaf, num_chains, axis=-1), chains)

    def by_superchain(leaf: Array) -> Array:
        return jnp.moveaxis(leaf.reshape(leaf.shape[0], num_superchains, num_chains), 1, 0)

    return jax.tree.map(by_superchain, chains)


def _kept_names(program: Program, keep: str | Sequence[str]) -> list[str]:
    outputs, latent = program.output_layout.names, program.position_layout.names
    if keep == "outputs":
        return list(outputs)
    if keep == "all":
        return list(dict.fromkeys([*outputs, *latent]))
    names = [keep] if isinstance(keep, str) else keep
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f'`keep` must be "outputs", "all", or names, got {keep!r} of type '
            f"{type(keep).__name__}."
        )
    known = list(dict.fromkeys([*outputs, *latent]))
    for name in names:
        if name not in known:
            raise ValueError(f"`keep` has no output or site `{name}`. {nearest(name, known)}")
    return list(dict.fromkeys(names))


def _keep(program: Program, names: Sequence[str]) -> Keep:
    """Find the rows of the kept arrays; outputs come first."""

    def rows(layout: Layout, chosen: list[str]) -> tuple[tuple[str, int, int], ...]:
        return tuple((layout[n].bank, layout[n].offset, layout[n].size) for n in chosen)

    from_outputs, from_position = sources(program, names)
    return Keep(
        rows(program.output_layout, from_outputs),
        rows(program.position_layout, from_position),
        log_density=bool(names),
    )
