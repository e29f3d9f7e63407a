"""A run read back from a NetCDF file of ArviZ data, or from the directory of a stored run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adlmh_jax.engine import RunConfig
from adlmh_jax.results.arviz import SCHEDULE, SCHEDULE_DIMS
from adlmh_jax.results.report import RunRecord
from adlmh_jax.results.schedule import ScheduleReport
from adlmh_jax.store import DATASETS, DRAWS, read_settings

DIAGNOSIS = "diagnosis"  # an attribute of the group `posterior`
LONG = ("computations of the model", "data of the model", "starting values")  # of no use to people


def read_record(path: str | Path) -> RunRecord:
    """Read a run.

    Parameters
    ----------
    path
        A NetCDF file, as ``result.to_arviz().to_netcdf`` writes it, or the directory of a stored
        run, finished or not.

    Returns
    -------
    RunRecord
        What a report is made of.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"There is no `{path}`.")
    return _read_directory(path) if path.is_dir() else _read_file(path)


def _read_file(path: Path) -> RunRecord:
    import xarray

    try:
        with xarray.open_dataset(path, group="posterior") as data:
            posterior = data.load()
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"`{path}` is no NetCDF file with a group `posterior`.") from error
    settings = {name: value for name, value in posterior.attrs.items() if name != DIAGNOSIS}
    schedule = None
    try:
        with xarray.open_dataset(path, group="sample_stats") as data:
            schedule = _read_schedule(data.load())
    except (OSError, ValueError, KeyError):  # there is no such group
        pass
    told = posterior.attrs.get(DIAGNOSIS)
    return RunRecord(
        title=path.name,
        draws=_draws(posterior),
        num_superchains=_num_superchains(posterior, settings),
        diagnosis=json.loads(told) if told else None,
        schedule=schedule,
        settings=settings,
    )


def _draws(posterior: Any) -> dict[str, np.ndarray]:
    return {
        str(name): array.transpose("chain", "draw", ...).values
        for name, array in posterior.data_vars.items()
        if {"chain", "draw"} <= set(array.dims)
    }


def _num_superchains(posterior: Any, settings: Mapping[str, Any]) -> int:
    """Return the number of superchains, if they have equally many chains; else one."""
    if "superchain" in posterior.coords:
        _, counts = np.unique(posterior["superchain"].values, return_counts=True)
        return len(counts) if len(set(counts)) == 1 else 1
    if settings.get("part"):
        first, last = settings["part"]
        return last - first
    num_chains, number = posterior.sizes["chain"], settings.get("num_superchains")
    try:
        return RunConfig(num_chains=num_chains, num_superchains=number).superchains
    except ValueError:  # chains were taken out
        return 1


def _read_schedule(stats: Any) -> ScheduleReport | None:
    if SCHEDULE_DIMS[1] not in stats.coords:
        return None
    arrays = {
        str(name).removeprefix(SCHEDULE): array.values
        for name, array in stats.data_vars.items()
        if str(name).startswith(SCHEDULE)
    }
    return ScheduleReport.from_arrays({**arrays, "names": stats[SCHEDULE_DIMS[1]].values})


def _read_directory(path: Path) -> RunRecord:
    import xarray

    settings = {n: v for n, v in read_settings(path).items() if n not in LONG}
    try:
        with xarray.open_zarr(path / DRAWS, group="posterior") as data:
            posterior = data.load()
    except (ImportError, OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"The draws in `{path}` cannot be read ({error}); reading them needs "
            "`pip install 'adlmh_jax[store]'`."
        ) from error
    draws = _draws(posterior)
    if not draws or not posterior.sizes["draw"]:
        raise ValueError(f"The run in `{path}` has no draws yet.")
    sites = settings.pop("sites of the model", "")
    number = settings.get(DATASETS, 1)
    return RunRecord(
        title=path.resolve().name,
        draws={name: _by_dataset(array, number) for name, array in draws.items()},
        num_superchains=_num_superchains(posterior, settings) // number,
        diagnosis=None,
        schedule=None,
        settings={**settings, "model": sites.partition("\n")[0]},
    )


def _by_dataset(array: np.ndarray, number: int) -> np.ndarray:
    """Return draws of many data sets, one after the other, with the data set as first own axis."""
    if number == 1:
        return array
    return np.moveaxis(array.reshape(number, -1, *array.shape[1:]), 0, 2)
