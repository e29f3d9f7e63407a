"""What one step must compute when it moves one site, cut out of the model's graph."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adlmh_jax.graph import KEY_WORDS, Cutter, Fragment, Layout, Noise, noise_sources
from adlmh_jax.model import Site, SiteTable, Touches, Traced
from adlmh_jax.moves.cascade import Cascade
from adlmh_jax.moves.choice import Choice, make_choice
from adlmh_jax.moves.elements import At, Element, Touched
from adlmh_jax.moves.factors import Joint
from adlmh_jax.moves.rolling import RolledReads, cut_terms, run_finder
from adlmh_jax.moves.trunk import StackNode
from adlmh_jax.moves.walk import Walk
from adlmh_jax.proposals import PRIOR, Variant
from adlmh_jax.types import Array

ACCEPT_WORD = 0  # the first random word of a step decides on acceptance


@dataclass(frozen=True)
class Read:
    """A latent site whose value a branch reads, a part of it, or a run of consecutive sites.

    Attributes
    ----------
    number
        Of the value, in the branch.
    shape, bank
        Of what is read.
    strides, offset
        For the part of one element: rows to the parts of the next ones, and to that of the first.
    """

    number: int
    shape: tuple[int, ...]
    bank: str
    strides: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class Branch:
    """The computations of a step that moves one site, or several together.

    Attributes
    ----------
    site
        The moved site; the first of them.
    propose
        Its proposed value, and the log q ratio unless it is a prior draw.
    variant
        How it moves; in the first variant, if it has two.
    score, outputs
        The touched terms and the touched outputs.
    prior
        The log prior of the site; None if it is the site's own term.
    reads
        The latent sites read; the moved sites are the first.
    noise
        Random inputs, by number.
    scale
        Number of the proposal's scale, if it has one.
    key_start
        First of the two words that make a block's key, after those of the proposal.
    num_words
        Random words needed, the accept word included.
    own_term
        Which of the terms is the moved site's own.
    term_axes
        For a block: which axes of each term carry the site's batch axes.
    at
        For a branch of one element: where it is. None if whole sites are read.
    joint
        For a move that sums other sites out: how. None if nothing is summed out.
    walk
        For a walk of several sites at once: how. None for a move of one site.
    cascade
        Where supports of others depend on the site: what is redrawn, and what tells the sites apart
        that share the branch. None for other sites.
    is_tempered
        Which of the scored terms are of the data, not of the prior.
    choice
        The choice between two variants. None if there is one.
    """

    site: Site
    variant: Variant
    propose: Fragment
    score: Fragment
    outputs: Fragment
    prior: Fragment | None
    reads: tuple[Read, ...]
    noise: tuple[tuple[int, Noise], ...]
    scale: int | None
    key_start: int
    num_words: int
    own_term: int
    term_axes: tuple[tuple[int, ...], ...]
    at: At | None = None
    joint: Joint | None = None
    walk: Walk | None = None
    cascade: Cascade | None = None
    is_tempered: tuple[bool, ...] = ()
    choice: Choice | None = None

    @property
    def moved(self) -> tuple[int, ...]:
        """Which of the reads may have new values after the move."""
        movers = len(self.walk.sites) if self.walk else 1
        if self.joint:
            return (*range(movers if self.joint.has_mover else 0), *self.joint.moved)
        first_redrawn = len(self.reads) - len(self.redrawn_reads)
        return (*range(movers), *range(first_redrawn, len(self.reads)))

    @property
    def has_rows(self) -> bool:
        """Whether it computes arrays with a row for each of several sites."""
        is_stacked = any(isinstance(node, StackNode) for node in self.score.nodes)
        return bool(self.joint or self.cascade) or is_stacked

    @property
    def redrawn_reads(self) -> tuple[Read, ...]:
        """The values of sites that may be redrawn, which are read last."""
        number = self.cascade.num_reads if self.cascade else 0
        return self.reads[len(self.reads) - number :]

    def place(self, known: Mapping[int, Any], value: Array) -> dict[int, Any]:
        """Return what is known with a new value of the moved site."""
        if self.cascade:
            return self.cascade.put(known, value)
        return {**known, self.reads[0].number: value}

    def keep_terms(
        self, known: Mapping[int, Any], new: Sequence[Array], old: Sequence[Array]
    ) -> Sequence[Array]:
        """Return new terms where the moved site touches them."""
        return self.cascade.keep_terms(known, new, old) if self.cascade else new

    def keep_outputs(
        self, known: Mapping[int, Any], new: Sequence[Array], old: Sequence[Array]
    ) -> Sequence[Array]:
        """Return new outputs where the moved site touches them."""
        return self.cascade.keep_outputs(known, new, old) if self.cascade else new

    @property
    def num_decided(self) -> int:
        """Number of decisions: one for each element of a block; none if nothing is proposed."""
        if self.joint and not self.joint.has_mover:
            return 0
        return self.site.num_components if self.variant.is_block else 1

    @property
    def moved_sizes(self) -> tuple[int, ...]:
        """Number of components that are counted of each moved value."""
        own = [site.num_components for site in self.walk.sites] if self.walk else []
        own = own or ([self.num_decided] if self.num_decided else [])
        return (*own, *(self.joint.run_sizes if self.joint else ()))

    @property
    def has_scale(self) -> bool:
        """Whether its steps have a length that is learned."""
        return self.scale is not None or self.walk is not None

    def is_scaled(self, variant: int) -> bool:
        """Whether the steps of a variant have such a length."""
        return self.choice.is_scaled[variant] if self.choice else self.has_scale


@dataclass(frozen=True)
class Cut:
    """The branch of one site, before grouping.

    Attributes
    ----------
    branch
        The computations.
    read_names
        Of each read, its first site.
    terms, outputs
        What is touched: name and shape; of a run, those of its first term and of all.
    constants, literals
        Values, by number, and which of them are numbers in the model's text.
    moved_names
        The moved sites; where others are summed out, the first site of each run of them too.
    """

    branch: Branch
    read_names: tuple[str, ...]
    terms: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    constants: dict[int, Any]
    literals: frozenset[int]
    moved_names: tuple[str, ...]

    @property
    def signature(self) -> Hashable:
        """Return what must be equal for two sites to share a branch."""
        return _signature(self.branch, self.constants)


def cut_branch(
    traced: Traced,
    sites: SiteTable,
    layouts: tuple[Layout, Layout],
    touches: Touches,
    name: str,
    variants: Sequence[Variant],
    term_axes: tuple[tuple[int, ...], ...] = (),
    element: Element | None = None,
    trunk: Collection[int] = (),
) -> Cut:
    """Cut out what a step needs that moves the site ``name`` in one of the given variants.

    No other site's support depends on it.

    Parameters
    ----------
    traced, sites, touches
        The model, and what the site touches.
    layouts
        Where sites and terms live.
    name, variants
        The site, and how it moves: in one way, or in one of two that differ in the proposal.
    term_axes
        For a block: which axes of each term carry the site's batch axes.
    element
        The site seen from one element, if it can be.
    trunk
        Values that several sites need, if terms are to be read from them.
    """
    traced = element.traced if element else traced
    graph, (variant, *_) = traced.graph, variants
    wanted = [proposal_numbers(traced, name, v) for v in variants]
    noise = _find_noise(traced, name, wanted, element.noise if element else frozenset())
    given: dict[int, object] = dict.fromkeys(traced.values.values(), "value")
    if element:
        given |= dict.fromkeys([*element.reads, *element.indices], "part")
    cutter = Cutter(graph, given | noise | {traced.scales[name]: "scale"})
    cutter.number(traced.values[name])
    ways = [cutter.cut(numbers) for numbers in wanted]
    scale = next((n for n, v in cutter.inputs.items() if v == traced.scales[name]), None)
    choice = make_choice(cutter, element.site if element else sites[name], ways, scale)
    may_roll = not (variant.is_block or element)
    if element:
        numbers = [entry.number for entry in element.terms]
        score, terms, rolled = cutter.cut(numbers), _shapes(element.terms), RolledReads()
        made = [(entry.name, entry.number) for entry in element.outputs]
    else:
        finder = run_finder(traced, layouts, [name])
        trunk = trunk if may_roll else ()
        score, terms, rolled = cut_terms(finder, touches.terms, cutter, may_roll, trunk)
        numbers = [traced.terms[first] for first, _ in terms]
        made = [(output, traced.outputs[output]) for output in touches.outputs]
    outputs = cutter.cut([number for _, number in made])
    # A flat prior that NumPyro does not validate has a term that the site does not touch.
    is_plain = traced.priors[name] in numbers
    prior = None if is_plain else cutter.cut([traced.priors[name]])
    reads, read_names = find_reads(traced, sites, cutter, rolled, element)
    key_start = end_of(noise)
    branch = Branch(
        site=element.site if element else sites[name],
        variant=variant,
        propose=Fragment((choice,), choice.outputs) if choice else ways[0],
        score=score,
        outputs=outputs,
        prior=prior,
        reads=reads,
        noise=tuple((n, noise[value]) for n, value in cutter.inputs.items() if value in noise),
        scale=scale,
        key_start=key_start,
        num_words=key_start + (KEY_WORDS if variant.is_block or variant.candidates else 0),
        own_term=numbers.index(traced.priors[name]) if is_plain else 0,
        term_axes=term_axes,
        at=element.at(cutter) if element else None,
        is_tempered=tuple(term not in traced.values for term, _ in terms),
        choice=choice,
    )
    constants, literals = all_constants(cutter, rolled)
    return Cut(
        branch=branch,
        read_names=read_names,
        terms=terms,
        outputs=tuple((output, graph.avals[number].shape) for output, number in made),
        constants=constants,
        literals=literals,
        moved_names=(name,),
    )


def _find_noise(
    traced: Traced, name: str, wanted: Sequence[list[int]], parts: frozenset[int]
) -> dict[int, Noise]:
    """Return the random inputs of proposals; two that share none are made of the same words."""
    key, start = traced.keys[name], ACCEPT_WORD + 1
    noises = [noise_sources(traced.graph, own, key, start, parts) for own in wanted]
    if len(noises) == 1 or not noises[0].keys() & noises[1].keys():
        return {value: noise for own in noises for value, noise in own.items()}
    return noise_sources(traced.graph, [n for own in wanted for n in own], key, start, parts)


def all_constants(cutter: Cutter, rolled: RolledReads) -> tuple[dict[int, Any], frozenset[int]]:
    """Return all constants by number, and which of them are numbers in the model's text."""
    graph = cutter.graph
    constants = {n: graph.constants[value] for n, value in cutter.constants.items()}
    literals = {n for n, value in cutter.constants.items() if value in graph.literals}
    return constants | rolled.more.constants, frozenset(literals | rolled.more.literals)


