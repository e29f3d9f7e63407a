"""Both proposals of a mixture in one branch: which of them is taken is data.

All else that a move computes is the same for both, and is compiled once.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from adlmh_jax.graph import Cutter, Fragment
from adlmh_jax.model import Site
from adlmh_jax.types import Array, float_type


@dataclass(frozen=True)
class Choice:
    """The choice between two proposals; to those who run it, a node like others.

    Attributes
    ----------
    site
        The moved site.
    which
        Number of the value that says which of the two variants is taken, 0 or 1.
    ways
        The proposals: each gives a value and, unless it is a prior draw, its log q ratio.
    is_scaled
        Whether the scale matters to each.
    inputs, outputs
        Numbers of the operands, and of value and log q ratio, which is 0 for a prior draw.
    """

    site: Site
    which: int
    ways: tuple[Fragment, Fragment]
    is_scaled: tuple[bool, bool]
    inputs: tuple[int, ...]
    outputs: tuple[int, int]

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Propose a value."""
        known = dict(zip(self.inputs, map(jnp.asarray, operands), strict=True))
        first, second = self.ways
        return lax.cond(
            known[self.which] == 0,
            lambda known: self._propose(first, known),
            lambda known: self._propose(second, known),
            known,
        )

    def _propose(self, way: Fragment, known: dict[int, Array]) -> list[Array]:
        value, *ratio = way.run(known)
        site = self.site
        log_ratio = jnp.asarray(ratio[0] if ratio else 0.0, float_type())
        return [
            value.reshape(site.shape).astype(site.dtype),
            jnp.broadcast_to(log_ratio, site.batch_shape),
        ]

    def is_draw(self, known: dict[int, Any]) -> Array:
        """Whether the variant that is taken is a prior draw."""
        return jnp.array([len(way.outputs) == 1 for way in self.ways])[known[self.which]]

    def signature(self) -> Hashable:
        """Return what tells this operation from others, apart from its operands."""
        return "choice", self.which, tuple(way.signature() for way in self.ways)


def make_choice(
    cutter: Cutter, site: Site, ways: Sequence[Fragment], scale: int | None
) -> Choice | None:
    """Return the choice between two proposals; None if there is one."""
    if len(ways) == 1:
        return None
    first, second = ways
    which = cutter.new_number()
    read = [_find_reads(way) for way in ways]
    return Choice(
        site=site,
        which=which,
        ways=(first, second),
        is_scaled=(scale in read[0], scale in read[1]),
        inputs=(which, *sorted(read[0] | read[1])),
        outputs=(cutter.new_number(), cutter.new_number()),
    )


def _find_reads(way: Fragment) -> set[int]:
    """Return the numbers of what a computation reads."""
    made = {number for node in way.nodes for number in node.outputs}
    read = {number for node in way.nodes for number in node.inputs} | set(way.outputs)
    return read - made
