"""A run from its engine on: superchains are started, run and stored, and can go on for longer."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from adlmh_jax.engine import (
    Addresses,
    Devices,
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
    View,
    can_anneal,
    check_memory,
    choose_devices,
    copy_state,
    first_beta,
    make_meter,
    max_chunk_rounds,
    name_draws,
    place,
    run_phases,
    share,
    split,
    start_superchains,
    watch_signals,
)
from adlmh_jax.model import Program
from adlmh_jax.store import Directory, Nowhere, Store, run_settings
from adlmh_jax.types import Chains
from adlmh_jax.warning import warn_user

Finish = Callable[[RunConfig, Done, float], Any]


@dataclass(frozen=True)
class Wish:
    """What is asked of a run besides its numbers.

    Attributes
    ----------
    names
        What is kept of each draw.
    seed
        The key of the run as one integer.
    devices, start_together, store, resume, progress
        As for `sample`.
    is_passing
        Whether the store is only read, for the run that it holds.
    """

    names: Sequence[str]
    seed: int
    devices: Sequence[Any] | None
    start_together: bool
    store: str | Path | None
    resume: bool
    progress: bool
    is_passing: bool = False


def check_resume(store: str | Path | None, resume: bool) -> None:
    """Refuse to go on with a run that is nowhere."""
    if resume and store is None:
        raise ValueError(
            "`resume=True` needs `store`: name the directory of the run to go on with."
        )


def run_engine(
    engine: Engine,
    config: RunConfig,
    addresses: Addresses,
    wish: Wish,
    finish: Finish,
    seconds: float = 0.0,
) -> Any:
    """Start superchains, run them to their end or until a signal comes, and return the result.

    Parameters
    ----------
    engine, config
        What is run, and for how long.
    addresses
        Of the superchains.
    wish
        What else is asked for.
    finish
        Makes the result of a run.
    seconds
        How long the run has taken elsewhere.
    """
    devices = choose_devices(wish.devices, len(addresses.numbers))
    check_memory(engine, config, wish.names, devices.free_bytes())
    disk = _open_store(engine, config, wish)
    with _using(disk), make_meter(wish.progress) as meter:
        run, fresh = _start(engine, config, addresses, wish, devices)
        session = Session(engine, wish, len(addresses.numbers), run, disk, finish)
        done = disk.load(fresh, session.label(_no_draws(run, fresh), 0), run.devices)
        if wish.is_passing:
            session = dataclasses.replace(session, disk=Nowhere())
        return session.go_on(config, done, meter, seconds)


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
    wish: Wish
    num_superchains: int
    run: Run
    disk: Store
    finish: Finish

    def label(self, kept: Kept, num_draws: int) -> Draws:
        """Return the first draws that a chunk kept, by name."""
        names = self.wish.names
        return name_draws(self.engine.program, names, self.num_superchains, kept, num_draws)

    def view(self) -> View:
        """Return what must be known of the run to look at it."""
        program = self.engine.program
        num_together = self.num_superchains // program.call.num_datasets
        return View(self.num_superchains, num_together, program.output_names)

    def go_on(self, config: RunConfig, done: Done, meter: Meter, seconds: float = 0.0) -> Any:
        """Run to the end, or until a signal comes; ``seconds`` have been spent before."""
        left = config.num_warmup + config.num_samples - done.num_warmup - done.num_samples
        steps_per_draw = self.run.spec.plan.thinning * self.num_superchains * config.chains_each
        started = time.perf_counter()
        meter.begin(left, steps_per_draw)
        with watch_signals() as interruption:
            host = Host(
                label=self.label,
                meter=meter,
                save=self.disk.save,
                is_stopping=lambda: interruption.is_asked,
                view=self.view(),
            )
            done = run_phases(self.run, config, done, host)
            self.disk.close()
        if not done.num_samples:
            raise KeyboardInterrupt("The run was interrupted during warm-up: it has no draws yet.")
        seconds += time.perf_counter() - started
        result = self.finish(config, done, seconds)
        if interruption.is_asked:
            _warn_interrupted(done.num_samples, config.num_samples)
        extend = functools.partial(self.extend, done.resumption)
        return dataclasses.replace(result, _continue=extend)

    def extend(self, start: Resumption, result: Any, num_more: int) -> Any:
        """Make more draws than a result has, from where its run can go on."""
        more = RunConfig(num_samples=num_more).num_samples  # checked
        config = dataclasses.replace(result.config, num_samples=result.num_draws + more)
        check_memory(self.engine, config, self.wish.names, self.run.devices.free_bytes())
        done = Done(
            state=copy_state(start.state),
            num_warmup=config.num_warmup,
            num_samples=start.num_samples,
            parts=[result.recorded.head(start.num_samples)],
        )
        with _using(self.disk), make_meter(self.wish.progress) as meter:
            extended = self.go_on(config, done, meter, result.seconds or 0.0)
        extended.warn_if_doubtful()
        return extended


def _no_draws(run: Run, fresh: RunState) -> Kept:
    """Return what is kept of no draws at all, ``[S, 0, ...]``."""
    shapes = jax.eval_shape(jax.vmap(run.spec.keep.record), fresh.superchains.chains)
    return jax.tree.map(lambda leaf: np.zeros((len(leaf), 0, *leaf.shape[1:]), leaf.dtype), shapes)


def _start(
    engine: Engine, config: RunConfig, addresses: Addresses, wish: Wish, chosen: Devices
) -> tuple[Run, RunState]:
    """Put superchains at starting points on devices."""
    placed = addresses.fill(chosen.fill(len(addresses.numbers)))
    program = engine.program
    is_annealed = not wish.start_together and can_anneal(engine, config)
    started = start_superchains(
        program, placed, config.chains_each, wish.start_together, is_annealed
    )
    is_first = placed.datasets == 0
    _check_blocks(program.of_dataset(0), jax.tree.map(lambda leaf: leaf[is_first], started.chains))
    data = share(chosen, split(engine.data, placed.datasets))
    fresh = place(chosen, engine, data, started.chains, first_beta(started, is_annealed))
    run = Run(
        spec=engine.spec,
        data=data,
        devices=chosen,
        key_data=placed.run_keys,
        max_rounds=max_chunk_rounds(engine.spec, fresh.superchains),
    )
    return run, fresh


def _check_blocks(program: Program, chains: Chains) -> None:
    """Try out on two chains what the analysis says about blocks."""
    first = jax.tree.map(lambda leaf: np.concatenate(leaf[:2], axis=-1), chains.latent)
    position = program.latent_layout.unpack(first)
    if next(iter(position.values())).shape[0] > 1:
        here, other = ({name: v[i] for name, v in position.items()} for i in (0, 1))
        program.check_blocks((here, other))


def _open_store(engine: Engine, config: RunConfig, wish: Wish) -> Store:
    """Return the place that keeps the run."""
    if wish.store is None:
        return Nowhere()
    settings = run_settings(engine, config, wish.names, wish.seed)
    settings.pop("num_samples")  # a run may go on for longer
    return Directory(wish.store, settings, len(config.numbers), config.num_samples, wish.resume)


def _warn_interrupted(num_draws: int, num_samples: int) -> None:
    warn_user(
        f"The run was interrupted after {num_draws} of {num_samples} draws of each chain: the "
        "result has those. `result.extend(n)` makes n more.",
        InterruptedWarning,
    )
