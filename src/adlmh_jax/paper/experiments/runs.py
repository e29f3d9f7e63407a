"""One stretch of an experiment: run it, reduce its draws, keep the result on disk."""

import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from adlmh_jax.many import sample_many
from adlmh_jax.paper import log_checkpoints, running_curve
from adlmh_jax.paper.experiments.budget import Budget
from adlmh_jax.paper.experiments.cases import Case, Method
from adlmh_jax.paper.zoo import Problem
from adlmh_jax.results import (
    ConvergenceWarning,
    Result,
    ScheduleReport,
    autocovariance,
    effective_size,
)
from adlmh_jax.sampling import sample
from adlmh_jax.store import Arrays, load_arrays, load_json, save_arrays, save_json

WINDOW = (10_000, 500)  # burn-in and consecutive draws of the Kalman figure (section 5)
LAGS = (1, 10, 100, 1_000, 10_000)
CURVE_BATCH = 8  # chains whose distances are computed at once: bounds the memory


@dataclass(frozen=True)
class Stretch:
    """A run of one method on one case, whose result is one file.

    Attributes
    ----------
    case, method
        What to run.
    part
        Name of the stretch among those of the case and the method.
    superchains
        Independent restarts.
    steps
        Steps of each chain, of which the last `kept` are recorded.
    measures
        What to keep of the draws; see `MEASURES`.
    batch
        Distinguishes stretches that differ only in their random numbers.
    """

    case: Case
    method: Method
    part: str
    superchains: int
    steps: int
    kept: int
    measures: tuple[str, ...]
    batch: int = 0

    @property
    def num_chain_steps(self) -> int:
        """Steps of all chains together."""
        return self.superchains * self.method.chains * self.steps

    def settings(self, seed: int) -> dict[str, Any]:
        """Return everything that the result depends on."""
        return {
            "case": self.case.name,
            "schedule": self.method.schedule.name,
            "chains": self.method.chains,
            "epoch": self.method.epoch,
            "options": dict(self.method.options),
            "superchains": self.superchains,
            "steps": self.steps,
            "kept": self.kept,
            "measures": list(self.measures),
            "batch": self.batch,
            "seed": seed,
        }


@dataclass(frozen=True)
class Lab:
    """Where results are kept, and how runs are made and announced.

    Attributes
    ----------
    directory
        Of the results.
    budget
        How much to run.
    say
        Called with a line before each run.
    progress
        Show a progress bar during each run.
    used
        Files of the stretches that were asked for.
    """

    directory: Path
    budget: Budget
    say: Callable[[str], None] = print
    progress: bool = True
    used: dict[Path, None] = field(default_factory=dict)

    def result(self, stretch: Stretch) -> Arrays:
        """Return the result of a stretch: from its file if that is complete, else by running."""
        path = self._path(stretch)
        self.used[path] = None
        settings = stretch.settings(self.budget.seed)
        arrays = load_arrays(path, settings)
        if arrays is None:
            self.say(
                f"{stretch.case.name}: {stretch.method.label}, {stretch.part}, "
                f"{stretch.superchains} x {stretch.method.chains} chains x {stretch.steps:,} steps"
            )
            started = time.perf_counter()
            arrays, sampling = run_stretch(stretch, self.budget.seed, self.progress)
            seconds = {"sampling": sampling, "all": time.perf_counter() - started}
            # Apart from the result: times are the only thing that a second run does not repeat.
            save_json(path.with_suffix(".seconds.json"), seconds)
            save_arrays(path, settings, arrays)
        return arrays

    def sampling_seconds(self, stretch: Stretch) -> float:
        """Return how long the sampling of a stretch took when it was run."""
        return load_json(self._path(stretch).with_suffix(".seconds.json"))["sampling"]

    def total_seconds(self, case_name: str) -> float:
        """Return how long the runs of a case took, with what was computed from their draws."""
        files = [path for path in self.used if path.parent.name == case_name]
        return sum(load_json(path.with_suffix(".seconds.json"))["all"] for path in files)

    def _path(self, stretch: Stretch) -> Path:
        name = f"{stretch.method.name}-{stretch.part}-{stretch.batch}.npz"
        return self.directory / "runs" / stretch.case.name / name


