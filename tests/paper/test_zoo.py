import itertools

import jax
import numpy as np
import pytest
from numpyro.handlers import seed, trace
from numpyro.infer.util import log_density
from scipy import stats

from adlmh_jax.paper import zoo
from adlmh_jax.paper.distances import log_checkpoints, running_curve
from adlmh_jax.paper.zoo.gp import _JITTER, gp_quadrature
from adlmh_jax.paper.zoo.hmm import forward_backward, hmm_marginals
from adlmh_jax.paper.zoo.iris import iris_records
from adlmh_jax.paper.zoo.kalman import KalmanData, filter_log_likelihood, grid_posterior, rotations

FACTORIES = pytest.mark.parametrize("factory", zoo.PROBLEMS.values(), ids=zoo.PROBLEMS.keys())


def prior_point(problem, number, args=None):
    """Draw the latent sites from the prior, as a dict of numpy arrays."""
    args = problem.args if args is None else args
    sites = trace(seed(problem.model, number)).get_trace(*args, **problem.kwargs)
    return {
        name: np.asarray(site["value"])
        for name, site in sites.items()
        if site["type"] == "sample" and not site["is_observed"]
    }


def check_log_density(problem, formula, args=None, num_points=3):
    """Compare the model's density with `formula`, a function of the latent sites, in float64."""
    args = problem.args if args is None else args
    evaluate = jax.jit(lambda point: log_density(problem.model, args, problem.kwargs, point)[0])
    for number in range(num_points):
        point = prior_point(problem, number, args)
        exact = {name: value.astype(np.float64) for name, value in point.items()}
        np.testing.assert_allclose(evaluate(point), formula(exact), rtol=2e-4)


@FACTORIES
def test_problem_is_complete(factory):
    problem = factory()
    sites = trace(seed(problem.model, 0)).get_trace(*problem.args, **problem.kwargs)
    assert all(sites[name]["value"].shape == () for name in problem.outputs)
    assert all(sentence.endswith(".") for sentence in problem.reference.values())
    if problem.truth is not None:
        truth = problem.truth()
        assert truth is problem.truth()
        assert truth.mean.shape == truth.sd.shape == (len(problem.outputs),)


@FACTORIES
def test_distance_falls_to_zero_on_draws_of_the_truth(factory):
    problem = factory()
    rng = np.random.default_rng(0)
    shape = (2, 20_000)
    if problem.distance == "classification_error":
        draws = np.broadcast_to([1.0, 0.0], (*shape, 2))
    else:
        truth = problem.truth()
        if problem.distance == "kl":
            cumulative = np.cumsum(truth.probabilities, axis=-1)
            columns = [np.searchsorted(row, rng.random(shape)) for row in cumulative]
        elif problem.distance == "ks":
            columns = [
                np.interp(rng.random(shape), cdf, grid)
                for grid, cdf in zip(truth.grid, truth.cdf, strict=True)
            ]
        else:
            columns = truth.mean + truth.sd * rng.standard_normal((*shape, len(truth.mean)))
            columns = np.moveaxis(columns, -1, 0)
        draws = np.stack(columns, axis=-1)
    curve = running_curve(draws, log_checkpoints(20_000, 2), problem.distance_function())
    assert curve.shape[0] == 2
    assert np.all(curve[:, -1] < 0.03)
    assert np.all(curve[:, -1] <= curve[:, 0])


def test_distance_function_refuses_what_it_cannot_compute():
    problem = zoo.lemma()
    fields = {name: getattr(problem, name) for name in problem.__dataclass_fields__}
    with pytest.raises(ValueError, match="no truth"):
        zoo.Problem(**{**fields, "truth": None}).distance_function()
    with pytest.raises(ValueError, match="unknown distance"):
        zoo.Problem(**{**fields, "distance": "far"}).distance_function()


@pytest.mark.parametrize(
    ("factory", "arguments"),
    [
        (zoo.hmm, {"observations": "printed"}),
        (zoo.hmm, {"length": 2}),
        (zoo.iris, {"left_out": (50, 0)}),
        (zoo.iris, {"left_out": (0, 150)}),
        (zoo.iris, {"variance_prior": "uniform"}),
        (zoo.kalman, {"variant": "printed"}),
    ],
)
def test_wrong_arguments_are_refused(factory, arguments):
    with pytest.raises(ValueError, match="must be"):
        factory(**arguments)


# Hidden Markov model


def hmm_log_density(point, observations, initial, transition, means):
    states = [int(point[f"state_{time}"]) for time in range(len(observations) + 2)]
    result = np.log(initial[states[0]])
    result += sum(np.log(transition[pair]) for pair in itertools.pairwise(states))
    return result + np.sum(stats.norm.logpdf(observations, means[states[1:-1]]))


