"""Steps of chains per second of the generic engine, against a hand-written C program.

``python -m benchmarks.throughput`` on a quiet machine.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import adlmh_jax as adlmh
from adlmh_jax.paper.zoo import PROBLEMS, hmm
from benchmarks.engine import Bench
from benchmarks.results import HERE, save, table

CASES = [  # name, superchains, chains of each, ratio to aim at
    ("1 chain", 1, 1, 0.02),
    ("25 superchains of one chain", 25, 1, 0.05),
    ("256 chains", 4, 64, 0.8),
    ("2048 chains", 4, 512, 1.5),
    ("16384 chains", 4, 4096, None),
]
EPOCHS = (1, 8, 32, 64, 128, 256)
LENGTHS = (18, 180, 1800)


def reference_rate(repeats=5):
    """Compile the C program and return its median steps per second on one core."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "reference_hmm"
        flags = ["-O3", "-march=native"]
        subprocess.run(["cc", *flags, "-o", program, HERE / "reference_hmm.c", "-lm"], check=True)
        rates = []
        for seed in range(1, repeats + 1):
            command = [program, "64", "200000", str(seed), "1"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rates.append(_printed_rate(done.stdout))
    return float(np.median(rates))


def _printed_rate(text):
    """Return the steps per second that the C program prints."""
    for line in text.splitlines():
        name, *numbers = line.split()
        if name == "steps_per_second":
            return float(numbers[0])
    raise ValueError(f"The reference program printed no rate: {text!r}")


def measure_chains(c_rate):
    """The paper's HMM with one chain up to thousands."""
    rows = [("hand-written C, one core", c_rate, 1.0, None)]
    for name, superchains, chains, target in CASES:
        rate = Bench(hmm(), superchains, chains).rate()
        rows.append((name, rate, rate / c_rate, target))
    return rows


def measure_epochs():
    """What learning costs, by the number of steps between updates of the weights."""
    frozen = Bench(hmm(), 4, 512, is_adapting=False).rate()
    rows = [("not adapting", frozen, 1.0)]
    for epoch in EPOCHS:
        rate = Bench(hmm(), 4, 512, epoch=epoch).rate()
        rows.append((f"epoch of {epoch}", rate, rate / frozen))
    return rows


def measure_lengths(lengths):
    """Longer HMMs, one superchain of 256 chains."""
    rows = []
    for length in lengths:
        rate = Bench(hmm(length=length), 1, 256).rate()
        rows.append((length, rate, rows[0][1] / rate if rows else 1.0))
    return rows


def measure_models():
    """Other models, beside a bare evaluation of the touched terms for the same chains."""
    rows = []
    for name in ("hmm", "gp", "iris", "kalman"):
        run = Bench(PROBLEMS[name](), 1, 64)
        rate, bare = run.rate(), run.bare_rate()
        rows.append((name, rate, bare, rate / bare))
    return rows


def measure_progress(repeats=5):
    """What the progress bar costs: seconds of the same run without and with it."""
    problem = hmm()
    seconds = {False: [], True: []}
    for _ in range(repeats):
        for progress in seconds:
            started = time.perf_counter()
            adlmh.sample(
                0, problem.model, problem.args, outputs=list(problem.outputs), keep=(),
                num_chains=2048, num_samples=4000, progress=progress,
            )  # fmt: skip
            seconds[progress].append(time.perf_counter() - started)
    silent, shown = (float(np.min(times[1:])) for times in seconds.values())
    return [("silent", silent, 1.0), ("with a bar", shown, shown / silent)]


def main():
    """Measure, print, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the longest HMM")
    lengths = LENGTHS[:2] if parser.parse_args().quick else LENGTHS
    c_rate = reference_rate()
    data = {
        "chains": measure_chains(c_rate),
        "epochs": measure_epochs(),
        "lengths": measure_lengths(lengths),
        "models": measure_models(),
        "progress": measure_progress(),
    }
    text = "\n\n".join(
        [
            "`python -m benchmarks.throughput`: steps of chains per second, prior proposals, the "
            "weights learning all the time.",
            "The paper's HMM (18 states) on all cores; the ratio is to the C program on one core:",
            table(["chains", "steps/s", "ratio to C", "aim"], data["chains"]),
            "The same with 2048 chains, by the steps between updates of the weights:",
            table(["learning", "steps/s", "ratio"], data["epochs"]),
            "Longer HMMs, one superchain of 256 chains on one core; cost of a step relative to "
            "18 states (aim: at most 2):",
            table(["states", "steps/s", "relative cost"], data["lengths"]),
            "Models with one superchain of 64 chains, on one core, beside an evaluation of the "
            "touched terms alone (no proposal, no decision, nothing stored or learned; aim: "
            "at least 0.5):",
            table(["model", "steps/s", "bare evaluations/s", "fraction"], data["models"]),
            "The progress bar: seconds of a run, compilation excluded:",
            table(["", "s", "ratio"], data["progress"]),
        ]
    )
    save("throughput", "Throughput", text, data)


if __name__ == "__main__":
    main()
