"""How often XLA compiles: few times in a run, and never in a second one of the same shapes."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import numpy as np
import pytest

from adlmh_jax import use_compilation_cache
from adlmh_jax.engine import host
from adlmh_jax.engine.keys import START, address, fold_in

README = Path(__file__).parents[2] / "README.md"
MAX_COMPILATIONS = 6
COUNT = """
    import json
    import jax
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **others: compiled.append(others.get("fun_name"))
        if event == "/jax/core/compile/backend_compile_duration" else None
    )
"""
AGAIN = """
    first, compiled[:] = list(compiled), []
    for seed, settings in [
        (1, {}),
        (0, {"num_samples": 37}),
        (0, {"num_samples": 2100, "num_warmup": 90}),
        (0, {"schedule": adlmh.ucb(exploration=0.7)}),
    ]:
        again = adlmh.sample(
            seed,
            model,
            (readings + seed,),
            outputs=["rate", "photons"],
            progress=False,
            **settings,
        )
        again.summary()
    print(json.dumps([first, compiled]))
"""


def run_python(code, **environment):
    """Run code in a process that has compiled nothing; return the last line that it prints."""
    env = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_few_compilations_and_none_for_what_is_no_shape():
    example = README.read_text().split("```python\n")[1].split("```")[0]
    example = example.split("data = result.to_arviz()")[0]  # ArviZ is no part of the sampler
    code = textwrap.dedent(COUNT) + example + textwrap.dedent(AGAIN)
    first, again = json.loads(run_python(code, ADLMH_CACHE="off"))
    assert len(first) <= MAX_COMPILATIONS, first
    assert not again


def test_keys_are_those_of_jax():
    key = jax.random.key(12)
    expected = jax.random.fold_in(key, START)
    np.testing.assert_array_equal(*map(jax.random.key_data, (fold_in(key, START), expected)))
    expected = [jax.random.key_data(jax.random.fold_in(key, number)) for number in range(3)]
    np.testing.assert_array_equal(address([key], range(3)).run_keys, expected)


@pytest.mark.parametrize("chosen", ["", "off", "mine", "jax's"])
def test_the_cache_is_where_the_user_wants_it(tmp_path, chosen):
    settings = {"XDG_CACHE_HOME": str(tmp_path), "ADLMH_CACHE": ""}
    if chosen == "jax's":
        settings["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path / chosen)
    elif chosen:
        settings["ADLMH_CACHE"] = chosen if chosen == "off" else str(tmp_path / chosen)
    used = run_python(
        "import adlmh_jax, jax; print(jax.config.jax_compilation_cache_dir)", **settings
    )
    if chosen == "off":
        assert used == "None" and not list(tmp_path.iterdir())
    elif chosen:
        assert used == str(tmp_path / chosen)
    else:
        path = Path(used)
        assert path.parent == tmp_path and path.name.startswith("adlmh_jax-")
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "default_directory", lambda: tmp_path / "open")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    used = jax.config.jax_compilation_cache_dir
    monkeypatch.delenv("ADLMH_CACHE")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # as the tests have it
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        host.use_default_cache()
        assert jax.config.jax_compilation_cache_dir is None
        (tmp_path / "open").chmod(0o700)
        host.use_default_cache()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "open")
    finally:
        use_compilation_cache(used)


def test_a_cache_that_is_too_large_loses_its_oldest_half(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "MAX_BYTES", 40)
    for age in range(6):
        path = tmp_path / f"{age}-cache"
        path.write_bytes(bytes(10))
        os.utime(path, (1000 - age, 1000 - age))
    host._forget_oldest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-cache", "1-cache"]