@pytest.mark.parametrize("length", [3, 18, 25])
def test_hmm_log_density(length):
    problem = zoo.hmm(length=length)
    check_log_density(problem, lambda point: hmm_log_density(point, *problem.args))


def test_hmm_marginals_equal_enumeration():
    observations, initial, transition, means = zoo.hmm(length=6).args
    initial = np.array([0.2, 0.5, 0.3])
    marginals = np.zeros((6, 3))
    for states in itertools.product(range(3), repeat=6):
        point = {f"state_{time}": state for time, state in enumerate(states)}
        weight = np.exp(hmm_log_density(point, observations, initial, transition, means))
        marginals[np.arange(6), list(states)] += weight
    marginals /= marginals.sum(axis=1, keepdims=True)
    found = hmm_marginals(observations, initial, transition, means)
    np.testing.assert_allclose(found, marginals, rtol=1e-12)


def test_forward_backward_does_not_underflow():
    log_likelihood = np.tile([-2000.0, -2001.0], (5000, 1))
    marginals = forward_backward(np.array([0.5, 0.5]), np.eye(2), log_likelihood)
    np.testing.assert_allclose(marginals, np.tile([1.0, 0.0], (5000, 1)), atol=1e-12)


def test_hmm_truth():
    expected = [[0.3775, 0.3092, 0.3133], [0.1403, 0.2421, 0.6175]]
    paper = zoo.hmm().truth().probabilities
    np.testing.assert_allclose(paper, expected, atol=5e-5)
    authors = zoo.hmm("authors").truth().probabilities
    np.testing.assert_allclose(authors, paper, atol=1e-5)
    marginals = [hmm_marginals(*zoo.hmm(variant).args)[6] for variant in ("paper", "authors")]
    assert np.abs(np.subtract(*marginals)).max() > 0.5


def test_long_hmm_repeats_the_observations():
    problem = zoo.hmm(length=180)
    assert problem.outputs == ("state_0", "state_179")
    np.testing.assert_array_equal(problem.args[0][:16], problem.args[0][16:32])
    assert len(problem.args[0]) == 178


# Gaussian process


def gp_log_density(point, x, y):
    a, b, c, d, g = (point[name] for name in "abcdg")
    kernel = d * (np.exp(-((x[:, None] - x) ** 2) / (2 * g)) + _JITTER * np.eye(len(x)))
    result = np.sum(stats.norm.logpdf([a, b, c])) - d - g
    return result + stats.multivariate_normal.logpdf(y, a * x**2 + b * x + c, kernel)


def test_gp_log_density():
    problem = zoo.gp()
    check_log_density(problem, lambda point: gp_log_density(point, *problem.args))


def test_gp_truth():
    truth = zoo.gp().truth()
    # The first figures are the authors' long runs; the others were found by this quadrature.
    np.testing.assert_allclose(truth.mean, [0.052, -0.232, 0.254], atol=0.01)
    np.testing.assert_allclose(truth.sd, [0.067, 0.349, 0.497], atol=0.003)
    np.testing.assert_allclose(truth.mean, [0.05022, -0.22431, 0.25214], atol=1e-5)
    for grid, cdf, mean, sd in zip(truth.grid, truth.cdf, truth.mean, truth.sd, strict=True):
        assert np.all(np.diff(cdf) >= 0)
        steps, centres = np.diff(cdf), 0.5 * (grid[1:] + grid[:-1])
        assert steps @ centres == pytest.approx(mean, abs=1e-5)
        assert np.sqrt(steps @ (centres - mean) ** 2) == pytest.approx(sd, rel=1e-3)


def test_gp_quadrature_equals_importance_sampling():
    x, y = zoo.gp().args
    rng = np.random.default_rng(0)
    d, g = rng.exponential(size=(2, 20_000, 1, 1))
    basis = np.stack([x**2, x, np.ones_like(x)], axis=-1)
    kernel = d * (np.exp(-((x[:, None] - x) ** 2) / (2 * g)) + _JITTER * np.eye(len(x)))
    covariance = basis @ basis.T + kernel
    solved = np.linalg.solve(covariance, y[:, None])[..., 0]
    weights = np.exp(-0.5 * solved @ y - 0.5 * np.linalg.slogdet(covariance)[1])
    weights /= weights.sum()
    points = gp_quadrature(x, y)
    expected, found = weights @ (solved @ basis), points.weights @ points.means
    standard_error = np.sqrt(weights**2 @ (solved @ basis - expected) ** 2)
    assert np.all(np.abs(found - expected) < 4 * standard_error)


