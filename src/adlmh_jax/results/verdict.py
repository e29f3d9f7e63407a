"""Did it converge? The rules, and a verdict in plain words.

Every rule asks whether chains, halves of chains and superchains tell the same story. None can see
a region that no chain has found: "converged" means that nothing speaks against it.
"""

import enum
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from adlmh_jax.model import listed
from adlmh_jax.results import html
from adlmh_jax.results.mixing import Mixing

GOOD_R_HAT = 1.01  # the limit for few chains: Vehtari et al. (2021), section 4
FAIR_R_HAT = 1.05  # the limit for many chains, whose memory is tested as well
BAD_R_HAT = 1.1  # more is never good: Gelman et al., Bayesian Data Analysis (2013), section 11.5
MIN_DRAWS = 10  # of each chain: fewer show nothing of their memory
MIN_CHAINS = 4
MANY_CHAINS = 32  # from here on a correlation over chains says something
MIN_EFFECTIVE = 400  # 100 for each of four chains: Vehtari et al. (2021), section 4
MIN_MOVES = 5  # accepted proposals of a component in each chain
FALSE_ALARM = 1e-5  # of a test on a run that has converged
NEGLIGIBLE = 0.02  # standard deviations: a smaller difference is let pass, however certain
SLIGHT_MEMORY = 0.05  # correlation that is left in chains 20 times as long as their memory
LINE_LENGTH = 100
MAX_SHOWN = 10  # outputs or components listed by name

LONGER = "Run longer: more `num_warmup` and `num_samples`, or more steps per draw (`thinning`)."
MORE_DRAWS = "Make more draws: `result.extend({})` would be about enough."
MORE_WARMUP = (
    "The chains are still on their way: more `num_warmup`, or start where these have come to, "
    "`sample(..., init=result)`."
)
BETTER = (
    "Help the components that hardly move (see `result.summary(by='site')`): a prior nearer to "
    "the data, another proposal, or the model in other variables (centred predictors, scaled "
    "effects)."
)
JOINTLY = (
    "Choices that hold each other cannot leave one by one: they need a joint move. Make them one "
    "site, write the model in variables that are free of each other, or leave the outcome of one "
    "of them to `numpyro.deterministic`."
)
MORE_CHAINS = f"Run at least {MIN_CHAINS} chains."
LOOK = "Find out why the model gives numbers that are not finite."
CERTAIN = (
    "If that value is certain, all is well; otherwise start chains at other values (`init`), or "
    "give them another proposal for it."
)
ARRIVED = "constant: chains came to it from other values"
UNMOVED = "constant, though what it is made of moved"


class Verdict(enum.StrEnum):
    """What can be said of an output, from best to worst."""

    CONVERGED = "converged"
    CANNOT_TELL = "cannot tell"
    NOT_CONVERGED = "not converged"

    @property
    def badness(self) -> int:
        """0, 1 or 2."""
        return list(Verdict).index(self)


class ConvergenceWarning(UserWarning):
    """Something speaks against convergence."""


class Finding(NamedTuple):
    """Something that speaks against convergence: how strongly, what, and what to do about it.

    Where more draws are the remedy, ``num_more`` is how many of each chain.
    """

    verdict: Verdict
    reason: str
    remedy: str
    num_more: int = 0


