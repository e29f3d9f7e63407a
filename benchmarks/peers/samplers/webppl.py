"""WebPPL's single-site Metropolis-Hastings: a process with one chain for each core."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.peers.cell import Refused, Run
from benchmarks.peers.environment import WEBPPL
from benchmarks.peers.samplers.webppl_programs import PROGRAMS, SITES

WARMUP, MAX_DRAWS, PATIENCE = 0.1, 20_000, 30  # share of draws; draws; seconds for start and end
# Infer counts values; draws in their order are seen by a callback only.
RECORDER = """
var fs = require('fs'), begun = null, draws = [], times = [];
var limit = +process.env.LIMIT, most = +process.env.MOST;
var data = JSON.parse(fs.readFileSync(process.env.DATA));
module.exports = {data: data, callback: {
  iteration: function() { if (begun === null) begun = process.uptime(); },
  sample: function(found) {
    draws.push(found.value);
    times.push(process.uptime() - begun);
    if (draws.length >= most || times[times.length - 1] > limit) {
      fs.writeFileSync(process.env.OUT, JSON.stringify(
        {begun: begun, times: times, draws: draws}));
      process.exit(0);
    }
  }
}};
"""
RUN = """
Infer({{method: 'MCMC', kernel: 'MH', samples: 1e9, lag: {lag}, model: model,
       callbacks: [recorder.callback]}});
"""


def run(model, data, limit, clock):
    if not WEBPPL.exists():
        raise Refused("not installed: `npm install webppl` did not work")
    if shutil.which("node") is None:
        raise Refused("not installed: there is no Node.js")
    sites = SITES[model](data)
    before = clock.seconds()
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "recorder"
        package.mkdir()
        (package / "index.js").write_text(RECORDER)
        (package / "package.json").write_text('{"name": "recorder", "version": "1.0.0"}')
        values = json.dumps({name: array.tolist() for name, array in data.items()})
        (Path(folder) / "data.json").write_text(values)
        text = f"var data = recorder.data;\n{PROGRAMS[model]}\n{RUN.format(lag=sites - 1)}"
        (Path(folder) / "model.wppl").write_text(text)
        parts = _run_all(Path(folder), limit)
    num = min(len(part["draws"]) for part in parts)
    first = int(WARMUP * num)
    seconds = max(part["times"][num - 1] for part in parts)
    begun = max(part["begun"] for part in parts)
    draws = {
        name: np.array([[draw[name] for draw in part["draws"][first:num]] for part in parts])
        for name in parts[0]["draws"][0]
    }
    return Run(
        draws=draws,
        startup=before + begun,
        warmup=seconds * first / num,
        sampling=seconds * (num - first) / num,
        settings=f"WebPPL {_version()}: {len(parts)} processes of one chain, {num} draws, one a "
        f"sweep's worth of {sites} steps, of which the first {WARMUP:.0%} are warm-up",
        updates=num * sites * len(parts),
    )


def _run_all(folder, limit):
    """Run a process for each core and return what they wrote."""
    command = [WEBPPL, folder / "model.wppl", "--require", folder / "recorder", "--random-seed"]
    running = []
    for core in range(os.cpu_count() or 1):
        environment = {**os.environ, "LIMIT": str(limit), "MOST": str(MAX_DRAWS)}
        environment.update(OUT=str(folder / f"{core}.json"), DATA=str(folder / "data.json"))
        running.append(
            subprocess.Popen(
                [*command, str(core + 1)], env=environment, text=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )
        )  # fmt: skip
    end, parts = time.monotonic() + limit + PATIENCE, []
    try:
        for core, process in enumerate(running):
            _, errors = process.communicate(timeout=max(1, end - time.monotonic()))
            path = folder / f"{core}.json"
            if not path.exists():
                raise Refused(errors.strip()[:300] or "ended without a draw")
            parts.append(json.loads(path.read_text()))
    except subprocess.TimeoutExpired:
        raise Refused(f"no sweep, or no start, within {limit + PATIENCE:g} s") from None
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return parts


def _version():
    return json.loads((WEBPPL.parents[1] / "webppl" / "package.json").read_text())["version"]
