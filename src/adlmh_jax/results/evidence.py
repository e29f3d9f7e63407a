"""The evidence: the probability of the data under a model, from the annealed start."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

MAX_SPREAD = 1.0  # standard deviation of the superchains' estimates, in nats, that is trusted


@dataclass(frozen=True)
class LogEvidence:
    """Logarithm of the probability of the data, in nats.

    Attributes
    ----------
    value
        Of the mean of the superchains' estimates. Its bias is of the order of one over the chains
        of a superchain, whose particles choose their own rungs.
    standard_error
        Of ``value``, from the spread over superchains.
    by_superchain
        Each superchain's own estimate.
    """

    value: float
    standard_error: float
    by_superchain: np.ndarray

    @property
    def is_trusted(self) -> bool:
        """Whether superchains agree well enough for the standard error to mean something."""
        return bool(np.std(self.by_superchain, ddof=1) <= MAX_SPREAD)

    def __float__(self) -> float:
        """Return the value."""
        return self.value

    def __repr__(self) -> str:
        """Return value and error, with a warning where superchains disagree."""
        text = f"{self.value:.2f} ± {self.standard_error:.2f}"
        if self.is_trusted:
            return text
        low, high = self.by_superchain.min(), self.by_superchain.max()
        return f"{text} (not to be trusted: superchains say {low:.1f} to {high:.1f})"


def estimate_evidence(log_evidence: np.ndarray) -> LogEvidence | None:
    """Return the estimate of several superchains; None if there is none, or only one."""
    estimates = np.asarray(log_evidence, float)
    number = estimates.size
    if number < 2 or not np.all(np.isfinite(estimates)):
        return None
    value = float(logsumexp(estimates) - np.log(number))
    relative = np.exp(estimates - value)  # of mean one
    error = float(np.std(relative, ddof=1) / np.sqrt(number))
    return LogEvidence(value, error, estimates)
