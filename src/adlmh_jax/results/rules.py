"""The rules by which a run is judged.

Every rule asks whether chains, halves of chains and superchains tell the same story. None can see
a region that no chain has found: "converged" means that nothing speaks against it.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from scipy import stats

from adlmh_jax.model import listed
from adlmh_jax.results.mixing import Mixing
from adlmh_jax.results.verdict import (
    BETTER,
    LONGER,
    MAX_SHOWN,
    MORE_DRAWS,
    Finding,
    Verdict,
    show_r_hat,
)

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

MORE_WARMUP = (
    "The chains are still on their way: more `num_warmup`, or start where these have come to, "
    "`sample(..., init=result)`."
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
