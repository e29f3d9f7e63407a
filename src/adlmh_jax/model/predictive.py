"""What else a model says about its draws: plates, data, predictions, log likelihoods."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from adlmh_jax.model.call import ModelRun
from adlmh_jax.model.distributions import is_factor
from adlmh_jax.model.program import Program
from adlmh_jax.types import Array, Key, Position

BATCH_VALUES = 1 << 22  # computed at once: bounds the memory of predictions


def run_once(program: Program) -> ModelRun:
    """Run the model on prior draws, for what does not depend on them."""
    return program.call.run({}, jax.random.key(0))


class Plates(NamedTuple):
    """The plates of a model.

    Attributes
    ----------
    dims
        For each site, the plate of each batch dimension, counted from the right: -1, -2, ...
    event_dims
        For each site, the number of dimensions to the right of these.
    rows
        The rows of each plate.
    """

    dims: dict[str, dict[int, str]]
    event_dims: dict[str, int]
    rows: dict[str, np.ndarray]

    def name_axes(self, site: str, shape: tuple[int, ...], has_events: bool) -> list[str | None]:
        """Return the plate of each axis of an array of the site, None where there is none."""
        names: list[str | None] = [None] * len(shape)
        end = len(shape) - (self.event_dims.get(site, 0) if has_events else 0)
        for dim, plate in self.dims.get(site, {}).items():
            if 0 <= end + dim < len(shape) and shape[end + dim] == len(self.rows.get(plate, ())):
                names[end + dim] = plate
        return names


def find_plates(run: ModelRun) -> Plates:
    """Read the plates off a run of the model."""
    plates = Plates({}, {}, {})
    for name, message in run.trace.items():
        if message["type"] == "plate":
            plates.rows[name] = np.asarray(message["value"])
        elif message["type"] in ("sample", "deterministic"):
            frames = message.get("cond_indep_stack", ())
            plates.dims[name] = {frame.dim: frame.name for frame in frames}
            is_sample = message["type"] == "sample"
            plates.event_dims[name] = message["fn"].event_dim if is_sample else 0
    return plates


def observed_values(run: ModelRun) -> dict[str, np.ndarray]:
    """Return the data of the observed sites; a `factor` has none."""
    return {
        name: np.asarray(message["value"])
        for name, message in run.scored.items()
        if message["is_observed"] and _is_data(message)
    }


def _is_data(message: Mapping[str, Any]) -> bool:
    return not is_factor(message["fn"])


def constant_arrays(program: Program, observed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays that the model was called with, by argument name, without its data."""
    call = program.call
    try:
        bound = inspect.signature(call.model).bind(*call.args, **call.kwargs)
    except (TypeError, ValueError):  # no signature, or one that does not say what it takes
        named = {f"argument_{i}": value for i, value in enumerate(call.args)} | dict(call.kwargs)
    else:
        named = dict(bound.arguments)
        for parameter in bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL and parameter.name in named:
                values = named.pop(parameter.name)
                named |= {f"{parameter.name}_{i}": value for i, value in enumerate(values)}
            elif parameter.kind is parameter.VAR_KEYWORD and parameter.name in named:
                named |= named.pop(parameter.name)
    arrays = {
        name: np.asarray(value)
        for name, value in named.items()
        if isinstance(value, (np.ndarray, jax.Array)) and _is_numeric(value)
    }
    return {
        name: array
        for name, array in arrays.items()
        if not any(np.array_equal(array, data) for data in observed.values())
    }


def _is_numeric(value: np.ndarray | Array) -> bool:
    return not jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.dtype.kind in "biuf"


def log_likelihood(program: Program, position: Position) -> dict[str, np.ndarray]:
    """Return the log-probabilities of the data at positions ``[draw, ...]``, without scales."""

    def one(values: Position) -> dict[str, Array]:
        run = program.call.run(values, jax.random.key(0))
        return {
            name: message["fn"].log_prob(jnp.asarray(message["value"]))
            for name, message in run.scored.items()
            if message["is_observed"] and _is_data(message)
        }

    return _for_each_draw(one, position)


def posterior_predictive(program: Program, key: Key, position: Position) -> dict[str, np.ndarray]:
    """Draw new data at each of the positions ``[draw, ...]``."""

    def one(inputs: tuple[Key, Position]) -> dict[str, Array]:
        return _new_data(_run_without_data(program, *inputs))

    num_draws = len(next(iter(position.values())))
    return _for_each_draw(one, (jax.random.split(key, num_draws), position))


def prior_predictive(
    program: Program, key: Key, num_draws: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draw latent and deterministic sites, and data, from the prior."""

    def one(key: Key) -> tuple[dict[str, Array], dict[str, Array]]:
        run = _run_without_data(program, key, {})
        observed = {n for n, message in run.scored.items() if message["infer"].get("was_observed")}
        values = {n: jnp.asarray(value) for n, value in run.values.items() if n not in observed}
        return values, _new_data(run)

    return _for_each_draw(one, jax.random.split(key, num_draws))


def _run_without_data(program: Program, key: Key, position: Position) -> ModelRun:
    """Run the model with its observed sites drawn."""
    call = replace(program.call, model=handlers.uncondition(program.call.model))
    return call.run(position, key)


def _new_data(run: ModelRun) -> dict[str, Array]:
    return {
        name: jnp.asarray(message["value"])
        for name, message in run.scored.items()
        if message["infer"].get("was_observed") and _is_data(message)
    }


def _for_each_draw(function: Callable[[Any], Any], inputs: Any) -> Any:
    """Map over the first axis in batches of bounded memory."""
    one = jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], inputs))
    size = max(1, sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(one)))
    batch = max(1, min(BATCH_VALUES // size, len(jax.tree.leaves(inputs)[0])))
    mapped = jax.jit(lambda inputs: jax.lax.map(function, inputs, batch_size=batch))
    return jax.tree.map(np.asarray, mapped(inputs))
