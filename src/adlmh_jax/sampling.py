"""`sample`: from a model to a `Result`."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.kernel import build_kernel
from adlmh_jax.layout import Layout, make_layout
from adlmh_jax.program import Program, compile_model
from adlmh_jax.program.sites import Outputs
from adlmh_jax.progress import BarMeter, Meter, SilentMeter
from adlmh_jax.result import Result, ScheduleReport
from adlmh_jax.runner import RunState, choose_devices, most_chunk_rounds, place, run_draws
from adlmh_jax.schedules import Schedule, UcbState, ucb
from adlmh_jax.starting import start_chains
from adlmh_jax.superchain import Code, Keep, Kept, Phase, make_plan
from adlmh_jax.tally import tally_total
from adlmh_jax.types import Array, Chains, Key, Model

DEFAULT_EPOCH = 64
LEAST_SUPERCHAINS = 4  # fewer cannot disagree with each other


@dataclass(frozen=True)
class RunConfig:
    """The numbers of a run, checked.

    Attributes
    ----------
    num_chains, num_superchains
        Chains, and the superchains that share them evenly.
    num_warmup, num_samples
        Draws before and during sampling.
    thinning
        Steps per draw; None for N, a sweep's worth.
    epoch
        Steps with frozen weights; 1 is exactly the paper.
    adapt
        Whether the schedule learns during warm-up only, or always.
    """

    num_chains: int = 256
    num_superchains: int | None = None
    num_warmup: int = 1000
    num_samples: int = 1000
    thinning: int | None = None
    epoch: int = DEFAULT_EPOCH
    adapt: Literal["warmup", "always"] = "warmup"

    def __post_init__(self) -> None:
        """Refuse numbers that make no run."""
        for name, least in (
            ("num_chains", 1),
            ("num_superchains", 1),
            ("num_warmup", 0),
            ("num_samples", 1),
            ("thinning", 1),
            ("epoch", 1),
        ):
            value = getattr(self, name)
            if value is None and name in ("num_superchains", "thinning"):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"`{name}` must be a whole number, got {value!r}.")
            if value < least:
                raise ValueError(f"`{name}` must be at least {least}, got {value}.")
        if self.adapt not in ("warmup", "always"):
            raise ValueError(f'`adapt` must be "warmup" or "always", got {self.adapt!r}.')
        superchains = self.num_superchains
        if superchains is not None and superchains > self.num_chains:
            raise ValueError(
                f"`num_superchains` is {superchains}, more than the {self.num_chains} chains: a "
                "superchain has at least one chain."
            )
        if superchains is not None and self.num_chains % superchains:
            raise ValueError(
                f"`num_superchains` = {superchains} does not divide `num_chains` = "
                f"{self.num_chains}: every superchain has the same number of chains."
            )

    @property
    def superchains(self) -> int:
        """Number of superchains: as given, or the least divisor of the chains from 4 on."""
        if self.num_superchains is not None:
            return self.num_superchains
        fitting = (
            n for n in range(LEAST_SUPERCHAINS, self.num_chains + 1) if self.num_chains % n == 0
        )
        return next(fitting, self.num_chains)


def sample(
    key: Key | int,
    model: Model,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    outputs: Outputs = None,
    schedule: Schedule = ucb(),
    proposals: str = "prior",
    num_chains: int = 256,
    num_superchains: int | None = None,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    thinning: int | None = None,
    epoch: int = DEFAULT_EPOCH,
    adapt: Literal["warmup", "always"] = "warmup",
    keep: str | Sequence[str] = "outputs",
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
        ``"prior"``: the paper's.
    num_chains, num_superchains
        Chains, and superchains: chains that share a schedule and the selected component. Default:
        the least number from 4 on that divides the chains.
    num_warmup, num_samples
        Draws before sampling (not recorded) and recorded draws.
    thinning
        Steps of each chain per draw. Default: the number of components, a sweep's worth.
    epoch
        Steps between updates of the weights; 1 is exactly the paper.
    adapt
        ``"warmup"`` freezes the schedule after warm-up; ``"always"`` goes on adapting, as the paper
        does (the draws are then those of an adaptive chain, right only in the limit).
    keep
        ``"outputs"``, ``"all"`` (outputs and all latent sites), or names.
    devices
        Where to run; default: all devices.
    progress
        Show a progress bar.

    Returns
    -------
    A `Result`.
    """
    config = RunConfig(num_chains, num_superchains, num_warmup, num_samples, thinning, epoch, adapt)
    if not isinstance(schedule, Schedule):
        raise TypeError(f"`schedule` must be made by `ucb()` or `uniform()`, got {schedule!r}.")
    program = compile_model(model, model_args, model_kwargs, outputs=outputs)
    return run_program(key, program, config, schedule, proposals, keep, devices, progress)


