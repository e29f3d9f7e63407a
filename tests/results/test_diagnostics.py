"""Tables and verdicts: on chains made by hand, and on small runs."""

import dataclasses

import arviz
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax.results.diagnose import connected_groups, measure
from adlmh_jax.results.mixing import measure_mixing
from adlmh_jax.results.rules import judge_components, judge_mixing
from adlmh_jax.results.tables import summarise_outputs
from adlmh_jax.results.verdict import Verdict

CONVERGED, CANNOT_TELL, NOT_CONVERGED = Verdict


def make_chains(num_chains=64, num_draws=400, correlation=0.5, seed=0):
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=(num_chains, num_draws))
    for t in range(1, num_draws):
        draws[:, t] *= np.sqrt(1 - correlation**2)
        draws[:, t] += correlation * draws[:, t - 1]
    return draws


def two_modes(num_chains, share, seed=0):
    """Chains of which a share never leave another mode."""
    is_other = np.arange(num_chains) % round(1 / share) == 0
    return make_chains(num_chains, seed=seed) + 4.0 * is_other[:, None]


def judge(draws, num_superchains=4):
    findings = judge_mixing(measure_mixing(draws, num_superchains), *draws.shape)
    worst = max((f.verdict for f in findings), key=lambda v: v.badness, default=CONVERGED)
    return worst, " ".join(finding.reason for finding in findings)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("correlation, num_draws", [(0.0, 400), (0.5, 400), (0.9, 800)])
def test_chains_that_have_mixed(correlation, num_draws, seed):
    assert judge(make_chains(64, num_draws, correlation, seed)) == (CONVERGED, "")


@pytest.mark.parametrize(
    "draws, verdict, words",
    [
        (two_modes(64, 0.5), NOT_CONVERGED, "Chains disagree: R-hat is"),
        (two_modes(64, 1 / 32), NOT_CONVERGED, "Chains remember where they were"),
        (make_chains() + np.linspace(0, 0.3, 400), NOT_CONVERGED, "still move together"),
        (make_chains() * np.linspace(1, 1.3, 400), NOT_CONVERGED, "still move together"),
        (make_chains() + np.repeat([0, 0, 0, 0.3], 16)[:, None], NOT_CONVERGED, "Superchains dis"),
        (np.repeat(np.arange(64)[:, None] % 3, 400, 1), NOT_CONVERGED, "stays at its start"),
        (np.where(make_chains() > 2, np.nan, 0.0), NOT_CONVERGED, "NaN or infinite"),
        (np.ones((64, 400)), CANNOT_TELL, "one and the same value"),
        (make_chains(64, 20, 0.7), NOT_CONVERGED, "R-hat"),
        (make_chains(64, 300, 0.9), CANNOT_TELL, "Chains are short or disagree: R-hat is 1.0"),
        (make_chains(8, 800, 0.9), CANNOT_TELL, "Chains are short or disagree: R-hat is 1.0"),
        (make_chains(64, 10, 0.0), CONVERGED, ""),
        (make_chains(4, 100, 0.3), CANNOT_TELL, "effective draws of its"),
        (make_chains(8, 200, 0.0), CONVERGED, ""),
        (make_chains(2, 4000, 0.0), CANNOT_TELL, "2 chains are too few to disagree"),
        (make_chains(64, 9), CANNOT_TELL, "only 9 draws"),
    ],
)
def test_verdict_and_reason(draws, verdict, words):
    found, reasons = judge(draws, min(4, len(draws)))
    assert found is verdict, reasons
    assert words in reasons


def test_components_that_hardly_move():
    selected = np.array([[900, 800, 700, 0], [900, 800, 700, 0]])
    accepted = np.array([[400, 0, 300, 0], [400, 0, 60, 0]])
    findings = judge_components(["a", "b", "c", "d"], selected, accepted, chains_each=16)
    assert [finding.reason for finding in findings] == [
        "Never selected `d`.",
        "No proposal was ever accepted for `b`.",
        "Fewer than 5 accepted proposals per chain for `c`.",
    ]
    assert not judge_components(["a"], selected[:, :1], accepted[:, :1], chains_each=16)


