"""NumPyro's Gibbs of two blocks: NUTS and DiscreteGibbs; DiscreteGibbs where all is discrete."""

from benchmarks.peers.samplers.numpyro_run import run_mcmc


def run(model, data, limit, clock):
    del data
    result = run_mcmc(make_kernel, model, limit, clock, is_slow=True)
    kernel = "DiscreteGibbs" if model == "hmm" else "Gibbs([NUTS, DiscreteGibbs])"
    return result._replace(settings=f"{result.settings}; {kernel}")


def make_kernel(case):
    from numpyro.infer import NUTS, DiscreteGibbs, Gibbs, init_to_median
    from numpyro.infer.gibbs import discrete_latent_sites

    model = case.classic.model
    if model.__name__ == "hmm_model":
        return DiscreteGibbs(model)
    continuous = NUTS(model, init_strategy=init_to_median())
    return Gibbs([(continuous, None), (DiscreteGibbs(model), discrete_latent_sites)])
