"""`compile_model`: from a NumPyro model to a `Program`."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from numpyro import handlers

from adlmh_jax.model import errors
from adlmh_jax.model.call import ModelCall, Outputs
from adlmh_jax.model.datasets import read_datasets
from adlmh_jax.model.outputs import check_names, check_outputs
from adlmh_jax.model.program import Program
from adlmh_jax.model.sites import SiteTable, find_sites, starting_value
from adlmh_jax.model.touches import find_touches
from adlmh_jax.model.tracing import Proposals, trace_program
from adlmh_jax.types import Model


def compile_model(
    model: Model,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    outputs: Outputs = None,
    init: Mapping[str, Any] | None = None,
    proposals: Callable[[SiteTable], Proposals] | None = None,
) -> Program:
    """Trace a NumPyro model into flat site arrays and find what each site touches.

    Parameters
    ----------
    model
        A NumPyro model whose structure is fixed: the same sites and shapes on every run.
    model_args, model_kwargs
        What to call it with.
    outputs
        Names of latent or deterministic sites, ``"return"`` for the returned value, or a function
        of the dict of their values. None: every latent and deterministic site.
    init
        Starting values by site name, one for all chains or one for each; needed for sites without a
        prior to draw from (ImproperUniform). Other sites start at prior draws.
    proposals
        Which proposals, by site and number, to trace with the model, given its sites: what a run
        needs is then traced at once. Those of a program without them are traced when they are used.

    Returns
    -------
    The `Program`; print it to see what touches what.

    Examples
    --------
    ::

        program = adlmh.compile_model(model, (readings,), outputs=["rate"])
        print(program)
        position = program.draw_prior(jax.random.key(0))
        program.log_density(position)
    """
    if not isinstance(model_args, tuple):
        remedy = "Write `(data,)` for a single argument."
        raise errors.wrong_arguments("model_args", model_args, "tuple", remedy)
    if not isinstance(model_kwargs, Mapping | None):
        remedy = 'Write `{"name": value}`.'
        raise errors.wrong_arguments("model_kwargs", model_kwargs, "dict", remedy)
    call = ModelCall(model, model_args, dict(model_kwargs or {}), outputs)
    return _compile(call, init, proposals)


def compile_datasets(
    model: Model,
    datasets: Any,
    *,
    outputs: Outputs = None,
    init: Mapping[str, Any] | None = None,
    proposals: Callable[[SiteTable], Proposals] | None = None,
    names: Sequence[str] | None = None,
) -> Program:
    """Trace a NumPyro model once for many data sets, which are alike but for the values of arrays.

    Parameters
    ----------
    datasets
        A list of data sets, each a tuple of arguments, a dict of keyword arguments, or a pair of
        both; or one tuple or dict of arrays ``[D, ...]``.
    model, outputs, init, proposals
        As for `compile_model`.
    names
        What the data sets are called in messages; None: by their numbers.

    Returns
    -------
    The `Program`; `Program.of_dataset` is that of one of them.
    """
    (args, kwargs), own, num_datasets = read_datasets(datasets, names)
    call = ModelCall(model, args, kwargs, outputs, own, num_datasets)
    return _compile(call, init, proposals)


def _compile(
    call: ModelCall,
    init: Mapping[str, Any] | None,
    proposals: Callable[[SiteTable], Proposals] | None,
) -> Program:
    """Trace a model and find what each site touches."""
    if not callable(call.model):
        raise errors.not_a_model(call.model)
    check_outputs(call.outputs)
    if not isinstance(init, Mapping | None):
        raise errors.wrong_arguments("init", init, "dict", 'Write `{"name": value}`.')
    start = {name: jnp.asarray(value) for name, value in (init or {}).items()}
    # A site without a prior is drawn nowhere: it has its starting value until it is moved.
    start_there = functools.partial(starting_value, start)
    if start:
        call = replace(call, model=handlers.substitute(call.model, substitute_fn=start_there))
    sites = find_sites(call, start)
    for name in start:
        if name not in sites.names:
            raise errors.unknown_init(name, sites.names)
    start = {name: value.astype(sites[name].dtype) for name, value in start.items()}
    wanted = proposals(sites) if proposals else {}
    traced = trace_program(call, sites, wanted)
    program = Program(
        call=call,
        sites=sites,
        traced=traced,
        touches=find_touches(traced, sites),
        init=start,
        proposals=wanted,
    )
    check_names(program.output_names)
    return program
