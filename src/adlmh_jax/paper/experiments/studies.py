"""The experiments of section 5: which stretches each needs, and the numbers they give."""

import dataclasses
import math
from typing import Any

import numpy as np

from adlmh_jax.paper import quartiles, zoo
from adlmh_jax.paper.experiments.cases import ADLMH, LMH, PAPER_METHODS, Case, Method
from adlmh_jax.paper.experiments.claim import Curves, sample_ratio, verdict
from adlmh_jax.paper.experiments.runs import LAGS, Lab, Stretch, schedule_report
from adlmh_jax.results import ScheduleReport, unit_rewards
from adlmh_jax.schedules import ucb
from adlmh_jax.store import Arrays

MAX_DRAWS = 26_000_000  # of the chains of one stretch: they are in memory at once
MIN_SUPERCHAINS = 16  # a bootstrap over fewer says little
SETTLED = 1_000  # steps from which on bands are compared
LEMMA_STEPS = (1_000, 3_000, 10_000, 30_000, 100_000)
LEMMA = Case(
    "lemma",
    "Equilibrium of Lemma 1",
    zoo.lemma,
    "a choice without influence is selected at most a third as often as one that always matters",
    error="",
    targets=(),
    claim_steps=1,
)
GREEDY = Method("adlmh-c-0", "AdLMH, C = 0", ucb(0.0))


def as_in_paper(lab: Lab, method: Method) -> Method:
    """Return the method with the epoch of the paper's figures; LMH has no use for one."""
    return method if method is LMH else dataclasses.replace(method, epoch=lab.budget.epoch)


