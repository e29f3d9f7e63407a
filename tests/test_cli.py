import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

import adlmh_jax
from adlmh_jax.cli import main
from adlmh_jax.interop.user_model import find_model
from adlmh_jax.store import files as storage

ROOT = Path(__file__).parents[1]
MODEL = """
import numpyro
import numpyro.distributions as dist

def model(y, scale=1.0):
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    flip = numpyro.sample("flip", dist.Bernoulli(0.3))
    numpyro.sample("y", dist.Normal(mean, scale), obs=y)

not_a_model = 3
"""
SIZES = ["--chains", "8", "--warmup", "20", "--samples", "30", "--no-progress"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory with a model in it, and the way there."""
    (tmp_path / "my_models.py").write_text(MODEL)
    (tmp_path / "broken_models.py").write_text("import there_is_no_such_module\n")
    (tmp_path / "data.json").write_text(json.dumps({"y": [0.5, 1.5]}))
    (tmp_path / "list.json").write_text("[[0.5, 1.5]]")
    (tmp_path / "text.json").write_text('"y"')
    (tmp_path / "data.csv").write_text("y\n0.5\n1.5\n")
    (tmp_path / "text.csv").write_text("y,name\n0.5,a\n")
    (tmp_path / "gap.csv").write_text("y,scale\n0.5,1\n,1\n")
    np.savez(tmp_path / "data.npz", y=np.array([0.5, 1.5]))
    jax.devices()  # JAX has started: the number of devices is fixed
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def fails_with(capsys, arguments, words):
    """Check that a command gives one line on stderr, and the exit code 2."""
    try:
        code = main(arguments)
    except SystemExit as leaving:
        code = leaving.code
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1, captured.err
    assert words in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the following arguments are required"),
        (["dance"], "invalid choice"),
        (["reproduce", "hhm"], "invalid choice: 'hhm'"),
        (["reproduce", "hmm", "--restarts", "0"], "`restarts` must be at least 1, got 0"),
        (["reproduce", "hmm", "--steps", "-5"], "`steps` must be at least 1, got -5"),
        (["reproduce", "hmm", "--steps", "many"], "invalid int value: 'many'"),
        (["reproduce", "hmm", "--seed", "-1"], "`seed` must be at least 0"),
        (["reproduce", "hmm", "--device-count", "0"], "`--device-count` must be at least 1"),
        (["reproduce", "hmm", "--device-count", "7"], "`--device-count` is 7, but JAX has started"),
        (["reproduce", "hmm", "--out", "a_file/deeper"], "a_file"),
        (["demo", "--restarts", "0"], "`restarts` must be at least 1"),
        (["demo", "--out", "a_file"], "a_file"),
        (["run", "my_models"], "write `module:function` or `file.py:function`"),
        (["run", "nothing.py:model"], "There is no file `nothing.py`"),
        (["run", "broken_models.py:model"], "File `broken_models.py` cannot be imported"),
        (["run", "no_such_models:model"], "Module `no_such_models` cannot be imported"),
        (["run", "broken_models:model"], "No module named 'there_is_no_such_module'"),
        (["run", "my_models:mode"], "Module `my_models` has no function `mode`"),
        (["run", "my_models:not_a_model"], "has no function `not_a_model`"),
        (["run", "my_models:model", "--args", "none.json"], "`none.json` cannot be read"),
        (["run", "my_models:model", "--args", "text.json"], "must hold an object or a list"),
        (["run", "my_models:model", "--args", "text.csv"], "column `name` holds something other"),
        (["run", "my_models:model", "--args", "gap.csv"], "column `y` has gaps"),
        (["run", "my_models:model"], "which takes y, scale: missing a required argument: 'y'"),
        (["run", "my_models:model", "--out", "none/draws.nc"], "`none` is no writable directory"),
        (
            ["run", "my_models:model", "--args", "data.json", "--resume"],
            "`resume=True` needs `store`",
        ),
        (["report", "nowhere"], "There is no `nowhere`"),
        (["report", "."], "holds no stored run"),
        (
            ["run", "my_models:model", "--args", "data.json", "--outputs", "men", *SIZES],
            "no output `men`",
        ),
        (
            ["run", "my_models:model", "--args", "data.json", "--chains", "0"],
            "`num_chains` must be at least 1",
        ),
    ],
)
def test_errors_are_one_line(project, capsys, arguments, words):
    (project / "a_file").write_text("")
    fails_with(capsys, arguments, words)


def test_run_prints_the_summary_and_writes_what_is_asked(project, capsys):
    arguments = ["run", "my_models:model", "--args", "data.json", "--outputs", "mean,flip"]
    files = ["--out", "draws.nc", "--summary", "summary.json", "--report", "page.html"]
    code = main([*arguments, *files, "--store", "run", *SIZES])
    captured = capsys.readouterr()
    assert captured.err == ""  # the warning of convergence is the verdict, which is printed
    assert re.search(r"^mean +", captured.out, re.MULTILINE)
    assert re.search(r"^flip +", captured.out, re.MULTILINE)
    assert "r_hat" in captured.out and "..." not in captured.out
    assert captured.out.endswith(
        "Draws: draws.nc\nSummary: summary.json\nReport: page.html\nStore: run\n"
    )
    import xarray

    with xarray.open_dataset(project / "draws.nc", group="posterior") as posterior:
        assert posterior["mean"].shape == (8, 30)
        assert set(posterior.data_vars) == {"mean", "flip"}
    told = json.loads((project / "summary.json").read_text())
    assert code == (0 if told["verdict"] == "converged" else 3) == 3  # 30 draws are too few
    assert set(told["table"]) == {"mean", "flip"} and told["num_draws"] == 30
    assert main(["report", "draws.nc", "--out", "again.html"]) == 0
    assert "Report: again.html" in capsys.readouterr().out
    headline = told["headline"].replace("`", "")
    for page in ("page.html", "again.html"):
        assert headline in re.sub("</?code>", "", (project / page).read_text())


@pytest.mark.parametrize("file", ["list.json", "data.npz", "data.csv"])
def test_run_takes_arguments_from_files(project, capsys, file):
    outputs = ["--outputs", "mean,flip", "--quiet"]
    main(["run", "my_models.py:model", "--args", file, *outputs, *SIZES])
    from_file = capsys.readouterr().out
    main(["run", "my_models:model", "--args", "data.json", *outputs, *SIZES])
    assert capsys.readouterr().out == from_file
    assert len(from_file.splitlines()) == 1 and "mean" in from_file


@pytest.fixture
def datasets(project):
    """A directory of data sets in files of all kinds."""
    (project / "all").mkdir()
    (project / "all" / ".hidden").write_text("")
    (project / "all" / "b.json").write_text(json.dumps({"y": [0.5, 1.5]}))
    (project / "all" / "a.csv").write_text("y\n5\n7\n")
    np.savez(project / "all" / "c.npz", y=np.array([-1.0, -2.0]))
    (project / "common.json").write_text(json.dumps({"scale": 0.5}))
    return project / "all"


def test_run_with_data_sets(datasets, capsys):
    files = ["--out", "draws.nc", "--summary", "summary.json"]
    command = ["run", "my_models.py:model", "--datasets", "all", "--args", "common.json"]
    code = main([*command, *SIZES, *files])
    printed = capsys.readouterr().out
    told = json.loads(Path("summary.json").read_text())
    assert code == 3 and "Of 3 data sets 3 have not converged, or have too few" in printed
    assert list(told["datasets"]) == ["a", "b", "c"]
    import xarray

    with xarray.open_dataset("draws.nc", group="posterior") as posterior:
        assert posterior["mean"].shape == (3, 8, 30)
        assert (
            posterior["mean"].sel(dataset="a").mean()
            > 2
            > posterior["mean"].sel(dataset="b").mean()
        )
    for name, one in told["datasets"].items():
        assert f"{one['table']['mean']['mean']:.2f}"[:3] in printed, name
    assert main(["report", "draws.nc"]) == 0


@pytest.mark.parametrize(
    ("files", "more", "words"),
    [
        (None, [], r"`--datasets` is a directory of files, and `all` is none"),
        ({}, [], "The directory `all` is empty"),
        ({"readme.txt": "x"}, [], "`all/readme.txt` is no data set"),
        ({"a.json": '{"z": 1}'}, [], "The arguments in `all/a.json` do not fit the model"),
        (
            {"a.json": '{"y": [1]}', "b.json": '{"y": [1, 2]}'},
            [],
            "`y` of data set `b` has shape (2,) and dtype int32, that of data set `a`",
        ),
        (
            {"a.json": '{"y": [1]}'},
            ["--args", "data.json"],
            "`--args` and `all/a.json` both give `y`",
        ),
        ({"a.json": '{"y": [1]}'}, ["--report", "x.html"], "`--report` is a page of one run"),
        (
            {"a.json": '{"y": [1]}'},
            ["--superchains", "0:1"],
            "`--superchains` is a part of one run",
        ),
    ],
)
def test_wrong_data_sets(project, capsys, files, more, words):
    if files is not None:
        (project / "all").mkdir()
        for name, text in files.items():
            (project / "all" / name).write_text(text)
    command = ["run", "my_models.py:model", "--datasets", "all", *SIZES, *more]
    fails_with(capsys, command, words)


def test_a_file_whose_name_a_module_has(project):
    (project / "json.py").write_text(MODEL)
    assert find_model(str(project / "json.py") + ":model").__module__ == "model file json"


def test_version(capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith(f"adlmh_jax {adlmh_jax.__version__} (jax ")
    assert pyproject_version() == adlmh_jax.__version__


def pyproject_version():
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)["project"]["version"]


def test_the_package_is_a_command():
    command = [sys.executable, "-m", "adlmh_jax", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "exit codes: 0 done" in done.stdout


def test_readme_script_fills_the_section(monkeypatch):
    script = runpy.run_path(str(ROOT / "docs" / "paper" / "update_readme.py"))
    text = f"before\n{script['BEGIN']}\nold\n{script['END']}\nafter\n"
    filled = script["filled"](text, "new")
    assert filled == f"before\n{script['BEGIN']}\nnew\n{script['END']}\nafter\n"
    assert script["filled"](filled, "new") == filled
    with pytest.raises(ValueError, match="marks"):
        script["filled"]("no marks", "new")
    if script["load_numbers"](script["HERE"]):
        monkeypatch.setattr("sys.argv", ["update_readme.py", "--check"])
        assert script["main"]() == 0, "run docs/paper/update_readme.py"


@pytest.mark.slow
def test_quick_reproduction_of_everything(tmp_path, capsys):
    arguments = ["reproduce", "all", "--quick", "--out", str(tmp_path), "--no-progress"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert f"Report: {tmp_path / 'report.md'}" in printed
    assert "steps of LMH per step of AdLMH" in printed
    report = (tmp_path / "report.md").read_text()
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", report)
    assert len(pictures) == 9
    for picture in pictures:
        assert (tmp_path / picture).stat().st_size > 10_000
        assert (tmp_path / picture).with_suffix(".svg").exists()
    numbers = storage.load_json(tmp_path / "kalman.json")
    assert abs(numbers["literal"]["paper"] - numbers["literal"]["scaled"] - 2.0 * np.pi) < 0.01
    assert main(arguments) == 0  # everything is there
    assert ": LMH" not in capsys.readouterr().out
