"""`AdLMH` and `LMH` as kernels of `numpyro.infer.MCMC`, and as blocks of its `Gibbs`."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.gibbs import GIBBS_SITES_KWARG
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from adlmh_jax.engine import check_schedule
from adlmh_jax.interop.binding import (
    AdLMHState,
    Binding,
    bind,
    check_init_params,
    empty_state,
    side_by_side,
    start,
    tied_to,
)
from adlmh_jax.model import NoLatentSites, Outputs, Program
from adlmh_jax.schedules import Schedule, ucb, uniform
from adlmh_jax.types import Array, Key, Model


class LMH(MCMCKernel):
    """Lightweight Metropolis-Hastings: every component is selected with equal probability.

    A kernel of `numpyro.infer.MCMC`. See `AdLMH` for the parameters and for what an iteration is.

    Parameters
    ----------
    model, outputs, proposals, blocks, steps_per_iteration
        As for `AdLMH`; ``outputs`` only says what to record besides the latent sites.
    """

    sample_field = "z"

    def __init__(
        self,
        model: Model,
        outputs: Outputs = None,
        *,
        proposals: str | Mapping[str, Any] = "auto",
        blocks: str = "auto",
        steps_per_iteration: int | None = None,
    ) -> None:
        if not callable(model):
            raise ValueError(f"`model` must be a NumPyro model, got {model!r}.")
        if steps_per_iteration is not None and steps_per_iteration < 1:
            raise ValueError(
                f"`steps_per_iteration` must be at least 1, got {steps_per_iteration}."
            )
        self._model = model
        self._outputs = outputs
        self._proposals = proposals
        self._blocks = blocks
        self._num_steps = steps_per_iteration
        self._epoch: int | None = None
        self._always_adapts = False
        self._binding: Binding | None = None
        self._started: Binding | None = None  # what the last `init` was for
        self._sample_fn: Callable | None = None  # MCMC calls `init` as long as this is None

    @property
    def model(self) -> Model:
        """The model."""
        return self._model

    @property
    def program(self) -> Program:
        """The compiled model; print it to see what touches what."""
        return self._compiled.program

    @property
    def component_names(self) -> tuple[str, ...]:
        """Names of the components, in the order of ``selected``, ``accepted`` and ``invalid``."""
        return tuple(self._compiled.program.sites.component_names)

    @property
    def entry_names(self) -> tuple[str, ...]:
        """Names of what is selected, components or blocks of them, in the order of ``weights``."""
        return self._compiled.algorithm.entries

    @property
    def _compiled(self) -> Binding:
        if self._binding is None:
            raise ValueError("The kernel has not been run yet: its model is compiled by `run`.")
        return self._binding

    def _schedule(self) -> Schedule:
        return uniform()

    def init(
        self,
        rng_key: Key,
        num_warmup: int,
        init_params: Mapping[str, Any] | None = None,
        model_args: tuple = (),
        model_kwargs: Mapping[str, Any] | None = None,
    ) -> AdLMHState:
        """Start the chains: at ``init_params`` (constrained values), else at prior draws.

        Keys of shape ``(C,)`` start one superchain of C chains.
        """
        is_single = is_prng_key(rng_key)
        try:
            binding = self._bind(model_args, model_kwargs)
        except NoLatentSites:  # as with NumPyro's kernels, a run of nothing
            self._sample_fn = self.sample
            return empty_state(rng_key, num_warmup, () if is_single else rng_key.shape[:1])
        num_chains = 1 if is_single else rng_key.shape[0]
        chosen = check_init_params(binding, init_params, () if is_single else (num_chains,))
        held = binding.held_values(_conditioned(model_kwargs))
        key = _first(rng_key)
        position = start(binding, key, chosen, held, num_chains)
        superchain = binding.algorithm.init(position)

        def per_chain(number: Any, dtype: Any = jnp.int32) -> Array:
            return jnp.full(() if is_single else num_chains, number, dtype)

        self._started, self._sample_fn = binding, self.sample
        state = AdLMHState(
            i=per_chain(0),
            z=binding.sample(superchain, is_single),
            potential_energy=_unbatched(-jnp.sum(superchain.chains.log_terms, axis=0), is_single),
            accept_prob=per_chain(0.0, float),
            mean_accept_prob=per_chain(0.0, float),
            num_steps=per_chain(binding.algorithm.num_steps),
            num_warmup=per_chain(num_warmup),
            superchain=superchain,
            alpha=binding.algorithm.weights(superchain),
            rng_key=key,
        )
        return tied_to(key, state)._replace(rng_key=rng_key)

    def sample(
        self, state: AdLMHState, model_args: tuple, model_kwargs: Mapping[str, Any] | None
    ) -> AdLMHState:
        """Make one iteration of ``num_steps`` steps."""
        if state.superchain is None:
            return state._replace(i=state.i + 1)
        binding = self._bind(model_args, model_kwargs)
        if binding is not self._started:  # the state comes from a run on other data
            state = self.refresh(state, model_args, model_kwargs)
        is_single = is_prng_key(state.rng_key)
        number, num_warmup = (leaf.reshape(-1)[0] for leaf in (state.i, state.num_warmup))
        is_adapting = (number < num_warmup) | self._always_adapts
        key = jax.random.fold_in(_first(state.rng_key), number)
        superchain, info = binding.algorithm.step(key, state.superchain, is_adapting)
        num_before = jnp.where(state.i < state.num_warmup, state.i, state.i - state.num_warmup)
        mean = state.mean_accept_prob * (num_before > 0)
        return state._replace(
            i=state.i + 1,
            z=binding.sample(superchain, is_single),
            potential_energy=_unbatched(-info.log_density, is_single),
            accept_prob=jnp.broadcast_to(info.acceptance_rate, state.i.shape),
            mean_accept_prob=mean + (info.acceptance_rate - mean) / (num_before + 1),
            superchain=superchain,
            alpha=info.weights,
        )

    def refresh(
        self, state: AdLMHState, model_args: tuple, model_kwargs: Mapping[str, Any] | None
    ) -> AdLMHState:
        """Recompute terms and outputs after other blocks have moved their sites."""
        binding = self._bind(model_args, model_kwargs)
        is_single = is_prng_key(state.rng_key)
        own = {name: state.z[name][None] if is_single else state.z[name] for name in binding.moved}
        held = binding.held_values(_conditioned(model_kwargs))
        chains = binding.algorithm.init(own | held).chains
        return state._replace(
            potential_energy=_unbatched(-jnp.sum(chains.log_terms, axis=0), is_single),
            superchain=state.superchain._replace(chains=chains),
        )

    def wrap_model(self, wrapper: Callable[[Model], Model]) -> "LMH":
        """Return a copy of the kernel for ``wrapper(model)``."""
        kernel = copy.copy(self)
        kernel._model = wrapper(self._model)
        kernel._binding = kernel._started = kernel._sample_fn = None
        return kernel

    def postprocess_fn(
        self, model_args: tuple, model_kwargs: Mapping[str, Any] | None
    ) -> Callable[[dict], dict]:
        """Return a function that puts latent values and outputs side by side: no replay."""
        del model_args, model_kwargs
        return side_by_side

    def get_diagnostics_str(self, state: AdLMHState) -> str:
        """Return the number of steps and the mean acceptance rate of the phase."""
        rate = float(np.mean(state.mean_accept_prob))
        return f"{int(np.max(state.num_steps))} steps, acc. prob={rate:.2f}"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what `init` makes anew."""
        return {**self.__dict__, "_binding": None, "_started": None, "_sample_fn": None}

    def _bind(self, args: tuple, kwargs: Mapping[str, Any] | None) -> Binding:
        """Compile the model for these arguments, unless it was compiled for them last."""
        held = frozenset(_conditioned(kwargs))
        kwargs = {name: v for name, v in (kwargs or {}).items() if name != GIBBS_SITES_KWARG}
        if self._binding is None or not self._binding.is_for(args, kwargs, held):
            self._binding = bind(
                self._model,
                args,
                kwargs,
                held,
                self._outputs,
                schedule=self._schedule(),
                proposals=self._proposals,
                blocks=self._blocks,
                num_steps=self._num_steps,
                epoch=self._epoch,
            )
        return self._binding


