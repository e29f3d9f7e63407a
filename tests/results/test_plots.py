"""Every plot draws what it says, into the axes that it is given."""

import matplotlib
import numpy as np
import pytest

from adlmh_jax.results import Calibration
from adlmh_jax.results.plots import plot_convergence, plot_sbc, plot_schedule
from adlmh_jax.results.schedule import ScheduleReport

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def make_report(num_components=3, num_superchains=2, scale=1, is_learning=True):
    shape = (num_superchains, num_components)
    selected = scale * np.arange(10, 10 + num_superchains * num_components).reshape(shape)
    names = [f"z[{i}]" for i in range(num_components)]
    rewards = np.arange(1.0, 1 + num_components) * np.ones(shape)
    learned = {"rewards": rewards, "counts": np.full(shape, 10.0)}
    return ScheduleReport(
        names=names,
        weights=np.full(shape, 1 / num_components),
        learned=learned if is_learning else {},
        selected=selected,
        accepted=selected // 2,
        invalid=np.zeros(shape, int),
    )


def heights(ax):
    return [bar.get_height() for bar in ax.patches]


def tick_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_schedule_bars():
    report = make_report()
    rewards, selections = plot_schedule(report)
    assert heights(rewards) == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    # Selected 10+13, 11+14, 12+15 of 75 times; accepted 5+6, 5+7, 6+7.
    accepted, rejected = heights(selections)[:3], heights(selections)[3:]
    assert accepted == pytest.approx(np.array([11, 12, 13]) / 75)
    assert rejected == pytest.approx(np.array([12, 13, 14]) / 75)
    assert [bar.get_y() for bar in selections.patches[3:]] == pytest.approx(accepted)
    for ax in (rewards, selections):
        assert tick_labels(ax.xaxis) == ["z[0]", "z[1]", "z[2]"]
    rewards.figure.canvas.draw()


def test_what_drives_the_outputs():
    """Two outputs, one of them explained by the last component alone."""
    report = make_report()
    shares = np.array([[[0.5, 0.0], [0.1, 0.0], [0.0, 0.6]], [[0.7, 0.0], [0.1, 0.0], [0.0, 1.0]]])
    learned = {**report.learned, "influence": shares}
    report = report._replace(learned=learned, output_names=["a", "b"])
    assert report.drivers().to_dict("list") == {
        "a": pytest.approx([0.6, 0.1, 0.0]),
        "b": pytest.approx([0.0, 0.0, 0.8]),
    }
    drivers, selections = plot_schedule(report)
    assert heights(drivers) == pytest.approx([0.6, 0.1, 0.0, 0.0, 0.0, 0.8])
    assert len(selections.patches) == 6
    pooled = report._replace(learned={"influence": shares[..., :1]}, output_names=["x"] * 40)
    assert list(pooled.drivers().columns) == ["all outputs"]
    with pytest.raises(ValueError, match="does not learn what drives"):
        make_report().drivers()


def test_schedule_that_learns_nothing():
    rewards, selections = plot_schedule(make_report(is_learning=False))
    assert not rewards.patches and len(selections.patches) == 6
    assert "learns nothing" in rewards.texts[0].get_text()


def test_given_axes_are_used():
    _, axes = pyplot.subplots(1, 2)
    assert list(plot_schedule(make_report(), ax=axes)) == list(axes)
    _, ax = pyplot.subplots()
    assert plot_convergence([np.ones((3, 2))], [1, 2], ["LMH"], ax=ax) is ax
    with pytest.raises(ValueError, match="`ax` must be two axes"):
        plot_schedule(make_report(), ax=ax)


def test_many_components_have_few_labels():
    rewards, _ = plot_schedule(make_report(num_components=100))
    assert len(heights(rewards)) == 100
    assert tick_labels(rewards.xaxis)[:2] == ["z[0]", "z[3]"]


def test_convergence_curves():
    runs = np.array([[4.0, 2.0], [8.0, 4.0], [2.0, 1.0]])
    ax = plot_convergence([runs, runs / 2], [100, 1000], ["LMH", "AdLMH"])
    assert ax.get_xscale() == ax.get_yscale() == "log"
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(lines["LMH"].get_ydata(), [4, 2])
    assert lines["LMH"].get_color() == "cyan" and lines["AdLMH"].get_color() == "black"
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    np.testing.assert_array_equal(dashed[0].get_ydata(), [3, 1.5])
    assert len(dashed) == 4
    other = plot_convergence([runs, runs], [100, 1000], ["a", "b"]).lines
    assert other[2].get_color() != other[5].get_color()


def test_convergence_bad_input():
    with pytest.raises(ValueError, match="2 curves but 1 labels"):
        plot_convergence([np.ones((1, 2))] * 2, [1, 2], ["LMH"])
    with pytest.raises(ValueError, match="have 2 points, but there are 3 checkpoints"):
        plot_convergence([np.ones((1, 2))], [1, 2, 3], ["LMH"])


def test_ranks_are_drawn_and_suspects_named():
    rng = np.random.default_rng(0)
    ranks = {"low": rng.integers(0, 5, size=50), "fine": rng.integers(0, 11, size=50)}
    ax = plot_sbc(Calibration(ranks, 10))
    fine, low, _ = ax.lines
    uniform = np.arange(1, 11) / 11
    assert low.get_label() == "low" and fine.get_label().startswith("_")
    np.testing.assert_allclose(low.get_ydata()[4:], 1 - uniform[4:])
    np.testing.assert_allclose(fine.get_ydata()[0], np.mean(ranks["fine"] == 0) - 1 / 11)
    assert ax.get_title(loc="left") == "Not calibrated: the ranks of low are not uniform."
