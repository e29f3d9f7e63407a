"""Run a model that is named on the command line, with its arguments from a file."""

import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from adlmh_jax.results import DIAGNOSIS, Result
from adlmh_jax.sampling import sample
from adlmh_jax.store import save_text

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def find_model(name: str) -> Callable[..., Any]:
    """Import a model.

    Parameters
    ----------
    name
        ``module:function`` or ``file.py:function``; modules are also looked for in the current
        directory.

    Returns
    -------
    Callable
        The function.
    """
    place, _, function_name = name.rpartition(":")
    if not (place and function_name):
        raise ValueError(
            f"`{name}` does not name a model; write `module:function` or `file.py:function`."
        )
    is_file = place.endswith(".py")
    path = Path(place)
    if is_file and not path.is_file():
        raise ValueError(f"There is no file `{place}`.")
    look_in = str(path.resolve().parent) if is_file else os.getcwd()
    if look_in not in sys.path:
        sys.path.insert(0, look_in)
    called = f"File `{place}`" if is_file else f"Module `{place}`"
    try:
        module = importlib.import_module(path.stem if is_file else place)
        if is_file and Path(getattr(module, "__file__", None) or "").resolve() != path.resolve():
            module = _run_file(path)  # another module has its name
    except Exception as error:  # a user's module may fail in any way
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{called} cannot be imported ({words}).") from error
    model = getattr(module, function_name, None)
    if not callable(model):
        raise ValueError(f"{called} has no function `{function_name}`.")
    return model


def _run_file(path: Path) -> ModuleType:
    """Import a file whose name another module has."""
    spec = importlib.util.spec_from_file_location(f"model file {path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"`{path}` is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_arguments(path: Path | None) -> Arguments:
    """Read the arguments of a model.

    Parameters
    ----------
    path
        A JSON file, whose object gives keyword arguments and whose list gives positional ones; an
        ``.npz`` file, whose arrays are keyword arguments; or a ``.csv`` file with a line of names,
        whose columns are. None for no arguments. Lists of numbers become arrays.

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
        if path.suffix == ".csv":
            return (), _read_columns(path)
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"The arguments in `{path}` cannot be read: {error}.") from error
    if isinstance(data, Mapping):
        return (), {name: _as_array(value) for name, value in data.items()}
    if isinstance(data, list):
        return tuple(map(_as_array, data)), {}
    raise ValueError(f"`{path}` must hold an object or a list, got {type(data).__name__}.")


def _read_columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a table by their names."""
    import pandas

    table = pandas.read_csv(path, skipinitialspace=True)
    for name in table.columns:
        if table[name].dtype.kind not in "bif":
            raise ValueError(f"column `{name}` holds something other than numbers")
        if table[name].isna().any():
            raise ValueError(f"column `{name}` has gaps")
    return {str(name): table[name].to_numpy() for name in table.columns}


def _as_array(value: Any) -> Any:
    """Return a list of numbers as an array, and anything else as it is."""
    if not isinstance(value, list):
        return value
    try:
        array = np.array(value)
    except ValueError:  # rows of different lengths
        return value
    return array if array.dtype.kind in "bif" else value


class Files(NamedTuple):
    """What a run writes; None for what it does not.

    Attributes
    ----------
    draws
        A NetCDF file of ArviZ data.
    summary
        A JSON file: verdict, remedies, and the table of the outputs.
    report
        A page of HTML.
    """

    draws: Path | None = None
    summary: Path | None = None
    report: Path | None = None


def run_model(
    name: str,
    arguments: Path | None,
    outputs: list[str] | None,
    files: Files | None = None,
    seed: int = 0,
    **settings: Any,
) -> Result:
    """Sample a model; write what is asked for.

    Parameters
    ----------
    name, arguments
        See `find_model` and `load_arguments`.
    outputs
        What to predict; None for all.
    files
        What to write; None for nothing.
    seed
        Every random number follows from it.
    settings
        Further arguments of `sample`.

    Returns
    -------
    Result
        The run.
    """
    files = files or Files()
    check_files(files)
    model = find_model(name)
    args, kwargs = load_arguments(arguments)
    check_arguments(model, args, kwargs)
    result = sample(seed, model, args, kwargs, outputs=outputs, **settings)
    if files.draws is not None:
        data = result.to_arviz()
        data["posterior"].attrs[DIAGNOSIS] = json.dumps(result.diagnose().as_dict())
        data.to_netcdf(str(files.draws))
    if files.summary is not None:
        told = {**tell(result), **sizes(result)}
        save_text(files.summary, json.dumps(told, indent=1) + "\n")
    if files.report is not None:
        result.report(files.report)
    return result


def check_files(files: Files) -> None:
    """Refuse files that cannot be written."""
    for path in files:
        if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise ValueError(
                f"`{path}` cannot be written: `{path.parent}` is no writable directory."
            )


def check_arguments(
    model: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any], place: str = ""
) -> None:
    """Refuse arguments that the model does not take."""
    signature = inspect.signature(model)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "nothing"
        raise ValueError(
            f"The arguments{place} do not fit the model, which takes {takes}: {error}."
        ) from None


def tell(result: Result) -> dict[str, Any]:
    """Return verdict, remedies and table of a run for JSON; what is no number is null."""
    table = result.summary().to_dict(orient="index")
    return {
        **result.diagnose().as_dict(),
        "table": {
            name: {column: float(v) if np.isfinite(v) else None for column, v in row.items()}
            for name, row in table.items()
        },
    }


def sizes(result: Result) -> dict[str, Any]:
    """Return how large a run was, and how long it took."""
    return {
        "num_chains": result.num_chains,
        "num_draws": result.num_draws,
        "seconds": result.seconds,
    }
