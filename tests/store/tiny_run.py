"""A tiny run for the tests of stores; as a script, one that other processes interrupt and kill."""

import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

import adlmh_jax as adlmh
from adlmh_jax import session
from adlmh_jax.engine import progress
from adlmh_jax.store import directory

DATA = np.array([1.0, 3.0, 2.0], np.float32)
SIZES = {"num_chains": 6, "num_superchains": 3, "num_warmup": 30, "num_samples": 50, "epoch": 4}


def model(data):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Poisson(rate), obs=data)


def run(store=None, resume=False, key=0, **options):
    options = {**SIZES, **options}
    return adlmh.sample(key, model, (DATA,), store=store, resume=resume, progress=False, **options)


def assert_same(one, other):
    """Compare two results bit for bit."""
    assert one.draws.keys() == other.draws.keys()
    num = one.num_superchains
    pairs = [(one.draws[name], other.draws[name]) for name in one.draws]
    pairs += [(one.log_density, other.log_density)]
    pairs += list(zip(one.statistics, other.statistics, strict=True))
    pairs += [(getattr(one.schedule, n), getattr(other.schedule, n)) for n in TALLIES]
    leaves = (jax.tree.leaves(result.state.superchains) for result in (one, other))
    pairs += [(np.asarray(a)[:num], np.asarray(b)[:num]) for a, b in zip(*leaves, strict=True)]
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)
    assert one.state.next_round == other.state.next_round


TALLIES = ("weights", "selected", "accepted", "invalid", "component_selected")


class Telling(progress.SilentMeter):
    """Calls a function after each chunk."""

    def __init__(self, function, pause=0.0):
        self.function, self.pause = function, pause

    def update(self, num_draws, seconds, look):
        del num_draws, seconds, look
        self.function()
        time.sleep(self.pause)


def use_small_chunks(pause):
    session.max_chunk_rounds = lambda *others: 4
    directory.SECONDS_BETWEEN = 0.0
    progress.SilentMeter = lambda: Telling(lambda: None, pause)


def be_interrupted(store):
    """Run until a signal comes; print what came of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    chunks = []

    def tell():
        chunks.append(time.monotonic())
        if len(chunks) == 12:
            print("sampling", flush=True)

    progress.SilentMeter = lambda: Telling(tell)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run(store, num_samples=10_000_000, keep=["rate"])
    spoken = [str(w.message) for w in caught if w.category is adlmh.InterruptedWarning]
    np.save(Path(store) / "draws.npy", result.draws["rate"])
    longest = max(b - a for a, b in zip(chunks, chunks[1:], strict=False))
    print(json.dumps({"num_draws": result.num_draws, "warnings": spoken, "longest": longest}))


def be_killed(store, num_kills, num_samples, seed):
    """Let children run until they are killed, in turn, in one store after the other.

    Prints how many were killed, and leaves the draws of the stores that were finished.
    """
    rng, kills, number = random.Random(int(seed)), 0, 0
    while kills < int(num_kills) or not (Path(store) / f"{number - 1}.npy").exists():
        place = Path(store) / str(number)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            live(place, int(num_samples), writer, tells_early=rng.random() < 0.2)
        os.close(writer)
        os.read(reader, 1)
        if kills < int(num_kills):
            time.sleep(rng.uniform(0.0, 0.3))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(reader)
        is_killed = os.WIFSIGNALED(status)
        kills += is_killed
        number += not is_killed
        assert is_killed or os.WEXITSTATUS(status) == 0, "a child failed"
    print(json.dumps({"kills": kills, "finished": number}))


def live(place, num_samples, writer, tells_early):
    """Run, or go on, in a child; never return."""
    try:
        use_small_chunks(0.0)
        progress.SilentMeter = lambda: Telling(lambda: os.write(writer, b"."), 0.003)
        if tells_early:
            os.write(writer, b".")
        result = run(place, resume=True, num_samples=num_samples)
        np.save(place.with_suffix(".npy"), result.draws["rate"])
        np.save(place.with_suffix(".mean.npy"), result.statistics.mean)
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    jax.config.update("jax_compilation_cache_dir", os.environ["ADLMH_TEST_CACHE"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    warnings.simplefilter("ignore")
    {"interrupted": be_interrupted, "killed": be_killed}[sys.argv[1]](*sys.argv[2:])
