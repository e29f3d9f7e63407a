"""Results as ArviZ data: InferenceData up to ArviZ 0.x, a DataTree from 1.0 on, same content."""

import datetime
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.model import Program, listed, nearest, predictive

SAMPLE_DIMS = ("chain", "draw")
SCHEDULE, SCHEDULE_DIMS = "schedule_", ("schedule_superchain", "schedule_entry")
PRIOR_DRAWS = 500
LIBRARY = "adlmh_jax"

Coords = Mapping[str, Any]
Dims = Mapping[str, Sequence[str]]
Arrays = dict[str, np.ndarray]


def to_arviz(
    program: Program,
    draws: Mapping[str, np.ndarray],
    sample_stats: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
    *,
    chain_coords: Mapping[str, np.ndarray] | None = None,
    schedule: Mapping[str, np.ndarray] | None = None,
    coords: Coords | None = None,
    dims: Dims | None = None,
    prior: bool | int = False,
    posterior_predictive: bool = False,
    log_likelihood: bool = False,
    seed: int = 0,
) -> Any:
    """Make ArviZ data of the draws of a run.

    Parameters
    ----------
    program
        The compiled model.
    draws
        By name, ``[chain, draw, ...]``.
    sample_stats
        By name, ``[chain]`` or ``[chain, draw]``.
    attributes
        What to write on every group: strings and numbers.
    chain_coords
        Coordinates of the dimension ``chain``.
    schedule
        Arrays of the schedule, ``[superchain, entry]``, and the ``names`` of its entries; they are
        added to the group ``sample_stats``.
    coords, dims
        Coordinate values and dimension names, beside those of the model's plates.
    prior
        Add groups ``prior`` and ``prior_predictive``; a number says of how many draws.
    posterior_predictive, log_likelihood
        Add these groups. Both need the draws of all latent sites.
    seed
        Of the predictive draws.

    Returns
    -------
    An ``arviz.InferenceData`` (ArviZ 0.x) or an ``xarray.DataTree`` (from 1.0 on).
    """
    run = predictive.run_once(program)
    observed = predictive.observed_values(run)
    groups: dict[str, Arrays] = {"posterior": dict(draws), "sample_stats": dict(sample_stats)}
    keys = jax.random.split(jax.random.key(seed), 2)
    if posterior_predictive or log_likelihood:
        flat, shape = _latent_draws(program, draws)
        if posterior_predictive:
            predicted = predictive.posterior_predictive(program, keys[0], flat)
            groups["posterior_predictive"] = _unflatten(predicted, shape)
        if log_likelihood:
            groups["log_likelihood"] = _unflatten(predictive.log_likelihood(program, flat), shape)
    if prior:
        num_draws = PRIOR_DRAWS if prior is True else prior
        both = predictive.prior_predictive(program, keys[1], num_draws)
        groups["prior"], groups["prior_predictive"] = (_unflatten(a, (1, num_draws)) for a in both)
    groups["observed_data"] = observed
    groups["constant_data"] = predictive.constant_arrays(program, observed)
    groups = {name: arrays for name, arrays in groups.items() if arrays}
    everywhere = {**_origin(), **attributes}
    maker = _Maker(predictive.find_plates(run), groups, coords or {}, dims or {})
    datasets = {name: maker.dataset(name, arrays, everywhere) for name, arrays in groups.items()}
    if chain_coords:
        datasets = {name: _name_chains(data, chain_coords) for name, data in datasets.items()}
    if schedule:
        datasets["sample_stats"] = _add_schedule(datasets["sample_stats"], schedule)
    _check_names("coords", coords, {dim for data in datasets.values() for dim in data.dims})
    _check_names("dims", dims, {name for arrays in groups.values() for name in arrays})
    return _assemble(datasets, everywhere)


def spread_evenly(number: int, wanted: int | None) -> np.ndarray:
    """Return which to take so that ``wanted`` of a number of things are evenly spread."""
    if wanted is None:
        return np.arange(number)
    if not 1 <= wanted <= number:
        raise ValueError(f"`chains` must be from 1 to {number}, which the run has, got {wanted}.")
    return (2 * np.arange(wanted) + 1) * number // (2 * wanted)


def _name_chains(data: Any, chain_coords: Mapping[str, np.ndarray]) -> Any:
    """Say which chains they are, where all of them are, and whose."""
    if data.sizes.get("chain") != len(chain_coords["chain"]):  # prior draws
        return data
    own = {name: ("chain", c) for name, c in chain_coords.items() if name not in data.data_vars}
    return data.assign_coords(own)


def _add_schedule(data: Any, schedule: Mapping[str, np.ndarray]) -> Any:
    """Add what the schedule was: arrays without chains and draws."""
    arrays = dict(schedule)
    names = arrays.pop("names")
    variables = {f"{SCHEDULE}{name}": (SCHEDULE_DIMS, array) for name, array in arrays.items()}
    return data.assign(variables).assign_coords({SCHEDULE_DIMS[1]: names})


