"""Networks of binary nodes: the wet grass, Asia, and an Ising model on a square lattice."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.classics.case import Classic, Moments
from benchmarks.classics.exact import moments

SPRINKLER = {
    "sprinkler": np.array([0.4, 0.01]),  # given that it is clear, cloudy
    "rain": np.array([0.01, 0.8]),
    "wet": np.array([[0.001, 0.9], [0.9, 0.99]]),  # [sprinkler, rain]
}
# Lauritzen and Spiegelhalter (1988); the first entry is for "no".
ASIA = {
    "tuberculosis": np.array([0.01, 0.05]),
    "lung": np.array([0.01, 0.1]),
    "bronchitis": np.array([0.3, 0.6]),
    "xray": np.array([0.05, 0.98]),
    "dyspnoea": np.array([[0.1, 0.8], [0.7, 0.9]]),  # [either, bronchitis]
}
COUPLING, FIELD, SIDE = 0.35, 0.02, 8


def sprinkler_model(is_wet):
    """Clouds, a sprinkler that is off when they are there, rain, and grass that is wet."""
    tables = {name: jnp.asarray(table) for name, table in SPRINKLER.items()}
    cloudy = numpyro.sample("cloudy", dist.Bernoulli(0.5))
    sprinkler = numpyro.sample("sprinkler", dist.Bernoulli(tables["sprinkler"][cloudy]))
    rain = numpyro.sample("rain", dist.Bernoulli(tables["rain"][cloudy]))
    numpyro.sample("wet", dist.Bernoulli(tables["wet"][sprinkler, rain]), obs=is_wet)


def sprinkler_truth():
    """Enumerate the eight states."""

    def weigh(cloudy, sprinkler, rain):
        return (
            _bernoulli(sprinkler, SPRINKLER["sprinkler"][cloudy])
            * _bernoulli(rain, SPRINKLER["rain"][cloudy])
            * SPRINKLER["wet"][sprinkler, rain]
        )

    return _enumerate(weigh, ("cloudy", "sprinkler", "rain"))


def sprinkler():
    """Two explanations of wet grass, each of which all but excludes the other."""
    names = ["cloudy", "sprinkler", "rain"]
    about = "`cloudy`, `sprinkler`, `rain` ~ Bernoulli; `wet` observed"
    return Classic(sprinkler_model, (1,), names, sprinkler_truth, about)


def asia_model(xray, dyspnoea):
    """The chest clinic: two findings, and what may be behind them."""
    tables = {name: jnp.asarray(table) for name, table in ASIA.items()}
    asia = numpyro.sample("asia", dist.Bernoulli(0.01))
    smoker = numpyro.sample("smoker", dist.Bernoulli(0.5))
    tuberculosis = numpyro.sample("tuberculosis", dist.Bernoulli(tables["tuberculosis"][asia]))
    lung = numpyro.sample("lung", dist.Bernoulli(tables["lung"][smoker]))
    bronchitis = numpyro.sample("bronchitis", dist.Bernoulli(tables["bronchitis"][smoker]))
    either = numpyro.deterministic("either", jnp.maximum(tuberculosis, lung))
    numpyro.sample("xray", dist.Bernoulli(tables["xray"][either]), obs=xray)
    numpyro.sample("dyspnoea", dist.Bernoulli(tables["dyspnoea"][either, bronchitis]), obs=dyspnoea)


def asia_truth():
    """Enumerate the 32 states, for a shadow on the X-ray and dyspnoea."""

    def weigh(asia, smoker, tuberculosis, lung, bronchitis):
        either = max(tuberculosis, lung)
        return (
            _bernoulli(asia, 0.01)
            * _bernoulli(tuberculosis, ASIA["tuberculosis"][asia])
            * _bernoulli(lung, ASIA["lung"][smoker])
            * _bernoulli(bronchitis, ASIA["bronchitis"][smoker])
            * ASIA["xray"][either]
            * ASIA["dyspnoea"][either, bronchitis]
        )

    return _enumerate(weigh, ("asia", "smoker", "tuberculosis", "lung", "bronchitis"))


def asia():
    """The chest clinic, with both findings."""
    names = ["asia", "smoker", "tuberculosis", "lung", "bronchitis"]
    about = (
        "`asia`, `smoker`, `tuberculosis`, `lung`, `bronchitis` ~ Bernoulli; `either` "
        "deterministic; `xray`, `dyspnoea` observed"
    )
    return Classic(asia_model, (1, 1), names, asia_truth, about)


def _bernoulli(value, probability):
    return probability if value else 1 - probability


def _enumerate(weigh, names):
    """Return the moments of binary nodes from the weight of each of their states."""
    states = np.array(list(itertools.product((0, 1), repeat=len(names))))
    weights = np.array([weigh(*state) for state in states])
    weights = weights / weights.sum()
    return {name: moments(weights, states[:, i]) for i, name in enumerate(names)}


def ising_model(side, coupling, field):
    """Spins on a square lattice with free edges, in a weak field."""
    with numpyro.plate("row", side, dim=-2), numpyro.plate("column", side, dim=-1):
        is_up = numpyro.sample("is_up", dist.Bernoulli(0.5))
    spin = 2 * is_up - 1
    down, across = spin[1:] * spin[:-1], spin[:, 1:] * spin[:, :-1]
    numpyro.factor("down", coupling * down)
    numpyro.factor("across", coupling * across)
    numpyro.factor("field", field * spin)
    numpyro.deterministic("magnetisation", jnp.sum(spin) / side**2)
    numpyro.deterministic("bonds", jnp.sum(down) + jnp.sum(across))


def ising_truth(side=SIDE, coupling=COUPLING, field=FIELD):
    """Move sums of weights, and of weights times powers of a statistic, from row to row."""
    rows = 2 * np.array(list(itertools.product((0, 1), repeat=side))) - 1
    within = np.sum(rows[:, 1:] * rows[:, :-1], axis=1)
    between = rows @ rows.T
    up = rows.sum(axis=1)
    row_weights = np.exp(coupling * within + field * up)
    pair_weights = np.exp(coupling * between)
    mean, sd, kurtosis = _additive_moments(row_weights, pair_weights, up, 0 * between, side)
    return {
        "magnetisation": Moments(mean / side**2, sd / side**2, kurtosis),
        "bonds": _additive_moments(row_weights, pair_weights, within, between, side),
    }


def _additive_moments(row_weights, pair_weights, row_values, pair_values, num_rows):
    """Return the moments of a sum over the rows of a lattice and over pairs of adjacent rows."""
    sums = [row_weights * row_values**power for power in range(5)]
    for _ in range(num_rows - 1):
        sums = _add(sums, pair_weights, pair_values)
        sums = [row_weights * part for part in sums]
        sums = _add(sums, np.eye(len(row_values)), np.diag(row_values))
        sums = [part / sums[0].max() for part in sums]
    raw = [part.sum() / sums[0].sum() for part in sums]
    mean = raw[1]
    second, fourth = (
        sum(math.comb(order, i) * raw[i] * (-mean) ** (order - i) for i in range(order + 1))
        for order in (2, 4)
    )
    return Moments(float(mean), float(np.sqrt(second)), float(fourth / second**2))


def _add(sums, weights, values):
    """Move sums of the powers of x along weights, with ``values`` added to x."""
    steps = [weights * values**power for power in range(len(sums))]
    return [
        sum(math.comb(power, i) * (sums[i] @ steps[power - i]) for i in range(power + 1))
        for power in range(len(sums))
    ]


def ising():
    """Ising model, 8 x 8, below the critical coupling of 0.44."""
    about = "`is_up` [8, 8] ~ Bernoulli(0.5), factors for each of 112 bonds and each spin"
    names = ["magnetisation", "bonds"]
    return Classic(ising_model, (SIDE, COUPLING, FIELD), names, ising_truth, about)
