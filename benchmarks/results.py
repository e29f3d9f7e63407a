"""Where the figures go: one section of ``benchmarks/RESULTS.md`` for each benchmark."""

import json
import os
import platform
import re
from pathlib import Path

import jax
import numpyro

HERE = Path(__file__).parent
TITLE = (
    "# Results of the benchmarks\n\n"
    "`make bench` measures everything anew. Every ratio is taken within one run on one machine.\n"
)


def machine():
    """Describe the machine."""
    model = "unknown processor"
    path = Path("/proc/cpuinfo")
    if path.exists():
        names = [line for line in path.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()},"
        f" jax {jax.__version__}, numpyro {numpyro.__version__}"
    )


def table(head, rows):
    """Return a Markdown table; numbers with three digits."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value):
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def save(name, title, text, data):
    """Write ``<name>.json`` and replace the section of that title in the report."""
    record = {"machine": machine(), **data}
    (HERE / f"{name}.json").write_text(json.dumps(record, indent=1, default=float) + "\n")
    report = HERE / "RESULTS.md"
    old = report.read_text() if report.exists() else TITLE
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", old, re.M | re.S))
    sections[title] = f"\nMachine: {machine()}.\n\n{text}\n"
    body = "\n".join(f"## {name}\n\n{part.strip()}\n" for name, part in sections.items())
    report.write_text(f"{TITLE}\n{body}")
    print(f"\n## {title}\n\n{machine()}\n\n{text}")