def apart():
    """`a` and `b` meet in data; `c` and `d` are on their own."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(a + b, 1.0), obs=0.3)
    c = numpyro.sample("c", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", 2):
        numpyro.sample("d", dist.DiscreteUniform(0, 5))
    numpyro.deterministic("ac", a + c)
    numpyro.deterministic("fixed", jnp.array(2.0))


@pytest.fixture(scope="module")
def result():
    return adlmh.sample(
        3, apart, proposals="prior", num_chains=64, num_warmup=200, num_samples=600, progress=False
    )


def test_only_connected_sites_count(result):
    group_of = connected_groups(result.program)
    assert group_of["a"] == group_of["b"]
    assert len({group_of[site] for site in "acd"}) == 3


def test_summary_of_outputs(result):
    table = result.summary(quantiles=(0.1, 0.5))
    assert list(table.index) == ["a", "b", "c", "d[0]", "d[1]", "ac", "fixed"]
    assert list(table.columns) == [
        *["mean", "sd", "10%", "50%", "mcse_mean", "mcse_sd"],
        *["ess_bulk", "ess_tail", "r_hat", "nested_r_hat"],
    ]
    draws = result.draws["d"][..., 1].astype(float)
    row = table.loc["d[1]"]
    assert row["mean"] == pytest.approx(draws.mean())
    assert row["sd"] == pytest.approx(draws.std(ddof=1))
    assert row["10%"] == np.quantile(draws, 0.1)
    assert row["mcse_mean"] == pytest.approx(float(arviz.mcse(draws, method="mean")))
    assert row["mcse_sd"] == pytest.approx(float(arviz.mcse(draws, method="sd")))
    assert table.loc["fixed", "sd"] == 0


def test_summary_of_sites(result):
    table = result.summary(by="site")
    assert list(table.index) == ["a", "b", "c", "d"]
    assert table.loc["c", "acceptance_rate"] == 1
    assert table.loc["d", "components"] == 2
    assert 0 < table.loc["a", "least_rate"] < 1
    assert table.loc["a", "least_moved"] == "a"


def test_diagnosis_of_a_run(result):
    diagnosis = result.diagnose()
    assert diagnosis.is_converged and diagnosis.verdict == "converged"
    assert diagnosis.acceptance["c"] == 1
    text = str(diagnosis)
    assert text.startswith(
        "Converged, as far as the draws can tell: `a`, `b`, `c`, `d[0]` and 3 more."
    )
    assert "What to do" not in text
    assert result.diagnose(max_values=20_000).is_converged


def test_thinned_measures(result):
    full = measure(result.draws, 4)
    thinned = measure(result.draws, 4, max_values=sum(a.size for a in result.draws.values()) // 3)
    assert thinned["a"] == measure_mixing(result.draws["a"][:, ::3], 4)
    assert full["a"] == measure_mixing(result.draws["a"], 4)


def test_diagnosis_names_components_and_remedies(result):
    accepted = result.schedule.component_accepted.copy()
    accepted[:, 0] = 0
    stuck = np.repeat(result.draws["a"][:, :1], 600, axis=1)
    spoilt = dataclasses.replace(
        result,
        draws={**result.draws, "a": stuck},
        schedule=result.schedule._replace(component_accepted=accepted),
    )
    diagnosis = spoilt.diagnose()
    verdicts = {output.name: output.verdict for output in diagnosis.outputs}
    assert verdicts["a"] is NOT_CONVERGED  # its chains do not move
    assert verdicts["b"] is verdicts["ac"] is CANNOT_TELL  # they hang on `a`
    assert verdicts["c"] is verdicts["d[0]"] is verdicts["fixed"] is CONVERGED
    text = str(diagnosis)
    assert text.startswith("Not converged: `a`.\n\na: not converged")
    assert "No proposal was ever accepted for `a`." in text
    assert "What to do" in text and "let them walk" in text


def test_truth_values_and_shapes():
    draws = {"is_high": make_chains() > 0, "matrix": np.ones((64, 400, 2, 1))}
    mixing = measure(draws, 4)
    assert list(mixing) == ["is_high", "matrix[0,0]", "matrix[1,0]"]
    table = summarise_outputs(draws, mixing, (0.5,))
    assert table.loc["is_high", "mean"] == pytest.approx(0.5, abs=0.02)


def test_bad_input(result):
    with pytest.raises(ValueError, match='`by` must be "output" or "site"'):
        result.summary(by="chain")
    empty = dataclasses.replace(result, draws={})
    for method in (empty.diagnose, empty.to_arviz):
        with pytest.raises(ValueError, match="kept n"):
            method()
