"""More draws: bit for bit those of a run that was asked for them at once."""

import copy
import pickle

import numpy as np
import pytest
import xarray
from tiny_run import assert_same, run

from adlmh_jax import session
from adlmh_jax.store import zarr

PLANS = {  # rounds of one draw; of seven draws; of several epochs
    "one": {"thinning": 4, "epoch": 4},
    "seven": {"thinning": 2, "epoch": 14},
    "epochs": {"thinning": 6, "epoch": 2},
}


SLOW = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of few rounds; runs of all lengths share their compiled code."""
    monkeypatch.setattr(session, "max_chunk_rounds", lambda *others: 4)


@pytest.mark.parametrize(
    ("plan", "adapt"),
    [
        ("one", "warmup"),
        ("seven", "always"),
        pytest.param("seven", "warmup", marks=SLOW),
        pytest.param("epochs", "always", marks=SLOW),
    ],
)
def test_extended_is_as_asked_at_once(plan, adapt):
    options = {**PLANS[plan], "adapt": adapt}
    whole, first = run(**options), run(num_samples=30, **options)
    before = copy.deepcopy(first.draws)
    assert_same(first.extend(20), whole)
    assert_same(first.extend(3).extend(17), whole)
    assert_same(run(num_samples=28, **options).extend(22), whole)
    np.testing.assert_array_equal(first.draws["rate"], before["rate"])
    assert first.num_draws == 30 and first.statistics.num_draws == 30


def test_extended_statistics_only():
    whole = run(keep=(), **PLANS["seven"])
    assert_same(run(keep=(), num_samples=30, **PLANS["seven"]).extend(20), whole)


def test_extended_in_its_store(tmp_path, monkeypatch):
    monkeypatch.setattr(zarr, "CHUNK_BYTES", 14 * 6 * 4)  # 28 draws are two chunks
    options = PLANS["seven"]
    first = run(tmp_path, num_samples=30, **options)
    extended = first.extend(20)
    assert_same(extended, run(**options))
    assert_same(run(tmp_path, resume=True, **options), extended)
    again = first.extend(5)  # the store keeps what it has
    assert again.num_draws == 35
    stored = xarray.open_zarr(tmp_path / "draws.zarr", group="posterior")["rate"]
    np.testing.assert_array_equal(stored, extended.draws["rate"])
    assert_same(run(tmp_path, resume=True, num_samples=60, **options), extended.extend(10))


def test_the_settings_and_words_of_an_extended_run():
    extended = run(num_samples=30).extend(20)
    assert extended.config.num_samples == extended.num_draws == 50
    assert "50 draws" in repr(extended)
    for wrong, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match="`num_samples` must be"):
            extended.extend(wrong)


def test_results_cannot_be_pickled():
    with pytest.raises(TypeError, match=r"to_netcdf\(path\)`, or the whole run with"):
        pickle.dumps(run())
