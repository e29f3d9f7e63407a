"""The latent sites of a model: what they are called, how they are shaped, where they start."""

import itertools
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from adlmh_jax.model import errors
from adlmh_jax.model.call import ModelCall, ModelRun
from adlmh_jax.model.distributions import (
    candidates_of,
    in_support,
    is_factor,
    is_improper,
    unwrapped,
)
from adlmh_jax.model.hidden import observed_data
from adlmh_jax.model.supports import Support, describe_support
from adlmh_jax.types import Array


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
    is_enumerated
        Whether the model marks it for NumPyro's enumeration.
    """

    name: str
    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    dtype: str
    is_discrete: bool
    support: Support
    candidates: tuple[float, ...] = ()
    has_prior: bool = True
    is_enumerated: bool = False

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
    data
        What the first run observed.
    """

    sites: tuple[Site, ...]
    structure: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)

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


def describe_term(message: dict[str, Any], terms: np.ndarray) -> tuple[str, str]:
    """Return the first term of a site that is not finite: its name, and what is wrong with it."""
    fn, flat = message["fn"], int(np.argmax(~np.isfinite(terms)))
    name = element_names(message["name"], terms.shape)[flat]
    words = f"has log-probability {np.ravel(terms)[flat]}"
    if is_factor(fn):
        return name, words  # a factor has no value
    value = jnp.broadcast_to(message["value"], terms.shape + fn.event_shape)
    inside = np.ravel(in_support(fn, value, terms.shape))[flat]
    words += f" at the value {np.reshape(value, (-1, *fn.event_shape))[flat].tolist()}"
    kind = type(unwrapped(fn)).__name__
    return name, words if inside else (
        f"{words}, outside the support of its {kind} distribution ({describe_support(fn.support)})"
    )


def starting_value(init: Mapping[str, Array], message: dict[str, Any]) -> Array | None:
    """Return the value at which a site is to start, as the site has it; None for a prior draw."""
    is_latent = message["type"] == "sample" and not message["is_observed"]
    if not is_latent or message["name"] not in init:
        return None
    fn, value = message["fn"], init[message["name"]]
    shape = (*message["kwargs"].get("sample_shape", ()), *fn.shape())
    is_discrete = bool(fn.support.is_discrete)
    if value.ndim == len(shape) + 1 and value.shape[1:] == shape:
        value = value[0]  # there is one for each chain
    if value.shape != shape or (is_discrete and jnp.issubdtype(value.dtype, jnp.inexact)):
        raise errors.wrong_init(message["name"], value, shape, is_discrete)
    inside = jnp.all(fn.support(value))
    if not isinstance(inside, jax.core.Tracer) and not inside:
        support = f"{type(unwrapped(fn)).__name__} distribution ({describe_support(fn.support)})"
        raise errors.impossible_init(
            {message["name"]: value},
            {message["name"]: f"lies outside the support of its {support}"},
        )
    return value if is_discrete else value.astype(jnp.result_type(value.dtype, float))


def find_sites(call: ModelCall, init: Mapping = MappingProxyType({})) -> SiteTable:
    """Run the model, which starts ``init`` by itself, with prior draws, and describe its sites."""
    run = _first_run(call, init)
    sites = tuple(_describe(name, message) for name, message in run.latent.items())
    if not sites:
        raise errors.no_latent_sites(run.scored)
    if not any(site.num_components for site in sites):
        raise errors.no_components(run.latent)
    held = [name for name, message in run.trace.items() if message["type"] == "param"]
    if held:
        names = ", ".join(f"`{name}`" for name in held)
        warnings.warn(f"Held at the initial value: param {names}.", UserWarning, stacklevel=4)
    return SiteTable(sites, run.structure, observed_data(run))


def _describe(name: str, message: dict[str, Any]) -> Site:
    fn, value = message["fn"], jnp.asarray(message["value"])
    num_batch = value.ndim - fn.event_dim
    return Site(
        name=name,
        batch_shape=value.shape[:num_batch],
        event_shape=value.shape[num_batch:],
        dtype=value.dtype.name,
        is_discrete=bool(fn.support.is_discrete),
        support=describe_support(fn.support),
        candidates=candidates_of(fn),
        has_prior=not is_improper(fn),
        is_enumerated=message["infer"].get("enumerate") == "parallel",
    )


def _first_run(call: ModelCall, init: Mapping) -> ModelRun:
    """Run the model on concrete prior draws; translate what goes wrong."""

    def refuse_improper(message: dict[str, Any]) -> None:
        is_latent = message["type"] == "sample" and not message["is_observed"]
        if is_latent and is_improper(message["fn"]) and message["name"] not in init:
            raise errors.improper_site(message["name"])

    watched = handlers.substitute(call.model, substitute_fn=refuse_improper)
    try:
        return replace(call, model=watched).run({}, jax.random.key(0))
    except errors.ModelError:
        raise
    except Exception as error:
        if isinstance(error, TypeError) and not errors.user_line(error):
            raise errors.wrong_call(error, call.args, call.kwargs) from error
        raise errors.model_raised(error) from error
