"""What is kept of each draw: from names to rows of the chains, and back to arrays with names."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adlmh_jax.engine import Keep
from adlmh_jax.graph import Layout, make_layout
from adlmh_jax.model import Program, nearest


def choose_names(program: Program, keep: str | Sequence[str]) -> list[str]:
    """Return the outputs and latent sites to keep: ``"outputs"``, ``"all"``, or names."""
    outputs, latent = program.output_layout.names, program.latent_layout.names
    known = list(dict.fromkeys([*outputs, *latent]))
    if keep in ("outputs", "all"):
        return list(outputs) if keep == "outputs" else known
    names = [keep] if isinstance(keep, str) else keep
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f'`keep` must be "outputs", "all", or names, got {keep!r} of type '
            f"{type(keep).__name__}."
        )
    for name in names:
        if name not in known:
            raise ValueError(f"`keep` has no output or site `{name}`. {nearest(name, known)}")
    return list(dict.fromkeys(names))


def find_rows(program: Program, names: Sequence[str]) -> Keep:
    """Find the rows of what is kept; outputs come first."""
    from_outputs, from_latent = _sources(program, names)
    return Keep(
        outputs=program.output_layout.rows(from_outputs),
        latent=program.latent_layout.rows(from_latent),
        log_density=bool(names),
    )


def name_draws(program: Program, names: Sequence[str], kept: Any) -> dict[str, np.ndarray]:
    """Return what was kept (a `Kept` of NumPy arrays), by name, ``[chain, draw, ...]``."""
    from_outputs, from_latent = _sources(program, names)
    draws = _by_name(program.output_layout, from_outputs, kept.outputs)
    draws |= _by_name(program.latent_layout, from_latent, kept.latent)
    return {name: draws[name] for name in names}


def _sources(program: Program, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tell names that are outputs from those that are only latent sites."""
    from_outputs = [name for name in names if name in program.output_layout.names]
    return from_outputs, [name for name in names if name not in from_outputs]


def _by_name(
    layout: Layout, names: list[str], banks: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return arrays ``[chain, draw, ...]`` from kept rows ``[S, draw, rows, C]``."""
    kept = make_layout({name: (layout[name].shape, layout[name].bank) for name in names})
    values = {}
    for name, slot in zip(kept.names, kept.slots, strict=True):
        rows = banks[slot.bank][:, :, slot.offset : slot.offset + slot.size]
        by_chain = np.moveaxis(rows, 3, 1)
        values[name] = by_chain.reshape(-1, rows.shape[1], *slot.shape)
    return values