def test_gp_jitter_does_not_move_the_posterior():
    x, y = zoo.gp().args
    found, noise_free = gp_quadrature(x, y), gp_quadrature(x, y, jitter=1e-10)
    expected = noise_free.weights @ noise_free.means
    np.testing.assert_allclose(found.weights @ found.means, expected, atol=1e-4)


# Iris


def iris_log_density(point, features, is_setosa, variance_prior):
    coefficients = np.array([point[f"beta_{number}"] for number in range(1, 6)])
    prior = {"inverse_gamma": stats.invgamma, "gamma": stats.gamma}[variance_prior]
    result = prior.logpdf(point["sigma2"], 1.0)
    result += np.sum(stats.norm.logpdf(coefficients, scale=np.sqrt(point["sigma2"])))
    signs = np.where(is_setosa, 1.0, -1.0)
    return result - np.sum(np.logaddexp(0.0, -signs * (features @ coefficients)))


@pytest.mark.parametrize("variance_prior", ["inverse_gamma", "gamma"])
def test_iris_log_density(variance_prior):
    problem = zoo.iris((3, 70), variance_prior)
    features, is_setosa, _ = problem.args
    check_log_density(
        problem, lambda point: iris_log_density(point, features, is_setosa, variance_prior)
    )


def test_iris_records():
    features, is_setosa = iris_records()
    np.testing.assert_allclose(features.mean(axis=0), [1, 5.8433, 3.0573, 3.758, 1.1993], atol=1e-4)
    assert is_setosa.tolist() == [1] * 50 + [0] * 100
    # Two records that some copies of the data have wrong.
    assert features[34, 1:].tolist() == [4.9, 3.1, 1.5, 0.2]
    assert features[37, 1:].tolist() == [4.9, 3.6, 1.4, 0.1]


def test_iris_leaves_two_records_out():
    features, is_setosa = iris_records()
    problem = zoo.iris((7, 99))
    kept, labels, left_out = problem.args
    assert len(kept) == len(labels) == 148
    assert labels.sum() == 49
    np.testing.assert_array_equal(left_out, features[[7, 99]])
    pairs = zoo.leave_two_out(100, seed=1)
    assert len(pairs) == 100
    assert all(is_setosa[i] == 1 and is_setosa[j] == 0 for i, j in pairs)


def test_iris_classification_error_by_hand():
    draws = np.array([[[0.9, 0.3], [0.7, 0.1]]])  # mean probabilities 0.8 and 0.2
    np.testing.assert_allclose(zoo.iris().distance_function()(draws), [0.2])


def test_iris_outputs():
    problem = zoo.iris()
    sites = trace(seed(problem.model, 0)).get_trace(*problem.args, **problem.kwargs)
    coefficients = np.array([sites[f"beta_{number}"]["value"] for number in range(1, 6)])
    expected = 1 / (1 + np.exp(-problem.args[2] @ coefficients))
    found = [sites[name]["value"] for name in problem.outputs]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


# Kalman filter


def short_kalman(num_times, variant="paper"):
    problem = zoo.kalman(variant)
    data = KalmanData(*problem.args)
    return problem, data._replace(observations=data.observations[:num_times])


def kalman_log_density(point, data):
    shape, rate = data.omega_prior
    result = stats.gamma.logpdf(point["omega"], shape, scale=1 / rate)
    result += stats.gamma.logpdf(point["q"], 10, scale=1 / 100)
    rotation, previous = rotations(point["omega"]), np.array([1.0, 0.0])
    for time, observation in enumerate(data.observations, start=1):
        state = point[f"x_{time}"]
        result += np.sum(stats.norm.logpdf(state, rotation @ previous, np.sqrt(point["q"])))
        expected = data.observation_matrix @ state
        result += np.sum(stats.norm.logpdf(observation, expected, np.sqrt(data.noise_variance)))
        previous = state
    return result


@pytest.mark.parametrize("variant", ["paper", "scaled", "authors"])
def test_kalman_log_density(variant):
    problem, data = short_kalman(4, variant)
    check_log_density(problem, lambda point: kalman_log_density(point, data), args=tuple(data))


