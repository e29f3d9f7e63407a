"""Run a model that is named as ``module:function``, with its arguments from a file."""

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adlmh_jax.results import Result
from adlmh_jax.sampling import sample

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def find_model(name: str) -> Callable[..., Any]:
    """Import a model.

    Parameters
    ----------
    name
        ``module:function``; modules are also looked for in the current directory.

    Returns
    -------
    Callable
        The function.
    """
    module_name, separator, function_name = name.partition(":")
    if not (module_name and separator and function_name):
        raise ValueError(f"`{name}` does not name a model; write `module:function`.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may fail in any way
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"Module `{module_name}` cannot be imported ({words}).") from error
    model = getattr(module, function_name, None)
    if not callable(model):
        raise ValueError(f"Module `{module_name}` has no function `{function_name}`.")
    return model


def load_arguments(path: Path | None) -> Arguments:
    """Read the arguments of a model.

    Parameters
    ----------
    path
        A JSON file, whose object gives keyword arguments and whose list gives positional ones, or
        an ``.npz`` file, whose arrays are keyword arguments; None for no arguments. Lists of
        numbers become arrays.

    Returns
    -------
    tuple
        Positional and keyword arguments.
    """
    if path is None:
        return (), {}
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return (), dict(file)
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"The arguments in `{path}` cannot be read: {error}.") from error
    if isinstance(data, Mapping):
        return (), {name: _as_array(value) for name, value in data.items()}
    if isinstance(data, list):
        return tuple(map(_as_array, data)), {}
    raise ValueError(f"`{path}` must hold an object or a list, got {type(data).__name__}.")


def _as_array(value: Any) -> Any:
    """Return a list of numbers as an array, and anything else as it is."""
    if not isinstance(value, list):
        return value
    try:
        array = np.array(value)
    except ValueError:  # rows of different lengths
        return value
    return array if array.dtype.kind in "bif" else value


def run_model(
    name: str,
    arguments: Path | None,
    outputs: list[str] | None,
    out: Path | None,
    seed: int = 0,
    **settings: Any,
) -> Result:
    """Sample a model; write its draws as ArviZ data if asked to.

    Parameters
    ----------
    name, arguments
        See `find_model` and `load_arguments`.
    outputs
        What to predict; None for all.
    out
        A NetCDF file to write; None for none.
    seed
        Every random number follows from it.
    settings
        Further arguments of `sample`.

    Returns
    -------
    Result
        The run.
    """
    if out is not None and not (out.parent.is_dir() and os.access(out.parent, os.W_OK)):
        raise ValueError(f"`{out}` cannot be written: `{out.parent}` is no writable directory.")
    model = find_model(name)
    args, kwargs = load_arguments(arguments)
    result = sample(seed, model, args, kwargs, outputs=outputs, **settings)
    if out is not None:
        result.to_arviz().to_netcdf(str(out))
    return result
