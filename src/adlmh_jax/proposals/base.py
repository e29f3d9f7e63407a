"""What a proposal is, and what it makes of a site.

To add one, write a factory that returns a `Proposal` in a file of its own, and export it. A
proposal gives a new value and one number, log q(x | x') - log q(x' | x); it never accepts or
rejects.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adlmh_jax.model import Program, Proposals, Propose, Site

PRIOR = -1  # number of the proposal that draws from the prior
LEARNED = -1.0  # a share that is learned; unlike None and NaN it is a number that equals itself


@dataclass(frozen=True)
class Proposal:
    """How a new value of a component is drawn.

    Attributes
    ----------
    text
        The proposal as it is written.
    function_for
        ``site ->`` the function to trace with the model; None for a draw from the prior, which is
        always traced. It raises ValueError where the site cannot be proposed so.
    check
        ``(program, site) -> None``: the same, for what is known only of the compiled model.
    is_gibbs
        Whether every value of a finite support is tried.
    is_judged
        Whether its acceptance says what it is worth, so that its share of a mixture can be learned.
    is_elementwise
        Whether the proposal of an element looks at no other element of its site, so that all of
        them may move at once.
    """

    text: str
    function_for: Callable[[Site], Propose | None]
    check: Callable[[Program, Site], None] = lambda program, site: None
    is_gibbs: bool = False
    is_judged: bool = True
    is_elementwise: bool = True

    def __or__(self, other: "Proposal") -> "Mixture":
        """Mix two proposals, their shares being learned: see `mixture`."""
        return mixture(self, other)

    def __str__(self) -> str:
        """Return the proposal as it is written."""
        return self.text

    @property
    def parts(self) -> tuple["Proposal", ...]:
        """Itself."""
        return (self,)

    @property
    def second_share(self) -> float:
        """Probability of a second proposal: there is none."""
        return 0.0


@dataclass(frozen=True)
class Mixture:
    """Two proposals, one of which is taken at random; see `mixture`."""

    parts: tuple[Proposal, Proposal]
    share: float | None

    def __or__(self, other: Proposal) -> "Mixture":
        """Refuse a third proposal."""
        return mixture(self, other)

    def __str__(self) -> str:
        """Return the mixture as it is written."""
        first, second = self.parts
        if self.share is None:
            return f"{first} | {second}"
        return f"mixture({first}, {second}, {self.share:g})"

    @property
    def second_share(self) -> float:
        """Probability of the second proposal, or `LEARNED`."""
        if self.share is not None:
            return self.share
        return LEARNED if all(part.is_judged for part in self.parts) else 0.5


def mixture(
    first: "Proposal | Mixture", second: "Proposal | Mixture", share: float | None = None
) -> Mixture:
    """Take one of two proposals at each step: the second with the probability ``share``.

    None, or ``first | second``: learned during warm-up; with a proposal of your own, one half, for
    what its acceptance is worth cannot be known.
    """
    for proposal in (first, second):
        if isinstance(proposal, Mixture):
            raise ValueError("A mixture has two proposals; three cannot be mixed.")
        if not isinstance(proposal, Proposal):
            raise TypeError(f"A mixture is of two proposals, got {proposal!r}.")
        if proposal.is_gibbs:
            raise ValueError("`gibbs()` tries all values: there is nothing to gain from mixing it.")
    if share is not None and not 0.0 < share < 1.0:
        raise ValueError(f"The `share` of a mixture must be between 0 and 1, got {share}.")
    return Mixture((first, second), share)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Variant:
    """One of the one or two moves of a site.

    Attributes
    ----------
    proposal
        Number of the site's traced proposal; `PRIOR` for a prior draw.
    candidates
        For a Gibbs step: all values of the site's support. Empty for Metropolis-Hastings.
    is_metropolised
        For a Gibbs step: whether the present value is never drawn.
    is_block
        Whether all elements move at once, each accepted or rejected on its own.
    is_compared
        Whether its acceptance is compared with that of another variant.
    is_walk
        Whether several sites walk together, with learned covariances.
    """

    proposal: int = PRIOR
    candidates: tuple[float, ...] = ()
    is_metropolised: bool = False
    is_block: bool = False
    is_compared: bool = False
    is_walk: bool = False


@dataclass(frozen=True)
class SitePlan:
    """How a site is moved.

    Attributes
    ----------
    variants
        One or two moves; none if the site moves only together with others.
    functions
        The proposals to trace, by (site, number).
    second_share
        Probability of the second variant, or `LEARNED`.
    text
        The plan for people.
    """

    variants: tuple[Variant, ...] = (Variant(),)
    functions: Proposals = field(default_factory=dict)
    second_share: float = 0.0
    text: str = "prior()"

    @property
    def is_block(self) -> bool:
        """Whether all elements move at once."""
        return bool(self.variants) and self.variants[0].is_block


@dataclass(frozen=True)
class JointPlan:
    """How several sites are moved at once: some move, others are summed out and drawn anew.

    Attributes
    ----------
    summed
        The sites that are summed out, in program order.
    windows
        For each of them the length of its window; 0 if its values are a finite list.
    movers
        The sites that move; none if only the summed ones are drawn. Several walk together.
    riders
        Counts that go along with sites that walk together: they follow their means.
    variants, functions, second_share
        How they move: as in `SitePlan`.
    """

    summed: tuple[str, ...]
    windows: tuple[int, ...]
    movers: tuple[str, ...] = ()
    riders: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = (Variant(),)
    functions: Proposals = field(default_factory=dict)
    second_share: float = 0.0

    @property
    def moved(self) -> tuple[str, ...]:
        """The sites that have new values if the proposal is accepted."""
        return (*self.movers, *self.riders)

    @property
    def is_block(self) -> bool:
        """Whether each element of the moved site is decided upon on its own."""
        return self.variants[0].is_block

    @property
    def text(self) -> str:
        """The plan for people."""
        names = shorten(self.summed)
        if self.movers:
            if not self.variants[0].is_walk:
                return f"moves with {names} summed out"
            together = f"moves at once with {shorten(self.moved)}"
            return f"{together}, {names} summed out" if names else together
        return f"drawn with {names}" if len(self.summed) > 1 else f"drawn within {self.windows[0]}"


@dataclass(frozen=True)
class Plan:
    """How the sites of a program are moved: each on its own, and some together."""

    sites: dict[str, SitePlan]
    joint: tuple[JointPlan, ...] = ()

    @property
    def functions(self) -> Proposals:
        """The proposals to trace."""
        single = [plan.functions for plan in self.sites.values()]
        joint = [plan.functions for plan in self.joint]
        return {key: f for functions in [*single, *joint] for key, f in functions.items()}

    @property
    def drawn_exactly(self) -> frozenset[str]:
        """The sites that are drawn from their exact distribution together with what they meet."""
        return frozenset(name for plan in self.joint for name in plan.summed)

    def describe(self) -> dict[str, str]:
        """Return in words how each site moves."""
        texts = {}
        for name, plan in self.sites.items():
            ways = [plan.text] if plan.variants else []
            ways += [j.text for j in self.joint if name in j.moved]
            ways += [j.text for j in self.joint if not j.movers and name in j.summed]
            texts[name] = "; ".join(ways) if ways else "held"
        return texts


def shorten(names: Sequence[str]) -> str:
    """Return names as a short list."""
    quoted = [f"`{name}`" for name in names]
    return ", ".join(quoted) if len(names) <= 4 else f"{quoted[0]}, …, {quoted[-1]}"