def test_kalman_filter_equals_the_joint_gaussian():
    _, data = short_kalman(3)
    omega, q, num_times = 0.3, 0.2, 3
    rotation = rotations(np.array(omega))
    powers = [np.linalg.matrix_power(rotation, power) for power in range(num_times + 1)]
    mean = np.concatenate([powers[time] @ [1.0, 0.0] for time in range(1, num_times + 1)])
    # Row t of the lower triangular block matrix carries the noise of times 1 .. t to time t.
    noise = np.block(
        [[powers[max(i - j, 0)] * (i >= j) for j in range(num_times)] for i in range(num_times)]
    )
    emission = np.kron(np.eye(num_times), data.observation_matrix)
    covariance = q * emission @ noise @ noise.T @ emission.T
    covariance += np.diag(np.tile(data.noise_variance, num_times))
    expected = stats.multivariate_normal.logpdf(
        data.observations.ravel(), emission @ mean, covariance
    )
    found = filter_log_likelihood(np.array([omega, 1.0]), np.array([q, 1.0]), data)
    assert found[0] == pytest.approx(expected)
    assert found[0] != pytest.approx(found[1])


@pytest.mark.parametrize("variant", ["paper", "scaled", "authors"])
def test_kalman_grid_holds_the_posterior(variant):
    data = KalmanData(*zoo.kalman(variant).args)
    omega, q, log_density = grid_posterior(data)
    assert np.all(np.diff(omega) > 0)
    edges = [log_density[0], log_density[-1], log_density[:, 0], log_density[:, -1]]
    assert max(edge.max() for edge in edges) < log_density.max() - 20


@pytest.mark.parametrize(("variant", "period"), [("paper", 1), ("scaled", 0), ("authors", 0)])
def test_kalman_truth(variant, period):
    problem = zoo.kalman(variant)
    truth = problem.truth()
    true_omega = 4 * np.pi / len(problem.args[0]) + 2 * np.pi * period
    # The sample is one of many: within four posterior standard deviations.
    assert np.all(np.abs(truth.mean - [true_omega, 0.1]) < 4 * truth.sd)
    for grid, cdf in zip(truth.grid, truth.cdf, strict=True):
        assert np.all(np.diff(grid) > 0)
        assert np.all(np.diff(cdf) >= 0)
        assert (cdf[0], cdf[-1]) == (0.0, pytest.approx(1.0))


def test_kalman_data_depend_on_the_seed_only():
    first, again, other = (zoo.kalman(seed=number).args for number in (0, 0, 1))
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])
    assert first[0].shape == (100, 16)
    np.testing.assert_allclose(first[1].sum(axis=1), 1.0)
    authors = zoo.kalman("authors").args
    assert authors[0].shape == (50, 16)
    np.testing.assert_allclose(authors[1].sum(axis=0), 1.0)


# Small examples


def test_small_log_densities():
    def two(point):
        return np.log(0.5) + stats.norm.logpdf(point["x2"], point["x1"])

    def three(point):
        result = stats.norm.logpdf(point["x1"], 1, 10) + stats.norm.logpdf(point["x2"], point["x1"])
        return result + stats.norm.logpdf(2.0, point["x2"])

    def both(point):
        return stats.norm.logpdf(point["x1"]) + stats.norm.logpdf(point["x2"])

    for problem, formula in ((zoo.two_variables(), two), (zoo.three_variables(), three)):
        check_log_density(problem, formula)
    check_log_density(zoo.lemma(), both)


def test_three_variables_truth_equals_quadrature():
    x1 = np.linspace(-20.0, 20.0, 4001)
    density = stats.norm.pdf(x1, 1, 10) * stats.norm.pdf(2.0, x1, np.sqrt(2))
    density /= np.trapezoid(density, x1)
    mean = np.trapezoid(x1 * density, x1)
    truth = zoo.three_variables().truth()
    assert truth.mean[0] == pytest.approx(mean)
    assert truth.sd[0] == pytest.approx(np.sqrt(np.trapezoid((x1 - mean) ** 2 * density, x1)))


def test_lemma_equilibrium():
    assert zoo.lemma_equilibrium() == pytest.approx(0.2954, abs=5e-5)
    # Eq. 16 by its sums: k choices of x2 before x1 is chosen, k geometric.
    ratio = zoo.lemma_equilibrium(0.4, 0.9)
    p_1 = 0.4 / (0.4 + 0.9 * ratio)
    k = np.arange(5000)
    probability = (1 - p_1) ** k * p_1
    reward = probability @ (k / (k + 1))
    assert ratio == pytest.approx(reward / (probability @ k + reward))


def test_lemma_equilibrium_tends_to_its_bounds():
    ratios = [zoo.lemma_equilibrium(1.0, beta) for beta in (1.0, 0.1, 1e-4, 3e-6, 1e-6)]
    assert np.all(np.diff(ratios) > 0)
    assert ratios[-1] == pytest.approx(1 / 3)
    assert 0 < zoo.lemma_equilibrium(1e-6, 1.0) < 1e-2
    with pytest.raises(ValueError, match="probabilities"):
        zoo.lemma_equilibrium(0.0, 1.0)
