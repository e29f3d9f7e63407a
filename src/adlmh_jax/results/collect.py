"""From the end of a run to a `Result`: rows of banks become arrays with names."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from adlmh_jax.engine.config import RunConfig
from adlmh_jax.graph.layout import Layout, make_layout
from adlmh_jax.model import Program
from adlmh_jax.model.sites import element_names
from adlmh_jax.proposals.plan import SitePlan
from adlmh_jax.results.result import Result, ScheduleReport
from adlmh_jax.engine.runner import RunState, to_host
from adlmh_jax.schedules.base import UcbState
from adlmh_jax.statistics.streaming import Summary, summarise
from adlmh_jax.engine.superchain import Code, Kept, SuperchainState
from adlmh_jax.statistics.tally import tally_total


def sources(program: Program, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tell kept names that are outputs from those that are only latent sites."""
    from_outputs = [name for name in names if name in program.output_layout.names]
    return from_outputs, [name for name in names if name not in from_outputs]


def make_result(
    program: Program,
    config: RunConfig,
    code: Code,
    plans: Mapping[str, SitePlan],
    names: list[str],
    parts: list[Kept],
    state: RunState,
    seed: int,
    seconds: float,
) -> Result:
    """Put together what a run leaves behind."""
    num_superchains = config.superchains
    kept: Any = jax.tree.map(lambda *p: np.concatenate(p, axis=1)[:num_superchains], *parts)
    from_outputs, from_position = sources(program, names)
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
        seed=seed,
        seconds=seconds,
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
