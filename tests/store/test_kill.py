"""`kill -9` at random moments: the run that goes on has the draws of an uninterrupted one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_run import run

SCRIPT = Path(__file__).with_name("tiny_run.py")


@pytest.mark.parametrize(
    ("num_kills", "num_samples"), [(3, 400), pytest.param(100, 3000, marks=pytest.mark.slow)]
)
def test_killed_runs_go_on(tmp_path, num_kills, num_samples):
    environment = {**os.environ, "ADLMH_TEST_CACHE": jax.config.jax_compilation_cache_dir}
    command = [sys.executable, str(SCRIPT), "killed", str(tmp_path), str(num_kills)]
    command += [str(num_samples), "1"]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    said = json.loads(output)
    assert said["kills"] == num_kills and said["finished"] >= 1
    whole = run(num_samples=num_samples)
    for number in range(said["finished"]):
        np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), whole.draws["rate"])
        means = np.load(tmp_path / f"{number}.mean.npy")
        np.testing.assert_array_equal(means, whole.statistics.mean)