def run_stretch(stretch: Stretch, seed: int, progress: bool) -> tuple[Arrays, float]:
    """Run a stretch; return what is kept of its draws, and how many seconds the sampling took.

    The first axis of what varies is the restart.
    """
    restarts = stretch.superchains
    problems = stretch.case.problems(restarts, _words(seed, "splits", stretch.batch))
    names = (stretch.case.name, stretch.method.name, stretch.batch)
    keys = [(_words(seed, *names, number) << 32) | seed for number in range(len(problems))]
    results = _sample(problems, keys, stretch, restarts // len(problems), progress)
    parts: list[Arrays] = []
    for problem, result in zip(problems, results, strict=True):
        parts.append({})
        for name in stretch.measures:
            parts[-1] |= MEASURES[name](problem, stretch, result)
    arrays = {
        name: array if name in CONSTANTS else np.concatenate([part[name] for part in parts])
        for name, array in parts[0].items()
    }
    return arrays, result.seconds or 0.0  # of all problems together


def _words(*names: Any) -> int:
    """Return a 32-bit number that follows from names and numbers."""
    return zlib.crc32("/".join(map(str, names)).encode())


def _sample(
    problems: Sequence[Problem],
    keys: Sequence[int],
    stretch: Stretch,
    superchains: int,
    progress: bool,
) -> Iterable[Result]:
    """Run the problem of a stretch, or all of them at once; adapt throughout as the paper does."""
    method, first = stretch.method, problems[0]
    settings = {
        "outputs": first.outputs,
        "schedule": method.schedule,
        "num_chains": superchains * method.chains,
        "num_superchains": superchains,
        "num_warmup": stretch.steps - stretch.kept,
        "num_samples": stretch.kept,
        "thinning": 1,
        "epoch": method.epoch,
        "adapt": "always",
        "progress": progress,
        **method.options,
    }
    with warnings.catch_warnings():
        # How far the runs are from convergence is what the study measures.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if len(problems) == 1:
            return [sample(keys[0], first.model, first.args, first.kwargs, **settings)]
        datasets = [(problem.args, problem.kwargs) for problem in problems]
        return sample_many(keys, first.model, datasets, **settings)


def _output_draws(problem: Problem, result: Result) -> np.ndarray:
    """Return the draws of the outputs, ``[chain, draw, output]``."""
    return np.stack([result.draws[name] for name in problem.outputs], axis=-1)


def _measure_curve(problem: Problem, stretch: Stretch, result: Result) -> Arrays:
    """Distance to the truth after each number of steps, ``[superchain, chain, checkpoint]``."""
    draws = _output_draws(problem, result)
    checkpoints = log_checkpoints(stretch.kept)
    distance = problem.distance_function()
    batches = (draws[i : i + CURVE_BATCH] for i in range(0, len(draws), CURVE_BATCH))
    steps = checkpoints.tolist()
    curves = np.concatenate([running_curve(batch, steps, distance) for batch in batches])
    shape = (-1, stretch.method.chains, len(checkpoints))
    return {"curves": curves.reshape(shape), "checkpoints": checkpoints}


def _measure_schedule(problem: Problem, stretch: Stretch, result: Result) -> Arrays:
    """Return the schedule at the end of the run, ``[superchain, component]``."""
    del problem, stretch
    report = result.schedule
    learned = {"rewards": report.rewards, "counts": report.counts}
    return {
        "names": np.array(report.names),
        "weights": report.weights,
        **{name: array for name, array in learned.items() if array is not None},
        "selected": report.selected,
        "accepted": report.accepted,
        "invalid": report.invalid,
    }


def _measure_window(problem: Problem, stretch: Stretch, result: Result) -> Arrays:
    """Return draws of the first chain after a burn-in, ``[1, draw, output]``.

    They are consecutive steps, and steps that are a sweep apart.
    """
    del stretch
    burn_in, length = WINDOW
    draws = _output_draws(problem, result)[:1]
    first = min(burn_in, draws.shape[1] // 2)
    sweep = min(result.program.num_components, max(1, (draws.shape[1] - first) // length))
    after = draws[:, first:]
    return {"window": after[:, :length], "sweeps": after[:, ::sweep][:, :length]}


def _measure_mixing(problem: Problem, stretch: Stretch, result: Result) -> Arrays:
    """Autocorrelations and effective size of the second half of each chain.

    Of the autocorrelations ``[chain, lag, output]`` those beyond the chain's length are NaN.
    """
    del stretch
    draws = _output_draws(problem, result)
    draws = draws[:, draws.shape[1] // 2 :]
    sizes = np.array(
        [[effective_size(output[None]) for output in chain.T] for chain in draws], float
    )
    correlations = np.full((len(draws), len(LAGS), draws.shape[-1]), np.nan)
    for number, chain in enumerate(draws):
        for output in range(draws.shape[-1]):
            covariance = autocovariance(chain[None, :, output])
            fitting = [lag for lag in LAGS if lag < len(covariance)]
            if covariance[0] > 0:
                correlations[number, : len(fitting), output] = covariance[fitting] / covariance[0]
    return {"autocorrelation": correlations, "effective_size": sizes}


MEASURES: dict[str, Callable[[Problem, Stretch, Result], Arrays]] = {
    "curve": _measure_curve,
    "schedule": _measure_schedule,
    "window": _measure_window,
    "mixing": _measure_mixing,
}
CONSTANTS = frozenset({"checkpoints", "names"})


def schedule_report(arrays: Arrays) -> ScheduleReport:
    """Return the schedule that a stretch kept, as a run reports it."""
    return ScheduleReport(
        names=arrays["names"].tolist(),
        weights=arrays["weights"],
        learned={name: arrays[name] for name in ("rewards", "counts") if name in arrays},
        selected=arrays["selected"],
        accepted=arrays["accepted"],
        invalid=arrays["invalid"],
    )
