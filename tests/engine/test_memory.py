"""Runs that do not fit into memory are refused before anything is compiled."""

import time
from typing import NamedTuple

import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax import session
from adlmh_jax.engine import Devices, RunConfig, build_engine, choose_devices, memory


def model():
    numpyro.sample("x", dist.Normal().expand([3]).to_event(1))


@pytest.fixture
def some_memory(monkeypatch, tmp_path):
    """A machine with 16 GB free, on which nothing may be started."""
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:   15625000 kB\n")
    monkeypatch.setattr(memory, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(session, "_start", lambda *others: pytest.fail("started"))


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


class Accelerator(NamedTuple):
    """What a device says of its memory."""

    stats: dict | None

    def memory_stats(self):
        return self.stats


class Accelerators(NamedTuple):
    """Devices of the runner, with other ones behind them."""

    local_devices: list
    size: int


def free_on(*stats, size=2):
    return Devices(Accelerators([Accelerator(own) for own in stats], size), False).free_bytes()


def test_memory_of_devices():
    """The least that one of them has free, times their number: they share evenly."""
    full, half = ({"bytes_limit": 16, "bytes_in_use": used, "num_allocs": 3} for used in (15, 8))
    assert free_on(full, half) == 2
    assert free_on(half, half, size=4) == 32  # two of another process
    assert free_on(None, None) is free_on(half, None) is free_on({"num_allocs": 1}) is None
    assert choose_devices(None, 2).free_bytes() is None  # a CPU's is the host's


def test_chains_are_on_the_devices_and_draws_on_the_host(some_memory, monkeypatch):
    """Chains that would fill 16 GB of the host may be on devices that have more."""
    many = {"num_chains": 10**8, "num_samples": 10, "keep": ()}
    monkeypatch.setattr(Devices, "free_bytes", lambda devices: 10**12)
    with pytest.raises(pytest.fail.Exception, match="started"):
        adlmh.sample(0, model, **many)
    with pytest.raises(ValueError, match="16.0 GB .*: .* GB while they are joined. Keep"):
        adlmh.sample(0, model, num_chains=10**5, num_samples=10**5)
    monkeypatch.setattr(Devices, "free_bytes", lambda devices: 10**9)
    message = "1.0 GB .* on its devices: 100,000,000 chains take .* GB of chains .* `devices`"
    with pytest.raises(ValueError, match=message):
        adlmh.sample(0, model, **many)


def test_memory_of_a_chain():
    """As the page on GPUs says: scalars, terms, outputs and components of the model above."""
    program = adlmh.compile_model(model)
    engine = build_engine(program, schedule=adlmh.uniform(), proposals="prior")
    few, many = (RunConfig(num_chains=number, num_superchains=2) for number in (200, 300))
    terms, components = program.term_layout.num_scalars, engine.spec.kernel.num_components
    each = 4 * (3 + terms + 7 * 3) + components + 4  # and one feature of annealing
    assert memory.state_bytes(engine, many) - memory.state_bytes(engine, few) == 100 * each
    words, num_draws = engine.spec.kernel.num_words, engine.spec.plan.num_draws
    slots = [(3, 4), (1, 4)]  # x and the density
    each = 64 * 16 * words + 2 * num_draws * 16
    logged = 2 * engine.spec.num_logged(100) * 64 * 4
    assert memory.step_bytes(engine, few, slots) == 200 * each + logged


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
