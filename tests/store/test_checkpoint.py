"""Stored runs: what was interrupted goes on, and ends with the draws of an uninterrupted run."""

import errno
import shutil

import numpy as np
import pytest
from tiny_run import SIZES, Telling, assert_same, run

import adlmh_jax as adlmh
from adlmh_jax import session
from adlmh_jax.engine import progress
from adlmh_jax.store import directory, files, zarr


class Ended(Exception):
    """Stands for whatever ends a process."""


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of few draws, and a state written after each."""
    monkeypatch.setattr(directory, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(session, "max_chunk_rounds", lambda *others: 4)


@pytest.fixture
def after(monkeypatch):
    """Do something after a number of chunks."""

    def arrange(num_chunks, act):
        count = iter(range(1, 10_000))
        act_in_time = lambda: act() if next(count) == num_chunks else None  # noqa: E731
        monkeypatch.setattr(progress, "SilentMeter", lambda: Telling(act_in_time))

    return arrange


def end():
    raise Ended


@pytest.fixture(scope="module")
def whole():
    return run()


@pytest.mark.parametrize("num_chunks", [1, 3, 6])
def test_goes_on_where_it_was_ended(tmp_path, after, small_chunks, whole, num_chunks):
    after(num_chunks, end)
    with pytest.raises(Ended):
        run(tmp_path / "run")
    assert_same(run(tmp_path / "run", resume=True), whole)


def test_goes_on_in_the_middle_of_annealing(tmp_path, after, small_chunks, monkeypatch):
    options = {"num_chains": 64, "num_superchains": 2, "num_warmup": 400}
    whole, betas = run(**options), []
    save = directory.Directory.save

    def save_and_look(store, done):
        betas.append(np.asarray(done.state.superchains.annealing.beta))
        save(store, done)

    monkeypatch.setattr(directory.Directory, "save", save_and_look)
    after(1, end)
    with pytest.raises(Ended):
        run(tmp_path / "run", **options)
    assert (betas[-1] > 0.0).all() and (betas[-1] < 1.0).all()
    resumed = run(tmp_path / "run", resume=True, **options)
    assert_same(resumed, whole)
    np.testing.assert_array_equal(
        resumed.log_evidence.by_superchain, whole.log_evidence.by_superchain
    )


def test_draws_beyond_the_state_are_written_anew(tmp_path, after, small_chunks, whole, monkeypatch):
    monkeypatch.setattr(zarr, "CHUNK_BYTES", 16 * 6 * 4)
    after(7, end)  # 28 draws, in chunks of 16
    with pytest.raises(Ended):
        run(tmp_path)
    rate = tmp_path / "draws.zarr" / "posterior" / "rate"
    chunks = sorted(rate.glob("[0-9]*"))
    partial = np.frombuffer(chunks[-1].read_bytes(), np.float32).copy().reshape(6, 16)
    partial[:, -1] = 7.0
    chunks[-1].write_bytes(partial.tobytes())
    (rate / f"0.{len(chunks)}").write_bytes(b"half")
    (rate / ".0.9.part").write_bytes(b"half")
    assert_same(run(tmp_path, resume=True), whole)
    assert not list(tmp_path.rglob("*.part"))


def test_a_finished_run_is_read_back(tmp_path, whole):
    run(tmp_path)
    assert_same(run(tmp_path, resume=True), whole)


@pytest.mark.parametrize("options", [{}, {"thinning": 1, "epoch": 7}, {"keep": ()}])
def test_goes_on_for_longer(tmp_path, options):
    run(tmp_path, num_samples=20, **options)
    longer = run(tmp_path, resume=True, num_samples=50, **options)
    assert_same(longer, run(**options))


def test_refusals(tmp_path):
    run(tmp_path)
    with pytest.raises(adlmh.StoreError, match="holds a run already. Pass `resume=True`"):
        run(tmp_path)
    with pytest.raises(adlmh.StoreError, match="is another one: it differs in key"):
        run(tmp_path, resume=True, key=1)
    with pytest.raises(adlmh.StoreError, match="differs in num_warmup"):
        run(tmp_path, resume=True, num_warmup=10)
    with pytest.raises(adlmh.StoreError, match="holds 50 draws already, more than `num_samples`"):
        run(tmp_path, resume=True, num_samples=49)
    with pytest.raises(ValueError, match="`resume=True` needs `store`"):
        run(resume=True)


def test_draws_without_a_state_are_not_overwritten(tmp_path):
    run(tmp_path)
    (tmp_path / "state.bin").unlink()
    for resume in (False, True):
        with pytest.raises(adlmh.StoreError, match="state.bin is missing"):
            run(tmp_path, resume=resume)


@pytest.mark.parametrize("num_writes", [1, 9, 30, 51])
def test_a_full_disk(tmp_path, small_chunks, whole, monkeypatch, num_writes):
    count = iter(range(10_000))

    def fsync(handle):
        if next(count) >= num_writes:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", fsync)
        with pytest.raises(adlmh.StoreError, match="cannot be written: .*No space left"):
            run(tmp_path / "run")
    assert not list(tmp_path.rglob("*.part"))
    if num_writes > 20:
        xarray = pytest.importorskip("xarray")
        dataset = xarray.open_zarr(tmp_path / "run" / "draws.zarr", group="posterior")
        num_draws = dataset.sizes["draw"]
        np.testing.assert_array_equal(dataset["rate"], whole.draws["rate"][:, :num_draws])
    assert_same(run(tmp_path / "run", resume=True), whole)


@pytest.mark.parametrize("num_chunks", [1, 7])
def test_a_directory_that_is_removed(tmp_path, after, small_chunks, num_chunks):
    after(num_chunks, lambda: shutil.rmtree(tmp_path / "run"))
    with pytest.raises(adlmh.StoreError, match="cannot be written: .*No such file"):
        run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_path_that_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("text")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(adlmh.StoreError, match="file' is a file, not a directory. Name anoth"):
            run(path)
    assert (tmp_path / "file").read_text() == "text"


def test_throttled_runs_are_written_at_the_end(tmp_path, whole):
    assert directory.SECONDS_BETWEEN >= 1.0
    run(tmp_path)
    xarray = pytest.importorskip("xarray")
    dataset = xarray.open_zarr(tmp_path / "draws.zarr", group="posterior")
    assert dataset.sizes["draw"] == SIZES["num_samples"]
    np.testing.assert_array_equal(dataset["rate"], whole.draws["rate"])
