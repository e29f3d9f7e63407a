"""The latent sites of a model: what they are called, how they are shaped, where they start."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from adlmh_jax.model import errors
from adlmh_jax.model.call import ModelCall, ModelRun
from adlmh_jax.model.distributions import (
    enumerate_support,
    free_shape,
    in_support,
    is_factor,
    is_improper,
    unwrapped,
)
from adlmh_jax.model.hidden import observed_data
from adlmh_jax.model.staging import stage
from adlmh_jax.model.supports import Support, bounds_of, describe_support
from adlmh_jax.types import Array
from adlmh_jax.warning import warn_user

MAX_CANDIDATES = 1024  # a support with more values is not enumerated


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
    free_shape
        Shape of its value on the unconstrained scale; None if it has none.
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
    free_shape: tuple[int, ...] | None = None

    @property
    def is_count(self) -> bool:
        """Whether choices are single integers whose values are no list."""
        is_integer = self.dtype.startswith(("int", "uint"))
        return self.is_discrete and is_integer and not self.event_shape and not self.candidates

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
    """Describe the sites of a model, which starts ``init`` by itself.

    Values that a choice can have are listed only if they are the same for all data sets.
    """
    staged = _stage_sites(call, init)
    if staged is None and call.own:
        return _compare_datasets(call, init)
    run, sites = staged or _run_sites(call, init)
    if not sites:
        raise errors.no_latent_sites(run.scored)
    if not any(site.num_components for site in sites):
        raise errors.no_components(run.latent)
    held = [name for name, message in run.trace.items() if message["type"] == "param"]
    if held:
        names = ", ".join(f"`{name}`" for name in held)
        warn_user(f"Held at the initial value: param {names}.")
    return SiteTable(sites, run.structure, observed_data(run))


def _compare_datasets(call: ModelCall, init: Mapping) -> SiteTable:
    """Describe the sites of many data sets, looked at one after the other."""
    first = find_sites(call.of_dataset(0), init)
    sites = list(first.sites)
    for number in range(1, call.num_datasets):
        other = find_sites(call.of_dataset(number), init)
        if dict(other.structure) != dict(first.structure):
            raise errors.structure_of_dataset(number)
        for place, (site, theirs) in enumerate(zip(sites, other.sites, strict=True)):
            if site.candidates != theirs.candidates:
                sites[place] = replace(site, candidates=())
    return replace(first, sites=tuple(sites), data={})


class _Sketch(NamedTuple):
    """A site, and the arrays that say the rest about its support."""

    site: Site
    constraint: Any
    bounds: tuple[Any, Any]
    values: Any
    is_enumerated: bool

    def needs_draw(self, value_of: Callable[[Any], Any]) -> bool:
        """Whether values could be listed of a support that hangs on no draw, but were not."""
        return not self.is_enumerated and all(value_of(end) is not None for end in self.bounds)

    def finish(self, value_of: Callable[[Any], Any]) -> Site:
        """Return the site, given what gives the value of an array; None if it is not known."""
        low, high = map(value_of, self.bounds)
        values = value_of(self.values)
        is_listed = values is not None and np.size(values) <= MAX_CANDIDATES
        return replace(
            self.site,
            support=describe_support(self.constraint, (low, high)),
            candidates=tuple(np.ravel(values).tolist()) if is_listed else (),
        )


def _sketch(run: ModelRun) -> list[_Sketch]:
    """Describe the latent sites of a run."""
    return [_sketch_site(name, message) for name, message in run.latent.items()]


def _sketch_site(name: str, message: dict[str, Any]) -> _Sketch:
    fn, value = message["fn"], message["value"]
    shape, num_batch = jnp.shape(value), jnp.ndim(value) - fn.event_dim
    site = Site(
        name=name,
        batch_shape=shape[:num_batch],
        event_shape=shape[num_batch:],
        dtype=jnp.result_type(value).name,
        is_discrete=bool(fn.support.is_discrete),
        support=Support(""),
        has_prior=not is_improper(fn),
        is_enumerated=message["infer"].get("enumerate") == "parallel",
        free_shape=free_shape(fn, shape),
    )
    return _Sketch(site, fn.support, bounds_of(fn.support), *enumerate_support(fn))


def _stage_sites(call: ModelCall, init: Mapping) -> tuple[ModelRun, tuple[Site, ...]] | None:
    """Describe the sites without a draw; None if something is wrong that only draws can tell."""

    def note(run: ModelRun) -> tuple[list[_Sketch], list[Any]]:
        sketches = _sketch(run)
        return sketches, [a for sketch in sketches for a in (*sketch.bounds, sketch.values)]

    staged = stage(_refusing_improper(call, init), note, init)
    if staged is None or any(sketch.needs_draw(staged.value_of) for sketch in staged.notes):
        return None
    return staged.run, tuple(sketch.finish(staged.value_of) for sketch in staged.notes)


def _run_sites(call: ModelCall, init: Mapping) -> tuple[ModelRun, tuple[Site, ...]]:
    """Describe the sites of a run on prior draws."""
    run = _first_run(call, init)
    return run, tuple(sketch.finish(lambda array: array) for sketch in _sketch(run))


def _refusing_improper(call: ModelCall, init: Mapping) -> ModelCall:
    """Return a call of the model that refuses sites which can neither be drawn nor start."""

    def refuse_improper(message: dict[str, Any]) -> None:
        is_latent = message["type"] == "sample" and not message["is_observed"]
        if is_latent and is_improper(message["fn"]) and message["name"] not in init:
            raise errors.improper_site(message["name"])

    return replace(call, model=handlers.substitute(call.model, substitute_fn=refuse_improper))


def _first_run(call: ModelCall, init: Mapping) -> ModelRun:
    """Run the model on concrete prior draws; translate what goes wrong."""
    try:
        return _refusing_improper(call, init).run({}, jax.random.key(0))
    except errors.ModelError:
        raise
    except Exception as error:
        if isinstance(error, TypeError) and not errors.user_line(error):
            raise errors.wrong_call(error, call.args, call.kwargs) from error
        raise errors.model_raised(error) from error
