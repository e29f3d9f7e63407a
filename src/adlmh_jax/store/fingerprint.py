"""What must be the same for a stored run to go on."""

import dataclasses
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from adlmh_jax.engine import Engine, RunConfig
from adlmh_jax.graph import digest_computation, digest_data
from adlmh_jax.types import float_type

DATASETS = "data sets"  # of how many, where they are many
PACKAGES = ("adlmh_jax", "jax", "numpyro")


def run_settings(
    engine: Engine, config: RunConfig, kept_names: Sequence[str], seed: int
) -> dict[str, Any]:
    """Return what tells a run from others, under names that a refusal can use."""
    program = engine.program
    number = program.call.num_datasets
    traced = program.traced
    tables = (
        traced.terms,
        traced.outputs,
        traced.supports,
        traced.priors,
        traced.draws,
        traced.proposed,
        traced.log_q_ratios,
    )
    wanted = [number for table in tables for number in table.values()]
    return {
        **dataclasses.asdict(config),
        **({DATASETS: number} if number > 1 else {}),
        "sites of the model": repr(program),
        "computations of the model": digest_computation(traced.graph, wanted),
        "data of the model": digest_data(traced.graph),
        "starting values": {n: np.asarray(v).tolist() for n, v in program.init.items()},
        "schedule": engine.schedule.name,
        "proposals": engine.moves.describe(),
        "keep": list(kept_names),
        "key": str(seed),
        "precision": float_type().name,
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree
        return "unknown"
