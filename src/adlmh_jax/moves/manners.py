"""How sites that share a branch propose, whichever of them moves."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from adlmh_jax.graph import Fragment, Noise
from adlmh_jax.model import Site
from adlmh_jax.moves.trunk import Gathered
from adlmh_jax.types import Array, float_type

VALUE, SCALE, NOISE = 0, 1, 2  # numbers of what is given to a proposal; noise is last


@dataclass(frozen=True)
class Manner:
    """How sites of a kind propose: the fragments, what they read, and their random inputs.

    ``propose`` gives the value, and the log q ratio unless ``prior`` is to give it.
    """

    propose: Fragment
    prior: Fragment | None
    gathered: Gathered
    noise: tuple[tuple[int, Noise], ...]

    def run(
        self, known: Mapping[int, Any], site: Site, row: Array, given: dict[int, Any]
    ) -> tuple[Array, Array]:
        """Return the proposed value of a row, and the log q ratio."""
        inputs = given | self.gathered.of_row(known, row)
        inputs |= {NOISE + i: known[number] for i, (number, _) in enumerate(self.noise)}
        value, *ratio = self.propose.run(inputs)
        is_whole = value.size == math.prod(site.shape)
        value = value.reshape(site.shape) if is_whole else jnp.broadcast_to(value, site.shape)
        value = value.astype(site.dtype)
        if self.prior is not None:
            new = {**inputs, VALUE: value}
            ratio = [self.prior.run(inputs)[0] - self.prior.run(new)[0]]
        return value, jnp.broadcast_to(ratio[0], site.batch_shape).astype(float_type())


@dataclass(frozen=True)
class ProposeNode:
    """The proposal of whichever site moves; to those who run it, a node like others.

    Attributes
    ----------
    site
        A site like all of them.
    own, scale
        Numbers of its value and scale.
    manners
        How they propose.
    which, row
        Numbers of which of these ways it is, and of the row of the site in it.
    outputs
        Numbers of value and log q ratio.
    """

    site: Site
    own: int
    scale: int | None
    manners: tuple[Manner, ...]
    which: int
    row: int
    outputs: tuple[int, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of the operands."""
        numbers = [self.own, self.which, self.row]
        numbers += [] if self.scale is None else [self.scale]
        for manner in self.manners:
            numbers += [*manner.gathered.numbers, *(number for number, _ in manner.noise)]
        return tuple(dict.fromkeys(numbers))

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Propose a value of the moved site."""
        known = dict(zip(self.inputs, map(jnp.asarray, operands), strict=True))
        given = {VALUE: known[self.own]}
        given |= {} if self.scale is None else {SCALE: known[self.scale]}
        row = known[self.row]
        ways = [
            lambda manner=manner: manner.run(known, self.site, row, given)
            for manner in self.manners
        ]
        return list(lax.switch(known[self.which], ways) if len(ways) > 1 else ways[0]())

    def signature(self) -> Hashable:
        """Return what tells this operation from others, apart from its operands."""
        site = (self.site.batch_shape, self.site.event_shape, self.site.dtype)
        manners = tuple(
            (m.propose.signature(), m.prior.signature() if m.prior else None, m.gathered, m.noise)
            for m in self.manners
        )
        return "propose", site, manners, self.scale is None
