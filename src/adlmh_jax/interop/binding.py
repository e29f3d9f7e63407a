"""What `numpyro_kernel` stands on: a model bound to its arguments, and the state of its chains."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.engine import MAX_TRIES, SuperchainState, repair, words_of
from adlmh_jax.interop.functional import Algorithm, as_algorithm, check_values
from adlmh_jax.model import Outputs, Program, compile_model, listed
from adlmh_jax.proposals import foresee_functions
from adlmh_jax.statistics import Tally
from adlmh_jax.types import Array, Key, Model, Position

START_FOLD = 0xFFFFFFFF  # no iteration has this number
DETERMINISTIC = "_deterministic"  # the entry of a sample with the outputs that are no latent sites


class AdLMHState(NamedTuple):
    """State of `AdLMH` and `LMH`; every field of one number has one per chain if vectorised.

    Attributes
    ----------
    i
        Iterations made.
    z
        Values of the latent sites by name, and under ``"_deterministic"`` the other outputs.
    potential_energy
        Minus the log joint density.
    accept_prob, mean_accept_prob
        Share of accepted steps, in the last iteration and in all of its phase (warm-up or
        sampling). Vectorised chains share one figure.
    num_steps
        Steps of an iteration.
    num_warmup
        Iterations during which the schedule learns.
    superchain
        The chains with their cached terms and outputs, the schedule and the tallies; None for a
        model without latent sites.
    alpha
        Selection probability of each entry, ``[M]``.
    rng_key
        Key of the run: iteration i uses ``fold_in(rng_key, i)``.
    """

    i: Array
    z: dict[str, Any]
    potential_energy: Array
    accept_prob: Array
    mean_accept_prob: Array
    num_steps: Array
    num_warmup: Array
    superchain: Any
    alpha: Array
    rng_key: Array

    @property
    def weights(self) -> Array:
        """Selection probability of each entry."""
        return self._per_chain(self.alpha)

    @property
    def selected(self) -> Array:
        """Steps so far in which each component was selected, over the chains of the superchain."""
        return self._count(self.superchain.tallies.selected)

    @property
    def accepted(self) -> Array:
        """Steps so far in which each component's proposal was accepted."""
        return self._count(self.superchain.tallies.accepted)

    @property
    def invalid(self) -> Array:
        """Steps so far in which the density of a proposal was NaN or +inf."""
        return self._count(self.superchain.tallies.invalid)

    def _count(self, tally: Tally) -> Array:
        """Return a count as a float: exact up to 2**24, then to seven digits."""
        return self._per_chain(tally.high.astype(float) * 2.0**32 + tally.low.astype(float))

    def _per_chain(self, array: Array) -> Array:
        """Repeat what vectorised chains share."""
        if array.ndim > self.i.ndim:
            return array
        return jnp.broadcast_to(array, (*self.i.shape, *array.shape))


def empty_state(rng_key: Key, num_warmup: int, shape: tuple[int, ...]) -> AdLMHState:
    """Return the state of a model without latent sites: nothing to sample, nothing to do."""
    zeros, zero = jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
    return AdLMHState(
        i=zero,
        z={},
        potential_energy=zeros,
        accept_prob=zeros,
        mean_accept_prob=zeros,
        num_steps=zero,
        num_warmup=zero + num_warmup,
        superchain=None,
        alpha=jnp.zeros((*shape, 0)),
        rng_key=rng_key,
    )


class Binding(NamedTuple):
    """A model compiled for its arguments; the sites ``held`` belong to other samplers."""

    args: tuple
    kwargs: dict[str, Any]
    held: frozenset[str]
    program: Program
    algorithm: Algorithm

    def is_for(self, args: tuple, kwargs: Mapping[str, Any], held: frozenset[str]) -> bool:
        """Whether these are the arguments, as the same objects or equal plain values."""
        return self.held == held and _is_same((args, kwargs), (self.args, self.kwargs))

    @property
    def moved(self) -> list[str]:
        """Names of the sites that are not held."""
        return [name for name in self.program.sites.names if name not in self.held]

    def held_values(self, values: Mapping[str, Any]) -> Position:
        """Return the values of held sites for one chain, ``[1, ...]``."""
        names = [name for name in values if name in self.program.sites.names]
        return {name: jnp.asarray(values[name])[None] for name in names}

    def sample(self, superchain: SuperchainState, is_single: bool) -> dict[str, Any]:
        """Return the values of the moved sites and, unless some are held, the other outputs."""
        values = self.algorithm.values(superchain)
        if is_single:
            values = {name: value[0] for name, value in values.items()}
        latent: dict[str, Any] = {name: values.pop(name) for name in self.moved}
        return latent if self.held or not values else latent | {DETERMINISTIC: values}


def side_by_side(sample: dict[str, Any]) -> dict[str, Any]:
    """Return latent values and other outputs in one dict."""
    latent = {name: value for name, value in sample.items() if name != DETERMINISTIC}
    return {**latent, **sample.get(DETERMINISTIC, {})}


def bind(
    model: Model,
    args: tuple,
    kwargs: dict[str, Any],
    held: frozenset[str],
    outputs: Outputs,
    **settings: Any,
) -> Binding:
    """Compile a model for its arguments; ``settings`` are those of `as_algorithm`."""
    _check_arguments(model, args, kwargs)
    if outputs is None and held:
        outputs = _outputs_but(held)
    # Whoever calls may be tracing, for `pmap`, `vmap` or a loop: the model is compiled outside.
    with jax.core.eval_context():
        program = compile_model(
            model,
            args,
            kwargs,
            outputs=outputs,
            proposals=functools.partial(foresee_functions, proposals=settings["proposals"]),
        )
        _check_program(program, held)
        algorithm = as_algorithm(program, held=held & set(program.sites.names), **settings)
    return Binding(args=args, kwargs=kwargs, held=held, program=program, algorithm=algorithm)


def _outputs_but(held: frozenset[str]) -> Outputs:
    return lambda values: {name: v for name, v in values.items() if name not in held}


def start(
    binding: Binding, key: Key, chosen: Position, held: Position, num_chains: int
) -> Position:
    """Start the chains where they have a finite density, or say why that cannot be."""
    key = jax.random.fold_in(key, START_FOLD)
    position, is_finite = binding.algorithm.start(key, num_chains, held | chosen)
    if held:
        # A `Gibbs` hands every block a prior draw, which may have density zero.
        fresh, is_good = binding.algorithm.start(key, num_chains, held)
        position = jax.tree.map(lambda old, new: jnp.where(is_finite, old, new), position, fresh)
        is_finite = is_finite | is_good
    if isinstance(is_finite, jax.core.Tracer) or np.all(is_finite):
        return position
    program = binding.program
    if held or not chosen:
        there = jax.tree.map(lambda leaf: leaf[None], jax.jit(program.chains_at)(position))
        repaired = repair(program, words_of(key)[None], there, held)
        chains = jax.tree.map(lambda leaf: leaf[0], repaired)
        if held or np.all(np.isfinite(chains.log_terms)):
            return program.latent_layout.unpack(chains.latent)
        raise program.no_finite_start(chains, MAX_TRIES)
    bad = int(np.argmin(is_finite))
    one = {name: value[bad : bad + 1] for name, value in position.items()}
    terms, _ = program.evaluate({name: value[0] for name, value in one.items()})
    infinite = [name for name, term in terms.items() if not np.all(np.isfinite(term))]
    reason = f"where the log density of {listed(infinite)} is not finite" if infinite else ""
    values = {name: np.asarray(one[name][0]).tolist() for name in chosen}
    raise ValueError(
        f"`init_params` puts a chain at {values}, {reason or 'outside a support'}. Give "
        "constrained values at which the model is possible, or leave them out."
    )


def tied_to(key: Key, tree: Any) -> Any:
    """Make every leaf depend on a traced key: a vmap over keys then maps all from the start."""
    if not isinstance(key, jax.core.Tracer):
        return tree
    zero = jax.random.bits(key) & 0

    def tie(leaf: Array) -> Array:
        return leaf if leaf is key else leaf + zero.astype(leaf.dtype)

    return jax.tree.map(tie, tree)


def check_init_params(
    binding: Binding, init_params: Mapping[str, Any] | None, chain_shape: tuple[int, ...]
) -> Position:
    """Return the initial values ``[C, ...]``; refuse names and shapes that are not the sites'."""
    if init_params is None:
        return {}
    names = set(binding.moved)
    if not isinstance(init_params, Mapping):
        raise ValueError(f"`init_params` must be a dict of values by site, got {init_params!r}.")
    given = {name: value for name, value in init_params.items() if name != DETERMINISTIC}
    if set(given) - names:
        raise ValueError(
            f"`init_params` names {listed(sorted(set(given) - names))}; the latent sites are "
            f"{listed(sorted(names))}."
        )
    checked = check_values(binding.program, given, "init_params", chain_shape)
    return checked if chain_shape else {name: value[None] for name, value in checked.items()}


def _check_arguments(model: Model, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that the model does not take, or that are not known yet."""
    try:
        signature = inspect.signature(model)
    except (TypeError, ValueError):  # some callables have none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ValueError(
            f"The model takes {signature} but was run with {len(args)} positional arguments and "
            f"the keywords {listed(sorted(kwargs)) or 'none'}: {error}."
        ) from error
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs))):
        raise ValueError(
            "The model's arguments must be known when the kernel is compiled, but they are being "
            "traced. Leave `jit_model_args=False`, and call `run` outside of jit and vmap."
        )


def _check_program(program: Program, held: frozenset[str]) -> None:
    """Refuse what cannot be recorded under its name, or cannot be a block."""
    traced = program.traced
    for name in set(traced.outputs) & set(program.sites.names):
        if traced.outputs[name] != traced.values[name]:
            raise ValueError(f"`outputs` calls `{name}` what is not the latent site of that name.")
    if held:
        enumerated = [site.name for site in program.sites.sites if site.is_enumerated]
        if enumerated:
            raise ValueError(
                f"{listed(enumerated)} is marked for enumeration, which no block of a `Gibbs` "
                "samples and this kernel does not sum over. Drop the mark, and name it in a block."
            )


def _is_same(new: Any, old: Any) -> bool:
    """Whether arguments are the same objects, or equal plain numbers and strings."""
    trees: list[Any] = [jax.tree.structure(new), jax.tree.structure(old)]
    if trees[0] != trees[1]:
        return False
    plain = (bool, int, float, str)
    return all(
        a is b or (isinstance(a, plain) and type(a) is type(b) and a == b)
        for a, b in zip(jax.tree.leaves(new), jax.tree.leaves(old), strict=True)
    )
