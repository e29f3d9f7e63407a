"""Sites that walk together leave the distribution as it is: chains that begin there stay there."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from adlmh_jax.engine import address, start_superchains
from adlmh_jax.engine.entry import first_steps
from adlmh_jax.engine.step import locate_walks, move
from adlmh_jax.model import compile_model
from adlmh_jax.moves import build_kernel, walk
from adlmh_jax.proposals import plan_sites
from adlmh_jax.proposals.base import Plan

NUM_CHAINS = 20_000
NUM_MOVES = 30
FALSE_ALARM = 1e-5


def constrained():
    """A site of each kind of support, which hang on each other; no data."""
    scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
    share = numpyro.sample("share", dist.Beta(2.0, 3.0))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([2.0, 3.0, 1.5])))
    numpyro.sample("x", dist.Normal(share + weights[0], 0.3 * scale))


def counted():
    """Counts whose mean moves, and a kind that is summed out."""
    rate = numpyro.sample("rate", dist.Gamma(4.0, 1.0))
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    with numpyro.plate("places", 3):
        numpyro.sample("count", dist.Poisson(rate * jnp.exp(0.3 * level)))
    numpyro.sample("kind", dist.Bernoulli(logits=level))


def run(model, names):
    """Return draws of the prior of all sites, and where a walk of all of them brings them."""
    program = compile_model(model)
    plan = plan_sites(program)
    walks = tuple(joint for joint in plan.joint if joint.variants[0].is_walk)
    assert [set(joint.movers) for joint in walks] == [set(names)]
    alone = {name: plan.sites[name] for name in names[:1]}
    kernel, data = build_kernel(program, Plan(alone, walks))
    entry = kernel.walks[0][0]
    started = start_superchains(program, address([jax.random.key(1)], [0]), NUM_CHAINS)
    before = jax.tree.map(lambda leaf: leaf[0], started.chains)
    spread = jnp.cov(locate_walks(kernel, data, before)[0])
    steps = first_steps(kernel)._replace(factors=0.8 * jnp.linalg.cholesky(spread)[None])

    @jax.jit
    def go(chains, key):
        words = jax.random.bits(key, (kernel.num_words, NUM_CHAINS), "uint32")
        return move(kernel, data, words, chains, entry, steps=steps)[:2]

    after, shares = before, []
    for key in jax.random.split(jax.random.key(2), NUM_MOVES):
        after, info = go(after, key)
        shares.append(float(np.mean(info.is_accepted)))
    assert 0.05 < np.mean(shares) < 0.999
    unpack = program.latent_layout.unpack
    return [{n: np.asarray(v) for n, v in unpack(c.latent).items()} for c in (before, after)]


def check_stays(model, names):
    """Every number, and products of numbers, have the distribution that they had."""
    before, after = run(model, names)
    for name in before:
        old, new = (values[name].reshape(NUM_CHAINS, -1) for values in (before, after))
        assert np.mean(old != new) > 0.3
        for column in range(old.shape[1]):
            assert stats.ks_2samp(old[:, column], new[:, column]).pvalue > FALSE_ALARM, name
    for first, second in [(a, b) for a in before for b in before if a < b]:
        old, new = (
            values[first].reshape(NUM_CHAINS, -1)[:, 0]
            * values[second].reshape(NUM_CHAINS, -1)[:, 0]
            for values in (before, after)
        )
        assert stats.ks_2samp(old, new).pvalue > FALSE_ALARM, (first, second)


CASES = {
    "constrained": (constrained, ("scale", "share", "weights", "x")),
    "counted": (counted, ("rate", "level")),
}


@pytest.mark.parametrize("name", CASES)
def test_walk_keeps_the_distribution(name):
    check_stays(*CASES[name])


def no_jacobian(patch):
    real = walk.Walk.propose
    patch.setattr(walk.Walk, "propose", lambda *args: (real(*args)[0], 0.0 * real(*args)[1]))


def riders_lag_behind(patch):
    real = walk.Rider.follow

    def follow(self, old, new):
        values, is_inside = real(self, old, new)
        return jnp.maximum(old[self.number], values), is_inside

    patch.setattr(walk.Rider, "follow", follow)


def riders_fall_out(patch):
    real = walk.Rider.follow

    def follow(self, old, new):
        values, is_inside = real(self, old, new)
        return jnp.where(is_inside, values, 0), jnp.ones((), bool)

    patch.setattr(walk.Rider, "follow", follow)


@pytest.mark.parametrize(
    ("mutate", "name"),
    [
        (no_jacobian, "constrained"),
        (riders_lag_behind, "counted"),
        (riders_fall_out, "counted"),
    ],
)
def test_mutant_is_caught(mutate, name, monkeypatch):
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        check_stays(*CASES[name])


def test_normals_are_symmetric():
    """A word and the word of the other sign give numbers that differ in sign alone."""
    program = compile_model(constrained)
    kernel, _ = build_kernel(program, plan_sites(program))
    branch = kernel.groups[kernel.walks[0][1]].branch
    words = np.random.default_rng(0).integers(0, 2**32, kernel.num_words, np.uint32)
    words[1:3] = 0xFFFFFFFE, 0
    one, other = (branch.walk._normals(jnp.asarray(w)) for w in (words, words ^ 1))
    assert np.isfinite(one).all()
    np.testing.assert_array_equal(one, -other)
