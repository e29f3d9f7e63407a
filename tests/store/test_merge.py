"""Parts of a run, made one by one and put together: the run of all superchains."""

import functools
import sys

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray

import adlmh_jax as adlmh
from adlmh_jax.cli import main
from adlmh_jax.results import read_record
from adlmh_jax.store.lock import Lock

READINGS = np.array([1.2, 3.1, 0.4, 2.5])
sample = functools.partial(
    adlmh.sample, num_chains=6 * 4, num_superchains=6, num_warmup=20, progress=False
)

pytestmark = pytest.mark.filterwarnings("ignore::adlmh_jax.ConvergenceWarning")


def counts(readings, noise=0.5):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("places", readings.shape[0]):
        count = numpyro.sample("count", dist.Poisson(rate))
        numpyro.sample("reading", dist.Normal(count, noise), obs=readings)


def run(path, first, last, seed=0, num_samples=15, **settings):
    return sample(
        seed,
        counts,
        (READINGS,),
        superchains=range(first, last),
        store=path,
        num_samples=num_samples,
        **settings,
    )


def assert_same(one, other):
    for name, array in other.draws.items():
        np.testing.assert_array_equal(one.draws[name], array)
    states = zip(*(jax.tree.leaves(r.state.superchains) for r in (one, other)), strict=True)
    for first, second in states:
        np.testing.assert_array_equal(np.asarray(first)[:6], np.asarray(second)[:6])


def test_parts_make_the_run_that_was_never_divided(tmp_path):
    whole = sample(0, counts, (READINGS,), num_samples=15)
    part = run(tmp_path / "b", 3, 6)
    assert part.num_superchains == 3
    assert part.superchain_of.tolist() == [n for n in (3, 4, 5) for _ in range(4)]
    assert part.to_arviz()["posterior"]["superchain"].values.max() == 5
    assert read_record(tmp_path / "b").num_superchains == 3
    run(tmp_path / "a", 0, 1)
    run(tmp_path / "c", 1, 3)
    into = adlmh.merge(str(tmp_path / "?"), tmp_path / "all")
    stored = xarray.open_zarr(into / "draws.zarr", group="posterior")
    np.testing.assert_array_equal(stored["rate"].values, whole.draws["rate"])
    merged = sample(0, counts, (READINGS,), num_samples=15, store=into, resume=True)
    assert_same(merged, whole)
    assert_same(merged.extend(5), whole.extend(5))


def test_what_is_missing_is_said(tmp_path):
    run(tmp_path / "a", 1, 2)
    run(tmp_path / "b", 3, 4)
    missing = r"range\(0, 1\), range\(2, 3\), range\(4, 6\) are missing"
    with pytest.raises(adlmh.StoreError, match=f"has 6 superchains, and {missing}"):
        adlmh.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_parts_of_different_runs_are_refused(tmp_path):
    run(tmp_path / "a", 0, 3)
    others = {
        "they differ in key": {"seed": 1},
        "they differ in num_warmup": {"num_warmup": 30},
        "has 25 draws.*has 15 draws": {"num_samples": 25},
    }
    for number, (message, settings) in enumerate(others.items()):
        run(tmp_path / str(number), 3, 6, **settings)
        with pytest.raises(adlmh.StoreError, match=message):
            adlmh.merge([tmp_path / "a", tmp_path / str(number)], tmp_path / "all")
    run(tmp_path / "c", 2, 6)
    with pytest.raises(adlmh.StoreError, match=r"range\(2, 6\) in .* overlap"):
        adlmh.merge([tmp_path / "a", tmp_path / "c"], tmp_path / "all")
    with pytest.raises(adlmh.StoreError, match="There are no directories"):
        adlmh.merge(str(tmp_path / "nothing*"), tmp_path / "all")
    with pytest.raises(adlmh.StoreError, match="holds no stored run"):
        adlmh.merge([tmp_path], tmp_path / "all")


def test_parts_that_are_running_or_fail_on_the_way(tmp_path, monkeypatch):
    run(tmp_path / "a", 0, 6)
    lock = Lock(tmp_path / "a")
    lock.take()
    with pytest.raises(adlmh.StoreError, match="is in use"):
        adlmh.merge([tmp_path / "a"], tmp_path / "all")
    lock.release()
    module = sys.modules["adlmh_jax.store.merge"]  # `store.merge` is the function
    monkeypatch.setattr(module, "write_snapshot", lambda *others: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        adlmh.merge(tmp_path / "a", tmp_path / "all")
    monkeypatch.undo()
    adlmh.merge(tmp_path / "a", tmp_path / "all")  # nothing was left behind


def test_a_directory_that_holds_a_run_is_not_written(tmp_path):
    run(tmp_path / "a", 0, 6)
    with pytest.raises(adlmh.StoreError, match="holds a run already"):
        adlmh.merge([tmp_path / "a"], tmp_path / "a")


@pytest.mark.parametrize(
    ("superchains", "error", "message"),
    [
        (range(3, 9), ValueError, r"range\(3, 9\) is no part of the run.*range\(6\)"),
        (range(2, 2), ValueError, "is no part of the run"),
        (range(0, 6, 2), TypeError, "must be a range such as"),
        (3, TypeError, "must be a range such as"),
    ],
)
def test_ranges_that_are_no_part_of_the_run(superchains, error, message):
    with pytest.raises(error, match=message):
        sample(0, counts, (READINGS,), superchains=superchains)


def test_starting_values_of_each_chain_stay_with_their_chains():
    rates = np.linspace(1.0, 5.0, 24)
    few = {"num_samples": 2, "thinning": 1, "init": {"rate": rates}}
    whole = sample(0, counts, (READINGS,), **few)
    part = sample(0, counts, (READINGS,), superchains=range(2, 4), **few)
    np.testing.assert_array_equal(part.draws["rate"], whole.draws["rate"][8:16])


def test_the_command_line(tmp_path, capsys):
    (tmp_path / "tiny.py").write_text(
        "import numpyro, numpyro.distributions as dist\n"
        "def model():\n    numpyro.sample('n', dist.Poisson(3.0))\n"
    )
    base = ["run", f"{tmp_path}/tiny.py:model", "--chains", "8", "--num-superchains", "4"]
    base += ["--warmup", "10", "--samples", "10", "--quiet"]
    for part in ("0:2", "2:4"):
        main([*base, "--superchains", part, "--store", f"{tmp_path}/part-{part[0]}"])
    parts = [f"{tmp_path}/part-0", f"{tmp_path}/part-2"]
    assert main(["merge", *parts, "--into", f"{tmp_path}/all"]) == 0
    assert main([*base, "--store", f"{tmp_path}/all", "--resume"]) in (0, 3)
    assert main(["merge", parts[0], "--into", f"{tmp_path}/other"]) == 2
    assert "range(2, 4) is missing" in capsys.readouterr().err