def _check_names(called: str, given: Mapping[str, Any] | None, known: set[str]) -> None:
    """Refuse names that would do nothing."""
    for name in given or {}:
        if name not in known:
            raise ValueError(f"`{called}` names `{name}`. {nearest(name, sorted(known))}")


def _latent_draws(
    program: Program, draws: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], tuple[int, int]]:
    """Return all latent sites, ``[chain * draw, ...]``, and the numbers of chains and draws."""
    names = program.sites.names
    # A function of the values may give something else under a site's name.
    renamed = set(program.output_layout.names) if callable(program.call.outputs) else set()
    missing = [name for name in names if name not in draws or name in renamed]
    if missing:
        raise ValueError(
            "Predictions and log likelihoods need the draws of every latent site, but "
            f'{listed(missing)} was not kept. Sample with `keep="all"`'
            + (" and `outputs` given by name." if renamed else ".")
        )
    shape = draws[names[0]].shape[:2]
    flat = {
        name: jnp.asarray(draws[name], program.sites[name].dtype).reshape(
            -1, *program.sites[name].shape
        )
        for name in names
    }
    return flat, shape


def _unflatten(arrays: Mapping[str, np.ndarray], shape: tuple[int, int]) -> Arrays:
    return {name: array.reshape(*shape, *array.shape[1:]) for name, array in arrays.items()}


def _origin() -> dict[str, str]:
    """Say what made the data, in ArviZ's words, and when."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    versions = {f"{name}_version": _version(name) for name in ("arviz", "jax", "numpyro")}
    return {
        "created_at": now,
        "inference_library": LIBRARY,
        "inference_library_version": _version(LIBRARY),
        **versions,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree
        return "unknown"


class _Maker:
    """Makes xarray datasets whose dimensions have the same names in all groups."""

    def __init__(
        self, plates: predictive.Plates, groups: Mapping[str, Arrays], coords: Coords, dims: Dims
    ) -> None:
        self.plates = plates
        self.dims = dims
        sampled = [arrays for group, arrays in groups.items() if group != "constant_data"]
        taken = {name for arrays in sampled for name in arrays}
        # xarray takes a variable with the name of its dimension for the dimension's coordinate.
        self.dim_of = {p: _storable(f"{p}_dim" if p in taken else p) for p in plates.rows}
        self.coords = {self.dim_of[plate]: rows for plate, rows in plates.rows.items()}
        self.coords |= dict(coords)

    def dataset(self, group: str, arrays: Arrays, attributes: Mapping[str, Any]) -> Any:
        """Make the dataset of one group; truth values become integers."""
        import xarray

        variables: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        for name, array in arrays.items():
            names = self._dims(group, name, array.shape)
            is_truth = array.dtype == bool
            variables[_storable(name)] = names, array.astype(np.int8) if is_truth else array
            sizes.update(zip(names, array.shape, strict=True))
        coords = {dim: self.coords.get(dim, np.arange(size)) for dim, size in sizes.items()}
        return xarray.Dataset(variables, coords, dict(attributes))

    def _dims(self, group: str, name: str, shape: tuple[int, ...]) -> list[str]:
        """Name the dimensions: as the user says, else by plates, else by number."""
        if group == "sample_stats":
            return list(SAMPLE_DIMS[: len(shape)])  # a statistic of whole chains has no draws
        sampled = () if group.endswith("_data") else SAMPLE_DIMS
        own = shape[len(sampled) :]
        named: Sequence[str | None] = [None] * len(own)
        if name in self.dims:
            named = [*self.dims[name], *named][: len(own)]
        elif group != "constant_data":
            plates = self.plates.name_axes(name, own, has_events=group != "log_likelihood")
            named = [plate and self.dim_of[plate] for plate in plates]
        numbered = (dim or f"{_storable(name)}_dim_{i}" for i, dim in enumerate(named))
        return [*sampled, *numbered]


def _storable(name: str) -> str:
    """Replace slashes, which files use for groups."""
    return name.replace("/", ".")


def with_datasets(one: Any, arrays: Mapping[str, np.ndarray], names: Sequence[Any]) -> Any:
    """Return what ArviZ has of one data set with the arrays of all, ``[data set, ...]``."""
    groups = {}
    coords = {"dataset": np.array(names)}
    stored = {
        _storable(name): array.astype(np.int8) if array.dtype == bool else array
        for name, array in arrays.items()
    }
    for group in ("posterior", "sample_stats"):
        data = getattr(one[group], "to_dataset", lambda group=group: one[group])()
        own = [name for name in data.data_vars if name in stored]
        variables = {name: (("dataset", *data[name].dims), stored[name]) for name in own}
        groups[group] = data[own].drop_vars(own).assign(variables).assign_coords(coords)
        groups[group].attrs.pop("seed", None)  # of the one data set
    return _assemble(groups, one.attrs)


def _assemble(datasets: Mapping[str, Any], attributes: Mapping[str, Any]) -> Any:
    """Put the groups into what the installed ArviZ works with."""
    import arviz

    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(attrs=dict(attributes), **datasets)
    import xarray

    tree = xarray.DataTree.from_dict(dict(datasets))
    tree.attrs = dict(attributes)
    return tree