@dataclass(frozen=True)
class OutputVerdict:
    """What was found about one scalar output, its figures, and what there is to know otherwise."""

    name: str
    findings: tuple[Finding, ...]
    mixing: Mixing
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """The worst that was found."""
        found = (finding.verdict for finding in self.findings)
        return max(found, key=lambda verdict: verdict.badness, default=Verdict.CONVERGED)

    @property
    def lines(self) -> list[str]:
        """The verdict with its reasons, as printed."""
        return [
            f"{self.name}: {self.verdict} ({self.figures})",
            *(f"  - {finding.reason}" for finding in self.findings),
        ]

    @property
    def figures(self) -> str:
        """The numbers behind the verdict."""
        m = self.mixing
        if m.is_constant:
            return self.note or "constant"
        return f"R-hat {show_r_hat(m.r_hat)}, {m.ess_bulk:,.0f} effective draws"


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Whether a run has converged, in plain words: print it.

    Attributes
    ----------
    outputs
        The verdict on each scalar output.
    acceptance
        Share of accepted proposals of each site.
    advice
        What follows from where the chains ended and how they were moved; empty if all is well.
    """

    outputs: tuple[OutputVerdict, ...]
    acceptance: dict[str, float]
    advice: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all outputs."""
        return max((output.verdict for output in self.outputs), key=lambda v: v.badness)

    @property
    def is_converged(self) -> bool:
        """Whether nothing speaks against convergence."""
        return self.verdict is Verdict.CONVERGED

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        words = {
            Verdict.CONVERGED: "Converged, as far as the draws can tell",
            Verdict.CANNOT_TELL: "Cannot tell whether it has converged",
            Verdict.NOT_CONVERGED: "Not converged",
        }[self.verdict]
        concerned = [output.name for output in self.outputs if output.verdict is self.verdict]
        return f"{words}: {listed(concerned, most=4)}."

    @property
    def ranked(self) -> list[OutputVerdict]:
        """The outputs, worst first."""

        def rank(output: OutputVerdict) -> tuple[float, ...]:
            m = output.mixing
            return -output.verdict.badness, -np.nan_to_num(m.r_hat), np.nan_to_num(m.ess_bulk)

        return sorted(self.outputs, key=rank)

    @property
    def remedies(self) -> list[str]:
        """What to do, the most telling first.

        Where a cause is known, what helps in general is not named.
        """
        findings = [finding for output in self.ranked for finding in output.findings]
        remedies = dict.fromkeys(finding.remedy for finding in findings)
        if self.advice or LONGER in remedies:
            remedies.pop(MORE_DRAWS, None)
        if self.advice:
            remedies.pop(LONGER, None)
            remedies.pop(BETTER, None)
        most = max((finding.num_more for finding in findings), default=0)
        return [*self.advice, *(remedy.format(f"{most:_}") for remedy in remedies)]

    def __repr__(self) -> str:
        """Return the verdicts with reasons, worst first, and the remedies."""
        ranked = self.ranked
        lines = [self.headline, ""]
        lines.extend(line for output in ranked[:MAX_SHOWN] for line in output.lines)
        if len(ranked) > MAX_SHOWN:
            lines.append(f"... and {len(ranked) - MAX_SHOWN} more outputs")
        if self.remedies:
            lines.extend(["", "What to do", *map(_item, self.remedies)])
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return what is printed as texts and numbers, for files."""
        ranked = self.ranked
        return {
            "verdict": str(self.verdict),
            "headline": self.headline,
            "outputs": [
                [f"{o.name}: {o.verdict} ({o.figures})", [f.reason for f in o.findings]]
                for o in ranked[:MAX_SHOWN]
            ],
            "num_more": max(0, len(ranked) - MAX_SHOWN),
            "remedies": self.remedies,
        }

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return html_of(self.as_dict())


def html_of(diagnosis: Mapping[str, Any]) -> str:
    """Return what `Diagnosis.as_dict` gave, as HTML."""
    parts = [html.badge(diagnosis["headline"], Verdict(diagnosis["verdict"]).badness)]
    parts += [html.definition(*output) for output in diagnosis["outputs"]]
    if diagnosis["num_more"] and diagnosis["outputs"]:
        parts.append(html.paragraph(f"... and {diagnosis['num_more']} more outputs"))
    if diagnosis["remedies"]:
        parts.append(html.definition("What to do", diagnosis["remedies"]))
    return html.section(*parts)


def diagnose_draws(mixing: Mapping[str, Mixing], num_chains: int, num_draws: int) -> Diagnosis:
    """Judge scalars by their draws alone, where nothing is known of what was moved."""
    judged = [
        OutputVerdict(name, tuple(judge_mixing(m, num_chains, num_draws)), m)
        for name, m in mixing.items()
    ]
    return Diagnosis(tuple(judged), {})


def _item(text: str) -> str:
    """Return a text as an item of a list, in lines of readable length."""
    fill = textwrap.TextWrapper(
        LINE_LENGTH, "  - ", "    ", break_long_words=False, break_on_hyphens=False
    )
    return fill.fill(text)


def show_r_hat(value: float) -> str:
    """Return R-hat with three decimals, as long as they say anything."""
    return f"{value:.3f}" if not value > 100 else "over 100"


def judge_mixing(m: Mixing, num_chains: int, num_draws: int) -> list[Finding]:
    """Say what speaks against the convergence of one scalar."""
    if num_draws < MIN_DRAWS:
        reason = f"There are only {num_draws} draws of each chain."
        return [Finding(Verdict.CANNOT_TELL, reason, LONGER)]
    if np.isnan(m.ess_bulk):
        return [Finding(Verdict.NOT_CONVERGED, "Some draws are NaN or infinite.", LOOK)]
    if m.is_constant:
        reason = "It has one and the same value in all draws of all chains."
        return [Finding(Verdict.CANNOT_TELL, reason, CERTAIN)]
    return [
        *_judge_chains(m, num_chains),
        *_judge_memory(m, num_chains),
        *_judge_superchains(m),
        *_judge_drift(m, num_chains),
        *_judge_size(m, num_draws),
    ]


def _judge_chains(m: Mixing, num_chains: int) -> Iterator[Finding]:
    """Compare chains with each other."""
    if num_chains < MIN_CHAINS:
        reason = f"{num_chains} chains are too few to disagree with each other."
        yield Finding(Verdict.CANNOT_TELL, reason, MORE_CHAINS)
    if m.num_still == num_chains:
        reason = "Every chain stays at its start, and the starts differ."
        yield Finding(Verdict.NOT_CONVERGED, reason, BETTER)
        return
    limit = FAIR_R_HAT if num_chains >= MANY_CHAINS else GOOD_R_HAT
    if m.r_hat > BAD_R_HAT:
        reason = f"Chains disagree: R-hat is {show_r_hat(m.r_hat)}, where {limit} is good."
        if m.num_still:
            reason += f" It never changes in {m.num_still} of {num_chains} chains."
        yield Finding(Verdict.NOT_CONVERGED, reason, LONGER)
    elif m.r_hat > limit:
        reason = (
            f"Chains are short or disagree: R-hat is {show_r_hat(m.r_hat)}, where {limit} is good."
        )
        yield Finding(Verdict.CANNOT_TELL, reason, LONGER)


def _judge_memory(m: Mixing, num_chains: int) -> Iterator[Finding]:
    """Test the correlation of halves by Fisher's z, which has variance 1 / (chains - 3)."""
    if num_chains < MANY_CHAINS:
        return
    limit = SLIGHT_MEMORY + stats.norm.isf(FALSE_ALARM) / np.sqrt(num_chains - 3)
    if m.memory > np.tanh(limit):
        reason = (
            "Chains remember where they were: the first and second halves of a chain have a "
            f"correlation of {m.memory:.2f}."
        )
        yield Finding(Verdict.NOT_CONVERGED, reason, BETTER)


