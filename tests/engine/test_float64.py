"""Double precision, on and off in one process; data of any dtype; precision that is lost."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC
from scipy import stats
from updates import check_cache

import adlmh_jax as adlmh
from adlmh_jax.paper import zoo

SIZES = {
    "num_chains": 8,
    "num_superchains": 2,
    "num_warmup": 5,
    "num_samples": 5,
    "progress": False,
}


@pytest.fixture
def double():
    """Switch double precision on for one test."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def everything(data, kind):
    """Walks, Gibbs steps, prior draws, a plate, a dependent support, data of any dtype."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    count = numpyro.sample("count", dist.Poisson(3.0))
    top = numpyro.sample("top", dist.Uniform(0.0, 1.0 + count))
    with numpyro.plate("items", len(data)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(mu + z + top, 1.0), obs=data)
    numpyro.factor("integer", jnp.where(z.sum() > 1, 0, -1).astype(kind))
    numpyro.deterministic("sum", z.sum() + mu)


def sample(kind="int32", dtype=np.float32, **options):
    data = np.array([0.3, 1.2, 2.0], dtype)
    return adlmh.sample(0, everything, (data, kind), keep="all", **{**SIZES, **options})


def test_a_run_in_double_precision(double):
    result = sample()
    assert result.draws["mu"].dtype == result.log_density.dtype == np.float64
    assert result.draws["count"].dtype == np.int64
    position = {name: value[0, -1] for name, value in result.draws.items()}
    expected = result.program.log_density(position)
    np.testing.assert_allclose(result.log_density[0, -1], expected, rtol=1e-12)


def test_switching_between_two_runs():
    first = sample()
    with jax.enable_x64(True):
        second = sample()
    third = sample()
    assert first.draws["mu"].dtype == np.float32 and second.draws["mu"].dtype == np.float64
    for name in first.draws:
        np.testing.assert_array_equal(first.draws[name], third.draws[name])


@pytest.mark.parametrize("kind", ["int32", "bool", "float16"])
def test_factors_and_data_of_any_dtype(kind):
    """Terms have one dtype, whatever the model gives."""
    assert sample(kind, np.float16).log_density.dtype == np.float32


@pytest.mark.parametrize("chain_method", ["vectorized", "sequential"])
def test_the_numpyro_kernel_in_double_precision(double, chain_method):
    mcmc = MCMC(
        adlmh.AdLMH(everything), num_warmup=3, num_samples=3, num_chains=2,
        chain_method=chain_method, progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(0), np.array([0.3, 1.2, 2.0]), "int32")
    assert mcmc.get_samples()["mu"].dtype == np.float64


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.PROBLEMS)
def test_the_papers_models_in_double_precision(double, name):
    """The chains' terms and outputs, after many moves, are those of where they are."""
    problem = zoo.PROBLEMS[name]()
    outputs = list(problem.outputs)
    sizes = {**SIZES, "num_warmup": 20, "num_samples": 20}
    result = adlmh.sample(0, problem.model, problem.args, problem.kwargs, outputs=outputs, **sizes)
    assert result.log_density.dtype == np.float64 and np.isfinite(result.log_density).all()
    check_cache(result.program, jax.tree.map(lambda leaf: leaf[0], result.state.superchains.chains))


def photons(rate, seen):
    count = numpyro.sample("count", dist.Poisson(rate))
    numpyro.sample("seen", dist.Normal(count, np.sqrt(rate)), obs=seen)


COUNTS = {"num_chains": 64, "num_superchains": 4, "num_warmup": 200, "num_samples": 100}


def test_lost_precision_is_said():
    with pytest.warns(adlmh.PrecisionWarning, match="of `count` are off by .*jax_enable_x64"):
        adlmh.sample(0, photons, (1e7, 1e7), progress=False, **COUNTS)


def test_double_precision_carries_large_counts(double):
    """The mean of means over superchains, and the sd, at a false-alarm rate of 1e-5 each."""
    sizes = {**COUNTS, "num_chains": 256, "num_superchains": 16, "num_warmup": 600}
    result = adlmh.sample(0, photons, (1e7, 1e7), progress=False, **sizes)
    draws = result.draws["count"].reshape(16, -1)
    for found, true in ((draws.mean(axis=1), 1e7), (draws.std(axis=1), np.sqrt(1e7 / 2))):
        error = (found.mean() - true) / (found.std(ddof=1) / 4)
        assert abs(error) < stats.t.isf(0.5e-5, 15)


def test_small_numbers_are_not_doubted(recwarn):
    sample()
    assert not [w for w in recwarn if issubclass(w.category, adlmh.PrecisionWarning)]
