"""Linear dynamical system that turns in a plane, predicting its speed and its noise (section 5)."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats
from scipy.integrate import cumulative_trapezoid
from scipy.interpolate import CubicSpline

from adlmh_jax.paper.zoo.problem import Problem, Truth

_NUM_CHANNELS = 16
_Q_PRIOR = (10.0, 100.0)
_TRUE_Q = 0.1
_INITIAL_STATE = (1.0, 0.0)
_SMALLEST_NOISE_VARIANCE = 0.01

_REFERENCE = {
    "T": "100, printed in section 5; 50 in the authors' program.",
    "omega prior": "Gamma(10, 2.5), printed in section 5. Its mean is 4 while the true omega is "
    "4 pi / T, so that omega lies near 4 pi / T + 2 pi, which is the same rotation (variant "
    "`paper`). The authors' program multiplies a Gamma(5, 2.5) variable by pi / T (variant "
    "`authors`); the printed numbers in that unit have the true omega for their mean (variant "
    "`scaled`).",
    "q prior": "Gamma(10, 100), printed in section 5 and in the authors' program.",
    "true values": "omega = 4 pi / T and q = 0.1, printed in section 5.",
    "C": "Section 5 says row-wise Dirichlet(0.1), taken as the 16 rows of the 16 x 2 matrix; in "
    "the authors' program the two columns are Dirichlet draws (variant `authors`).",
    "R": "Section 5 says row-wise Dirichlet(0.01); a covariance must be symmetric, so the diagonal "
    f"is taken, and values below {_SMALLEST_NOISE_VARIANCE}, most of which are zero for all "
    "purposes, are raised to it. 0.01 I in the authors' program (variant `authors`).",
    "initial state": "Not in the paper; x_0 = (1, 0) in the authors' program.",
    "data": "Simulated here from the seed; the paper's data are not printed.",
    "truth": "Computed here in float64 on a grid of (omega, q), the states integrated out by a "
    "Kalman filter.",
}


class KalmanData(NamedTuple):
    """What `kalman_model` and the filter are given.

    Attributes
    ----------
    observations
        ``[times, channels]``.
    observation_matrix
        C of the paper, ``[channels, 2]``.
    noise_variance
        Diagonal of R of the paper, ``[channels]``.
    omega_prior
        Shape and rate of the gamma prior of omega, ``[2]``.
    """

    observations: np.ndarray
    observation_matrix: np.ndarray
    noise_variance: np.ndarray
    omega_prior: np.ndarray


class GridPosterior(NamedTuple):
    """Posterior of (omega, q) on a grid.

    Attributes
    ----------
    omega, q
        The grid's axes, increasing.
    log_density
        Unnormalised posterior density, ``[omega, q]``.
    """

    omega: np.ndarray
    q: np.ndarray
    log_density: np.ndarray


def kalman_model(
    observations: Any, observation_matrix: Any, noise_variance: Any, omega_prior: Any
) -> None:
    """Rotation by omega with noise q; every two-dimensional state is a site of its own."""
    observation_matrix = jnp.asarray(observation_matrix)
    noise_sd = jnp.sqrt(jnp.asarray(noise_variance))
    omega = numpyro.sample("omega", dist.Gamma(*omega_prior))
    q = numpyro.sample("q", dist.Gamma(*_Q_PRIOR))
    cos, sin = jnp.cos(omega), jnp.sin(omega)
    rotation = jnp.stack([jnp.stack([cos, -sin]), jnp.stack([sin, cos])])
    state = jnp.array(_INITIAL_STATE)
    for time, observation in enumerate(observations, start=1):
        transition = dist.Normal(rotation @ state, jnp.sqrt(q)).to_event(1)
        state = numpyro.sample(f"x_{time}", transition)
        emission = dist.Normal(observation_matrix @ state, noise_sd).to_event(1)
        numpyro.sample(f"obs_{time}", emission, obs=observation)


def simulate(variant: str = "paper", seed: int = 0) -> KalmanData:
    """Draw observations, and the matrices C and R that the model is given.

    Parameters
    ----------
    variant, seed
        See `kalman`.
    """
    rng = np.random.default_rng(seed)
    if variant == "authors":
        num_times, omega_prior = 50, np.array([5.0, 2.5 * 50 / np.pi])
        matrix = rng.dirichlet(np.full(_NUM_CHANNELS, 0.1), size=2).T
        variance = np.full(_NUM_CHANNELS, 0.01)
    elif variant in ("paper", "scaled"):
        num_times = 100
        omega_prior = np.array([10.0, 2.5 * (num_times / np.pi if variant == "scaled" else 1.0)])
        matrix = rng.dirichlet(np.full(2, 0.1), size=_NUM_CHANNELS)
        covariance = rng.dirichlet(np.full(_NUM_CHANNELS, 0.01), size=_NUM_CHANNELS)
        variance = np.maximum(np.diag(covariance), _SMALLEST_NOISE_VARIANCE)
    else:
        raise ValueError(f"`variant` must be `paper`, `scaled` or `authors`; got `{variant}`.")
    states = _simulate_states(rng, num_times)
    noise = np.sqrt(variance) * rng.standard_normal((num_times, _NUM_CHANNELS))
    return KalmanData(states @ matrix.T + noise, matrix, variance, omega_prior)


def _simulate_states(rng: np.random.Generator, num_times: int) -> np.ndarray:
    """Draw the states x_1 .. x_T, ``[times, 2]``, with the paper's omega and q."""
    rotation = rotations(np.array(4.0 * np.pi / num_times))
    states = [np.array(_INITIAL_STATE)]
    for _ in range(num_times):
        states.append(rotation @ states[-1] + np.sqrt(_TRUE_Q) * rng.standard_normal(2))
    return np.stack(states[1:])


