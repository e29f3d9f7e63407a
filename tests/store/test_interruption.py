"""Ctrl-C and SIGTERM: a run ends with the draws that it has."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_run import Telling, assert_same, run

import adlmh_jax as adlmh
from adlmh_jax import session
from adlmh_jax.engine import progress

SCRIPT = Path(__file__).with_name("tiny_run.py")
MAX_SECONDS = 2.0  # between a signal and the end of the run


@pytest.fixture(autouse=True)
def default_handlers():
    """Handle signals as a program in the foreground does; one in the background ignores some."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_is_ignored_goes_on_being_ignored(monkeypatch):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(progress, "SilentMeter", lambda: Telling(twice))
    assert run().num_draws == 50


@pytest.fixture
def signals(monkeypatch):
    """Send signals after some chunks of few draws."""
    monkeypatch.setattr(session, "max_chunk_rounds", lambda *others: 4)

    def arrange(**by_chunk):
        numbers = {int(chunk[1:]): number for chunk, number in by_chunk.items()}
        count = iter(range(1, 10_000))

        def act():
            number = numbers.get(next(count))
            if number:
                signal.raise_signal(number)

        monkeypatch.setattr(progress, "SilentMeter", lambda: Telling(act))

    return arrange


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_has_its_draws(signals, number, tmp_path):
    before = signal.getsignal(number)
    whole = run()
    signals(c7=number)
    with pytest.warns(adlmh.InterruptedWarning, match=r"after \d+ of 50 draws"):
        result = run(tmp_path)
    assert signal.getsignal(number) is before
    num_draws = result.num_draws
    assert 0 < num_draws < 50 and result.config.num_samples == 50
    assert result.draws["rate"].shape == result.log_density.shape == (6, num_draws)
    np.testing.assert_array_equal(result.draws["rate"], whole.draws["rate"][:, :num_draws])
    assert f"{num_draws} draws" in repr(result)
    assert len(result.summary()) == 1 and result.diagnose().verdict
    assert result.to_arviz().posterior.sizes["draw"] == num_draws
    assert_same(result.extend(50 - num_draws), whole)
    assert_same(run(tmp_path, resume=True), whole)


def test_interrupted_in_warmup(signals, tmp_path):
    whole = run()
    signals(c2=signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="during warm-up"):
        run(tmp_path)
    header = json.loads((tmp_path / "state.bin").read_bytes().split(b"\n")[0][9:])
    assert 0 < header["num_warmup"] < 30 and header["arrays"]
    signals()
    assert_same(run(tmp_path, resume=True), whole)


def test_interrupted_at_the_first_draw(signals):
    signals(c1=signal.SIGINT)
    with pytest.warns(adlmh.InterruptedWarning, match="after 1 of 50"):
        result = run(num_warmup=0, epoch=1, thinning=1)
    assert result.num_draws == 1
    assert len(result.summary()) == 1 and result.diagnose().verdict
    assert result.to_arviz().posterior.sizes["draw"] == 1


def test_a_second_signal_ends_at_once(monkeypatch):
    monkeypatch.setattr(progress, "SilentMeter", lambda: Telling(twice))
    with pytest.raises(KeyboardInterrupt, match="a second signal"):
        run()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def twice():
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


def test_other_threads_leave_signals_alone(monkeypatch):
    seen, results = [], []
    look = lambda: seen.append(signal.getsignal(signal.SIGINT))  # noqa: E731
    monkeypatch.setattr(progress, "SilentMeter", lambda: Telling(look))
    thread = threading.Thread(target=lambda: results.append(run()))
    thread.start()
    thread.join()
    assert results[0].num_draws == 50
    assert set(seen) == {signal.default_int_handler}


def test_a_process_that_gets_ctrl_c(tmp_path):
    environment = {**os.environ, "ADLMH_TEST_CACHE": jax.config.jax_compilation_cache_dir}
    command = [sys.executable, str(SCRIPT), "interrupted", str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "sampling\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        said = json.loads(process.stdout.readline())
        assert time.monotonic() - started < 10  # the result is put together, too
        assert process.wait() == 0
    assert said["longest"] < MAX_SECONDS
    assert f"after {said['num_draws']} of 10000000 draws" in said["warnings"][0]
    draws = np.load(tmp_path / "draws.npy")
    assert draws.shape == (6, said["num_draws"])
    xarray = pytest.importorskip("xarray")
    stored = xarray.open_zarr(tmp_path / "draws.zarr", group="posterior")["rate"]
    np.testing.assert_array_equal(stored, draws)
    first = run(num_samples=200).draws["rate"]
    np.testing.assert_array_equal(draws[:, :200], first)
