"""What is kept of each draw: from names to rows of the chains, and back to arrays with names."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from adlmh_jax.engine.rounds import Keep, Kept
from adlmh_jax.graph import Layout, make_layout
from adlmh_jax.model import Program, nearest
from adlmh_jax.types import float_type


class Draws(NamedTuple):
    """Recorded draws on the host.

    Attributes
    ----------
    values
        By name, ``[chain, draw, ...]``; chains of a superchain are next to each other.
    log_density
        ``[chain, draw]``; without chains where nothing is kept.
    """

    values: dict[str, np.ndarray]
    log_density: np.ndarray

    def head(self, num_draws: int) -> "Draws":
        """Return the first draws."""
        values = {name: array[:, :num_draws] for name, array in self.values.items()}
        return Draws(values, self.log_density[:, :num_draws])


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


def name_draws(
    program: Program, names: Sequence[str], num_superchains: int, kept: Kept, num_draws: int
) -> Draws:
    """Return the first draws of what a chunk kept, NumPy arrays ``[S, draw, rows, C]``, by name.

    Superchains beyond ``num_superchains``, which fill up the devices, are left out.
    """
    from_outputs, from_latent = _sources(program, names)
    cut = jax.tree.map(lambda array: array[:num_superchains, :num_draws], kept)
    values = _by_name(program.output_layout, from_outputs, cut.outputs)
    values |= _by_name(program.latent_layout, from_latent, cut.latent)
    nothing = np.zeros((0, num_draws), float_type())
    log_density = nothing if cut.log_density is None else _by_chain(cut.log_density, ())
    return Draws({name: values[name] for name in names}, log_density)


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
        values[name] = _by_chain(rows, slot.shape)
    return values


def _by_chain(rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return ``[chain, draw, *shape]`` from ``[S, draw, ..., C]``, a copy: chunks are let go."""
    by_chain = np.array(np.moveaxis(rows, -1, 1), order="C")
    num_superchains, num_chains, num_draws = by_chain.shape[:3]
    return by_chain.reshape(num_superchains * num_chains, num_draws, *shape)
