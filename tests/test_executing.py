"""A run in shares: the same, bit for bit, whoever runs them, and whoever dies on the way."""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures.process import BrokenProcessPool

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax import executing
from adlmh_jax.store import read_counts

DATA = np.array([1.0, 3.0, 2.0], np.float32)
SIZES = {"num_chains": 10, "num_superchains": 5, "num_warmup": 20, "num_samples": 15}
LONG = {**SIZES, "num_samples": 4000, "thinning": 400, "keep": ["rate"]}
SPAWN = multiprocessing.get_context("spawn")


def counts(data):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Poisson(rate), obs=data)


sample = functools.partial(adlmh.sample, 0, counts, (DATA,), progress=False)


def assert_same(one, other):
    np.testing.assert_array_equal(one.draws["rate"], other.draws["rate"])
    np.testing.assert_array_equal(one.log_density, other.log_density)
    num = one.num_superchains
    leaves = (jax.tree.leaves(result.state.superchains) for result in (one, other))
    for a, b in zip(*leaves, strict=True):
        np.testing.assert_array_equal(np.asarray(a)[:num], np.asarray(b)[:num])


class Inline:
    """Runs what is submitted at once; the workers of the first few do not survive it."""

    def __init__(self, num_deaths=0, is_broken_after=None):
        self.num_deaths, self.is_broken_after, self.num_submitted = num_deaths, is_broken_after, 0

    def submit(self, function, *args):
        if self.num_submitted == self.is_broken_after:
            raise BrokenProcessPool("it takes no more work")
        self.num_submitted += 1
        future = concurrent.futures.Future()
        if self.num_submitted <= self.num_deaths:
            future.set_exception(BrokenProcessPool("killed"))
        else:
            future.set_result(function(*args))
        return future


@pytest.fixture(scope="module")
def whole():
    return sample(**SIZES)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(executing, "POLL_SECONDS", 0.01)


def test_shares_make_the_run_that_was_never_divided(whole, tmp_path):
    executor = Inline()
    result = sample(executor=executor, **SIZES)
    assert executor.num_submitted == 5
    assert_same(result, whole)
    assert result.seconds > 0
    place = tmp_path / "run"
    stored = sample(executor=Inline(), num_shares=2, store=place, **SIZES)
    assert_same(stored, whole)
    assert sorted(path.name for path in place.iterdir()) == ["draws.zarr", "lock", "state.bin"]
    more = {**SIZES, "num_samples": 20}
    with pytest.raises(adlmh.StoreError, match="15 draws that is not divided"):
        sample(executor=Inline(), store=place, resume=True, **more)
    longer = whole.extend(5)
    assert_same(result.extend(5), longer)
    assert_same(stored.extend(5), longer)
    idle = Inline()
    assert_same(sample(executor=idle, store=place, resume=True, **more), longer)
    assert not idle.num_submitted


def test_a_share_whose_worker_dies_is_tried_again(whole, capsys):
    executor = Inline(num_deaths=3)
    result = adlmh.sample(0, counts, (DATA,), executor=executor, num_shares=2, **SIZES)
    assert executor.num_submitted == 5
    assert_same(result, whole)
    assert "2 of 2 done, 3 tried again" in capsys.readouterr().err


def test_a_share_is_given_up_after_three_tries_and_goes_on_later(whole, tmp_path):
    with pytest.raises(RuntimeError, match=r"superchains 0 to 4 was given up after 3 tries.*kill"):
        sample(executor=Inline(num_deaths=9), num_shares=1, store=tmp_path, **SIZES)
    with pytest.raises(RuntimeError, match="takes no more work.*give a function that makes it"):
        sample(executor=Inline(1, 1), store=tmp_path, resume=True, **SIZES)
    with pytest.raises(adlmh.StoreError, match="holds a run already"):
        sample(executor=Inline(), store=tmp_path, **SIZES)
    made = []

    def make():
        made.append(Inline(num_deaths=1, is_broken_after=1) if not made else Inline())
        return made[-1]

    assert_same(sample(executor=make, store=tmp_path, resume=True, **SIZES), whole)
    assert len(made) == 2


