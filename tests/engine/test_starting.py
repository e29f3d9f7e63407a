"""Where chains start: `init=`, improper priors, superchains that start together."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC

import adlmh_jax as adlmh
from adlmh_jax.engine import address, start_superchains
from adlmh_jax.model import compile_model
from adlmh_jax.model.errors import ModelError

FEW = {"num_warmup": 0, "num_samples": 1, "thinning": 1, "progress": False}


def two_sites():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("n", dist.Poisson(jnp.exp(x)))


def animals(seen):
    """Of the animals at each place some are seen: each count must exceed what was observed."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.2))
    probability = numpyro.sample("probability", dist.Beta(2.0, 2.0))
    with numpyro.plate("places", len(seen)):
        count = numpyro.sample("count", dist.Poisson(rate))
        numpyro.sample("seen", dist.Binomial(count, probability), obs=seen)


def ordered(num):
    """A chain of counts, none less than the one before: their elements are not independent."""
    with numpyro.plate("times", num):
        count = numpyro.sample("count", dist.Poisson(5.0))
    numpyro.factor("order", jnp.where(jnp.diff(count) < 0, -jnp.inf, 0.0))


def start_chains(program, num_chains):
    """Return the chains of a single superchain."""
    started = start_superchains(program, address([jax.random.key(0)], [0]), num_chains)
    return jax.tree.map(lambda leaf: leaf[0], started.chains)


SEEN = np.random.default_rng(0).binomial(12, 0.6, size=60)


def flat(y):
    mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(mean, 2.0), obs=y)


def test_one_value_for_each_chain():
    sizes = {**FEW, "num_chains": 6, "num_superchains": 3}
    values = np.arange(6) + 1
    result = adlmh.sample(
        0,
        two_sites,
        init={"n": values},
        num_warmup=0,
        keep="all",
        **{name: size for name, size in sizes.items() if name != "num_warmup"},
    )
    assert np.all(np.abs(result.draws["n"][:, 0] - values) < 20)
    with pytest.raises(ValueError, match="gives `n` 6 values, one for each chain, but there are 8"):
        adlmh.sample(0, two_sites, init={"n": values}, num_chains=8, **FEW)
    with pytest.raises(ValueError, match="Leave one of them out"):
        adlmh.sample(0, two_sites, init={"n": values}, num_chains=6, start_together=True, **FEW)


def test_a_run_starts_where_another_one_ended():
    sizes = {"num_chains": 6, "num_superchains": 3, "progress": False}
    first = adlmh.sample(0, two_sites, num_warmup=5, num_samples=3, keep="all", **sizes)
    ends = first.last_values()
    program = compile_model(two_sites, init=ends)
    chains = start_chains(program, 6)
    position = program.latent_layout.unpack(chains.latent)
    for name in ("x", "n"):
        assert ends[name].shape == (6,)
        np.testing.assert_array_equal(position[name], ends[name])
    second = adlmh.sample(1, two_sites, init=first, num_warmup=0, num_samples=2, **sizes)
    assert second.num_draws == 2


def test_counts_that_must_exceed_observed_ones_are_found():
    position = start(animals, SEEN)
    assert np.all(position["count"] >= SEEN)
    assert len(np.unique(position["rate"])) == 64


def test_sites_with_starting_values_stay_there_while_others_are_found():
    position = start(animals, SEEN, init={"rate": 9.0})
    assert np.all(position["rate"] == 9.0)
    assert np.all(position["count"] >= SEEN)


def test_single_elements_are_drawn_again_where_they_are_not_independent():
    assert np.all(np.diff(start(ordered, 6)["count"], axis=-1) >= 0)


def test_the_numpyro_kernel_finds_them_too():
    kernel = adlmh.AdLMH(animals)
    mcmc = MCMC(
        kernel, num_warmup=0, num_samples=1, num_chains=2, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(0), SEEN)
    assert np.all(mcmc.get_samples()["count"] >= SEEN)


def start(model, *args, num_chains=64, **options):
    program = compile_model(model, args, **options)
    chains = start_chains(program, num_chains)
    position = program.latent_layout.unpack(chains.latent)
    return {name: np.asarray(value) for name, value in position.items()}


def test_init_is_where_chains_start_and_other_sites_are_drawn():
    position = start(two_sites, init={"n": 7})
    assert np.all(position["n"] == 7)
    assert len(np.unique(position["x"])) == 64


def test_the_log_density_is_that_of_the_starting_values():
    program = compile_model(two_sites, (), init={"x": 0.5, "n": 7})
    chains = start_chains(program, 3)
    expected = dist.Normal(0.0, 1.0).log_prob(0.5) + dist.Poisson(jnp.exp(0.5)).log_prob(7)
    np.testing.assert_allclose(chains.log_terms.sum(axis=0), expected, rtol=1e-6)


def test_init_of_density_zero_is_refused():
    with pytest.raises(ModelError, match="n"):
        start(two_sites, init={"n": -1})


def test_init_of_another_shape_is_refused():
    with pytest.raises(ModelError, match="`init` of `x` has shape"):
        start(two_sites, init={"x": np.zeros((2, 3))})


def test_init_of_fractions_for_integers_is_refused():
    with pytest.raises(ModelError, match=r"`init` of `n` .* the site has integers of shape \(\)"):
        start(two_sites, init={"n": 2.5})


def test_integers_are_good_enough_for_a_continuous_site():
    position = start(flat, np.ones(3), init={"mean": 2})
    assert position["mean"].dtype == np.float32
    assert np.all(position["mean"] == 2.0)


def test_init_of_an_unknown_site_is_refused():
    with pytest.raises(ModelError, match="`init` has no latent site `xx`. Did you mean `x`"):
        start(two_sites, init={"xx": 0.0})


def test_an_improper_prior_has_the_posterior_of_its_likelihood():
    """The mean of 64 chains of 500 draws; the z-score has a false-alarm rate of 1e-5."""
    y = np.array([3.0, 4.0, 8.0, 5.0])
    result = adlmh.sample(
        1, flat, (y,), init={"mean": 0.0}, num_chains=64, num_warmup=500, num_samples=500,
        progress=False,
    )  # fmt: skip
    means = result.draws["mean"].mean(axis=1)
    assert abs(means.mean() - 5.0) < 4.5 * means.std(ddof=1) / np.sqrt(len(means))
    np.testing.assert_allclose(result.draws["mean"].std(), 1.0, rtol=0.05)


def test_prior_proposals_for_an_improper_prior_are_refused():
    for proposal in (adlmh.prior(), adlmh.random_walk() | adlmh.prior()):
        with pytest.raises(ValueError, match="`mean` is ImproperUniform"):
            adlmh.sample(0, flat, (1.0,), init={"mean": 0.0}, proposals={"mean": proposal}, **FEW)


@pytest.mark.parametrize("together", [True, False])
def test_chains_of_a_superchain_start_together_on_request(together):
    result = adlmh.sample(
        0, two_sites, outputs=["x"], num_chains=12, num_superchains=3, start_together=together,
        proposals={"x": stay, "n": adlmh.prior()}, **FEW,
    )  # fmt: skip
    starts = result.draws["x"].reshape(3, 4)
    assert len(np.unique(starts)) == (3 if together else 12)


def stay(key, value, values, distribution):
    del key, values, distribution
    return value, jnp.zeros(())
