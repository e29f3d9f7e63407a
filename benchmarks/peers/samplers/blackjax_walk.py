"""BlackJAX's random walk, with the covariance of a first half of its warm-up.

BlackJAX leaves the scale to its user; 2.38^2 / d times the covariance is the textbook's.
"""

import functools

from benchmarks.peers.cell import Compilation, Refused, Run, read_case

NUM_CHAINS, NUM_DRAWS, THINNING = 64, 2000, 5


def run(model, data, limit, clock):
    del data, limit
    if model != "gp":
        raise Refused("a random walk moves continuous choices only")
    import blackjax
    import jax
    import jax.numpy as jnp
    from numpyro.infer.util import initialize_model  # the log density is the model's

    case, compilation = read_case(model, clock), Compilation()
    imported = clock.seconds()
    keys = jax.random.split(jax.random.key(0), NUM_CHAINS + 3)
    start = initialize_model(keys[:NUM_CHAINS], case.classic.model, model_args=case.classic.args)
    log_density = _from_vector(start.potential_fn, start.param_info.z)
    position = jax.vmap(_to_vector)(start.param_info.z)

    @functools.partial(jax.jit, static_argnums=3)
    def walk(key, position, root, num_draws):
        move = blackjax.additive_step_random_walk(
            log_density, lambda key, old: root @ jax.random.normal(key, old.shape)
        )

        def draw(states, key):
            def step(states, key):
                return jax.vmap(move.step)(jax.random.split(key, NUM_CHAINS), states)[0], None

            states, _ = jax.lax.scan(step, states, jax.random.split(key, THINNING))
            return states, states.position

        return jax.lax.scan(draw, jax.vmap(move.init)(position), jax.random.split(key, num_draws))

    size = position.shape[1]
    root = 0.1 * jnp.eye(size)
    for key in keys[NUM_CHAINS : NUM_CHAINS + 2]:
        states, draws = walk(key, position, root, NUM_DRAWS // 2)
        late = draws[len(draws) // 2 :].reshape(-1, size)
        root, position = 2.38 / size**0.5 * jnp.linalg.cholesky(jnp.cov(late.T)), states.position
    jax.block_until_ready(position)
    begun, begun_compiling = clock.seconds(), compilation.seconds()
    _, draws = walk(keys[-1], position, root, NUM_DRAWS)
    constrained = jax.device_get(jax.vmap(jax.vmap(_constrain(start)))(draws.swapaxes(0, 1)))
    ended, compiling = clock.seconds(), compilation.seconds()
    return Run(
        draws={name: constrained[name] for name in case.classic.outputs},
        startup=imported + compiling,
        warmup=begun - imported - begun_compiling,
        sampling=ended - begun - (compiling - begun_compiling),
        settings=f"BlackJAX {blackjax.__version__}: additive_step_random_walk, {NUM_CHAINS} chains "
        f"as one batch, {NUM_DRAWS} draws of warm-up and {NUM_DRAWS} kept each, every {THINNING}th "
        "step, 2.38^2 / d times the covariance of the warm-up",
        updates=NUM_CHAINS * 2 * NUM_DRAWS * THINNING * size,
    )


def _to_vector(values):
    from jax.flatten_util import ravel_pytree

    return ravel_pytree(values)[0]


def _back(batch):
    """Return the function from a vector to the dict of values that one chain has."""
    import jax
    from jax.flatten_util import ravel_pytree

    return ravel_pytree(jax.tree.map(lambda array: array[0], batch))[1]


def _from_vector(potential, batch):
    back = _back(batch)
    return lambda vector: -potential(back(vector))


def _constrain(start):
    back = _back(start.param_info.z)
    return lambda vector: start.postprocess_fn(back(vector))
