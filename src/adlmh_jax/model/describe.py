"""A `Program` as a table for people."""

from collections.abc import Sequence
from html import escape
from typing import Any

HEAD = ("site", "components", "batch", "event", "support", "touches terms", "touches outputs")
MAX_ROWS = 24  # of more sites, only the first and the last are shown
LAST_ROWS = 4
MAX_NAMES = 4  # in a cell
MAX_CHARACTERS = 36  # in a cell

Row = tuple[str, ...]


def describe(program: Any) -> str:
    """Return the sites with their shapes and supports, and what each touches."""
    first, num_hidden, last = _shown_rows(program)
    cells = [HEAD, *first, *last]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEAD))]
    lines = [_line(row, widths) for row in cells]
    if num_hidden:
        lines.insert(1 + len(first), _hidden(num_hidden))
    lines.insert(1, _line(["-" * width for width in widths], widths))
    return "\n".join([_summary(program), "", *lines])


def describe_html(program: Any) -> str:
    """Return the same as a table of HTML."""
    first, num_hidden, last = _shown_rows(program)

    def line(cells: Sequence[str], tag: str = "td") -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    gap = [f"<tr><td colspan={len(HEAD)}>{_hidden(num_hidden)}</td></tr>"] if num_hidden else []
    body = "".join([*map(line, first), *gap, *map(line, last)])
    head = f"<thead>{line(HEAD, 'th')}</thead>"
    return f"<p>{escape(_summary(program))}</p><table>{head}<tbody>{body}</tbody></table>"


def _shown_rows(program: Any) -> tuple[list[Row], int, list[Row]]:
    """Return the first rows, how many are left out after them, and the last rows."""
    sites = program.sites.sites
    num_hidden = len(sites) - MAX_ROWS if len(sites) > MAX_ROWS else 0
    num_first = MAX_ROWS - LAST_ROWS if num_hidden else len(sites)
    first, last = sites[:num_first], sites[num_first + num_hidden :]
    return [_row(program, s) for s in first], num_hidden, [_row(program, s) for s in last]


def _hidden(number: int) -> str:
    return f"… {number} more sites"


def _summary(program: Any) -> str:
    return (
        f"Program of {_counted(program.num_components, 'component')} in "
        f"{_counted(len(program.sites.sites), 'latent site')}, "
        f"{_counted(program.term_layout.num_scalars, 'term')}, "
        f"{_counted(len(program.output_names), 'output')}: {_names(program.output_names)}"
    )


def _row(program: Any, site: Any) -> Row:
    touches = program.touches[site.name]
    return (
        _cut(site.name),
        str(site.num_components),
        _shape(site.batch_shape),
        _shape(site.event_shape),
        _support(program, site),
        _names(touches.terms),
        _names(touches.outputs),
    )


def _support(program: Any, site: Any) -> str:
    """Return the support in words; where it depends on other sites, on which."""
    deciders = [name for name, touches in program.touches.items() if site.name in touches.redraws]
    if deciders:
        return _cut(f"{site.support.kind}, depends on {_names(deciders)}")
    return _cut(str(site.support))


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "-"


def _names(names: Sequence[str]) -> str:
    """Return the first few names, and how many there are if not all are shown."""
    shown: list[str] = []
    for name in names[:MAX_NAMES]:
        if shown and len(", ".join([*shown, name])) > MAX_CHARACTERS:
            break
        shown.append(_cut(name))
    rest = f", … ({len(names)} in all)" if len(shown) < len(names) else ""
    return ", ".join(shown) + rest or "-"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(width) for c, width in zip(cells, widths, strict=True)).rstrip()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
