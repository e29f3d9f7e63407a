"""Every construct of the catalogue: its log density is NumPyro's, and it samples."""

import itertools

import jax
import numpy as np
import pytest
from constructs import CONSTRUCTS
from numpyro import handlers
from numpyro.infer import Predictive
from numpyro.infer.util import compute_log_probs

import adlmh_jax

NUM_POINTS = 5
RELATIVE_ERROR = 1e-5

# Said for each model with a `param`; `test_param_is_announced` looks at it.
pytestmark = pytest.mark.filterwarnings("ignore:Held at the initial value")

# Each compiled function holds memory maps, of which Linux gives a process 65,530: without this,
# some 150 models compiled in one process end in a segmentation fault.
TESTS_PER_CACHE = 20
num_tests = itertools.count(1)

each_construct = pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda c: c.name)


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compile without optimising: nothing here runs for long."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


@pytest.fixture(autouse=True)
def bounded_caches():
    yield
    if next(num_tests) % TESTS_PER_CACHE == 0:
        jax.clear_caches()


def numpyro_log_probs(construct):
    """Return a function of the position: NumPyro's log-probability of each element of each site."""

    @jax.jit
    def log_probs(position):
        # The seed gives a key to the sites that are not components (Delta), which need none.
        model = handlers.seed(construct.model, 0)
        return compute_log_probs(
            model, construct.args, construct.kwargs, position, sum_log_prob=False
        )[0]

    return log_probs


def test_names_are_unique():
    names = [construct.name for construct in CONSTRUCTS]
    assert len(names) == len(set(names))


@each_construct
def test_model_is_valid_numpyro(construct):
    predictive = Predictive(construct.model, num_samples=1, batch_ndims=0)  # eager: no compilation
    draws = predictive(jax.random.key(1), *construct.args, **construct.kwargs)
    assert all(np.isfinite(draw).all() for name, draw in draws.items() if name != "y_observed")


@each_construct
def test_log_density_is_numpyros(construct):
    program = adlmh_jax.compile_model(
        construct.model, construct.args, construct.kwargs, outputs=construct.outputs
    )
    log_density, log_probs = jax.jit(program.log_density), numpyro_log_probs(construct)
    for key in jax.random.split(jax.random.key(2), NUM_POINTS):
        position = program.draw_prior(key)
        expected = np.concatenate([np.ravel(x) for x in log_probs(position).values()])
        assert np.isfinite(expected).all()
        # Relative to the terms, not to their sum, which may cancel.
        tolerance = RELATIVE_ERROR * np.abs(expected).sum()
        np.testing.assert_allclose(
            log_density(position), expected.sum(dtype=float), rtol=0, atol=tolerance
        )


@each_construct
def test_samples(construct):
    result = adlmh_jax.sample(
        0,
        construct.model,
        construct.args,
        construct.kwargs,
        outputs=construct.outputs,
        num_chains=4,
        num_superchains=2,
        num_warmup=2,
        num_samples=3,
        progress=False,
    )
    assert result.draws
    for draws in result.draws.values():
        assert draws.shape[:2] == (4, 3)
        assert np.isfinite(draws).all()


def test_param_is_announced():
    construct = next(c for c in CONSTRUCTS if c.name == "param")
    with pytest.warns(UserWarning, match="Held at the initial value.*`weight`.*`width`"):
        adlmh_jax.compile_model(construct.model, construct.args, construct.kwargs)
