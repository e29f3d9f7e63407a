"""Random small discrete programs, which can be enumerated.

Two to six sites of two or three values each, some of them plates of two or three elements. What a
site depends on is drawn at random: earlier sites as a whole, or, inside plates, element by element,
in reverse, gathered by another site, or cumulatively. Supports may depend on other sites; terms may
be masked or scaled; factors tie sites together.
"""

import itertools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

MAX_STATES = 1500
LINKS = ("aligned", "reversed", "gathered", "cumulative", "sum")


@dataclass(frozen=True)
class SiteSketch:
    """A site: its values 0..num_values-1, its plate, and how it depends on earlier sites."""

    name: str
    num_values: int
    size: int  # 0: not in a plate
    base: tuple
    links: tuple  # (name of an earlier site, kind, strength)
    bound: str  # a site that bounds the support, or ""
    scale: float
    mask: tuple


def link(value, own_size, kind):
    """Return what an earlier value contributes to the logits of a site."""
    value = jnp.asarray(value, float)
    if own_size and value.shape == (own_size,):
        if kind == "reversed":
            return value[::-1]
        if kind == "gathered":
            return value[jnp.asarray(value, int) % own_size]
        if kind == "cumulative":
            return jnp.cumsum(value)
        if kind == "aligned":
            return value
    return jnp.sum(value)


def sketch(seed):
    """Draw the sketch of a program whose states are not too many."""
    rng = np.random.default_rng(seed)
    while True:
        sites = []
        for number in range(rng.integers(2, 7)):
            size = int(rng.choice([0, 0, 2, 3]))
            others = [site.name for site in sites]
            chosen = rng.permutation(others)[: rng.integers(0, 3)] if others else []
            scalars = [s.name for s in sites if not s.size and s.num_values == 3]
            is_bounded = bool(scalars) and not size and rng.random() < 0.15
            sites.append(
                SiteSketch(
                    name=f"s{number}",
                    num_values=int(rng.integers(2, 4)),
                    size=size,
                    base=tuple(rng.normal(size=3)),
                    links=tuple(
                        (str(name), str(rng.choice(LINKS)), float(rng.normal())) for name in chosen
                    ),
                    bound=str(rng.choice(scalars)) if is_bounded else "",
                    scale=float(rng.choice([1.0, 1.0, 1.0, 2.0])),
                    mask=tuple(bool(m) for m in rng.random(max(size, 1)) < 0.85),
                )
            )
        components = [s.num_values for s in sites for _ in range(max(s.size, 1))]
        if np.prod(components) <= MAX_STATES:
            return tuple(sites), float(rng.normal()), bool(rng.random() < 0.5)


def make_model(sites, strength, has_factor):
    """Return the NumPyro model of a sketch."""

    def model():
        values = {}
        for site in sites:
            levels = jnp.arange(site.num_values)
            shift = sum(
                (w * link(values[name], site.size, kind) for name, kind, w in site.links),
                start=jnp.zeros(()),
            )
            logits = jnp.asarray(site.base[: site.num_values]) + 0.4 * shift[..., None] * levels
            fn = dist.Categorical(logits=logits)
            if site.bound:
                fn = dist.DiscreteUniform(0, values[site.bound])
            with handlers.scale(scale=site.scale):
                if site.size:
                    with numpyro.plate(f"plate_{site.name}", site.size):
                        masked = handlers.mask(mask=jnp.asarray(site.mask))
                        with masked:
                            values[site.name] = numpyro.sample(site.name, fn)
                else:
                    values[site.name] = numpyro.sample(site.name, fn)
        if has_factor:
            total = sum(jnp.sum(value) for value in values.values())
            numpyro.factor("tie", strength * jnp.cos(1.0 * total))

    return model


def enumerate_states(program):
    """Return all states ``[state, component]`` of positive density, and their probabilities."""
    columns, shapes = [], []
    for site in program.sites.sites:
        values = range(3)
        columns.extend([values] * site.num_components)
        shapes.append((site.name, site.num_components, site.shape, site.dtype))
    states = np.array(list(itertools.product(*columns)), np.int32)
    return states, shapes


def positions_of(states, shapes):
    """Return states as positions ``[state, ...]``."""
    positions, start = {}, 0
    for name, number, shape, dtype in shapes:
        part = states[:, start : start + number]
        positions[name] = jnp.asarray(part.reshape(len(states), *shape), dtype)
        start += number
    return positions
