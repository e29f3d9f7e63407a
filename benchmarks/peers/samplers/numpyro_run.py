"""What all samplers of NumPyro share: four chains, starts, and as many draws as there is time."""

import os
import time

from benchmarks.peers.cell import Compilation, Run, read_case

NUM_CHAINS, NUM_DRAWS = 4, 1000  # and as many of warm-up: the usual call
PILOT_SECONDS = 2.0


def run_mcmc(make_kernel, model, limit, clock, *, finish=None, is_slow=False):
    """Run a kernel on a model of the benchmark.

    Parameters
    ----------
    make_kernel
        From a case to the kernel; ``init_strategy`` included.
    finish
        From the case and its draws, ``[chain, draw, ...]``, to the outputs that they give.
    is_slow
        Whether a pilot run is to say how many draws there is time for.
    """
    import numpyro

    numpyro.set_host_device_count(NUM_CHAINS)
    import jax
    from numpyro.infer import MCMC

    case, num = read_case(model, clock), NUM_DRAWS
    if is_slow:
        with clock.outside():
            num = _count_draws(make_kernel(case), case, limit)
    sampler = MCMC(
        make_kernel(case), num_warmup=num, num_samples=num, num_chains=NUM_CHAINS,
        progress_bar=False,
    )  # fmt: skip
    compilation, imported = Compilation(), clock.seconds()
    sampler.run(jax.random.key(0), *case.classic.args)
    draws = jax.device_get(sampler.get_samples(group_by_chain=True))
    if finish is not None:
        draws = jax.device_get(finish(case, draws))
    total, compiling = clock.seconds(), compilation.seconds()
    # Warm-up and sampling are one call, of as many draws each.
    half = (total - imported - compiling) / 2
    return Run(
        draws={name: draws[name] for name in case.classic.outputs if name in draws},
        startup=imported + compiling,
        warmup=half,
        sampling=half,
        settings=f"NumPyro {numpyro.__version__}: {NUM_CHAINS} parallel chains, {num} draws of "
        f"warm-up and {num} kept each, init_to_median",
    )


def _count_draws(kernel, case, limit):
    """Return how many draws of a chain there is time for, and as many of warm-up."""
    import jax

    args = case.classic.args
    state = kernel.init(jax.random.key(0), NUM_DRAWS, None, model_args=args, model_kwargs={})
    step = jax.jit(lambda state: kernel.sample(state, args, {}))
    state = jax.block_until_ready(step(state))
    started, num = time.monotonic(), 0
    while num == 0 or time.monotonic() - started < PILOT_SECONDS:
        state = jax.block_until_ready(step(state))
        num += 1
    # All chains take turns on the cores.
    each = (time.monotonic() - started) / num * max(1, NUM_CHAINS / os.cpu_count())
    return int(min(NUM_DRAWS, max(8, limit / each / 2)))
