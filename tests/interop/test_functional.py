"""`init` and `step` in loops of one's own."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax.interop.functional import as_algorithm


def model():
    mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    numpyro.sample("coin", dist.Bernoulli(0.3))
    numpyro.deterministic("double", 2 * mu)
    numpyro.sample("y", dist.Normal(mu, 1.5), obs=jnp.array([0.3, 1.9, 2.4]))


TRUTH = {"mu": (1 / 4 + 4.6 / 2.25) / (1 / 4 + 3 / 2.25), "coin": 0.3}  # conjugate, and the prior


NUM_CHAINS = 64


@pytest.fixture(scope="module")
def algorithm():
    return as_algorithm(adlmh.compile_model(model), proposals="prior")


@pytest.fixture(scope="module")
def loop(algorithm):
    """Three hundred iterations in a scan."""

    @jax.jit
    def run(key, state, is_adapting):
        def one(state, key):
            state, info = algorithm.step(key, state, is_adapting)
            return state, (algorithm.values(state), info)

        return jax.lax.scan(one, state, jax.random.split(key, 300))

    return run


@pytest.fixture(scope="module")
def warm(algorithm, loop):
    """The state after a warm-up, and what was seen during it."""
    position, is_finite = algorithm.start(jax.random.key(0), NUM_CHAINS)
    assert is_finite.all()
    state, (_, info) = loop(jax.random.key(1), algorithm.init(position), True)
    return state, info


def check_means(values):
    """Compare means of chains ``[iteration, C]`` with the truth: |z| < 4, by the chains' spread.

    With 64 chains the two estimates raise 4e-4 false alarms.
    """
    for name, truth in TRUTH.items():
        means = np.asarray(values[name]).mean(axis=0)
        error = means.std(ddof=1) / np.sqrt(means.size)
        assert abs(means.mean() - truth) < 4 * error, name


def test_in_a_scan(algorithm, loop, warm):
    state, warmup = warm
    assert (warmup.weights[0] != warmup.weights[-1]).any()
    after, (values, info) = loop(jax.random.key(2), state, False)
    np.testing.assert_array_equal(algorithm.weights(after), algorithm.weights(state))
    np.testing.assert_allclose(values["double"], 2 * values["mu"], rtol=1e-6)
    assert (info.selected.sum(-1) == algorithm.num_steps * NUM_CHAINS).all()
    np.testing.assert_allclose(
        info.acceptance_rate, info.accepted.sum(-1) / info.selected.sum(-1), rtol=1e-6
    )
    assert np.isfinite(info.log_density).all()
    check_means(values)


def test_steps_are_pure(loop, warm):
    first, second = (loop(jax.random.key(5), warm[0], False) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_several_superchains_by_vmap(algorithm, warm):
    states = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), warm[0])
    keys = jax.random.split(jax.random.key(1), 2)
    states, info = jax.vmap(algorithm.step)(keys, states)
    for number, key in enumerate(keys):  # each is what it is on its own
        alone, _ = algorithm.step(key, warm[0])
        jax.tree.map(
            lambda leaf, own, number=number: np.testing.assert_array_equal(leaf[number], own),
            states.chains,
            alone.chains,
        )
    assert info.log_density.shape == (2, NUM_CHAINS)
    assert (info.log_density[0] != info.log_density[1]).any()


def test_in_blackjax(algorithm, warm):
    blackjax = pytest.importorskip(
        "blackjax", reason="blackjax is not installed: pip install 'adlmh_jax[test]'"
    )
    _, values = blackjax.util.run_inference_algorithm(
        jax.random.key(2),
        algorithm,
        300,
        initial_state=warm[0],
        transform=lambda state, info: algorithm.values(state),
    )
    check_means(values)
    position = {name: values[name][-1] for name in TRUTH}
    state, _ = blackjax.util.run_inference_algorithm(
        jax.random.key(3), algorithm, 0, initial_position=position
    )
    np.testing.assert_array_equal(algorithm.values(state)["mu"], position["mu"])


def test_held_sites_stay():
    program = adlmh.compile_model(model)
    held = as_algorithm(program, proposals="prior", held=["mu"])
    position, _ = held.start(jax.random.key(0), 8, {"mu": jnp.arange(1.0, 9.0)})
    state, info = held.init(position), None
    for key in jax.random.split(jax.random.key(1), 20):
        state, info = held.step(key, state, True)
    values = held.values(state)
    np.testing.assert_array_equal(values["mu"], np.arange(1.0, 9.0))
    assert (values["coin"] != position["coin"]).any()
    np.testing.assert_allclose(info.weights, [0.0, 1.0])
    with pytest.raises(ValueError, match="`held` names `nu`"):
        as_algorithm(program, held=["nu"])
    with pytest.raises(ValueError, match="All latent sites are held"):
        as_algorithm(program, held=["mu", "coin"])


def test_wrong_positions(algorithm):
    with pytest.raises(ValueError, match="expected one for each latent site: `coin`, `mu`"):
        algorithm.init({"mu": jnp.ones(3)})
    with pytest.raises(ValueError, match=r"gives `coin` the shape \(2,\); expected \(3,\)"):
        algorithm.init({"mu": jnp.ones(3), "coin": jnp.ones(2, int)})
    with pytest.raises(ValueError, match="`num_steps` must be at least 1"):
        as_algorithm(adlmh.compile_model(model), num_steps=0)
