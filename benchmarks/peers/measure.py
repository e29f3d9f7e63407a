"""A cell of the table: a sampler on a model, and its draws beside the truth."""

import json
import math
import os
import signal
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.classics.measure import judge
from benchmarks.peers.cases import CASES
from benchmarks.peers.environment import PYTHON, variables

MAX_Z, MAX_SD_ERROR = 4.0, 0.10  # beyond these an answer is wrong
FEW = 50  # effective draws below which an answer has not converged, nor is its error known
WANTED = 400  # effective draws that a user waits for


def measure_cell(model, peer, limit, patience):
    """Run a sampler in a process of its own and return the record of the cell."""
    case = CASES[model]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        data = {name: np.asarray(value).tolist() for name, value in case.data.items()}
        (path / "data.json").write_text(json.dumps(data))
        ended = _run(peer, model, path, limit, patience)
        if ended is not None:
            return {"verdict": ended}
        run = json.loads((path / "run.json").read_text())
        if "refused" in run:
            said = _shorten(run["refused"])
            return {"verdict": "not installed" if "not installed" in said else "refused",
                    "message": said.removeprefix("not installed: ")}  # fmt: skip
        with np.load(path / "draws.npz") as file:
            draws = dict(file)
    return {**_figures(run), **_answer(run, draws, case), "source": case.source}


def _run(peer, model, folder, limit, patience):
    """Run the process; return what to say if it did not end by itself."""
    command = [PYTHON, "-m", "benchmarks.peers.cell", peer, model, folder, str(limit)]
    with (folder / "errors").open("w") as errors:
        # The clock starts before the interpreter does.
        process = subprocess.Popen(
            [*map(str, command), str(time.monotonic())], env=variables(),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            return f"killed after {patience:g} s"
        finally:
            # What it has started goes with it.
            with_group = process.poll() is None
            if with_group:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if not (folder / "run.json").exists():
        last = (folder / "errors").read_text().strip().splitlines()[-1:]
        return f"ended with code {process.returncode}: {_shorten(' '.join(last))}"
    return None


def _shorten(text, most=160):
    text = " ".join(text.split()).replace("|", "/")
    return text if len(text) <= most else text[: most - 1] + "…"


def _figures(run):
    """Return the times of a run and its updates per second."""
    seconds = run["warmup"] + run["sampling"]
    names = ("startup", "warmup", "sampling", "total", "settings")
    updates = run["updates"] and run["updates"] / seconds
    return {**{name: run[name] for name in names}, "updates_per_second": updates}


def _answer(run, draws, case):
    """Compare all outputs with the truth."""
    if not draws:
        return {"verdict": "updates only"}
    truth = case.classic.truth()
    scalars = {name: value for name, value in _scalars(draws) if name in truth}
    outputs = {
        name: compare(value, truth[name], case.errors.get(name, 0.0))
        for name, value in scalars.items()
    }
    wrong = [name for name, output in outputs.items() if output["is_wrong"]]
    least = min(output["ess"] for output in outputs.values())
    seconds = run["warmup"] + run["sampling"]
    error = math.sqrt(np.mean([output["error"] ** 2 for output in outputs.values()]))
    verdict = f"wrong ({', '.join(wrong[:3])})" if wrong else "right"
    return {
        "verdict": "not converged" if least < FEW else verdict,
        "ess": least,
        "ess_per_second": least / seconds,
        "ess_per_second_all": least / (run["startup"] + seconds),
        "seconds_to_wanted": seconds_to_wanted(run, least),
        "error": error,
        "error_in_a_second": error * math.sqrt(seconds),
        "z": max(output["z"] for output in outputs.values()),
        "sd_ratio": max((o["sd_ratio"] for o in outputs.values()), key=lambda r: abs(r - 1)),
        "outputs": outputs,
    }


def seconds_to_wanted(run, ess):
    """Return the seconds from a cold start to `WANTED` effective draws.

    Draws count as they come, even where they would be seen only at the end of the run; those of
    ``is_whole`` runs (ours) count when the call returns.
    """
    if ess <= 0:
        return None
    share = WANTED / ess
    if run["is_whole"]:
        share = max(1.0, share)
    return run["startup"] + run["warmup"] + run["sampling"] * share


def _scalars(draws):
    """Yield names and draws ``[chain, draw]`` of all scalars."""
    for name, value in draws.items():
        for index in np.ndindex(value.shape[2:]):
            label = f"[{', '.join(map(str, index))}]" if index else ""
            yield name + label, np.asarray(value[(..., *index)], float)


def compare(draws, truth, error_of_truth):
    """Return effective draws of a scalar and how far its mean and sd are from the truth."""
    import arviz

    mean, sd = draws.mean(), draws.std()
    ess, mcse = 0.0, 0.0
    if sd > 0 and draws.shape[1] >= 4:  # constants would count as perfect draws
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ess, ess_mean = (float(arviz.ess(draws, method=how)) for how in ("bulk", "mean"))
        mcse = math.hypot(sd / math.sqrt(ess_mean), error_of_truth)
    ess = ess if math.isfinite(ess) else 0.0
    z = abs(mean - truth.mean) / mcse if mcse > 0 else (0.0 if mean == truth.mean else math.inf)
    sd_ratio = sd / truth.sd
    judged = judge(z, sd_ratio, ess, truth.kurtosis, max_sd_error=MAX_SD_ERROR)
    error = abs(mean - truth.mean) / truth.sd
    return {"ess": ess, "mean": mean, "sd": sd, "z": z, "sd_ratio": sd_ratio, "error": error,
            "is_wrong": judged["is_wrong"]}  # fmt: skip
