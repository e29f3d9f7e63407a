import json
import math
import re

import numpy as np
import pytest

from adlmh_jax.paper import zoo
from adlmh_jax.paper.experiments import Budget, claim, demo, quick_budget, reproduce, runs
from adlmh_jax.paper.experiments.cases import ADLMH, CASES, FURTHER_METHODS, LMH, Case
from adlmh_jax.paper.experiments.figures import hardest_target
from adlmh_jax.paper.experiments.report import readme_section, summary_table, write_report
from adlmh_jax.paper.experiments.reproduction import study_case
from adlmh_jax.paper.experiments.studies import claim_stretches, paper_stretch, schedule_at
from adlmh_jax.store import files as storage

SMALL = Case(
    "small",
    "Three variables",
    zoo.three_variables,
    "nothing",
    error="KS distance",
    targets=(0.999, 0.5, 1e-9),
    claim_steps=200,
    further=("adlmh-of-2",),
    has_bars=True,
)
TINY = Budget(restarts=4, steps=200, epoch=50, bar_steps=(100, 200), claim_restarts=8, seed=3)
CHECKPOINTS = np.array([1, 10, 100, 1000])


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def make_lab(directory, budget=TINY, say=lambda line: None):
    return runs.Lab(directory, budget, say, progress=False)


class Interrupted(Exception):
    pass


def interrupt_at(count):
    """Return a `say` that stops everything before a certain run."""
    said = []

    def say(line):
        said.append(line)
        if len(said) == count:
            raise Interrupted

    return say


# Ratios


def test_steps_to_reach_between_checkpoints():
    errors = np.array([[1.0, 0.1, 0.01, 0.001], [1.0, 1.0, 0.01, 0.1], [2.0, 2.0, 2.0, 2.0]])
    steps = claim.steps_to_reach(errors, CHECKPOINTS, 0.1)
    np.testing.assert_allclose(steps, [10.0, 10.0 * math.sqrt(10.0), np.inf])
    np.testing.assert_allclose(claim.steps_to_reach(errors[0], CHECKPOINTS, 1.0), 1.0)
    assert claim.steps_to_reach(np.array([1.0, 0.5, 0.0, 0.0]), CHECKPOINTS, 0.1) < 100


def curves_of(constant, seed, restarts=200):
    """Errors that fall as constant / steps, with noise of each restart."""
    noise = np.random.default_rng(seed).lognormal(sigma=0.3, size=(restarts, 1, 1))
    return claim.Curves.of(constant * noise / CHECKPOINTS, CHECKPOINTS, seed)


def test_sample_ratio_finds_a_known_factor():
    reference, method = curves_of(2.0, seed=0), curves_of(1.0, seed=1)
    ratio = claim.sample_ratio(reference, method, 0.01)
    assert ratio.low < 2.0 < ratio.high
    assert ratio.high / ratio.low < 1.4
    assert claim.sample_ratio(reference, reference, 0.01) == (1.0, 1.0, 1.0)


def test_sample_ratio_of_targets_out_of_reach():
    reference, method = curves_of(2.0, seed=0), curves_of(200.0, seed=1)
    assert claim.sample_ratio(reference, method, 1e-4) is None
    assert claim.sample_ratio(reference, method, 0.01) == (0.0, 0.0, 0.0)
    assert claim.sample_ratio(method, reference, 0.01).value == np.inf


def test_bootstrap_draws_whole_superchains():
    # Chains of a superchain agree completely: 4 superchains of 50 chains know as much as 4 chains.
    rng = np.random.default_rng(0)
    alone = rng.lognormal(size=(4, 1, 1)) / CHECKPOINTS
    together = np.repeat(alone, 50, axis=1)
    spreads = [
        np.std(claim.resampled_medians(curves, np.random.default_rng(1))[:, 0])
        for curves in (alone, together)
    ]
    assert spreads[1] > 0.8 * spreads[0]


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ((2.1, 3.0), "at least the paper's factor of 2"),
        ((1.1, 2.5), "a factor of 2 is possible"),
        ((0.9, 2.5), "a factor of 2 is possible, so is none"),
        ((1.1, 1.9), "fewer steps than LMH, but not half as many"),
        ((0.8, 1.2), "no difference shown"),
        ((0.5, 0.9), "more steps than LMH"),
    ],
)
def test_verdict(interval, words):
    assert claim.verdict(claim.Ratio(np.mean(interval), *interval)) == words


