"""`sample`: from a model to a `Result`."""

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax

from adlmh_jax.engine import (
    Addresses,
    Done,
    Engine,
    RunConfig,
    address,
    build_engine,
    check_memory,
    check_schedule,
    choose_names,
    find_rows,
    make_key,
    seed_of,
)
from adlmh_jax.executing import run_in_shares
from adlmh_jax.model import Outputs, Program, compile_model
from adlmh_jax.proposals import foresee_functions
from adlmh_jax.results import Result, collect
from adlmh_jax.schedules import Schedule, ucb
from adlmh_jax.session import Wish, check_resume, run_engine
from adlmh_jax.types import Key, Model


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
    superchains: range | None = None,
    executor: Any = None,
    num_shares: int | None = None,
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
        block, and one for each number of sites that walk together.
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
    superchains
        Run only these of the superchains, such as ``range(8, 16)``: the same, bit for bit, as in a
        run of all. Parts that were stored, on whatever machines, are put together by `merge`.
    executor
        Run the superchains in shares, on the workers of anything with the ``submit`` of
        ``concurrent.futures``, or of what a function without arguments makes. The result is the
        same, bit for bit, even if workers die on the way. Workers on other machines need a `store`
        that they see too. See ``docs/many.md``.
    num_shares
        How many shares. Default: one for each worker; one for each superchain where the executor
        does not tell how many workers it has.
    devices
        Where to run; default: all devices.
    progress
        Show a bar: phase, speed, acceptance, and nested R-hat of the worst output so far.

    Returns
    -------
    A `Result`. ``result.extend(n)`` makes n draws **more**. Ctrl-C and SIGTERM end the run after
    the current chunk, with the draws so far and an `InterruptedWarning`, or with
    `KeyboardInterrupt` if there are none yet; a second signal ends it at once.

    Examples
    --------
    ::

        result = adlmh.sample(0, model, (readings,), outputs=["rate", "photons"])
        print(result.diagnose())
        result.summary()
        result = result.extend(1000)
    """
    check_resume(store, resume)
    _check_place(executor, num_shares, superchains, devices)
    config = RunConfig(
        num_chains=num_chains,
        num_superchains=num_superchains,
        num_warmup=num_warmup,
        num_samples=num_samples,
        thinning=thinning,
        epoch=epoch,
        adapt=adapt,
        start=start,
        part=read_part(superchains),
    )
    task = Task(
        seed=seed_of(make_key(key)),
        model=model,
        args=model_args,
        kwargs=model_kwargs,
        outputs=outputs,
        schedule=schedule,
        proposals=proposals,
        blocks=blocks,
        keep=keep,
        init=init.last_values() if isinstance(init, Result) else init,
        start_together=start_together,
        config=config,
    )
    engine, names = task.assemble()
    wish = Wish(
        names=names,
        seed=task.seed,
        devices=devices,
        start_together=start_together,
        store=store,
        resume=resume,
        progress=progress,
    )
    finish = functools.partial(collect, engine, names, task.seed)
    if executor is None:
        result = run_engine(engine, config, task.addresses(config), wish, finish)
    else:
        check_memory(engine, config, names)
        with _shared(executor, num_shares, task, wish) as (wish, seconds):
            result = run_engine(engine, config, task.addresses(config), wish, finish, seconds)
    result.warn_if_doubtful()
    return result


@dataclass(frozen=True, eq=False)
class Task:
    """What is sampled and how, not where; it can be sent to other processes.

    Attributes
    ----------
    seed
        The key as one integer.
    config
        The numbers of the whole run.
    model, args, kwargs, outputs, schedule, proposals, blocks, keep, init, start_together
        As for `sample`.
    """

    seed: int
    config: RunConfig
    model: Model
    args: tuple
    kwargs: Mapping[str, Any] | None
    outputs: Outputs
    schedule: Schedule
    proposals: str | Mapping[str, Any]
    blocks: str
    keep: str | Sequence[str]
    init: Mapping[str, Any] | None
    start_together: bool

    def assemble(self) -> tuple[Engine, list[str]]:
        """Compile and build; return the engine, and the names of what it keeps of a draw."""
        compile_program = functools.partial(
            compile_model, self.model, self.args, self.kwargs, outputs=self.outputs, init=self.init
        )
        return assemble(
            compile_program,
            self.config,
            schedule=self.schedule,
            proposals=self.proposals,
            blocks=self.blocks,
            keep=self.keep,
            start_together=self.start_together,
        )

    def addresses(self, config: RunConfig) -> Addresses:
        """Return those of the superchains that are run."""
        return address([make_key(self.seed)], config.numbers)


@dataclass(frozen=True)
class Made:
    """What a worker notes of its part of a run; the rest is in the store."""

    num_draws: int
    _continue: Any = None


def run_part(task: Task, numbers: range, store: Path) -> int:
    """Run some superchains of a task, or go on with them; return how many draws are stored."""
    engine, names = _assemble_once(task)
    config = replace(task.config, part=(numbers.start, numbers.stop))
    wish = Wish(
        names=names,
        seed=task.seed,
        devices=None,
        start_together=task.start_together,
        store=store,
        resume=True,
        progress=False,
    )

    def finish(config: RunConfig, done: Done, seconds: float) -> Made:
        del config, seconds
        return Made(done.num_samples)

    return run_engine(engine, config, task.addresses(config), wish, finish).num_draws


@functools.lru_cache(maxsize=1)
def _assemble_once(task: Task) -> tuple[Engine, list[str]]:
    """Assemble for all parts of a task that a process runs."""
    return task.assemble()


@contextlib.contextmanager
def _shared(
    executor: Any, num_shares: int | None, task: Task, wish: Wish
) -> Iterator[tuple[Wish, float]]:
    """Have the run made by workers; give where it is stored, and how long it took."""
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        place = wish.store or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="adlmh-", ignore_cleanup_errors=True)
        )
        run_in_shares(
            executor,
            num_shares,
            run_part,
            task,
            task.config,
            Path(place),
            wish.resume,
            wish.progress,
        )
        seconds = time.perf_counter() - started
        passing = wish.store is None
        yield replace(wish, store=place, resume=True, progress=False, is_passing=passing), seconds


def assemble(
    compile_program: Callable[..., Program],
    config: RunConfig,
    *,
    schedule: Schedule,
    proposals: str | Mapping[str, Any],
    blocks: str,
    keep: str | Sequence[str],
    start_together: bool,
) -> tuple[Engine, list[str]]:
    """Compile and build; return the engine, and the names of what it keeps of a draw.

    Parameters
    ----------
    compile_program
        Makes the program, given the proposals to trace with it.
    config
        The numbers of the run.
    schedule, proposals, blocks, keep, start_together
        As for `sample`.
    """
    check_schedule(schedule)
    foresee = functools.partial(foresee_functions, proposals=proposals)
    program = compile_program(proposals=foresee)
    _check_init(program, config.num_chains, start_together)
    names = choose_names(program, keep)
    engine = build_engine(
        program,
        schedule=schedule,
        proposals=proposals,
        blocks=blocks,
        thinning=config.thinning,
        epoch=config.epoch,
        keep=find_rows(program, names),
    )
    return engine, names


def _check_place(
    executor: Any, num_shares: int | None, superchains: range | None, devices: Any
) -> None:
    """Refuse to run a part, or on some devices, and in shares too."""
    if executor is None and num_shares is not None:
        raise ValueError("`num_shares` needs `executor`, whose workers run the shares.")
    if executor is not None and superchains is not None:
        raise ValueError(
            "`executor` divides all superchains into shares, and `superchains` names a part of "
            "them. Leave one of them out."
        )
    if executor is not None and devices is not None:
        raise ValueError(
            "`devices` are those of this process; the workers of `executor` use their own."
        )
    if executor is not None and jax.process_count() > 1:
        raise ValueError("`executor` and `jax.distributed` both divide a run: use one of them.")


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


def read_part(superchains: range | None) -> tuple[int, int] | None:
    """Return the ends of a range of superchains."""
    if superchains is None:
        return None
    if not isinstance(superchains, range) or superchains.step != 1:
        raise TypeError(
            f"`superchains` must be a range such as `range(8, 16)`, got {superchains!r}. The "
            "number of all superchains is `num_superchains`."
        )
    return superchains.start, superchains.stop
