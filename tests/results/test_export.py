"""Runs as ArviZ data: names, dimensions, groups, files."""

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray
from numpyro import handlers
from numpyro.infer.util import log_likelihood
from scipy import stats

import adlmh_jax as adlmh
from adlmh_jax.model import predictive
from adlmh_jax.results.arviz import to_arviz

IS_NEW_ARVIZ = int(arviz.__version__.split(".")[0]) >= 1
DATA = np.array([[1.0, 0.5, 2.0], [0.0, 3.0, 1.0]])
OFFSETS = np.array([0.1, 0.2, 0.3])


def model(offsets, data, scale=1.0):
    """Two nested plates, an event dimension, a discrete site, and data."""
    level = numpyro.sample("level", dist.Normal(0.0, scale))
    numpyro.sample("mix", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    with handlers.scope(prefix="part"):
        numpyro.sample("inner", dist.Bernoulli(0.4))
    with numpyro.plate("time", 3):
        effect = numpyro.sample("effect", dist.Normal(0.0, 0.5))
        with numpyro.plate("place", 2, dim=-2):
            numpyro.sample("y", dist.Normal(level + effect + offsets, 1.0), obs=data)
    numpyro.deterministic("is_high", level > 0)
    numpyro.factor("nudge", -0.1 * level**2)


def datasets(data):
    """The groups of either kind of ArviZ data."""
    if IS_NEW_ARVIZ:
        return {name: node.to_dataset() for name, node in data.children.items()}
    return {name: data[name] for name in data.groups()}


@pytest.fixture(scope="module")
def result():
    return adlmh.sample(
        5,
        model,
        (OFFSETS, DATA),
        {"scale": 2.0},
        proposals="prior",
        num_chains=8,
        num_warmup=10,
        num_samples=12,
        progress=False,
    )


@pytest.fixture(scope="module")
def full(result):
    return result.to_arviz(prior=30, posterior_predictive=True, log_likelihood=True)


def test_type_and_groups(result, full):
    assert type(full) is (xarray.DataTree if IS_NEW_ARVIZ else arviz.InferenceData)
    usual = {"posterior", "sample_stats", "observed_data", "constant_data"}
    assert set(datasets(result.to_arviz())) == usual
    more = {"posterior_predictive", "log_likelihood", "prior", "prior_predictive"}
    assert set(datasets(full)) == usual | more


def test_posterior(result, full):
    posterior = datasets(full)["posterior"]
    assert posterior["level"].dims == ("chain", "draw")
    assert posterior["effect"].dims == ("chain", "draw", "time")
    assert posterior["mix"].dims == ("chain", "draw", "mix_dim_0")
    assert set(posterior) == {"level", "mix", "part.inner", "effect", "is_high"}
    for name, draws in result.draws.items():
        np.testing.assert_array_equal(posterior[name.replace("/", ".")].values, draws)
    assert posterior["is_high"].dtype == np.int8
    np.testing.assert_array_equal(posterior["time"], np.arange(3))


def test_few_chains_for_plots(result):
    few = datasets(result.to_arviz(chains=3))
    np.testing.assert_array_equal(few["posterior"]["chain"], [1, 4, 6])
    np.testing.assert_array_equal(few["posterior"]["superchain"], [0, 2, 3])
    np.testing.assert_array_equal(few["sample_stats"]["lp"], result.log_density[[1, 4, 6]])
    for name, draws in result.draws.items():
        np.testing.assert_array_equal(few["posterior"][name.replace("/", ".")], draws[[1, 4, 6]])
    with pytest.raises(ValueError, match="`chains` must be from 1 to 8"):
        result.to_arviz(chains=9)


def test_the_schedule_is_exported(result, full):
    report, stats = result.schedule, datasets(full)["sample_stats"]
    assert list(stats["schedule_entry"].values) == report.names
    for name in ("weights", "selected", "accepted", "rewards", "counts"):
        np.testing.assert_array_equal(stats[f"schedule_{name}"], getattr(report, name))
    again = type(report).from_arrays(report.as_arrays())
    assert again.names == report.names and set(again.learned) == set(report.learned)


def test_sample_stats(result, full):
    sample_stats = datasets(full)["sample_stats"]
    np.testing.assert_array_equal(sample_stats["lp"], result.log_density)
    assert sample_stats["lp"].dims == ("chain", "draw")
    np.testing.assert_array_equal(sample_stats["superchain"], np.repeat(np.arange(4), 2))
    assert sample_stats["superchain"].dims == ("chain",)
    rates = result.schedule.accepted.sum(axis=1) / result.schedule.selected.sum(axis=1)
    np.testing.assert_array_equal(sample_stats["acceptance_rate"], np.repeat(rates, 2))


def test_data(full):
    groups = datasets(full)
    assert set(groups["observed_data"]) == {"y"}
    assert groups["observed_data"]["y"].dims == ("place", "time")
    np.testing.assert_array_equal(groups["observed_data"]["y"], DATA)
    assert set(groups["constant_data"]) == {"offsets"}
    np.testing.assert_array_equal(groups["constant_data"]["offsets"], OFFSETS)


def test_attributes(result):
    for attributes in (result.to_arviz().attrs, datasets(result.to_arviz())["posterior"].attrs):
        assert attributes["inference_library"] == "adlmh_jax"
        assert attributes["num_chains"] == 8 and attributes["num_superchains"] == 4
        assert attributes["num_warmup"] == 10 and attributes["adapt"] == "warmup"
        assert attributes["jax_version"] == jax.__version__
        assert attributes["numpyro_version"] == numpyro.__version__
        assert attributes["arviz_version"] == arviz.__version__
        assert attributes["created_at"].startswith("20")
        assert attributes["schedule"].startswith("ucb")


def test_log_likelihood(result, full):
    ours = datasets(full)["log_likelihood"]["y"]
    assert ours.dims == ("chain", "draw", "place", "time")
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in result.draws.items()}
    latent = {name: flat[name] for name in result.program.sites.names}
    expected = log_likelihood(model, latent, OFFSETS, DATA, scale=2.0)["y"]
    np.testing.assert_allclose(ours.values.reshape(-1, 2, 3), expected, rtol=1e-4, atol=1e-5)


