"""Does every chain arrive? Models whose chains used to stay behind, over many seeds.

``python -m benchmarks.arrival [case ...]``: all defaults, nothing tuned. The reference is a long
run of NUTS; of the two modes, the answer is known. A run of all cases is kept.
"""

import argparse
import time
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import adlmh_jax as adlmh
from adlmh_jax.results.diagnose import measure
from adlmh_jax.results.stragglers import find_stragglers
from adlmh_jax.results.tables import summarise_outputs
from benchmarks.results import save, table

NUM_SEEDS = 20
MAX_Z, MAX_SD_ERROR = 4.0, 0.05
MIN_CONVERGED = 19  # of the seeds
FIRST_MODE, DISTANCE = 0.3, 12.0  # its weight; standard deviations to the other one


class Case(NamedTuple):
    """A model, its data, and what is asked of it."""

    model: Any
    args: tuple
    outputs: tuple


def regression(predictors, response):
    """Collinear predictors, vague priors, and a noise scale with a heavy tail."""
    with numpyro.plate("predictor", predictors.shape[1]):
        slope = numpyro.sample("slope", dist.Normal(0.0, 100.0))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 100.0))
    noise = numpyro.sample("noise", dist.HalfCauchy(25.0))
    numpyro.sample("response", dist.Normal(predictors @ slope + intercept, noise), obs=response)


def make_regression():
    """Return data whose predictors have a correlation of 0.9."""
    random = np.random.default_rng(5)
    common = random.normal(size=(80, 1))
    predictors = common + 0.33 * random.normal(size=(80, 4))
    response = predictors @ [1.0, -2.0, 0.5, 3.0] + 4.0 + random.normal(size=80)
    return predictors.astype(np.float32), response.astype(np.float32)


def ordered_means(location, scale, size=2):
    """Return a distribution of vectors whose entries increase."""
    base = dist.Normal(location, scale).expand([size]).to_event(1)
    return dist.TransformedDistribution(base, dist.transforms.OrderedTransform())


def mixture(values):
    """Two normal components, the assignments summed out by hand."""
    means = numpyro.sample("means", ordered_means(0.0, 10.0))
    with numpyro.plate("component", 2):
        scale = numpyro.sample("scale", dist.HalfNormal(5.0))
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    log_shares = jnp.stack([jnp.log(share), jnp.log1p(-share)])
    each = log_shares + dist.Normal(means, scale).log_prob(values[:, None])
    numpyro.factor("values", jnp.sum(jax.nn.logsumexp(each, axis=1)))


def make_mixture():
    """Return values around -2 and 2.5."""
    random = np.random.default_rng(6)
    is_first = random.random(200) < 0.35
    return (np.where(is_first, random.normal(-2.0, 1.0, 200), random.normal(2.5, 1.4, 200)),)


def hidden_chain(values):
    """Two states, summed out by the forward algorithm."""
    stay = numpyro.sample("stay", dist.Beta(2.0, 2.0).expand([2]).to_event(1))
    means = numpyro.sample("means", ordered_means(0.0, 10.0))
    noise = numpyro.sample("noise", dist.HalfNormal(5.0))
    log_transition = jnp.log(jnp.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]]))
    log_emission = dist.Normal(means, noise).log_prob(values[:, None])

    def forward(log_weights, log_term):
        joint = log_weights[:, None] + log_transition
        return jax.nn.logsumexp(joint, axis=0) + log_term, None

    start = log_emission[0] - jnp.log(2.0)
    log_weights, _ = jax.lax.scan(forward, start, log_emission[1:])
    numpyro.factor("values", jax.nn.logsumexp(log_weights))


def make_hidden_chain():
    """Return values of a chain that mostly stays where it is."""
    random = np.random.default_rng(7)
    state, values = 0, []
    for _ in range(150):
        state = state if random.random() < (0.9, 0.8)[state] else 1 - state
        values.append(random.normal((1.0, 4.0)[state], 1.0))
    return (np.array(values),)


