"""Effective draws of the worst output under each schedule.

``python -m benchmarks.schedules`` measures all cases, or those that it is given by name.

Warm-up and sampling have the same numbers of steps for all schedules of a case, within one process.
Effective draws come from the variance of the chains' means; seconds are those of the processor,
after warm-up. An output whose chains' means say nothing under any schedule, because the chains sit
in different modes, is left out, and the table says so.
"""

import sys
import time
import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import adlmh_jax as adlmh
from adlmh_jax.paper import zoo
from benchmarks.classics import CLASSICS
from benchmarks.results import save, table

NUM_SUPERCHAINS, CHAINS_EACH = 4, 64
MIN_EFFECTIVE = 4.0  # effective draws of a chain: of an output with fewer nothing is said
SCHEDULES = {
    "uniform": adlmh.uniform(),
    "ucb": adlmh.ucb(),
    "influence": adlmh.influence(),
}
GIBBS = {"*": adlmh.gibbs()}
SINGLE = {"blocks": "never"}


class Case(NamedTuple):
    """What is measured.

    Attributes
    ----------
    model, args, outputs
        The model, its data, and what is asked of it.
    settings
        Of `sample`.
    sweeps
        Of warm-up, and of sampling.
    """

    model: Any
    args: tuple
    outputs: tuple
    settings: dict
    sweeps: tuple[int, int] = (1000, 2000)


def needles(num_idle=997):
    """Three choices that matter, coupled by an observation, among many that do not."""
    with numpyro.plate("few", 3):
        few = numpyro.sample("needle", dist.Normal(0, 1))
    with numpyro.plate("many", num_idle):
        numpyro.sample("hay", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(jnp.sum(few), 0.7), obs=1.0)
    numpyro.deterministic("spread", few[0] - 0.5 * few[1] + 0.3 * few[2])


def of_problem(problem, sweeps=(1000, 2000), **settings):
    """Return the case of one of the paper's problems."""
    return Case(problem.model, problem.args, problem.outputs, settings, sweeps)


def cases():
    """Return all cases by name."""
    paper = {
        "HMM, prior": of_problem(zoo.hmm(), proposals="prior", **SINGLE),
        "HMM, gibbs": of_problem(zoo.hmm(), proposals=GIBBS, **SINGLE),
        "GP": of_problem(zoo.gp(), sweeps=(2000, 8000)),
        "Kalman": of_problem(zoo.kalman(), sweeps=(1000, 1000)),
        "Iris": of_problem(zoo.iris(), sweeps=(1000, 4000)),
        "1,000 components": Case(needles, (), ("spread",), SINGLE, (400, 400)),
    }
    classics = {
        name: Case(classic.model, classic.args, tuple(classic.outputs), {})
        for name, classic in CLASSICS.items()
    }
    return paper | classics


def measure(case, schedule, seed=0):
    """Return effective draws per 1,000 steps and per second of each output, and the result."""
    entries = adlmh.sample(  # how many entries there are
        seed, case.model, case.args, outputs=list(case.outputs), schedule=adlmh.uniform(),
        num_chains=4, num_warmup=0, num_samples=1, progress=False, **case.settings,
    ).schedule.names  # fmt: skip
    thinning = max(1, len(entries) // 16)
    warmup, sampling = (sweeps * len(entries) // thinning for sweeps in case.sweeps)
    result = adlmh.sample(
        seed, case.model, case.args, outputs=list(case.outputs), schedule=schedule,
        num_chains=NUM_SUPERCHAINS * CHAINS_EACH, num_superchains=NUM_SUPERCHAINS,
        num_warmup=warmup, num_samples=64, thinning=thinning, progress=False, **case.settings,
    )  # fmt: skip
    started = time.process_time()
    result = result.extend(sampling)
    seconds = time.process_time() - started
    effective = np.concatenate([effective_draws(draws) for draws in result.draws.values()])
    steps = sampling * thinning
    num_chains = len(result.superchain_of)
    return effective, effective / steps * 1000, effective * num_chains / seconds, result


def effective_draws(draws):
    """Return the effective draws of a chain, for each scalar of an output."""
    draws = np.asarray(draws, np.float64).reshape(*draws.shape[:2], -1)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    return np.where(between > 0, draws.var(axis=(0, 1)) / np.where(between > 0, between, 1), np.inf)


def run(name, case):
    """Measure a case under all schedules; return a row of the table and the figures."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {key: measure(case, schedule) for key, schedule in SCHEDULES.items()}
    effective = np.stack([figures[0] for figures in found.values()])
    is_said = np.isfinite(effective).all(axis=0) & (effective.max(axis=0) > MIN_EFFECTIVE)
    if not is_said.any():
        return [name, len(is_said), 0, *[None] * 6], {"case": name}
    steps = {key: float(figures[1][is_said].min()) for key, figures in found.items()}
    seconds = {key: float(figures[2][is_said].min()) for key, figures in found.items()}
    shares = found["influence"][3].schedule.race["share_of_uniform"]
    row = [
        name,
        len(is_said),
        int(is_said.sum()),
        steps["uniform"],
        steps["ucb"] / steps["uniform"],
        steps["influence"] / steps["uniform"],
        seconds["ucb"] / seconds["uniform"],
        seconds["influence"] / seconds["uniform"],
        " ".join("UCB" if np.isnan(share) else f"{share:g}" for share in shares),
    ]
    print(row, flush=True)
    return row, {"case": name, "steps": steps, "seconds": seconds, "shares": shares.tolist()}


HEAD = [
    "case",
    "outputs",
    "judged",
    "uniform: per 1,000 steps",
    "ucb / uniform, steps",
    "influence / uniform, steps",
    "ucb / uniform, seconds",
    "influence / uniform, seconds",
    "shares of uniform that won",
]


def main(names=()):
    """Measure the cases of these names, or all, and write down what was found."""
    chosen = {name: case for name, case in cases().items() if not names or name in names}
    rows, records = zip(*(run(name, case) for name, case in chosen.items()), strict=True)
    if not names:
        text = (
            f"Effective draws of the worst judged output; {NUM_SUPERCHAINS} superchains of "
            f"{CHAINS_EACH}. Two runs of one case differ by about 15 %.\n\n{table(HEAD, rows)}"
        )
        save("schedules", "Schedules", text, {"cases": list(records)})


if __name__ == "__main__":
    main(sys.argv[1:])
