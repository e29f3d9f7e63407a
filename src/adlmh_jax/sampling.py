"""`sample`: from a model to a `Result`."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.config import RunConfig, default_epoch
from adlmh_jax.kernel import build_kernel
from adlmh_jax.layout import Layout, make_layout
from adlmh_jax.program import Program, compile_model
from adlmh_jax.program.errors import nearest
from adlmh_jax.program.sites import Outputs, element_names
from adlmh_jax.progress import BarMeter, Meter, SilentMeter
from adlmh_jax.proposals import SitePlan, plan_sites
from adlmh_jax.result import Result, ScheduleReport
from adlmh_jax.runner import (
    RunState,
    choose_devices,
    most_chunk_rounds,
    place,
    run_draws,
    share,
    to_host,
)
from adlmh_jax.schedules import Schedule, UcbState, ucb
from adlmh_jax.starting import start_chains
from adlmh_jax.streaming import Summary, summarise
from adlmh_jax.superchain import Code, Keep, Kept, Phase, SuperchainState, make_plan
from adlmh_jax.tally import tally_total
from adlmh_jax.types import Array, Chains, Key, Model


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
        raise TypeError(
            f"`schedule` must be what `ucb()` or `uniform()` returns, got {schedule!r} of type "
            f"{type(schedule).__name__}."
        )
    key = make_key(key)
    program = compile_model(model, model_args, model_kwargs, outputs=outputs)
    plans = plan_sites(program, proposals, blocks)
    kept_names = _kept_names(program, keep)
    chosen = choose_devices(devices, config.superchains)
    # Superchains that fill up the devices run for nothing, and are dropped.
    num_superchains = -(-config.superchains // chosen.count) * chosen.count

    kernel, data = build_kernel(program, plans)
    thinning = config.thinning or kernel.num_entries
    plan = make_plan(thinning, config.epoch or default_epoch(kernel.num_entries))
    code = Code(kernel, schedule, plan, _keep(program, kept_names))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_superchains))
    key_data = np.asarray(jax.random.key_data(keys))
    chains = _start(program, key, num_superchains, config.chains_each)
    state = place(chosen, kernel, data, schedule, chains)

    total = config.num_warmup + config.num_samples
    meter: Meter = BarMeter(total, thinning * config.num_chains) if progress else SilentMeter()
    parts: list[Kept] = []
    warmup = Phase(jnp.bool_(True), jnp.int32(0))
    sampling = Phase(jnp.bool_(adapt == "always"), jnp.int32(num_samples))
    most = most_chunk_rounds(code, state.superchains, num_samples)
    go = functools.partial(run_draws, code, chosen, share(chosen, data), key_data)
    state = go(state, warmup, num_warmup, most, meter, lambda kept: None)
    state = go(state, sampling, num_samples, most, meter, parts.append)
    meter.close()
    return _make_result(program, config, code, plans, kept_names, parts, state)


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

    from_outputs, from_position = _sources(program, names)
    return Keep(
        rows(program.output_layout, from_outputs),
        rows(program.position_layout, from_position),
        log_density=bool(names),
    )


def _sources(program: Program, names: Sequence[str]) -> tuple[list[str], list[str]]:
    from_outputs = [name for name in names if name in program.output_layout.names]
    return from_outputs, [name for name in names if name not in from_outputs]


def _make_result(
    program: Program,
    config: RunConfig,
    code: Code,
    plans: Mapping[str, SitePlan],
    names: list[str],
    parts: list[Kept],
    state: RunState,
) -> Result:
    num_superchains = config.superchains
    kept: Any = jax.tree.map(lambda *p: np.concatenate(p, axis=1)[:num_superchains], *parts)
    from_outputs, from_position = _sources(program, names)
    draws = _by_name(program.output_layout, from_outputs, kept.outputs)
    draws |= _by_name(program.position_layout, from_position, kept.position)
    superchains = jax.tree.map(lambda leaf: leaf[:num_superchains], to_host(state.superchains))
    report = _report(program, code, plans, superchains)
    _warn_invalid(report)
    return Result(
        draws={name: draws[name] for name in names},
        log_density=_by_chain(kept.log_density),
        schedule=report,
        superchain_of=np.repeat(np.arange(num_superchains), config.chains_each),
        config=config,
        program=program,
        state=state,
        statistics=_summary(program, superchains.statistics),
        proposals={name: plan.words for name, plan in plans.items()},
    )


def _by_chain(rows: np.ndarray) -> np.ndarray:
    """Return ``[chain, draw]`` from ``[S, draw, C]``."""
    return np.moveaxis(rows, 2, 1).reshape(rows.shape[0] * rows.shape[2], rows.shape[1])


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


def _summary(program: Program, statistics: Any) -> Summary:
    """Return the running statistics, outputs in the order of their names."""
    summary = summarise(statistics)
    layout, starts, end = program.output_layout, {}, 0
    for bank, size in layout.bank_sizes.items():
        starts[bank], end = end, end + size
    order = [starts[s.bank] + s.offset + i for s in layout.slots for i in range(s.size)]
    return Summary(
        summary.num_draws,
        summary.mean[:, order],
        summary.variance[:, order],
        summary.batch_variance[:, order],
        summary.histogram[order],
    )


def _report(
    program: Program, code: Code, plans: Mapping[str, SitePlan], superchains: SuperchainState
) -> ScheduleReport:
    learned, tallies = superchains.schedule, superchains.tallies
    is_ucb = isinstance(learned, UcbState)
    counts = [tally_total(tally) for tally in tallies]
    names: list[str] = []
    starts: list[int] = []
    for site in program.sites.sites:
        first = program.sites.first_components[site.name]
        is_block = plans[site.name].is_block
        elements = element_names(site.name, site.batch_shape)
        names.extend([f"{site.name}[:]"] if is_block else elements)
        starts.extend([first] if is_block else range(first, first + site.num_components))
    by_entry = [np.add.reduceat(count, starts, axis=-1) for count in counts]
    return ScheduleReport(
        names=names,
        weights=np.asarray(jax.jit(jax.vmap(code.schedule.weights))(learned)),
        rewards=np.asarray(learned.rewards.value) if is_ucb else None,
        counts=np.asarray(learned.counts.value) if is_ucb else None,
        selected=by_entry[0],
        accepted=by_entry[1],
        invalid=by_entry[2],
        rule=code.schedule.name,
        component_names=program.sites.component_names,
        component_selected=counts[0],
        component_accepted=counts[1],
        component_invalid=counts[2],
    )


def _warn_invalid(report: ScheduleReport) -> None:
    invalid = report.invalid.sum(axis=0)
    if invalid.any():
        worst = int(np.argmax(invalid))
        warnings.warn(
            f"{invalid.sum()} proposals had a log density of NaN or +inf and were rejected, most "
            f"of them ({invalid[worst]}) at `{report.names[worst]}`. The draws are right only if "
            "such values are impossible: look for 0/0 and overflow in what depends on them, and "
            "see `result.schedule.invalid`.",
            UserWarning,
            stacklevel=4,
        )
