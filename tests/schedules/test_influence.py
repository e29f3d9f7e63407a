"""The best schedule: exact variances on small targets, what is learned, and the race."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from algorithm3 import sizes_of
from exact import PROGRAMS, position_of, prepare, transition_matrix
from scipy.optimize import minimize

import adlmh_jax as adlmh
from adlmh_jax.schedules import dependence, race
from adlmh_jax.schedules.design import design, mix, mobility
from adlmh_jax.statistics import Moments
from adlmh_jax.types import Anatomy, Sight

TRANSITION = np.array([[0.1, 0.5, 0.4], [0.2, 0.2, 0.6], [0.15, 0.15, 0.7]])
MEANS = np.array([-1.0, 1.0, 0.0])


def single_entries(number, costs=None):
    """Return the anatomy of entries that move a component of one scalar each."""
    numbers = jnp.arange(number)
    return Anatomy(
        entry_of=numbers,
        scalars_of=jnp.ones(number),
        component_of=numbers,
        slot_component=numbers,
        costs=jnp.ones(number) if costs is None else jnp.asarray(costs),
        is_count=jnp.zeros(1),
    )


def hidden_chain(observations):
    """Return the states of a hidden Markov model, and their posterior."""
    length = len(observations) + 2
    states = np.array(list(itertools.product(range(3), repeat=length)))
    log_pi = np.zeros(len(states))
    for time in range(1, length):
        log_pi += np.log(TRANSITION[states[:, time - 1], states[:, time]])
    for time, observation in enumerate(observations, start=1):
        log_pi -= 0.5 * (observation - MEANS[states[:, time]]) ** 2
    pi = np.exp(log_pi - log_pi.max())
    return states, pi / pi.sum()


def prior_kernels(states, pi):
    """Return the transition matrix of a prior proposal for each of the states of the chain."""
    index = {tuple(state): i for i, state in enumerate(states)}
    kernels = []
    for k in range(states.shape[1]):
        kernel = np.zeros((len(states), len(states)))
        for i, state in enumerate(states):
            prior = TRANSITION[state[k - 1]] if k else np.ones(3) / 3
            for value in set(range(3)) - {state[k]}:
                j = index[(*state[:k], value, *state[k + 1 :])]
                ratio = pi[j] * prior[state[k]] / (pi[i] * prior[value])
                kernel[i, j] = prior[value] * min(1.0, ratio)
            kernel[i, i] = 1.0 - kernel[i].sum()
        kernels.append(kernel)
    return np.array(kernels)


def orthonormal(values, pi):
    """Return functions of variance 1 that span a number and its square, ``[S, 1 or 2]``."""
    first = values - pi @ values
    first = first / np.sqrt(pi @ first**2)
    second = first**2 - 1.0 - (pi @ first**3) * first
    if pi @ second**2 < 1e-6:
        return first[:, None]
    return np.stack([first, second / np.sqrt(pi @ second**2)], axis=1)


def asymptotic_variance(alpha, kernels, pi, outputs):
    """Return the sum over the outputs of their asymptotic variances, and its gradient."""
    moves = np.eye(len(pi)) - kernels
    operator = np.tensordot(alpha, moves, 1) + np.outer(np.ones(len(pi)), pi)
    solution = np.linalg.solve(operator, outputs)
    variance = np.sum(pi @ (2 * outputs * solution - outputs**2))
    forms = [np.sum(pi @ (solution * (solution - kernel @ solution))) for kernel in kernels]
    return variance, -2.0 * np.array(forms)


def optimal_weights(kernels, pi, outputs):
    """Return the weights of least variance, by convex optimisation."""

    def objective(logits):
        alpha = np.exp(logits - logits.max())
        alpha /= alpha.sum()
        variance, gradient = asymptotic_variance(alpha, kernels, pi, outputs)
        return variance, alpha * (gradient - alpha @ gradient)

    found = minimize(objective, np.zeros(len(kernels)), jac=True, method="L-BFGS-B")
    alpha = np.exp(found.x - found.x.max())
    return alpha / alpha.sum()


def weights_from_moments(columns, kernels, pi, outputs):
    """Return the production's weights for exact moments: the best of the shares that race."""
    explained, renewed = [], []
    for values, kernel in zip(columns.T, kernels, strict=True):
        features = orthonormal(values, pi)
        explained.append(np.sum((features.T @ (pi[:, None] * outputs)) ** 2))
        renewed.append(pi @ (features[:, 0] * (features[:, 0] - kernel @ features[:, 0])))
    anatomy = single_entries(len(kernels))
    mobile = mobility(anatomy, 2 * jnp.array(renewed), jnp.ones(len(kernels)), jnp.ones(9), 0.0)
    best = design(anatomy, jnp.array(explained)[:, None], mobile, anatomy.costs)
    uniform = np.full(best.size, 1.0 / best.size)
    candidates = [np.asarray(mix(best, uniform, share), np.float64) for share in race.SHARES]
    return min(candidates, key=lambda a: asymptotic_variance(a, kernels, pi, outputs)[0])


