"""`sbc`: simulation-based calibration, of a model and of the sampler."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from adlmh_jax.engine import fold_in, make_key, words_of
from adlmh_jax.many import sample_many
from adlmh_jax.model import (
    Outputs,
    Program,
    compile_model,
    conditioned,
    element_names,
    is_factor,
    listed,
    predictive,
)
from adlmh_jax.results import Calibration, Results, rank
from adlmh_jax.types import Key, Model

SIMULATION, SAMPLING = 0, 1  # what the key is folded with
LOG_DENSITY = "log density"


def sbc(
    key: Key | int,
    model: Model,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    data: Sequence[str] | None = None,
    num_datasets: int = 200,
    outputs: Outputs = None,
    num_chains: int = 64,
    num_samples: int = 100,
    num_warmup: int = 500,
    **settings: Any,
) -> Calibration:
    """Check whether draws are calibrated, by data sets that the model itself makes.

    Parameters of each data set are drawn from the prior, and data given them; the model is then
    sampled given the data. What the data were made with must be like one more draw: its rank among
    the draws is uniform. Where it is not, the sampler has not converged, or is wrong, or the model
    that is sampled is not the one that made the data.

    Parameters
    ----------
    key
        ``jax.random.key(0)`` or an integer.
    model, model_args, model_kwargs
        The model, and what to call it with. The values of its data do not matter, only their
        shapes; data must enter as observations alone.
    data
        Names of the observed sites, which are drawn anew: all of them. Default: all.
    num_datasets
        How many data sets.
    outputs
        The test quantities; the log joint density is another one (Modrák et al., 2023).
    num_chains, num_samples, num_warmup, settings
        As for `sample_many`, for each data set. The last draw of each chain is ranked with.

    Returns
    -------
    A `Calibration`; print it.

    Examples
    --------
    ::

        calibration = adlmh.sbc(0, model, (readings,), outputs=["rate", "photons"])
        print(calibration)
        adlmh.plot_sbc(calibration)
    """
    _check_settings(num_datasets, settings)
    key = make_key(key)
    program = compile_model(model, model_args, model_kwargs, outputs=outputs)
    names = _check_data(program, data)
    values, simulated = predictive.prior_predictive(program, fold_in(key, SIMULATION), num_datasets)
    results = sample_many(
        fold_in(key, SAMPLING),
        functools.partial(conditioned, model, model_args, dict(model_kwargs or {})),
        {"data": {name: simulated[name] for name in names}},
        outputs=outputs,
        num_chains=num_chains,
        num_samples=num_samples,
        num_warmup=num_warmup,
        **settings,
    )
    return _rank_all(results, values, np.random.default_rng(words_of(key)))


def _check_settings(num_datasets: Any, settings: Mapping[str, Any]) -> None:
    """Refuse numbers of data sets that are none, and draws that cannot be ranked with."""
    if isinstance(num_datasets, bool) or not isinstance(num_datasets, (int, np.integer)):
        raise TypeError(f"`num_datasets` must be a whole number, got {num_datasets!r}.")
    if num_datasets < 1:
        raise ValueError(f"`num_datasets` must be at least 1, got {num_datasets}.")
    if "keep" in settings:
        raise ValueError(
            "`sbc` keeps the outputs, which it ranks with: leave `keep` out, and choose `outputs`."
        )


def _check_data(program: Program, data: str | Sequence[str] | None) -> list[str]:
    """Return the names of all observed sites; refuse models whose data cannot be made anew."""
    run = program.call.run({}, jax.random.key(0))
    scored = [name for name in run.scored if name not in program.sites.names]
    factors = [name for name in scored if is_factor(run.scored[name]["fn"])]
    if factors:
        raise ValueError(
            f"The model has the factor {listed(factors)}: its prior draws do not follow it, so the "
            "model cannot make data of its own."
        )
    if not scored:
        raise ValueError("The model observes nothing: there are no data to make anew.")
    names = scored if data is None else [data] if isinstance(data, str) else list(data)
    for name in names:
        if name not in scored:
            raise ValueError(f"`data` names `{name}`; the observed sites are {listed(scored)}.")
    kept = [name for name in scored if name not in names]
    if kept:
        raise ValueError(
            f"`data` leaves out {listed(kept)}: parameters are drawn from the prior, not given "
            "those data. Name all observed sites, or give what stays as arguments that are not "
            "observed."
        )
    return names


def _rank_all(
    results: Results, values: Mapping[str, np.ndarray], rng: np.random.Generator
) -> Calibration:
    """Rank what the data were made with among the last draws of all chains."""
    program = results.engine.program
    terms, outputs = program.evaluate_datasets({n: values[n] for n in program.sites.names})
    density = sum(np.sum(term.reshape(len(results), -1), axis=1) for term in terms.values())
    ranks = {}
    for name, draws in results.draws.items():
        last = draws[:, :, -1].reshape(len(results), draws.shape[1], -1)
        truth = outputs[name].reshape(len(results), -1)
        scalars = element_names(name, draws.shape[3:])
        for number, scalar in enumerate(scalars):
            ranks[scalar] = rank(truth[:, number], last[:, :, number], rng)
    ranks[LOG_DENSITY] = rank(np.asarray(density), results.log_density[:, :, -1], rng)
    return Calibration(ranks, results.each.num_chains)
