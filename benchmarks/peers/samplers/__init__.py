"""The samplers of the comparison, one file for each; ``run`` is called in a process of its own."""

# By module: how it is called, and what it is given that a user would have to do.
PEERS = {
    "ours": "adlmh_jax, all defaults",
    "discrete_hmc_gibbs": "NumPyro DiscreteHMCGibbs",
    "numpyro_gibbs": "NumPyro Gibbs([NUTS, DiscreteGibbs])",
    "nuts_enumerated": "NumPyro NUTS, enumeration",
    "nuts_marginal": "NumPyro NUTS, **marginalised by hand**",
    "pymc_compound": "PyMC compound step",
    "jags": "JAGS",
    "nimble": "NIMBLE",
    "webppl": "WebPPL MH",
    "blackjax_walk": "BlackJAX random walk",
    "c_program": "hand-written C, site updates only",
}
