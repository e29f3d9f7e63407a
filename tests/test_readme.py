"""What the README says works: its code, its commands, its targets, its links."""

import re
import shlex
from pathlib import Path

import matplotlib
import pytest

import adlmh_jax
from adlmh_jax.cli import build_parser

matplotlib.use("Agg")

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = {"num_chains": 8, "num_warmup": 20, "num_samples": 40, "progress": False}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def small_runs(monkeypatch):
    """Make runs short unless they say otherwise; everything else is as it is printed."""
    results, sample = [], adlmh_jax.sample

    def short_sample(*args, **kwargs):
        results.append(sample(*args, **{**SMALL, **kwargs}))
        return results[-1]

    monkeypatch.setattr(adlmh_jax, "sample", short_sample)
    return results


def test_code_runs(small_runs, capsys):
    names = {}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), names)
    [result] = small_runs
    assert result.draws["photons"].shape == (8, 40, 5)
    printed = capsys.readouterr().out
    assert "effective draws" in printed and "photons[4]" in printed


@pytest.mark.slow
def test_quick_start_runs(small_runs, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "quickstart.md", "exec"), names)
    assert (tmp_path / "report.html").exists()
    assert names["few"]["posterior"].sizes["chain"] == 8
    assert names["longer"].num_draws == 40 + 1000


def test_the_example_is_short():
    [code] = blocks("python")
    assert len([line for line in code.splitlines() if line]) <= 16


def test_commands_are_understood():
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    makefile = (ROOT / "Makefile").read_text()
    assert {command[0] for command in commands} == {"pip", "make", "adlmh"}
    for program, *arguments in commands:
        if program == "adlmh":
            build_parser().parse_args(arguments)
        elif program == "make":
            assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE)


def test_links_lead_somewhere():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert len(targets) > 15
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert not missing
