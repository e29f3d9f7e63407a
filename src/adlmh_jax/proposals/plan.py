"""How a new value of a component is proposed: `prior`, `gibbs`, `random_walk`, or your own.

Proposals combine: ``prior() | random_walk()`` takes either, at random.
"""

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adlmh_jax.model import Program
from adlmh_jax.moves.branch import Way
from adlmh_jax.model.sites import Site
from adlmh_jax.model.tracing import Propose
from adlmh_jax.proposals.random_walk import user_proposal, walk_integers, walk_real

MOST_GIBBS_VALUES = 32  # larger supports are walked, not enumerated, by "auto"


@dataclass(frozen=True)
class Proposal:
    """A kind of proposal, or two of them mixed.

    Attributes
    ----------
    kind
        ``"prior"``, ``"gibbs"``, ``"random_walk"`` or ``"custom"``.
    function
        Of a custom proposal.
    other, share
        The second proposal of a mixture, and its probability; None: it is learned.
    """

    kind: str
    function: Callable | None = None
    other: "Proposal | None" = None
    share: float | None = None

    def __or__(self, other: "Proposal") -> "Proposal":
        """Mix two proposals, their shares being learned: see `mixture`."""
        return mixture(self, other)

    def __str__(self) -> str:
        """Return the proposal as it is written."""
        own = f"{self.kind}()" if self.function is None else f"custom({self.function.__name__})"
        if self.other is None:
            return own
        if self.share is None:
            return f"{own} | {self.other}"
        return f"mixture({own}, {self.other}, {self.share:g})"


def prior() -> Proposal:
    """Draw anew from the prior, conditioned on the other choices: the paper's proposal."""
    return Proposal("prior")


def gibbs() -> Proposal:
    """Draw from the full conditional, by trying every value of a finite support."""
    return Proposal("gibbs")


def random_walk() -> Proposal:
    """Take a step from the current value, of a length that is learned during warm-up.

    Continuous choices walk on the unconstrained scale; integers by integer steps.
    """
    return Proposal("random_walk")


def custom(function: Callable) -> Proposal:
    """Propose with ``function(key, value, values, distribution) -> (new value, log q ratio)``.

    It proposes for all elements of the site at once: ``new value`` has the shape and dtype of
    ``value``, and ``log q ratio``, of the site's batch shape, is log q(old | new) - log q(new |
    old). ``values`` are the current values of all latent sites.
    """
    return Proposal("custom", function)


def mixture(first: Proposal, second: Proposal, share: float | None = None) -> Proposal:
    """Take one of two proposals at each step: the second with the probability ``share``.

    None, or ``first | second``: learned during warm-up; with a proposal of your own, one half, for
    what its acceptance is worth cannot be known.
    """
    for proposal in (first, second):
        if not isinstance(proposal, Proposal):
            raise TypeError(f"A mixture is of two proposals, got {proposal!r}.")
        if proposal.other is not None:
            raise ValueError("A mixture has two proposals; three cannot be mixed.")
        if proposal.kind == "gibbs":
            raise ValueError("`gibbs()` never rejects: there is nothing to gain from mixing it.")
    if share is not None and not 0.0 < share < 1.0:
        raise ValueError(f"The `share` of a mixture must be between 0 and 1, got {share}.")
    return Proposal(first.kind, first.function, second, share)


@dataclass(frozen=True)
class SitePlan:
    """How a site is moved.

    Attributes
    ----------
    ways
        One or two ways.
    hooks
        The proposals to trace, by (site, number).
    second_share
        Probability of the second way; -1 if it is to be learned.
    words
        The plan in words.
    """

    ways: tuple[Way, ...]
    hooks: dict[tuple[str, int], Propose] = field(default_factory=dict)
    second_share: float = 0.0
    words: str = "prior()"

    @property
    def is_block(self) -> bool:
        """Whether all elements move at once."""
        return self.ways[0].is_block


def plan_prior(site: Site) -> SitePlan:
    """Return the paper's plan for a site."""
    del site
    return SitePlan((Way(),))


