"""`sample_many`: one model, many data sets, one compiled run."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp

from adlmh_jax.engine import RunConfig, address, fold_in, make_key, seed_of
from adlmh_jax.model import Outputs, compile_datasets
from adlmh_jax.results import Results, collect_many
from adlmh_jax.sampling import assemble
from adlmh_jax.schedules import Schedule, ucb
from adlmh_jax.session import Wish, check_resume, run_engine
from adlmh_jax.types import Key, Model


def sample_many(
    key: Key | int | Sequence[Key | int],
    model: Model,
    datasets: Any,
    *,
    names: Sequence[str] | None = None,
    outputs: Outputs = None,
    schedule: Schedule = ucb(),
    proposals: str | Mapping[str, Any] = "auto",
    blocks: str = "auto",
    num_chains: int = 64,
    num_superchains: int | None = None,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    thinning: int | None = None,
    epoch: int | None = None,
    start: Literal["anneal", "prior"] = "anneal",
    adapt: Literal["warmup", "always"] = "warmup",
    keep: str | Sequence[str] = "outputs",
    init: Mapping[str, Any] | None = None,
    start_together: bool = False,
    store: str | Path | None = None,
    resume: bool = False,
    devices: Sequence[Any] | None = None,
    progress: bool = True,
) -> Results:
    """Sample a NumPyro model for each of many data sets, in one compiled run.

    The model is traced and compiled once; data sets differ in the values of arrays, not in their
    shapes. Data of different lengths are padded, and what was padded is masked in the model; see
    ``docs/many.md``.

    Parameters
    ----------
    key
        ``jax.random.key(0)`` or an integer. Data set i is sampled with
        ``jax.random.fold_in(key, i)``: the draws are those of ``sample`` with that key, with its
        arguments and these settings. Or a key for each data set.
    model
        The model, of fixed structure.
    datasets
        A list of data sets, each a tuple of arguments, a dict of keyword arguments, or a pair
        ``(args, kwargs)``; or one tuple or dict of arrays whose first axis is the data set.
    names
        What the data sets are called in tables, ArviZ data and messages. Default: their numbers.
    num_chains, num_superchains
        **For each data set.**
    outputs, schedule, proposals, blocks, num_warmup, num_samples, thinning, epoch, start, adapt
        As for `sample`.
    keep
        As for `sample`; ``()`` where there are too many data sets to keep their draws.
    init, start_together, store, resume, devices, progress
        As for `sample`; starting values are those of all data sets.

    Returns
    -------
    `Results`: a sequence with a `Result` for each data set.

    Examples
    --------
    ::

        datasets = [(readings,), (2 * readings,)]
        results = adlmh.sample_many(0, model, datasets, outputs=["rate"])
        results.summary()
        print(results[1].diagnose())
    """
    check_resume(store, resume)
    each = RunConfig(
        num_chains=num_chains,
        num_superchains=num_superchains,
        num_warmup=num_warmup,
        num_samples=num_samples,
        thinning=thinning,
        epoch=epoch,
        adapt=adapt,
        start=start,
    )
    engine, kept = assemble(
        functools.partial(
            compile_datasets, model, datasets, outputs=outputs, init=init, names=names
        ),
        each,
        schedule=schedule,
        proposals=proposals,
        blocks=blocks,
        keep=keep,
        start_together=start_together,
    )
    num_datasets = engine.program.call.num_datasets
    seed, keys = _read_keys(key, num_datasets)
    config = dataclasses.replace(
        each,
        num_chains=num_datasets * num_chains,
        num_superchains=num_datasets * each.superchains,
    )
    wish = Wish(
        names=kept,
        seed=seed,
        devices=devices,
        start_together=start_together,
        store=store,
        resume=resume,
        progress=progress,
    )
    called = names or range(num_datasets)
    finish = functools.partial(collect_many, engine, kept, called, list(map(seed_of, keys)), each)
    addresses = address(keys, range(each.superchains))
    results = run_engine(engine, config, addresses, wish, finish)
    results.warn_if_doubtful()
    return results


def _read_keys(key: Any, num_datasets: int) -> tuple[int, list[Key]]:
    """Return what tells the keys of a run from those of others, and the key of each data set."""
    is_array = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not isinstance(key, (list, tuple)) and not (is_array and key.ndim == 1):
        one = make_key(key)
        return seed_of(one), [fold_in(one, number) for number in range(num_datasets)]
    if len(key) != num_datasets:
        raise ValueError(
            f"`key` gives {len(key)} keys for {num_datasets} data sets: give one for each, or a "
            "single one for all."
        )
    keys = list(map(make_key, key))
    digest = hashlib.blake2b(repr(list(map(seed_of, keys))).encode(), digest_size=8)
    return int.from_bytes(digest.digest()), keys
