"""The truth where there is no other: ``python -m benchmarks.peers.long_run``.

Kept in ``benchmarks/data``; NUTS on the Dawid-Skene model, its classes summed out by hand.
"""

import json

import numpy as np
import numpyro
from scipy import stats

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 1000, 5000


def main():
    numpyro.set_host_device_count(NUM_CHAINS)
    import arviz
    import jax
    from numpyro.infer import MCMC, NUTS, init_to_median

    from benchmarks.peers.cases import CASES, LONG_RUN

    classic = CASES["dawid_skene"]().classic
    sampler = MCMC(
        NUTS(classic.marginal, init_strategy=init_to_median()), num_warmup=NUM_WARMUP,
        num_samples=NUM_DRAWS, num_chains=NUM_CHAINS, progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.key(20), *classic.args)
    draws = np.asarray(sampler.get_samples(group_by_chain=True)["share"], float)
    found, errors = {}, {}
    for i in range(draws.shape[-1]):
        values = draws[..., i]
        name, kurtosis = f"share[{i}]", float(stats.kurtosis(values.ravel(), fisher=False))
        found[name] = [float(values.mean()), float(values.std()), kurtosis]
        errors[name] = float(values.std() / np.sqrt(arviz.ess(values, method="mean")))
        print(name, found[name], "error", errors[name], "R-hat", float(arviz.rhat(values)))
    about = f"NUTS, marginalised: {NUM_CHAINS} chains of {NUM_DRAWS} draws; mean, sd, kurtosis"
    record = {"about": about, "moments": found, "errors": errors}
    LONG_RUN.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