def plan_sites(
    program: Program, proposals: str | Mapping[str, Any] = "auto", blocks: str = "auto"
) -> dict[str, SitePlan]:
    """Decide how each site is moved.

    Parameters
    ----------
    program
        The compiled model.
    proposals
        ``"prior"``, ``"auto"``, or proposals by site name or glob; sites not named are ``"auto"``.
    blocks
        ``"auto"`` moves conditionally independent elements together, ``"never"`` does not.
    """
    if blocks not in ("auto", "never"):
        raise ValueError(f'`blocks` must be "auto" or "never", got {blocks!r}.')
    if isinstance(proposals, str) and proposals not in ("auto", "prior"):
        raise ValueError(
            f'`proposals` must be "auto", "prior", or a dict from site names to proposals, got '
            f"{proposals!r}."
        )
    chosen = _by_site(program, proposals) if not isinstance(proposals, str) else {}
    plans = {}
    for site in program.sites.sites:
        proposal = chosen.get(site.name)
        if proposal is None:
            proposal = prior() if proposals == "prior" else _automatic(program, site)
        is_block = blocks == "auto" and program.is_block(site.name)
        plans[site.name] = _plan(program, site, proposal, is_block)
    return plans


def _by_site(program: Program, proposals: Mapping[str, Any]) -> dict[str, Proposal]:
    """Match names and globs; the last match counts."""
    chosen: dict[str, Proposal] = {}
    for pattern, proposal in proposals.items():
        if callable(proposal) and not isinstance(proposal, Proposal):
            proposal = custom(proposal)
        if not isinstance(proposal, Proposal):
            raise TypeError(
                f"The proposal of `{pattern}` must be `prior()`, `gibbs()`, `random_walk()` or a "
                f"function, got {proposal!r}."
            )
        names = [name for name in program.sites.names if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            listed = ", ".join(f"`{name}`" for name in program.sites.names[:8])
            raise ValueError(f"No latent site matches `{pattern}`. There are {listed}.")
        chosen.update(dict.fromkeys(names, proposal))
    return chosen


def _automatic(program: Program, site: Site) -> Proposal:
    """Choose: Gibbs where finite and small, else `walk_or_draw`."""
    is_small = len(site.candidates) <= MOST_GIBBS_VALUES
    if site.has_prior and program.can_enumerate(site.name) and is_small:
        return gibbs()
    return walk_or_draw(site)


def walk_or_draw(site: Site) -> Proposal:
    """Return a walk mixed with the prior, or the one of them that the site allows."""
    if not site.has_prior:
        return random_walk()
    return prior() if site.is_discrete and site.event_shape else random_walk() | prior()


def _plan(program: Program, site: Site, proposal: Proposal, is_block: bool) -> SitePlan:
    kinds = [proposal] if proposal.other is None else [proposal, proposal.other]
    if not site.has_prior and any(kind.kind == "prior" for kind in kinds):
        raise ValueError(
            f"Site `{site.name}` is ImproperUniform: it has no prior to draw from. Use "
            "`random_walk()`."
        )
    if proposal.kind == "gibbs":
        if not program.can_enumerate(site.name):
            raise ValueError(
                f"Site `{site.name}` cannot have `gibbs()`: its support, {site.support}, is not a "
                "finite list of values known in advance. Use `random_walk() | prior()`."
            )
        way = Way(candidates=site.candidates, is_block=is_block)
        return SitePlan((way,), words=_words(proposal, is_block))
    ways, hooks = [], {}
    for number, kind in enumerate(kinds):
        propose = _hook(site, kind)
        if propose is not None:
            hooks[site.name, number] = propose
        ways.append(Way(-1 if propose is None else number, (), is_block, len(kinds) > 1))
    return SitePlan(tuple(ways), hooks, _second_share(kinds), _words(proposal, is_block))


def _second_share(kinds: list[Proposal]) -> float:
    """Return the probability of the second of two proposals; -1 if it is to be learned."""
    if len(kinds) == 1:
        return 0.0
    if kinds[0].share is not None:
        return kinds[0].share
    return 0.5 if any(kind.kind == "custom" for kind in kinds) else -1.0


def _hook(site: Site, proposal: Proposal) -> Propose | None:
    """Return the function to trace; None for a prior draw."""
    if proposal.kind == "prior":
        return None
    if proposal.kind == "custom":
        return user_proposal(site, proposal.function)
    if not site.is_discrete:
        return walk_real
    if site.event_shape:
        raise ValueError(
            f"Site `{site.name}` cannot have `random_walk()`: one choice is an array of integers "
            f"of shape {site.event_shape}. Use `prior()` or a function of your own."
        )
    return walk_integers


def _words(proposal: Proposal, is_block: bool) -> str:
    return f"{proposal}, all elements at once" if is_block else str(proposal)
