"""The models of docs/structure.md, as they are printed there, against exact answers."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import adlmh_jax as adlmh

PAGE = Path(__file__).parents[1] / "docs" / "structure.md"
pytestmark = pytest.mark.slow

FALSE_ALARM = 1e-5  # of each probability that is compared


@pytest.fixture(scope="module")
def page():
    """What the code of the page defines."""
    names = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), names)
    return names


def marginal(values, prior_scale, noise):
    """Log density of values that share a normal mean, which is integrated out."""
    number = len(values)
    covariance = noise**2 * np.eye(number) + prior_scale**2 * np.ones((number, number))
    return stats.multivariate_normal.logpdf(values, np.zeros(number), covariance)


def exact_numbers(data, most):
    """Probability of each number of components: a sum over all assignments of points."""
    evidence = []
    for number in range(1, most + 1):
        total = 0.0
        for kinds in itertools.product(range(number), repeat=len(data)):
            parts = [data[np.array(kinds) == k] for k in set(kinds)]
            total += np.exp(sum(marginal(part, 4.0, 1.0) for part in parts))
        evidence.append(total / number ** len(data))
    return np.array(evidence) / np.sum(evidence)


def check_probability(indicator, truth):
    """Compare a share of draws, [chain, draw], with the truth, by how superchains differ."""
    means = indicator.reshape(16, -1).mean(axis=1)
    error = means.std(ddof=1) / 4
    assert abs(means.mean() - truth) < stats.t.isf(FALSE_ALARM / 2, 15) * error
    assert error < 0.01  # or the comparison would say little


SIZES = {"num_chains": 64, "num_superchains": 16, "num_warmup": 300, "progress": False}


def test_number_of_components(page):
    data = np.array([-1.6, -1.1, 0.3, 1.4, 1.9])
    truth = exact_numbers(data, page["MOST"])
    assert truth.min() > 0.02  # all numbers matter
    result = adlmh.sample(1, page["mixture"], (data,), outputs=["number"], num_samples=800, **SIZES)
    for number, probability in enumerate(truth, 1):
        check_probability(result.draws["number"] == number, probability)


def test_two_regressions(page):
    x = np.linspace(0.2, 1.4, 6)
    y = np.array([0.0, 0.5, 0.3, 0.9, 1.0, 1.7])
    evidence = [
        stats.multivariate_normal.pdf(y, np.zeros(6), 0.25 * np.eye(6) + np.outer(g, g))
        for g in (x, x**2)
    ]
    truth = evidence[1] / sum(evidence)
    assert 0.1 < truth < 0.9
    result = adlmh.sample(
        2, page["two_regressions"], (x, y), outputs=["is_square"], num_samples=800, **SIZES
    )
    check_probability(result.draws["is_square"] == 1, truth)
