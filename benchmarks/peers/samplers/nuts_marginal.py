"""NumPyro's NUTS on the model whose discrete sites the user has summed out by hand."""

from benchmarks.peers.cell import Refused
from benchmarks.peers.samplers.numpyro_run import run_mcmc


def run(model, data, limit, clock):
    del data
    result = run_mcmc(make_kernel, model, limit, clock)
    return result._replace(settings=f"{result.settings}; NUTS, marginalised by the user")


def make_kernel(case):
    from numpyro.infer import NUTS, init_to_median

    marginal = case.classic.marginal
    if marginal is None and case.classic.model.__name__ != "gp_model":  # all continuous
        raise Refused("all choices are discrete: nothing is left when they are summed out")
    return NUTS(marginal or case.classic.model, init_strategy=init_to_median())
