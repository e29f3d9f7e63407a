"""A `Program` as a table for people."""

from typing import Any


def describe(program: Any) -> str:
    """Return the sites with their shapes and supports, and what each touches."""
    rows = [("site", "batch", "event", "support", "components", "touches terms", "touches outputs")]
    for site in program.sites.sites:
        touches = program.touches[site.name]
        terms = [f"{name}" for name in touches.terms]
        rows.append(
            (
                site.name,
                str(site.batch_shape),
                str(site.event_shape),
                site.support + (" (depends on other sites)" if _is_dynamic(program, site) else ""),
                str(site.num_components),
                _shortened(terms),
                _shortened(list(touches.outputs)) or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)) for r in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    head = (
        f"Program with {program.num_components} components in {len(program.sites.sites)} sites, "
        f"{program.term_layout.num_scalars} terms, {len(program.output_names)} outputs"
    )
    return "\n".join([head, *(line.rstrip() for line in lines)])


def _is_dynamic(program: Any, site: Any) -> bool:
    return any(site.name in touches.redraws for touches in program.touches.values())


def _shortened(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names)})"
