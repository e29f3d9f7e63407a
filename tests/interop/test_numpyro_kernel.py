"""`AdLMH` and `LMH` under `numpyro.infer.MCMC`, and as blocks of its `Gibbs`."""

import copy
import itertools
import pickle

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs, Predictive

from adlmh_jax.interop.numpyro_kernel import LMH, AdLMH

METHODS = {
    "sequential": "sequential",
    "parallel": "parallel",
    "vectorized": "vectorized",
    "vmap": jax.vmap,
}
DATA = jnp.array([0.1, 1.0, 1.9])
FIELDS = ("accept_prob", "num_steps", "potential_energy", "weights", "selected", "accepted")
num_model_runs = 0


def model(y):
    """A shift and three switches; NUTS cannot move the switches."""
    global num_model_runs
    num_model_runs += 1
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("switches", 3):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
    numpyro.deterministic("total", z.sum() + mu)
    numpyro.sample("y", dist.Normal(z + mu, 1.0), obs=y)


def exact_means():
    """Sum over the switches; given them, mu is normal."""
    switches = np.array(list(itertools.product((0, 1), repeat=3)))
    rest = np.asarray(DATA) - switches
    distance = np.sum(rest * np.linalg.solve(np.eye(3) + 1.0, rest.T).T, axis=1)
    weights = 0.3 ** switches.sum(axis=1) * 0.7 ** (1 - switches).sum(axis=1)
    weights = weights * np.exp(-0.5 * distance)
    weights /= weights.sum()
    return {"mu": weights @ rest.sum(axis=1) / 4, "z": weights @ switches}


def check_means(samples, num_chains):
    """Compare with the exact means, |z| < 4 by the spread of chains, or stretches of one.

    With 16 of them (15 degrees of freedom) the four estimates raise 5e-3 false alarms.
    """
    for name, truth in exact_means().items():
        means = np.asarray(samples[name]).reshape(num_chains, -1, *np.shape(truth)).mean(axis=1)
        error = means.std(axis=0, ddof=1) / np.sqrt(num_chains)
        assert (np.abs(means.mean(axis=0) - truth) < 4 * error).all(), name


def plain(kind=AdLMH, **options):
    """Return a kernel that is quick to compile."""
    return kind(model, proposals="prior", blocks="never", **options)


def run(kernel, num_samples=10, method="sequential", num_chains=2, **options):
    options = {"num_warmup": 5, "progress_bar": False} | options
    mcmc = MCMC(
        kernel, num_samples=num_samples, num_chains=num_chains, chain_method=method, **options
    )
    mcmc.run(jax.random.key(0), DATA, extra_fields=FIELDS)
    return mcmc


