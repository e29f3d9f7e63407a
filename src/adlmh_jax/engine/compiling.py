"""How XLA compiles what the engine runs: a user waits for compilation more than for the steps.

A run is hundreds of small loops. On a CPU, XLA has an emitter of loops that sets up a whole
compiler for each of them (17 ms, however small it is), and an older one that does not; and most of
what LLVM does at its highest level is lost on loops over chains. README's example took 14.5 to
16.8 s to compile its steps and takes 8.6 to 9.5; steps are as fast as before, within the noise.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

QUICKLY = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}
UNKNOWN = "No such compile option"  # what a version of XLA says that lacks one of them


def compile_quickly(
    *, static_argnums: int | Sequence[int], donate_argnums: int | Sequence[int] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator as `jax.jit`, of functions that are compiled in less time on a CPU."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        jit = functools.partial(
            jax.jit, function, static_argnums=static_argnums, donate_argnums=donate_argnums
        )
        plain, quick = jit(), jit(compiler_options=QUICKLY)

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            # Inside a computation that is being traced, whoever compiles that chooses how.
            is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args))
            if is_traced or jax.default_backend() != "cpu":
                return plain(*args)
            try:
                return quick(*args)
            except jax.errors.JaxRuntimeError as error:
                if UNKNOWN not in str(error):
                    raise
            return plain(*args)

        return call

    return decorate