def _shapes(touched: Sequence[Touched]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((entry.name, entry.part.shape) for entry in touched)


def find_reads(
    traced: Traced,
    sites: SiteTable,
    cutter: Cutter,
    rolled: RolledReads,
    element: Element | None = None,
    left_out: Collection[str] = (),
) -> tuple[tuple[Read, ...], tuple[str, ...]]:
    """Return what the fragments read, and the name of the first site of each."""
    site_of = {n: name for name, n in traced.values.items() if name not in left_out}
    parts = element.reads if element else {}
    reads: list[Read] = []
    names: list[str] = []
    for number, value in cutter.inputs.items():
        if value in parts:
            name, part = parts[value]
            at = part.strides, part.offset
            reads.append(Read(number, part.shape, sites[name].dtype, *at))
        elif value in site_of:
            name = site_of[value]
            reads.append(Read(number, sites[name].shape, sites[name].dtype))
        else:
            continue
        names.append(name)
    for number, (name, length) in rolled.sites.items():
        reads.append(Read(number, (length, *sites[name].shape), sites[name].dtype))
        names.append(name)
    return tuple(reads), tuple(names)


def end_of(noise: dict[int, Noise]) -> int:
    """Return the number of the word after those of the noise."""
    ends = (source.start + source.num_words for source in noise.values())
    return max(ends, default=ACCEPT_WORD + 1)


def proposal_numbers(traced: Traced, name: str, variant: Variant) -> list[int]:
    """Return the numbers of the proposed value and of its log q ratio, if it has one."""
    if variant.candidates:
        return []
    if variant.proposal == PRIOR:
        return [traced.draws[name]]
    key = (name, variant.proposal)
    return [traced.proposed[key]] + [table[key] for table in [traced.log_q_ratios] if key in table]


def _signature(branch: Branch, constants: dict) -> Hashable:
    site = branch.site
    return (
        (site.batch_shape, site.event_shape, site.dtype, site.is_discrete, branch.variant),
        branch.propose.signature(),
        branch.score.signature(),
        branch.outputs.signature(),
        branch.prior.signature() if branch.prior else None,
        branch.reads,
        branch.noise,
        branch.scale,
        branch.own_term,
        branch.term_axes,
        branch.at,
        branch.joint.signature() if branch.joint else None,
        branch.walk.signature() if branch.walk else None,
        branch.cascade.signature() if branch.cascade else None,
        branch.is_tempered,
        branch.choice is None,
        tuple((number, v.shape, str(v.dtype)) for number, v in constants.items()),
    )
