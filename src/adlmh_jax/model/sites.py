"""Run a NumPyro model and read what it did: its sites, their distributions and its outputs."""

import itertools
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions.util import is_identically_one

from adlmh_jax.model import errors
from adlmh_jax.model.supports import Support, support_in_words
from adlmh_jax.types import Array, Key, Model, Position

Outputs = str | list[str] | tuple[str, ...] | Callable[[dict[str, Array]], Any] | None
MOST_CANDIDATES = 256  # a support with more values is not enumerated


@dataclass(frozen=True)
class Site:
    """A latent ``sample`` statement.

    Attributes
    ----------
    name
        Its NumPyro name.
    batch_shape
        One component for each element.
    event_shape
        The shape of one random choice.
    dtype
        Name of the dtype of its values.
    is_discrete
        Whether its support is discrete.
    support
        The support in words, for people.
    candidates
        All values of a choice, where they are finitely many and the same for every element.
    has_prior
        Whether values can be drawn from its distribution; not so for an ImproperUniform.
    """

    name: str
    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    dtype: str
    is_discrete: bool
    support: Support
    candidates: tuple[int, ...] = ()
    has_prior: bool = True

    @property
    def num_components(self) -> int:
        """Number of random choices of this statement."""
        return math.prod(self.batch_shape)

    @property
    def event_size(self) -> int:
        """Number of scalars of one random choice."""
        return math.prod(self.event_shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the site's value."""
        return self.batch_shape + self.event_shape


@dataclass(frozen=True)
class SiteTable:
    """The latent sites in program order; components are numbered through them.

    Attributes
    ----------
    sites
        The latent sites.
    structure
        Shape of the distribution of every site with a log-probability, latent or observed.
    """

    sites: tuple[Site, ...]
    structure: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(site.name for site in self.sites)

    @property
    def num_components(self) -> int:
        """N of the paper."""
        return sum(site.num_components for site in self.sites)

    @cached_property
    def first_components(self) -> dict[str, int]:
        """Number of the first component of each site."""
        ends = itertools.accumulate((site.num_components for site in self.sites), initial=0)
        return dict(zip(self.names, ends, strict=False))

    @property
    def site_of(self) -> list[int]:
        """Index of the site of each component."""
        return [i for i, site in enumerate(self.sites) for _ in range(site.num_components)]

    @property
    def element_of(self) -> list[int]:
        """Index of each component within its site."""
        return [j for site in self.sites for j in range(site.num_components)]

    @property
    def component_names(self) -> list[str]:
        """A name for each component, such as ``mu`` or ``z[3]`` or ``z[1,2]``."""
        return [name for site in self.sites for name in element_names(site.name, site.batch_shape)]

    @cached_property
    def _by_name(self) -> dict[str, Site]:
        return {site.name: site for site in self.sites}

    def __getitem__(self, name: str) -> Site:
        """Return the site called ``name``."""
        return self._by_name[name]


def element_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Name the elements of an array, in row-major order."""
    if not shape:
        return [name]
    return [f"{name}[{','.join(map(str, index))}]" for index in _indices(shape)]


def _indices(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return all indices of an array of this shape."""
    indices: list[tuple[int, ...]] = [()]
    for size in shape:
        indices = [(*index, i) for index in indices for i in range(size)]
    return indices


class _FixedSubsamples(numpyro.primitives.Messenger):
    """Refuse plates that would pick other rows on every run."""

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate" and msg["value"] is None and msg["kwargs"]["rng_key"] is None:
            size, subsample = msg["args"]
            raise errors.random_subsample(msg["name"], size, subsample)


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
            and not isinstance(unwrapped(message["fn"]), dist.Delta)
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
            is_delta = message["type"] == "sample" and not message["is_observed"]
            if name not in latent and (is_delta or message["type"] == "deterministic"):
                values[name] = message["value"]
        return values


def run_model(model: Model, args: tuple, kwargs: Mapping, position: Position, key: Key) -> ModelRun:
    """Run the model once with its latent sites at ``position`` (others are drawn)."""
    seeded = handlers.seed(_FixedSubsamples(model), key)
    with handlers.trace() as trace:
        returned = handlers.substitute(seeded, data=position)(*args, **kwargs)
    return ModelRun(dict(trace), returned)


def unwrapped(fn: Any) -> Any:
    """Strip the wrappers that do not change the kind of a distribution."""
    wrappers = (dist.MaskedDistribution, dist.ExpandedDistribution, dist.Independent)
    while isinstance(fn, wrappers):
        fn = fn.base_dist
    return fn


def unmasked(fn: Any) -> Any:
    """Return the distribution without masks: what a prior draw is drawn from."""
    if isinstance(fn, dist.MaskedDistribution):
        return unmasked(fn.base_dist)
    if isinstance(fn, dist.Independent):
        base = unmasked(fn.base_dist)
        return fn if base is fn.base_dist else base.to_event(fn.reinterpreted_batch_ndims)
    if isinstance(fn, dist.ExpandedDistribution):
        base = unmasked(fn.base_dist)
        return fn if base is fn.base_dist else base.expand(fn.batch_shape)
    return fn


def log_terms(message: dict[str, Any]) -> Array:
    """Return the log-probabilities of a site's batch elements, scaled and masked as NumPyro's."""
    # A NumPy value would make NumPyro check supports with NumPy, which traced bounds do not allow.
    fn, value = message["fn"], jnp.asarray(message["value"])
    try:
        if message["intermediates"]:
            terms = fn.log_prob(value, message["intermediates"])
        else:
            terms = fn.log_prob(value)
    except (TypeError, ValueError) as error:
        raise errors.cannot_score(message["name"], message, error) from error
    scale = message["scale"]
    return terms if scale is None or is_identically_one(scale) else terms * scale


def in_support(fn: Any, value: Array, batch_shape: tuple[int, ...]) -> Array:
    """Return whether each batch element lies in the support of its distribution.

    We ask the support itself: with validation off, NumPyro's log-probabilities are finite outside.
    """
    inside = jnp.asarray(fn.support(value))
    extra = tuple(range(len(batch_shape), inside.ndim))
    return jnp.broadcast_to(jnp.all(inside, axis=extra) if extra else inside, batch_shape)


def term_in_words(message: dict[str, Any], terms: np.ndarray) -> tuple[str, str]:
    """Return the first term of a site that is not finite: its name, and what is wrong with it."""
    fn, flat = message["fn"], int(np.argmax(~np.isfinite(terms)))
    name = element_names(message["name"], terms.shape)[flat]
    words = f"has log-probability {np.ravel(terms)[flat]}"
    if isinstance(unwrapped(fn), dist.Unit):
        return name, words  # a factor has no value
    value = jnp.broadcast_to(message["value"], terms.shape + fn.event_shape)
    inside = np.ravel(in_support(fn, value, terms.shape))[flat]
    words += f" at the value {np.reshape(value, (-1, *fn.event_shape))[flat].tolist()}"
    kind = type(unwrapped(fn)).__name__
    return name, words if inside else (
        f"{words}, outside the support of its {kind} distribution ({support_in_words(fn.support)})"
    )


def is_improper(fn: Any) -> bool:
    """Whether a distribution cannot be drawn from."""
    return isinstance(unwrapped(fn), dist.ImproperUniform)


def starting_value(init: Mapping[str, Array], message: dict[str, Any]) -> Array | None:
    """Return the value at which a site is to start, as the site has it; None for a prior draw."""
    is_latent = message["type"] == "sample" and not message["is_observed"]
    if not is_latent or message["name"] not in init:
        return None
    fn, value = message["fn"], init[message["name"]]
    shape = (*message["kwargs"].get("sample_shape", ()), *fn.shape())
    is_discrete = bool(fn.support.is_discrete)
    if value.shape != shape or (is_discrete and jnp.issubdtype(value.dtype, jnp.inexact)):
        raise errors.wrong_init(message["name"], value, shape, is_discrete)
    return value if is_discrete else value.astype(jnp.result_type(value.dtype, float))


def find_sites(
    model: Model, args: tuple, kwargs: Mapping, init: Mapping = MappingProxyType({})
) -> SiteTable:
    """Run the model, which starts ``init`` by itself, with prior draws, and describe its sites."""
    run = _first_run(model, args, kwargs, init)
    sites = tuple(_describe(name, message) for name, message in run.latent.items())
    if not sites:
        raise errors.no_latent_sites(run.scored)
    if not any(site.num_components for site in sites):
        raise errors.no_components(run.latent)
    held = [name for name, message in run.trace.items() if message["type"] == "param"]
    if held:
        names = ", ".join(f"`{name}`" for name in held)
        warnings.warn(f"Held at the initial value: param {names}.", UserWarning, stacklevel=4)
    return SiteTable(sites, run.structure)


def _describe(name: str, message: dict[str, Any]) -> Site:
    fn, value = message["fn"], jnp.asarray(message["value"])
    num_batch = value.ndim - fn.event_dim
    batch_shape, event_shape = value.shape[:num_batch], value.shape[num_batch:]
    support = fn.support
    kind = (value.dtype.name, bool(support.is_discrete), support_in_words(support))
    return Site(name, batch_shape, event_shape, *kind, _candidates(fn), not is_improper(fn))


def _candidates(fn: Any) -> tuple[int, ...]:
    """Return the values of a finite scalar support, if they are the same for every element."""
    if not fn.has_enumerate_support or fn.event_shape:
        return ()
    try:
        values = fn.enumerate_support(expand=False)
    except NotImplementedError:
        return ()
    values = jnp.ravel(values)
    return tuple(map(int, values)) if values.size <= MOST_CANDIDATES else ()


def _first_run(model: Model, args: tuple, kwargs: Mapping, init: Mapping) -> ModelRun:
    """Run the model on concrete prior draws; translate what goes wrong."""

    def refuse_improper(message: dict[str, Any]) -> None:
        is_latent = message["type"] == "sample" and not message["is_observed"]
        if is_latent and is_improper(message["fn"]) and message["name"] not in init:
            raise errors.improper_site(message["name"])

    watched = handlers.substitute(model, substitute_fn=refuse_improper)
    try:
        return run_model(watched, args, kwargs, {}, jax.random.key(0))
    except errors.ModelError:
        raise
    except Exception as error:
        if isinstance(error, TypeError) and not errors.user_line(error):
            raise errors.wrong_call(error, args, kwargs) from error
        raise errors.model_raised(error) from error