def run_program(
    key: Key | int,
    program: Program,
    config: RunConfig,
    schedule: Schedule,
    proposals: str,
    keep: str | Sequence[str],
    devices: Sequence[Any] | None,
    progress: bool,
) -> Result:
    """Run a compiled program."""
    if proposals != "prior":
        raise ValueError(f'`proposals` must be "prior", got {proposals!r}.')
    kept_names = _kept_names(program, keep)
    chosen = choose_devices(devices, config.superchains)
    num_superchains = -(-config.superchains // chosen.count) * chosen.count
    chains_each = config.num_chains // config.superchains
    kernel, data = build_kernel(program)
    thinning = config.thinning or program.num_components
    plan = make_plan(thinning, config.epoch)
    rows = _kept_rows(program, kept_names)

    key = make_key(key)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_superchains))
    chains = _start(program, key, num_superchains, chains_each)
    schedule_state = schedule.init(program.num_components, kernel.num_outputs, chains_each)
    state = place(chosen, chains, schedule_state, program.num_components, kernel.num_outputs)

    total = config.num_warmup + config.num_samples
    meter: Meter = SilentMeter()
    if progress:
        meter = BarMeter(total, thinning * config.num_chains)
    parts: list[Kept] = []
    code = Code(kernel, schedule, plan, rows)
    num_warmup, num_samples = config.num_warmup, config.num_samples
    most = most_chunk_rounds(code, state.superchains, num_samples)
    go = functools.partial(run_draws, code, chosen, data, keys)
    warmup = Phase(jnp.bool_(True), jnp.int32(0))
    sampling = Phase(jnp.bool_(config.adapt == "always"), jnp.int32(num_samples))
    state = go(state, warmup, num_warmup, most, meter, lambda kept: None)
    state = go(state, sampling, num_samples, most, meter, parts.append)
    meter.close()
    return _make_result(program, config, schedule, kept_names, parts, state)


