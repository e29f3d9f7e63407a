"""The models in BUGS, for JAGS: indices from 1, precisions in the place of variances."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Program(NamedTuple):
    """A model in BUGS, what is monitored, its number of choices, and what is to be subtracted."""

    text: str
    outputs: Sequence[str]
    sites: Callable[[Mapping], int]
    shift: Mapping[str, int] = {}


PROGRAMS = {
    "hmm": Program(
        """model {
  state[1] ~ dcat(initial)
  for (t in 2:18) { state[t] ~ dcat(transition[state[t - 1], ]) }
  for (t in 1:16) { observations[t] ~ dnorm(means[state[t + 1]], 1) }
  state_0 <- state[1]
  state_17 <- state[18]
}""",
        ["state_0", "state_17"],
        lambda data: 18,
        {"state_0": 1, "state_17": 1},
    ),
    "gp": Program(
        """model {
  a ~ dnorm(0, 1)
  b ~ dnorm(0, 1)
  c ~ dnorm(0, 1)
  d ~ dgamma(1, 1)
  g ~ dgamma(1, 1)
  for (i in 1:6) {
    mu[i] <- (a * x[i] + b) * x[i] + c
    for (j in 1:6) {
      sigma[i, j] <- d * (exp(-(x[i] - x[j])^2 / (2 * g)) + 1.0E-6 * equals(i, j))
    }
  }
  omega <- inverse(sigma)
  y ~ dmnorm(mu, omega)
}""",
        ["a", "b", "c"],
        lambda data: 5,
    ),
    "mixture": Program(
        """model {
  for (k in 1:3) { means[k] ~ dnorm(centre[k], 1) }
  for (i in 1:length(y)) {
    z[i] ~ dcat(shares)
    y[i] ~ dnorm(means[z[i]], 1)
  }
}""",
        ["means"],
        lambda data: len(data["y"]) + 3,
    ),
    "dawid_skene": Program(
        """model {
  share ~ ddirch(ones)
  for (j in 1:5) { for (k in 1:3) { confusion[j, k, 1:3] ~ ddirch(prior[k, ]) } }
  for (i in 1:1000) {
    c[i] ~ dcat(share)
    for (j in 1:5) { y[i, j] ~ dcat(confusion[j, c[i], ]) }
  }
}""",
        ["share"],
        lambda data: 1016,
    ),
    "change_point": Program(
        """model {
  early ~ dexp(1)
  late ~ dexp(1)
  for (i in 1:111) { even[i] <- 1 / 111 }
  switch ~ dcat(even)
  for (i in 1:111) { counts[i] ~ dpois(ifelse(i < switch, early, late)) }
}""",
        ["early", "late", "switch"],
        lambda data: 3,
        {"switch": 1},
    ),
    "n_mixture": Program(
        """model {
  rate ~ dgamma(2, 0.2)
  detection ~ dbeta(2, 2)
  for (i in 1:20) {
    count[i] ~ dpois(rate)
    for (v in 1:3) { seen[v, i] ~ dbin(detection, count[i]) }
  }
  total <- sum(count)
}""",
        ["rate", "detection", "total"],
        lambda data: 22,
    ),
    "occupancy": Program(
        """model {
  occupancy ~ dunif(0, 1)
  detection ~ dunif(0, 1)
  for (i in 1:60) {
    is_there[i] ~ dbern(occupancy)
    detected[i] ~ dbin(is_there[i] * detection, 4)
  }
  occupied <- sum(is_there)
}""",
        ["occupancy", "detection", "occupied"],
        lambda data: 62,
    ),
    "recapture": Program(
        """model {
  survival ~ dunif(0, 1)
  recapture ~ dunif(0, 1)
  for (i in 1:80) {
    alive[i, 1] <- 1
    for (t in 2:7) {
      alive[i, t] ~ dbern(alive[i, t - 1] * survival)
      captures[i, t] ~ dbern(alive[i, t] * recapture)
    }
  }
}""",
        ["survival", "recapture"],
        lambda data: 482,
    ),
    "poisson_hmm": Program(
        """model {
  rates[1] ~ dgamma(2, 2)
  rates[2] ~ dgamma(4, 1)
  one ~ dbern(step(rates[2] - rates[1]))
  z[1] ~ dcat(initial)
  for (t in 2:100) { z[t] ~ dcat(transition[z[t - 1], ]) }
  for (t in 1:100) { counts[t] ~ dpois(rates[z[t]]) }
  low <- rates[1]
  high <- rates[2]
  z_0 <- z[1]
  z_50 <- z[51]
  z_99 <- z[100]
}""",
        ["low", "high", "z_0", "z_50", "z_99"],
        lambda data: 102,
        {"z_0": 1, "z_50": 1, "z_99": 1},
    ),
    "photons": Program(
        """model {
  rate ~ dlnorm(1, 1)
  for (i in 1:5) {
    photons[i] ~ dpois(rate)
    readings[i] ~ dnorm(photons[i], 4)
  }
}""",
        ["rate", "photons"],
        lambda data: 6,
    ),
}
PROGRAMS["mixture_200"] = PROGRAMS["mixture_10000"] = PROGRAMS.pop("mixture")


CENTRES = np.array([-3.0, 0.0, 4.0])


def _mixture(y):
    return {"y": y, "centre": CENTRES, "shares": np.array([0.3, 0.3, 0.4])}


def _nearest(data):
    """Start at the means that are expected, each datum with the nearest of them."""
    z = 1 + np.abs(data["y"][:, None] - CENTRES).argmin(axis=1)
    return {"means": CENTRES, "z": z}


# What is to be changed in the data, or added to them.
DATA = {
    "mixture_200": _mixture,
    "mixture_10000": _mixture,
    "dawid_skene": lambda y: {"y": y + 1, "ones": np.ones(3), "prior": 1 + 4 * np.eye(3)},
    "poisson_hmm": lambda counts: {
        "counts": counts,
        "one": np.array([1]),
        "initial": np.array([0.5, 0.5]),
        "transition": np.array([[0.95, 0.05], [0.08, 0.92]]),
    },
}


def _alive(data):
    alive = np.ones(data["captures"].shape)
    alive[:, 0] = np.nan  # given, not drawn
    return {"alive": alive}


# Starting points, where those of JAGS would have the probability 0 or lead astray.
STARTS = {
    "mixture_200": _nearest,
    "mixture_10000": _nearest,
    "n_mixture": lambda data: {"count": data["seen"].max(axis=0) + 1},
    "occupancy": lambda data: {"is_there": np.ones(60)},
    "recapture": _alive,
    "poisson_hmm": lambda data: {"rates": np.array([1.0, 4.0])},
}


def dump(values):
    """Return arrays in the notation of R, first index fastest."""
    return "".join(f'"{name}" <- {_dumped(np.asarray(array))}\n' for name, array in values.items())


def _dumped(array):
    items = ", ".join("NA" if item != item else repr(item) for item in array.T.ravel().tolist())
    if array.ndim < 2:
        return f"c({items})"
    return f"structure(c({items}), .Dim = c({', '.join(map(str, array.shape))}))"
