"""Trace a model once into a graph of its terms, outputs, supports, priors and proposals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from adlmh_jax.graph import Graph, begins_with, fixed_key, key_struct, shapes_of, trace_graph
from adlmh_jax.model import errors
from adlmh_jax.model.call import ModelCall, ModelRun
from adlmh_jax.model.distributions import (
    draw,
    from_free,
    in_support,
    log_terms,
    mean_of,
    to_free,
    unknown_bounds,
    unmasked,
)
from adlmh_jax.model.hidden import check_data, check_keys, check_runs
from adlmh_jax.model.outputs import select_outputs
from adlmh_jax.model.sites import SiteTable
from adlmh_jax.types import Array, Key, float_type

# (key, value, distribution, values, scale) -> (new value, log q ratio). A ratio of None says that
# the value was drawn from the prior; its ratio is then known from the terms.
Propose = Callable[[Key, Array, Any, Mapping[str, Array], Array], tuple[Array, Array | None]]


@dataclass(frozen=True)
class Traced:
    """The graph of a model and the numbers of the values of interest, by site or output name.

    Attributes
    ----------
    graph
        All computations.
    values, keys, scales
        Inputs: the value of each latent site, and the key and scale of its proposal.
    terms
        Log-probabilities of each scored site.
    outputs
        The outputs.
    supports
        Whether each element of a latent site is in its support.
    lowers, uppers
        The ends of supports that are intervals, where they depend on other sites.
    priors
        Log-probability of each latent site, without scale and mask.
    draws
        A prior draw of each latent site.
    proposed, log_q_ratios
        What the further proposals of a site would propose, and their log ratios; the proposals are
        numbered from 0.
    frees
        Inputs: the value of each continuous site on the unconstrained scale.
    to_free, from_free, log_jacobians
        The present value on that scale; the value that belongs to the input, and the logarithm of
        the Jacobian there.
    means
        Of each count without a bound, where its distribution says.
    """

    graph: Graph
    values: dict[str, int]
    keys: dict[str, int]
    scales: dict[str, int]
    terms: dict[str, int]
    outputs: dict[str, int]
    supports: dict[str, int]
    lowers: dict[str, int]
    uppers: dict[str, int]
    priors: dict[str, int]
    draws: dict[str, int]
    proposed: dict[tuple[str, int], int]
    log_q_ratios: dict[tuple[str, int], int]
    frees: dict[str, int]
    to_free: dict[str, int]
    from_free: dict[str, int]
    log_jacobians: dict[str, int]
    means: dict[str, int]

    @property
    def by_site(self) -> list[dict[str, int]]:
        """All that is computed for each site, or for each term, but for proposals of its own."""
        distributions = [self.terms, self.supports, self.lowers, self.uppers, self.priors]
        scales = [self.to_free, self.from_free, self.log_jacobians, self.means]
        return [*distributions, self.draws, *scales]


Proposals = Mapping[tuple[str, int], Propose]
SEED = "seed"  # the input that the model is seeded with
# What JAX raises when Python code asks for the value of an array that is not known.
_WANTS_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def trace_program(call: ModelCall, sites: SiteTable, proposals: Proposals | None = None) -> Traced:
    """Trace the model with its latent values as unknowns."""
    proposals = proposals or {}
    inputs: dict[str, Any] = {
        f"value {s.name}": jax.ShapeDtypeStruct(s.shape, s.dtype) for s in sites.sites
    }
    inputs |= {f"key {site.name}": key_struct() for site in sites.sites}
    inputs |= {
        f"scale {s.name}": jax.ShapeDtypeStruct(s.batch_shape, float_type()) for s in sites.sites
    }

    free = {site.name: site.free_shape for site in sites.sites if site.free_shape is not None}
    inputs |= {f"free {n}": jax.ShapeDtypeStruct(s, sites[n].dtype) for n, s in free.items()}
    inputs[SEED] = key_struct()
    inputs |= call.data
    names: dict[str, list[Any]] = {}

    def compute(inputs: dict[str, Array]) -> list[list[Array]]:
        results = _compute(call, sites, proposals, inputs)
        names.update({kind: list(arrays) for kind, arrays in results.items()})
        return [list(arrays.values()) for arrays in results.values()]

    try:
        graph, numbers = trace_graph(compute, inputs)
        does_the_same = _does_the_same(call, sites, graph, inputs)
    except errors.ModelError:
        raise
    except Exception as error:
        raise _explain(error, call, sites) from error
    # A model may carry its key along, as `scan` does; it must not matter which one it is.
    graph.constants[graph.inputs[SEED]] = fixed_key()
    traced = Traced(
        graph,
        {site: graph.inputs[f"value {site}"] for site in sites.names},
        {site: graph.inputs[f"key {site}"] for site in sites.names},
        {site: graph.inputs[f"scale {site}"] for site in sites.names},
        frees={site: graph.inputs[f"free {site}"] for site in free},
        **{
            kind: dict(zip(names[kind], n, strict=True))
            for kind, n in zip(names, numbers, strict=True)
        },
    )
    _check_randomness(call, sites, traced, does_the_same)
    return traced


def _does_the_same(
    call: ModelCall, sites: SiteTable, graph: Graph, inputs: Mapping[str, Any]
) -> bool:
    """Return whether the model, traced anew, does what it did before with the same numbers."""

    def compute(inputs: Mapping[str, Array]) -> list[Any]:
        run = _run(call, sites, inputs)
        return [list(_terms(run).values()), list(select_outputs(call.outputs, run).values())]

    return begins_with(graph.source, jax.make_jaxpr(compute)(shapes_of(inputs)))


def _check_randomness(
    call: ModelCall, sites: SiteTable, traced: Traced, does_the_same: bool
) -> None:
    """Raise if terms or outputs depend on random numbers that are no latent sites."""
    reached = traced.graph.reach([traced.graph.inputs[SEED]])
    numbers = traced.outputs | traced.terms
    suspects = [name for name, number in numbers.items() if reached[number]]
    if not suspects and does_the_same:
        return
    run = call.run({}, jax.random.key(0))
    position = {s.name: jnp.asarray(run.latent[s.name]["value"], s.dtype) for s in sites.sites}
    if not does_the_same:
        check_runs(call, position)
    if suspects:
        check_keys(call, position, suspects)


def _run(call: ModelCall, sites: SiteTable, inputs: Mapping[str, Array]) -> ModelRun:
    """Run the model with its latent values as unknowns."""
    values = {name: inputs[f"value {name}"] for name in sites.names}
    run = call.with_data(inputs).run(values, inputs[SEED])
    _check_structure(sites, run.structure)
    check_data(sites.data, run)
    return run


def _terms(run: ModelRun) -> dict[str, Array]:
    """Return all terms; those of the same kind, of a loop's states or its data, are neighbours."""
    scored = run.latent | run.scored
    return {name: _full(log_terms(message)) for name, message in scored.items()}


