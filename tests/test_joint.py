"""Every proposal leaves the joint distribution of data and parameters as it is.

Chains start at exact draws of everything, data included. Moves of the parameters, given the data of
each chain, must not change the joint distribution: parameters keep their prior, and so does the
log-likelihood. Two-sample Kolmogorov-Smirnov tests at a false-alarm rate of 1e-6 each.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import adlmh_jax as adlmh
from adlmh_jax.engine import address, start_superchains, step
from adlmh_jax.engine.entry import first_steps
from adlmh_jax.model import compile_model
from adlmh_jax.moves import build_kernel, name_entries
from adlmh_jax.proposals import plan_sites

WALKS = importlib.import_module("adlmh_jax.proposals.random_walk")

NUM_CHAINS = 8000
NUM_SWEEPS = 6
FALSE_ALARM = 1e-6


def model():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    share = numpyro.sample("share", dist.Beta(2.0, 1.0))
    simplex = numpyro.sample("simplex", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    bounded = numpyro.sample("bounded", dist.Uniform(0.0, rate))
    count = numpyro.sample("count", dist.Poisson(2.0 + rate))
    tail = numpyro.sample("tail", dist.StudentT(3.0, 0.0, 1.0))
    with numpyro.plate("items", 3):
        local = numpyro.sample("local", dist.Normal(tail, 0.5 + share))
        kind = numpyro.sample("kind", dist.Categorical(simplex))
        numpyro.sample("y", dist.Normal(local + kind + 0.3 * count + bounded, 1.0))


def run(proposals, blocks):
    """Return the parameters and the log-likelihood of all chains, before and after moves."""
    program = compile_model(model)
    plan = plan_sites(program, proposals, blocks, held=["y"])
    kernel, data = build_kernel(program, plan)
    entries = [e for e, (site, _) in enumerate(name_entries(program, plan)) if site != "y"]
    started = start_superchains(program, address([jax.random.key(1)], [0]), NUM_CHAINS)
    before = jax.tree.map(lambda leaf: leaf[0], started.chains)
    steps = first_steps(kernel)._replace(scales=jnp.full(kernel.num_slots, 0.7))

    @jax.jit
    def sweep(chains, key):
        def one(chains, inputs):
            key, entry, variant = inputs
            words = jax.random.bits(key, (kernel.num_words, NUM_CHAINS), "uint32")
            return step.move(kernel, data, words, chains, entry, variant, steps=steps)[0], None

        order = jnp.array([(e, w) for w in (0, 1) for e in entries], jnp.int32)
        keys = jax.random.split(key, len(order))
        return jax.lax.scan(one, chains, (keys, order[:, 0], order[:, 1]))[0]

    after = before
    for key in jax.random.split(jax.random.key(2), NUM_SWEEPS):
        after = sweep(after, key)
    return [_statistics(program, chains) for chains in (before, after)]


def _statistics(program, chains):
    values = program.latent_layout.unpack(chains.latent)
    terms = program.term_layout.unpack({"float32": chains.log_terms})
    found = {name: np.asarray(v).reshape(NUM_CHAINS, -1)[:, 0] for name, v in values.items()}
    found["log likelihood"] = np.asarray(terms["y"]).sum(axis=1)
    found["misfit"] = np.asarray(values["y"] - values["local"])[:, 0]
    return found


def check(proposals, blocks="never"):
    before, after = run(proposals, blocks)
    half = NUM_CHAINS // 2  # independent halves, since every chain is in both samples
    for name in before:
        test = stats.ks_2samp(before[name][:half], after[name][half:], method="asymp")
        assert test.pvalue > FALSE_ALARM, (name, test)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", ["never", "auto"])
@pytest.mark.parametrize("proposals", ["prior", "auto"])
def test_joint_distribution_stays(proposals, blocks):
    check(proposals, blocks)


@pytest.mark.slow
def test_missing_jacobian_is_caught(monkeypatch):
    monkeypatch.setattr(WALKS, "_log_jacobian", lambda transform, free, value: jnp.zeros(()))
    with pytest.raises(AssertionError):
        check({"rate": adlmh.random_walk(), "share": adlmh.random_walk()})