def chain_problem():
    states, pi = hidden_chain([0.9, 0.8, 5.0])
    outputs = np.concatenate([orthonormal(states[:, k], pi) for k in (0, -1)], axis=1)
    return states, pi, prior_kernels(states, pi), outputs


def test_gradient_is_that_of_the_variance():
    _, pi, kernels, outputs = chain_problem()
    alpha = np.array([0.3, 0.1, 0.2, 0.25, 0.15])
    _, gradient = asymptotic_variance(alpha, kernels, pi, outputs)
    for k, each in enumerate(np.eye(5)):
        ahead, behind = (
            asymptotic_variance(alpha + sign * 1e-5 * each, kernels, pi, outputs)[0]
            for sign in (1, -1)
        )
        assert gradient[k] == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)


def test_weights_from_exact_moments_are_nearly_the_best():
    states, pi, kernels, outputs = chain_problem()
    best = asymptotic_variance(optimal_weights(kernels, pi, outputs), kernels, pi, outputs)[0]
    weights = weights_from_moments(states, kernels, pi, outputs)
    uniform = np.full(5, 0.2)
    assert asymptotic_variance(weights, kernels, pi, outputs)[0] < 1.05 * best
    assert asymptotic_variance(uniform, kernels, pi, outputs)[0] > 1.5 * best


