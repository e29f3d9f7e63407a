"""`sample_many`: every data set as if it were alone."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax.model.datasets import read_datasets
from adlmh_jax.results import read_record

FEW = {"num_chains": 32, "num_superchains": 2, "num_warmup": 60, "num_samples": 20}
READINGS = np.random.default_rng(0).normal(3.0, 1.0, size=(5, 4)).astype(np.float32)
sample_many = functools.partial(adlmh.sample_many, progress=False)
sample = functools.partial(adlmh.sample, progress=False)

pytestmark = pytest.mark.filterwarnings("ignore::adlmh_jax.ConvergenceWarning")


def counts(readings, noise=0.5):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("places", readings.shape[0]):
        count = numpyro.sample("count", dist.Poisson(rate))
        numpyro.sample("reading", dist.Normal(count, noise), obs=readings)


def chain(seen):
    """A hidden chain, written as a Python loop: equal terms with different data."""
    state = numpyro.sample("state_0", dist.Bernoulli(0.5))
    for time in range(seen.shape[0]):
        numpyro.sample(f"seen_{time}", dist.Normal(2.0 * state, 1.0), obs=seen[time])
        state = numpyro.sample(f"state_{time + 1}", dist.Bernoulli(0.2 + 0.6 * state))


def trials(numbers, wins):
    """The values that a choice can have depend on the data."""
    chance = numpyro.sample("chance", dist.Beta(2.0, 2.0))
    with numpyro.plate("players", numbers.shape[0]):
        won = numpyro.sample("won", dist.Binomial(numbers, chance))
        numpyro.sample("wins", dist.Normal(won, 1.0), obs=wins)


def assert_same(result, alone):
    for name, array in alone.draws.items():
        np.testing.assert_array_equal(result.draws[name], array, err_msg=name)
    np.testing.assert_array_equal(result.log_density, alone.log_density)
    for one, other in zip(
        jax.tree.leaves(result.state.superchains),
        jax.tree.leaves(alone.state.superchains),
        strict=True,
    ):
        np.testing.assert_array_equal(one, np.asarray(other)[: len(one)])


@pytest.mark.parametrize("precision", ["float32", "float64"], indirect=True)
@pytest.mark.parametrize("model", [counts, chain])
def test_each_data_set_is_sampled_as_if_alone(model, precision):
    results = sample_many(7, model, (READINGS,), keep="all", **FEW)
    assert len(results) == 5
    for number in (0, 4):
        key = jax.random.fold_in(jax.random.key(7), number)
        alone = sample(key, model, (READINGS[number],), keep="all", **FEW)
        assert_same(results[number], alone)
        assert results[number].log_evidence == alone.log_evidence
    assert not np.array_equal(results[0].log_density, results[1].log_density)


def test_a_key_for_each_data_set():
    keys = [jax.random.fold_in(jax.random.key(7), number) for number in (3, 1)]
    whole = sample_many(7, counts, (READINGS,), **FEW)
    for given in (keys, jnp.stack(keys)):
        some = sample_many(given, counts, (READINGS[[3, 1]],), **FEW)
        np.testing.assert_array_equal(some.draws["rate"], whole.draws["rate"][[3, 1]])
    with pytest.raises(ValueError, match="`key` gives 2 keys for 5 data sets"):
        sample_many(keys, counts, (READINGS,), **FEW)
    with pytest.raises(ValueError, match="`resume=True` needs `store`"):
        sample_many(0, counts, (READINGS,), resume=True, **FEW)


def test_values_that_depend_on_the_data():
    numbers = np.array([[5, 5], [3, 9], [20, 1]])
    wins = np.array([[2.0, 4.0], [1.0, 5.0], [11.0, 1.0]])
    results = sample_many(0, trials, (numbers, wins), **FEW)
    most = results.draws["won"].max(axis=(1, 2))
    assert np.all(most <= numbers)
    assert most[2, 0] > 9
    assert np.all(results.draws["won"].min(axis=(1, 2)) >= 0)


def test_ways_to_give_data_sets():
    stacked = sample_many(1, counts, (READINGS[:2],), **FEW)
    for datasets in (
        [(READINGS[0],), (READINGS[1],)],
        [{"readings": READINGS[0]}, {"readings": jnp.asarray(READINGS[1])}],
        [((READINGS[0],), {"noise": 0.5}), ((READINGS[1],), {"noise": 0.5})],
        {"readings": READINGS[:2], "noise": 0.5},
    ):
        results = sample_many(1, counts, datasets, **FEW)
        np.testing.assert_array_equal(results.draws["rate"], stacked.draws["rate"])
    noisy = [((READINGS[0],), {"noise": 0.5}), ((READINGS[0],), {"noise": 5.0})]
    results = sample_many(1, counts, noisy, **FEW)
    spread = results.draws["count"].std(axis=(1, 2)).mean(axis=1)
    assert spread[1] > 1.5 * spread[0]


def test_results_are_a_sequence_with_tables():
    names = ["north", "south", "east", "west", "home"]
    results = sample_many(2, counts, (READINGS,), names=names, **FEW)
    assert "5 data sets" in repr(results)
    assert [r.seed for r in results] == [results[i].seed for i in range(5)]
    assert len(results[1:3]) == 2
    table = results.summary()
    assert len(table) == 5 * 5
    assert table.loc[("west", "rate"), "mean"] == pytest.approx(
        results[3].summary().loc["rate", "mean"]
    )
    assert len(results.verdicts) == 5
    posterior = results.to_arviz()["posterior"]
    assert posterior["count"].dims == ("dataset", "chain", "draw", "places")
    np.testing.assert_array_equal(posterior["rate"].sel(dataset="east"), results[2].draws["rate"])
    with pytest.raises(ValueError, match=r"go on together: `results\.extend\(n\)`"):
        results[2].extend(3)
    with pytest.raises(TypeError, match="`Results` cannot be pickled"):
        pickle.dumps(results)


def test_a_run_without_draws_and_a_run_that_goes_on():
    whole = sample_many(3, counts, (READINGS,), **{**FEW, "num_samples": 30})
    part = sample_many(3, counts, (READINGS,), **FEW)
    np.testing.assert_array_equal(part.extend(10).draws["rate"], whole.draws["rate"])
    bare = sample_many(3, counts, (READINGS,), keep=(), **FEW)
    mean = bare[2].summary().loc["rate", "mean"]
    assert mean == pytest.approx(part.draws["rate"][2].mean(), rel=1e-5)


def test_a_stored_run_goes_on(tmp_path):
    whole = sample_many(3, counts, (READINGS,), **FEW)
    sample_many(3, counts, (READINGS,), store=tmp_path, **{**FEW, "num_samples": 10})
    record = read_record(tmp_path)
    assert (record.num_superchains, record.draws["rate"].shape) == (2, (32, 10, 5))
    np.testing.assert_array_equal(record.draws["rate"][..., 3], whole[3].draws["rate"][:, :10])
    again = sample_many(3, counts, (READINGS,), store=tmp_path, resume=True, **FEW)
    np.testing.assert_array_equal(again.draws["rate"], whole.draws["rate"])
    with pytest.raises(adlmh.StoreError, match="data of the model"):
        sample_many(3, counts, (READINGS + 1,), store=tmp_path, resume=True, **FEW)


@pytest.mark.parametrize(
    ("datasets", "error", "message"),
    [
        ([], ValueError, "`datasets` is empty"),
        (READINGS, TypeError, "`datasets` must be a list of data sets"),
        ([READINGS[0]], TypeError, r"Data set 0 must be a tuple.*Write `\(data,\)`"),
        ([(READINGS[0],), (READINGS[0, :2],)], ValueError, r"Argument 1 of data set 1 has shape"),
        (
            [{"readings": READINGS[0]}, {"readings": READINGS[0, :2]}],
            ValueError,
            r"`readings` of data set 1 has shape \(2,\)",
        ),
        (
            [{"readings": READINGS[0], "aB": "x"}, {"readings": READINGS[0], "aB": "y"}],
            ValueError,
            "`aB` is 'x' in data set 0",
        ),
        ([(READINGS[0],), (READINGS[0], 0.3)], ValueError, "Data set 1 has other arguments"),
        ({"readings": READINGS, "noise": np.ones(3)}, ValueError, "`noise` has 3"),
        ([(READINGS[0], 0.5), (READINGS[0], "low")], ValueError, "Argument 2 is 0.5 in data set 0"),
    ],
)
def test_bad_data_sets_are_refused(datasets, error, message):
    with pytest.raises(error, match=message):
        sample_many(0, counts, datasets, **FEW)


def test_bad_names_are_refused():
    for names in (["a"], ["a", "a"], "ab"):
        with pytest.raises(ValueError, match="`names` must be 2 different names"):
            sample_many(0, counts, (READINGS[:2],), names=names, **FEW)
    datasets = [(READINGS[0],), (READINGS[0, :2],)]
    with pytest.raises(ValueError, match="Argument 1 of data set `b` has shape.*of data set `a`"):
        sample_many(0, counts, datasets, names=["a", "b"], **FEW)


def test_whole_numbers_among_others():
    (args, _), own, number = read_datasets([(np.array([1, 2]), 1), (np.array([0.5, 2.0]), 2)])
    assert number == 2
    assert own[0].values.tolist() == [[1.0, 2.0], [0.5, 2.0]]
    assert own[1].values.dtype.kind == "i"


def test_proposals_without_a_density_are_told_once_with_their_data_sets():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("f", jnp.where(x > y[0], jnp.nan, 0.0))

    data = np.array([[-0.5], [90.0], [0.3]], np.float32)
    settings = {**FEW, "start": "prior", "init": {"x": -1.0}, "proposals": "prior"}
    with pytest.warns(UserWarning, match=r"proposals in data set 0, 2 had a log density of NaN"):
        results = sample_many(0, model, (data,), **settings)
    assert results[0].schedule.invalid.sum() > 0  # without another warning


def test_a_model_that_asks_for_values_of_data():
    def careless(readings):
        numpyro.sample("rate", dist.Gamma(float(np.log(readings).sum()), 1.0))

    with pytest.raises(adlmh.ModelError, match="differs between data sets.*jax.numpy"):
        sample_many(0, careless, (np.ones((3, 4)) + 1,), **FEW)
