"""The outputs of a model: from what the user asked for to named arrays."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from adlmh_jax.model import errors
from adlmh_jax.model.call import ModelRun
from adlmh_jax.types import Array


def flatten_output(name: str, value: Any) -> dict[str, Array]:
    """Return the arrays of an output under readable names."""
    leaves = jax.tree_util.tree_flatten_with_path(value)[0]
    if not leaves:
        raise errors.not_an_array(name, value)
    arrays = {}
    for path, leaf in leaves:
        steps = [str(getattr(s, "key", getattr(s, "idx", getattr(s, "name", s)))) for s in path]
        full = ".".join([name, *steps])
        is_number = isinstance(leaf, (jax.Array, jax.core.Tracer, int, float, bool)) or hasattr(
            leaf, "__array__"
        )
        if not is_number or getattr(getattr(leaf, "dtype", None), "kind", "f") in "OUS":
            raise errors.not_an_array(full, leaf)
        arrays[full] = jnp.asarray(leaf)
    return arrays


def check_outputs(outputs: Any) -> None:
    """Refuse what cannot name outputs."""
    is_list = isinstance(outputs, (list, tuple)) and all(isinstance(name, str) for name in outputs)
    if not (outputs is None or isinstance(outputs, str) or callable(outputs) or is_list):
        raise errors.wrong_outputs(outputs)


def check_names(names: Sequence[str]) -> None:
    """Refuse two scalar outputs of one name, such as a site `x[0]` beside a vector `x`."""
    twice = [name for name, number in Counter(names).items() if number > 1]
    if twice:
        raise errors.same_outputs(twice[0])


def select_outputs(outputs: Any, run: ModelRun) -> dict[str, Array]:
    """Return the arrays that the user asked for, by name."""
    values = run.values
    if callable(outputs):
        return _call_outputs(outputs, values)
    names = list(values) if outputs is None else [outputs] if isinstance(outputs, str) else outputs
    if not names:
        raise errors.no_outputs(values)
    arrays: dict[str, Array] = {}
    for name in names:
        if name in values:
            arrays[name] = jnp.asarray(values[name])
        elif name == "return":
            arrays.update(flatten_output(name, run.returned))
        elif name in run.scored:
            raise errors.observed_output(name, values)
        else:
            raise errors.unknown_output(name, [*values, "return"])
    return arrays


def _call_outputs(function: Callable, values: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays that the user's function makes of the values."""
    try:
        result = function(dict(values))
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        raise  # a traced value was asked for: explained with the model's own
    except Exception as error:
        raise errors.outputs_raised(error, values) from error
    if isinstance(result, Mapping):
        return {k: v for name in result for k, v in flatten_output(name, result[name]).items()}
    return flatten_output("output", result)