def _compute(
    call: ModelCall, sites: SiteTable, proposals: Proposals, inputs: Mapping
) -> dict[str, dict[Any, Array]]:
    """Return everything that a step may need, as a function of the latent values."""
    run = _run(call, sites, inputs)
    position, latent = {name: inputs[f"value {name}"] for name in sites.names}, run.latent
    results: dict[str, dict[Any, Array]] = {
        "terms": _terms(run),
        "outputs": select_outputs(call.outputs, run),
        "supports": {},
        "lowers": {},
        "uppers": {},
        "priors": {},
        "draws": {},
        "proposed": {},
        "log_q_ratios": {},
        "to_free": {},
        "from_free": {},
        "log_jacobians": {},
        "means": {},
    }
    for site in sites.sites:
        fn, value = latent[site.name]["fn"], position[site.name]
        results["terms"][site.name] = _full(results["terms"][site.name], site.batch_shape)
        results["supports"][site.name] = in_support(fn, value, site.batch_shape)
        lower, upper = unknown_bounds(fn, site.batch_shape)
        results["lowers"] |= {} if lower is None else {site.name: lower}
        results["uppers"] |= {} if upper is None else {site.name: upper}
        results["priors"][site.name] = _full(unmasked(fn).log_prob(value), site.batch_shape)
        key = inputs[f"key {site.name}"]
        sample_shape = site.shape[: len(site.shape) - len(fn.batch_shape + fn.event_shape)]
        new = draw(fn, key, sample_shape) if site.has_prior else value
        results["draws"][site.name] = jnp.asarray(new, site.dtype)
        if site.free_shape is not None:
            free, log_jacobian = from_free(unmasked(fn), inputs[f"free {site.name}"])
            results["to_free"][site.name] = to_free(unmasked(fn), value)
            results["from_free"][site.name] = jnp.asarray(free, site.dtype)
            results["log_jacobians"][site.name] = _full(log_jacobian)
        if site.is_count and (mean := mean_of(unmasked(fn), site.shape)) is not None:
            results["means"][site.name] = mean
    for (name, number), propose in proposals.items():
        fn, value = unmasked(latent[name]["fn"]), position[name]
        scale = inputs[f"scale {name}"]
        try:
            new, log_q_ratio = propose(inputs[f"key {name}"], value, fn, position, scale)
        except errors.ModelError:
            raise
        except Exception as error:
            raise errors.proposal_raised(name, error) from error
        results["proposed"][name, number] = new
        if log_q_ratio is not None:
            full = _full(log_q_ratio, sites[name].batch_shape)
            results["log_q_ratios"][name, number] = full
    return results