def make_key(key: Key | int) -> Key:
    """Return a key; integers beyond 32 bits keep all their bits."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        words = np.array([(int(key) >> 32) & 0xFFFFFFFF, int(key) & 0xFFFFFFFF], np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
    if not isinstance(key, jax.Array):
        raise TypeError(f"`key` must be `jax.random.key(seed)` or an integer, got {key!r}.")
    is_typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    single = key if is_typed else jax.random.wrap_key_data(key)
    if single.shape:
        raise TypeError(f"`key` must be a single key, got an array of shape {single.shape}.")
    return single


def _start(program: Program, key: Key, num_superchains: int, num_chains: int) -> Chains:
    """Start all chains at prior draws, ``[S, ..., C]``."""
    key_start = jax.random.fold_in(key, 0xFFFFFFFF)  # no superchain has this number
    chains = start_chains(program, key_start, num_superchains * num_chains)

    def by_superchain(leaf: Array) -> Array:
        return jnp.moveaxis(leaf.reshape(leaf.shape[0], num_superchains, num_chains), 1, 0)

    return jax.tree.map(by_superchain, chains)


def _kept_names(program: Program, keep: str | Sequence[str]) -> list[str]:
    outputs, latent = program.output_layout.names, program.position_layout.names
    if keep == "outputs":
        return list(outputs)
    if keep == "all":
        return list(dict.fromkeys([*outputs, *latent]))
    names = [keep] if isinstance(keep, str) else list(keep)
    known = dict.fromkeys([*outputs, *latent])
    for name in names:
        if name not in known:
            listed = ", ".join(f"`{known_name}`" for known_name in known)
            raise ValueError(f"`keep` names `{name}`, which is none of {listed}.")
    return names


def _kept_rows(program: Program, names: Sequence[str]) -> Keep:
    """Find the rows of the kept arrays; outputs come first."""

    def rows(layout: Layout, chosen: list[str]) -> tuple[tuple[str, int, int], ...]:
        return tuple((layout[n].bank, layout[n].offset, layout[n].size) for n in chosen)

    from_outputs, from_position = _sources(program, names)
    return Keep(
        rows(program.output_layout, from_outputs), rows(program.position_layout, from_position)
    )


def _sources(program: Program, names: Sequence[str]) -> tuple[list[str], list[str]]:
    from_outputs = [name for name in names if name in program.output_layout.names]
    return from_outputs, [name for name in names if name not in from_outputs]


def _make_result(
    program: Program,
    config: RunConfig,
    schedule: Schedule,
    names: list[str],
    parts: list[Kept],
    state: RunState,
) -> Result:
    num_superchains = config.superchains
    kept: Any = jax.tree.map(lambda *p: np.concatenate(p, axis=1)[:num_superchains], *parts)
    from_outputs, from_position = _sources(program, names)
    draws = _by_name(program.output_layout, from_outputs, kept.outputs)
    draws |= _by_name(program.position_layout, from_position, kept.position)
    log_density = np.moveaxis(kept.log_density, 2, 1).reshape(config.num_chains, -1)
    chains_each = config.num_chains // num_superchains
    report = _report(program, schedule, state, num_superchains)
    _warn_invalid(report)
    return Result(
        {name: draws[name] for name in names},
        log_density,
        report,
        np.repeat(np.arange(num_superchains), chains_each),
        config,
        program,
        state,
    )


def _by_name(
    layout: Layout, names: list[str], banks: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return arrays ``[chain, draw, ...]`` from kept rows ``[S, draw, rows, C]``."""
    kept = make_layout({name: (layout[name].shape, layout[name].bank) for name in names})
    values = {}
    for name, slot in zip(kept.names, kept.slots, strict=True):
        rows = banks[slot.bank][:, :, slot.offset : slot.offset + slot.size]
        by_chain = np.moveaxis(rows, 3, 1)
        values[name] = by_chain.reshape(-1, rows.shape[1], *slot.shape)
    return values


def _report(
    program: Program, schedule: Schedule, state: RunState, num_superchains: int
) -> ScheduleReport:
    superchains = jax.tree.map(lambda leaf: np.asarray(leaf)[:num_superchains], state.superchains)
    learned = superchains.schedule
    is_ucb = isinstance(learned, UcbState)
    tallies = superchains.tallies
    return ScheduleReport(
        program.sites.component_names,
        np.asarray(jax.vmap(schedule.weights)(learned)),
        learned.rewards.value if is_ucb else None,
        learned.counts.value if is_ucb else None,
        tally_total(tallies.selected),
        tally_total(tallies.accepted),
        tally_total(tallies.invalid),
    )


def _warn_invalid(report: ScheduleReport) -> None:
    invalid = report.invalid.sum(axis=0)
    if invalid.any():
        worst = int(np.argmax(invalid))
        warnings.warn(
            f"{invalid.sum()} proposals had a log density of NaN or +inf and were rejected, most "
            f"of them ({invalid[worst]}) at `{report.names[worst]}`.",
            UserWarning,
            stacklevel=5,
        )
