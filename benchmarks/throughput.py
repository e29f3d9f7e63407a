"""Steps of chains per second of the generic engine, against a hand-written C program.

Every figure is a ratio within one run on one machine. Run on a quiet machine:
``python -m benchmarks.throughput``; writes ``benchmarks/throughput.json`` and a section of
``benchmarks/RESULTS.md``.
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import adlmh_jax as adlmh
from adlmh_jax import runner, sampling
from adlmh_jax.config import DEFAULT_EPOCH
from adlmh_jax.kernel import build_kernel
from adlmh_jax.program import compile_model
from adlmh_jax.proposals import plan_sites
from adlmh_jax.superchain import Code, Keep, Phase, make_plan
from adlmh_jax.zoo import PROBLEMS, hmm

HERE = Path(__file__).parent
SECONDS = 3.0
TARGETS = {
    "hmm, 2048 chains": 1.5,
    "hmm, 256 chains": 0.8,
    "hmm, 1 chain": 0.02,
    "hmm, 25 superchains of one chain": 0.05,
}


def reference_rate(repeats=5):
    """Compile the C program and return its best steps per second on one core."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "reference_hmm"
        source = HERE / "reference_hmm.c"
        flags = ["-O3", "-march=native"]
        subprocess.run(["cc", *flags, "-o", program, source, "-lm"], check=True)
        rates = []
        for seed in range(repeats):
            out = subprocess.run(
                [program, "64", "200000", str(seed + 1), "1"],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            rates.append(_printed_rate(out))
    return float(np.median(rates))


def _printed_rate(text):
    """Return the steps per second that the C program prints."""
    for line in text.splitlines():
        name, *numbers = line.split()
        if name == "steps_per_second":
            return float(numbers[0])
    raise ValueError(f"The reference program printed no rate: {text!r}")


class Run:
    """A compiled run whose speed can be measured again and again."""

    def __init__(self, problem, num_superchains, chains_each, is_adapting=True, devices=None):
        started = time.perf_counter()
        outputs = list(problem.outputs)
        program = compile_model(problem.model, problem.args, problem.kwargs, outputs=outputs)
        self.kernel, data = build_kernel(program, plan_sites(program, "prior", "never"))
        schedule = adlmh.ucb()
        chosen = runner.choose_devices(devices, num_superchains)
        num_superchains = -(-num_superchains // chosen.count) * chosen.count
        plan = make_plan(self.kernel.num_entries, DEFAULT_EPOCH)
        self.code = Code(self.kernel, schedule, plan, Keep((), ()))
        key = sampling.make_key(0)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_superchains))
        chains = sampling._start(program, key, num_superchains, chains_each)
        self.state = runner.place(chosen, self.kernel, data, schedule, chains)
        self.phase = Phase(jnp.bool_(is_adapting), jnp.int32(0))
        self.fixed = (self.code, chosen, 1, runner.share(chosen, data))
        self.key_data = np.asarray(jax.random.key_data(keys))
        self.steps = plan.epoch_steps * plan.num_epochs * num_superchains * chains_each
        self.rounds = 1
        self._go()
        self.compile_seconds = time.perf_counter() - started

    def _go(self):
        stretch = runner.Stretch(self.phase, jnp.int32(0), jnp.int32(self.rounds))
        superchains, _ = runner._run_chunk(
            *self.fixed, stretch, self.key_data, self.state.superchains
        )
        self.state = runner.RunState(0, jax.block_until_ready(superchains))

    def rate(self):
        """Return the best of a few measurements of steps per second."""
        best = 0.0
        self.rounds = 1
        for _ in range(8):
            started = time.perf_counter()
            self._go()
            seconds = time.perf_counter() - started
            best = max(best, self.rounds * self.steps / seconds)
            self.rounds = max(1, int(best * SECONDS / 6 / self.steps))
        return best


def measure(quick):
    """Return rows of (what, steps/s, ratio to C on one core, target)."""
    c_rate = reference_rate()
    rows = [("hand-written C, one core", c_rate, 1.0, None, None)]
    cases = [
        ("hmm, 1 chain", hmm(), 1, 1),
        ("hmm, 25 superchains of one chain", hmm(), 25, 1),
        ("hmm, 256 chains", hmm(), 4, 64),
        ("hmm, 2048 chains", hmm(), 4, 512),
        ("hmm, 16384 chains", hmm(), 4, 4096),
    ]
    for name, problem, superchains, chains in cases:
        run = Run(problem, superchains, chains)
        rate = run.rate()
        rows.append((name, rate, rate / c_rate, TARGETS.get(name), run.compile_seconds))
    frozen = Run(hmm(), 4, 512, is_adapting=False)
    rows.append(("hmm, 2048 chains, not adapting", frozen.rate(), None, None, None))
    lengths = [18, 180] if quick else [18, 180, 1800]
    for length in lengths:
        run = Run(hmm(length=length), 1, 256)
        rows.append((f"hmm of {length} states, 256 chains", run.rate(), None, None,
                     run.compile_seconds))  # fmt: skip
    for name in ("gp", "iris", "kalman"):
        run = Run(PROBLEMS[name](), 4, 64)
        rows.append((f"{name}, 256 chains", run.rate(), None, None, run.compile_seconds))
    return [tuple(float(v) if isinstance(v, np.floating) else v for v in row) for row in rows]


def table(rows):
    """Return the rows as a Markdown table."""
    lines = ["| what | M steps/s | ratio to C | target | compiled in |", "|---|---|---|---|---|"]
    for name, rate, ratio, target, seconds in rows:
        cells = [
            f"{rate / 1e6:.3f}",
            "" if ratio is None else f"{ratio:.3f}",
            "" if target is None else f"{target}",
            "" if seconds is None else f"{seconds:.1f} s",
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine():
    """Describe the machine."""
    model = "unknown processor"
    path = Path("/proc/cpuinfo")
    if path.exists():
        names = [line for line in path.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()},"
        f" jax {jax.__version__}"
    )


def main():
    """Measure, print, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the longest HMM")
    rows = measure(parser.parse_args().quick)
    text = table(rows)
    print(f"{machine()}\n\n{text}")
    result = {"machine": machine(), "rows": rows}
    (HERE / "throughput.json").write_text(json.dumps(result, indent=1) + "\n")
    (HERE / "RESULTS.md").write_text(
        f"# Results of the benchmarks\n\nMachine: {machine()}.\n\n## Throughput\n\n"
        "`python -m benchmarks.throughput`: steps of chains per second on all cores, adaptation "
        "on, prior proposals; the ratio is to the C program on one core.\n\n" + text + "\n"
    )


if __name__ == "__main__":
    main()
