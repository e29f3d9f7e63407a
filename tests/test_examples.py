"""The examples in docstrings run, with few chains and draws, on README's model."""

import functools
import inspect
import textwrap
from types import SimpleNamespace

import jax
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

SHORT = {"num_chains": 8, "num_warmup": 20, "num_samples": 20, "progress": False}
SHORTENED = {
    "sample": SHORT,
    "sample_many": SHORT,
    "sbc": SHORT | {"num_datasets": 4},
}
SLOW = {"AdLMH", "as_algorithm", "merge", "sample_many", "sbc"}  # each compiles for long
WITH_EXAMPLES = [
    name for name in adlmh_jax.__all__ if "Examples\n" in (getattr(adlmh_jax, name).__doc__ or "")
]


def model(readings):
    rate = numpyro.sample("rate", dist.LogNormal(1.0, 1.0))
    with numpyro.plate("pixels", len(readings)):
        photons = numpyro.sample("photons", dist.Poisson(rate))
        numpyro.sample("reading", dist.Normal(photons, 0.5), obs=readings)


def example_of(name):
    """Return the code of an example: what stands, indented, after its two colons."""
    section = inspect.getdoc(getattr(adlmh_jax, name)).split("Examples\n--------\n")[1]
    return textwrap.dedent(section.split("::\n", 1)[1])


def shorten(name):
    """Return a public function; those that sample take few chains where none are given."""
    function = getattr(adlmh_jax, name)
    return functools.partial(function, **SHORTENED[name]) if name in SHORTENED else function


def test_what_is_called_first_has_examples():
    first = {"sample", "sample_many", "sbc", "merge", "collapse", "compile_model", "AdLMH"}
    assert first | {"plot_schedule", "as_algorithm"} <= set(WITH_EXAMPLES)


@pytest.mark.filterwarnings("ignore::adlmh_jax.ConvergenceWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in WITH_EXAMPLES],
)
def test_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {
        "adlmh": SimpleNamespace(**{name: shorten(name) for name in adlmh_jax.__all__}),
        "functools": functools,
        "jax": jax,
        "model": model,
        "numpyro": numpyro,
        "readings": np.array([3.2, 4.9, 0.8, 2.1, 4.4], np.float32),
    }
    exec(compile(example_of(name), f"example of {name}", "exec"), names)
    pyplot.close("all")