def test_ctrl_c_takes_back_what_has_not_begun(tmp_path):
    futures = []

    class Waiting:
        def submit(self, function, *args):
            futures.append(concurrent.futures.Future())
            if len(futures) == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return futures[-1]

    # Jobs in the background ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt, match="With `store=`, what they make is kept"):
            sample(executor=Waiting(), num_shares=2, store=tmp_path, **SIZES)
    finally:
        signal.signal(signal.SIGINT, before)
    assert all(future.cancelled() for future in futures)
    assert (tmp_path / executing.MARK).exists()


def test_wrong_executors_and_settings(tmp_path):
    fork = concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    for settings, error, message in (
        ({"executor": fork}, ValueError, "forks its workers.*spawn"),
        ({"executor": 3}, TypeError, "`executor` must have `submit`"),
        ({"executor": lambda: 3}, TypeError, "made 3, which has no `submit`"),
        ({"executor": Inline(), "num_shares": 6}, ValueError, "from 1 to 5, the number of sup"),
        ({"num_shares": 2}, ValueError, "`num_shares` needs `executor`"),
        ({"executor": Inline(), "superchains": range(2)}, ValueError, "Leave one of them out"),
        ({"executor": Inline(), "devices": jax.devices()}, ValueError, "use their own"),
    ):
        with pytest.raises(error, match=message):
            sample(**settings, **SIZES)
    lock = threading.Lock()

    def holding():
        with lock:
            numpyro.sample("rate", dist.Gamma(2.0, 1.0))

    with pytest.raises(ValueError, match="cannot send the model to its workers.*pickle"):
        adlmh.sample(0, holding, executor=Inline(), progress=False, **SIZES)


def kill_a_worker(store):
    """Wait until a share has draws and is not complete; kill the process that runs it."""
    while True:
        for share in (store / executing.SHARES).glob("*"):
            made = read_counts(share)
            if made is not None and 0 < made.num_stored < LONG["num_samples"] // 2:
                number = int((share / "lock").read_text().split()[1])
                os.kill(number, signal.SIGKILL)
                return
        time.sleep(0.05)


@contextlib.contextmanager
def killing(store):
    """Kill one worker in the course of a run."""
    thread = threading.Thread(target=kill_a_worker, args=(store,), daemon=True)
    thread.start()
    yield
    thread.join(timeout=1)
    assert not thread.is_alive(), "nobody was killed"


@pytest.fixture(scope="module")
def long_run():
    return sample(**LONG)


@pytest.mark.slow
@pytest.mark.parametrize("cores", ["1", "3"])
def test_processes_one_of_which_is_killed(tmp_path, long_run, monkeypatch, cores):
    monkeypatch.setenv("ADLMH_CORES", cores)  # other devices than here
    make = functools.partial(concurrent.futures.ProcessPoolExecutor, 2, mp_context=SPAWN)
    with killing(tmp_path):
        result = sample(executor=make, store=tmp_path, **LONG)
    assert_same(result, long_run)


@pytest.mark.slow
def test_a_pool_that_breaks_says_how_to_go_on(tmp_path, long_run):
    make = functools.partial(concurrent.futures.ProcessPoolExecutor, 2, mp_context=SPAWN)
    with make() as pool, killing(tmp_path), pytest.raises(RuntimeError, match="`resume=True` goes"):
        sample(executor=pool, store=tmp_path, **LONG)
    with make() as pool:
        assert_same(sample(executor=pool, store=tmp_path, resume=True, **LONG), long_run)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of a cluster one of whose workers dies
def test_dask_one_of_whose_workers_is_killed(tmp_path, long_run):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        killing(tmp_path),
    ):
        result = sample(executor=client, store=tmp_path, **LONG)
    assert_same(result, long_run)


@pytest.mark.slow
def test_submitit(tmp_path, whole):
    submitit = pytest.importorskip("submitit")
    executor = submitit.LocalExecutor(folder=tmp_path / "logs")
    executor.update_parameters(timeout_min=10)

    def model(data):  # jobs cannot import this file: what is defined here is sent whole
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        numpyro.sample("y", dist.Poisson(rate), obs=data)

    settings = {"executor": executor, "num_shares": 2, "store": tmp_path / "run"}
    assert_same(adlmh.sample(0, model, (DATA,), progress=False, **settings, **SIZES), whole)
