"""Discrete assignments of many data: time per sweep, and effective draws per second.

``python -m benchmarks.plates`` on a quiet machine. NumPyro's peer for such models is
``DiscreteHMCGibbs``, which draws one assignment after the other.
"""

import time
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC, MCMC, NUTS, DiscreteHMCGibbs

import adlmh_jax as adlmh
from adlmh_jax.results import measure
from benchmarks.engine import Bench
from benchmarks.results import save, table

SIZES = (100, 1_000, 10_000, 100_000)
PEER_SIZES = (100, 1_000, 10_000)
NUM_CHAINS, NUM_SWEEPS = 16, 20
PEER_SECONDS = 20.0
EFFECTIVE_SIZE = 1_000  # with more data the peer needs minutes for a hundred draws
MEANS = jnp.array([-3.0, 0.0, 4.0])


def mixture(data):
    """Normals around three unknown means; which of them each datum belongs to is latent."""
    means = numpyro.sample("means", dist.Normal(MEANS, 1.0).to_event(1))
    with numpyro.plate("data", len(data)):
        z = numpyro.sample("z", dist.Categorical(probs=jnp.array([0.3, 0.3, 0.4])))
        numpyro.sample("y", dist.Normal(means[z], 1.0), obs=data)


def mixture_data(size):
    rng = np.random.default_rng(0)
    z = rng.choice(3, size, p=[0.3, 0.3, 0.4])
    return (jnp.asarray(np.asarray(MEANS)[z] + rng.normal(size=size), jnp.float32),)


def dawid_skene(annotations):
    """Items of three classes, each judged by five annotators of unknown reliability."""
    num_items, num_annotators = annotations.shape
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("annotators", num_annotators, dim=-1):
        confusion = numpyro.sample(
            "confusion", dist.Dirichlet(jnp.ones(3) + 4 * jnp.eye(3)).to_event(1)
        )
    with numpyro.plate("items", num_items, dim=-2):
        c = numpyro.sample("c", dist.Categorical(probs=share))
        with numpyro.plate("judges", num_annotators, dim=-1):
            probs = confusion[jnp.arange(num_annotators), c]
            numpyro.sample("y", dist.Categorical(probs=probs), obs=annotations)


def dawid_skene_data(size):
    rng = np.random.default_rng(0)
    c = rng.choice(3, size, p=[0.5, 0.3, 0.2])
    right = rng.uniform(size=(size, 5)) < np.linspace(0.5, 0.9, 5)
    return (jnp.asarray(np.where(right, c[:, None], rng.choice(3, (size, 5))), jnp.int32),)


# Model, data, a continuous site, sizes, sizes at which the peer is measured.
CASES = {
    "mixture": (mixture, mixture_data, "means", SIZES, PEER_SIZES),
    "Dawid-Skene": (dawid_skene, dawid_skene_data, "share", (1_000,), (1_000,)),
}


def seconds_of(run):
    """Return the seconds of a call that has been compiled, the best of three."""
    run()
    best = np.inf
    for _ in range(3):
        started = time.perf_counter()
        jax.block_until_ready(run())
        best = min(best, time.perf_counter() - started)
    return best


def our_sweep(model, args):
    """Return seconds of a sweep over all latents, of one of `NUM_CHAINS` chains on one core."""
    algorithm = adlmh.as_algorithm(adlmh.compile_model(model, args))
    position, _ = algorithm.start(jax.random.key(0), NUM_CHAINS)
    state = algorithm.init(position)

    @jax.jit
    def sweeps(key, state):
        keys = jax.random.split(key, NUM_SWEEPS)
        return jax.lax.scan(lambda s, k: (algorithm.step(k, s)[0], None), state, keys)[0]

    return seconds_of(lambda: sweeps(jax.random.key(1), state)) / NUM_SWEEPS / NUM_CHAINS


def peer(inner, num_warmup, num_samples):
    """Return NumPyro's sampler: an iteration draws all assignments, then ``inner`` steps."""
    kernel = DiscreteHMCGibbs(inner)
    return MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)


def timed(mcmc, args):
    """Run twice, the first time to compile; return the seconds of the second."""
    mcmc.run(jax.random.key(0), *args)
    started = time.perf_counter()
    mcmc.run(jax.random.key(1), *args)
    jax.block_until_ready(mcmc.get_samples())
    return time.perf_counter() - started