def test_closed_form_is_the_optimum_for_gaussian_targets():
    """Gibbs steps keep functions linear, so that the variance is that of a small linear system."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    precision = root @ root.T + np.eye(5)
    covariance, output = np.linalg.inv(precision), rng.normal(size=5)
    diagonal = np.diag(precision)

    def variance(alpha):
        poisson = np.linalg.solve(precision * (alpha / diagonal), output)
        return 2 * output @ covariance @ poisson - output @ covariance @ output

    of_output = output @ covariance @ output
    explained = (covariance @ output) ** 2 / np.diag(covariance) / of_output
    renewed = 1.0 / (diagonal * np.diag(covariance))
    anatomy = single_entries(5)
    explained = jnp.array(explained)[:, None]
    alpha = design(anatomy, explained, jnp.array(renewed), anatomy.costs)

    def objective(logits):
        return variance(np.exp(logits) / np.exp(logits).sum())

    best = minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-10}).fun
    assert variance(np.asarray(alpha, np.float64)) == pytest.approx(best, rel=1e-6)


def test_costs_count():
    """Weights go with one over the root of the cost: the least variance in a time, not in steps."""
    anatomy = single_entries(2, [1.0, 9.0])
    alpha = design(anatomy, jnp.ones((2, 1)), jnp.ones(2), anatomy.costs)
    np.testing.assert_allclose(alpha, [0.75, 0.25], rtol=1e-5)


@pytest.mark.parametrize("each", [[1.0, 1.0], [16.0, 1.0]])
def test_the_worst_of_two_outputs_decides(each):
    """Each has a component of its own: the largest bound is nearly as small as it can be."""
    anatomy, explained = single_entries(2), np.diag(each)
    alpha = np.asarray(design(anatomy, jnp.array(explained), jnp.ones(2), anatomy.costs))
    least = np.sum(each)  # both bounds, if weights are as the bounds
    assert least <= np.max(each / alpha) < 1.06 * least


def test_entries_that_overlap_share_what_they_move():
    """Two entries move the same component, one of them twice as far: only that is worth having."""
    anatomy = single_entries(3)._replace(
        slot_component=jnp.array([0, 0, 1]), component_of=jnp.array([0, 1])
    )
    mobile = jnp.array([0.4, 0.8, 0.8])
    alpha = np.asarray(design(anatomy, jnp.ones((2, 1)), mobile, anatomy.costs))
    assert alpha[0] < 0.01
    np.testing.assert_allclose(alpha[1:], 0.5, atol=0.01)


def test_square_of_a_mean_is_unbiased():
    """Mean over 4,000 seeds within 4 standard errors, whatever the mean; so is its noise at 0."""
    rng = np.random.default_rng(0)
    for mean in (0.0, 0.3, 2.0):
        numbers = rng.normal(mean, 1.5, size=(16, 4_000))
        square, noise = dependence.square_of_mean(jnp.asarray(numbers), 16)
        error = np.std(square) / np.sqrt(4_000)
        assert abs(np.mean(square) - mean**2) < 4 * error
        if mean == 0.0:
            assert float(np.std(square) / np.mean(noise)) == pytest.approx(1.0, abs=0.1)
            assert np.mean(square > dependence.THRESHOLD * noise) < 0.02


def look_at(draws, outputs, num_chains, is_count=0.0):
    """Return what a window says of draws ``[time, R, C]`` and outputs ``[time, K, C]``."""
    num_values, num_outputs = draws.shape[1], outputs.shape[1]
    sizes = sizes_of(num_values, num_outputs, num_chains)
    window = dependence.init_window(sizes)
    anatomy = single_entries(num_values)._replace(is_count=jnp.full(num_outputs, is_count))

    @jax.jit
    def look(window, units, values, outputs, part):
        sight = Sight(values, outputs, (), jnp.zeros(num_values), jnp.zeros(num_values), 0, anatomy)
        return dependence.look(window, units, sight, part)

    units = tuple(dependence.first_units(jnp.asarray(a[0])) for a in (draws, outputs))
    for turn in range(3):  # each time in units that the one before found
        window = jax.tree.map(jnp.zeros_like, window)
        for time, (values, output) in enumerate(zip(draws, outputs, strict=True)):
            part = time * window.number.size // len(draws)
            window = look(window, units, jnp.asarray(values), jnp.asarray(output), part)
        if turn < 2:
            powers = (window.value_powers, window.output_powers)
            units = tuple(
                dependence.new_units(u, p, window.number.sum())
                for u, p in zip(units, powers, strict=True)
            )
    return [np.asarray(a) for a in dependence.explain(window, num_outputs)]


@pytest.mark.parametrize("num_chains", [1, 37])
def test_shares_explained_are_squared_correlations(num_chains):
    """Of a sum of three numbers, a square, and nothing; whatever the units."""
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(4_000 // num_chains + 400, 4, num_chains)).astype(np.float32)
    scale, shift = np.array([1e-3, 1.0, 40.0, 5.0])[:, None], np.array([0, 3, 1e3, 0])[:, None]
    linear = 2 * draws[:, 0] + draws[:, 1] + 0.0 * draws[:, 2]
    outputs = np.stack([linear, draws[:, 2] ** 2], axis=1) * 7.0
    shares, noise = look_at(draws * scale + shift, outputs, num_chains)
    expected = np.array([[0.8, 0.0], [0.2, 0.0], [0.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(shares[:, :2], expected, atol=0.12)
    assert np.all(np.abs(shares[3]) < 6 * noise[3] + 1e-6)


def test_many_outputs_are_seen_through_random_sums():
    """Of 40 outputs, 30 are the first number and 10 the second: what is explained adds up."""
    rng = np.random.default_rng(2)
    draws = rng.normal(size=(200, 3, 32)).astype(np.float32)
    outputs = np.concatenate([np.repeat(draws[:, :1], 30, 1), np.repeat(draws[:, 1:2], 10, 1)], 1)
    shares, noise = look_at(draws, outputs, 32)
    assert shares.shape == (3, dependence.NUM_SUMS)
    total = shares.sum(axis=1)
    assert total[0] > 3 * total[1] > 30 * abs(total[2])
    assert abs(total[2]) < 6 * np.sqrt((noise[2] ** 2).sum())


def test_three_values_are_fully_explained_by_themselves():
    rng = np.random.default_rng(3)
    draws = rng.choice(3, p=[0.2, 0.5, 0.3], size=(200, 2, 32)).astype(np.float32)
    shares, _ = look_at(draws, draws[:, :1], 32, is_count=1.0)
    np.testing.assert_allclose(shares[0], [1.0, 1.0], atol=0.05)  # of value and square
    np.testing.assert_allclose(shares[1], [0.0, 0.0], atol=0.01)


def autoregressive(rng, memory, shape):
    """Return courses ``[time, C]`` whose correlation falls by ``memory`` at each step."""
    values, course = [], rng.normal(size=shape[1])
    for _ in range(shape[0]):
        course = memory * course + np.sqrt(1 - memory**2) * rng.normal(size=shape[1])
        values.append(course)
    return np.array(values)


@pytest.mark.parametrize("num_chains", [64, 1])
def test_race_prefers_the_better_of_two(num_chains):
    """Their variances differ by 2: the better one wins in 99 of 100 seeds, from either side.

    With a single chain, sixteen parts of the time tell less: three of four.
    """
    num_times, wins = (200, 0) if num_chains > 1 else (3_200, 0)
    parts = -(-race.MIN_COURSES // num_chains)
    measure = jax.jit(race.measure)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        ratios = []
        for memory in (0.9, 0.8182):  # (1 + memory) / (1 - memory) = 19 and 10: about 2
            course = autoregressive(rng, memory, (num_times, num_chains))
            by_part = course.reshape(parts, -1, 1, num_chains)
            number = jnp.full((parts, 1, 1), by_part.shape[1])
            moments = Moments(number, by_part.mean(axis=1), by_part.var(axis=1) * by_part.shape[1])
            ratios.append(measure(jax.tree.map(jnp.asarray, moments)))
        better = 1 if seed % 2 else 0
        scores = race.judge(jnp.stack(ratios if better else ratios[::-1]))
        wins += int(race.decide(scores)) == better
    assert wins >= (99 if num_chains > 1 else 75)


def test_race_leaves_out_what_nothing_moves():
    ratios = jnp.array([[500.0, 0.1], [400.0, 0.3], [600.0, 0.4]])
    assert int(race.decide(race.judge(ratios))) == 0
    assert int(race.decide(race.judge(ratios[:, :1]))) == 1  # there is nothing else to go by


def test_ties_go_to_the_safer_candidate():
    assert int(race.decide(jnp.array([1.0, 0.98, 1.01, 2.0]))) == 2


def test_courses_are_followed_part_by_part():
    rng = np.random.default_rng(0)
    values = rng.normal(5.0, 1.0, size=(4, 3, 2, 8))  # [epoch, draw, K, C]
    courses = race.init_race(sizes_of(3, 2, 8)).courses
    for epoch, draws in enumerate(values):
        squares = draws.var(axis=0) * 3
        course = Moments(jnp.asarray(3.0), jnp.asarray(draws.mean(axis=0)), jnp.asarray(squares))
        courses = race.follow(courses, course, epoch // 2)
    for part in (0, 1):
        together = values[2 * part : 2 * part + 2].reshape(6, 2, 8)
        np.testing.assert_allclose(courses.mean[part], together.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(courses.squares[part], together.var(axis=0) * 6, rtol=1e-4)


def refuse(key, value, values, distribution):
    """A proposal of one's own that is never accepted."""
    return value + 1.0, jnp.full(value.shape, -jnp.inf)


