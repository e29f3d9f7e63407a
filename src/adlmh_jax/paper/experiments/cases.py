"""The case studies and the methods, as tables: a row is one line."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adlmh_jax.paper import zoo
from adlmh_jax.paper.experiments.budget import FAST_EPOCH
from adlmh_jax.schedules import Schedule, influence, ucb, uniform

PAPER_OPTIONS = {"proposals": "prior", "blocks": "never"}
AUTO = {"proposals": "auto", "blocks": "auto"}


@dataclass(frozen=True)
class Method:
    """A way to sample.

    Attributes
    ----------
    name, label
        For files and for people.
    schedule
        `uniform()` is LMH, `ucb()` is AdLMH.
    chains
        Chains of a superchain; 1 is the paper.
    epoch
        Steps between updates of the weights.
    options
        Further arguments of `sample`.
    """

    name: str
    label: str
    schedule: Schedule
    chains: int = 1
    epoch: int = FAST_EPOCH
    options: Mapping[str, Any] = field(default_factory=lambda: PAPER_OPTIONS)


LMH = Method("lmh", "LMH", uniform())
ADLMH = Method("adlmh", "AdLMH", ucb())
INFLUENCE = Method("influence", "influence", influence(per="step"))
PAPER_METHODS = (LMH, ADLMH)

# What else is compared with LMH; the paper has C = 0.5 and adapts at every step.
FURTHER_METHODS = (
    Method("adlmh-every-step", "AdLMH, adapting at every step", ucb(), epoch=1),
    Method("adlmh-joint", "AdLMH, all outputs as one", ucb(joint_output=True)),
    Method("adlmh-c-0", "AdLMH, C = 0", ucb(0.0)),
    Method("adlmh-c-0.1", "AdLMH, C = 0.1", ucb(0.1)),
    Method("adlmh-c-1.4", "AdLMH, C = sqrt 2", ucb(math.sqrt(2.0))),
    Method("adlmh-of-2", "AdLMH, superchains of 2", ucb(), chains=2),
    Method("adlmh-of-8", "AdLMH, superchains of 8", ucb(), chains=8),
    Method("adlmh-of-64", "AdLMH, superchains of 64", ucb(), chains=64),
    Method("lmh-of-64", "LMH, superchains of 64", uniform(), chains=64),
    Method("lmh-auto", "LMH, automatic proposals", uniform(), options=AUTO),
    Method("adlmh-auto", "AdLMH, automatic proposals", ucb(), options=AUTO),
    Method(
        "adlmh-auto-of-64", "AdLMH, automatic, superchains of 64", ucb(), chains=64, options=AUTO
    ),
)


@dataclass(frozen=True)
class Case:
    """A case study.

    Attributes
    ----------
    name, title
        For files and for people.
    make
        Makes its problem; if it has splits, from the records to leave out.
    paper_says
        What section 5 says of it.
    error
        What the distance of its problem is called.
    targets
        Errors at which numbers of steps are compared.
    claim_steps
        Steps of a run that is to reach them.
    further
        Names of the further methods; None for all.
    has_bars
        Whether the paper shows its schedules.
    has_window
        Whether the paper shows consecutive draws.
    splits
        0 if all restarts have the same data. Else each restart leaves out records of its own, and
        there are so many times more restarts, of so many times fewer steps.
    """

    name: str
    title: str
    make: Callable[..., zoo.Problem]
    paper_says: str
    error: str
    targets: tuple[float, ...]
    claim_steps: int
    further: tuple[str, ...] | None = None
    has_bars: bool = False
    has_window: bool = False
    splits: int = 0

    def problems(self, restarts: int, seed: int) -> list[zoo.Problem]:
        """Return the problem of all restarts, or the one of each."""
        if not self.splits:
            return [_made_once(self.make)]
        return [self.make(left_out) for left_out in zoo.leave_two_out(restarts, seed)]

    def methods(self) -> tuple[Method, ...]:
        """Return the methods that are compared with LMH beside AdLMH."""
        if self.further is None:
            return FURTHER_METHODS
        return tuple(method for method in FURTHER_METHODS if method.name in self.further)


@functools.cache
def _made_once(make: Callable[..., zoo.Problem]) -> zoo.Problem:
    """Make a problem; its truth is then computed once."""
    return make()


CASES = {
    case.name: case
    for case in (
        Case(
            "hmm",
            "Hidden Markov model, predicting the first and the last state",
            zoo.hmm,
            "AdLMH needs half as many samples; the median of LMH is above its 75 % quantile",
            "KL divergence",
            targets=(0.1, 0.03, 0.01, 0.003, 0.001),
            claim_steps=100_000,
            has_bars=True,
        ),
        Case(
            "gp",
            "Gaussian process, predicting the mean function",
            zoo.gp,
            "AdLMH is better by a factor of 2 over the first 50,000 samples",
            "KS distance",
            targets=(0.8, 0.5, 0.3, 0.2),
            claim_steps=30_000,
            has_bars=True,
        ),
        Case(
            "iris",
            "Logistic regression, leaving two irises out",
            zoo.iris,
            "AdLMH needs half as many samples",
            "classification error",
            targets=(0.1, 0.05, 0.02),
            claim_steps=10_000,
            further=("adlmh-joint", "adlmh-c-0", "lmh-auto", "adlmh-auto"),
            splits=4,
        ),
        Case(
            "kalman",
            "Linear dynamical system, predicting its angular speed and its noise",
            functools.partial(zoo.kalman, "scaled"),
            "AdLMH covers the space of (omega, q) much better",
            "KS distance",
            targets=(0.7, 0.5, 0.3, 0.2),
            claim_steps=30_000,
            further=("adlmh-joint", "adlmh-of-8", "adlmh-of-64", "lmh-auto", "adlmh-auto"),
            has_window=True,
        ),
    )
}
CASE_NAMES = (*CASES, "lemma")
