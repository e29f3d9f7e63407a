import numpy as np
import pytest
from scipy import stats

from adlmh_jax.paper import distances


def test_kl_divergence_by_hand():
    truth = np.array([[0.5, 0.5], [0.25, 0.75]])
    counts = np.array([[1, 3], [2, 2]])
    expected = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    expected += 0.25 * np.log(0.25 / 0.5) + 0.75 * np.log(0.75 / 0.5)
    assert distances.kl_divergence(truth, counts, pseudocount=0.0) == pytest.approx(expected)


def test_kl_divergence_smooths_empty_cells():
    truth = np.array([[0.5, 0.5]])
    # Counts (2, 0) become (2.5, 0.5) / 3.
    expected = 0.5 * np.log(0.5 / (2.5 / 3)) + 0.5 * np.log(0.5 / (0.5 / 3))
    assert distances.kl_divergence(truth, np.array([[2, 0]])) == pytest.approx(expected)


def test_kl_divergence_of_an_impossible_value():
    truth = np.array([[1.0, 0.0]])
    assert distances.kl_divergence(truth, np.array([[3, 1]]), pseudocount=0.0) == pytest.approx(
        np.log(4 / 3)
    )


def test_kl_divergence_refuses_mismatched_shapes():
    with pytest.raises(ValueError, match=r"\(outputs, values\)"):
        distances.kl_divergence(np.array([0.5, 0.5]), np.array([1, 1]))


def test_ks_distance_by_hand():
    # Uniform on [0, 1]: at 0.7 the empirical function jumps from 1/3 to 1.
    samples = np.array([0.7, 0.2, 0.7])
    assert distances.ks_distance(samples, lambda x: x) == pytest.approx(0.7 - 1 / 3)


def test_ks_distance_equals_scipy():
    samples = np.random.default_rng(0).normal(0.3, 1.2, size=(3, 200))
    expected = [stats.kstest(row, stats.norm.cdf).statistic for row in samples]
    np.testing.assert_allclose(distances.ks_distance(samples, stats.norm.cdf), expected)


def test_l2_distance_by_hand():
    values = np.array([[3.0, 4.0], [1.0, 1.0]])
    np.testing.assert_allclose(distances.l2_distance(values, np.array([0.0, 0.0])), [5, np.sqrt(2)])


def test_distances_of_draws():
    draws = np.array([[[0, 1], [0, 0], [1, 0], [0, 0]]])  # one restart, four draws, two outputs
    np.testing.assert_array_equal(distances.value_counts(draws, 2), [[[3, 1], [3, 1]]])
    probabilities = np.array([[0.5, 0.5], [0.5, 0.5]])
    expected = 2 * distances.kl_divergence(probabilities[:1], np.array([[3, 1]]))
    np.testing.assert_allclose(distances.kl_of_draws(draws, probabilities), [expected])
    np.testing.assert_allclose(distances.l2_of_draws(draws, np.array([0.25, 1.25])), [1.0])
    np.testing.assert_allclose(distances.mean_absolute_error(draws, np.array([1.0, 0.0])), [0.5])


def test_ks_of_draws_is_the_maximum_over_outputs():
    draws = np.stack([np.linspace(0.05, 0.95, 10), np.full(10, 0.8)], axis=-1)
    assert distances.ks_of_draws(draws, (lambda x: x, lambda x: x)) == pytest.approx(0.8)


def test_log_checkpoints():
    assert distances.log_checkpoints(1).tolist() == [1]
    assert distances.log_checkpoints(20, per_decade=2).tolist() == [1, 3, 10, 20]
    checkpoints = distances.log_checkpoints(500_000)
    assert {1, 10, 100, 1_000, 10_000, 100_000, 500_000} <= set(checkpoints.tolist())
    assert np.all(np.diff(checkpoints) > 0)
    with pytest.raises(ValueError, match="at least 1"):
        distances.log_checkpoints(0)


@pytest.mark.parametrize("num_steps", [999, 1000, 1001, 123_456])
def test_log_checkpoints_end_where_asked(num_steps):
    checkpoints = distances.log_checkpoints(num_steps, per_decade=7)
    assert checkpoints[-1] == num_steps
    assert np.max(np.diff(np.log(checkpoints[checkpoints > 20]))) < np.log(10) / 7 * 1.1


def test_running_curve_uses_the_first_draws():
    draws = np.array([[[1.0], [3.0], [2.0]], [[0.0], [0.0], [6.0]]])
    curve = distances.running_curve(
        draws, [1, 2, 3], lambda d: distances.l2_of_draws(d, np.array([0.0]))
    )
    np.testing.assert_allclose(curve, [[1, 2, 2], [0, 0, 2]])
    with pytest.raises(ValueError, match="3 draws of a restart"):
        distances.running_curve(draws, [4], np.mean)


def test_quartiles():
    curves = np.array([[0.0, 4.0], [1.0, 3.0], [2.0, 2.0], [3.0, 1.0], [4.0, 0.0]])
    np.testing.assert_allclose(distances.quartiles(curves), [[1, 1], [2, 2], [3, 3]])
