"""What a run tells of itself, and what the bar makes of it."""

import numpyro
import numpyro.distributions as dist

import adlmh_jax as adlmh
from adlmh_jax.engine import progress
from adlmh_jax.statistics import init_tallies


def model():
    numpyro.sample("x", dist.Normal(0.0, 1.0))


class Recording(progress.SilentMeter):
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def enter(self, phase):
        self.told.append(phase)

    def begin(self, num_draws, steps_per_draw):
        self.told.append((num_draws, steps_per_draw))

    def update(self, num_draws, seconds, tallies):
        self.told.append(num_draws)

    def close(self):
        self.told.append("closed")


def test_a_run_tells_its_phases(monkeypatch):
    meters = []

    def make():
        meters.append(Recording())
        return meters[-1]

    monkeypatch.setattr(progress, "SilentMeter", make)
    result = adlmh.sample(
        0, model, num_chains=8, num_warmup=20, num_samples=30, epoch=1, progress=False
    )
    result.extend(10)
    (begin, *first), second = (meter.told for meter in meters)
    assert begin == (50, 8)
    assert [word for word in first if isinstance(word, str)] == ["warm-up", "sampling", "closed"]
    assert sum(number for number in first if isinstance(number, int)) == 50
    assert second[0][0] == 10 and second[-1] == "closed"


def test_the_bar(capsys):
    with progress.make_meter(True) as meter:
        bar = meter._bar
        assert bar.desc == "starting"
        meter.enter("annealing")  # whatever the caller says
        assert bar.desc == "annealing"
        meter.begin(100, 8)
        meter.enter("warm-up")
        assert bar.desc == "compiling" and bar.total == 100
        meter.update(50, 3.0, init_tallies(1))
        assert bar.desc == "warm-up"
        meter.enter("sampling")
        meter.update(50, 1e-4, init_tallies(1))
        assert bar.desc == "sampling" and bar.n == 100
        assert bar.postfix == "4.00 M chain-steps/s, accepted 0.00"
    captured = capsys.readouterr()
    assert captured.out == "" and "Compiled in 3.0 s.\n" in captured.err
    last = captured.err.split("\r")[-1]
    assert last.startswith("sampling: 100%") and "100/100 draws" in last and "chain-steps/s" in last
