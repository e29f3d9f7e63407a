"""Every proposal against exact transition matrices; blocks; custom proposals; bad input."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exact import (
    PROGRAMS,
    DiscreteProgram,
    chains_at,
    check_balance,
    gibbs_matrix,
    position_of,
    prepare,
    state_of,
    transition_matrix,
)
from scipy import stats

import adlmh_jax as adlmh
from adlmh_jax.engine import step as steps
from adlmh_jax.model import compile_model
from adlmh_jax.proposals import plan_sites

GIBBS = importlib.import_module("adlmh_jax.moves.gibbs")
SCOPE = importlib.import_module("adlmh_jax.moves.scope")
PLANS = importlib.import_module("adlmh_jax.proposals.plan")
ENUMERABLE = [p for p in PROGRAMS if "support" not in p.name]


def random_weights(exact):
    weights = np.random.default_rng(0).dirichlet(np.ones(exact.program.num_components))
    return lambda state: weights


@pytest.fixture(params=[False, True], ids=["plain", "metropolised"])
def is_metropolised(request, monkeypatch):
    """Make Gibbs steps plain or metropolised, however many components there are."""
    monkeypatch.setattr(PLANS, "MIN_METROPOLISED", 0 if request.param else 1_000)
    return request.param


@pytest.mark.parametrize("discrete", ENUMERABLE, ids=lambda p: p.name)
def test_gibbs_keeps_posterior(discrete, is_metropolised):
    exact = prepare(discrete, {"*": adlmh.gibbs()})
    check_balance(exact, gibbs_matrix(exact, random_weights(exact)))


def certainty():
    """Values that are impossible, one that is certain, and one that is nearly so."""
    a = numpyro.sample("a", dist.Categorical(jnp.array([0.5, 0.0, 0.5])))
    b = numpyro.sample("b", dist.Categorical(jnp.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])[a // 2]))
    numpyro.sample("c", dist.Categorical(jnp.array([1e-9, 3e-9, 1.0])))
    numpyro.sample("d", dist.Bernoulli(0.5))
    numpyro.factor("even", jnp.where(b == 1, -jnp.inf, 0.0))


def test_metropolised_gibbs_at_the_edges():
    """What is certain stays; from what is nearly certain it goes as often as it comes back."""
    values = {"a": (0, 2), "b": (0, 2), "c": (0, 1, 2), "d": (0, 1)}
    exact = prepare(DiscreteProgram("certainty", certainty, values), {"*": adlmh.gibbs()})
    possible = exact.pi > 0
    exact.states = [state for state, is_in in zip(exact.states, possible, strict=True) if is_in]
    exact.pi = exact.pi[possible]
    matrices = [gibbs_matrix(exact, lambda state, k=k: np.eye(4)[k]) for k in range(4)]
    np.testing.assert_array_equal(matrices[0], np.eye(len(exact.states)))  # b decides on a
    np.testing.assert_array_equal(matrices[1], np.eye(len(exact.states)))
    for matrix in matrices[2:]:
        check_balance(exact, matrix)
    index = {state[2:]: i for i, state in enumerate(exact.states) if state[:2] == (0, 2)}
    from_likely, to_likely = (
        matrices[2][index[a], index[b]] for a, b in [((2, 0), (1, 0)), ((1, 0), (2, 0))]
    )
    # p of the rare values is 1e-9 and 3e-9: 1 - p of the likely one is their sum, to all digits.
    assert from_likely == pytest.approx(3e-9, rel=1e-4)
    assert to_likely == pytest.approx(1.0, abs=1e-6)
    assert matrices[3][index[2, 0], index[2, 1]] == pytest.approx(0.9, abs=1e-6)  # a fair coin


def test_metropolised_gibbs_goes_more_often(monkeypatch):
    """No other value is reached less often than by a plain step (Peskun's order)."""
    matrices = []
    for number in (1_000, 0):
        monkeypatch.setattr(PLANS, "MIN_METROPOLISED", number)
        exact = prepare(ENUMERABLE[2], {"*": adlmh.gibbs()})
        matrices.append(gibbs_matrix(exact, random_weights(exact)))
    plain, metropolised = matrices
    apart = ~np.eye(len(plain), dtype=bool)
    assert (metropolised - plain)[apart].min() > -1e-6
    assert np.trace(metropolised) < 0.9 * np.trace(plain)


def test_few_entries_have_plain_gibbs_steps():
    plan = plan_sites(compile_model(counts), {"*": adlmh.gibbs()}, "never")
    assert not any(v.is_metropolised for site in plan.sites.values() for v in site.variants)


def unnormalised(patch):
    """Mutant: scores are taken for probabilities without being divided by their sum."""

    def pick(scores, uniforms):
        upper = jnp.cumsum(jnp.exp(scores - jnp.max(scores, axis=0)), axis=0)
        return jnp.sum(uniforms > upper[:-1], axis=0)

    patch.setattr(GIBBS, "pick", pick)


def always_accepted(patch):
    """Mutant: the other value is always taken."""
    real = GIBBS.draw_other

    def draw(*args):
        chosen, log_ratio = real(*args)
        return chosen, jnp.zeros_like(log_ratio)

    patch.setattr(GIBBS, "draw_other", draw)


def other_way_round(patch):
    """Mutant: the ratio is turned upside down."""
    real = GIBBS.draw_other

    def draw(scores, is_here, uniforms):
        chosen, _ = real(scores, is_here, uniforms)
        numbers = jnp.arange(scores.shape[0]).reshape(-1, *(1 for _ in chosen.shape))
        log_sums = [
            jax.nn.logsumexp(jnp.where(is_out, -jnp.inf, scores), axis=0)
            for is_out in (numbers == chosen, is_here)
        ]
        return chosen, jnp.minimum(log_sums[0] - log_sums[1], 0.0)

    patch.setattr(GIBBS, "draw_other", draw)


@pytest.mark.parametrize("mutate", [unnormalised, always_accepted, other_way_round])
def test_wrong_gibbs_is_caught(mutate, monkeypatch):
    monkeypatch.setattr(PLANS, "MIN_METROPOLISED", 1_000 if mutate is unnormalised else 0)
    mutate(monkeypatch)
    exact = prepare(ENUMERABLE[0], {"*": adlmh.gibbs()})
    with pytest.raises(AssertionError):
        check_balance(exact, gibbs_matrix(exact, random_weights(exact)))


def counts():
    """Integers with a boundary on both sides, one of them set by another choice."""
    a = numpyro.sample("a", dist.Binomial(4, 0.6))
    b = numpyro.sample("b", dist.DiscreteUniform(0, 3))
    numpyro.sample("y", dist.Normal(a - b, 1.0), obs=1.5)


COUNTS = DiscreteProgram("counts", counts, {"a": range(5), "b": range(4)})


def walk_probability(exact, component, old, new):
    """A step is +-k with probability (1/2) 2**-k at scale 1."""
    return 0.5 * 2.0 ** -abs(new[component] - old[component])


def test_integer_walk_keeps_posterior():
    exact = prepare(COUNTS, {"*": adlmh.random_walk()})
    matrix = transition_matrix(exact, random_weights(exact), walk_probability)
    check_balance(exact, matrix)


def test_integer_walk_boundary_mutant_is_caught(monkeypatch):
    """Folding a step back at the boundary, without its ratio, is an error that must show."""
    walks = importlib.import_module("adlmh_jax.proposals.random_walk")
    real = walks.walk_integers

    def folded(key, value, fn, values, scale):
        new, _ = real(key, value + 0, fn, values, scale)
        return jnp.where(new == value, jnp.maximum(value - 1, 0), new), jnp.zeros(value.shape)

    monkeypatch.setattr(walks, "walk_integers", folded)
    exact = prepare(COUNTS, {"*": adlmh.random_walk()})

    def seen(exact, component, old, new):
        kept = walk_probability(exact, component, old, new)
        return kept + (0.5 if new[component] == max(old[component] - 1, 0) else 0.0)

    with pytest.raises(AssertionError):
        check_balance(exact, transition_matrix(exact, random_weights(exact), seen))


def block_frequencies(exact, state, num_chains, seed):
    """Return how often a block move of ``z`` leads from a state to each other one."""
    entry = exact.kernel.num_entries - 1
    rng = np.random.default_rng(seed)
    shape = (exact.kernel.num_words, num_chains)
    words = jnp.asarray(rng.integers(0, 2**32, shape, dtype=np.uint32))
    start = chains_at(exact, state, num_chains)
    chains, _, _ = steps.move(exact.kernel, exact.data, words, start, entry)
    found = state_of(exact, chains)
    return np.array([found.count(other) for other in exact.states])


def independent_plate():
    a = numpyro.sample("a", dist.Bernoulli(0.4))
    with numpyro.plate("items", 3):
        z = numpyro.sample("z", dist.Bernoulli(0.2 + 0.5 * a))
        numpyro.sample("y", dist.Normal(z, 0.8), obs=jnp.array([0.1, 0.9, 0.4]))


PLATE = DiscreteProgram("plate", independent_plate, {"a": (0, 1), "z": (0, 1)})


def block_kernel(exact, state, kind):
    """Return the exact probabilities of a block move: a product over elements."""
    scores = {}
    for other in exact.states:
        position = position_of(exact, other)
        terms, _ = exact.program.evaluate(position)
        scores[other] = np.asarray(terms["z"] + terms["y"]), np.asarray(terms["z"])
    row = []
    for other in exact.states:
        if other[0] != state[0]:
            row.append(0.0)
            continue
        probability = 1.0
        for e in range(3):
            pair = {}
            for v in (0, 1):
                flipped = (state[0], *(v if i == e else s for i, s in enumerate(state[1:])))
                pair[v] = scores[flipped][0][e], scores[flipped][1][e]
            old, new = state[1 + e], other[1 + e]
            total = np.logaddexp(pair[0][0], pair[1][0])
            if kind == "gibbs":
                probability *= np.exp(pair[new][0] - total)
            elif kind == "metropolised":
                here, there = (np.exp(pair[v][0] - total) for v in (old, 1 - old))
                leave = max(0.9 * min(1.0, there / here), there)
                probability *= leave if new != old else 1.0 - leave
            else:
                target = pair[1 - old][0] - pair[old][0]
                ratio = target - (pair[1 - old][1] - pair[old][1])
                leave = np.exp(pair[1 - old][1]) * min(1.0, np.exp(ratio))
                probability *= leave if new != old else 1.0 - leave
        row.append(probability)
    return np.array(row)


@pytest.mark.parametrize("kind", ["gibbs", "metropolised", "prior"])
def test_block_moves_each_element_by_its_own_kernel(kind, monkeypatch):
    """Chi-square tests of eight states at a false-alarm rate of 1e-5 each."""
    monkeypatch.setattr(PLANS, "MIN_METROPOLISED", 0 if kind == "metropolised" else 1_000)
    proposal = adlmh.prior() if kind == "prior" else adlmh.gibbs()
    exact = prepare(PLATE, {"*": proposal}, blocks="auto")
    assert exact.kernel.num_entries == 2
    num_chains = 40000
    for seed, state in enumerate(exact.states[::2]):
        expected = block_kernel(exact, state, kind) * num_chains
        found = block_frequencies(exact, state, num_chains, seed)
        possible = expected > 0
        assert found[~possible].sum() == 0
        statistic = np.sum((found - expected)[possible] ** 2 / expected[possible])
        assert statistic < stats.chi2.isf(1e-5, possible.sum() - 1)


def test_values_and_decisions_of_a_block_have_words_of_their_own():
    exact = prepare(PLATE, {"*": adlmh.gibbs()}, blocks="auto")
    branch = exact.kernel.groups[-1].branch
    words = jnp.arange(branch.num_words, dtype=jnp.uint32)
    scope = SCOPE.Block(branch, words, SCOPE.Pace(jnp.ones(())))
    assert not np.any(scope.value_words() == scope.accept_words())


def test_block_on_dependent_elements_is_caught(monkeypatch):
    """The plate of `plate and global` meets in a factor: it must not be a block."""
    discrete = next(p for p in PROGRAMS if p.name == "plate and global")
    program = compile_model(discrete.model, outputs=discrete.outputs)
    assert not plan_sites(program).sites["z"].is_block
    assert compile_model(independent_plate).is_block("z")


def test_auto_says_what_it_chose():
    def model():
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        count = numpyro.sample("count", dist.Poisson(3.0))
        with numpyro.plate("n", 4):
            z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
            numpyro.sample("y", dist.Normal(mu + z, 1.0 + count), obs=jnp.zeros(4))

    assert plan_sites(compile_model(model)).describe() == {
        "mu": "random_walk() | prior(); moves with `count`, `z` summed out",
        "count": "random_walk() | prior(); moves with `z` summed out",
        "z": "gibbs(), all elements at once",
    }
    assert plan_sites(compile_model(model), blocks="never").describe() == {
        "mu": "random_walk() | prior()",
        "count": "random_walk() | prior()",
        "z": "gibbs()",
    }


def shares_of(proposal):
    """Return the shares of the second variant before and after a short run."""
    result = adlmh.sample(
        0, target, proposals={"x": proposal}, num_chains=8, num_superchains=2, num_warmup=200,
        num_samples=1, progress=False,
    )  # fmt: skip
    return np.asarray(result.state.superchains.tuning.second_share)


def test_a_given_share_is_kept():
    mixed = adlmh.mixture(adlmh.random_walk(), adlmh.prior(), 0.2)
    assert str(mixed) == "mixture(random_walk(), prior(), 0.2)"
    np.testing.assert_allclose(shares_of(mixed), 0.2, rtol=1e-6)


def test_a_share_is_learned_unless_it_is_given():
    assert np.all(shares_of(adlmh.random_walk() | adlmh.prior()) != 0.5)


def test_a_proposal_of_ones_own_has_half_the_steps():
    def mirror(key, value, values, distribution):
        return 1.0 / value, -2.0 * jnp.log(value)

    assert np.all(shares_of(adlmh.random_walk() | adlmh.custom(mirror)) == 0.5)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_shares_outside_of_0_and_1_are_refused(share):
    with pytest.raises(ValueError, match="`share` of a mixture must be between 0 and 1"):
        adlmh.mixture(adlmh.prior(), adlmh.random_walk(), share)


def target():
    x = numpyro.sample("x", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=1.0)


def test_custom_proposal_is_right():
    """A multiplicative step, with its ratio; against quadrature at 1e-5 by superchains."""

    def multiply(key, value, values, distribution):
        factor = jnp.exp(0.8 * jax.random.normal(key, value.shape))
        return value * factor, jnp.log(factor)

    result = adlmh.sample(
        3, target, proposals={"x": multiply}, num_chains=256, num_superchains=16,
        num_warmup=100, num_samples=400, progress=False,
    )  # fmt: skip
    grid = np.linspace(1e-4, 12, 20001)
    weights = stats.gamma.pdf(grid, 2.0) * stats.norm.pdf(1.0, grid, 1.0)
    mean = np.sum(grid * weights) / np.sum(weights)
    means = result.draws["x"].reshape(16, -1).mean(axis=1)
    error = (means.mean() - mean) / (means.std(ddof=1) / 4)
    assert abs(error) < stats.t.isf(0.5e-5, 15)
    assert result.proposals == {"x": "custom(multiply)"}


BAD_CUSTOM = {
    "returned a value of shape": lambda key, value, values, d: (jnp.zeros(2), 0.0),
    "dtype int32": lambda key, value, values, d: (jnp.zeros((), jnp.int32), 0.0),
    "must return": lambda key, value, values, d: value,
    "log ratios of shape": lambda key, value, values, d: (value, jnp.zeros(3)),
}


@pytest.mark.parametrize("message", BAD_CUSTOM)
def test_bad_custom_proposals(message):
    with pytest.raises(ValueError, match=message):
        adlmh.sample(0, target, proposals={"x": BAD_CUSTOM[message]}, progress=False)


def test_nan_of_a_custom_proposal_is_rejected_and_counted():
    def broken(key, value, values, distribution):
        return value * jnp.nan, jnp.zeros(())

    with pytest.warns(UserWarning, match="NaN or .inf and were rejected"):
        result = adlmh.sample(
            0, target, proposals={"x": broken}, num_chains=4, num_warmup=0, num_samples=2,
            progress=False,
        )  # fmt: skip
    assert np.isfinite(result.draws["x"]).all()
    assert (result.schedule.invalid == result.schedule.selected).all()


@pytest.mark.parametrize(
    ("proposals", "error", "message"),
    [
        ({"z*": adlmh.gibbs()}, ValueError, "No latent site matches `z\\*`"),
        ({"x": adlmh.gibbs()}, ValueError, "`x` cannot have `gibbs\\(\\)`"),
        ({"x": 3}, TypeError, "proposal of `x`"),
        ("best", ValueError, "`proposals` must be"),
    ],
)
def test_bad_proposals(proposals, error, message):
    with pytest.raises(error, match=message):
        plan_sites(compile_model(target), proposals)


def test_bad_blocks():
    with pytest.raises(ValueError, match="`blocks` must be"):
        plan_sites(compile_model(target), "auto", "sometimes")


def test_mixtures_have_two_parts():
    with pytest.raises(ValueError, match="two proposals"):
        adlmh.prior() | adlmh.random_walk() | adlmh.prior()
    with pytest.raises(ValueError, match="tries all values"):
        adlmh.gibbs() | adlmh.prior()


def pair():
    with numpyro.plate("items", 2):
        numpyro.sample("x", dist.Categorical(jnp.ones(3) / 3))


def copy_other(key, value, values, distribution):
    """Take the other element's value, or stay: symmetric one at a time, wrong for both at once."""
    other = values["x"][::-1]
    moves = jax.random.bernoulli(key, 0.5, value.shape)
    new = jnp.where(moves, jnp.where(other == value, (value + 1) % 3, other), value)
    return new.astype(value.dtype), jnp.where(moves & (other != value), -jnp.inf, 0.0)


def test_a_custom_proposal_that_looks_at_other_elements_does_not_move_as_a_block():
    program = compile_model(pair)
    assert not plan_sites(program, {"x": copy_other}).sites["x"].is_block
    assert (
        not plan_sites(program, {"x": adlmh.prior() | adlmh.custom(copy_other)}).sites["x"].is_block
    )
    elementwise = adlmh.custom(copy_other, elementwise=True)
    assert plan_sites(program, {"x": elementwise}).sites["x"].is_block


def look_around(key, value, values, distribution):
    """Step by one or two, away from where the other element is: symmetric given the other."""
    other = values["x"][::-1]
    step = 1 + jax.random.bernoulli(key, 0.5, value.shape)
    new = (value + step) % 3
    is_free = (new != other) & (value != other)
    return jnp.where(is_free, new, value).astype(value.dtype), jnp.zeros(value.shape)


def test_single_elements_are_right_where_a_block_is_wrong():
    """P(x0 == x1) = 1/3 under the prior; look_around never joins, so prior draws must mix in."""
    mixed = adlmh.mixture(adlmh.prior(), adlmh.custom(look_around), 0.5)
    result = adlmh.sample(
        0, pair, proposals={"x": mixed}, num_chains=256, num_superchains=16, num_warmup=20,
        num_samples=200, progress=False,
    )  # fmt: skip
    equal = (result.draws["x"][..., 0] == result.draws["x"][..., 1]).reshape(16, -1).mean(axis=1)
    error = (equal.mean() - 1 / 3) / (equal.std(ddof=1) / 4)
    assert abs(error) < stats.t.isf(0.5e-5, 15)


class Levels(dist.Distribution):
    """Three values that are no integers."""

    support = dist.constraints.real
    has_enumerate_support = True
    values = np.array([0.25, 0.5, 1.75], np.float32)

    def sample(self, key, sample_shape=()):
        return jnp.asarray(self.values)[jax.random.randint(key, sample_shape, 0, 3)]

    def log_prob(self, value):
        return jnp.where(jnp.isin(value, self.values), -jnp.log(3.0), -jnp.inf)

    def enumerate_support(self, expand=True):
        return jnp.asarray(self.values)


def levels():
    x = numpyro.sample("x", Levels())
    numpyro.sample("y", dist.Normal(x, 0.5), obs=0.6)


def test_float_supports_keep_their_values():
    discrete = DiscreteProgram("levels", levels, {"x": (0.25, 0.5, 1.75)})
    program = compile_model(discrete.model)
    assert program.sites["x"].candidates == (0.25, 0.5, 1.75)
    result = adlmh.sample(
        0, levels, num_chains=256, num_superchains=16, num_warmup=10, num_samples=100,
        progress=False,
    )  # fmt: skip
    assert result.proposals["x"] == "gibbs()"
    assert set(np.unique(result.draws["x"])) == {0.25, 0.5, 1.75}
    weights = stats.norm.pdf(0.6, [0.25, 0.5, 1.75], 0.5)
    means = result.draws["x"].reshape(16, -1).mean(axis=1)
    error = means.mean() - np.dot(weights, [0.25, 0.5, 1.75]) / weights.sum()
    assert abs(error) / (means.std(ddof=1) / 4) < stats.t.isf(0.5e-5, 15)


def bracketed():
    for name in ("x[0]", "x[1]", "x0"):
        numpyro.sample(name, dist.Normal(0.0, 1.0))


def test_exact_names_win_over_globs():
    program = compile_model(bracketed)
    chosen = {"x[0]": adlmh.prior(), "x*": adlmh.random_walk()}
    texts = {name: plan.text for name, plan in plan_sites(program, chosen).sites.items()}
    assert texts == {"x[0]": "prior()", "x[1]": "random_walk()", "x0": "random_walk()"}


def test_two_outputs_of_one_name_are_refused():
    def model():
        numpyro.sample("x", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        numpyro.sample("x[0]", dist.Normal(0.0, 1.0))

    with pytest.raises(adlmh.ModelError, match=r"Two outputs are called `x\[0\]`"):
        compile_model(model)
    compile_model(model, outputs=["x"])
