"""Supports that hang on each other: an epidemic of 4 to 52 weeks, written as a Python loop.

``python -m benchmarks.supports`` on a quiet machine. Each length runs in a process of its own,
without a cache of compiled code; seconds to the first result are those of `sample` at its defaults.
"""

import json
import os
import subprocess
import sys
import time

import numpy as np

import adlmh_jax as adlmh
from benchmarks.classics.counts import REPORTING, epidemic_model
from benchmarks.results import save, table

WEEKS = (4, 8, 16, 52)
NUM_SUSCEPTIBLE, CONTACT = 200, 0.012
NUM_SAMPLES = 1_000  # the default, and as many more for the time of a step


def reports(num_weeks):
    """Return the reported cases of the first simulated epidemic that infects many."""
    for seed in range(1_000):
        rng = np.random.default_rng(seed)
        susceptible, infected, cases = NUM_SUSCEPTIBLE, 1, []
        for _ in range(num_weeks):
            infected = rng.binomial(susceptible, 1 - (1 - CONTACT) ** infected)
            susceptible -= infected
            cases.append(rng.binomial(infected, REPORTING))
        if sum(cases) > NUM_SUSCEPTIBLE // 4:
            return np.array(cases, np.int32)
    raise RuntimeError(f"No epidemic of {num_weeks} weeks infects many.")


def measure(num_weeks):
    """Return the seconds to the first result, and the microseconds of a step of all chains."""
    data = (reports(num_weeks), NUM_SUSCEPTIBLE)
    started = time.perf_counter()
    result = adlmh.sample(0, epidemic_model, data, progress=False)
    first = time.perf_counter() - started
    result.extend(NUM_SAMPLES)  # compiles what is new
    started = time.perf_counter()
    result.extend(NUM_SAMPLES)
    seconds = time.perf_counter() - started
    num_steps = NUM_SAMPLES * (num_weeks + 1)  # a draw is a step for each choice
    return {"weeks": num_weeks, "first": first, "step": 1e6 * seconds / num_steps}


def measure_apart(num_weeks):
    """Measure in a process of its own, which finds no compiled code."""
    command = [sys.executable, "-m", "benchmarks.supports", str(num_weeks)]
    env = {**os.environ, "ADLMH_CACHE": "off"}
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return json.loads(run.stdout.splitlines()[-1])


def main():
    """Measure all lengths, and write the section of the results."""
    rows = [measure_apart(num_weeks) for num_weeks in WEEKS]
    head = ["weeks", "seconds to the first result", "microseconds per step of all chains"]
    body = table(head, [[row["weeks"], row["first"], row["step"]] for row in rows])
    text = (
        "A chain-binomial epidemic as a Python loop, at all defaults (256 chains, 1,000 draws of "
        f"warm-up and {NUM_SAMPLES:,} after it): each week's support hangs on all weeks before "
        f"it.\n\n{body}"
    )
    save("supports", "Dependent supports", text, {"rows": rows})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
    else:
        main()