def garch(returns):
    """GARCH(1, 1): the variance follows the last return and the last variance."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    base = numpyro.sample("base", dist.HalfCauchy(2.5))
    arch = numpyro.sample("arch", dist.Uniform(0.0, 1.0))
    rest = numpyro.sample("rest", dist.Uniform(0.0, 1.0))
    persistence = numpyro.deterministic("persistence", rest * (1 - arch))

    def follow(variance, value):
        after = base + arch * (value - mean) ** 2 + persistence * variance
        return after, dist.Normal(mean, jnp.sqrt(variance)).log_prob(value)

    _, log_terms = jax.lax.scan(follow, jnp.var(returns), returns)
    numpyro.factor("returns", jnp.sum(log_terms))


def make_garch():
    """Return returns whose variance comes in clusters."""
    random = np.random.default_rng(8)
    variance, returns = 2.0, []
    for _ in range(200):
        returns.append(random.normal(0.5, np.sqrt(variance)))
        variance = 0.4 + 0.3 * (returns[-1] - 0.5) ** 2 + 0.5 * variance
    return (np.array(returns),)


def local_level(counts):
    """Counts whose log rate is a random walk of unknown step."""
    step = numpyro.sample("step", dist.HalfNormal(1.0))
    first = numpyro.sample("first", dist.Normal(1.0, 2.0))
    with numpyro.plate("later", len(counts) - 1):
        change = numpyro.sample("change", dist.Normal(0.0, 1.0))
    log_rate = first + jnp.concatenate([jnp.zeros(1), step * jnp.cumsum(change)])
    last = numpyro.deterministic("last", log_rate[-1])
    del last
    numpyro.sample("count", dist.Poisson(jnp.exp(log_rate)), obs=counts)


def make_local_level():
    """Return the counts of 25 times."""
    random = np.random.default_rng(9)
    return (random.poisson(np.exp(1.5 + np.cumsum(random.normal(0.0, 0.4, 25)))),)


def two_modes():
    """Two separated normals inside a wide prior, which is the same at both."""
    x = numpyro.sample("x", dist.Normal(0.0, 50.0))
    numpyro.deterministic("is_second", jnp.where(x > 0, 1.0, 0.0))
    means = jnp.array([-0.5, 0.5]) * DISTANCE
    log_modes = dist.Normal(means, 1.0).log_prob(x)
    log_shares = jnp.log(jnp.array([FIRST_MODE, 1 - FIRST_MODE]))
    numpyro.factor("modes", jax.nn.logsumexp(log_shares + log_modes))


CASES = {
    "regression": Case(regression, make_regression(), ("slope", "intercept", "noise")),
    "mixture": Case(mixture, make_mixture(), ("means", "scale", "share")),
    "hidden_chain": Case(hidden_chain, make_hidden_chain(), ("stay", "means", "noise")),
    "garch": Case(garch, make_garch(), ("mean", "base", "arch", "persistence")),
    "local_level": Case(local_level, make_local_level(), ("step", "first", "last")),
}
MODES = "two_modes"


def refer(case):
    """Return the moments that a long run of NUTS gives."""
    with jax.enable_x64(True):
        kernel = NUTS(case.model, target_accept_prob=0.95)
        sampler = MCMC(kernel, num_warmup=2000, num_samples=5000, num_chains=4, progress_bar=False)
        sampler.run(jax.random.key(0), *case.args)
        samples = jax.device_get(sampler.get_samples(group_by_chain=True))
    draws = {name: samples[name] for name in case.outputs}
    return summarise_outputs(draws, measure(draws, 4), ())


def sample(case, seed):
    """Return a run at all defaults, and how long it took."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adlmh.ConvergenceWarning)  # the table has the verdict
        result = adlmh.sample(
            seed, case.model, case.args, outputs=list(case.outputs), progress=False
        )
    return result, time.perf_counter() - started