def idle_model():
    x = numpyro.sample("x", dist.Normal(0, 1))
    stuck = numpyro.sample("stuck", dist.Normal(0, 1))
    with numpyro.plate("others", 6):
        numpyro.sample("idle", dist.Normal(0, 1))
    numpyro.deterministic("total", x + stuck)


@pytest.fixture(scope="module")
def idle_result():
    return adlmh.sample(
        3, idle_model, outputs=["total"], schedule=adlmh.influence(per="step"), blocks="never",
        proposals={"stuck": adlmh.custom(refuse), "*": adlmh.prior()}, num_chains=1024,
        num_superchains=2, num_warmup=1_600, num_samples=10, thinning=1, progress=False,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::adlmh_jax.ConvergenceWarning")
def test_idle_and_stuck_components_get_the_floor(idle_result):
    report = idle_result.schedule
    names = report.names
    share = report.race["share_of_uniform"][:, None]
    floor = share / len(names)
    assert np.all(share < 1.0)
    others = [i for i, name in enumerate(names) if name != "x"]
    np.testing.assert_allclose(report.weights[:, others], np.tile(floor, len(others)), rtol=1e-4)
    assert np.all(report.weights[:, names.index("x")] > 2.0 / len(names))
    assert report.race["race"].shape == (2, race.NUM_CANDIDATES)
    explained = report.learned["influence"]
    assert explained.shape == (2, 8, 1)
    np.testing.assert_allclose(explained[:, names.index("x")], 0.5, atol=0.1)
    np.testing.assert_allclose(explained[:, names.index("stuck")], 0.5, atol=0.1)
    assert np.all(explained[:, [names.index(f"idle[{i}]") for i in range(6)]] < 0.05)
    assert np.all(report.learned["mobility"][:, names.index("x")] > 0.8)  # a draw from the prior
    assert report.rewards is not None and report.counts is not None


def test_bad_units_of_worth_are_refused():
    with pytest.raises(ValueError, match='`per` must be "second" or "step"'):
        adlmh.influence(per="minute")


@pytest.mark.slow
@pytest.mark.parametrize("discrete", PROGRAMS, ids=lambda p: p.name)
def test_learned_weights_are_nearly_the_best(discrete):
    """Within 10 % of the least variance with exact moments, within 25 % with learned ones."""
    exact = prepare(discrete)
    number = exact.program.num_components
    kernels = np.array(
        [transition_matrix(exact, lambda state, k=k: np.eye(number)[k]) for k in range(number)]
    )
    columns = np.array(exact.states, float)
    found = [exact.program.evaluate(position_of(exact, state))[1] for state in exact.states]
    scalars = np.array([np.concatenate([np.ravel(v) for v in each.values()]) for each in found])
    outputs = np.concatenate(
        [orthonormal(column, exact.pi) for column in scalars.T if np.ptp(column)], axis=1
    )
    best = optimal_weights(kernels, exact.pi, outputs)
    least = asymptotic_variance(best, kernels, exact.pi, outputs)[0]
    weights = weights_from_moments(columns, kernels, exact.pi, outputs)
    assert asymptotic_variance(weights, kernels, exact.pi, outputs)[0] < 1.10 * least
    result = adlmh.sample(
        0, discrete.model, outputs=discrete.outputs, schedule=adlmh.influence(per="step"),
        proposals="prior", blocks="never", num_chains=256, num_superchains=4,
        num_warmup=10_000, num_samples=100, thinning=1, progress=False,
    )  # fmt: skip
    for alpha in np.asarray(result.schedule.weights, np.float64):
        found = asymptotic_variance(alpha / alpha.sum(), kernels, exact.pi, outputs)[0]
        assert found < 1.25 * least