def peer_sweep(model, args):
    """Return seconds of a sweep over the assignments, with a single leapfrog step."""
    inner = HMC(model, num_steps=1, adapt_step_size=False, adapt_mass_matrix=False)
    num = 2
    # A run compiles anew: the difference of two runs is what the sweeps take.
    while True:
        short, long = timed(peer(inner, 0, num), args), timed(peer(inner, 0, 4 * num), args)
        if long > 2 * short or num > 10_000:
            return (long - short) / (3 * num)
        num *= 4


def least_effective(draws, num_superchains):
    """Return the least effective number of draws of all scalars."""
    return min(mixing.ess_bulk for mixing in measure(draws, num_superchains).values())


def our_effective_rate(model, args, name):
    """Return effective draws per second of the site's worst scalar, compilation excluded."""
    sizes = {"outputs": [name], "num_chains": 32, "num_warmup": 200, "num_samples": 500}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adlmh.ConvergenceWarning)
        result = adlmh.sample(0, model, args, progress=False, **sizes)
        started = time.perf_counter()
        result = adlmh.sample(1, model, args, progress=False, **sizes)
    return least_effective(result.draws, result.num_superchains) / (time.perf_counter() - started)


def peer_effective_rate(model, args, name, sweep_seconds):
    """Return the same for NumPyro, one chain of as many iterations as the time allows."""
    num = int(np.clip(PEER_SECONDS / sweep_seconds, 50, 1000))
    mcmc = peer(NUTS(model), num // 4, num)
    seconds = timed(mcmc, args)
    return least_effective({name: np.asarray(mcmc.get_samples()[name])[None]}, 1) / seconds


def measure_plates():
    """Return rows: model, size, seconds of sweeps and their ratio, effective rates and ratio."""
    rows = []
    for case, (model, make_data, name, sizes, peer_sizes) in CASES.items():
        for size in sizes:
            args = make_data(size)
            row = [case, size, our_sweep(model, args), None, None, None, None, None]
            if size in peer_sizes:
                row[3] = peer_sweep(model, args)
                row[4] = row[3] / row[2]
            if size == EFFECTIVE_SIZE:
                row[5] = our_effective_rate(model, args, name)
                row[6] = peer_effective_rate(model, args, name, row[3])
                row[7] = row[5] / row[6]
            rows.append(row)
            print(row, flush=True)
    return rows


def measure_elements():
    """Return rows: size of the plate, steps per second when single elements move."""
    rows = []
    for size in (100, 100_000):
        args = mixture_data(size)
        problem = SimpleNamespace(model=mixture, args=args, kwargs={}, outputs=["means"])
        rate = Bench(problem, 1, NUM_CHAINS, schedule=adlmh.uniform()).rate()
        rows.append((size, rate, rows[0][1] / rate if rows else 1.0))
        print(rows[-1], flush=True)
    return rows


def main():
    """Measure, print, and keep the results."""
    data = {"plates": measure_plates(), "elements": measure_elements()}
    head = ["model", "data", "s of a sweep", "DiscreteHMCGibbs", "ratio (aim 100 at 10,000)"]
    head += ["effective draws/s", "DiscreteHMCGibbs", "ratio (aim 20)"]
    text = "\n\n".join(
        [
            "`python -m benchmarks.plates`: all assignments move as a block, each accepted on its "
            f"own. A sweep moves every latent once, for one of {NUM_CHAINS} chains on one core; "
            "the peer's sweep draws one assignment after the other, and makes one leapfrog step. "
            "Effective draws per second are those of the worst of the continuous parameters, on "
            "all cores (the peer runs one chain, with NUTS), warm-up included, compilation not; "
            "with 10,000 data the peer would need half an hour for a thousand draws.",
            table(head, data["plates"]),
            'Single elements of the mixture (`blocks="never"`, LMH): steps of chains per second on '
            "one core, and the cost relative to a plate of 100 (aim: at most 2):",
            table(["data", "steps/s", "relative cost"], data["elements"]),
        ]
    )
    save("plates", "Plates", text, data)


if __name__ == "__main__":
    main()