def run_case(name):
    """Sample with all seeds; return what each run was like."""
    case = CASES[name]
    reference = refer(case)
    runs = []
    for seed in range(NUM_SEEDS):
        result, seconds = sample(case, seed)
        ours = result.summary()
        error = np.hypot(ours["mcse_mean"], reference["mcse_mean"])
        ratios = ours["sd"] / reference["sd"]
        is_stuck = find_stragglers(result.log_density, result.superchain_of)
        run = {
            "seed": seed,
            "seconds": seconds,
            "verdict": str(result.diagnose().verdict),
            "num_stuck": int(is_stuck.sum()),
            "z": float(((ours["mean"] - reference["mean"]).abs() / error).max()),
            "sd_ratio": float(ratios.iloc[int(np.argmax(np.abs(np.log(ratios))))]),
            "ess": float(ours["ess_bulk"].min()),
            "log_evidence": float(result.log_evidence.value),
        }
        runs.append(run)
        print(name, run, flush=True)
    return runs


def run_modes():
    """Sample the two modes with all seeds; return how their weights came out."""
    case = Case(two_modes, (), ("x", "is_second"))
    runs = []
    for seed in range(NUM_SEEDS):
        result, seconds = sample(case, seed)
        second = result.draws["is_second"]
        shares = [second[result.superchain_of == s].mean() for s in set(result.superchain_of)]
        error = np.std(shares, ddof=1) / np.sqrt(len(shares))
        run = {
            "seed": seed,
            "seconds": seconds,
            "verdict": str(result.diagnose().verdict),
            "share": float(np.mean(shares)),
            "z": float(abs(np.mean(shares) - (1 - FIRST_MODE)) / error),
        }
        runs.append(run)
        print(MODES, run, flush=True)
    return runs


def make_row(name, runs):
    """Return the row of a case."""
    converged = [run for run in runs if run["verdict"] == "converged"]
    is_wrong = [run["z"] >= MAX_Z or abs(run["sd_ratio"] - 1) > MAX_SD_ERROR for run in converged]
    ratios = [run["sd_ratio"] for run in runs]
    return [
        name,
        f"{len(converged)} of {len(runs)}",
        sum(run["num_stuck"] for run in runs),
        sum(is_wrong),
        max(run["z"] for run in runs),
        max(ratios, key=lambda ratio: abs(np.log(ratio))),
        round(min(run["ess"] for run in runs)),
        float(np.median([run["seconds"] for run in runs])),
    ]


def describe(records):
    """Return the report in Markdown."""
    head = ["model", "converged", "stuck chains", "converged and wrong", "largest z"]
    head += ["worst sd ratio", "least ESS", "s (median)"]
    rows = [make_row(name, runs) for name, runs in records.items() if name != MODES]
    text = (
        f"`python -m benchmarks.arrival`: 256 chains, all defaults, {NUM_SEEDS} seeds each; z and "
        "the ratio of standard deviations are against 20,000 draws of NUTS, over all outputs and "
        f"seeds. Aims: no stuck chain, converged for at least {MIN_CONVERGED}, none of those "
        f"wrong (z below {MAX_Z:g}, sd within {MAX_SD_ERROR:.0%}).\n\n" + table([*head], rows)
    )
    if MODES not in records:
        return text
    runs = records[MODES]
    converged = [run for run in runs if run["verdict"] == "converged"]
    shares = [run["share"] for run in runs]
    wrong = sum(run["z"] >= MAX_Z for run in converged)
    return text + (
        f"\n\nTwo modes {DISTANCE:g} standard deviations apart, of weights {FIRST_MODE:g} and "
        f"{1 - FIRST_MODE:g}, inside a wide prior: the second has {np.mean(shares):.3f} of the "
        f"draws (from {min(shares):.2f} to {max(shares):.2f}); z over superchains is at most "
        f"{max(run['z'] for run in runs):.1f}. {len(converged)} of {len(runs)} runs are called "
        f"converged, {wrong} of them wrong."
    )


def main(names=()):
    """Measure and print; keep the results of all cases."""
    records = {}
    for name in names or (*CASES, MODES):
        records[name] = run_modes() if name == MODES else run_case(name)
    text = describe(records)
    if names:
        print(f"\n{text}")
    else:
        save("arrival", "Every chain arrives", text, {"runs": records})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="*", help=f"of {', '.join([*CASES, MODES])}; default: all")
    chosen = parser.parse_args().case
    if unknown := set(chosen) - {*CASES, MODES}:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}, {MODES}")
    main(chosen)