def rotations(angles: np.ndarray) -> np.ndarray:
    """Matrices ``[..., 2, 2]`` of the rotations by `angles`."""
    cos, sin = np.cos(angles), np.sin(angles)
    return np.stack([np.stack([cos, -sin], axis=-1), np.stack([sin, cos], axis=-1)], axis=-2)


def filter_log_likelihood(omega: np.ndarray, q: np.ndarray, data: KalmanData) -> np.ndarray:
    """Log-likelihood of the observations, the states integrated out by a Kalman filter.

    Parameters
    ----------
    omega, q
        Arrays of the same shape ``[points]``.
    data
        Observations and the matrices C and R.

    Returns
    -------
    np.ndarray
        ``[points]``.
    """
    rotation, identity = rotations(omega), np.eye(2)
    # Given a state x, log p(y_t | x) = constant_t + x^T h_t - x^T H x / 2.
    scaled = data.observation_matrix / data.noise_variance[:, None]
    information = scaled.T @ data.observation_matrix  # H
    linear = (data.observations @ scaled)[:, :, None]  # h_t
    log_norm = np.sum(np.log(2.0 * np.pi * data.noise_variance))
    total = -0.5 * np.sum(np.sum(data.observations**2 / data.noise_variance, axis=-1) + log_norm)
    mean = np.broadcast_to(np.array(_INITIAL_STATE)[:, None], (len(omega), 2, 1))
    covariance = np.zeros((len(omega), 2, 2))
    transition_covariance = q[:, None, None] * identity
    for h in linear:
        mean = rotation @ mean
        covariance = rotation @ covariance @ np.swapaxes(rotation, 1, 2) + transition_covariance
        residual = h - information @ mean
        spread = identity + covariance @ information
        covariance = np.linalg.solve(spread, covariance)
        quadratic = np.swapaxes(residual, 1, 2) @ covariance @ residual
        quadratic += np.swapaxes(mean, 1, 2) @ (h + residual)
        total = total + 0.5 * (quadratic[:, 0, 0] - np.log(np.linalg.det(spread)))
        mean = mean + covariance @ residual
    return total