def _judge_superchains(m: Mixing) -> Iterator[Finding]:
    """Compare superchains, which share nothing."""
    is_certain = m.superchain_p < FALSE_ALARM and m.spread > NEGLIGIBLE
    if is_certain or m.nested_r_hat > FAIR_R_HAT:
        reason = (
            f"Superchains disagree: nested R-hat is {show_r_hat(m.nested_r_hat)}, their means "
            f"spread by {m.spread:.2f} standard deviations."
        )
        is_bad = is_certain or m.nested_r_hat > BAD_R_HAT
        yield Finding(Verdict.NOT_CONVERGED if is_bad else Verdict.CANNOT_TELL, reason, LONGER)


def _judge_drift(m: Mixing, num_chains: int) -> Iterator[Finding]:
    """Compare the first halves of all chains with their second halves."""
    if num_chains > 1 and m.shift > NEGLIGIBLE:
        if m.drift > stats.t.isf(FALSE_ALARM / 2, num_chains - 1):
            reason = (
                f"The chains still move together: by {m.shift:.2f} standard deviations from the "
                f"first half of the run to the second, {m.drift:.0f} standard errors."
            )
            yield Finding(Verdict.NOT_CONVERGED, reason, MORE_WARMUP)


def _judge_size(m: Mixing, num_draws: int) -> Iterator[Finding]:
    least = min(m.ess_bulk, m.ess_tail)
    if least < MIN_EFFECTIVE:
        where = "tails" if m.ess_tail < m.ess_bulk else "bulk"
        reason = f"There are {least:.0f} effective draws of its {where}, of {MIN_EFFECTIVE} needed."
        missing = num_draws * (MIN_EFFECTIVE / max(least, 1.0) - 1)
        yield Finding(Verdict.CANNOT_TELL, reason, MORE_DRAWS, round_up(missing))


def round_up(number: float) -> int:
    """Return the next number of one digit and zeros."""
    unit = 10 ** max(0, int(np.floor(np.log10(max(number, 1.0)))))
    return int(np.ceil(number / unit)) * unit


def judge_stuck(names: Sequence[str]) -> list[Finding]:
    """Say which components chains hold at different values, and never let go."""
    if not names:
        return []
    reason = (
        f"Some chains never changed {listed(names, MAX_SHOWN)}, and hold different values: what a "
        "chain says depends on where it started."
    )
    return [Finding(Verdict.NOT_CONVERGED, reason, JOINTLY if len(names) > 1 else BETTER)]


def judge_components(
    names: Sequence[str],
    selected: np.ndarray,
    accepted: np.ndarray,
    chains_each: int,
    settled: Collection[str] = (),
) -> list[Finding]:
    """Say which components hardly moved.

    Parameters
    ----------
    names
        Of the components, ``[N]``.
    selected, accepted
        Steps of chains in which each was selected, and moved, ``[S, N]``.
    chains_each
        Chains of a superchain.
    settled
        Names of those that chains came to and stayed at, all at one value: they need no moves.
    """
    is_settled = np.isin(names, list(settled))
    least = accepted.min(axis=0) / chains_each
    is_never_tried = selected.sum(axis=0) == 0
    is_never_moved = (accepted.sum(axis=0) == 0) & ~is_never_tried
    is_starved = (least < MIN_MOVES) & ~is_never_tried & ~is_never_moved & ~is_settled
    cases = [
        (is_never_tried, "Never selected", LONGER),
        (is_never_moved, "No proposal was ever accepted for", BETTER),
        (is_starved, f"Fewer than {MIN_MOVES} accepted proposals per chain for", BETTER),
    ]
    return [
        Finding(
            Verdict.CANNOT_TELL, f"{words} {listed(np.array(names)[chosen], MAX_SHOWN)}.", remedy
        )
        for chosen, words, remedy in cases
        if chosen.any()
    ]
