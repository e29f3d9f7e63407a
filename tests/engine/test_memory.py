"""Runs that do not fit into memory are refused before anything is compiled."""

import time

import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax import sampling
from adlmh_jax.engine import memory


def model():
    numpyro.sample("x", dist.Normal().expand([3]).to_event(1))


@pytest.fixture
def some_memory(monkeypatch, tmp_path):
    """A machine with 16 GB free, on which nothing may be started."""
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:   15625000 kB\n")
    monkeypatch.setattr(memory, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(sampling, "_start", lambda *others: pytest.fail("started"))


def test_too_many_draws(some_memory):
    started = time.monotonic()
    with pytest.raises(ValueError) as caught:
        adlmh.sample(0, model, num_chains=100_000, num_samples=100_000)
    assert time.monotonic() - started < 5
    said = str(caught.value)
    assert "16.0 GB that are free: 100,000 chains x 100,000 draws x 4 scalars x 4 bytes" in said
    assert "= 160.0 GB of draws" in said
    assert all(f"`{name}" in said for name in ("keep=", "thinning=", "num_chains"))


def test_too_many_chains(some_memory):
    with pytest.raises(ValueError, match="x no scalars = 0 bytes of draws, .* GB of chains"):
        adlmh.sample(0, model, num_chains=10**8, num_samples=10, keep=())


def test_unknown_memory(monkeypatch, tmp_path):
    for text in (None, "", "MemAvailable:", "MemAvailable: x kB"):
        path = tmp_path / "meminfo"
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(memory, "MEMORY", path)
        assert memory.free_bytes() is None


def test_an_extended_run_is_checked(request):
    result = adlmh.sample(0, model, num_chains=4, num_warmup=5, num_samples=5, progress=False)
    request.getfixturevalue("some_memory")
    with pytest.raises(ValueError, match="4 chains x 1,000,000,005 draws"):
        result.extend(10**9)
