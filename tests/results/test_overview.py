"""The figure of a run: on draws made by hand, many chains included."""

import matplotlib
import numpy as np
import pytest

from adlmh_jax.results.diagnose import measure
from adlmh_jax.results.overview import (
    group_labels,
    plot_overview,
    pool_chains,
    rank_band,
    rank_differences,
)

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def test_chains_are_pooled_by_superchain():
    values = np.repeat(np.arange(4), 6).reshape(8, 3)  # superchains of two chains
    assert [set(group) for group in pool_chains(values, 4)] == [{0}, {1}, {2}, {3}]
    assert group_labels(4, 8) == [f"superchain {i}" for i in range(4)]
    many = np.arange(100)[:, None] * np.ones((1, 5))
    assert [group.min() for group in pool_chains(many, 50)][:2] == [0, 14]
    assert group_labels(50, 100)[0] == "superchains 0 to 6"
    assert group_labels(1, 2) == ["chain 0", "chain 1"]


def test_rank_differences_by_hand():
    ranks, differences = rank_differences([np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])])
    np.testing.assert_array_equal(ranks, [3 / 8, 1])
    np.testing.assert_allclose(differences, [[1 / 8, 0], [-1 / 8, 0]])


@pytest.mark.parametrize("num_draws", [50, 500])
def test_the_band_holds_independent_draws(num_draws):
    """Of 100 runs 5 are to leave a band of 95 %; 20 would have a probability of 1e-7."""
    rng = np.random.default_rng(0)

    runs = [rank_differences(list(rng.normal(size=(4, num_draws)))) for _ in range(100)]
    band = rank_band(runs[0][0], 4, 4 * num_draws)  # there are no ties: ranks are always the same
    assert sum(np.any(np.abs(differences) > band) for _, differences in runs) < 20


def test_the_band_shows_a_superchain_that_is_off():
    rng = np.random.default_rng(0)
    groups = list(rng.normal(size=(4, 1000)) + np.array([0, 0, 0, 0.3])[:, None])
    ranks, differences = rank_differences(groups)
    band = rank_band(ranks, 4, 4000)
    assert np.any(np.abs(differences[3]) > band)
    assert np.all(np.isnan(rank_band(ranks, 1, 1000)))


def test_the_figure_does_not_grow_with_chains():
    rng = np.random.default_rng(0)
    draws = {"x": rng.normal(size=(10_000, 10)), "n": rng.poisson(3.0, size=(10_000, 10, 2))}
    mixing = measure(draws, 2500)
    figure = plot_overview(draws, mixing, ["x", "n[1]"], 2500)
    assert len(figure.axes) == 4
    ranks, density = figure.axes[:2]
    assert len(density.lines) == 8 and len(ranks.lines) == 9
    assert "x   R-hat" in ranks.get_title(loc="left")
    np.testing.assert_allclose(figure.axes[3].lines[0].get_ydata().sum(), 1.0)
    figure.canvas.draw()
    with pytest.raises(ValueError, match="no output `m`"):
        plot_overview(draws, mixing, ["m"], 2500)


def test_a_constant_can_be_drawn():
    draws = {"z": np.ones((8, 20), int), "w": np.full((8, 20), 0.5)}
    plot_overview(draws, measure(draws, 4), ["z", "w"], 4).canvas.draw()
