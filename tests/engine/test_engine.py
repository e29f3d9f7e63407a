"""The runner: draws depend on the seed alone; one compilation; statistics; memory; processes."""

import os
import socket
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from updates import prior_kernel

import adlmh_jax as adlmh
from adlmh_jax.engine import make_key, runner, step
from adlmh_jax.engine.keeping import find_rows
from adlmh_jax.engine.rounds import plan_rounds

SIZES = dict(num_chains=8, num_superchains=4, num_warmup=3, num_samples=7, progress=False)


def model(y):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    count = numpyro.sample("count", dist.Poisson(rate))
    with numpyro.plate("data", 3):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(z + count, 1.0), obs=y)
    numpyro.deterministic("double", 2 * count)


DATA = jnp.array([0.5, 1.5, 1.0])


def assert_same(first, second):
    for name in first.draws:
        np.testing.assert_array_equal(first.draws[name], second.draws[name])
    np.testing.assert_array_equal(first.schedule.weights, second.schedule.weights)


@pytest.fixture(scope="module")
def reference():
    return adlmh.sample(11, model, (DATA,), keep="all", **SIZES)


def test_draws_do_not_depend_on_the_chunks(reference, monkeypatch):
    monkeypatch.setattr(runner, "next_rounds", lambda requested, done, seconds: 1)
    assert_same(reference, adlmh.sample(11, model, (DATA,), keep="all", **SIZES))


def test_draws_do_not_depend_on_the_devices(reference):
    assert len(jax.devices()) == 2
    one = adlmh.sample(11, model, (DATA,), keep="all", devices=jax.devices()[:1], **SIZES)
    assert_same(reference, one)


def test_draws_do_not_depend_on_progress(reference, capsys):
    sizes = {**SIZES, "progress": True}
    assert_same(reference, adlmh.sample(11, model, (DATA,), keep="all", **sizes))
    assert "compil" in capsys.readouterr().err.lower()


def test_keys_and_seeds_agree(reference):
    assert_same(reference, adlmh.sample(jax.random.key(11), model, (DATA,), keep="all", **SIZES))


def test_seeds_beyond_32_bits_differ():
    keys = [jax.random.key_data(make_key(seed)) for seed in (1, 2**32 + 1)]
    assert not np.array_equal(*keys)


def test_a_short_run_is_a_prefix_of_a_longer_one(reference):
    short = adlmh.sample(11, model, (DATA,), keep="all", **{**SIZES, "num_samples": 3})
    for name in short.draws:
        np.testing.assert_array_equal(short.draws[name], reference.draws[name][:, :3])


def test_one_compilation_whatever_the_number_of_draws(monkeypatch):
    """The model's moves are traced at most twice for a run in many chunks."""
    traced = []
    real = step.move

    def counting(*args, **options):
        traced.append(1)
        return real(*args, **options)

    monkeypatch.setattr("adlmh_jax.engine.superchain.move", counting)
    monkeypatch.setattr(runner, "next_rounds", lambda requested, done, seconds: 1)

    def fresh(y):
        x = numpyro.sample("x", dist.Laplace(0.3, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    sizes = {**SIZES, "num_samples": 200, "num_warmup": 100, "thinning": 1}
    adlmh.sample(0, fresh, (DATA,), epoch=4, **sizes)
    assert 1 <= len(traced) <= 2
    # Other data of the same shape: nothing is traced again.
    adlmh.sample(0, fresh, (DATA + 1.0,), epoch=4, **sizes)
    assert len(traced) <= 2


def test_other_data_gives_other_draws(reference):
    other = adlmh.sample(11, model, (DATA + 2.0,), keep="all", **SIZES)
    assert not np.array_equal(other.draws["count"], reference.draws["count"])


def test_large_data_are_not_copied_into_the_code():
    """A constant of 40 MB must be an argument of the compiled code, not part of it."""
    big = np.random.default_rng(0).normal(size=10_000_000).astype(np.float32)

    def regression():
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=big)

    program = adlmh.compile_model(regression)
    kernel, data = prior_kernel(program)
    words = jnp.zeros((kernel.num_words, 2), jnp.uint32)
    chains = program.empty_chains(2)
    lowered = jax.jit(lambda d, c: step.move(kernel, d, words, c, 0)[0]).lower(data, chains)
    assert len(lowered.as_text()) < 1_000_000


def test_statistics_equal_those_of_the_draws(reference):
    result = adlmh.sample(5, model, (DATA,), **{**SIZES, "num_samples": 150})
    flat = np.concatenate([d.reshape(8, 150, -1) for d in result.draws.values()], axis=2)
    statistics = result.statistics
    assert statistics.num_draws == 150
    np.testing.assert_allclose(statistics.mean, flat.mean(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(statistics.variance, flat.var(axis=1, ddof=1), rtol=1e-3, atol=1e-5)
    batches = flat[:, :128].reshape(8, 2, 64, -1).mean(axis=2)
    np.testing.assert_allclose(
        statistics.batch_variance, batches.var(axis=1, ddof=1), rtol=1e-2, atol=1e-5
    )
    names = result.program.output_names
    for index, name in enumerate(names):
        if name == "count" or name.startswith("z"):
            seen = np.bincount(flat[..., index].astype(int).ravel(), minlength=32)[:32]
            np.testing.assert_array_equal(statistics.histogram[index], seen)


def test_nothing_kept_but_statistics():
    result = adlmh.sample(5, model, (DATA,), keep=(), **SIZES)
    assert result.draws == {}
    assert result.log_density.shape == (0, 7)
    assert result.statistics.num_draws == 7


def test_where_nothing_is_kept_there_are_no_arrays_of_it():
    # Not even empty ones: of 65,536 rounds of many superchains XLA compiles them for minutes.
    program = adlmh.compile_model(model, (DATA,))
    chains = jax.eval_shape(lambda: program.empty_chains(4))
    assert jax.tree.leaves(find_rows(program, ()).record(chains)) == []


def test_thinning_longer_than_an_epoch():
    plan = plan_rounds(997, 64)
    assert plan.num_epochs * plan.epoch_steps >= 997
    result = adlmh.sample(5, model, (DATA,), thinning=50, epoch=16, blocks="never", **SIZES)
    steps = 8 * (3 + 7) * 50
    assert result.schedule.selected.sum() == steps


def test_superchains_that_do_not_fill_the_devices():
    sizes = {**SIZES, "num_chains": 9, "num_superchains": 3}
    result = adlmh.sample(5, model, (DATA,), **sizes)
    assert result.draws["count"].shape == (9, 7)
    assert result.schedule.weights.shape[0] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_superchains": 16}, "more than `num_chains` = 8"),
        ({"num_superchains": 3}, "does not divide"),
        ({"num_superchains": 1, "devices": 2}, "cannot be shared evenly"),
        ({"keep": ["rat"]}, "`keep` has no output or site `rat`"),
    ],
)
def test_bad_input(options, message):
    if "devices" in options:
        options = {**options, "devices": jax.devices()[: options["devices"]]}
    with pytest.raises(ValueError, match=message):
        adlmh.sample(0, model, (DATA,), **{**SIZES, **options})


def run_python(code, **environment):
    env = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    env.pop("XLA_FLAGS", None)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)


