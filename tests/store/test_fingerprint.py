"""A stored run goes on only with the computation, the data and the versions that began it."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax.engine import RunConfig, build_engine
from adlmh_jax.store import fingerprint, run_settings


def make(loc=0.0, family=dist.Normal, power=1, seen=0.5):
    def model():
        x = numpyro.sample("x", family(loc, 1.0))
        numpyro.sample("y", dist.Normal(x**power, 1.0), obs=seen)

    return model


def settings(model, **options):
    program = adlmh.compile_model(model, **options)
    engine = build_engine(program, schedule=adlmh.ucb())
    return run_settings(engine, RunConfig(), ["x"], seed=0)


def differing(first, second):
    return sorted(name for name in first if first[name] != second[name])


def test_the_same_model_has_the_same_fingerprint():
    assert settings(make()) == settings(make())


@pytest.mark.parametrize(
    "change",
    [{"loc": 100.0}, {"family": dist.Cauchy}, {"power": 2}, {"seen": 0.7}],
    ids=["constant", "family", "power", "observation"],
)
def test_another_computation_is_noticed(change):
    found = differing(settings(make()), settings(make(**change)))
    assert set(found) & {"computations of the model", "data of the model"}


def test_other_data_are_told_from_another_computation():
    def model(data):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=data)

    first, second = (settings(model, model_args=(jnp.full(3, v),)) for v in (0.1, 0.2))
    assert differing(first, second) == ["data of the model"]


def test_versions_are_part_of_it(monkeypatch):
    first = settings(make())
    monkeypatch.setattr(fingerprint, "version", lambda name: "0.0.1")
    assert differing(first, settings(make())) == ["versions"]


def test_a_changed_model_is_refused(tmp_path):
    sizes = {"num_chains": 4, "num_warmup": 2, "num_samples": 3, "progress": False}
    adlmh.sample(0, make(), store=tmp_path / "run", **sizes)
    with pytest.raises(ValueError, match="computations of the model"):
        adlmh.sample(0, make(loc=100.0), store=tmp_path / "run", resume=True, **sizes)
    again = adlmh.sample(0, make(), store=tmp_path / "run", resume=True, **sizes)
    assert np.all(np.abs(again.draws["x"]) < 50)
