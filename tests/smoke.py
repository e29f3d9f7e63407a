"""A first run in an environment that has the installed package and nothing else of this repository.

`make dist` runs it.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist

import adlmh_jax as adlmh

TESTED_FILES = Path(__file__).resolve().parents[1]


def model(readings):
    rate = numpyro.sample("rate", dist.LogNormal(1.0, 1.0))
    with numpyro.plate("pixels", len(readings)):
        photons = numpyro.sample("photons", dist.Poisson(rate))
        numpyro.sample("reading", dist.Normal(photons, 0.5), obs=readings)


def main():
    installed = Path(adlmh.__file__).resolve()
    assert TESTED_FILES / "src" not in installed.parents, (
        f"{installed} is not the installed package"
    )
    result = adlmh.sample(
        0, model, (np.array([3.2, 4.9, 0.8]),), num_chains=32, num_warmup=100, num_samples=200
    )
    print(result.summary())
    assert 1.0 < result.summary().loc["rate", "mean"] < 6.0
    assert result.to_arviz()["posterior"]["rate"].shape == (32, 200)
    command = [sys.executable, "-m", "adlmh_jax", "--version"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert told.startswith(f"adlmh_jax {adlmh.__version__} "), told
    print(told.strip(), "from", installed.parent)


if __name__ == "__main__":
    main()