class AdLMH(LMH):
    """Output-sensitive adaptive Metropolis-Hastings: components that move the outputs come first.

    A kernel of `numpyro.infer.MCMC`, for models with discrete latent sites of any kind and
    likelihoods without gradients. One iteration is a sweep's worth of single-component steps.

    Parameters
    ----------
    model
        A NumPyro model of fixed structure.
    outputs
        What you want to know: site names, ``"return"``, or a function of the dict of values. The
        schedule favours the components that move them, and the samples hold them besides the latent
        sites. None: every latent and deterministic site.
    exploration, joint_output
        As for `ucb`.
    schedule
        Another schedule than ``ucb(exploration, joint_output)``, such as ``influence()``.
    proposals, blocks
        As for `sample`.
    steps_per_iteration
        Steps of each chain per iteration. Default: a sweep's worth, one for each component or
        block, and one for each number of sites that walk together.
    epoch
        Steps between updates of the weights; 1 is exactly the paper. Default: 64, or a quarter of a
        sweep where that is more.
    adapt
        ``"warmup"`` freezes the schedule after MCMC's warm-up; ``"always"`` goes on adapting (the
        draws are then those of an adaptive chain, right only in the limit).

    Notes
    -----
    With ``chain_method="vectorized"`` the chains form one superchain: they share the schedule and,
    at each step, the selected component, and run at full speed. With the other methods every chain
    is a superchain of its own. As a block of `numpyro.infer.Gibbs` the kernel moves its own sites
    and takes the values of the others as they come.

    ``extra_fields`` can name ``accept_prob``, ``num_steps``, ``potential_energy``, the ``weights``
    of ``kernel.entry_names``, and the tallies ``selected``, ``accepted`` and ``invalid`` of
    ``kernel.component_names``.

    Examples
    --------
    ::

        sizes = {"num_warmup": 500, "num_samples": 1000, "num_chains": 100}
        kernel = adlmh.AdLMH(model, outputs=["rate"])
        mcmc = numpyro.infer.MCMC(kernel, chain_method="vectorized", **sizes)
        mcmc.run(jax.random.key(0), readings)
        mcmc.get_samples()["rate"]
    """

    def __init__(
        self,
        model: Model,
        outputs: Outputs = None,
        *,
        exploration: float = 0.5,
        joint_output: bool = False,
        schedule: Schedule | None = None,
        proposals: str | Mapping[str, Any] = "auto",
        blocks: str = "auto",
        steps_per_iteration: int | None = None,
        epoch: int | None = None,
        adapt: Literal["warmup", "always"] = "warmup",
    ) -> None:
        super().__init__(
            model,
            outputs,
            proposals=proposals,
            blocks=blocks,
            steps_per_iteration=steps_per_iteration,
        )
        if adapt not in ("warmup", "always"):
            raise ValueError(f'`adapt` must be "warmup" or "always", got {adapt!r}.')
        # Made when it is needed: a schedule is functions, which cannot be pickled.
        self._own_schedule = schedule
        self._ucb_settings = (exploration, joint_output)
        check_schedule(self._schedule())
        self._epoch = epoch
        self._always_adapts = adapt == "always"

    def _schedule(self) -> Schedule:
        return ucb(*self._ucb_settings) if self._own_schedule is None else self._own_schedule


def _unbatched(array: Array, is_single: bool) -> Array:
    return array[0] if is_single else array


def _first(keys: Key) -> Key:
    """Return the key of a superchain: that of its first chain."""
    return keys if is_prng_key(keys) else keys[0]


def _conditioned(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values of the sites that other blocks of a `Gibbs` own."""
    return dict((kwargs or {}).get(GIBBS_SITES_KWARG, {}))
