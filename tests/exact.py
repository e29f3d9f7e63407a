"""Small discrete programs, their exact posterior, and their exact transition matrix.

The matrix is assembled from the production `move`: many chains stand at the same state, each with
its own random words, and `move` tells where each would go and with which ratio.
"""

import functools
import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.util import log_density
from updates import one_step

from adlmh_jax.model import compile_model
from adlmh_jax.moves import build_kernel
from adlmh_jax.proposals import plan_sites
from adlmh_jax.types import Chains

NUM_WORDS = 512  # chains with random words at each state: enough to meet every outcome


@dataclass(frozen=True)
class DiscreteProgram:
    """A model whose sites take the listed values."""

    name: str
    model: object
    values: dict
    outputs: object = None


def chain():
    """A hidden chain of three states with observations."""
    transition = jnp.array([[0.1, 0.9], [0.6, 0.4]])
    a = numpyro.sample("a", dist.Bernoulli(0.3))
    b = numpyro.sample("b", dist.Categorical(transition[a]))
    numpyro.sample("y_b", dist.Normal(b, 1.0), obs=0.8)
    c = numpyro.sample("c", dist.Categorical(transition[b]))
    numpyro.sample("y_c", dist.Poisson(1.0 + c), obs=3)


def common_child():
    """Two parents, one latent child."""
    a = numpyro.sample("a", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    b = numpyro.sample("b", dist.Bernoulli(logits=0.4))
    numpyro.sample("c", dist.Binomial(2, jax.nn.sigmoid(a - 1.5 * b)))


def observed_collider():
    """Two independent causes of one observation, one of them scaled and masked elsewhere."""
    a = numpyro.sample("a", dist.DiscreteUniform(1, 4))
    with numpyro.handlers.scale(scale=2.5):
        b = numpyro.sample("b", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
    c = numpyro.sample("c", dist.Bernoulli(0.2).mask(False))
    numpyro.sample("y", dist.Normal(a + b - c, 0.7), obs=4.0)
    numpyro.deterministic("sum", a + b)


def nested_support():
    """The support of one choice shrinks and grows with another."""
    a = numpyro.sample("a", dist.DiscreteUniform(1, 3))
    b = numpyro.sample("b", dist.DiscreteUniform(1, a))
    numpyro.sample("y", dist.Normal(a * b, 2.0), obs=3.0)


def shifting_support():
    """Supports that need not overlap, one depending on the other."""
    a = numpyro.sample("a", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
    b = numpyro.sample("b", dist.DiscreteUniform(2 * a, 2 * a + 1))
    c = numpyro.sample("c", dist.DiscreteUniform(b, b + 1))
    numpyro.sample("y", dist.Normal(c, 2.0), obs=2.0)


def plate_and_global():
    """A plate of choices under a global one; elements of the plate also meet in a factor."""
    a = numpyro.sample("a", dist.Bernoulli(0.4))
    with numpyro.plate("items", 3):
        z = numpyro.sample("z", dist.Bernoulli(0.2 + 0.5 * a))
        numpyro.sample("y", dist.Normal(z, 0.8), obs=jnp.array([0.1, 0.9, 0.4]))
    numpyro.factor("together", -0.3 * (z.sum() - 1.0) ** 2)
    return z.sum()


PROGRAMS = (
    DiscreteProgram("chain", chain, {"a": (0, 1), "b": (0, 1), "c": (0, 1)}),
    DiscreteProgram("common child", common_child, {"a": (0, 1, 2), "b": (0, 1), "c": (0, 1, 2)}),
    DiscreteProgram(
        "observed collider",
        observed_collider,
        {"a": (1, 2, 3, 4), "b": (0, 1, 2), "c": (0, 1)},
        ["sum", "c"],
    ),
    DiscreteProgram("nested support", nested_support, {"a": (1, 2, 3), "b": (1, 2, 3)}),
    DiscreteProgram(
        "shifting support",
        shifting_support,
        {"a": (0, 1, 2), "b": range(6), "c": range(7)},
    ),
    DiscreteProgram("plate and global", plate_and_global, {"a": (0, 1), "z": (0, 1)}, "return"),
)


@dataclass
class Exact:
    """A compiled discrete program with its states and its posterior."""

    program: object
    kernel: object
    data: object
    states: list
    pi: np.ndarray
    beta: float = 1.0


def prepare(discrete: DiscreteProgram, proposals="prior", blocks="never", beta=1.0) -> Exact:
    """Compile a program and enumerate its states; terms of the data count ``beta`` times."""
    program = compile_model(discrete.model, outputs=discrete.outputs)
    kernel, data = build_kernel(program, plan_sites(program, proposals, blocks))
    axes = []
    for site in program.sites.sites:
        columns = [discrete.values[site.name]] * site.num_components
        axes.append([np.array(v).reshape(site.shape) for v in itertools.product(*columns)])
    all_values = list(itertools.product(*axes))
    columns = zip(program.sites.sites, zip(*all_values, strict=True), strict=True)
    positions = {site.name: jnp.asarray(np.stack(v), site.dtype) for site, v in columns}
    model = numpyro.handlers.seed(discrete.model, 0)

    @jax.jit
    @jax.vmap
    def score(position):
        total, trace = log_density(model, (), {}, position)
        prior = sum(_log_prior_term(trace[name]) for name in position)
        tempered = total if beta == 1.0 else prior + beta * (total - prior)
        return tempered, _is_supported(discrete.model, position)

    log_densities, is_inside = map(np.asarray, score(positions))
    states = [
        tuple(int(v) for value in values for v in np.ravel(value))
        for values, inside in zip(all_values, is_inside, strict=True)
        if inside
    ]
    log_pi = log_densities[is_inside].tolist()
    pi = np.exp(np.array(log_pi) - max(log_pi))
    return Exact(program, kernel, data, states, pi / pi.sum(), beta)


def _log_prior_term(message):
    scale = 1.0 if message["scale"] is None else message["scale"]
    return jnp.sum(scale * message["fn"].log_prob(message["value"]))


def _is_supported(model, position):
    trace = _trace(model, position)
    latent = [m for m in trace.values() if m["type"] == "sample" and not m["is_observed"]]
    return jnp.all(jnp.stack([jnp.all(m["fn"].support(m["value"])) for m in latent]))


def _trace(model, position):
    seeded = numpyro.handlers.seed(model, 0)
    return numpyro.handlers.trace(numpyro.handlers.substitute(seeded, data=position)).get_trace()


def position_of(exact: Exact, state: tuple) -> dict:
    """Return the dict of values of a state."""
    position, start = {}, 0
    for site in exact.program.sites.sites:
        end = start + site.num_components
        value = np.array(state[start:end]).reshape(site.shape)
        position[site.name] = jnp.asarray(value, site.dtype)
        start = end
    return position


def chains_at(exact: Exact, state: tuple, num_chains: int) -> Chains:
    """Return chains that all stand at one state."""
    position = position_of(exact, state)
    many = {n: jnp.broadcast_to(v, (num_chains, *v.shape)) for n, v in position.items()}
    return exact.program.chains_at(many)


def state_of(exact: Exact, chains: Chains) -> list:
    """Return the state of every chain."""
    values = exact.program.latent_layout.unpack(chains.latent)
    columns = [np.asarray(v).reshape(v.shape[0], -1) for v in values.values()]
    return [tuple(int(v) for v in row) for row in np.concatenate(columns, axis=1)]


def log_prior(exact: Exact, name: str, position: dict) -> np.ndarray:
    """Return the log prior of each element of a site, from NumPyro, without scale and mask."""
    fn = _trace(exact.program.call.model, position)[name]["fn"]
    while isinstance(fn, dist.MaskedDistribution):
        fn = fn.base_dist
    return np.asarray(fn.log_prob(position[name])).reshape(-1)


def proposal_probability(exact: Exact, component: int, old: tuple, new: tuple) -> float:
    """Return the probability that a prior proposal of ``component`` leads from old to new.

    The component is redrawn; so is every later choice that is outside its support, in order.
    """
    sites = exact.program.sites
    moved = sites.sites[sites.site_of[component]].name
    element = component - sites.first_components[moved]
    target = position_of(exact, new)
    position = position_of(exact, old)
    value = np.array(position[moved]).reshape(-1)
    value[element] = np.array(target[moved]).reshape(-1)[element]
    position[moved] = jnp.asarray(value.reshape(target[moved].shape))
    log_q = log_prior(exact, moved, position)[element]
    for site in sites.sites[sites.site_of[component] + 1 :]:
        fn = _trace(exact.program.call.model, position)[site.name]["fn"]
        if not bool(jnp.all(fn.support(position[site.name]))):
            position[site.name] = target[site.name]
            log_q += log_prior(exact, site.name, position).sum()
    assert all(np.array_equal(position[name], target[name]) for name in target)
    return float(np.exp(log_q))


def check_reaches_everything(exact: Exact) -> None:
    """From any state the chain comes to its posterior."""
    num_components = exact.program.num_components
    matrix = transition_matrix(exact, lambda state: np.full(num_components, 1 / num_components))
    reached = np.linalg.matrix_power(matrix, 5000)
    np.testing.assert_allclose(reached, np.broadcast_to(exact.pi, matrix.shape), atol=1e-3)


def transition_matrix(exact: Exact, alpha, probability=proposal_probability) -> np.ndarray:
    """Assemble P from the production `move`.

    ``alpha(state)`` are the selection weights, ``probability`` that of a proposal.
    """
    index = {state: i for i, state in enumerate(exact.states)}
    matrix = np.zeros((len(index), len(index)))
    rng = np.random.default_rng(0)
    shape = (exact.kernel.num_words, NUM_WORDS)
    words = jnp.asarray(rng.integers(0, 2**32, shape, dtype=np.uint32)).at[0].set(0)
    step = jax.jit(lambda data, ch, k: one_step(exact.kernel, data, words, ch, k, beta=exact.beta))
    for state in exact.states:
        start = chains_at(exact, state, NUM_WORDS)
        row = index[state]
        for component in range(exact.program.num_components):
            # The accept word is 0, so that every proposal of a ratio above 1e-10 is taken.
            chains, moved = step(exact.data, start, component)
            check_cache(exact, chains)
            ratios = dict(zip(state_of(exact, chains), np.asarray(moved.log_ratio), strict=True))
            for new, log_ratio in ratios.items():
                if new != state:
                    q = probability(exact, component, state, new)
                    matrix[row, index[new]] += (
                        alpha(state)[component] * q * min(1.0, np.exp(float(log_ratio)))
                    )
        matrix[row, row] = 1.0 - matrix[row].sum()
    return matrix


def gibbs_matrix(exact: Exact, alpha) -> np.ndarray:
    """Assemble P of Gibbs steps, plain or metropolised, from the production `move`.

    The proposed value is a step function of one random word: its steps are found by bisection.
    """
    index = {state: i for i, state in enumerate(exact.states)}
    matrix = np.zeros((len(index), len(index)))
    decide = functools.partial(one_step, exact.kernel, beta=exact.beta)
    step = jax.jit(lambda data, w, ch, k: decide(data, w, ch, k))
    for state in exact.states:
        row = index[state]
        for component in range(exact.program.num_components):
            site = exact.program.sites.sites[exact.program.sites.site_of[component]]
            start = chains_at(exact, state, len(site.candidates))

            def propose(words, start=start, component=component, site=site):
                """Return which candidates the words propose, and with which ratio."""
                many = np.tile(words.astype("u4"), (exact.kernel.num_words, 1))
                many[0] = 0  # every proposal of a ratio above 1e-10 is taken
                chains, decision = step(exact.data, jnp.asarray(many), start, component)
                values = np.array(state_of(exact, chains))[:, component]
                return np.array([site.candidates.index(v) for v in values]), decision.log_ratio

            bounds = _find_bounds(propose, len(site.candidates))
            drawn, log_ratio = propose((bounds[:-1] + bounds[1:]) // 2)
            taken = np.minimum(1.0, np.exp(np.asarray(log_ratio, np.float64)))
            for number, share in enumerate(np.diff(bounds) / 2**32):
                new = (*state[:component], site.candidates[number], *state[component + 1 :])
                if new not in index:
                    assert share < 1e-9
                elif new != state and share > 0.0:
                    assert drawn[number] == number
                    matrix[row, index[new]] += alpha(state)[component] * share * taken[number]
        matrix[row, row] = 1.0 - matrix[row].sum()
    return matrix


def _find_bounds(propose, number: int) -> np.ndarray:
    """Return the words from which on the next candidate is drawn, by bisection."""
    low, high = np.zeros(number, np.int64), np.full(number, 2**32, np.int64)
    for _ in range(33):  # low: the number of words that draw candidate i or an earlier one
        middle = (low + high) // 2
        drawn, _ = propose(np.minimum(middle, 2**32 - 1))
        is_below = (drawn <= np.arange(number)) & (middle < 2**32)
        low, high = np.where(is_below, middle + 1, low), np.where(is_below, high, middle)
    return np.concatenate([[0], np.minimum(low[:-1], 2**32), [2**32]])


def check_cache(exact: Exact, chains: Chains) -> None:
    """Terms and outputs kept by the chains are those of their position."""
    position = exact.program.latent_layout.unpack(chains.latent)
    fresh = exact.program.chains_at(position)
    tolerance = 1e-5 if chains.log_terms.dtype == jnp.float32 else 1e-12
    for kept, true in zip(jax.tree.leaves(chains), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_allclose(kept, true, rtol=tolerance, atol=tolerance)


def check_balance(exact: Exact, matrix: np.ndarray, tolerance: float | None = None) -> None:
    """Detailed balance, and pi P = pi."""
    tolerance = tolerance or (1e-12 if jax.config.jax_enable_x64 else 1e-6)
    assert (matrix > -tolerance).all()
    flow = exact.pi[:, None] * matrix
    assert np.abs(flow - flow.T).max() < tolerance
    assert np.abs(exact.pi @ matrix - exact.pi).max() < tolerance


def check_decisions(exact: Exact) -> None:
    """A proposal is taken exactly when u < ratio: looked at closely on both sides of the ratio."""
    near = 2e-4
    met = 0
    rng = np.random.default_rng(1)
    shape = (exact.kernel.num_words, NUM_WORDS)
    words = jnp.asarray(rng.integers(0, 2**32, shape, dtype=np.uint32))
    step = jax.jit(
        lambda data, w, ch, k: one_step(exact.kernel, data, w, ch, k, beta=exact.beta)[1]
    )
    for state in exact.states[:4]:
        start = chains_at(exact, state, NUM_WORDS)
        for component in range(exact.program.num_components):
            moved = step(exact.data, words, start, component)
            ratio = np.exp(np.asarray(moved.log_ratio, np.float64))
            inside = (ratio > 1e-3) & (ratio < 1.0 - 1e-3)
            met += inside.sum()
            for factor, expected in ((1.0 - near, True), (1.0 + near, False)):
                u = np.clip(ratio * factor * 2.0**32, 0, 2**32 - 1).astype(np.uint32)
                decided = step(exact.data, words.at[0].set(u), start, component).is_accepted
                assert (np.asarray(decided)[inside] == expected).all()
    assert met > 0