def paper_stretch(lab: Lab, case: Case, method: Method) -> Stretch:
    """Return the run behind the paper's figure."""
    factor = case.splits or 1
    steps = max(1, lab.budget.steps // factor)
    measures = ("curve", "schedule") + (("window", "mixing") if case.has_window else ())
    restarts = lab.budget.restarts * factor
    return Stretch(case, as_in_paper(lab, method), "paper", restarts, steps, steps, measures)


def schedule_at(lab: Lab, case: Case, method: Method, steps: int, kept: int) -> Arrays:
    """Return the schedule after fewer steps of the paper's run, by running these alone.

    Random numbers are addressed by superchain and epoch: a short run is the start of a long one.
    """
    method = as_in_paper(lab, method)
    part = f"schedule-{steps}"
    stretch = Stretch(case, method, part, lab.budget.restarts, steps, kept, ("schedule",))
    return lab.result(stretch)


def bar_reports(lab: Lab, case: Case) -> dict[int, ScheduleReport]:
    """Return AdLMH's schedules at the numbers of steps that the paper shows."""
    steps = lab.budget.bars()
    final = lab.budget.steps
    arrays = {n: schedule_at(lab, case, ADLMH, n, min(steps)) for n in steps if n != final}
    if final in steps:
        arrays[final] = lab.result(paper_stretch(lab, case, ADLMH))
    return {n: schedule_report(arrays[n]) for n in steps}


def claim_stretches(lab: Lab, case: Case, method: Method) -> list[Stretch]:
    """Return the runs behind the measured ratios, in batches of equal size.

    There are two at least: the second finds its code compiled, and tells the speed.
    """
    steps = max(1, round(case.claim_steps * lab.budget.claim_scale))
    total = lab.budget.claim_restarts
    if method.chains > 1:
        total = max(MIN_SUPERCHAINS, math.ceil(total / method.chains))
    each = max(1, min(math.ceil(total / 2), MAX_DRAWS // (method.chains * steps)))
    numbers = range(math.ceil(total / each))
    return [
        Stretch(case, method, "claim", each, steps, steps, ("curve",), batch=n) for n in numbers
    ]


def claim_curves(lab: Lab, case: Case, method: Method) -> tuple[np.ndarray, np.ndarray]:
    """Return curves ``[superchain, chain, checkpoint]`` and checkpoints behind the ratios."""
    if not lab.budget.claim_restarts:
        arrays = lab.result(paper_stretch(lab, case, method))
        return arrays["curves"], arrays["checkpoints"]
    parts = [lab.result(stretch) for stretch in claim_stretches(lab, case, method)]
    return np.concatenate([part["curves"] for part in parts]), parts[0]["checkpoints"]


def claim_rate(lab: Lab, case: Case, method: Method) -> float:
    """Return steps of all chains per second."""
    if not lab.budget.claim_restarts:
        stretches = [paper_stretch(lab, case, method)]
    else:
        stretches = claim_stretches(lab, case, method)
    return max(stretch.num_chain_steps / lab.sampling_seconds(stretch) for stretch in stretches)


def study_claim(lab: Lab, case: Case) -> dict[str, Any]:
    """Compare every method with LMH at the case's error targets."""
    methods = [*PAPER_METHODS, *(case.methods() if lab.budget.claim_restarts else ())]
    rows: list[dict[str, Any]] = []
    reference: Curves | None = None
    for method in methods:
        curves, checkpoints = claim_curves(lab, case, method)
        # The same seed for all: restarts that share a split are drawn together.
        summary = Curves.of(curves, checkpoints, lab.budget.seed)
        reference = reference or summary
        rate = claim_rate(lab, case, method)
        speed = rate / rows[0]["steps_per_second"] if rows else 1.0
        rows.append(
            {
                "method": method.name,
                "label": method.label,
                "superchains": len(curves),
                "chains": method.chains,
                "steps": int(checkpoints[-1]),
                "steps_per_second": rate,
                "ratios": [_ratio(reference, summary, target, speed) for target in case.targets],
            }
        )
    return {"error": case.error, "targets": list(case.targets), "rows": rows}


def _ratio(reference: Curves, method: Curves, target: float, speed: float) -> dict[str, Any] | None:
    ratio = sample_ratio(reference, method, target)
    if ratio is None:
        return None
    return {
        "target": target,
        "value": finite(ratio.value),
        "low": finite(ratio.low),
        "high": finite(ratio.high),
        "per_second": finite(ratio.value * speed),
        "verdict": verdict(ratio),
    }


def finite(number: float) -> float | None:
    """Return a number that JSON can hold; None stands for one without bound."""
    return float(number) if np.isfinite(number) else None


def study_curves(lab: Lab, case: Case) -> dict[str, Any]:
    """Return medians and quartiles of both methods, and how their bands lie."""
    bands = {}
    for method in PAPER_METHODS:
        arrays = lab.result(paper_stretch(lab, case, method))
        curves = arrays["curves"].reshape(-1, len(arrays["checkpoints"]))
        bands[method.name] = quartiles(curves)
    steps = arrays["checkpoints"]
    settled = steps >= min(SETTLED, steps[-1])
    below = bands["adlmh"][2] < bands["lmh"][1]
    return {
        "restarts": len(curves),
        "steps": int(steps[-1]),
        "checkpoints": steps.tolist(),
        "bands": {name: band.tolist() for name, band in bands.items()},
        "share_of_checkpoints_with_band_below": float(np.mean(below[settled])),
    }


def study_bars(lab: Lab, case: Case) -> list[dict[str, Any]]:
    """Return AdLMH's schedules at the numbers of steps that the paper shows."""
    bars = []
    for steps, report in bar_reports(lab, case).items():
        selected = report.selected.sum(axis=0)
        rewards = unit_rewards(report)
        assert rewards is not None  # AdLMH learns
        order = np.argsort(-selected, kind="stable")
        bars.append(
            {
                "steps": steps,
                "names": list(report.names),
                "unit_rewards": rewards.tolist(),
                "selected": (selected / selected.sum()).tolist(),
                "acceptance_rate": (report.accepted.sum(axis=0) / np.maximum(1, selected)).tolist(),
                "most_selected": [report.names[i] for i in order[:3]],
            }
        )
    return bars


def study_mixing(lab: Lab, case: Case) -> dict[str, Any]:
    """Return autocorrelations and effective sizes of each output, medians over restarts."""
    outputs = case.problems(1, 0)[0].outputs
    methods = {}
    for method in PAPER_METHODS:
        stretch = paper_stretch(lab, case, method)
        arrays = lab.result(stretch)
        correlations = np.median(arrays["autocorrelation"], axis=0)
        # Of the second half of each chain.
        per_thousand = np.median(arrays["effective_size"], axis=0) * 2_000 / stretch.steps
        methods[method.name] = {
            output: {
                "autocorrelation": [finite(value) for value in correlations[:, number]],
                "effective_draws_per_1000_steps": float(per_thousand[number]),
            }
            for number, output in enumerate(outputs)
        }
    return {"lags": list(LAGS), "methods": methods}


def study_lemma(lab: Lab) -> dict[str, Any]:
    """Return the ratio of the two selection probabilities, and what Lemma 1 says of it."""
    steps = [n for n in LEMMA_STEPS if n <= lab.budget.steps] or [lab.budget.steps]
    rows = []
    for method in (ADLMH, GREEDY):
        arrays = [schedule_at(lab, LEMMA, method, n, steps[0]) for n in steps]
        ratios = np.stack([part["weights"][:, 1] / part["weights"][:, 0] for part in arrays], -1)
        rows.append({"label": method.label, "ratios": ratios.tolist()})
    return {"theory": zoo.lemma_equilibrium(), "steps": steps, "rows": rows}
