"""Imports go downwards, heavy packages stay where they belong, files and functions stay short."""

import ast
from pathlib import Path

import pytest

PACKAGE = "adlmh_jax"
ROOT = Path(__file__).parents[1] / "src" / PACKAGE
FILES = sorted(ROOT.rglob("*.py"))

LEVELS = {
    "types": 0,
    **dict.fromkeys(["config", "host", "layout", "storage", "tally"], 0.5),
    **dict.fromkeys(["distances", "mixing", "program", "progress", "schedules", "streaming"], 1),
    "verdict": 2,
    **dict.fromkeys(["proposals", "zoo"], 3),
    "moves": 3.5,
    "kernel": 4,
    "step": 4.1,
    **dict.fromkeys(["starting", "tuning"], 4.3),
    "superchain": 4.5,
    **dict.fromkeys(["functional", "runner"], 5),
    **dict.fromkeys(["binding", "checkpoint"], 5.5),
    **dict.fromkeys(["diagnostics", "export", "numpyro_kernel"], 6),
    "result": 6.5,
    "plots": 7,
    "collecting": 7.5,
    "sampling": 8,
    "experiments": 9,
    "cli": 10,
    "__init__": 11,
}
FREE_INSIDE = {"experiments", "program", "zoo"}
OWNERS = {
    "numpyro": {"program", "numpyro_kernel", "zoo"},
    "arviz": {"export", "diagnostics"},
    "matplotlib": {"plots"},
}
MAX_FILE_LINES = 350
MAX_FUNCTION_LINES = 60  # docstring not counted

each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())


def module_of(path):
    """Name the module or subpackage, directly under the package, that a file belongs to."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def parse(path):
    return ast.parse(path.read_text(), filename=str(path))


def imported_names(tree):
    """Yield (line, dotted name) of every import, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{parent}.{alias.name}") for alias in node.names)


def import_error(module, name):
    """Say what is wrong with `module` importing `name`; None if nothing is."""
    top, _, rest = name.partition(".")
    if not top:
        return "is relative: write it absolute"
    if top == PACKAGE:
        target = rest.partition(".")[0]
        target = target if target in LEVELS else "__init__"
        if LEVELS[target] >= LEVELS[module] and not (target == module and module in FREE_INSIDE):
            return f"goes from level {LEVELS[module]} ({module}) to {LEVELS[target]} ({target})"
    owners = OWNERS.get(top.partition("_")[0], {module})  # arviz_base counts as arviz
    return None if module in owners else f"belongs only in {', '.join(sorted(owners))}"


def function_length(node):
    """Count a function's lines without its docstring."""
    length = node.end_lineno - node.lineno + 1
    if ast.get_docstring(node) is not None:
        length -= node.body[0].end_lineno - node.body[0].lineno + 1
    return length


@each_file
def test_imports(path):
    module = module_of(path)
    assert module in LEVELS, f"{module} has no level: choose one for it in LEVELS of {__file__}"
    found = ((*item, import_error(module, item[1])) for item in imported_names(parse(path)))
    errors = [f"line {line}: import of {name} {error}" for line, name, error in found if error]
    assert not errors, "\n".join(errors)


@each_file
def test_lengths(path):
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = function_length(node)
            assert length <= MAX_FUNCTION_LINES, f"line {node.lineno}: {node.name} has {length}"
