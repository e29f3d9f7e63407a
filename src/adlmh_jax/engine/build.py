"""`build_engine`: the one assembly of a compiled model, its proposals and a schedule."""

from collections.abc import Collection
from typing import Any, NamedTuple

import jax
import numpy as np

from adlmh_jax.engine.config import default_epoch
from adlmh_jax.engine.costs import estimate_costs
from adlmh_jax.engine.inputs import first_of
from adlmh_jax.engine.rounds import Keep, plan_rounds
from adlmh_jax.engine.superchain import EngineSpec
from adlmh_jax.model import Program
from adlmh_jax.moves import KernelData, build_kernel, name_entries
from adlmh_jax.proposals import Chosen, Plan, plan_sites
from adlmh_jax.schedules import Schedule, restrict, rule_of


class Engine(NamedTuple):
    """A compiled model, ready to run.

    Attributes
    ----------
    program
        The compiled model.
    moves
        How the sites are moved.
    schedule
        How entries are selected.
    spec, data
        What is compiled, and its arrays.
    entry_names
        Names of what the schedule selects from, ``[M]``.
    """

    program: Program
    moves: Plan
    schedule: Schedule
    spec: EngineSpec
    data: KernelData
    entry_names: tuple[str, ...]

    def init_schedule(self, num_chains: int) -> Any:
        """Return what the schedule of a superchain knows at the start."""
        return self.schedule.init(self.spec.sizes(num_chains))


def build_engine(
    program: Program,
    *,
    schedule: Schedule,
    proposals: Chosen = "auto",
    blocks: str = "auto",
    thinning: int | None = None,
    epoch: int | None = None,
    keep: Keep | None = None,
    held: Collection[str] = (),
    has_one_draw: bool = False,
) -> Engine:
    """Put together what a run needs.

    Parameters
    ----------
    program
        From `compile_model`.
    schedule, proposals, blocks
        As for `sample`.
    thinning
        Steps of a draw. Default: a sweep's worth, in which each entry that moves is selected once
        or more often, on average.
    epoch
        Steps between updates of the weights. Default: see `default_epoch`.
    keep
        What to record of a draw; default: the log density alone.
    held
        Sites that are never moved.
    has_one_draw
        Whether a round must be a single draw, though more would fit in an epoch.
    """
    check_schedule(schedule)
    moves = plan_sites(program, proposals, blocks, held)
    kernel, data = build_kernel(program, moves)
    if schedule.watch:
        chain = jax.eval_shape(lambda: program.empty_chains(1))
        data = data._replace(costs=estimate_costs(kernel, first_of(data), chain))
    names = name_entries(program, moves)
    moved = tuple(number for number, (site, _) in enumerate(names) if site not in held)
    spec = EngineSpec(
        kernel=kernel,
        schedule=restrict(rule_of(schedule), moved, kernel.num_entries),
        plan=plan_rounds(
            thinning or _sweep(kernel.base_weights[list(moved)]),
            epoch or default_epoch(kernel.num_entries),
            has_one_draw,
        ),
        keep=Keep() if keep is None else keep,
        outputs=program.output_layout.rows(),
        likelihood=program.term_layout.rows(
            name for name in program.term_layout.names if name not in program.sites.names
        ),
    )
    return Engine(
        program=program,
        moves=moves,
        schedule=restrict(schedule, moved, kernel.num_entries),
        spec=spec,
        data=data,
        entry_names=tuple(name for _, name in names),
    )


def _sweep(base: np.ndarray) -> int:
    """Return the number of steps in which every entry is selected at least once on average."""
    return round(float(np.sum(base) / np.min(base))) if base.size else 1


def check_schedule(schedule: Any) -> None:
    """Refuse what is no schedule."""
    if isinstance(schedule, Schedule):
        return
    if callable(schedule):
        name = getattr(schedule, "__name__", "ucb")
        raise TypeError(f"`schedule` is a function: write `{name}()`, with brackets.")
    raise TypeError(
        "`schedule` must be what `influence()`, `ucb()` or `uniform()` returns, got "
        f"{schedule!r} of type {type(schedule).__name__}."
    )