def test_all_cores_are_used_without_asking():
    code = "import adlmh_jax, jax, os; print(len(jax.devices()), len(os.sched_getaffinity(0)))"
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    devices, cores = map(int, done.stdout.split())
    assert devices == cores
    assert run_python(
        "import adlmh_jax, jax; print(len(jax.devices()))", ADLMH_CORES="1"
    ).stdout == ("1\n")


def test_import_where_the_affinity_is_not_known():
    """macOS and Windows have no `os.sched_getaffinity`."""
    done = run_python("import os; del os.sched_getaffinity; import adlmh_jax; print('imported')")
    assert done.stdout == "imported\n", done.stderr


def test_memory_of_a_streaming_run():
    """10,000 chains and 100,000 steps in less than 2 GB."""
    code = """
    import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    import adlmh_jax as adlmh

    def model():
        x = numpyro.sample("x", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=0.7)

    result = adlmh.sample(0, model, num_chains=10_000, num_superchains=4, num_warmup=10,
                          num_samples=100_000, thinning=1, keep=(), progress=False)
    assert result.statistics.num_draws == 100_000
    # Not ru_maxrss, which a process inherits from the one that started it.
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(status["VmHWM"].split()[0])
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 2e9


PROCESS = """
import sys
import jax
import numpy as np

port, number, path = sys.argv[1:]
jax.config.update("jax_num_cpu_devices", 1)
if port != "none":
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=int(number))
import adlmh_jax as adlmh
import numpyro
import numpyro.distributions as dist


def model():
    count = numpyro.sample("count", dist.Poisson(3.0))
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x + count, 1.0), obs=2.0)


result = adlmh.sample(4, model, num_chains=8, num_superchains=4, num_warmup=2, num_samples=5,
                      progress=number == "0")
np.savez(path, weights=result.schedule.weights, **result.draws)
"""


def test_processes_agree_on_how_long_a_chunk_took(monkeypatch):
    """They choose the next chunk by it, and must choose the same."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    gather = lambda mine: np.stack([mine, np.array(0.25)])  # noqa: E731
    monkeypatch.setattr(runner.multihost_utils, "process_allgather", gather)
    assert runner._slowest(0.125) == runner._slowest(0.25) == 0.25


def test_two_processes_make_the_draws_of_one(tmp_path):
    """Each process runs its share of the superchains; the gathered draws are those of one.

    Only the first process shows a bar, for which all of them gather what it shows.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    script = tmp_path / "process.py"
    script.write_text(PROCESS)
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    env.pop("XLA_FLAGS", None)
    calls = [(port, "0"), (port, "1"), ("none", "2")]
    running = [
        subprocess.Popen(
            [sys.executable, script, *call, tmp_path / f"{call[1]}.npz"],
            env=env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for call in calls
    ]
    errors = [process.communicate(timeout=600)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], errors
    first, second, alone = (np.load(tmp_path / f"{number}.npz") for number in range(3))
    for name in alone:
        np.testing.assert_array_equal(first[name], alone[name])
        np.testing.assert_array_equal(second[name], alone[name])
