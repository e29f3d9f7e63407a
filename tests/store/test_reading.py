"""Stored draws are read by xarray and ArviZ, while the run goes on and after it."""

import subprocess
import sys

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from tiny_run import DATA, Telling, run

import adlmh_jax as adlmh
from adlmh_jax import session
from adlmh_jax.engine import progress
from adlmh_jax.store import directory, zarr

xarray = pytest.importorskip("xarray")
pytest.importorskip("zarr")

READER = """
import sys, warnings
from pathlib import Path
import numpy as np
import xarray
warnings.simplefilter("ignore")
path, seen = Path(sys.argv[1]) / "draws.zarr", []
print("ready", flush=True)
while not (path.parent / "over").exists():
    if not (path / ".zmetadata").exists():
        continue
    tree = xarray.open_datatree(path, engine="zarr")
    variables = [array for name in tree.groups[1:] for array in tree[name].data_vars.values()]
    sizes = {array.sizes["draw"] for array in variables}
    assert len(sizes) == 1, sizes
    group = xarray.open_zarr(path, group="posterior").load()
    num_draws = group.sizes["draw"]
    assert {variable.sizes["draw"] for variable in group.data_vars.values()} == {num_draws}
    assert np.isfinite(group["rate"]).all() and (group["rate"] > 0).all()
    np.testing.assert_array_equal(group["twice"], 2 * group["rate"])
    seen.append(num_draws)
assert seen == sorted(seen), seen
print(len(seen), len(set(seen)))
"""


def model(data):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    numpyro.deterministic("twice", 2 * rate)
    is_odd = numpyro.sample("a/odd", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Poisson(rate[0] + is_odd), obs=data)


def test_another_process_reads_while_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "max_chunk_rounds", lambda *others: 2)
    monkeypatch.setattr(directory, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(zarr, "CHUNK_BYTES", 32 * 6 * 4)
    monkeypatch.setattr(progress, "SilentMeter", lambda: Telling(lambda: None, 0.02))
    options = {"num_chains": 6, "num_warmup": 10, "num_samples": 200, "thinning": 4, "epoch": 8}
    command = [sys.executable, "-c", READER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout.readline() == "ready\n"
        result = adlmh.sample(
            0, model, (DATA,), store=tmp_path, progress=False, num_superchains=3, **options
        )
        (tmp_path / "over").touch()
        num_looks, num_lengths = map(int, reader.stdout.readline().split())
        assert reader.wait() == 0
    assert num_looks > 10 and num_lengths > 5
    stored = xarray.open_zarr(tmp_path / "draws.zarr", group="posterior")
    assert stored["rate"].dims == ("chain", "draw", "rate_dim_0")
    for name, values in result.draws.items():
        np.testing.assert_array_equal(stored[name.replace("/", ".")], values)


def test_arviz_reads_what_is_stored(tmp_path):
    import arviz

    result = run(tmp_path)
    tree = xarray.open_datatree(tmp_path / "draws.zarr", engine="zarr")
    data = tree
    if int(arviz.__version__.split(".")[0]) < 1:
        data = arviz.InferenceData.from_datatree(tree)
    np.testing.assert_array_equal(data.sample_stats["lp"], result.log_density)
    np.testing.assert_array_equal(data.posterior["rate"], result.draws["rate"])
    assert list(arviz.summary(data).index) == ["rate"]


def test_versions_2_and_3_of_zarr_read_what_is_stored(tmp_path):
    """ArviZ 0.23 reads with version 2 alone, others with either of them."""
    import arviz
    import zarr as library

    result = run(tmp_path)
    group = library.open_group(tmp_path / "draws.zarr", mode="r")
    is_second = library.__version__.startswith("2.")
    assert is_second or group.metadata.zarr_format == 2
    np.testing.assert_array_equal(group["posterior/rate"][:], result.draws["rate"])
    if is_second or not arviz.__version__.startswith("0."):
        data = arviz.from_zarr(str(tmp_path / "draws.zarr"))
        np.testing.assert_array_equal(data.posterior["rate"], result.draws["rate"])


def test_zeros_and_falsehoods_are_values(tmp_path):
    """No value means that there is none."""
    result = adlmh.sample(
        0, zeros, store=tmp_path, progress=False, num_chains=4, num_warmup=10, num_samples=20
    )
    stored = xarray.open_zarr(tmp_path / "draws.zarr", group="posterior")
    for name, values in result.draws.items():
        assert stored[name].dtype == values.dtype and not np.all(values)
        np.testing.assert_array_equal(stored[name], values)


def zeros():
    count = numpyro.sample("count", dist.Poisson(0.5))
    numpyro.deterministic("is_many", count > 1)
