"""Trace a model once into a graph of its terms, outputs, supports, priors and proposals."""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from adlmh_jax.program import errors
from adlmh_jax.program.draws import draw, key_struct
from adlmh_jax.program.graph import Graph, trace_graph
from adlmh_jax.program.sites import (
    Outputs,
    SiteTable,
    in_support,
    log_terms,
    run_model,
    select_outputs,
    unmasked,
)
from adlmh_jax.types import Array, Key, Model

# (key, value, distribution, values) -> (new value, log q ratio). A ratio of None says that the
# value was drawn from the prior; its ratio is then known from the terms.
Propose = Callable[[Key, Array, Any, Mapping[str, Array]], tuple[Array, Array | None]]


@dataclass(frozen=True)
class ModelCall:
    """A model, what to call it with, and what is asked of it."""

    model: Model
    args: tuple
    kwargs: Mapping[str, Any]
    outputs: Outputs


@dataclass(frozen=True)
class Traced:
    """The graph of a model and the numbers of the values of interest, by site or output name.

    Attributes
    ----------
    graph
        All computations.
    values, keys
        Inputs: the value of each latent site, and the key of its proposal.
    terms
        Log-probabilities of each scored site.
    outputs
        The outputs.
    supports
        Whether each element of a latent site is in its support.
    priors
        Log-probability of each latent site, without scale and mask.
    proposed
        What the proposal of each latent site would propose.
    log_q_ratios
        The log ratio of that proposal, where it is not the prior.
    """

    graph: Graph
    values: dict[str, int]
    keys: dict[str, int]
    terms: dict[str, int]
    outputs: dict[str, int]
    supports: dict[str, int]
    priors: dict[str, int]
    proposed: dict[str, int]
    log_q_ratios: dict[str, int]


def propose_prior(key: Key, value: Array, fn: Any, values: Mapping[str, Array]) -> tuple:
    """Draw anew from the prior, given the other choices (the paper's proposal)."""
    del values
    num_own = jnp.ndim(value) - len(fn.batch_shape + fn.event_shape)
    return draw(fn, key, jnp.shape(value)[:num_own]), None


def trace_program(
    call: ModelCall, sites: SiteTable, proposals: Mapping[str, Propose] | None = None
) -> Traced:
    """Trace the model with its latent values as unknowns."""
    proposals = proposals or {}
    inputs = {f"value {s.name}": jax.ShapeDtypeStruct(s.shape, s.dtype) for s in sites.sites}
    inputs |= {f"key {site.name}": key_struct() for site in sites.sites}

    names: dict[str, list[str]] = {}

    def compute(inputs: dict[str, Array]) -> dict[str, list[Array]]:
        results = _compute(call, sites, proposals, inputs)
        names.update({kind: list(arrays) for kind, arrays in results.items()})
        return {kind: list(arrays.values()) for kind, arrays in results.items()}

    try:
        graph, numbers = trace_graph(compute, inputs)
    except jax.errors.JAXTypeError as error:
        raise _explain(error, call, sites) from error
    return Traced(
        graph,
        {site: graph.inputs[f"value {site}"] for site in sites.names},
        {site: graph.inputs[f"key {site}"] for site in sites.names},
        **{kind: dict(zip(names[kind], numbers[kind], strict=True)) for kind in names},
    )


def _compute(
    call: ModelCall, sites: SiteTable, proposals: Mapping[str, Propose], inputs: Mapping
) -> dict[str, dict[str, Array]]:
    """Return everything that a step may need, as a function of the latent values."""
    position = {name: inputs[f"value {name}"] for name in sites.names}
    run = run_model(call.model, call.args, call.kwargs, position, jax.random.key(0))
    latent = run.latent
    _check_structure(sites, {name: jnp.shape(m["value"]) for name, m in latent.items()})
    results: dict[str, dict[str, Array]] = {
        "terms": {name: jnp.asarray(log_terms(m)) for name, m in run.scored.items()},
        "outputs": select_outputs(call.outputs, run),
        "supports": {},
        "priors": {},
        "proposed": {},
        "log_q_ratios": {},
    }
    for site in sites.sites:
        fn, value = latent[site.name]["fn"], position[site.name]
        results["terms"][site.name] = _full(results["terms"][site.name], site.batch_shape)
        results["supports"][site.name] = in_support(fn, value, site.batch_shape)
        results["priors"][site.name] = _full(unmasked(fn).log_prob(value), site.batch_shape)
        propose = proposals.get(site.name, propose_prior)
        new, log_q_ratio = propose(inputs[f"key {site.name}"], value, unmasked(fn), position)
        results["proposed"][site.name] = jnp.asarray(new, site.dtype)
        if log_q_ratio is not None:
            results["log_q_ratios"][site.name] = _full(log_q_ratio, site.batch_shape)
    return results


def _full(array: Array, shape: tuple[int, ...]) -> Array:
    return array if jnp.shape(array) == shape else jnp.broadcast_to(array, shape)


def _check_structure(sites: SiteTable, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise if a run has other sites, or other shapes, than the first one."""
    if set(shapes) != set(sites.names):
        raise errors.structure_changes(sites.names, shapes)
    for site in sites.sites:
        if shapes[site.name] != site.shape:
            raise errors.shape_changes(site.name, site.shape, shapes[site.name])


def _explain(error: Exception, call: ModelCall, sites: SiteTable) -> Exception:
    """Find the sites whose concrete value the model's Python code wanted."""
    concrete = run_model(call.model, call.args, call.kwargs, {}, jax.random.key(0))
    culprits = []
    for site in sites.sites:
        others = {n: jnp.asarray(m["value"]) for n, m in concrete.latent.items() if n != site.name}

        def run_one(value: Array, name: str = site.name, others: dict = others) -> Array:
            run_model(call.model, call.args, call.kwargs, {**others, name: value}, _KEY)
            return value

        try:
            jax.eval_shape(run_one, jax.ShapeDtypeStruct(site.shape, site.dtype))
        except jax.errors.JAXTypeError:
            culprits.append(site.name)
        except Exception:  # noqa: BLE001, S112 - another failure is not what we look for
            continue
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    line = f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else "?"
    return errors.python_branch(culprits, error, line)


_KEY = jax.random.key(0)


def _is_users(filename: str) -> bool:
    """Whether a file is neither ours nor a library's."""
    return not any(part in filename for part in ("/jax/", "/numpyro/", "/adlmh_jax/", "<frozen"))
