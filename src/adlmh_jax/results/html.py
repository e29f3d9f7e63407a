"""Pieces of HTML for notebooks and reports: whatever is given is escaped.

Colours come from the page around, so that light and dark both work.
"""

from collections.abc import Iterable, Sequence
from html import escape

BADGE_COLOURS = ("#2e8b57", "#b8860b", "#c0392b")  # converged, cannot tell, not converged
MARKS = ("\u2713", "?", "\u2717")


def code(text: str) -> str:
    """Return text in which words in backticks are code."""
    parts = escape(text, quote=False).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{code(text)}</p>"


def definition(head: str, items: Iterable[str]) -> str:
    """Return a line and the items below it; what stands before a colon is bold."""
    listed = "".join(f"<li>{code(item)}</li>" for item in items)
    below = f"<ul style='margin:0'>{listed}</ul>" if listed else ""
    name, colon, rest = head.partition(":")
    return f"<div style='margin:0.4em 0'><b>{code(name)}</b>{colon}{code(rest)}{below}</div>"


def badge(text: str, badness: int) -> str:
    """Return a sentence behind a mark: 0 is good, 1 doubtful, 2 bad."""
    colour = BADGE_COLOURS[badness]
    style = f"border-left:0.4em solid {colour};padding:0.2em 0.6em;margin:0.3em 0"
    return f"<div style='{style}'><b style='color:{colour}'>{MARKS[badness]}</b> {code(text)}</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{code(str(c))}</{tag}>" for c in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def section(*parts: str) -> str:
    """Return pieces as one."""
    return f"<div>{''.join(parts)}</div>"
