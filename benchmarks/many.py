"""`sample_many` against a loop, what a data set costs as there are more of them, and more workers.

``python -m benchmarks.many`` on a quiet machine; ``--quick`` only tries it out. The model is the
README's. The loop's time is that of a few data sets after the first, times their number. Workers
are processes with one core each; they, their imports and what they compile are part of the time.
"""

import argparse
import concurrent.futures
import functools
import multiprocessing
import os
import time
import warnings

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

import adlmh_jax as adlmh
from benchmarks.results import save, table

SETTINGS = {"outputs": ["rate"], "num_chains": 64, "num_superchains": 1, "progress": False}
NUM_LOOPED = 9  # of the data sets; the others of the loop would take as long
LENGTHS = ((100, 1_000), (1_000, 100))  # draws in warm-up, and as many recorded; data sets
SIZES = (10, 100, 1_000, 10_000)
WORKERS = (1, 2)
SHARED = {"num_chains": 2_048, "num_superchains": 8, "num_warmup": 1_000, "num_samples": 20_000}
TARGETS = {"loop": 20.0, "flat": 1.5, "workers": 1.8}


def model(readings):
    """Photons of five pixels, as in the README."""
    rate = numpyro.sample("rate", dist.LogNormal(1.0, 1.0))
    with numpyro.plate("pixels", readings.shape[0]):
        photons = numpyro.sample("photons", dist.Poisson(rate))
        numpyro.sample("readings", dist.Normal(photons, 0.5), obs=readings)


def simulate(num_datasets):
    """Return data sets of the model, ``[D, 5]``."""
    rng = np.random.default_rng(0)
    rates = np.exp(rng.normal(1.0, 1.0, size=(num_datasets, 1)))
    return rng.normal(rng.poisson(rates, size=(num_datasets, 5)), 0.5).astype(np.float32)


def seconds(function, *args):
    """Return how long a call takes."""
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def compare_with_loop(lengths):
    """Return for each length of run the times of `sample_many` and of a loop."""
    rows = []
    for length, num_datasets in lengths:
        data = simulate(num_datasets)
        settings = {**SETTINGS, "num_warmup": length, "num_samples": length}

        def alone(number, settings=settings, data=data):
            key = jax.random.fold_in(jax.random.key(0), number)
            return adlmh.sample(key, model, (data[number],), **settings)

        def many(settings=settings, data=data):
            return adlmh.sample_many(0, model, (data,), **settings)

        alone(0)
        each = np.median([seconds(alone, number) for number in range(1, NUM_LOOPED + 1)])
        first, again = seconds(many), seconds(many)
        loop = float(each * num_datasets)
        rows.append(
            (f"{length} + {length}", num_datasets, loop, first, again, loop / first, loop / again)
        )
    return rows


def cost_of_a_dataset(sizes):
    """Return milliseconds per data set, code being compiled, for more and more of them."""
    data = simulate(max(sizes))
    settings = {**SETTINGS, "num_warmup": 100, "num_samples": 100, "keep": ()}
    rows = []
    for size in sizes:
        many = functools.partial(adlmh.sample_many, 0, model, (data[:size],), **settings)
        first, again = seconds(many), min(seconds(many) for _ in range(3))
        rows.append((size, first, again, 1_000 * again / size))
    return rows


def keep_to_core(cores):
    """Let a worker run on one core, which no other worker has."""
    os.sched_setaffinity(0, {cores.get()})


def scale_over_workers(workers, shared):
    """Return the time of one run in shares, with more and more workers."""
    data = simulate(1)[0]
    os.environ["ADLMH_CORES"] = "1"  # of each worker: they inherit it
    context = multiprocessing.get_context("spawn")
    settings = {"outputs": ["rate"], "keep": (), "progress": False, **shared}
    rows = []
    for number in workers:
        cores = context.Queue()
        for core in sorted(os.sched_getaffinity(0))[:number]:
            cores.put(core)
        with concurrent.futures.ProcessPoolExecutor(
            number, mp_context=context, initializer=keep_to_core, initargs=(cores,)
        ) as pool:
            run = functools.partial(
                adlmh.sample, model=model, model_args=(data,), executor=pool, **settings
            )
            short = {"num_warmup": 10, "num_samples": 10}
            adlmh.sample(1, model, (data,), executor=pool, **{**settings, **short})  # start them
            rows.append((number, seconds(run, 0)))
    return [(number, time, rows[0][1] / time) for number, time in rows]


def main():
    """Measure, and write the section of the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="try it out; write nothing")
    is_quick = parser.parse_known_args()[0].quick
    warnings.simplefilter("ignore")
    if is_quick:
        loop = compare_with_loop([(20, 20)])
        costs = cost_of_a_dataset((10, 20))
        scaling = scale_over_workers(WORKERS, {**SHARED, "num_warmup": 10, "num_samples": 100})
    else:
        loop = compare_with_loop(LENGTHS)
        costs = cost_of_a_dataset(SIZES)
        scaling = scale_over_workers(WORKERS, SHARED)
    spread = max(row[3] for row in costs[1:]) / min(row[3] for row in costs[1:])
    text = "\n\n".join(
        (
            "Data sets of README's model, 64 chains each, against a loop over `sample` (to aim at: "
            f"{TARGETS['loop']:.0f} times as fast; of longer runs the steps themselves are most).",
            table(
                (
                    "draws",
                    "data sets",
                    "loop, s",
                    "`sample_many`, s",
                    "the same, compiled",
                    "times as fast",
                    "compiled",
                ),
                loop,
            ),
            "What a data set costs, 100 + 100 draws, `keep=()`; from the second line on the "
            f"largest cost is {spread:.2f} times the least (to aim at: {TARGETS['flat']}).",
            table(("data sets", "first, s", "compiled, s", "compiled, ms each"), costs),
            "A run in shares on workers of one core each, from the call to the result (to aim at: "
            f"{TARGETS['workers']} with two).",
            table(("workers", "s", "times as fast as one"), scaling),
        )
    )
    if is_quick:
        print(text)
        return
    data = {"loop": loop, "costs": costs, "workers": scaling, "targets": TARGETS}
    save("many", "Many data sets, many workers", text, data)


if __name__ == "__main__":
    main()
