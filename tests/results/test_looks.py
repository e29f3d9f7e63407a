"""What people see: tables that are never cut, constants, advice, and HTML."""

import dataclasses
from html.parser import HTMLParser

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
import pytest

import adlmh_jax as adlmh
from adlmh_jax.results.advice import Ending, advise, find_pairs
from adlmh_jax.results.rules import judge_mixing, round_up
from adlmh_jax.results.tables import MAX_ROWS, NOTE, Table
from adlmh_jax.results.verdict import LONGER, Diagnosis, OutputVerdict

SIZES = {"num_chains": 64, "num_warmup": 100, "num_samples": 200, "progress": False}


def certain(sure=True):
    """A normal, an indicator that data make certain, and one that is certain from the start."""
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(50.0 * z, 1.0), obs=50.0)
    numpyro.sample("one", dist.Bernoulli(1.0))
    numpyro.deterministic("is_small", x < 100.0)


@pytest.fixture(scope="module")
def result():
    return adlmh.sample(0, certain, **SIZES)


@pytest.fixture(scope="module")
def statistics_only():
    return adlmh.sample(0, certain, keep=(), **SIZES)


def wide_table(num_rows=2):
    rows = [f"a_rather_long_name[{i}]" for i in range(num_rows)]
    table = Table({f"column_{i}": np.linspace(0, 1, num_rows) for i in range(30)}, index=rows)
    table["r_hat"] = 1.0012345
    return table


def test_a_table_is_never_cut():
    table = wide_table()
    assert all(f"column_{i}" in repr(table) for i in range(30))
    assert "..." not in repr(table) and "..." not in str(table)
    assert "1.001" in repr(table) and "1.0012" not in repr(table)
    assert table._repr_html_().count("<th>") == 1 + 31 + 2
    assert len(repr(wide_table(200)).splitlines()) == 201
    assert len(repr(wide_table(5000)).splitlines()) < MAX_ROWS + 10


def test_a_table_is_a_data_frame(result):
    table = result.summary()
    assert isinstance(table, pandas.DataFrame)
    assert isinstance(table[["mean", "sd"]], Table)
    assert "nested_r_hat" in str(table[table["sd"] > 0])
    assert table.loc["x", "sd"] == pytest.approx(1.0, abs=0.1)
    pandas.testing.assert_frame_equal(pandas.DataFrame(table) + 0, pandas.DataFrame(table))


def test_summary_without_draws(result, statistics_only):
    table, full = statistics_only.summary(), result.summary()
    assert list(table.index) == ["x", "z", "one", "is_small"]
    for column in ("mean", "sd"):
        np.testing.assert_allclose(table[column], full[column], rtol=1e-3, atol=1e-6)
    assert table.loc["x", "mcse_mean"] == pytest.approx(full.loc["x", "mcse_mean"], rel=0.2)
    draws = result.draws["x"]
    within, between = np.var(draws, axis=1, ddof=1).mean(), np.var(draws.mean(axis=1), ddof=1)
    assert table.loc["x", "r_hat"] == pytest.approx(
        np.sqrt(between / within + 1 - 1 / draws.shape[1]), rel=1e-4
    )
    assert table.loc["x", "nested_r_hat"] < table.loc["x", "r_hat"]
    assert np.isnan(table.loc["z", "r_hat"])
    assert "Quantiles" in table.attrs[NOTE] and table.attrs[NOTE] in str(table)
    with pytest.raises(ValueError, match="running statistics cannot tell"):
        statistics_only.diagnose()


def test_constants(result):
    verdicts = {output.name: output for output in result.diagnose().outputs}
    assert verdicts["z"].verdict == "converged"
    assert verdicts["z"].note == "constant: chains came to it from other values"
    assert result.schedule.settled == ["z"]
    assert verdicts["is_small"].verdict == "converged"
    assert verdicts["is_small"].note == "constant, though what it is made of moved"
    assert verdicts["one"].verdict == "cannot tell"  # no chain ever held another value
    assert not verdicts["one"].note


def test_a_certain_indicator_is_no_cause_to_warn(recwarn):
    adlmh.sample(0, certain, outputs=["x", "z", "is_small"], **SIZES)
    assert not [w for w in recwarn if issubclass(w.category, adlmh.ConvergenceWarning)]


def sites_of(*names):
    def model():
        for name in names:
            numpyro.sample(name, dist.Poisson(3.0) if name == "n" else dist.Normal(0.0, 1.0))

    return adlmh.compile_model(model)


def test_advice_names_what_goes_together():
    program = sites_of("a", "b", "n")
    a = np.random.default_rng(0).normal(size=64)
    values = {"a": a, "b": 3.0 - a, "n": np.round(10 * a)}
    pairs = find_pairs(program.sites.sites, values)
    assert [pair.names for pair in pairs][0] == ("a", "b") and len(pairs) == 3
    first, *others = advise(program, Ending(values=values), {"a", "b", "n"})
    assert "`a` and `b` go together" in first and "Centre and scale" in first
    assert any('proposals={"a": adlmh.collapse("n")}' in text for text in others)
    free = {**values, "b": np.random.default_rng(1).normal(size=64), "n": np.arange(64) % 7}
    assert not advise(program, Ending(values=free), {"a", "b", "n"})
    assert not advise(program, Ending(values=values), {"a"})  # what concerns nobody is not said
    assert not find_pairs(program.sites.sites, {"a": a[:8], "b": -a[:8]})  # few chains say little


def test_advice_on_precision_and_prior_draws():
    program = sites_of("a", "b")
    ending = Ending(
        proposals={"a": "prior()", "b": "prior()"},
        acceptance={"a": 0.01, "b": 0.5},
        imprecise={"y": 0.3},
    )
    precision, walk = advise(program, ending, {"a", "b"})
    assert "Single precision does not carry `y`" in precision and "jax_enable_x64" in precision
    assert "prior draws proposed for `a` as few as 1 %" in walk and "random_walk()" in walk


def short_chains(num_chains, num_draws):
    draws = np.random.default_rng(0).normal(size=(num_chains, num_draws))
    from adlmh_jax.results.mixing import measure_mixing

    m = measure_mixing(draws, 4)
    return OutputVerdict("x", tuple(judge_mixing(m, *draws.shape)), m)


def test_remedies_follow_from_findings():
    few = Diagnosis((short_chains(4, 50),), {})
    assert any("`result.extend(" in remedy for remedy in few.remedies)
    one = Diagnosis((short_chains(8, 6),), {})
    assert one.remedies == [LONGER]
    known = dataclasses.replace(one, advice=("Do this.",))
    assert known.remedies == ["Do this."]
    assert "What to do\n  - Do this." in str(known)


def test_round_numbers():
    assert list(map(round_up, (0, 1, 9.5, 101, 7000))) == [0, 1, 10, 200, 7000]


class Balance(HTMLParser):
    """Checks that what is opened is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(thing):
    page = Balance()
    page.feed(thing._repr_html_())
    assert not page.open
    return page.text


def test_notebooks_see_the_same(result, statistics_only):
    assert "Cannot tell whether it has converged: one." in shown(result)
    assert "nested_r_hat" in shown(result)
    assert "running statistics" in shown(statistics_only)
    text = shown(result.diagnose())
    assert "constant: chains came to it from other values" in text and "What to do" in text
    assert "touches terms" in shown(result.program)


def test_names_are_escaped():
    def model():
        numpyro.sample("<b>&", dist.Normal(0.0, 1.0))

    program = adlmh.compile_model(model)
    assert "&lt;b&gt;&amp;" in program._repr_html_() and "<b>&" not in program._repr_html_()
