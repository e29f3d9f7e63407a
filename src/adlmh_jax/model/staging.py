"""A run of a model on unknown prior draws: its sites and their shapes, without computing a draw."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints

from adlmh_jax.graph import holds, is_common, key_struct, of_dataset, trace_graph
from adlmh_jax.model.call import ModelCall, ModelRun
from adlmh_jax.types import Key

SEED = "seed"  # the name of the input that the model is seeded with


@dataclass(frozen=True)
class Staged:
    """What a run on unknown draws found.

    Attributes
    ----------
    run
        The run. Its arrays have shapes and dtypes, but no values.
    notes
        What was noted about the run while its arrays could be computed with.
    known
        The values of noted arrays that hang on no draw and are the same for all data sets, by the
        `id` of the array.
    """

    run: ModelRun
    notes: Any
    known: dict[int, Any]

    def value_of(self, array: Any) -> Any:
        """Return the value of a noted array; None if it hangs on a draw."""
        return self.known.get(id(array)) if isinstance(array, jax.core.Tracer) else array


def stage(
    call: ModelCall, note: Callable[[ModelRun], tuple[Any, list[Any]]], init: Collection[str]
) -> Staged | None:
    """Run a model on unknown draws; None if something is wrong that only draws can tell.

    Parameters
    ----------
    call
        The model.
    note
        Takes notes of the run: whatever it likes, and the arrays whose values are to be known.
    init
        Sites whose values the model has from the start: they must lie in their supports.
    """
    found: dict[str, Any] = {}

    def compute(inputs: dict[str, Key]) -> dict[str, list[Any]]:
        run = call.with_data(inputs).run({}, inputs[SEED])
        notes, arrays = note(run)
        asked = [array for array in arrays if isinstance(array, jax.core.Tracer)]
        found.update(run=run, notes=notes, asked=asked)
        return {"asked": asked, "checks": list(_checks(run, init))}

    try:
        graph, numbers = trace_graph(compute, {SEED: key_struct(), **call.data})
    except Exception:  # a run on draws raises it again, and says where
        return None
    constants = graph.constants
    constants.settle([*numbers["asked"], *numbers["checks"]])
    if not all(holds(constants[number]) for number in numbers["checks"] if number in constants):
        return None
    pairs = zip(found["asked"], numbers["asked"], strict=True)
    known = {id(array): constants[number] for array, number in pairs if number in constants}
    common = {key: of_dataset(value, 0) for key, value in known.items() if is_common(value)}
    return Staged(found["run"], found["notes"], common)


def _checks(run: ModelRun, init: Collection[str]) -> Iterator[Any]:
    """Yield what must be true: parameters are valid, and starting values lie in their supports.

    NumPyro checks parameters by itself, but not those that are computed while it is traced.
    """
    for name, message in run.scored.items():
        yield from _valid_parameters(message["fn"])
        if name in init and name in run.latent:
            yield jnp.all(message["fn"].support(message["value"]))


def _valid_parameters(fn: Any) -> Iterator[Any]:
    """Yield whether the parameters of a distribution, and of those inside it, are valid."""
    if hasattr(fn, "base_dist"):
        yield from _valid_parameters(fn.base_dist)
    for name, value in fn.get_args().items():
        constraint = fn.arg_constraints[name]
        if isinstance(value, jax.core.Tracer) and not constraints.is_dependent(constraint):
            yield jnp.all(constraint(value))
