"""A run as one page of HTML that needs nothing else: verdict, table, figure, settings."""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adlmh_jax.results import html
from adlmh_jax.results.diagnose import diagnose_draws, measure
from adlmh_jax.results.mixing import Mixing
from adlmh_jax.results.overview import plot_overview
from adlmh_jax.results.plots import pyplot
from adlmh_jax.results.schedule import ScheduleReport
from adlmh_jax.results.verdict import Verdict, html_of
from adlmh_jax.store import save_text

QUANTILES = (0.05, 0.5, 0.95)
MAX_OUTPUTS = 4  # that are drawn
INK = "#010203"  # stands for the colour of the page's text until the figure is in the page
STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --ink: #1c1e21; --line: #d4d7dc; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16181c; --ink: #e3e5e8; --line: #3b3f46; }
}
body { background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 2em auto; max-width: 70em; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
code { font-family: ui-monospace, monospace; font-size: 0.92em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92em; }
th, td { padding: 0.2em 0.6em; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, tbody th { text-align: left; }
table.settings td { text-align: left; }
svg { max-width: 100%; height: auto; }
footer { margin-top: 3em; font-size: 0.85em; opacity: 0.7; }
"""


class RunRecord(NamedTuple):
    """What a report is made of.

    Attributes
    ----------
    title
        Its heading.
    draws
        By name, ``[chain, draw, ...]``; chains of a superchain are next to each other.
    num_superchains
        Superchains, of equally many chains.
    diagnosis
        What `Diagnosis.as_dict` gives; None if the draws alone are to be judged.
    schedule
        The schedule; None if it is not known.
    settings
        What else there is to know, in words.
    """

    title: str
    draws: Mapping[str, np.ndarray]
    num_superchains: int
    diagnosis: Mapping[str, Any] | None
    schedule: ScheduleReport | None
    settings: Mapping[str, Any]


def write_report(record: RunRecord, path: str | Path) -> None:
    """Write the page of a run."""
    save_text(Path(path), report_page(record))


def report_page(record: RunRecord) -> str:
    """Return the page of a run."""
    from adlmh_jax.results.tables import summarise_outputs

    mixing = measure(record.draws, record.num_superchains)
    num_chains, num_draws = next(iter(record.draws.values())).shape[:2]
    diagnosis = record.diagnosis
    notes = ""
    if diagnosis is None:
        diagnosis = diagnose_draws(mixing, num_chains, num_draws).as_dict()
        notes = html.paragraph("Judged by the draws alone: what single choices did is not known.")
    verdict = Verdict(diagnosis["verdict"])
    table = summarise_outputs(record.draws, mixing, QUANTILES)
    sizes = (
        f"{num_draws:,} draws of {num_chains:,} chains in {record.num_superchains:,} superchains"
    )
    parts = [
        f"<h1>{html.escape(record.title)}</h1>",
        html.paragraph(sizes),
        html_of({**diagnosis, "outputs": [o for o in diagnosis["outputs"] if o[1]]}),
        notes,
        "<h2>Outputs</h2>",
        f"<div class='wide'>{table._repr_html_()}</div>",
        "<h2>Do superchains agree?</h2>",
        html.paragraph(
            "Left: how the ranks of each superchain differ from those of all; curves of a run that "
            "has converged stay in the grey band, all of them in 95 % of runs. Right: densities."
        ),
        f"<div class='wide'>{_figure(record, mixing)}</div>",
        "<h2>Settings</h2>",
        _settings(record.settings),
    ]
    title = f"{verdict}: {record.title}"
    return _page(title, "\n".join(filter(None, parts)))


def _page(title: str, body: str) -> str:
    head = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{STYLE}</style>"
    view = "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    foot = "<footer>Made by adlmh_jax. This page loads nothing from anywhere.</footer>"
    return (
        f"<!DOCTYPE html>\n<html lang='en'><head>{head}{view}</head>\n"
        f"<body>{body}{foot}</body></html>\n"
    )


def _settings(settings: Mapping[str, Any]) -> str:
    rows = [(name, str(value)) for name, value in settings.items()]
    return html.table(("", ""), rows).replace("<table>", "<table class='settings'>", 1)


def _figure(record: RunRecord, mixing: Mapping[str, Mixing]) -> str:
    """Return the overview as SVG whose lines and letters have the colour of the page's text."""
    worst = sorted(mixing, key=lambda name: -np.nan_to_num(mixing[name].r_hat))[:MAX_OUTPUTS]
    roles = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    clear = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    style = dict.fromkeys(roles, INK) | dict.fromkeys(clear, "none")
    plots = pyplot()
    with plots.rc_context(style | {"svg.hashsalt": record.title}):
        figure = plot_overview(record.draws, mixing, worst, record.num_superchains, record.schedule)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    plots.close(figure)
    svg = re.sub(r"^.*?(?=<svg)", "", file.getvalue(), flags=re.DOTALL)
    return re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL).replace(
        INK, "currentColor"
    )
