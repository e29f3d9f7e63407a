"""The entries of one site, or of several that move together, and the branches that move them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from adlmh_jax.model import Program, Site, SiteTable
from adlmh_jax.moves.branch import Cut, cut_branch
from adlmh_jax.moves.elements import Element, view_element
from adlmh_jax.proposals import Variant


@dataclass(frozen=True)
class Way:
    """How entries move in one variant, or in both if there is one branch for them.

    Attributes
    ----------
    cut
        The branch.
    edge
        Where the branch is that of one element, another one for elements that it cannot move, such
        as the first and the last of a series; None if there are none.
    edge_elements
        Which elements these are.
    """

    cut: Cut
    edge: Cut | None = None
    edge_elements: frozenset[int] = frozenset()

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The branches."""
        return (self.cut,) if self.edge is None else (self.cut, self.edge)

    def cut_of(self, element: int) -> int:
        """Return which of the branches moves an element."""
        return int(element in self.edge_elements)


@dataclass(frozen=True)
class EntryPlan:
    """The entries of one site, or of several sites, with others summed out.

    Attributes
    ----------
    sites
        The sites that move; none if the summed ones alone are drawn.
    ways
        How both variants move, or each.
    second_share
        Probability of the second variant.
    summed
        The sites that are summed out.
    is_whole
        Whether there is one entry, though elements are not decided upon on their own.
    """

    sites: tuple[Site, ...]
    ways: tuple[Way, ...]
    second_share: float = 0.0
    summed: tuple[str, ...] = ()
    is_whole: bool = False

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """All branches."""
        return tuple(cut for way in self.ways for cut in way.cuts)

    @property
    def is_one(self) -> bool:
        """Whether there is one entry for all elements of the sites."""
        variant = self.ways[0].cut.branch.variant
        return self.is_whole or not self.sites or variant.is_block or variant.is_walk

    def components(self, sites: SiteTable) -> list[list[int]]:
        """Return the components that each entry moves, those of the moved sites first."""
        first = sites.first_components

        def numbers(names: Iterable[str]) -> list[int]:
            return [first[name] + i for name in names for i in range(sites[name].num_components)]

        own, summed = numbers(site.name for site in self.sites), numbers(self.summed)
        return [[*own, *summed]] if self.is_one else [[number, *summed] for number in own]


def cut_site(
    program: Program, name: str, variants: Sequence[Variant], trunk: Collection[int]
) -> list[Way]:
    """Return one way for both variants of a site's move, or one for each.

    A move of one element may need no others in one variant, but not in the other.
    """
    element = _element(program, name, variants)
    if len(variants) > 1 and element is None:
        elements = [_element(program, name, [variant]) for variant in variants]
        if any(elements):
            pairs = zip(variants, elements, strict=True)
            return [_way(program, name, [variant], e, trunk) for variant, e in pairs]
    return [_way(program, name, variants, element, trunk)]


def _way(
    program: Program,
    name: str,
    variants: Sequence[Variant],
    element: Element | None,
    trunk: Collection[int],
) -> Way:
    cut = _cut_variants(program, name, variants, element, trunk)
    numbers = range(program.sites[name].num_components if element else 0)
    at_edge = frozenset(number for number in numbers if element and not element.has(number))
    edge = _cut_variants(program, name, variants, None, trunk) if at_edge else None
    return Way(cut, edge, at_edge)


def _cut_variants(
    program: Program,
    name: str,
    variants: Sequence[Variant],
    element: Element | None,
    trunk: Collection[int],
) -> Cut:
    is_block = variants[0].is_block
    return cut_branch(
        program.traced,
        program.sites,
        (program.latent_layout, program.term_layout),
        program.touches[name],
        name,
        variants,
        term_axes=tuple(program.axes_by_term(name).values()) if is_block else (),
        element=element,
        trunk=trunk,
    )


def _element(program: Program, name: str, variants: Sequence[Variant]) -> Element | None:
    """Return the site seen from one element, where a move of one needs no others."""
    site = program.sites[name]
    if variants[0].is_block or site.num_components == 1:
        return None
    proposals = [variant.proposal for variant in variants]
    return view_element(program.traced, site, program.touches[name], proposals)
