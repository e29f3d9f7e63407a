"""The entries of one site, or of several that move together, and the branches that move them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from adlmh_jax.model import Program, Site, SiteTable
from adlmh_jax.moves.branch import Cut, cut_branch
from adlmh_jax.moves.elements import Element, view_elements
from adlmh_jax.proposals import Variant


@dataclass(frozen=True)
class Way:
    """How entries move in one variant, or in both if there is one branch for them.

    Attributes
    ----------
    cuts
        The branches: one, unless elements at the ends of a series need others.
    which
        Of these, the branch of each element; empty if there is one.
    """

    cuts: tuple[Cut, ...]
    which: tuple[int, ...] = ()

    def cut_of(self, element: int) -> int:
        """Return which of the branches moves an element."""
        return self.which[element] if self.which else 0


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
        variant = self.ways[0].cuts[0].branch.variant
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
    elements = _elements(program, name, variants)
    if len(variants) > 1 and not elements:
        each = [_elements(program, name, [variant]) for variant in variants]
        if any(each):
            pairs = zip(variants, each, strict=True)
            return [_way(program, name, [variant], own, trunk) for variant, own in pairs]
    return [_way(program, name, variants, elements, trunk)]


def _way(
    program: Program,
    name: str,
    variants: Sequence[Variant],
    elements: Sequence[Element],
    trunk: Collection[int],
) -> Way:
    """Return the way of a site; where there are views of its elements, each has a branch."""
    which = [
        next((turn for turn, element in enumerate(elements) if element.has(number)), len(elements))
        for number in range(program.sites[name].num_components if elements else 0)
    ]
    views: list[Element | None] = [*elements]
    if not elements or len(elements) in which:
        views.append(None)
    cuts = [_cut_variants(program, name, variants, view, trunk) for view in views]
    return Way(tuple(cuts), tuple(which))


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


def _elements(program: Program, name: str, variants: Sequence[Variant]) -> list[Element]:
    """Return the site seen from its elements, where a move of one needs few others."""
    site = program.sites[name]
    if variants[0].is_block or site.num_components == 1:
        return []
    proposals = [variant.proposal for variant in variants]
    return view_elements(program.traced, site, program.touches[name], proposals)
