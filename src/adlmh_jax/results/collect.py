"""From the end of a run to a `Result`."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from adlmh_jax.engine import Done, Draws, Engine, RunConfig, SuperchainState, to_host
from adlmh_jax.model import Program, element_names
from adlmh_jax.results.evidence import estimate_evidence
from adlmh_jax.results.precision import find_imprecise, warn_if_imprecise
from adlmh_jax.results.result import Result
from adlmh_jax.results.schedule import ScheduleReport
from adlmh_jax.schedules import Schedule
from adlmh_jax.statistics import summarise, tally_total
from adlmh_jax.types import Array
from adlmh_jax.warning import warn_user


def collect(
    engine: Engine, names: Sequence[str], seed: int, config: RunConfig, done: Done, seconds: float
) -> Result:
    """Put together what a run leaves behind, and warn of what is wrong; its parts are used up."""
    result = gather(engine, names, seed, config, done, seconds)
    report = result.schedule
    warn_if_invalid(report.invalid.sum(axis=0), report.names)
    warn_if_imprecise(dict(result.imprecise))
    return result


def gather(
    engine: Engine, names: Sequence[str], seed: int, config: RunConfig, done: Done, seconds: float
) -> Result:
    """Put together what a run leaves behind; its parts are used up."""
    num_superchains = len(config.numbers)
    superchains = jax.tree.map(lambda leaf: leaf[:num_superchains], to_host(done.state.superchains))
    report = _report(engine, superchains)
    recorded = join_draws(done.parts, names)
    return Result(
        draws=recorded.values,
        log_density=recorded.log_density,
        schedule=report,
        superchain_of=np.repeat(np.array(config.numbers), config.chains_each),
        config=config,
        program=engine.program,
        state=done.state,
        statistics=summarise(superchains.statistics),
        proposals=engine.moves.describe(),
        seed=seed,
        seconds=seconds,
        log_evidence=estimate_evidence(superchains.annealing.log_evidence),
        imprecise=find_imprecise(engine.program, superchains.chains),
    )


def join_draws(parts: Sequence[Draws], names: Sequence[str]) -> Draws:
    """Return all draws, taken out of the parts one by one, so that none is in memory twice."""
    log_density = np.concatenate([part.log_density for part in parts], axis=1)
    values = {n: np.concatenate([part.values.pop(n) for part in parts], axis=1) for n in names}
    return Draws(values, log_density)


def _report(engine: Engine, superchains: SuperchainState) -> ScheduleReport:
    schedule, learned = engine.spec.schedule, superchains.schedule
    selected, accepted, invalid = map(tally_total, superchains.entry_tallies)
    of_components = list(map(tally_total, superchains.tallies))
    weights, reported, race = _read_schedule(schedule, learned)
    stuck, settled = _find_still(engine.program, superchains, of_components[1].sum(axis=0))
    return ScheduleReport(
        names=list(engine.entry_names),
        weights=np.asarray(weights),
        learned={name: np.asarray(array) for name, array in reported.items()},
        race={name: np.asarray(array) for name, array in race.items()},
        selected=selected,
        accepted=accepted,
        invalid=invalid,
        rule=engine.schedule.name,
        component_names=engine.program.sites.component_names,
        component_selected=of_components[0],
        component_accepted=of_components[1],
        component_invalid=of_components[2],
        stuck=stuck,
        settled=settled,
        drawn_exactly=engine.moves.drawn_exactly,
        output_names=_name_outputs(engine.program),
    )


def _name_outputs(program: Program) -> list[str]:
    layout = program.output_layout
    return [scalar for n in layout.names for scalar in element_names(n, layout[n].shape)]


@functools.partial(jax.jit, static_argnums=0)
def _read_schedule(
    schedule: Schedule, learned: Any
) -> tuple[Array, dict[str, Array], dict[str, Array]]:
    """Return the weights of all superchains, and what their schedules report."""
    race = jax.vmap(schedule.watch.report)(learned) if schedule.watch else {}
    return jax.vmap(schedule.weights)(learned), jax.vmap(schedule.report)(learned), race


def _find_still(
    program: Program, superchains: SuperchainState, accepted: np.ndarray
) -> tuple[list[str], list[str]]:
    """Name the components that stayed where they were in some chains while draws were recorded.

    First those that such chains hold at different values. Then discrete ones that most chains hold,
    all at one value, and came to from others: ``accepted``, ``[N]``, counts warm-up too.
    """
    has_moved = np.concatenate(superchains.has_moved, axis=-1)  # [N, chain]
    banks = {
        bank: np.concatenate(rows, axis=-1) for bank, rows in superchains.chains.latent.items()
    }
    names = np.array(program.sites.component_names)
    stuck, settled = [], []
    for site in program.sites.sites:
        slot, first = program.latent_layout[site.name], program.sites.first_components[site.name]
        rows = banks[slot.bank][slot.offset : slot.offset + slot.size]
        values = rows.reshape(site.num_components, site.event_size, rows.shape[-1])
        for number in np.flatnonzero(~has_moved[first : first + site.num_components].all(axis=1)):
            is_still = ~has_moved[first + number]
            still = values[number][:, is_still]
            if np.any(still != still[:, :1]):
                stuck.append(str(names[first + number]))
            elif site.is_discrete and 2 * is_still.sum() > is_still.size:
                settled += [str(names[first + number])] * bool(accepted[first + number])
    return stuck, settled


def warn_if_invalid(invalid: np.ndarray, names: Sequence[str], where: str = "") -> None:
    """Warn of proposals without a density, if there were any, given their number by entry."""
    if invalid.any():
        worst = int(np.argmax(invalid))
        warn_user(
            f"{invalid.sum()} proposals{where} had a log density of NaN or +inf and were rejected, "
            f"most of them ({invalid[worst]}) at `{names[worst]}`. The draws are right only if "
            "such values are impossible: look for 0/0 and overflow in what depends on them, and "
            "see `result.schedule.invalid`."
        )
