"""Whether single precision carries a model: its terms in float32 beside those in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.model import Program, listed
from adlmh_jax.types import Chains, float_type
from adlmh_jax.warning import warn_user

# Numbers from here on may lose what matters in the log-probabilities made of them: that of a count
# n is a difference of numbers of the size n log n, of which float32 keeps seven digits.
LARGE = 1 << 15
MAX_CHAINS = 32  # that are looked at
MAX_ERROR = 0.05  # nats: less does not show in the draws


class PrecisionWarning(UserWarning):
    """Single precision is not enough for a model."""


def find_imprecise(program: Program, chains: Chains) -> dict[str, float]:
    """Return the sites whose terms at the end of a run are not precise, and by how much.

    An error that is the same in all chains, of superchains ``[S, ..., C]``, does no harm, so its
    spread over chains counts.
    """
    if float_type() != np.float32 or not _has_large_numbers(program, chains):
        return {}
    some = jax.tree.map(
        lambda leaf: np.concatenate(leaf, axis=-1)[..., :MAX_CHAINS],  # [rows, chain]
        chains,
    )
    position = program.latent_layout.unpack(some.latent)
    kept = program.term_layout.unpack({"float32": some.log_terms})
    exact = program.terms_in_double(position)
    errors = {}
    for name, terms in kept.items():
        off = np.asarray(terms, np.float64) - exact[name]
        spread = np.std(off.reshape(off.shape[0], -1).sum(axis=1))
        if spread > MAX_ERROR:
            errors[name] = float(spread)
    return errors


def warn_if_imprecise(errors: dict[str, float]) -> None:
    """Warn of the sites whose terms are not precise, if there are any."""
    if errors:
        worst = max(errors, key=lambda name: errors[name])
        warn_user(
            f"In single precision the log-probabilities of {listed(errors)} are off by about "
            f"{errors[worst]:.2g} from draw to draw, too much for the draws to be right. Switch "
            "double precision on, before anything else is done with JAX: "
            '`jax.config.update("jax_enable_x64", True)`.',
            PrecisionWarning,
        )


def _has_large_numbers(program: Program, chains: Chains) -> bool:
    """Whether data or draws are so large that precision may be lost."""
    graph = program.traced.graph
    made = graph.literals | graph.producer.keys()  # not given, but written or made of what is
    data = [graph.constants[number] for number in set(graph.constants) - made]
    return any(map(_is_large, [*data, *chains.latent.values()]))


def _is_large(array: Any) -> bool:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) or array.dtype == bool or not array.size:
        return False
    return bool(np.max(np.abs(np.asarray(array, np.float64))) >= LARGE)