# Budgets and tables


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"restarts": 0}, "`restarts` must be at least 1"),
        ({"steps": 0}, "`steps` must be at least 1"),
        ({"claim_restarts": -1}, "`claim_restarts` must be at least 0"),
        ({"seed": 1 << 32}, "`seed` must be less than"),
        ({"claim_scale": 0.0}, "`claim_scale` must be greater than 0"),
    ],
)
def test_budget_refuses(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Budget(**settings)


def test_default_budget_is_the_papers():
    budget = Budget()
    assert (budget.restarts, budget.steps, budget.epoch) == (25, 500_000, 1)
    assert budget.bars() == (1_000, 10_000, 100_000)
    assert Budget(steps=5_000).bars() == (1_000,)
    assert Budget(steps=5).bars() == (5,)
    assert quick_budget().bars() == (quick_budget().steps,)
    assert budget.claim_restarts >= 200


def test_tables_name_each_method_once():
    names = [method.name for method in (LMH, ADLMH, *FURTHER_METHODS)]
    assert len(set(names)) == len(names)
    for case in CASES.values():
        assert set(case.further or ()) <= set(names)
        assert list(case.targets) == sorted(case.targets, reverse=True)


def test_each_iris_restart_leaves_out_records_of_its_own():
    lab = make_lab(None, Budget(restarts=25, steps=400_000))
    stretch = paper_stretch(lab, CASES["iris"], LMH)
    assert (stretch.superchains, stretch.steps) == (100, 100_000)
    problems = stretch.case.problems(stretch.superchains, seed=0)
    left_out = {problem.args[2].tobytes() for problem in problems}
    assert len(problems) == 100
    assert len(left_out) > 90


def test_claim_batches_are_equal_and_fit_in_memory():
    lab = make_lab(None, Budget())
    for case in CASES.values():
        for method in (LMH, *case.methods()):
            stretches = claim_stretches(lab, case, method)
            assert len({stretch.superchains for stretch in stretches}) == 1
            assert len(stretches) >= 2
            assert sum(s.superchains * method.chains for s in stretches) >= 200
            assert max(stretch.num_chain_steps for stretch in stretches) <= 26_000_000


def test_iris_restarts_run_together_as_if_alone():
    stretch = runs.Stretch(CASES["iris"], ADLMH, "paper", 3, 40, 40, ("curve", "schedule"))
    arrays, _ = runs.run_stretch(stretch, 5, progress=False)
    problems = stretch.case.problems(3, runs._words(5, "splits", 0))
    for number in (0, 2):
        key = (runs._words(5, "iris", "adlmh", 0, number) << 32) | 5
        (alone,) = runs._sample([problems[number]], [key], stretch, 1, False)
        curve = runs.MEASURES["curve"](problems[number], stretch, alone)["curves"][0]
        np.testing.assert_array_equal(arrays["curves"][number], curve)
        np.testing.assert_array_equal(arrays["weights"][number], alone.schedule.weights[0])


# Storage


def test_arrays_are_used_again_only_for_the_same_settings(tmp_path):
    path = tmp_path / "deep" / "one.npz"
    storage.save_arrays(path, {"a": 1, "b": [2]}, {"x": np.arange(3), "names": np.array(["y"])})
    loaded = storage.load_arrays(path, {"b": [2], "a": 1})
    assert loaded["x"].tolist() == [0, 1, 2]
    assert loaded["names"].tolist() == ["y"]
    assert storage.load_arrays(path, {"a": 1, "b": [3]}) is None
    assert storage.load_arrays(tmp_path / "none.npz", {}) is None


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "one.json"
    storage.save_json(path, {"x": 1})
    with pytest.raises(ValueError, match="JSON"):
        storage.save_json(path, {"x": math.nan})

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        storage._write(path, fail)
    assert storage.load_json(path) == {"x": 1}


# Runs


def without_times(numbers):
    """Drop what a second run does not repeat."""
    if isinstance(numbers, dict):
        times = ("seconds", "steps_per_second", "per_second")
        return {key: without_times(value) for key, value in numbers.items() if key not in times}
    return [without_times(one) for one in numbers] if isinstance(numbers, list) else numbers


def test_a_resumed_study_equals_an_uninterrupted_one(tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    for directory in (whole, resumed):
        directory.mkdir()
    expected = study_case(make_lab(whole), SMALL)
    with pytest.raises(Interrupted):
        study_case(make_lab(resumed, say=interrupt_at(4)), SMALL)
    done = {path: path.stat().st_mtime_ns for path in resumed.rglob("*.npz")}
    assert len(done) == 3
    assert without_times(study_case(make_lab(resumed), SMALL)) == without_times(expected)
    assert all(path.stat().st_mtime_ns == when for path, when in done.items())
    files = {p.relative_to(whole) for pattern in ("*.npz", "*.png") for p in whole.rglob(pattern)}
    assert len(files) == 3 + 6 + 2
    for file in files:
        assert (whole / file).read_bytes() == (resumed / file).read_bytes(), file

    _check_study(expected)
    again = interrupt_at(1)
    study_case(make_lab(whole, say=again), SMALL)  # says nothing: runs nothing


def _check_study(numbers):
    """Look at the numbers of the small study, and at the report made of them."""
    rows = numbers["claim"]["rows"]
    assert [row["method"] for row in rows] == ["lmh", "adlmh", "adlmh-of-2"]
    assert [row["superchains"] * row["chains"] for row in rows] == [8, 8, 32]
    assert rows[1]["ratios"][0]["low"] <= rows[1]["ratios"][0]["value"]
    assert rows[1]["ratios"][2] is None
    assert hardest_target(numbers["claim"]) in (0, 1)
    assert [bar["steps"] for bar in numbers["bars"]] == [100, 200]
    assert sum(numbers["bars"][0]["selected"]) == pytest.approx(1.0)
    numbers = {**numbers, "settings": TINY.as_dict(), "seconds": 1.0}
    report = write_report({"small": json.loads(json.dumps(numbers))})
    for words in ("## Three variables (small)", "![small](small.png)", "AdLMH, superchains of 2"):
        assert words in report
    section = readme_section({"small": numbers}, "docs/paper")
    assert summary_table({"small": numbers}) in section


def test_a_short_run_is_the_start_of_a_long_one(tmp_path):
    for budget, name in ((TINY, "long"), (Budget(4, 100, 50, (100,), 0, seed=3), "short")):
        (tmp_path / name).mkdir()
        lab = make_lab(tmp_path / name, budget)
        if name == "long":
            early = schedule_at(lab, SMALL, ADLMH, 100, kept=50)
            long = lab.result(paper_stretch(lab, SMALL, ADLMH))
        else:
            short = lab.result(paper_stretch(lab, SMALL, ADLMH))
    for name in ("weights", "rewards", "selected", "accepted"):
        np.testing.assert_array_equal(early[name], short[name])
    shared = np.intersect1d(short["checkpoints"], long["checkpoints"])
    assert len(shared) > 15
    for arrays in (short, long):
        arrays["shared"] = arrays["curves"][..., np.isin(arrays["checkpoints"], shared)]
    np.testing.assert_array_equal(short["shared"], long["shared"])
    assert np.all(long["selected"].sum(axis=1) == 200)


def test_lemma_reaches_its_equilibrium(tmp_path):
    budget = Budget(restarts=16, steps=3_000, epoch=50, claim_restarts=0)
    path = reproduce(("lemma",), tmp_path, budget, say=lambda line: None, progress=False)
    numbers = storage.load_json(tmp_path / "lemma.json")["lemma"]
    assert numbers["steps"] == [1_000, 3_000]
    explored, greedy = (np.array(row["ratios"])[:, -1] for row in numbers["rows"])
    error = np.std(greedy, ddof=1) / math.sqrt(len(greedy))
    assert abs(np.mean(greedy) - numbers["theory"]) < 4.0 * error + 0.01
    assert np.mean(explored) > np.mean(greedy)  # exploration evens the selection out
    assert "0.2954" in path.read_text()
    assert (tmp_path / "lemma.png").stat().st_size > 10_000


def test_reproduce_refuses_an_unknown_case(tmp_path):
    with pytest.raises(ValueError, match="`hhm` is not a case"):
        reproduce(("hhm",), tmp_path, quick_budget())


def check_demo(directory, restarts, steps, seed):
    lines = []
    path = demo(directory, restarts, steps, seed, say=lines.append, progress=False)
    text = "\n".join(lines)
    assert re.search(rf"{steps:,} +0\.\d{{4}} +0\.\d{{4}} +0\.\d{{4}}", text)
    assert "influence selects most often" in text
    names = [file.name for file in sorted(directory.iterdir())]
    assert names == [path.name, "adlmh-demo.svg"] == ["adlmh-demo.png", "adlmh-demo.svg"]


def test_demo_of_a_small_case(tmp_path, monkeypatch):
    monkeypatch.setattr("adlmh_jax.paper.experiments.demonstration.HMM", SMALL)
    check_demo(tmp_path, restarts=4, steps=200, seed=3)


@pytest.mark.slow
def test_demo(tmp_path):
    check_demo(tmp_path, restarts=4, steps=1_000, seed=0)
