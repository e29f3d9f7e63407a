"""What must be the same for a stored run to go on."""

import dataclasses
import zlib
from collections.abc import Sequence
from typing import Any

import jax

from adlmh_jax.engine import Engine, RunConfig
from adlmh_jax.graph import to_bytes


def run_settings(
    engine: Engine, config: RunConfig, kept_names: Sequence[str], seed: int
) -> dict[str, Any]:
    """Return what tells a run from others."""
    return {
        **dataclasses.asdict(config),
        "model": repr(engine.program),
        "data": fingerprint(engine.data),
        "schedule": engine.spec.schedule.name,
        "proposals": {name: plan.text for name, plan in engine.plans.items()},
        "keep": list(kept_names),
        "key": str(seed),
    }


def fingerprint(tree: Any) -> int:
    """Return a number that tells arrays from others."""
    code = 0
    for leaf in jax.tree.leaves(tree):
        code = zlib.crc32(to_bytes(leaf), code)
    return code
