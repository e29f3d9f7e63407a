"""Logistic regression that tells setosa from other irises, leaving two records out (section 5)."""

import csv
import functools
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from adlmh_jax.paper.zoo.problem import Problem

_VARIANCE_PRIORS = {
    "inverse_gamma": dist.InverseGamma,
    "gamma": dist.Gamma,
}

_REFERENCE = {
    "records": "Fisher, The use of multiple measurements in taxonomic problems, Annals of "
    "Eugenics 7 (1936); the file of scikit-learn 1.9, whose records 35 and 38 are Fisher's.",
    "sigma2": "InverseGamma(1, 1), printed in section 5; the authors' program has Gamma(1, 1) "
    "(variant `gamma`).",
    "coefficients": "Five, each Normal(0, sigma), printed in section 5; as in the authors' program "
    "the first belongs to the constant feature 1 and the features are in centimetres.",
    "left out": "One setosa and one other record, as section 5 says.",
    "outputs": "The probabilities that the left-out records are setosa; the authors' program "
    "predicts labels drawn with them, of the same mean.",
}


@functools.cache
def iris_records() -> tuple[np.ndarray, np.ndarray]:
    """Return the 150 records of Fisher (1936).

    Returns
    -------
    features
        The constant 1 and four lengths in centimetres, ``[150, 5]``.
    is_setosa
        1 for the 50 records of Iris setosa, 0 for the others, ``[150]``.
    """
    text = resources.files("adlmh_jax.paper.zoo").joinpath("iris.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(text.splitlines()))[1:]
    features = np.array([[1.0, *map(float, row[:4])] for row in rows])
    is_setosa = np.array([row[4] == "setosa" for row in rows], dtype=np.int32)
    return features, is_setosa


def iris_model(
    features: Any, is_setosa: Any, left_out: Any, variance_prior: str = "inverse_gamma"
) -> None:
    """Logistic regression with a common prior variance of the coefficients.

    Parameters
    ----------
    features, is_setosa
        The records that are observed, ``[records, 5]`` and ``[records]``.
    left_out
        Features of the two records whose probabilities are predicted, ``[2, 5]``.
    variance_prior
        ``"inverse_gamma"`` or ``"gamma"``, both with parameters 1 and 1.
    """
    features, left_out = jnp.asarray(features), jnp.asarray(left_out)
    sigma2 = numpyro.sample("sigma2", _VARIANCE_PRIORS[variance_prior](1.0, 1.0))
    sigma = jnp.sqrt(sigma2)
    coefficients = jnp.stack(
        [
            numpyro.sample(f"beta_{number}", dist.Normal(0.0, sigma))
            for number in range(1, features.shape[-1] + 1)
        ]
    )
    numpyro.sample("is_setosa", dist.Bernoulli(logits=features @ coefficients), obs=is_setosa)
    for name, record in zip(("setosa", "other"), left_out, strict=True):
        numpyro.deterministic(f"probability_{name}", jax.nn.sigmoid(record @ coefficients))


def leave_two_out(num_runs: int = 100, seed: int = 0) -> list[tuple[int, int]]:
    """Draw pairs of records to leave out, one setosa and one other in each.

    Parameters
    ----------
    num_runs
        Number of pairs; 100 in the paper.
    seed
        Seed of the draw.

    Returns
    -------
    list of tuple
        What `iris` takes as its `left_out`.
    """
    rng = np.random.default_rng(seed)
    _, is_setosa = iris_records()
    setosa = rng.choice(np.flatnonzero(is_setosa), size=num_runs)
    other = rng.choice(np.flatnonzero(1 - is_setosa), size=num_runs)
    return list(zip(setosa.tolist(), other.tolist(), strict=True))


def iris(left_out: tuple[int, int] = (0, 50), variance_prior: str = "inverse_gamma") -> Problem:
    """Logistic regression on all irises but two, predicting the probability that each is setosa.

    There is no exact posterior to compare with: the distance is the classification error, the mean
    probability that the draws give to the wrong species of the two records.

    Parameters
    ----------
    left_out
        Numbers, from 0, of a setosa record and of another one.
    variance_prior
        ``"inverse_gamma"`` as in the paper, or ``"gamma"`` as in the authors' program.
    """
    features, is_setosa = iris_records()
    if variance_prior not in _VARIANCE_PRIORS:
        raise ValueError(
            f"`variance_prior` must be one of {sorted(_VARIANCE_PRIORS)}; got `{variance_prior}`."
        )
    indices = np.array(left_out)
    in_range = indices.shape == (2,) and indices.min() >= 0 and indices.max() < len(features)
    if not in_range or is_setosa[indices].tolist() != [1, 0]:
        raise ValueError(
            "`left_out` must be the numbers of a setosa record (0 to 49) and of another one "
            f"(50 to 149); got {left_out}."
        )
    return Problem(
        name="iris" if variance_prior == "inverse_gamma" else f"iris-{variance_prior}",
        model=iris_model,
        args=(
            np.delete(features, indices, axis=0),
            np.delete(is_setosa, indices),
            features[indices],
        ),
        kwargs={"variance_prior": variance_prior},
        outputs=("probability_setosa", "probability_other"),
        distance="classification_error",
        reference=_REFERENCE,
    )
