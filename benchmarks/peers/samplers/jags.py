"""JAGS at its terminal: a process for each core, with two chains each."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.peers.cell import Refused, Run
from benchmarks.peers.samplers.bugs import DATA, PROGRAMS, STARTS, dump

NUM_CHAINS, NUM_WARMUP, MAX_DRAWS, PILOT = 2, 1000, 10_000, 20
PADDING = 40_000 * " " + "\n"  # JAGS reads from a pipe in blocks, and waits for whole ones


class Terminal:
    """A JAGS process that is told what to do and waited for."""

    def __init__(self, folder):
        self._process = subprocess.Popen(
            ["jags"], cwd=folder, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._folder = Path(folder).name
        self.banner = ""  # what it says first

    def tell(self, *commands):
        """Send commands; `pwd` after them says when they are done."""
        self._process.stdin.write("\n".join([*commands, "pwd"]) + "\n" + PADDING)
        self._process.stdin.flush()

    def wait(self):
        """Read until all is done; what sounds like an error is one."""
        lines = []
        for line in self._process.stdout:
            lines.append(line.strip(" .\n"))
            if lines[-1].endswith(self._folder):
                break
        self.banner = self.banner or lines[0]
        text = " ".join(line for line in lines if "*" not in line)
        if re.search(r"error|fail|cannot|unable", text, re.IGNORECASE):
            self.close()
            raise Refused(text[-300:])

    def close(self):
        self._process.kill()
        self._process.communicate()


def run(model, data, limit, clock):
    if shutil.which("jags") is None:
        raise Refused("not installed: `apt-get install jags` needs root")
    with tempfile.TemporaryDirectory() as parent:
        folders = [_write(Path(parent) / f"core{core}", model, data) for core in range(_cores())]
        terminals = [Terminal(folder) for folder in folders]
        chains = [f'parameters in "start{i}.R", chain({i})' for i in range(1, NUM_CHAINS + 1)]
        _do(
            terminals, 'model in "model.bug"', 'data in "data.R"',
            f"compile, nchains({NUM_CHAINS})", *chains, "initialize",
        )  # fmt: skip
        compiled = clock.seconds()
        seconds = _do(terminals, f"update {PILOT}") / PILOT
        num_warmup = int(min(NUM_WARMUP, max(PILOT, limit / 4 / seconds)))
        seconds = _do(terminals, f"update {num_warmup}") / num_warmup
        warm = clock.seconds()
        names = PROGRAMS[model].outputs
        num = int(min(MAX_DRAWS, max(PILOT, limit * 0.7 / seconds)))
        _do(terminals, *(f"monitor {name}" for name in names), f"update {num}")
        done = clock.seconds()
        _do(terminals, 'coda *, stem("coda_")')
        version = terminals[0].banner.removeprefix("Welcome to ").partition(" on ")[0]
        for terminal in terminals:
            terminal.close()
        draws = [_read(folder, chain) for folder in folders for chain in range(1, NUM_CHAINS + 1)]
    stacked = {name: np.stack([chain[name] for chain in draws]) for name in draws[0]}
    sweeps = (PILOT + num_warmup + num) * NUM_CHAINS * len(folders)
    return Run(
        draws={name: value - PROGRAMS[model].shift.get(name, 0) for name, value in stacked.items()},
        startup=compiled,
        warmup=warm - compiled,
        sampling=done - warm,
        settings=f"{version}: {_cores()} processes of {NUM_CHAINS} chains, {num_warmup} draws "
        f"of warm-up and {num} kept each",
        updates=sweeps * PROGRAMS[model].sites(data),
    )


def _do(terminals, *commands):
    """Let all processes work at once; return the seconds until the last is done."""
    started = time.monotonic()
    for terminal in terminals:
        terminal.tell(*commands)
    for terminal in terminals:
        terminal.wait()
    return time.monotonic() - started


def _write(folder, model, data):
    """Write model, data and starting points."""
    folder.mkdir()
    core = int(folder.name[-1])
    (folder / "model.bug").write_text(PROGRAMS[model].text)
    (folder / "data.R").write_text(dump(DATA[model](**data) if model in DATA else data))
    for chain in range(1, NUM_CHAINS + 1):
        start = STARTS.get(model, lambda data: {})(data)
        seed = f'".RNG.name" <- "base::Mersenne-Twister"\n".RNG.seed" <- {10 * core + chain}\n'
        (folder / f"start{chain}.R").write_text(dump(start) + seed)
    return folder


def _read(folder, chain):
    """Return the draws of a chain by name; vectors come apart into their elements."""
    values = np.loadtxt(folder / f"coda_chain{chain}.txt", ndmin=2)[:, 1]
    parts = {}
    for line in (folder / "coda_index.txt").read_text().splitlines():
        name, first, last = line.split()
        base = name.partition("[")[0]
        parts.setdefault(base, []).append(values[int(first) - 1 : int(last)])
    return {
        base: columns[0] if len(columns) == 1 else np.stack(columns, axis=-1)
        for base, columns in parts.items()
    }


def _cores():
    return os.cpu_count() or 1
