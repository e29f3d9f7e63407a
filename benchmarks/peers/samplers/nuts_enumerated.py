"""NumPyro's NUTS on the unmodified model: funsor sums finite discrete sites out."""

from benchmarks.peers.cell import Refused
from benchmarks.peers.samplers.numpyro_run import run_mcmc

# Outputs that are functions of sites that were summed out and drawn again.
DERIVED = {"occupied": lambda sites: sites["is_there"].sum(axis=-1)}


def run(model, data, limit, clock):
    del data
    result = run_mcmc(make_kernel, model, limit, clock, finish=draw_discrete)
    return result._replace(settings=f"{result.settings}; NUTS, automatic enumeration (funsor)")


def make_kernel(case):
    from numpyro.infer import NUTS, init_to_median

    return NUTS(case.classic.model, init_strategy=init_to_median())


def draw_discrete(case, draws):
    """Draw discrete outputs given the continuous sites."""
    from jax import random
    from numpyro.infer import Predictive

    if not draws:
        raise Refused("summed out, nothing is left to sample: MCMC returns no draws")
    wanted = [name for name in case.classic.outputs if name not in draws or name in DERIVED]
    if not wanted:
        return draws
    draws = {name: value for name, value in draws.items() if name not in DERIVED}
    predictive = Predictive(case.classic.model, draws, infer_discrete=True, batch_ndims=2)
    sites = predictive(random.key(1), *case.classic.args)
    found = {name: DERIVED[name](sites) for name in wanted if name in DERIVED}
    return {**draws, **{name: sites[name] for name in wanted if name in sites}, **found}