def grid_posterior(data: KalmanData, num_omega: int = 100, num_q: int = 60) -> GridPosterior:
    """Posterior density of (omega, q) on a grid that holds all but a negligible part of it.

    The likelihood has the period 2 pi in omega. A coarse grid over one period finds where it is
    concentrated; a fine grid there is then repeated in every period that the prior reaches.
    """
    periods = _periods(data)
    coarse_angles = np.linspace(-np.pi, np.pi, 360, endpoint=False)
    coarse_q = np.geomspace(0.003, 0.6, 18)
    profile = _log_posterior(coarse_angles, coarse_q, periods, data).max(axis=0)
    angles = np.linspace(*_window(profile.max(axis=1), coarse_angles), num_omega)
    q = np.linspace(*_window(profile.max(axis=0), coarse_q), num_q)
    log_density = _log_posterior(angles, q, periods, data)
    omega = (angles + periods[:, None]).ravel()
    positive = omega > 0
    return GridPosterior(omega[positive], q, log_density.reshape(len(omega), num_q)[positive])


def _periods(data: KalmanData) -> np.ndarray:
    """Multiples of 2 pi up to the largest omega that the prior allows for."""
    shape, rate = data.omega_prior
    largest = stats.gamma.isf(1e-12, shape, scale=1.0 / rate)
    return 2.0 * np.pi * np.arange(np.floor(largest / (2.0 * np.pi)) + 2)


def _window(log_profile: np.ndarray, axis: np.ndarray, depth: float = 30.0) -> tuple[float, float]:
    """Range of the axis outside which the profile lies `depth` below its maximum."""
    (inside,) = np.nonzero(log_profile > log_profile.max() - depth)
    return axis[max(inside[0] - 1, 0)], axis[min(inside[-1] + 1, len(axis) - 1)]


def _log_posterior(
    angles: np.ndarray, q: np.ndarray, periods: np.ndarray, data: KalmanData
) -> np.ndarray:
    """Log posterior density, ``[periods, angles, q]``; omega is an angle plus a period."""
    points = np.meshgrid(angles, q, indexing="ij")
    log_likelihood = filter_log_likelihood(points[0].ravel(), points[1].ravel(), data)
    shape, rate = data.omega_prior
    log_prior_omega = stats.gamma.logpdf(angles + periods[:, None], shape, scale=1.0 / rate)
    log_prior_q = stats.gamma.logpdf(q, _Q_PRIOR[0], scale=1.0 / _Q_PRIOR[1])
    return log_likelihood.reshape(points[0].shape) + log_prior_omega[:, :, None] + log_prior_q


def _truth(*args: np.ndarray) -> Truth:
    """Moments and distribution functions of omega and q."""
    omega, q, log_density = grid_posterior(KalmanData(*args))
    density = np.exp(log_density - log_density.max())
    marginals = (
        _refined(omega, np.trapezoid(density, q, axis=1)),
        _refined(q, np.trapezoid(density, omega, axis=0)),
    )
    cdfs, means, sds = zip(*(_summary(*marginal) for marginal in marginals), strict=True)
    grid = tuple(values for values, _ in marginals)
    return Truth(np.array(means), np.array(sds), grid=grid, cdf=cdfs)


def _refined(
    grid: np.ndarray, density: np.ndarray, factor: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Divide every interval of the grid by `factor`, the density following a cubic spline."""
    index = np.arange(len(grid))
    fine = np.interp(np.arange((len(grid) - 1) * factor + 1) / factor, index, grid)
    return fine, np.maximum(CubicSpline(grid, density)(fine), 0.0)


def _summary(grid: np.ndarray, density: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Distribution function, mean and standard deviation of an unnormalised density."""
    cdf = cumulative_trapezoid(density, grid, initial=0.0)
    density = density / cdf[-1]
    mean = np.trapezoid(grid * density, grid)
    return cdf / cdf[-1], mean, np.sqrt(np.trapezoid((grid - mean) ** 2 * density, grid))


def kalman(variant: str = "paper", seed: int = 0) -> Problem:
    """Linear dynamical system, predicting omega and q.

    Parameters
    ----------
    variant
        ``"paper"`` as printed; ``"scaled"`` with the printed prior of omega in units of pi / T;
        ``"authors"`` as in the authors' program.
    seed
        Seed of the simulated data.
    """
    args = tuple(simulate(variant, seed))
    return Problem(
        name="kalman" if variant == "paper" else f"kalman-{variant}",
        model=kalman_model,
        args=args,
        outputs=("omega", "q"),
        distance="ks",
        reference=_REFERENCE,
        truth=functools.cache(functools.partial(_truth, *args)),
    )
