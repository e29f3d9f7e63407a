"""Stored runs: what was interrupted goes on, and ends with the draws of an uninterrupted run."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax import sampling
from adlmh_jax.engine import progress
from adlmh_jax.store import directory

DATA = jnp.array([1.0, 3.0, 2.0])
SIZES = {"num_chains": 6, "num_superchains": 3, "num_warmup": 30, "num_samples": 50, "epoch": 4}


def model(data):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Poisson(rate), obs=data)


class Interrupted(Exception):
    """Stands for whatever ends a process."""


class Fuse(progress.SilentMeter):
    """A meter that ends the run after some chunks."""

    def __init__(self, num_chunks):
        self.num_chunks = num_chunks

    def update(self, num_draws, seconds, tallies):
        del num_draws, seconds, tallies
        self.num_chunks -= 1
        if not self.num_chunks:
            raise Interrupted


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of few draws, and a state written after each."""
    monkeypatch.setattr(directory, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(sampling, "max_chunk_rounds", lambda *others: 4)


def run(store=None, resume=False, key=0, **options):
    options = {**SIZES, **options}
    return adlmh.sample(key, model, (DATA,), store=store, resume=resume, progress=False, **options)


@pytest.mark.parametrize("num_chunks", [1, 3, 6])
def test_goes_on_where_it_was_interrupted(tmp_path, monkeypatch, small_chunks, num_chunks):
    whole = run()
    with monkeypatch.context() as patch:
        patch.setattr(progress, "SilentMeter", lambda: Fuse(num_chunks))
        with pytest.raises(Interrupted):
            run(tmp_path / "run")
    resumed = run(tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.draws["rate"], whole.draws["rate"])
    np.testing.assert_array_equal(resumed.log_density, whole.log_density)
    np.testing.assert_array_equal(resumed.schedule.selected, whole.schedule.selected)
    np.testing.assert_array_equal(resumed.statistics.mean, whole.statistics.mean)


def test_a_file_of_draws_without_its_state_is_written_anew(tmp_path, monkeypatch, small_chunks):
    whole = run()
    with monkeypatch.context() as patch:
        patch.setattr(progress, "SilentMeter", lambda: Fuse(6))
        with pytest.raises(Interrupted):
            run(tmp_path)
    numbers = sorted(path.name for path in tmp_path.glob("draws-*.npz"))
    (tmp_path / f"draws-{len(numbers):05d}.npz").write_bytes(b"half")
    np.testing.assert_array_equal(run(tmp_path, resume=True).draws["rate"], whole.draws["rate"])


def test_a_finished_run_is_read_back(tmp_path):
    first = run(tmp_path)
    again = run(tmp_path, resume=True)
    np.testing.assert_array_equal(again.draws["rate"], first.draws["rate"])


def test_refusals(tmp_path):
    run(tmp_path)
    with pytest.raises(ValueError, match="holds a run already. Pass `resume=True`"):
        run(tmp_path)
    with pytest.raises(ValueError, match="is another one: it differs in key, num_samples"):
        run(tmp_path, resume=True, key=1, num_samples=20)
