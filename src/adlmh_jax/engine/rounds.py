"""How steps make epochs, draws and rounds, in which phase, and what is kept of a draw."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from adlmh_jax.graph import Rows, take_rows
from adlmh_jax.types import Array, Banks, Chains


@dataclass(frozen=True)
class RoundPlan:
    """How steps make epochs, draws and rounds.

    Attributes
    ----------
    thinning
        Steps of a draw.
    num_epochs, num_draws
        Of a round; one of them is 1.
    epoch_steps
        Steps of an epoch; the last epoch of a draw may make fewer.
    """

    thinning: int
    num_epochs: int
    num_draws: int
    epoch_steps: int


def plan_rounds(thinning: int, epoch: int, has_one_draw: bool = False) -> RoundPlan:
    """Choose epochs of about ``epoch`` steps that fit draws of ``thinning`` steps.

    A round of one draw has epochs no longer than the draw.
    """
    epoch = min(epoch, thinning) if has_one_draw else epoch
    if thinning <= epoch:
        num_draws = max(1, epoch // thinning)
        return RoundPlan(thinning, 1, num_draws, num_draws * thinning)
    num_epochs = -(-thinning // epoch)
    return RoundPlan(thinning, num_epochs, 1, -(-thinning // num_epochs))


def warmup_epochs(plan: RoundPlan, num_warmup: int) -> int:
    """Return the number of epochs that so many draws of warm-up take."""
    return -(-num_warmup // plan.num_draws) * plan.num_epochs


def anneal_until(plan: RoundPlan, num_epochs: Any) -> Any:
    """Return the round before which annealing must have ended: half of the warm-up is left."""
    return num_epochs // plan.num_epochs // 2


class Phase(NamedTuple):
    """What changes between warm-up and sampling: numbers, so that both share their code.

    Attributes
    ----------
    is_adapting
        Whether the schedule learns.
    max_draws
        How many draws the statistics take in; 0 during warm-up.
    num_warmup
        Epochs of the whole warm-up; 0 if nobody knows.
    """

    is_adapting: Array
    max_draws: Array
    num_warmup: Array


class Kept(NamedTuple):
    """What is recorded of a draw: rows of outputs and of latent values, and the log density.

    The log density is None where it is not kept: an empty array of very many draws is nothing to
    run, but takes XLA minutes and gigabytes to compile.
    """

    outputs: Banks
    latent: Banks
    log_density: Array | None


@dataclass(frozen=True)
class Keep:
    """Which rows of the banks to record, and whether the density."""

    outputs: Rows = ()
    latent: Rows = ()
    log_density: bool = True

    def record(self, chains: Chains) -> Kept:
        """Return the rows to keep."""
        return Kept(
            _by_bank(chains.outputs, self.outputs),
            _by_bank(chains.latent, self.latent),
            jnp.sum(chains.log_terms, axis=-2) if self.log_density else None,
        )


def _by_bank(banks: Banks, rows: Rows) -> Banks:
    parts: dict[str, list[Array]] = {}
    for (bank, _, _), part in zip(rows, take_rows(banks, rows), strict=True):
        parts.setdefault(bank, []).append(part)
    return {bank: jnp.concatenate(taken, axis=-2) for bank, taken in parts.items()}
