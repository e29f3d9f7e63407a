"""Seconds from a model to the first draw, and memory, each in a process of its own.

``python -m benchmarks.compilation`` on a quiet machine.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.results import save, table

README = Path(__file__).parents[1] / "README.md"

# name, options of the problem, chains, outputs ("all" or the problem's), draws, aim in seconds
CASES = [
    ("hmm", {}, 256, "problem", 1, 5.0),
    ("hmm", {"length": 180}, 256, "problem", 1, None),
    ("hmm", {"length": 1800}, 256, "problem", 1, None),
    ("kalman", {}, 256, "problem", 1, 20.0),
    ("gp", {}, 256, "problem", 1, None),
    ("iris", {}, 256, "problem", 1, None),
    ("hmm", {"length": 1000}, 256, "all", 100, None),
]


def run_one(name, options, num_chains, outputs, num_samples):
    """Compile and run; print seconds and memory."""
    import adlmh_jax as adlmh
    from adlmh_jax.paper.zoo import PROBLEMS

    problem = PROBLEMS[name](**options)
    sizes = {"num_chains": num_chains, "num_warmup": 0, "proposals": "prior", "blocks": "never"}
    asked = None if outputs == "all" else list(problem.outputs)
    seconds = []
    for samples in (1, num_samples):
        started = time.perf_counter()
        adlmh.sample(
            0, problem.model, problem.args, problem.kwargs, outputs=asked, keep=(), adapt="always",
            num_samples=samples, progress=False, **sizes,
        )  # fmt: skip
        seconds.append(time.perf_counter() - started)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([*seconds, megabytes]))


def run_readme():
    """Run README's example, up to what it prints, and again; print seconds, count compilations."""
    started = time.perf_counter()
    import jax
    import numpy as np  # noqa: F401  (what the example needs is part of the import)

    import adlmh_jax  # noqa: F401

    seconds = [time.perf_counter() - started]
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration, **others: (
            compiled.append(duration) if event.endswith("backend_compile_duration") else None
        )
    )
    example = README.read_text().split("```python\n")[1].split("data = result.to_arviz()")[0]
    for _ in range(2):
        started = time.perf_counter()
        exec(example, {})
        seconds.append(time.perf_counter() - started)
    print(json.dumps([*seconds, len(compiled)]))


def measure_readme():
    """Return a table of README's example without a cache on disk, with an empty and a full one."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for label, cache in (("none", "off"), ("empty", directory), ("full", directory)):
            environment = {**os.environ, "ADLMH_CACHE": cache}
            command = [sys.executable, "-m", "benchmarks.compilation", "readme"]
            done = subprocess.run(
                command, check=True, capture_output=True, text=True, env=environment
            )
            rows.append((label, *json.loads(done.stdout.splitlines()[-1])))
            print(rows[-1], flush=True)
    head = ["cache on disk", "s of import", "s to the result", "s of a second run", "compilations"]
    return table(head, rows), rows


def main():
    """Measure, print, and keep the results."""
    readme, readme_rows = measure_readme()
    rows = []
    for *case, aim in CASES:
        command = [sys.executable, "-m", "benchmarks.compilation", json.dumps(case)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        first, again, megabytes = json.loads(done.stdout.splitlines()[-1])
        name, options, num_chains, outputs, num_samples = case
        label = f"{name} {options['length']}" if options else name
        label += f", all states as outputs, {num_samples} sweeps" if outputs == "all" else ""
        rows.append((label, num_chains, first, aim, again, round(megabytes)))
        print(rows[-1], flush=True)
    head = ["model", "chains", "s to the first draw", "aim", "s of a second run", "MB"]
    text = (
        "`python -m benchmarks.compilation`: a fresh process traces, compiles, and makes a draw; "
        "then again (adaptive, prior proposals).\n\n" + table(head, rows)
    )
    text += f"\n\nREADME's example, to the end of `summary()` and `diagnose()`:\n\n{readme}"
    save("compilation", "Compilation and memory", text, {"rows": rows, "readme": readme_rows})


if __name__ == "__main__":
    if sys.argv[1:] == ["readme"]:
        run_readme()
    elif len(sys.argv) > 1:
        run_one(*json.loads(sys.argv[1]))
    else:
        main()
