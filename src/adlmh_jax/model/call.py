"""A model with its arguments, and what one run of it did."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import handlers
from numpyro.contrib.control_flow.scan import scan_wrapper

from adlmh_jax.graph import PerDataset
from adlmh_jax.model import errors
from adlmh_jax.model.distributions import is_delta
from adlmh_jax.types import Array, Key, Model, Position

Outputs = str | list[str] | tuple[str, ...] | Callable[[dict[str, Array]], Any] | None


@dataclass(frozen=True)
class ModelCall:
    """A model, what to call it with, and what is asked of it.

    Attributes
    ----------
    model, args, kwargs
        The model and its arguments; those of the first data set, if there are many.
    outputs
        What is asked of it.
    own
        What each data set has in the place of an argument, by the place of the leaf among those of
        the arguments.
    num_datasets
        How many there are.
    """

    model: Model
    args: tuple
    kwargs: Mapping[str, Any]
    outputs: Outputs
    own: Mapping[int, PerDataset] = field(default_factory=dict)
    num_datasets: int = 1

    def run(self, position: Position, key: Key) -> "ModelRun":
        """Run the model once with its latent sites at ``position`` (others are drawn)."""
        return run_model(self.model, self.args, self.kwargs, position, key)

    @property
    def data(self) -> dict[str, PerDataset]:
        """What data sets have of their own, by the names of inputs."""
        return {f"data {place}": values for place, values in self.own.items()}

    def with_data(self, inputs: Mapping[str, Any]) -> "ModelCall":
        """Return the call with these in the place of what data sets have of their own."""
        return self._replaced({place: inputs[f"data {place}"] for place in self.own})

    def of_dataset(self, number: int) -> "ModelCall":
        """Return the call of one data set."""
        return self._replaced({place: own.values[number] for place, own in self.own.items()})

    def _replaced(self, new: Mapping[int, Any]) -> "ModelCall":
        leaves, tree = jax.tree.flatten((self.args, dict(self.kwargs)))
        args, kwargs = jax.tree.unflatten(tree, [new.get(i, v) for i, v in enumerate(leaves)])
        return replace(self, args=args, kwargs=kwargs, own={}, num_datasets=1)


@dataclass(frozen=True)
class ModelRun:
    """What one run of the model did: its NumPyro trace, and what it returned."""

    trace: dict[str, dict[str, Any]]
    returned: Any

    @property
    def latent(self) -> dict[str, dict[str, Any]]:
        """The messages of the latent sites. A Delta has no freedom: it is deterministic."""
        return {
            name: message
            for name, message in self.trace.items()
            if message["type"] == "sample"
            and not message["is_observed"]
            and not is_delta(message["fn"])
        }

    @property
    def scored(self) -> dict[str, dict[str, Any]]:
        """The messages of all sites with a log-probability."""
        return {name: m for name, m in self.trace.items() if m["type"] == "sample"}

    @property
    def structure(self) -> dict[str, tuple[int, ...]]:
        """Shape of the distribution of every scored site: what must be the same on every run."""
        return {name: tuple(message["fn"].shape()) for name, message in self.scored.items()}

    @property
    def values(self) -> dict[str, Array]:
        """Values that can be outputs: latent, then deterministic sites (Delta's among them)."""
        latent = self.latent
        values = {name: message["value"] for name, message in latent.items()}
        for name, message in self.trace.items():
            is_fixed = message["type"] == "sample" and not message["is_observed"]
            if name not in latent and (is_fixed or message["type"] == "deterministic"):
                values[name] = message["value"]
        return values


class _FixedSubsamples(numpyro.primitives.Messenger):
    """Refuse plates that would pick other rows on every run."""

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate" and msg["value"] is None and msg["kwargs"]["rng_key"] is None:
            size, subsample = msg["args"]
            raise errors.random_subsample(msg["name"], size, subsample)


class _StepsInOrder(numpyro.primitives.Messenger):
    """Put the latent sites of a `scan` in reverse into the order in which its steps run.

    NumPyro gives step i the value with index i, but says what was drawn, and from which
    distribution, in the order of the rows, the last of which comes first.
    """

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        """Turn values and distributions around."""
        if msg["type"] != "control_flow" or msg["fn"] is not scan_wrapper or not msg["args"][4]:
            return
        _, (kept, _) = msg["value"]
        for site in kept.trace.values():
            if site["type"] == "sample" and not site["is_observed"]:
                turned = jax.tree.map(lambda leaf: jnp.flip(leaf, 0), (site["fn"], site["value"]))
                site["fn"], site["value"] = turned


def run_model(model: Model, args: tuple, kwargs: Mapping, position: Position, key: Key) -> ModelRun:
    """Run a model once with its latent sites at ``position`` (others are drawn)."""
    seeded = handlers.seed(_StepsInOrder(_FixedSubsamples(model)), key)
    with handlers.trace() as trace:
        returned = handlers.substitute(seeded, data=position)(*args, **kwargs)
    return ModelRun(dict(trace), returned)


def conditioned(model: Model, args: tuple, kwargs: Mapping[str, Any], data: Mapping) -> Any:
    """Run a model that observes other data than those that it is given, by site."""
    with handlers.condition(data=data):
        return model(*args, **kwargs)
