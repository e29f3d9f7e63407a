"""Did it converge? The verdict on a run, in plain words."""

import enum
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from adlmh_jax.model import listed
from adlmh_jax.results import html
from adlmh_jax.results.mixing import Mixing

LINE_LENGTH = 100
MAX_SHOWN = 10  # outputs or components listed by name

# Remedies that are not named where a better one is known.
LONGER = "Run longer: more `num_warmup` and `num_samples`, or more steps per draw (`thinning`)."
MORE_DRAWS = "Make more draws: `result.extend({})` would be about enough."
BETTER = (
    "Help the components that hardly move (see `result.summary(by='site')`): a prior nearer to "
    "the data, another proposal, or the model in other variables (centred predictors, scaled "
    "effects)."
)


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


def _item(text: str) -> str:
    """Return a text as an item of a list, in lines of readable length."""
    fill = textwrap.TextWrapper(
        LINE_LENGTH, "  - ", "    ", break_long_words=False, break_on_hyphens=False
    )
    return fill.fill(text)


def show_r_hat(value: float) -> str:
    """Return R-hat with three decimals, as long as they say anything."""
    return f"{value:.3f}" if not value > 100 else "over 100"
