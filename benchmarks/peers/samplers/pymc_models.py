"""The models in PyMC."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

TRANSITION = np.array([[0.95, 0.05], [0.08, 0.92]])


def hmm(data):
    transition, means = pt.as_tensor(data["transition"]), pt.as_tensor(data["means"])
    state = pm.Categorical("state_0", p=data["initial"])
    for time, observation in enumerate(data["observations"], start=1):
        state = pm.Categorical(f"state_{time}", p=transition[state])
        pm.Normal(f"obs_{time}", means[state], 1.0, observed=observation)
    pm.Categorical("state_17", p=transition[state])


def gp(data):
    x = data["x"]
    a, b, c = (pm.Normal(name, 0.0, 1.0) for name in "abc")
    d, g = (pm.Gamma(name, 1.0, 1.0) for name in "dg")
    correlation = pt.exp(-np.square(x[:, None] - x) / (2 * g)) + 1e-6 * np.eye(len(x))
    pm.MvNormal("obs", (a * x + b) * x + c, cov=d * correlation, observed=data["y"])


def mixture(data):
    means = pm.Normal("means", np.array([-3.0, 0.0, 4.0]), 1.0)
    z = pm.Categorical("z", p=np.array([0.3, 0.3, 0.4]), shape=len(data["y"]))
    pm.Normal("y", means[z], 1.0, observed=data["y"])


def dawid_skene(data):
    num_items, num_annotators = data["y"].shape
    share = pm.Dirichlet("share", np.ones(3))
    prior = np.broadcast_to(1 + 4 * np.eye(3), (num_annotators, 3, 3))
    confusion = pm.Dirichlet("confusion", prior)
    c = pm.Categorical("c", p=share, shape=num_items)
    pm.Categorical("y", p=confusion[np.arange(num_annotators), c[:, None]], observed=data["y"])


def change_point(data):
    years = np.arange(len(data["counts"]))
    early, late = pm.Exponential("early", 1.0), pm.Exponential("late", 1.0)
    switch = pm.DiscreteUniform("switch", 0, len(years) - 1)
    pm.Poisson("count", pm.math.switch(years < switch, early, late), observed=data["counts"])


def n_mixture(data):
    seen = data["seen"]
    rate, detection = pm.Gamma("rate", 2.0, 0.2), pm.Beta("detection", 2.0, 2.0)
    count = pm.Poisson("count", rate, shape=seen.shape[1], initval=seen.max(axis=0) + 1)
    pm.Binomial("seen", count, detection, observed=seen)
    pm.Deterministic("total", count.sum())


def occupancy(data):
    detected = data["detected"]
    occupancy, detection = pm.Uniform("occupancy"), pm.Uniform("detection")
    start = np.ones(len(detected), int)
    is_there = pm.Bernoulli("is_there", occupancy, shape=len(detected), initval=start)
    pm.Binomial("detected", 4, is_there * detection, observed=detected)
    pm.Deterministic("occupied", is_there.sum())


def recapture(data):
    captures = data["captures"]
    survival, recapture = pm.Uniform("survival"), pm.Uniform("recapture")
    start = np.ones(len(captures), int)
    alive = start
    for time in range(1, captures.shape[1]):
        alive = pm.Bernoulli(f"alive_{time}", alive * survival, shape=len(start), initval=start)
        pm.Bernoulli(f"captured_{time}", alive * recapture, observed=captures[:, time])


def poisson_hmm(data):
    low = pm.Gamma("low", 2.0, 2.0, initval=1.0)
    high = pm.Gamma("high", 4.0, 1.0, initval=4.0)
    pm.Potential("order", pt.switch(low < high, 0.0, -np.inf))
    rates, probabilities = pt.stack([low, high]), np.array([0.5, 0.5])
    for time, count in enumerate(data["counts"]):
        state = pm.Categorical(f"z_{time}", p=probabilities)
        pm.Poisson(f"count_{time}", rates[state], observed=count)
        probabilities = pt.as_tensor(TRANSITION)[state]


def photons(data):
    rate = pm.LogNormal("rate", 1.0, 1.0)
    photons = pm.Poisson("photons", rate, shape=len(data["readings"]))
    pm.Normal("reading", photons, 0.5, observed=data["readings"])


MODELS = {
    "hmm": hmm,
    "gp": gp,
    "mixture_200": mixture,
    "mixture_10000": mixture,
    "dawid_skene": dawid_skene,
    "change_point": change_point,
    "n_mixture": n_mixture,
    "occupancy": occupancy,
    "recapture": recapture,
    "poisson_hmm": poisson_hmm,
    "photons": photons,
}
OUTPUTS = {
    "hmm": ["state_0", "state_17"],
    "gp": ["a", "b", "c"],
    "mixture_200": ["means"],
    "mixture_10000": ["means"],
    "dawid_skene": ["share"],
    "change_point": ["early", "late", "switch"],
    "n_mixture": ["rate", "detection", "total"],
    "occupancy": ["occupancy", "detection", "occupied"],
    "recapture": ["survival", "recapture"],
    "poisson_hmm": ["low", "high", "z_0", "z_50", "z_99"],
    "photons": ["rate", "photons"],
}
