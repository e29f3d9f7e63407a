"""Simulation-based calibration: of a right model, of a wrong one, and of its arithmetic."""

import dataclasses
import functools

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax import calibrating
from adlmh_jax.engine import Draws
from adlmh_jax.results import Calibration, rank

READINGS = np.zeros(4, np.float32)
sbc = functools.partial(
    adlmh.sbc, num_datasets=100, num_chains=32, num_warmup=200, num_samples=20, progress=False
)

pytestmark = pytest.mark.filterwarnings("ignore::adlmh_jax.ConvergenceWarning")


def counts(readings):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("places", readings.shape[0]):
        count = numpyro.sample("count", dist.Poisson(rate))
        numpyro.sample("reading", dist.Normal(count, 0.5), obs=readings)


def test_ranks_of_uniform_draws_and_ties():
    rng = np.random.default_rng(0)
    assert rank(np.array([0.5, 9.0]), np.array([[0.1, 0.7], [1.0, 2.0]]), rng).tolist() == [1, 2]
    ties = rank(np.zeros(3000), np.zeros((3000, 4)), rng)
    assert np.bincount(ties).min() > 500


def test_bands_hold_as_often_as_they_say():
    """Of 400 sets of uniform ranks 5 % have p < 0.05: 20 with sd 4.4; 2 to 42 within 1e-5."""
    rng = np.random.default_rng(1)
    ranks = {str(number): rng.integers(0, 33, size=100) for number in range(400)}
    values = np.array(list(Calibration(ranks, 32).p_values.values()))
    assert 2 <= np.sum(values < 0.05) <= 42
    skewed = {"too low": rng.binomial(32, 0.42, size=100), "too wide": rng.integers(8, 25, 100)}
    found = Calibration(skewed, 32)
    assert found.suspects == ["too low", "too wide"]
    assert "Not calibrated" in repr(found)


@pytest.mark.parametrize("number", [1, 30])
def test_what_leaves_the_band_is_suspect(number):
    rng = np.random.default_rng(2)
    middles = np.linspace(0.3, 0.7, number) if number > 1 else [0.42]
    ranks = {str(p): np.rint(32 * rng.beta(6 * p, 6 - 6 * p, size=60)).astype(int) for p in middles}
    ranks |= {f"fine {number}": rng.integers(0, 33, size=60) for number in range(number)}
    found = Calibration(ranks, 32)
    low, high = found.band
    below = {name: found.num_below(name) for name in ranks}
    outside = [name for name, b in below.items() if np.any((b < low) | (b > high))]
    assert found.suspects == outside and 0 < len(outside) < len(ranks)


def test_a_right_model_is_calibrated():
    calibration = sbc(0, counts, (READINGS,), outputs=["rate", "count"])
    assert set(calibration.ranks) == {"rate", *(f"count[{i}]" for i in range(4)), "log density"}
    assert min(calibration.p_values.values()) > 1e-3
    assert calibration.is_calibrated


def test_draws_that_ignore_the_data_are_found(monkeypatch):
    """Prior draws: the ranks of the parameters are uniform, those of the log density are not."""

    def sample_prior(*args, **settings):
        results = adlmh.sample_many(*args, **{**settings, "num_samples": 1, "num_warmup": 0})
        rng = np.random.default_rng(2)
        shape = (results.each.num_chains, len(results))
        rates = rng.gamma(2.0, size=shape).astype(np.float32)
        densities = [
            results.engine.program.evaluate_datasets(
                {"rate": rate, "count": rng.poisson(rate[:, None], (len(rate), 4))}
            )[0]
            for rate in rates
        ]
        lp = [sum(t.reshape(len(t), -1).sum(axis=1) for t in terms.values()) for terms in densities]
        draws = Draws({"rate": rates.T.reshape(-1, 1)}, np.array(lp).T.reshape(-1, 1))
        return dataclasses.replace(results, recorded=draws)

    monkeypatch.setattr(calibrating, "sample_many", sample_prior)
    calibration = sbc(0, counts, (READINGS,), outputs=["rate"])
    assert calibration.suspects == ["log density"]


@pytest.mark.parametrize(
    ("data", "message"),
    [(["photons"], "`data` names `photons`; the observed sites are `reading`"), ([], "leaves out")],
)
def test_names_that_are_no_data(data, message):
    with pytest.raises(ValueError, match=message):
        sbc(0, counts, (READINGS,), data=data)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_datasets": 0}, ValueError, "`num_datasets` must be at least 1, got 0"),
        ({"num_datasets": 2.5}, TypeError, "`num_datasets` must be a whole number"),
        ({"keep": ()}, ValueError, "leave `keep` out"),
    ],
)
def test_settings_that_make_no_calibration(settings, error, message):
    with pytest.raises(error, match=message):
        sbc(0, counts, (READINGS,), **settings)


def test_models_that_cannot_make_data():
    def with_factor():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("pull", -x)

    with pytest.raises(ValueError, match="has the factor `pull`"):
        sbc(0, with_factor)
    with pytest.raises(ValueError, match="observes nothing"):
        sbc(0, lambda: numpyro.sample("x", dist.Normal(0.0, 1.0)))
