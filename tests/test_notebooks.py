"""Notebooks run from top to bottom, and hold no outputs."""

import ast
import json
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

PATHS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run_cell(source, names):
    """Run a cell as a notebook does: what its last line gives is shown."""
    body = ast.parse(source)
    last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
    exec(compile(body, "cell", "exec"), names)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        return getattr(shown, "_repr_html_", shown.__repr__)()
    return ""


def test_there_are_notebooks_without_outputs():
    assert [path.name[0] for path in PATHS] == ["1", "2", "3", "4", "5"]
    for path in PATHS:
        assert all(not c["outputs"] and c["execution_count"] is None for c in code_cells(path))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Out-of-support values")  # NumPyro starts its block first
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook(path):
    names = {}
    for cell in code_cells(path):
        run_cell("".join(cell["source"]), names)
    pyplot.close("all")
