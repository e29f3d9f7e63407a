"""`sample`: from a model to a `Result`."""

import dataclasses
import functools
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from adlmh_jax.engine import (
    Done,
    Draws,
    Engine,
    Host,
    InterruptedWarning,
    Kept,
    Meter,
    Resumption,
    Run,
    RunConfig,
    RunState,
    build_engine,
    can_anneal,
    check_memory,
    check_schedule,
    choose_devices,
    choose_names,
    copy_state,
    find_rows,
    first_beta,
    make_key,
    make_meter,
    max_chunk_rounds,
    name_draws,
    place,
    run_phases,
    seed_of,
    share,
    start_superchains,
    superchain_keys,
    watch_signals,
)
from adlmh_jax.model import Outputs, Program, compile_model
from adlmh_jax.proposals import foresee_functions
from adlmh_jax.results import ConvergenceWarning, Result, collect
from adlmh_jax.schedules import Schedule, ucb
from adlmh_jax.store import Directory, Nowhere, Store, run_settings
from adlmh_jax.types import Chains, Key, Model


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
    start: Literal["anneal", "prior"] = "anneal",
    adapt: Literal["warmup", "always"] = "warmup",
    keep: str | Sequence[str] = "outputs",
    init: Mapping[str, Any] | Result | None = None,
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
        ``ucb()`` is AdLMH, ``uniform()`` is LMH; ``influence()`` learns what drives the outputs:
        see ``docs/schedules.md``.
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
    start
        ``"anneal"``: the chains of a superchain go from prior to posterior as particles, in the
        first half of the warm-up, and estimate the evidence on the way (``result.log_evidence``).
        ``"prior"``: they start at prior draws. So they do in any case where there are fewer than 16
        chains in a superchain, or `init`, or `start_together`, or latent sites with a scale, a mask
        or no prior, or hardly any warm-up. See ``docs/annealing.md``.
    adapt
        ``"warmup"`` freezes the schedule after warm-up; ``"always"`` goes on adapting, as the paper
        does (the draws are then those of an adaptive chain, right only in the limit).
    keep
        ``"outputs"``, ``"all"`` (outputs and all latent sites), names, or ``()`` for nothing but
        the running statistics of the outputs, which need no memory for draws.
    init
        Starting values by site name, one for all chains or one for each, ``[chain, ...]``; other
        sites start at prior draws. Needed for ImproperUniform. Or a `Result`: start where its
        chains ended.
    start_together
        Start all chains of a superchain at one point: nested R-hat then compares superchains that
        know nothing of each other's start, as its authors assume.
    store, resume
        A directory: draws and state are written there every few seconds, and ``resume=True`` goes
        on with the run that it holds, or begins it. The draws are those of an uninterrupted run.
        ``num_samples`` is then the number of draws **in total**, and may be larger than it was.
        See ``docs/storing.md``.
    devices
        Where to run; default: all devices.
    progress
        Show a progress bar.

    Returns
    -------
    A `Result`. ``result.extend(n)`` makes n draws **more**. Ctrl-C and SIGTERM end the run after
    the current chunk, with the draws so far and an `InterruptedWarning`, or with
    `KeyboardInterrupt` if there are none yet; a second signal ends it at once.
    """
    if resume and store is None:
        raise ValueError(
            "`resume=True` needs `store`: name the directory of the run to go on with."
        )
    config = RunConfig(
        num_chains=num_chains,
        num_superchains=num_superchains,
        num_warmup=num_warmup,
        num_samples=num_samples,
        thinning=thinning,
        epoch=epoch,
        adapt=adapt,
        start=start,
    )
    check_schedule(schedule)
    key = make_key(key)
    program = compile_model(
        model,
        model_args,
        model_kwargs,
        outputs=outputs,
        init=init.last_values() if isinstance(init, Result) else init,
        proposals=functools.partial(foresee_functions, proposals=proposals),
    )
    _check_init(program, num_chains, start_together)
    names = choose_names(program, keep)
    engine = build_engine(
        program,
        schedule=schedule,
        proposals=proposals,
        blocks=blocks,
        thinning=thinning,
        epoch=epoch,
        keep=find_rows(program, names),
    )
    check_memory(engine, config, names)
    disk = _open_store(store, resume, engine, config, names, seed_of(key))
    with _using(disk), make_meter(progress) as meter:
        run, fresh = _start(engine, config, key, devices, start_together)
        session = Session(
            engine=engine,
            names=names,
            num_superchains=config.superchains,
            run=run,
            disk=disk,
            seed=seed_of(key),
            progress=progress,
        )
        done = disk.load(fresh, session.label(_no_draws(run, fresh), 0), run.devices)
        result = session.go_on(config, done, meter)
    warn_if_doubtful(result, stacklevel=3)
    return result


@contextmanager
def _using(disk: Store) -> Iterator[None]:
    """Let others use a place when a run ends, in whatever way."""
    try:
        yield
    finally:
        disk.release()


@dataclass(frozen=True)
class Session:
    """What a run needs to go on, whatever number of draws is asked for."""

    engine: Engine
    names: Sequence[str]
    num_superchains: int
    run: Run
    disk: Store
    seed: int
    progress: bool

    def label(self, kept: Kept, num_draws: int) -> Draws:
        """Return the first draws that a chunk kept, by name."""
        return name_draws(self.engine.program, self.names, self.num_superchains, kept, num_draws)

    def go_on(self, config: RunConfig, done: Done, meter: Meter, seconds: float = 0.0) -> Result:
        """Run to the end, or until a signal comes; ``seconds`` have been spent before."""
        left = config.num_warmup + config.num_samples - done.num_warmup - done.num_samples
        steps_per_draw = self.run.spec.plan.thinning * config.num_chains
        started = time.perf_counter()
        meter.begin(left, steps_per_draw)
        with watch_signals() as interruption:
            host = Host(self.label, meter, self.disk.save, lambda: interruption.is_asked)
            done = run_phases(self.run, config, done, host)
            self.disk.close()
        if not done.num_samples:
            raise KeyboardInterrupt("The run was interrupted during warm-up: it has no draws yet.")
        seconds += time.perf_counter() - started
        result = collect(self.engine, config, self.names, done, self.seed, seconds)
        if interruption.is_asked:
            _warn_interrupted(done.num_samples, config.num_samples)
        extend = functools.partial(self.extend, done.resumption)
        return dataclasses.replace(result, _continue=extend)

    def extend(self, start: Resumption, result: Result, num_more: int) -> Result:
        """Make more draws than a result has, from where its run can go on."""
        more = RunConfig(num_samples=num_more).num_samples  # checked
        config = dataclasses.replace(result.config, num_samples=result.num_draws + more)
        check_memory(self.engine, config, self.names)
        done = Done(
            state=copy_state(start.state),
            num_warmup=config.num_warmup,
            num_samples=start.num_samples,
            parts=[Draws(dict(result.draws), result.log_density).head(start.num_samples)],
        )
        with _using(self.disk), make_meter(self.progress) as meter:
            extended = self.go_on(config, done, meter, result.seconds or 0.0)
        warn_if_doubtful(extended, stacklevel=4)
        return extended


def _no_draws(run: Run, fresh: RunState) -> Kept:
    """Return what is kept of no draws at all, ``[S, 0, ...]``."""
    shapes = jax.eval_shape(jax.vmap(run.spec.keep.record), fresh.superchains.chains)
    return jax.tree.map(lambda leaf: np.zeros((len(leaf), 0, *leaf.shape[1:]), leaf.dtype), shapes)


def _start(
    engine: Engine,
    config: RunConfig,
    key: Key,
    devices: Sequence[Any] | None,
    start_together: bool,
) -> tuple[Run, RunState]:
    """Put superchains at starting points on devices."""
    chosen = choose_devices(devices, config.superchains)
    num_placed = chosen.fill(config.superchains)
    program = engine.program
    started = start_superchains(program, key, num_placed, config.chains_each, start_together)
    _check_blocks(program, started.chains)
    data = share(chosen, engine.data)
    is_annealed = not start_together and can_anneal(engine, config)
    fresh = place(chosen, engine, data, started.chains, first_beta(started, is_annealed))
    run = Run(
        spec=engine.spec,
        data=data,
        devices=chosen,
        key_data=superchain_keys(key, num_placed),
        max_rounds=max_chunk_rounds(engine.spec, fresh.superchains),
    )
    return run, fresh


def _check_init(program: Program, num_chains: int, start_together: bool) -> None:
    """Refuse starting values of another number of chains, or of chains that start at one point."""
    for name, value in program.init.items():
        if value.shape == program.sites[name].shape:
            continue
        if len(value) != num_chains:
            raise ValueError(
                f"`init` gives `{name}` {len(value)} values, one for each chain, but there are "
                f"{num_chains} chains. Give one for all of them, or `num_chains` of them."
            )
        if start_together:
            raise ValueError(
                f"`init` gives `{name}` a value for each chain, and `start_together=True` one "
                "point to all chains of a superchain. Leave one of them out."
            )


def _check_blocks(program: Program, chains: Chains) -> None:
    """Try out on two chains what the analysis says about blocks."""
    first = jax.tree.map(lambda leaf: np.concatenate(leaf[:2], axis=-1), chains.latent)
    position = program.latent_layout.unpack(first)
    if next(iter(position.values())).shape[0] > 1:
        here, other = ({name: v[i] for name, v in position.items()} for i in (0, 1))
        program.check_blocks((here, other))


def _open_store(
    store: str | Path | None,
    resume: bool,
    engine: Engine,
    config: RunConfig,
    names: Sequence[str],
    seed: int,
) -> Store:
    """Return the place that keeps the run."""
    if store is None:
        return Nowhere()
    settings = run_settings(engine, config, names, seed)
    settings.pop("num_samples")  # a run may go on for longer
    return Directory(store, settings, config.superchains, config.num_samples, resume)


def _warn_interrupted(num_draws: int, num_samples: int) -> None:
    warnings.warn(
        f"The run was interrupted after {num_draws} of {num_samples} draws of each chain: the "
        "result has those. `result.extend(n)` makes n more.",
        InterruptedWarning,
        stacklevel=4,
    )


def warn_if_doubtful(result: Result, stacklevel: int) -> None:
    """Say it, once, if the run cannot be trusted."""
    if not result.draws:
        return
    diagnosis = result.glance()
    if diagnosis.verdict != "converged":
        warnings.warn(
            f"{diagnosis.headline} Print `result.diagnose()` for reasons and remedies.",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )
