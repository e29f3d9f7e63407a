"""Costs of entries: operations are counted, dear ones more, inner loops as often as they turn."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax.engine import build_engine, costs


def test_operations_are_counted():
    def price(function, *args):
        return costs.price(jax.make_jaxpr(function)(*args).jaxpr)

    def loop(x):
        return jax.lax.scan(lambda c, _: (jnp.log(c), None), x, length=5)[0]

    vector = jnp.ones(7)
    assert price(lambda x: x * 2.0, vector) == pytest.approx(7 * costs.PLAIN)
    assert price(jnp.log, vector) == pytest.approx(7 * costs.DEAR)
    assert price(loop, vector) == pytest.approx(5 * (7 * costs.DEAR + costs.TURN))


def model():
    scale = numpyro.sample("scale", dist.LogNormal(0, 1))
    numpyro.sample("idle", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(0, scale).expand([10_000]), obs=np.ones(10_000))


def test_entries_that_touch_more_cost_more():
    program = adlmh.compile_model(model)
    schedules = (adlmh.influence(), adlmh.ucb())
    watching, other = (build_engine(program, schedule=s, proposals="prior") for s in schedules)
    assert watching.entry_names == ("scale", "idle")
    scale, idle = np.asarray(watching.data.costs)
    assert scale > 20 * idle > 20
    np.testing.assert_array_equal(other.data.costs, [1.0, 1.0])  # nobody asks
