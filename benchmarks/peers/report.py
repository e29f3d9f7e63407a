"""All samplers on all models, cell by cell, as tables for the report and a picture."""

import json
import time
from pathlib import Path

from benchmarks.peers.cases import CASES
from benchmarks.peers.environment import install
from benchmarks.peers.measure import FEW, MAX_SD_ERROR, MAX_Z, WANTED, measure_cell
from benchmarks.peers.picture import PATH as PICTURE
from benchmarks.peers.picture import draw
from benchmarks.peers.samplers import PEERS
from benchmarks.results import HERE, machine, save, table

LIMIT = 60.0  # seconds of sampling that a sampler may plan for
PATIENCE = 180.0  # seconds after which a process is ended, whatever it does
HEAD = [
    "sampler", "least ESS/s", "with start-up", f"s to {WANTED} ESS", "start-up, s",
    "site updates/s", "error after 1 s, sd", "largest z", "worst sd ratio", "verdict",
]  # fmt: skip


def main(
    models=tuple(CASES),
    peers=tuple(PEERS),
    *,
    limit=LIMIT,
    patience=PATIENCE,
    is_anew=True,
    out=None,
):
    """Measure the cells that are asked for, keep each of them at once, and write the report.

    ``is_anew``: also those that were measured before. ``out``: a directory in the place of the
    repository's report and picture.
    """
    install()
    path = HERE / "peers.json" if out is None else Path(out) / "peers.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = json.loads(path.read_text())["cells"] if path.exists() else {}
    for model in models:
        for peer in peers:
            key = f"{model}/{peer}"
            if key in cells and not is_anew:
                continue
            started = time.perf_counter()
            cell = measure_cell(model, peer, limit, patience)
            cells[key] = {**cell, "limit": limit, "machine": machine()}
            _keep(path, cells)
            print(f"{key}: {_headline(cell)}, {time.perf_counter() - started:.0f} s", flush=True)
    finish(cells, out)


def _keep(path, cells):
    """Write all cells: an interrupted run goes on from there."""
    record = {"machine": machine(), "cells": cells}
    path.with_suffix(".tmp").write_text(json.dumps(record, indent=1, default=float) + "\n")
    path.with_suffix(".tmp").replace(path)


def _headline(cell):
    rate = cell.get("ess_per_second")
    return cell["verdict"] if rate is None else f"{cell['verdict']}, {rate:.3g} ESS/s"


def finish(cells, out=None):
    """Write report and picture."""
    text = describe(cells)
    if out is None:
        save("peers", "Against the field", text, {"cells": cells})
        draw(cells, PICTURE)
    else:
        (Path(out) / "peers.md").write_text(text + "\n")
        draw(cells, Path(out) / "peers.png")


def describe(cells):
    """Return the report in Markdown."""
    models = [name for name in CASES if any(key.startswith(f"{name}/") for key in cells)]
    peers = [name for name in PEERS if any(key.endswith(f"/{name}") for key in cells)]
    limits = sorted({cell["limit"] for cell in cells.values()})
    parts = [
        "`python -m benchmarks.peers`: samplers of other people on the same models and data, each "
        "at the settings that its authors recommend, beside `adlmh.sample(0, model, data, "
        "outputs=...)`. Each cell is a process of its own, which plans for "
        f"{' or '.join(f'{limit:g}' for limit in limits)} s of sampling; nothing is compiled "
        "beforehand and no cache of compiled code is used. ESS (bulk, ArviZ) is that of the worst "
        "output that the sampler gives; NUTS marginalised by hand gives no discrete outputs, and "
        "needs its user to marginalise. ESS/s counts warm-up and sampling; with start-up, also "
        f"imports and compilation. Seconds to {WANTED} effective draws are from a cold start: "
        "draws of others count as they come, or would with a longer run, ours when the call "
        "returns. The error is the root mean square over the outputs, in posterior sds, times the "
        f"root of the seconds. Wrong: a mean off by more than {MAX_Z:g} standard errors, or an sd "
        f"by more than {MAX_SD_ERROR:.0%} and {MAX_Z:g} standard errors of as many independent "
        f"draws. Not converged: fewer than {FEW} effective draws. Site updates of others are of "
        "single choices; ours are moves of the schedule's entries, which may be blocks. Samplers "
        "that would start where the data are impossible, or with components mixed up, are given "
        "starting points (NumPyro the prior medians, PyMC and JAGS latent values near the data); "
        "WebPPL and ours are given none. In NumPyro 0.22 DiscreteHMCGibbs is a Gibbs of the same "
        "two blocks; the two rows differ in their order and the proposal.",
        "Least effective draws per second, without start-up:",
        _overview(cells, models, peers, "ess_per_second"),
        f"Seconds from a cold start to {WANTED} effective draws:",
        _overview(cells, models, peers, "seconds_to_wanted"),
    ]
    for model in models:
        found = {peer: cells.get(f"{model}/{peer}") for peer in peers}
        source = next((c["source"] for c in found.values() if c and "source" in c), None)
        parts.append(f"**{model}**" + (f", truth by {source}:" if source else ":"))
        parts.append(table(HEAD, [_row(peer, cell) for peer, cell in found.items() if cell]))
    parts.append("Settings, of the first model of each (those of every cell are in `peers.json`):")
    parts.append("\n".join(_settings(cells, models, peers)))
    return "\n\n".join(parts)


def _overview(cells, models, peers, figure):
    rows = [
        [PEERS[peer], *(_shown(cells.get(f"{model}/{peer}"), figure) for model in models)]
        for peer in peers
    ]
    return table(["", *models], rows)


def _shown(cell, figure):
    """Return a figure, or why there is none."""
    if cell is None or cell["verdict"] == "right":
        return cell and cell.get(figure)
    return cell["verdict"].partition(" (")[0].partition(" after")[0]


def _row(peer, cell):
    names = (
        "ess_per_second", "ess_per_second_all", "seconds_to_wanted", "startup",
        "updates_per_second", "error_in_a_second", "z", "sd_ratio",
    )  # fmt: skip
    figures = [None if cell.get(name) is None else float(cell[name]) for name in names]
    message = f": {cell['message']}" if cell.get("message") else ""
    return [PEERS[peer], *figures, cell["verdict"] + message]


def _settings(cells, models, peers):
    for peer in peers:
        found = (cells.get(f"{model}/{peer}", {}).get("settings") for model in models)
        settings = next((text for text in found if text), None)
        if settings:
            yield f"- {PEERS[peer]}: {settings}"