def test_batches_do_not_matter(result, full, monkeypatch):
    monkeypatch.setattr(predictive, "BATCH_VALUES", 42)  # seven draws at once, 96 in all
    again = result.to_arviz(posterior_predictive=True, log_likelihood=True)
    for group in ("posterior_predictive", "log_likelihood"):
        expected = datasets(full)[group]["y"]
        np.testing.assert_allclose(datasets(again)[group]["y"], expected, rtol=1e-5)


def test_posterior_predictive(result, full):
    predicted = datasets(full)["posterior_predictive"]["y"]
    assert predicted.dims == ("chain", "draw", "place", "time")
    draws = result.draws
    mean = (draws["level"][..., None] + draws["effect"] + OFFSETS)[..., None, :]
    scores = np.ravel(predicted.values - mean)
    assert stats.kstest(scores, "norm").pvalue > 1e-4
    assert (predicted.values[..., 0, :] != predicted.values[..., 1, :]).any()


def test_prior(full):
    prior = datasets(full)["prior"]
    assert prior["effect"].dims == ("chain", "draw", "time")
    assert prior["effect"].shape == (1, 30, 3)
    assert set(prior) == {"level", "mix", "part.inner", "effect", "is_high"}
    assert np.std(prior["level"]) == pytest.approx(2.0, rel=0.5)
    assert datasets(full)["prior_predictive"]["y"].shape == (1, 30, 2, 3)
    np.testing.assert_array_equal(prior["is_high"], prior["level"] > 0)


def test_coords_and_dims_of_the_user(result):
    data = result.to_arviz(
        coords={"time": ["spring", "summer", "autumn"], "weight": ["a", "b"]},
        dims={"mix": ["weight"]},
    )
    posterior = datasets(data)["posterior"]
    assert posterior["mix"].dims == ("chain", "draw", "weight")
    assert list(posterior["time"].values) == ["spring", "summer", "autumn"]
    assert posterior["effect"].sel(time="summer").shape == (8, 12)
    assert list(datasets(data)["observed_data"]["time"].values) == ["spring", "summer", "autumn"]


