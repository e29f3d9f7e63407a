"""What a run tells of itself, and what the bar makes of it."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax.engine import looking, progress, runner
from adlmh_jax.engine.looking import Look


def model():
    numpyro.sample("x", dist.Normal(0.0, 1.0))


def regression(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
    with numpyro.plate("places", 2):
        numpyro.sample("offset", dist.Normal(mean, 1.0))
    numpyro.sample("y", dist.Normal(mean, 0.1), obs=y)


SIZES = {"num_chains": 48, "num_superchains": 3, "num_warmup": 200, "num_samples": 100, "keep": ()}
DATA = np.array([2.0, 2.1, 1.9], np.float32)


class Recording(progress.SilentMeter):
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def enter(self, phase):
        self.told.append(phase)

    def begin(self, num_draws, steps_per_draw):
        self.told.append((num_draws, steps_per_draw))

    def update(self, num_draws, seconds, look):
        self.told.append(num_draws)

    def close(self):
        self.told.append("closed")


class Watching(progress.SilentMeter):
    """Keeps what it sees."""

    is_seen = True

    def __init__(self):
        self.looks = []

    def update(self, num_draws, seconds, look):
        self.looks.append(look)


@pytest.fixture
def watching(monkeypatch):
    """Let runs be watched, in many small chunks."""
    meter = Watching()
    monkeypatch.setattr(progress, "SilentMeter", lambda: meter)
    monkeypatch.setattr(runner, "CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(runner, "LOOK_SHARE", np.inf)
    return meter


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
        meter.update(10, 3.0, Look(0.25, 0.0312))
        assert bar.desc == "annealing" and bar.postfix == "beta 0.031, accepted 0.25"
        meter.update(20, 1e-4, None)
        assert bar.desc == "annealing"
        meter.update(20, 1e-4, Look(0.0, 1.0))
        assert bar.desc == "warm-up"
        assert bar.postfix == "1.60 M chain-steps/s, accepted 0.00"
        meter.enter("sampling")
        meter.update(50, 1e-4, Look(0.5, 1.0, 1.0123, "rate"))
        assert bar.desc == "sampling" and bar.n == 100
        assert bar.postfix == "R-hat 1.012 (rate), 4.00 M chain-steps/s, accepted 0.50"
    captured = capsys.readouterr()
    assert captured.out == "" and "Compiled in 3.0 s.\n" in captured.err
    last = captured.err.split("\r")[-1]
    assert last.startswith("sampling: 100%") and "100/100 draws" in last and "chain-steps/s" in last


def test_the_bar_knows_no_draws_of_a_first_chunk_that_nobody_saw():
    with progress.make_meter(True) as meter:
        meter.begin(100, 8)
        meter.enter("warm-up")
        meter.update(10, 3.0, None)
        assert meter._bar.desc == "warm-up" and not meter._bar.postfix


def test_what_is_seen_of_a_run_is_what_its_result_says(watching):
    """Three superchains on two devices: the fourth, which fills them up, is not looked at."""
    result = adlmh.sample(0, regression, (DATA,), progress=False, **SIZES)
    hats = result.summary()["nested_r_hat"]
    last = watching.looks[-1]
    assert last.r_hat == pytest.approx(hats.max(), rel=1e-12) and last.worst == hats.idxmax()
    assert last.r_hat > 1.0
    accepted, selected = (result.schedule.component_accepted, result.schedule.component_selected)
    assert last.acceptance == pytest.approx(accepted.sum() / selected.sum())


def test_annealing_is_seen(watching):
    adlmh.sample(0, regression, (DATA,), progress=False, **SIZES)
    betas = [look.beta for look in watching.looks]
    assert betas == sorted(betas) and 0 <= betas[0] < 1 and betas[-1] == 1
    hats = [look.r_hat for look in watching.looks]
    num_unknown = int(np.sum(np.isnan(hats)))  # none is known before sampling
    assert 1 <= num_unknown < len(hats) and not np.any(np.isnan(hats[num_unknown:]))
    assert betas[num_unknown - 1] == 1


def test_data_sets_are_not_compared_with_each_other(watching):
    datasets = [(DATA,), (DATA + 5,)]
    sizes = {**SIZES, "num_chains": 32, "num_superchains": 2}
    results = adlmh.sample_many(0, regression, datasets, progress=False, **sizes)
    hats = [each.summary()["nested_r_hat"].max() for each in results]
    assert watching.looks[-1].r_hat == pytest.approx(max(hats), rel=1e-12)


def test_what_cannot_be_known_is_left_out(watching, monkeypatch):
    alone = {**SIZES, "num_superchains": 1}
    adlmh.sample(0, regression, (DATA,), progress=False, **alone)
    monkeypatch.setattr(looking, "MAX_NUMBERS", 3 * 48 - 1)
    adlmh.sample(0, regression, (DATA,), progress=False, **SIZES)
    assert all(np.isnan(look.r_hat) and not look.worst for look in watching.looks)


def test_constant_outputs_have_no_r_hat():
    view = looking.View(2, 2, ["still", "apart"])
    means = np.array([[[1.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [3.0, 3.0]]])
    hats = looking._measure(view, means, np.zeros_like(means))
    assert np.isnan(hats[0]) and np.isinf(hats[1])


def test_nobody_looks_at_a_silent_run(monkeypatch):
    def refuse(*others):
        raise AssertionError

    monkeypatch.setattr(runner, "_look", refuse)
    adlmh.sample(0, model, num_chains=8, num_warmup=20, num_samples=30, progress=False)
