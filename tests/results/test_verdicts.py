"""The verdict over many seeds: always "converged" where it must be, never where it must not."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from test_known_answers import CASES

import adlmh_jax as adlmh

pytestmark = pytest.mark.slow

SEEDS = range(20)
BUDGET = {"num_chains": 64, "num_superchains": 4, "num_warmup": 500, "num_samples": 500}
REGRESSION = json.loads((Path(__file__).parents[1] / "data" / "kilpisjarvi.json").read_text())


def kilpisjarvi():
    """Temperature against the raw year: intercept and slope have a correlation of -0.99999."""
    data = REGRESSION["data"]
    alpha = numpyro.sample("alpha", dist.Normal(data["pmualpha"], data["psalpha"]))
    beta = numpyro.sample("beta", dist.Normal(data["pmubeta"], data["psbeta"]))
    sigma = numpyro.sample("sigma", dist.Uniform(*REGRESSION["flat_box"]["sigma"]))
    years, temperatures = jnp.array(data["x"], float), jnp.array(data["y"])
    numpyro.sample("y", dist.Normal(alpha + beta * years, sigma), obs=temperatures)


def ladder(power, num_rungs=1000):
    """The ergodicity counterexample: i = j or i = j + 1, with probability ~ 1/j**2.

    Latuszynski, Roberts and Rosenthal (2013). The prior of each index falls as its ``power``; the
    factor leaves the target as it is.
    """
    log_prior = -power * jnp.log(jnp.arange(1.0, num_rungs + 2))
    prior = dist.Categorical(logits=log_prior)
    j = numpyro.sample("j", prior)
    i = numpyro.sample("i", prior)
    log_target = -2 * jnp.log(j + 1.0) - log_prior[i] - log_prior[j]
    numpyro.factor("ladder", jnp.where((i == j) | (i == j + 1), log_target, -jnp.inf))


def two_modes():
    """Two normals 12 standard deviations apart: how many chains are in each is up to the start."""
    x = numpyro.sample("x", dist.Normal(0.0, 1e5))
    log_modes = dist.Normal(jnp.array([-6.0, 6.0]), 1.0).log_prob(x)
    numpyro.factor("modes", jax.nn.logsumexp(log_modes + jnp.log(jnp.array([0.3, 0.7]))))


# The prior of the three variables is ten times as wide as their posterior.
EASY_SETTINGS = {"three variables": {"thinning": 8, "num_warmup": 1000}}
HARD = {
    # Solved by default: here as it is without walks of several sites and the annealed start.
    "kilpisjarvi": (kilpisjarvi, (), {"blocks": "never", "start": "prior"}),
    "two modes": (two_modes, (), {}),
    "ladder": (ladder, (2,), {}),
    "ladder, many long chains": (ladder, (2,), {"num_chains": 256, "num_samples": 2000}),
    "ladder, few chains": (ladder, (2,), {"num_chains": 4, "num_samples": 2000}),
    "ladder, wider prior": (ladder, (1, 50), {}),
}


def diagnoses(model, args, settings):
    for seed in SEEDS:
        result = adlmh.sample(seed, model, args, progress=False, **BUDGET | settings)
        yield seed, result.diagnose()


@pytest.mark.filterwarnings("ignore:Not converged", "ignore:Cannot tell")
@pytest.mark.parametrize("proposals", ["prior", "auto"])
@pytest.mark.parametrize("case", HARD)
def test_never_converged(case, proposals):
    model, args, settings = HARD[case]
    for seed, diagnosis in diagnoses(model, args, {**settings, "proposals": proposals}):
        assert not diagnosis.is_converged, (seed, diagnosis)
        if case == "kilpisjarvi":
            verdicts = {output.name: output.verdict for output in diagnosis.outputs}
            assert verdicts["alpha"] == verdicts["beta"] == "not converged", (seed, diagnosis)


@pytest.mark.parametrize("proposals", ["prior", "auto"])
@pytest.mark.parametrize("case", CASES)
def test_always_converged(case, proposals):
    settings = {**EASY_SETTINGS.get(case, {}), "proposals": proposals}
    for seed, diagnosis in diagnoses(CASES[case][0], (), settings):
        assert diagnosis.is_converged, (seed, diagnosis)
