"""Run a model that is named on the command line for each of many data sets, a file each."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from adlmh_jax.interop.user_model import (
    Arguments,
    Files,
    check_arguments,
    check_files,
    find_model,
    load_arguments,
    tell,
)
from adlmh_jax.many import sample_many
from adlmh_jax.results import Results
from adlmh_jax.store import save_text

SUFFIXES = (".json", ".npz", ".csv")
MAX_NAMED = 8  # data sets that a headline names


def load_datasets(
    directory: Path, common: Arguments, model: Callable[..., Any]
) -> tuple[list[str], list[Arguments]]:
    """Read the data sets in a directory, in the order of their names.

    Parameters
    ----------
    directory
        Of files as `load_arguments` takes them; those whose names begin with a dot do not count.
    common
        Arguments that all data sets have.
    model
        Refuses what it does not take.

    Returns
    -------
    Names of the data sets, and the arguments of each.
    """
    if not directory.is_dir():
        raise ValueError(f"`--datasets` is a directory of files, and `{directory}` is none.")
    paths = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    if not paths:
        raise ValueError(
            f"The directory `{directory}` is empty: `--datasets` needs a file for each data set "
            f"({', '.join(SUFFIXES)})."
        )
    strangers = [path for path in paths if path.suffix not in SUFFIXES or not path.is_file()]
    if strangers:
        raise ValueError(
            f"`{strangers[0]}` is no data set, a file whose name ends in {', '.join(SUFFIXES)}: "
            "move it out of the directory of `--datasets`."
        )
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else [path.name for path in paths]
    return names, [_join(common, path, model) for path in paths]


def _join(common: Arguments, path: Path, model: Callable[..., Any]) -> Arguments:
    """Return the arguments of a data set, with those that all have."""
    args, kwargs = load_arguments(path)
    twice = sorted(kwargs.keys() & common[1].keys())
    if twice or (args and common[0]):
        what = f"`{twice[0]}`" if twice else "arguments by position"
        raise ValueError(f"`--args` and `{path}` both give {what}: leave one of them out.")
    joined = common[0] or args, {**common[1], **kwargs}
    check_arguments(model, *joined, f" in `{path}`")
    return joined


def run_datasets(
    name: str,
    directory: Path,
    arguments: Path | None,
    outputs: list[str] | None,
    files: Files | None = None,
    seed: int = 0,
    **settings: Any,
) -> Results:
    """Sample a model for each of many data sets; write what is asked for.

    Parameters
    ----------
    name, arguments, outputs, files, seed
        As for `run_model`; the arguments are common to all data sets.
    directory
        Of the data sets; see `load_datasets`.
    settings
        Further arguments of `sample_many`.

    Returns
    -------
    Results
        The run.
    """
    files = files or Files()
    check_files(files)
    if files.report is not None:
        raise ValueError("`--report` is a page of one run: leave it out, or `--datasets`.")
    model = find_model(name)
    names, datasets = load_datasets(directory, load_arguments(arguments), model)
    results = sample_many(seed, model, datasets, names=names, outputs=outputs, **settings)
    if files.draws is not None:
        results.to_arviz().to_netcdf(str(files.draws))
    if files.summary is not None:
        told = {
            "verdict": headline(results),
            "datasets": {n: tell(result) for n, result in zip(names, results, strict=True)},
            "num_chains": results.each.num_chains,
            "num_draws": results.num_draws,
            "seconds": results.seconds,
        }
        save_text(files.summary, json.dumps(told, indent=1) + "\n")
    return results


def headline(results: Results) -> str:
    """Return in a sentence how many data sets have converged, and which have not."""
    doubtful = doubtful_names(results)
    if not doubtful:
        return f"All {len(results)} data sets have converged, as far as the draws can tell."
    some = ", ".join(doubtful[:MAX_NAMED]) + (", …" if len(doubtful) > MAX_NAMED else "")
    return (
        f"Of {len(results)} data sets {len(doubtful)} have not converged, or have too few draws to "
        f"tell: {some}."
    )


def doubtful_names(results: Results) -> Sequence[str]:
    """Name the data sets whose verdict is not "converged"."""
    pairs = zip(results.dataset_names, results.verdicts, strict=True)
    return [str(name) for name, verdict in pairs if verdict != "converged"]
