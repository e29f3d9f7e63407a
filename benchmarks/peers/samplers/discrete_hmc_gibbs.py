"""NumPyro's DiscreteHMCGibbs around NUTS, with the modified proposal of its documentation."""

from benchmarks.peers.samplers.numpyro_run import run_mcmc


def run(model, data, limit, clock):
    del data
    result = run_mcmc(make_kernel, model, limit, clock, is_slow=True)
    return result._replace(settings=f"{result.settings}; DiscreteHMCGibbs(NUTS, modified=True)")


def make_kernel(case):
    from numpyro.infer import NUTS, DiscreteHMCGibbs, init_to_median

    inner = NUTS(case.classic.model, init_strategy=init_to_median())
    return DiscreteHMCGibbs(inner, modified=True)
