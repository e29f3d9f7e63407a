"""Models whose posterior is known in closed form.

Each estimate must lie within 4 Monte Carlo standard errors of the truth, by the spread of
independent superchains; with 16 of them the false-alarm rate of a t-test at 4 is 1e-3 for one
estimate, so the threshold is taken from the t distribution at 1e-5.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import adlmh_jax as adlmh

FALSE_ALARM = 1e-5


def conjugate_normal():
    mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    numpyro.sample("y", dist.Normal(mu, 1.5), obs=jnp.array([0.3, 1.9, 2.4]))


def normal_truth():
    precision = 1 / 4 + 3 / 2.25
    mean = (1 / 4 + (0.3 + 1.9 + 2.4) / 2.25) / precision
    return {"mu": (mean, precision**-0.5)}


def beta_binomial():
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    numpyro.sample("y", dist.Binomial(10, p), obs=7)


def gamma_poisson():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Poisson(rate), obs=jnp.array([2, 3, 0, 4]))


def three_variables():
    """The example of section 3.1 with y = 2; N(1, 10) has standard deviation 10."""
    x1 = numpyro.sample("x1", dist.Normal(1.0, 10.0))
    x2 = numpyro.sample("x2", dist.Normal(x1, 1.0))
    numpyro.sample("y", dist.Normal(x2, 1.0), obs=2.0)


def poisson_latent():
    """A latent that every NumPyro kernel refuses."""
    count = numpyro.sample("count", dist.Poisson(4.0))
    numpyro.sample("y", dist.Binomial(count, 0.5), obs=3)


def uniform_latent():
    """Where DiscreteHMCGibbs never returns 4."""
    value = numpyro.sample("value", dist.DiscreteUniform(1, 4))
    numpyro.sample("y", dist.Normal(value, 1.0), obs=3.2)


def moments(values, weights):
    weights = np.asarray(weights) / np.sum(weights)
    mean = np.sum(weights * values)
    return mean, np.sqrt(np.sum(weights * (values - mean) ** 2))


def uniform_truth():
    values = np.arange(1, 5)
    return {"value": moments(values, stats.norm.pdf(3.2, values, 1.0))}


CASES = {
    "conjugate normal": (conjugate_normal, normal_truth()),
    "beta-binomial": (beta_binomial, {"p": (stats.beta.mean(9, 6), stats.beta.std(9, 6))}),
    "gamma-Poisson": (
        gamma_poisson,
        {"rate": (stats.gamma.mean(11, scale=1 / 5), stats.gamma.std(11, scale=1 / 5))},
    ),
    "three variables": (three_variables, {"x1": (1.98039216, np.sqrt(1 / (1 / 100 + 1 / 2)))}),
    # Thinning a Poisson: the undetected 3 - count is Poisson(2).
    "Poisson latent": (poisson_latent, {"count": (5.0, np.sqrt(2.0))}),
    "DiscreteUniform latent": (uniform_latent, uniform_truth()),
}
METHODS = {
    "LMH": (adlmh.uniform(), "prior"),
    "AdLMH": (adlmh.ucb(), "prior"),
    "auto": (adlmh.ucb(), "auto"),
}


@pytest.mark.slow
@pytest.mark.parametrize("chains_each", [1, 64])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("precision", ["float32", "float64"], indirect=True)
def test_known_answer(case, method, chains_each, precision):
    model, truth = CASES[case]
    num_superchains = 16
    num_samples = 24000 if chains_each == 1 else 2500
    result = adlmh.sample(
        7,
        model,
        outputs=list(truth),
        schedule=METHODS[method][0],
        proposals=METHODS[method][1],
        num_chains=num_superchains * chains_each,
        num_superchains=num_superchains,
        num_warmup=200,
        num_samples=num_samples,
        thinning=8 if case == "three variables" else None,
        progress=False,
    )
    assert result.log_density.dtype == precision
    for name, (mean, sd) in truth.items():
        draws = result.draws[name].reshape(num_superchains, -1).astype(float)
        means = draws.mean(axis=1)
        error = (means.mean() - mean) / (means.std(ddof=1) / np.sqrt(num_superchains))
        assert abs(error) < stats.t.isf(FALSE_ALARM / 2, num_superchains - 1), (means.mean(), mean)
        assert draws.std() == pytest.approx(sd, rel=0.05)
    if case == "DiscreteUniform latent":
        assert set(np.unique(result.draws["value"])) == {1, 2, 3, 4}