@pytest.fixture(scope="module", autouse=True)
def compile_once(tmp_path_factory):
    """Keep compiled code on disk: MCMC without a progress bar compiles its loop at every run."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0.2,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="module")
def one_run():
    """Twenty adapting iterations in one go: chains on their own, and vectorised."""
    kernel = plain(adapt="always")
    alone = run(kernel, 20, num_warmup=0, progress_bar=True)
    together = run(kernel, 20, "vectorized", num_warmup=0)
    return {"alone": alone, "together": together}


@pytest.fixture(scope="module")
def long_run():
    """Many vectorised chains, with the default proposals."""
    return run(AdLMH(model), 1000, "vectorized", 32, num_warmup=100, thinning=2)


@pytest.mark.parametrize(
    ("method", "progress_bar"),
    [
        ("sequential", True),
        pytest.param("sequential", False, marks=pytest.mark.slow),
        ("parallel", False),
        pytest.param("parallel", True, marks=pytest.mark.slow),
        ("vectorized", False),
        pytest.param("vectorized", True, marks=pytest.mark.slow),
        pytest.param("vmap", False, marks=pytest.mark.slow),
        ("vmap", True),
    ],
)
def test_run_and_resume(method, progress_bar, one_run):
    """Two halves are the whole, whatever runs the chains."""
    if method == "vmap" and progress_bar:
        with pytest.warns(UserWarning, match="Disabling progress bar"):
            mcmc = MCMC(plain(), num_warmup=0, num_samples=10, num_chains=2, chain_method=jax.vmap)
        assert not mcmc.progress_bar
        return
    kernel = one_run["alone"].sampler
    mcmc = run(kernel, 10, METHODS[method], num_warmup=0, progress_bar=progress_bar)
    first = mcmc.get_samples(True)
    mcmc.post_warmup_state = pickle.loads(pickle.dumps(mcmc.last_state))
    mcmc.run(mcmc.post_warmup_state.rng_key, DATA)
    second = mcmc.get_samples(True)
    whole = one_run["together" if method == "vectorized" else "alone"].get_samples(True)
    assert set(first) == {"mu", "z", "total"}
    for name, values in whole.items():
        np.testing.assert_allclose(first[name], values[:, :10], rtol=1e-6)
        np.testing.assert_allclose(second[name], values[:, 10:], rtol=1e-6)


def test_known_answer(long_run):
    check_means(long_run.get_samples(), 32)


def test_extra_fields(long_run):
    kernel, fields = long_run.sampler, long_run.get_extra_fields(group_by_chain=True)
    shapes = {name: values.shape for name, values in fields.items()}
    assert kernel.entry_names == ("mu", "z[:]", "mu (z summed out)")
    assert kernel.component_names == ("mu", "z[0]", "z[1]", "z[2]")
    sizes = {"weights": (3,), "selected": (4,), "accepted": (4,)}
    assert shapes == {name: (32, 500, *sizes.get(name, ())) for name in FIELDS}
    np.testing.assert_allclose(fields["weights"].sum(-1), 1.0, rtol=1e-5)
    assert (fields["num_steps"] == 3).all()
    selected, accepted = (np.asarray(fields[name][0, -1]) for name in ("selected", "accepted"))
    steps = 1100 * 3 * 32  # one of the entries counts for both
    assert steps < selected[:2].sum() < 2 * steps and (selected[1:] == selected[1]).all()
    assert (accepted <= selected).all() and (accepted > 0).all()
    assert "3 steps, acc. prob=0." in kernel.get_diagnostics_str(long_run.last_state)

    samples = long_run.get_samples(True)
    position = {name: samples[name][:, -1] for name in ("mu", "z")}
    energy = -jax.vmap(kernel.program.log_density)(position)
    np.testing.assert_allclose(fields["potential_energy"][:, -1], energy, rtol=1e-5)


def test_deterministic_sites_come_from_the_accepted_trace(long_run, one_run):
    """They agree with the latent values, and the model is not run again for them."""
    samples = long_run.get_samples()
    np.testing.assert_allclose(samples["total"], samples["z"].sum(-1) + samples["mu"], rtol=1e-5)
    before = num_model_runs
    again = copy.copy(one_run["alone"])
    again.run(jax.random.key(1), DATA, extra_fields=FIELDS)
    assert num_model_runs == before


def test_summary_and_prediction(long_run, capsys):
    long_run.print_summary()
    default = capsys.readouterr().out
    long_run.print_summary(exclude_deterministic=False)
    assert "z[2]" in default and "total" not in default and "total" in capsys.readouterr().out
    predicted = Predictive(model, long_run.get_samples())(jax.random.key(1), None)
    assert predicted["y"].shape == (32 * 500, 3)


def test_arviz(long_run):
    data = arviz.from_numpyro(long_run)
    assert data["posterior"]["z"].shape == (32, 500, 3)
    assert data["posterior"]["total"].dims == ("chain", "draw")
    assert data["sample_stats"]["acceptance_rate"].shape == (32, 500)
    np.testing.assert_allclose(data["observed_data"]["y"], DATA)


def test_outputs_are_recorded():
    kernel = AdLMH(model, outputs=lambda values: {"shift": 2 * values["mu"]})
    state = kernel.init(jax.random.key(0), 0, None, (DATA,), {})
    sample = kernel.postprocess_fn((DATA,), {})(state.z)
    assert set(sample) == {"mu", "z", "shift"} and sample["shift"] == 2 * sample["mu"]
    kernel = AdLMH(model, outputs=lambda values: {"mu": 2 * values["mu"]})
    with pytest.raises(ValueError, match="`outputs` calls `mu`"):
        kernel.init(jax.random.key(0), 0, None, (DATA,), {})


def test_schedule_learns_in_warmup_only(one_run):
    mcmc = MCMC(plain(), num_warmup=10, num_samples=10, progress_bar=False)
    mcmc.warmup(jax.random.key(0), DATA, extra_fields=("weights",), collect_warmup=True)
    learned = mcmc.get_extra_fields()["weights"]
    mcmc.run(jax.random.key(1), DATA, extra_fields=("weights",))
    frozen = mcmc.get_extra_fields()["weights"]
    assert (learned[0] != learned[-1]).any()
    np.testing.assert_array_equal(frozen, np.broadcast_to(learned[-1], frozen.shape))
    always = one_run["together"].get_extra_fields(True)["weights"][0]
    assert (always[0] != always[-1]).any()


def test_lmh_selects_evenly():
    even = run(plain(LMH), num_chains=1).get_extra_fields()["weights"]
    np.testing.assert_allclose(even, 0.25, rtol=1e-6)


def test_old_style_keys_and_pickled_kernels():
    kernel = pickle.loads(pickle.dumps(plain(outputs=["mu"], exploration=0.3)))
    mcmc = MCMC(kernel, num_warmup=2, num_samples=3, num_chains=2, chain_method="vectorized")
    mcmc.run(jax.random.PRNGKey(0), DATA)
    again = pickle.loads(pickle.dumps(mcmc))
    again.post_warmup_state = again.last_state
    again.run(jax.random.PRNGKey(1), DATA)
    assert again.get_samples()["z"].shape == (6, 3)


def test_init_params():
    kernel = AdLMH(model)
    start = {"mu": jnp.array([0.5, -0.5]), "z": jnp.array([[0, 1, 1], [1, 1, 0]])}
    keys = jax.random.split(jax.random.key(0), 2)
    state = kernel.init(keys, 0, start, (DATA,), {})
    np.testing.assert_array_equal(state.z["mu"], start["mu"])
    np.testing.assert_array_equal(state.z["z"], start["z"])
    again = kernel.init(keys, 0, state.z, (DATA,), {})
    jax.tree.map(np.testing.assert_array_equal, again.z, state.z)
    partly = kernel.init(keys[0], 0, {"mu": 0.25}, (DATA,), {})
    assert partly.z["mu"] == 0.25


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nu": 0.0}, "`init_params` names `nu`; the latent sites are `mu`, `z`"),
        ({"mu": jnp.zeros(3)}, r"gives `mu` the shape \(3,\); expected \(\)"),
        ({"z": jnp.zeros(3)}, "gives `z` values of type float32; the site takes int32"),
        ({"mu": jnp.nan}, "puts a chain at .*log density of `mu`, `y` is not finite"),
        ({"z": jnp.array([0, 1, 7])}, "puts a chain at .*log density of `z` is not finite"),
        (jnp.zeros(4), "`init_params` must be a dict"),
    ],
)
def test_wrong_init_params(wrong, message):
    mcmc = MCMC(plain(), num_warmup=0, num_samples=1, progress_bar=False)
    with pytest.raises(ValueError, match=message):
        mcmc.run(jax.random.key(0), DATA, init_params=wrong)


def test_wrong_arguments():
    mcmc = MCMC(AdLMH(model), num_warmup=0, num_samples=1, progress_bar=False)
    with pytest.raises(ValueError, match=r"The model takes \(y\) but was run with 2 positional"):
        mcmc.run(jax.random.key(0), DATA, DATA)
    with pytest.raises(ValueError, match="keywords `x`"):
        mcmc.run(jax.random.key(0), x=DATA)
    with pytest.raises(ValueError, match="being traced"):
        jax.jit(lambda y: AdLMH(model).init(jax.random.key(0), 0, None, (y,), {}))(DATA)
    with pytest.raises(ValueError, match="has not been run yet"):
        AdLMH(model).program  # noqa: B018
    with pytest.raises(ValueError, match="`steps_per_iteration` must be at least 1"):
        AdLMH(model, steps_per_iteration=0)
    with pytest.raises(ValueError, match="`adapt` must be"):
        AdLMH(model, adapt="never")
    with pytest.raises(ValueError, match="`model` must be a NumPyro model"):
        LMH("model")


def test_a_state_from_other_data_is_refreshed():
    kernel = plain()
    state = kernel.init(jax.random.key(0), 0, None, (DATA,), {})
    moved = kernel.sample(state, (DATA + 5.0,), {})
    expected = -kernel.program.log_density({name: moved.z[name] for name in ("mu", "z")})
    np.testing.assert_allclose(moved.potential_energy, expected, rtol=1e-5)


def test_gibbs_block_with_nuts():
    """NUTS moves mu and AdLMH the switches; other values of mu need no new compilation."""
    kernel = Gibbs([(NUTS(model), ["mu"]), (plain(), ["z"])])
    mcmc = MCMC(kernel, num_warmup=500, num_samples=16_000, progress_bar=False)
    field = "block_states.1.selected"
    before = num_model_runs
    mcmc.run(jax.random.key(0), DATA, extra_fields=(field,))
    assert num_model_runs - before < 60
    check_means(mcmc.get_samples(), 16)
    selected = mcmc.get_extra_fields()[field][-1]
    moved = [name != "mu" for name in kernel.blocks[1][0].component_names]
    assert ((selected > 0) == np.array(moved)).all()


def test_what_cannot_be_a_block():
    def enumerated():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        e = numpyro.sample("e", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
        k = numpyro.sample("k", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(x + e + k, 1.0), obs=1.0)

    def nested():
        x = numpyro.sample("x", dist.Bernoulli(0.5))
        numpyro.sample("b", dist.DiscreteUniform(0, x))

    values = {"_gibbs_sites": {"x": jnp.float32(0.0)}}
    with pytest.raises(ValueError, match="`e` is marked for enumeration"):
        AdLMH(enumerated).init(jax.random.key(0), 0, None, (), values)
    values = {"_gibbs_sites": {"b": jnp.int32(0)}}
    with pytest.raises(ValueError, match="The support of `b` depends on `x`"):
        AdLMH(nested).init(jax.random.key(0), 0, None, (), values)


def test_a_model_without_latent_sites_gives_empty_samples():
    def model(data):
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=data)

    mcmc = MCMC(AdLMH(model), num_warmup=2, num_samples=3, progress_bar=False)
    mcmc.run(jax.random.key(0), jnp.ones(2))
    assert mcmc.get_samples() == {}


def test_a_simplex_of_one_is_exactly_one():
    def model():
        x = numpyro.sample("x", dist.Dirichlet(jnp.ones(1)))
        numpyro.sample("y", dist.Normal(x.sum(), 1.0), obs=0.3)

    mcmc = MCMC(AdLMH(model), num_warmup=5, num_samples=20, progress_bar=False)
    mcmc.run(jax.random.key(0))
    assert np.all(np.asarray(mcmc.get_samples()["x"]) == 1.0)
