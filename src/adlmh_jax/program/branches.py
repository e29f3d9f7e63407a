"""What one step must compute when it moves one site, cut out of the model's graph."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from adlmh_jax.program.draws import KEY_WORDS, Noise, noise_sources
from adlmh_jax.program.fragments import Cutter, Fragment
from adlmh_jax.program.sites import Site, SiteTable
from adlmh_jax.program.touches import Touches
from adlmh_jax.program.tracing import Traced

ACCEPT_WORD = 0  # the first random word of a step decides on acceptance
PRIOR = -1  # number of the proposal that draws from the prior


@dataclass(frozen=True)
class Way:
    """One way to move a site.

    Attributes
    ----------
    proposal
        Number of the site's traced proposal; `PRIOR` for a prior draw.
    candidates
        For a Gibbs step: all values of the site's support. Empty for Metropolis-Hastings.
    is_block
        Whether all elements move at once, each accepted or rejected on its own.
    is_compared
        Whether the squared jumps of this way are compared with those of another.
    """

    proposal: int = PRIOR
    candidates: tuple[int, ...] = ()
    is_block: bool = False
    is_compared: bool = False


@dataclass(frozen=True)
class Redraw:
    """A site whose support depends on the moved site.

    Attributes
    ----------
    read
        Index of the site among the branch's reads.
    inside, draw, prior
        Whether its value lies in its support; a prior draw; its log prior.
    """

    read: int
    inside: Fragment
    draw: Fragment
    prior: Fragment


@dataclass(frozen=True)
class Read:
    """A latent site whose value a branch reads."""

    number: int
    shape: tuple[int, ...]
    bank: str


@dataclass(frozen=True)
class Branch:
    """The computations of a step that moves one site.

    Attributes
    ----------
    site
        The moved site.
    propose
        Its proposed value, and the log q ratio unless it is a prior draw.
    way
        How it moves.
    score, outputs
        The touched terms and the touched outputs.
    prior
        The log prior of the site; None if it is the site's own term.
    redraws
        Sites to redraw when their value falls out of its support.
    reads
        The latent sites read; the moved site is the first.
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
    """

    site: Site
    way: Way
    propose: Fragment
    score: Fragment
    outputs: Fragment
    prior: Fragment | None
    redraws: tuple[Redraw, ...]
    reads: tuple[Read, ...]
    noise: tuple[tuple[int, Noise], ...]
    scale: int | None
    key_start: int
    num_words: int
    own_term: int
    term_axes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Cut:
    """The branch of one site, before grouping."""

    branch: Branch
    touches: Touches
    read_names: tuple[str, ...]
    constants: dict[int, Any]
    literals: frozenset[int]
    signature: Hashable


def cut_branch(
    traced: Traced,
    sites: SiteTable,
    touches: Touches,
    name: str,
    way: Way,
    term_axes: tuple[tuple[int, ...], ...] = (),
) -> Cut:
    """Cut out what a step needs that moves the site ``name`` in the given way."""
    graph = traced.graph
    wanted = _proposal(traced, name, way)
    noise = noise_sources(graph, wanted, traced.keys[name], ACCEPT_WORD + 1)
    for other in touches.redraws:
        start = ACCEPT_WORD + 1 + sum(source.num_words for source in noise.values())
        noise |= noise_sources(graph, [traced.draws[other]], traced.keys[other], start)
    given: dict[int, object] = dict.fromkeys(traced.values.values(), "value")
    cutter = Cutter(graph, given | noise | {traced.scales[name]: "scale"})
    cutter.number(traced.values[name])
    propose = cutter.cut(wanted)
    score = cutter.cut([traced.terms[term] for term in touches.terms])
    outputs = cutter.cut([traced.outputs[output] for output in touches.outputs])
    # A flat prior that NumPyro does not validate has a term that the site does not touch.
    is_plain = name in touches.terms and traced.priors[name] == traced.terms[name]
    prior = None if is_plain else cutter.cut([traced.priors[name]])
    tables = (traced.supports, traced.draws, traced.priors)
    redraw_cuts = [[cutter.cut([table[other]]) for table in tables] for other in touches.redraws]
    for other in touches.redraws:
        cutter.number(traced.values[other])
    names = {number: site_name for site_name, number in traced.values.items()}
    read_sites = {n: sites[names[value]] for n, value in cutter.inputs.items() if value in names}
    read_names = tuple(read.name for read in read_sites.values())
    key_start = ACCEPT_WORD + 1 + sum(source.num_words for source in noise.values())
    branch = Branch(
        sites[name],
        way,
        propose,
        score,
        outputs,
        prior,
        tuple(
            Redraw(read_names.index(other), *cuts)
            for other, cuts in zip(touches.redraws, redraw_cuts, strict=True)
        ),
        tuple(Read(number, read.shape, read.dtype) for number, read in read_sites.items()),
        tuple((n, noise[value]) for n, value in cutter.inputs.items() if value in noise),
        next((n for n, value in cutter.inputs.items() if value == traced.scales[name]), None),
        key_start,
        key_start + (KEY_WORDS if way.is_block or way.candidates else 0),
        touches.terms.index(name) if is_plain else 0,
        term_axes,
    )
    constants = {number: graph.constants[value] for number, value in cutter.constants.items()}
    literals = frozenset(n for n, value in cutter.constants.items() if value in graph.literals)
    return Cut(branch, touches, read_names, constants, literals, _signature(branch, constants))


def _proposal(traced: Traced, name: str, way: Way) -> list[int]:
    """Return the numbers of the proposed value and of its log q ratio, if it has one."""
    if way.candidates:
        return []
    if way.proposal == PRIOR:
        return [traced.draws[name]]
    key = (name, way.proposal)
    return [traced.proposed[key]] + [table[key] for table in [traced.log_q_ratios] if key in table]


def _signature(branch: Branch, constants: dict) -> Hashable:
    """Return what must be equal for two sites to share a branch."""
    site = branch.site
    return (
        (site.batch_shape, site.event_shape, site.dtype, site.is_discrete, branch.way),
        branch.propose.signature(),
        branch.score.signature(),
        branch.outputs.signature(),
        branch.prior.signature() if branch.prior else None,
        tuple(
            (redraw.read, *(f.signature() for f in (redraw.inside, redraw.draw, redraw.prior)))
            for redraw in branch.redraws
        ),
        branch.reads,
        branch.noise,
        branch.scale,
        branch.own_term,
        branch.term_axes,
        tuple((number, v.shape, str(v.dtype)) for number, v in constants.items()),
    )
