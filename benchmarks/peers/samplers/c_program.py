"""The hand-written C program of the paper's HMM, one process for each core."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.peers.cell import Refused, Run

SOURCE = Path(__file__).parents[2] / "reference_hmm.c"
NUM_CHAINS, NUM_STEPS = 64, 500_000


def run(model, data, limit, clock):
    del data, limit
    if model != "hmm":
        raise Refused("written for the paper's HMM alone")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "reference_hmm"
        subprocess.run(["cc", "-O3", "-march=native", "-o", program, SOURCE, "-lm"], check=True)
        compiled, started = clock.seconds(), time.monotonic()
        running = [
            subprocess.Popen(
                [program, str(NUM_CHAINS), str(NUM_STEPS), str(seed), "1"],
                stdout=subprocess.DEVNULL,
            )
            for seed in range(1, 1 + os.cpu_count())
        ]  # fmt: skip
        for process in running:
            process.communicate()
        seconds = time.monotonic() - started
    return Run(
        draws={},
        startup=compiled,
        warmup=0.0,
        sampling=seconds,
        settings=f"cc -O3 -march=native; AdLMH, {os.cpu_count()} processes of {NUM_CHAINS} chains "
        f"and {NUM_STEPS:,} steps; it prints shares, no draws",
        updates=os.cpu_count() * NUM_CHAINS * NUM_STEPS,
    )