def _full(array: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Return numbers of one dtype, whatever the model computes with, and of a shape."""
    array = jnp.asarray(array)
    if array.dtype != float_type():
        array = array.astype(float_type())
    return array if shape in (None, array.shape) else jnp.broadcast_to(array, shape)


def _check_structure(sites: SiteTable, structure: Mapping[str, tuple[int, ...]]) -> None:
    """Raise if a run has other sites, or other shapes, than the first one."""
    if set(structure) != set(sites.structure):
        raise errors.structure_changes(sites.structure, structure)
    for name, shape in structure.items():
        if shape != sites.structure[name]:
            raise errors.shape_changes(name, sites.structure[name], shape)


def _explain(error: Exception, call: ModelCall, sites: SiteTable) -> Exception:
    """Say why a model that ran with prior draws cannot be traced."""
    if call.own and _is_traceable(call.of_dataset(0), sites):
        return errors.wants_data(error)
    try:
        again = call.run({}, jax.random.key(0))
        _check_structure(sites, again.structure)
    except errors.ModelError as changed:
        return changed
    except Exception:  # a model that does not do the same twice
        return errors.model_raised(error, is_traced=True)
    if isinstance(error, _WANTS_VALUE):
        position = {name: jnp.asarray(m["value"]) for name, m in again.latent.items()}
        return errors.wants_value(_culprits(error, call, position, sites.names), error)
    return errors.model_raised(error, is_traced=True)


def _is_traceable(call: ModelCall, sites: SiteTable) -> bool:
    try:
        trace_program(call, sites)
    except Exception:  # whatever it is, it has nothing to do with data sets
        return False
    return True


def _culprits(
    error: Exception, call: ModelCall, position: Mapping[str, Array], names: Sequence[str]
) -> list[str]:
    """Return those of the sites whose value is asked for where ``error`` was raised.

    The model is run with some of its values mapped by `jax.vmap`, so that these alone, and what is
    computed from them, are unknown.
    """

    def run_some(values: Mapping[str, Array]) -> Mapping[str, Array]:
        run = call.run({**position, **values}, jax.random.key(0))
        select_outputs(call.outputs, run)
        return values

    try:
        jax.vmap(run_some)({name: position[name][None] for name in names})
        return []
    except Exception as other:  # another failure is not the one that we look for
        if errors.user_line(other) != errors.user_line(error):
            return []
    if len(names) == 1:
        return list(names)
    half = len(names) // 2
    return [
        name
        for part in (names[:half], names[half:])
        for name in _culprits(error, call, position, part)
    ]
