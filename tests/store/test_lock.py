"""One run at a time in a directory."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from tiny_run import assert_same, run

import adlmh_jax as adlmh
from adlmh_jax.store import lock

xarray = pytest.importorskip("xarray")
pytest.importorskip("fcntl")

HOLD = """
import sys, time
from pathlib import Path
from adlmh_jax.store.lock import Lock
held = Lock(Path(sys.argv[1]))
held.take()
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def other(tmp_path):
    """Return a process that runs in the directory."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_another_process_is_refused_until_it_is_killed(tmp_path, other):
    for resume in (False, True):
        with pytest.raises(adlmh.StoreError, match=rf"in use: .* of process {other.pid} on ") as e:
            run(tmp_path, resume=resume)
        assert "Wait until it ends, or name another directory." in str(e.value)
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert (tmp_path / lock.NAME).exists()
    run(tmp_path)


def test_two_runs_of_one_process(tmp_path):
    held = lock.Lock(tmp_path)
    held.take()
    held.take()  # no harm
    with pytest.raises(adlmh.StoreError, match=f"process {os.getpid()} on"):
        run(tmp_path)
    held.release()
    run(tmp_path)


@pytest.mark.parametrize("fault", [KeyboardInterrupt, RuntimeError])
def test_a_failed_run_lets_others_in(tmp_path, monkeypatch, fault):
    with monkeypatch.context() as patch:
        patch.setattr("adlmh_jax.session.run_phases", lambda *_: (_ for _ in ()).throw(fault))
        with pytest.raises(fault) as kept:  # and with it all that the run held
            run(tmp_path)
    run(tmp_path, resume=True)
    assert kept.value


def test_extending_waits_for_nobody(tmp_path, request):
    first = run(tmp_path, num_samples=30)
    request.getfixturevalue("other")
    with pytest.raises(adlmh.StoreError, match="is in use"):
        first.extend(20)


def test_extending_what_others_have_gone_on_with(tmp_path):
    first = run(tmp_path, num_samples=30)
    whole = run(tmp_path, resume=True)
    assert_same(first.extend(10), run(num_samples=40))
    stored = xarray.open_zarr(tmp_path / "draws.zarr", group="posterior")["rate"]
    np.testing.assert_array_equal(stored, whole.draws["rate"])
    assert_same(run(tmp_path, resume=True), whole)


def test_extending_what_others_have_removed_or_replaced(tmp_path):
    first = run(tmp_path / "run", num_samples=30)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(adlmh.StoreError, match="cannot be written: .*No such file"):
        first.extend(20)
    run(tmp_path / "run", key=1)
    with pytest.raises(adlmh.StoreError, match="is another one: it differs in key"):
        first.extend(20)


def test_file_systems_without_locks(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(lock.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    run(tmp_path / "unlocked")
    monkeypatch.setattr(lock, "fcntl", None)
    run(tmp_path / "none")
