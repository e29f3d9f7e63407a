"""Hyperparameters of a Gaussian process, predicting those of its mean function (section 5)."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import ndtr

from adlmh_jax.paper.zoo.problem import Problem, Truth

_X = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
_Y = (0.5, 0.4, 0.2, -0.05, -0.2, 0.1)

# Added to the diagonal of the kernel as a fraction of d, for float32 factorisations. It moves the
# posterior's marginals by 1.4e-4 in Kolmogorov-Smirnov distance from those of the noise-free
# kernel, and every one of 20,000 prior and 20,000 posterior points factorises in float32, with a
# mean error of 5e-5 in the posterior points' log-likelihoods. The truth is that of the kernel with
# the jitter.
_JITTER = 1e-6

_REFERENCE = {
    "observations": "Six points printed in section 5.",
    "kernel": "d exp(-(x - x')^2 / (2 g)), printed in section 5, without noise; a jitter of "
    f"{_JITTER} d is added here.",
    "priors": "Not in the paper; a, b, c ~ Normal(0, 1) and d, g ~ Gamma(1, 1) in the authors' "
    "program.",
    "truth": "Quadrature computed here in float64: a, b and c are integrated analytically, d and g "
    "on a grid. The paper approximated it by 5000 draws of long runs.",
}


class QuadraturePoints(NamedTuple):
    """The posterior of (a, b, c) as a mixture of normal distributions, one for each (d, g).

    Attributes
    ----------
    weights
        Posterior probability of each (d, g), ``[points]``.
    means, sds
        Posterior mean and standard deviation of a, b and c given (d, g), ``[points, 3]``.
    """

    weights: np.ndarray
    means: np.ndarray
    sds: np.ndarray


def gp_model(x: Any, y: Any) -> None:
    """Gaussian process with a quadratic mean function and a squared exponential kernel."""
    x = jnp.asarray(x)
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    c = numpyro.sample("c", dist.Normal(0.0, 1.0))
    d = numpyro.sample("d", dist.Gamma(1.0, 1.0))
    g = numpyro.sample("g", dist.Gamma(1.0, 1.0))
    squared_differences = jnp.square(x[:, None] - x[None, :])
    correlation = jnp.exp(-squared_differences / (2.0 * g)) + _JITTER * jnp.eye(len(x))
    process = dist.MultivariateNormal((a * x + b) * x + c, covariance_matrix=d * correlation)
    numpyro.sample("obs", process, obs=y)


def gp_quadrature(
    x: np.ndarray,
    y: np.ndarray,
    jitter: float = _JITTER,
    num_d: int = 100,
    num_g: int = 150,
) -> QuadraturePoints:
    """Posterior of (a, b, c) on a grid of (d, g), by Gaussian linear regression at each point.

    The grid is even in log d and log g, where the trapezoidal rule converges exponentially; with
    the default sizes means and standard deviations are exact to 1e-9. Posterior mass outside the
    grid is less than 1e-7.
    """
    d, g = (
        axis.ravel()[:, None, None]
        for axis in np.meshgrid(
            np.geomspace(1e-5, 40.0, num_d), np.geomspace(1e-7, 40.0, num_g), indexing="ij"
        )
    )
    basis = np.stack([x**2, x, np.ones_like(x)], axis=-1)
    kernel = d * (np.exp(-np.square(x[:, None] - x) / (2.0 * g)) + jitter * np.eye(len(x)))
    # With coefficients ~ Normal(0, I), y ~ Normal(0, basis basis^T + kernel).
    factor = np.linalg.cholesky(basis @ basis.T + kernel)
    white_y = np.linalg.solve(factor, np.broadcast_to(y[:, None], (len(factor), len(y), 1)))
    white_basis = np.linalg.solve(factor, np.broadcast_to(basis, (len(factor), *basis.shape)))
    log_determinant = 2.0 * np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2)), axis=-1)
    log_evidence = -0.5 * (np.sum(white_y**2, axis=(1, 2)) + log_determinant)
    # Gamma(1, 1) priors, and the Jacobian of the logarithmic grid.
    log_weights = log_evidence + (np.log(d * g) - d - g)[:, 0, 0]
    weights = np.exp(log_weights - log_weights.max())
    means = np.sum(white_basis * white_y, axis=1)
    sds = np.sqrt(1.0 - np.sum(white_basis**2, axis=1))
    return QuadraturePoints(weights / weights.sum(), means, sds)


def _truth(x: np.ndarray, y: np.ndarray, num_values: int = 2001) -> Truth:
    """Exact moments of a, b and c, and their distribution functions on a grid."""
    points = gp_quadrature(x, y)
    mean = points.weights @ points.means
    sd = np.sqrt(points.weights @ (points.sds**2 + points.means**2) - mean**2)
    heavy = points.weights > 1e-9
    weights, means, sds = (array[heavy] for array in points)
    # The tails are heavier than normal: ten standard deviations leave out 1e-7.
    grid = mean[:, None] + sd[:, None] * np.linspace(-10.0, 10.0, num_values)
    cdf = [
        weights @ ndtr((grid[i] - means[:, i, None]) / sds[:, i, None]) / weights.sum()
        for i in range(len(mean))
    ]
    return Truth(mean, sd, grid=tuple(grid), cdf=tuple(cdf))


def gp() -> Problem:
    """Gaussian process with five hyperparameters, predicting a, b and c."""
    args = (np.array(_X), np.array(_Y))
    return Problem(
        name="gp",
        model=gp_model,
        args=args,
        outputs=("a", "b", "c"),
        distance="ks",
        reference=_REFERENCE,
        truth=functools.cache(functools.partial(_truth, *args)),
    )
