"""Every construct of the catalogue: its log density is NumPyro's, its moves are right, it samples.

A move is compiled in a second, a whole run in several: so every construct is moved in the quick
tests, but only some of them are run, one of each kind; the others are run by the slow tests, and
all of them in double precision.
"""

import jax
import numpy as np
import pytest
from constructs import CONSTRUCTS
from numpyro import handlers
from numpyro.infer.util import compute_log_probs
from updates import check_cache, check_updates, draw_positions

import adlmh_jax

NUM_CHAINS = 32  # so that a proposal of each component is accepted in one of them
RELATIVE_ERROR = {"float32": 1e-5, "float64": 1e-12}
RUN_QUICKLY = {"nested plates", "return a dict", "scan of a discrete state", "Uniform(0, x)"}

# Said for each model with a `param`; `test_param_is_announced` looks at it.
pytestmark = pytest.mark.filterwarnings("ignore:Held at the initial value")


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compile without optimising: nothing here runs for long."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


def numpyro_log_probs(construct):
    """Return a function of positions ``[C, ...]``: NumPyro's log-probabilities, ``[C, terms]``."""

    def log_probs(position):
        # The seed gives a key to the sites that are not components (Delta), which need none.
        model = handlers.seed(construct.model, 0)
        by_site, _ = compute_log_probs(
            model, construct.args, construct.kwargs, position, sum_log_prob=False
        )
        return jax.numpy.concatenate([jax.numpy.ravel(terms) for terms in by_site.values()])

    return jax.jit(jax.vmap(log_probs))


def check_density(program, chains, log_probs, precision):
    """The terms of the chains sum to what NumPyro says."""
    assert chains.log_terms.dtype == precision
    expected = np.asarray(log_probs(program.latent_layout.unpack(chains.latent)))
    assert np.isfinite(expected).all()
    error = np.asarray(chains.log_terms).sum(axis=0, dtype=float) - expected.sum(1, dtype=float)
    # Relative to the terms, not to their sum, which may cancel.
    assert (np.abs(error) <= RELATIVE_ERROR[precision] * np.abs(expected).sum(axis=1)).all()


def test_names_are_unique():
    names = [construct.name for construct in CONSTRUCTS]
    assert len(names) == len(set(names))
    assert set(names) >= RUN_QUICKLY


def in_precisions(is_quick):
    """Return parameters: each construct in both precisions, those that are not quick being slow."""
    return pytest.mark.parametrize(
        ("construct", "precision"),
        [
            pytest.param(c, p, marks=() if is_quick(c, p) else pytest.mark.slow, id=f"{c.name}-{p}")
            for p in RELATIVE_ERROR
            for c in CONSTRUCTS
        ],
        indirect=["precision"],
    )


@in_precisions(lambda construct, precision: precision == "float32")
def test_density_is_numpyros_before_and_after_each_move(construct, precision):
    program = adlmh_jax.compile_model(
        construct.model, construct.args, construct.kwargs, outputs=construct.outputs
    )
    log_probs = numpyro_log_probs(construct)
    chains = program.chains_at(draw_positions(program, NUM_CHAINS))
    check_density(program, chains, log_probs, precision)
    for moved in check_updates(program, chains):
        check_density(program, moved, log_probs, precision)


@in_precisions(lambda c, precision: c.name in RUN_QUICKLY and precision == "float32")
def test_samples(construct, precision):
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
    assert result.draws and result.log_density.dtype == precision
    for draws in result.draws.values():
        assert draws.shape[:2] == (4, 3)
        assert np.isfinite(draws).all()
    last = jax.tree.map(lambda leaf: leaf[0], result.state.superchains.chains)
    check_cache(result.program, last)


def test_param_is_announced():
    construct = next(c for c in CONSTRUCTS if c.name == "param")
    with pytest.warns(UserWarning, match="Held at the initial value.*`weight`.*`width`"):
        adlmh_jax.compile_model(construct.model, construct.args, construct.kwargs)
