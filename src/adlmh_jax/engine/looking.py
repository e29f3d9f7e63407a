"""What a bar shows of a run while it goes on, from a few small arrays on the host."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from adlmh_jax.engine.superchain import SuperchainState
from adlmh_jax.statistics import moments_of_chains, nested_r_hats, tally_total

MAX_NUMBERS = 1_000_000  # outputs of all chains, whose R-hat takes less than a tenth of a second


class View(NamedTuple):
    """What must be known of a run to look at it.

    Attributes
    ----------
    num_superchains
        How many there are, without those that only fill up the devices.
    num_together
        How many of them, next to each other, sample the same data set.
    outputs
        Names of the scalar outputs.
    """

    num_superchains: int
    num_together: int
    outputs: Sequence[str]


class Look(NamedTuple):
    """What is seen of a run.

    Attributes
    ----------
    acceptance
        Share of accepted proposals.
    beta
        Of the superchain that has the longest way to the posterior; 1 when all are there.
    r_hat
        The largest nested R-hat of an output so far, of whole chains without ranks; NaN if none is
        known.
    worst
        The output that has it.
    """

    acceptance: float
    beta: float
    r_hat: float = np.nan
    worst: str = ""


def pick(view: View, superchains: SuperchainState, is_sampling: bool) -> Any:
    """Return the arrays that a look needs, still on the devices."""
    tallies, total = superchains.tallies, superchains.statistics.total
    is_measured = is_sampling and view.num_together > 1 and 0 < total.mean.size <= MAX_NUMBERS
    moments = (total, superchains.statistics.batch) if is_measured else ()
    return tallies.accepted, tallies.selected, superchains.annealing.beta, moments


def take_look(view: View, picked: Any) -> Look:
    """Return what is seen in arrays on the host."""
    accepted, selected, beta, moments = jax.tree.map(lambda a: a[: view.num_superchains], picked)
    acceptance = tally_total(accepted).sum() / max(1, tally_total(selected).sum())
    look = Look(float(acceptance), float(np.min(beta)))
    if not moments:
        return look
    hats = _measure(view, *moments_of_chains(*moments))
    if np.all(np.isnan(hats)):
        return look
    worst = int(np.nanargmax(hats))
    return look._replace(r_hat=float(hats[worst]), worst=view.outputs[worst])


def _measure(view: View, means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Return the largest nested R-hat of each output over data sets, ``[K]``, from ``[S, K, C]``.

    NaN for outputs that are constant in all data sets.
    """

    def group(moments: np.ndarray) -> np.ndarray:
        by_dataset = moments.reshape(-1, view.num_together, *moments.shape[1:])
        return np.swapaxes(by_dataset, 1, 2)

    return np.fmax.reduce(nested_r_hats(group(means), group(np.nan_to_num(variances))), axis=0)
