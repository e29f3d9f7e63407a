"""Costs of entries: operations are counted, dear ones more, inner loops as often as they turn."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import adlmh_jax as adlmh
from adlmh_jax.engine import build_engine, costs


def test_operations_are_counted():
    def count(function, *args):
        return costs.count_operations(jax.make_jaxpr(function)(*args).jaxpr)

    vector = jnp.ones(7)
    assert count(lambda x: x * 2.0, vector) == 7
    assert count(jnp.log, vector) == 7 * costs.DEAR
    assert count(lambda x: jax.lax.scan(lambda c, _: (c * 2.0, None), x, length=5)[0], vector) == 35


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
