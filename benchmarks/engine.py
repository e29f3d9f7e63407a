"""The inside of a run, set up so that its speed can be measured apart from its compilation."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import adlmh_jax as adlmh
from adlmh_jax.engine import (
    Keep,
    Phase,
    Run,
    address,
    build_engine,
    choose_devices,
    first_beta,
    make_key,
    place,
    run_branch,
    run_chunk,
    share,
    split,
    start_superchains,
    view_entry,
)
from adlmh_jax.moves import bind
from adlmh_jax.types import as_array

SECONDS = 3.0  # that a measurement takes, about
NUM_MEASUREMENTS = 8


def best_rate(run, per_call):
    """Return units of work per second: the best of a few calls ``run(repeats)``."""
    best, repeats = 0.0, 1
    run(repeats)
    for _ in range(NUM_MEASUREMENTS):
        started = time.perf_counter()
        run(repeats)
        best = max(best, repeats * per_call / (time.perf_counter() - started))
        repeats = max(1, int(best * SECONDS / NUM_MEASUREMENTS / per_call))
    return best


class Bench:
    """A compiled run: prior proposals, no blocks, every step exactly the paper's but the epochs."""

    def __init__(
        self, problem, num_superchains, chains_each, is_adapting=True, epoch=None, schedule=None
    ):
        outputs = list(problem.outputs)
        program = adlmh.compile_model(problem.model, problem.args, problem.kwargs, outputs=outputs)
        self.engine = build_engine(
            program,
            schedule=schedule or adlmh.ucb(),
            proposals="prior",
            blocks="never",
            epoch=epoch,
            keep=Keep(log_density=False),
        )
        devices = choose_devices(None, num_superchains)
        num_superchains = devices.fill(num_superchains)
        key = make_key(0)
        addresses = address([key], range(num_superchains))
        started = start_superchains(program, addresses, chains_each)
        spec = self.engine.spec
        data = share(devices, split(self.engine.data, addresses.datasets))
        start = first_beta(started, is_annealed=False)
        self.state = place(devices, self.engine, data, started.chains, start)
        self.run = Run(
            spec=spec,
            data=data,
            devices=devices,
            key_data=addresses.run_keys,
            max_rounds=1,
        )
        self.phase = Phase(as_array(is_adapting), as_array(0, np.int32), as_array(0, np.int32))
        self.steps = spec.plan.epoch_steps * spec.plan.num_epochs * num_superchains * chains_each

    def go(self, num_rounds):
        """Run some rounds."""
        self.state, _ = run_chunk(self.run, self.state, self.phase, num_rounds)
        jax.block_until_ready(self.state.superchains)

    def rate(self):
        """Return steps of chains per second."""
        return best_rate(self.go, self.steps)

    def bare_rate(self):
        """Return evaluations per second, on one core, of the terms that the steps touch.

        The same components are picked, and their terms evaluated for the same chains; no proposal,
        no decision, nothing written and nothing learned.
        """
        state = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[0]), self.state.superchains)
        chains, kernel = state.chains, self.engine.spec.kernel
        weights = np.asarray(self.engine.spec.schedule.weights(state.schedule))
        picks = np.random.default_rng(0).choice(weights.size, 2048, p=weights / weights.sum())
        total = jnp.zeros(chains.log_terms.shape[-1])

        @jax.jit
        def evaluate(data, chains, total, num_repeats):
            def one_pick(number, total):
                entry = jnp.asarray(picks)[number % picks.size]

                def score(index, turn, total):
                    del turn
                    view = view_entry(kernel, data, index, entry, 0)
                    return total + _score(view, chains, total)

                return run_branch(data.group_of[0, entry], len(kernel.groups), score, total)

            return lax.fori_loop(0, num_repeats * picks.size, one_pick, total)

        def run(num_repeats):
            jax.block_until_ready(evaluate(self.engine.data, chains, total, jnp.int32(num_repeats)))

        return best_rate(run, picks.size * total.size)


def _score(view, chains, total):
    """Sum the touched terms; all values hang on ``total``, lest XLA compute anything but once."""
    branch = view.branch
    before = view.read(chains)

    def score(reads, total):
        words = jnp.zeros(branch.num_words, jnp.uint32)
        reads = tuple(value + (total > 1e30).astype(value.dtype) for value in reads)
        known = bind(branch, view.constants, jnp.ones(branch.site.batch_shape), words, reads)
        return sum(jnp.sum(term) for term in branch.score.run(known))

    return jax.vmap(score, in_axes=-1, out_axes=-1)(before.reads, total) * 1e-30