def check_round_trip(data, back):
    assert set(datasets(back)) == set(datasets(data))
    for name, group in datasets(data).items():
        again = datasets(back)[name]
        xarray.testing.assert_equal(again, group)
        assert again.attrs["schedule"] == group.attrs["schedule"]


def test_netcdf(full, tmp_path):
    path = str(tmp_path / "run.nc")
    full.to_netcdf(path)
    check_round_trip(full, arviz.from_netcdf(path))


def test_zarr(full, tmp_path):
    path = str(tmp_path / "run.zarr")
    tree = full if IS_NEW_ARVIZ else full.to_datatree()
    tree.to_zarr(path, consolidated=False)
    back = xarray.open_datatree(path, engine="zarr", consolidated=False)
    groups = {name: node.to_dataset() for name, node in back.children.items()}
    check_round_trip(full, back if IS_NEW_ARVIZ else arviz.InferenceData(**groups))


def test_arviz_takes_it(full):
    table = arviz.summary(full, var_names=["level", "effect"])
    assert list(table.index) == ["level", *(f"effect[{i}]" for i in range(3))]


def one_chain(program, position, **options):
    """Export a single draw, without a run."""
    draws = {name: np.asarray(value)[None, None] for name, value in position.items()}
    return datasets(to_arviz(program, draws, {"lp": np.zeros((1, 1))}, {}, **options))


def test_rows_of_a_subsample_are_its_coordinates():
    def subsampled():
        with numpyro.plate("rows", 10, subsample_size=3):
            numpyro.sample("z", dist.Normal(0.0, 1.0))

    rows = {"rows": jnp.array([7, 1, 4])}
    program = adlmh.compile_model(handlers.substitute(subsampled, data=rows))
    groups = one_chain(program, {"z": np.zeros(3)})
    np.testing.assert_array_equal(groups["posterior"]["rows"], [7, 1, 4])
    assert set(groups) == {"posterior", "sample_stats"}  # neither data nor arguments


def test_output_with_the_name_of_a_plate():
    def plated(*arrays, **more):
        with numpyro.plate("total", 2):
            numpyro.sample("z", dist.Normal(0.0, 1.0))

    program = adlmh.compile_model(
        plated,
        (OFFSETS,),
        {"weights": OFFSETS},
        outputs=lambda values: {"total": values["z"].sum()},
    )
    groups = one_chain(program, {"z": np.zeros(2), "total": np.array(0.0)})
    assert groups["posterior"]["z"].dims == ("chain", "draw", "total_dim")
    assert set(groups["constant_data"]) == {"arrays_0", "weights"}


def test_predictions_need_all_latent_sites():
    def two():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a + b, 1.0), obs=0.0)

    program = adlmh.compile_model(two, outputs=["a"])
    with pytest.raises(ValueError, match='`b` was not kept. Sample with `keep="all"`'):
        one_chain(program, {"a": np.array(0.0)}, log_likelihood=True)
    program = adlmh.compile_model(two, outputs=lambda values: {"a": 2 * values["a"]})
    with pytest.raises(ValueError, match="`a` was not kept.*given by name"):
        one_chain(program, {"a": np.array(0.0), "b": np.array(0.0)}, posterior_predictive=True)


def test_data_smaller_than_its_plates():
    def model(rows):
        with numpyro.plate("rows", 2, dim=-2), numpyro.plate("columns", 3):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=jnp.zeros(3))

    program = adlmh.compile_model(model, (np.arange(5.0),))
    groups = one_chain(program, {"z": np.zeros((2, 3))}, log_likelihood=True)
    assert groups["observed_data"]["y"].dims == ("columns",)
    assert groups["log_likelihood"]["y"].dims == ("chain", "draw", "rows", "columns")
    assert groups["constant_data"]["rows"].dims == ("rows_dim_0",)
