"""Classics sampled at all defaults, and their draws beside the exact answers."""

import os
import time
import warnings

import numpy as np

import adlmh_jax as adlmh
from benchmarks.classics import CLASSICS

SEEDS = (0, 1)  # the first run compiles
MAX_Z, MAX_SD_ERROR = 4.0, 0.05  # beyond these an answer is wrong


def measure_classic(name):
    """Sample a classic twice and return the figures of both runs."""
    classic = CLASSICS[name]
    truth = classic.truth()
    runs = [run_once(classic, truth, seed) for seed in SEEDS]
    record = {"classic": name, **summarise(runs), "runs": runs}
    if name == "paper_hmm":
        record["lmh"] = run_once(
            classic, truth, SEEDS[1],
            schedule=adlmh.uniform(), proposals="prior", blocks="never",
        )  # fmt: skip
    return record


def run_once(classic, truth, seed, **settings):
    """Sample with a seed and compare the outputs with the truth."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adlmh.ConvergenceWarning)  # the table has the verdict
        result = adlmh.sample(
            seed, classic.model, classic.args,
            outputs=list(classic.outputs), progress=False, **settings,
        )  # fmt: skip
    seconds = time.perf_counter() - started
    summary, diagnosis = result.summary(), result.diagnose()
    verdicts = {output.name: str(output.verdict) for output in diagnosis.outputs}
    outputs = {
        output: {**compare(summary.loc[output], moments), "verdict": verdicts[output]}
        for output, moments in truth.items()
        if output in summary.index
    }
    least = min(output["ess"] for output in outputs.values())
    # A draw is a sweep's worth of steps: one for each entry of the schedule.
    num_draws, steps_per_draw = result.num_draws * len(result.superchain_of), _count(result)
    return {
        "seconds": seconds,
        "seconds_sampling": result.seconds,
        "ess": least,
        "ess_per_1000_draws": 1000 * least / num_draws,
        "ess_per_1000_steps": 1000 * least / (num_draws * steps_per_draw),
        "ess_per_second": least / result.seconds,
        "steps_per_draw": steps_per_draw,
        "z": max(output["z"] for output in outputs.values()),
        "sd_ratio": _worst_ratio(output["sd_ratio"] for output in outputs.values()),
        "verdict": str(diagnosis.verdict),
        "headline": diagnosis.headline,
        "reasons": sorted({f.reason for output in diagnosis.outputs for f in output.findings}),
        "load": os.getloadavg()[0],  # of others too: it says what the seconds are worth
        "wrong": [output for output, figures in outputs.items() if figures["is_wrong"]],
        "wrong_and_converged": [
            output
            for output, figures in outputs.items()
            if figures["is_wrong"] and figures["verdict"] == "converged"
        ],
        "outputs": outputs,
    }


def compare(row, truth):
    """Return how far the mean and sd of an output are from the truth."""
    z = _ratio(abs(row["mean"] - truth.mean), row["mcse_mean"])
    sd_ratio = float(row["sd"] / truth.sd)
    ess = float(np.nan_to_num(row["ess_bulk"]))
    return {"z": z, "sd_ratio": sd_ratio, "ess": ess, **judge(z, sd_ratio, ess, truth.kurtosis)}


def judge(z, sd_ratio, ess, kurtosis, max_sd_error=MAX_SD_ERROR):
    """Return whether an answer is wrong.

    The sd of few effective draws may be off by more than the limit, and yet not wrong. Its
    standard error is that of independent draws from the truth: the one that the draws suggest is
    large where a single chain of 256 is lost, which is what must be seen.
    """
    sd_z = _ratio(abs(sd_ratio - 1), 0.5 * np.sqrt((kurtosis - 1) / ess) if ess > 0 else 0.0)
    is_sd_wrong = abs(sd_ratio - 1) > max_sd_error and sd_z > MAX_Z
    return {"sd_z": sd_z, "is_wrong": bool(z > MAX_Z or is_sd_wrong)}


def _ratio(difference, error):
    """Divide; an output that never moved has no error, and is infinitely wrong."""
    if difference == 0:
        return 0.0
    return float(difference / error) if error > 0 else float("inf")


def _worst_ratio(ratios):
    """Return the ratio that is farthest from 1; one of 0 is."""
    return max(ratios, key=lambda ratio: abs(np.log(max(ratio, 1e-9))))


def _count(result):
    return len(result.schedule.names)


def summarise(runs):
    """Return what both runs of a classic say together: the worse answer, the second's time."""
    first, second = runs
    verdicts = list(dict.fromkeys(run["verdict"] for run in runs))
    return {
        "z": max(run["z"] for run in runs),
        "sd_ratio": _worst_ratio(run["sd_ratio"] for run in runs),
        "ess": min(run["ess"] for run in runs),
        "ess_per_1000_draws": min(run["ess_per_1000_draws"] for run in runs),
        "ess_per_1000_steps": min(run["ess_per_1000_steps"] for run in runs),
        "ess_per_second": min(run["ess"] for run in runs) / second["seconds_sampling"],
        "seconds_first": first["seconds"],
        "seconds_again": second["seconds"],
        "verdict": " / ".join(verdicts),
        "wrong": sorted({output for run in runs for output in run["wrong"]}),
        "wrong_and_converged": sorted(
            {output for run in runs for output in run["wrong_and_converged"]}
        ),
    }
