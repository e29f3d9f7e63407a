"""The inside of a run, set up so that its speed can be measured apart from its compilation."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import adlmh_jax as adlmh
from adlmh_jax import sampling
from adlmh_jax.engine import runner
from adlmh_jax.engine.config import default_epoch
from adlmh_jax.moves.table import build_kernel
from adlmh_jax.moves.metropolis import bind
from adlmh_jax.model import compile_model
from adlmh_jax.proposals.plan import plan_sites
from adlmh_jax.engine.step import _GroupView, dispatch
from adlmh_jax.engine.superchain import Code, Keep, Phase, make_plan

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


class Run:
    """A compiled run: prior proposals, no blocks, every step exactly the paper's but the epochs."""

    def __init__(
        self, problem, num_superchains, chains_each, is_adapting=True, epoch=None, schedule=None
    ):
        outputs = list(problem.outputs)
        program = compile_model(problem.model, problem.args, problem.kwargs, outputs=outputs)
        self.kernel, self.data = build_kernel(program, plan_sites(program, "prior", "never"))
        self.schedule = schedule or adlmh.ucb()
        devices = runner.choose_devices(None, num_superchains)
        num_superchains = -(-num_superchains // devices.count) * devices.count
        num_entries = self.kernel.num_entries
        plan = make_plan(num_entries, epoch or default_epoch(num_entries))
        key = sampling.make_key(0)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_superchains))
        chains = sampling._start(program, key, num_superchains, chains_each)
        code = Code(self.kernel, self.schedule, plan, Keep((), (), log_density=False))
        self.state = runner.place(devices, self.kernel, self.data, self.schedule, chains)
        self.fixed = (code, devices, 1, runner.share(devices, self.data))
        self.phase = Phase(jnp.bool_(is_adapting), jnp.int32(0))
        self.key_data = np.asarray(jax.random.key_data(keys))
        self.steps = plan.epoch_steps * plan.num_epochs * num_superchains * chains_each

    def go(self, num_rounds):
        """Run some rounds."""
        stretch = runner.Stretch(self.phase, jnp.int32(0), jnp.int32(num_rounds))
        superchains, _ = runner._run_chunk(
            *self.fixed, stretch, self.key_data, self.state.superchains
        )
        self.state = runner.RunState(0, jax.block_until_ready(superchains))

    def rate(self):
        """Return steps of chains per second."""
        return best_rate(self.go, self.steps)

    def bare_rate(self):
        """Return evaluations per second, on one core, of the terms that the steps touch.

        The same components are picked, and their terms evaluated for the same chains; no proposal,
        no decision, nothing written and nothing learned.
        """
        state = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[0]), self.state.superchains)
        chains = state.chains
        weights = np.asarray(self.schedule.weights(state.schedule))
        picks = np.random.default_rng(0).choice(weights.size, 2048, p=weights / weights.sum())
        total = jnp.zeros(chains.log_terms.shape[-1])

        @jax.jit
        def evaluate(data, chains, total, num_repeats):
            def one_pick(number, total):
                entry = jnp.asarray(picks)[number % picks.size]

                def score(index, turn, total):
                    del turn
                    member = data.member_of[0, entry]
                    group, arrays = self.kernel.groups[index], data.groups[index]
                    view = _GroupView(group, arrays, member, data.element_of[entry])
                    return total + _score(view, chains, total)

                return dispatch(self.kernel, data, entry, jnp.int32(0), score, total)

            return lax.fori_loop(0, num_repeats * picks.size, one_pick, total)

        def run(num_repeats):
            jax.block_until_ready(evaluate(self.data, chains, total, jnp.int32(num_repeats)))

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
