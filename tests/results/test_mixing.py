"""Effective sizes and R-hats against ArviZ, and what the other figures do on known chains."""

import time
import warnings

import arviz
import numpy as np
import pytest
from scipy.special import ndtri

from adlmh_jax.results.mixing import autocovariance, effective_size, measure_mixing, split_halves

IS_NEW_ARVIZ = int(arviz.__version__.split(".")[0]) >= 1


def make_chains(num_chains, num_draws, correlation=0.0, spread=0.0, seed=0):
    """Autoregressive chains of variance 1 around centres of standard deviation `spread`."""
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=(num_chains, num_draws))
    for t in range(1, num_draws):
        draws[:, t] *= np.sqrt(1 - correlation**2)
        draws[:, t] += correlation * draws[:, t - 1]
    return draws + spread * rng.normal(size=(num_chains, 1))


CHAINS = {
    "independent": make_chains(4, 100),
    "odd number of draws": make_chains(8, 101, 0.7),
    "slow": make_chains(16, 300, 0.95),
    "antithetic": make_chains(8, 200, -0.6),
    "apart": make_chains(4, 100, 0.3, spread=1.0),
    "stuck": make_chains(8, 50, 0.3, spread=1e3),
    "short": make_chains(8, 4),
    "five draws": make_chains(8, 5),
    "many": make_chains(600, 40, 0.5),
    "discrete": np.round(2 * make_chains(8, 120, 0.6)).astype(np.int32),
    "two values": (make_chains(8, 90, 0.5) > 1).astype(np.int8),
    "heavy tails": make_chains(8, 150, 0.4) ** 5,
    "single precision": make_chains(8, 150, 0.8).astype(np.float32),
}


@pytest.mark.parametrize("case", CHAINS)
def test_agrees_with_arviz(case):
    mixing = measure_mixing(CHAINS[case], 4)
    draws = CHAINS[case].astype(float)  # distances to the median are exact only in double precision
    prob = {"prob": (0.05, 0.95)} if IS_NEW_ARVIZ else {}
    squares = (draws - draws.mean()) ** 2
    assert mixing.ess_bulk == pytest.approx(float(arviz.ess(draws, method="bulk")), rel=1e-5)
    assert mixing.ess_tail == pytest.approx(float(arviz.ess(draws, method="tail", **prob)))
    assert mixing.ess_mean == pytest.approx(float(arviz.ess(draws, method="mean")), rel=1e-5)
    assert mixing.ess_square == pytest.approx(float(arviz.ess(squares, method="mean")), rel=1e-5)
    assert mixing.r_hat == pytest.approx(float(arviz.rhat(draws)), rel=1e-6)


@pytest.mark.parametrize("num_superchains", [2, 4])
@pytest.mark.parametrize("case", CHAINS)
def test_nested_r_hat_agrees_with_arviz(case, num_superchains):
    arviz_stats = pytest.importorskip("arviz_stats")
    draws = CHAINS[case].astype(float)
    superchains = np.repeat(np.arange(num_superchains), len(draws) // num_superchains)
    expected = arviz_stats.rhat_nested(draws, superchain_ids=superchains)
    nested_r_hat = measure_mixing(CHAINS[case], num_superchains).nested_r_hat
    assert nested_r_hat == pytest.approx(float(expected))


def test_nested_r_hat_by_hand():
    # Two superchains of two chains. Scores of half chains have mean +-b by superchain, and a
    # variance of v within: nested R-hat is sqrt(1 + 2 b**2 / v).
    draws = np.array([[0.0, 1, 0, 1], [1, 0, 1, 0], [2, 3, 2, 3], [3, 2, 3, 2]])
    scores = ndtri((np.array([2.5, 6.5, 10.5, 14.5]) - 3 / 8) / 16.25)
    centre = scores[2:].mean()
    within = (scores[3] - scores[2]) ** 2 / 2
    expected = np.sqrt(1 + 2 * centre**2 / within)
    assert measure_mixing(draws, 2).nested_r_hat == pytest.approx(expected)


def test_autocovariance_by_definition(monkeypatch):
    monkeypatch.setattr("adlmh_jax.results.mixing.BATCH_VALUES", 50)  # several batches
    draws = make_chains(5, 13, 0.4)
    centred = draws - draws.mean(axis=1, keepdims=True)
    expected = [
        np.mean(np.sum(centred[:, : 13 - t] * centred[:, t:], axis=1)) / 13 for t in range(13)
    ]
    np.testing.assert_allclose(autocovariance(draws), expected, atol=1e-12)


def test_effective_size_of_autoregression():
    # The autocorrelation time is (1 + rho) / (1 - rho).
    draws = make_chains(200, 1000, 0.8)
    assert effective_size(draws) == pytest.approx(200_000 / 9, rel=0.05)


def test_halves_leave_out_the_middle():
    halves = split_halves(np.array([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]))
    np.testing.assert_array_equal(halves, [[1, 2], [6, 7], [4, 5], [9, 10]])


def test_memory_drift_and_superchains():
    good = measure_mixing(make_chains(64, 400, 0.5), 4)
    assert abs(good.memory) < 0.5 and good.drift < 4 and good.superchain_p > 1e-4
    apart = measure_mixing(make_chains(64, 400, 0.5, spread=0.3), 4)
    assert apart.memory > 0.8
    moving = measure_mixing(make_chains(64, 400, 0.5) + np.linspace(0, 0.5, 400), 4)
    assert moving.drift > 5 and moving.shift == pytest.approx(0.25, abs=0.1)
    shifts = np.repeat([0.0, 0.0, 0.0, 0.3], 16)[:, None]
    unequal = measure_mixing(make_chains(64, 400, 0.5) + shifts, 4)
    assert unequal.superchain_p < 1e-6 and unequal.spread == pytest.approx(0.15, abs=0.05)


def test_without_meaning_there_is_nan_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        constant = measure_mixing(np.full((8, 20), 3.0), 4)
        assert constant.is_constant and np.isnan(constant.r_hat) and constant.num_still == 8
        still = measure_mixing(np.repeat(np.arange(8.0)[:, None], 20, axis=1), 4)
        assert not still.is_constant and still.num_still == 8 and still.r_hat > 1e6
        draws = make_chains(8, 20)
        draws[3, 4] = np.nan
        assert np.isnan(measure_mixing(draws, 4).ess_bulk)
        draws[3, 4] = np.inf
        assert np.isnan(measure_mixing(draws, 4).r_hat)
        assert np.isnan(measure_mixing(make_chains(8, 3), 4).ess_bulk)
        single = measure_mixing(make_chains(1, 100), 1)
        assert np.isnan(single.r_hat) and np.isnan(single.nested_r_hat) and single.ess_bulk > 50


def test_ten_thousand_chains_take_seconds():
    draws = np.random.default_rng(0).normal(size=(10_000, 200)).astype(np.float32)
    started = time.process_time()
    mixing = measure_mixing(draws, 4)
    assert time.process_time() - started < 10
    assert mixing.r_hat == pytest.approx(1, abs=1e-3)
