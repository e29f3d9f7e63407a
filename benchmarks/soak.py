"""A long run: its memory, and whether its answer is still right.

``python -m benchmarks.soak``: 1,000 chains x 2,000,000 steps of the paper's HMM, nothing kept. The
means of all 18 states are compared with the truth, by the spread of 20 superchains: one of them is
off by more than 4 standard errors in 1.4 % of runs that are right.
"""

import os
import threading
import time

import numpy as np

import adlmh_jax as adlmh
from adlmh_jax.paper.zoo import hmm
from adlmh_jax.paper.zoo.hmm import hmm_marginals
from benchmarks.results import save, table

NUM_CHAINS, NUM_SUPERCHAINS, NUM_STEPS = 1000, 20, 2_000_000
SECONDS_BETWEEN = 2.0


def resident_megabytes():
    """Return the memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def watch(samples, is_done):
    """Note the memory every few seconds."""
    while not is_done.wait(SECONDS_BETWEEN):
        samples.append((time.perf_counter(), resident_megabytes()))


def main():
    """Measure, print, and keep the results."""
    problem = hmm()
    truth = hmm_marginals(*problem.args)
    thinning = len(truth)
    outputs = [f"state_{number}" for number in range(len(truth))]
    samples, is_done = [], threading.Event()
    watcher = threading.Thread(target=watch, args=(samples, is_done), daemon=True)
    watcher.start()
    started = time.perf_counter()
    result = adlmh.sample(
        0, problem.model, problem.args, outputs=outputs, keep=(), thinning=thinning,
        num_chains=NUM_CHAINS, num_superchains=NUM_SUPERCHAINS, num_warmup=1000,
        num_samples=NUM_STEPS // thinning, proposals="prior", blocks="never", progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    is_done.set()
    watcher.join()
    times, megabytes = np.array(samples).T
    late = times > times[0] + 0.3 * seconds  # after compilation and the first chunks
    slope = np.polyfit(times[late] / 60.0, megabytes[late], 1)[0]
    counts = result.statistics.histogram[:, : truth.shape[1]]
    means = result.statistics.mean.reshape(NUM_SUPERCHAINS, -1, len(truth)).mean(axis=1)
    errors = (means.mean(axis=0) - truth @ np.arange(truth.shape[1])) / (
        means.std(axis=0, ddof=1) / np.sqrt(NUM_SUPERCHAINS)
    )
    rows = [
        ("chain-steps", float(NUM_CHAINS * NUM_STEPS), None),
        ("seconds", seconds, None),
        ("MB at the end", float(megabytes[-1]), None),
        ("MB per minute", float(slope), 1.0),
        ("largest error of a state's mean, standard errors", float(np.abs(errors).max()), 4.0),
        ("largest error of a probability", float(np.abs(_shares(counts) - truth).max()), None),
    ]
    text = (
        f"`python -m benchmarks.soak`: {NUM_CHAINS:,} chains of {NUM_STEPS:,} steps on the paper's "
        "HMM, nothing kept but running statistics.\n\n" + table(["", "measured", "aim"], rows)
    )
    save("soak", "A long run", text, {"rows": rows})


def _shares(counts):
    return counts / counts.sum(axis=1, keepdims=True)


if __name__ == "__main__":
    main()
