"""`compile_model`: a NumPyro model as flat site arrays, terms, outputs and dependencies."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.layout import Layout, make_layout
from adlmh_jax.program import errors
from adlmh_jax.program.branches import Group, GroupData, Touches, cut_branch, find_touches
from adlmh_jax.program.branches import make_groups as group_cuts
from adlmh_jax.program.describe import describe
from adlmh_jax.program.fragments import Cutter
from adlmh_jax.program.sites import Outputs, SiteTable, element_names, find_sites, run_model
from adlmh_jax.program.tracing import ModelCall, Propose, Traced, trace_program
from adlmh_jax.types import Array, Chains, Key, Model, Position


@dataclass(frozen=True, repr=False)
class Program:
    """A compiled model. Printing it shows what touches what.

    Attributes
    ----------
    call
        The model, its arguments, and the outputs asked for.
    sites
        Its latent sites.
    traced
        Its computations.
    touches
        What moving each site can change.
    """

    call: ModelCall
    sites: SiteTable
    traced: Traced
    touches: dict[str, Touches]

    def __repr__(self) -> str:
        """Return a readable table of the program."""
        return describe(self)

    @cached_property
    def position_layout(self) -> Layout:
        """Where the latent values live."""
        return make_layout({site.name: (site.shape, site.dtype) for site in self.sites.sites})

    @cached_property
    def term_layout(self) -> Layout:
        """Where the terms live."""
        return self._layout(self.traced.terms)

    @cached_property
    def output_layout(self) -> Layout:
        """Where the outputs live."""
        return self._layout(self.traced.outputs)

    def _layout(self, numbers: Mapping[str, int]) -> Layout:
        avals = {name: self.traced.graph.avals[number] for name, number in numbers.items()}
        return make_layout({n: (aval.shape, str(aval.dtype)) for n, aval in avals.items()})

    @property
    def num_components(self) -> int:
        """Number of random choices, N."""
        return self.sites.num_components

    @property
    def output_names(self) -> list[str]:
        """A name for each of the K scalar outputs."""
        layout = self.output_layout
        return [
            name
            for output, slot in zip(layout.names, layout.slots, strict=True)
            for name in element_names(output, slot.shape)
        ]

    def evaluate(self, position: Position) -> tuple[dict[str, Array], dict[str, Array]]:
        """Compute all terms and outputs at a position.

        Parameters
        ----------
        position
            A value for each latent site.

        Returns
        -------
        The log-probabilities of each scored site and the outputs, by name.
        """
        wanted = [*self.traced.terms.values(), *self.traced.outputs.values()]
        cutter = Cutter(self.traced.graph, dict.fromkeys(self.traced.values.values(), "value"))
        fragment = cutter.cut(wanted)
        known = {n: self.traced.graph.constants[value] for n, value in cutter.constants.items()}
        site_of = {value: name for name, value in self.traced.values.items()}
        for number, value in cutter.inputs.items():
            name = site_of[value]
            known[number] = jnp.asarray(position[name], self.sites[name].dtype)
        results = fragment.run(known)
        num_terms = len(self.traced.terms)
        return (
            dict(zip(self.traced.terms, results[:num_terms], strict=True)),
            dict(zip(self.traced.outputs, results[num_terms:], strict=True)),
        )

    def log_density(self, position: Position) -> Array:
        """Return the log of the joint density at a position (NumPyro's ``log_density``)."""
        terms, _ = self.evaluate(position)
        return sum((jnp.sum(term) for term in terms.values()), start=jnp.zeros(()))

    def draw_prior(self, key: Key) -> Position:
        """Draw all latent sites from the prior, by running the model."""
        run = run_model(self.call.model, self.call.args, self.call.kwargs, {}, key)
        return {s.name: jnp.asarray(run.latent[s.name]["value"], s.dtype) for s in self.sites.sites}

    def chains_at(self, position: Position) -> Chains:
        """Pack positions ``[C, ...]`` with their terms and outputs."""
        terms, outputs = jax.vmap(self.evaluate)(position)
        log_terms = self.term_layout.pack(terms)
        if len(log_terms) != 1:
            raise TypeError(f"Terms have several dtypes: {sorted(log_terms)}.")
        return Chains(
            self.position_layout.pack(position),
            next(iter(log_terms.values())),
            self.output_layout.pack(outputs),
        )

    def empty_chains(self, num_chains: int) -> Chains:
        """Return chains at no position, with the terms and outputs that depend on no site."""
        terms = self._known(self.traced.terms, self.term_layout, num_chains)
        return Chains(
            {
                bank: jnp.zeros((size, num_chains), bank)
                for bank, size in self.position_layout.bank_sizes.items()
            },
            next(iter(terms.values())),
            self._known(self.traced.outputs, self.output_layout, num_chains),
        )

    def _known(
        self, numbers: Mapping[str, int], layout: Layout, num_chains: int
    ) -> dict[str, Array]:
        """Return banks with the values that are constants; the others are zero."""
        constants = self.traced.graph.constants
        values = {}
        for name, number in numbers.items():
            value = constants.get(number, np.zeros(layout[name].shape, layout[name].bank))
            values[name] = jnp.broadcast_to(value, (num_chains, *layout[name].shape))
        return layout.pack(values)

    def no_finite_start(self, chains: Chains, num_tries: int) -> errors.ModelError:
        """Return an error that names the terms that are not finite, and the values there."""
        bad_chain = int(np.argmax(~np.all(np.isfinite(chains.log_terms), axis=0)))
        one = jax.tree.map(lambda leaf: leaf[:, bad_chain : bad_chain + 1], chains)
        bank = self.term_layout.slots[0].bank
        terms = self.term_layout.unpack({bank: one.log_terms})
        values = self.position_layout.unpack(one.position)
        bad = {n: float(jnp.sum(t)) for n, t in terms.items() if not np.all(np.isfinite(t))}
        reached = [s for s in self.sites.names if set(self.touches[s].terms) & set(bad)]
        shown = {name: np.asarray(values[name][0]).tolist() for name in reached}
        return errors.no_finite_start(bad, shown, num_tries)

    def make_groups(
        self, proposals: Mapping[str, Propose] | None = None
    ) -> tuple[list[Group], list[GroupData], list[tuple[int, int]]]:
        """Return the branches of a step, the arrays they need, and each site's place in them."""
        traced = self.traced
        if proposals:
            traced = trace_program(self.call, self.sites, proposals)
        cuts = [
            cut_branch(traced, self.sites, self.touches[name], name) for name in self.sites.names
        ]
        return group_cuts(cuts, self.position_layout, self.term_layout, self.output_layout)


def compile_model(
    model: Model,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    outputs: Outputs = None,
) -> Program:
    """Trace a NumPyro model into flat site arrays and find what each site touches.

    Parameters
    ----------
    model
        A NumPyro model whose structure is fixed: the same sites and shapes on every run.
    model_args, model_kwargs
        What to call it with.
    outputs
        Names of latent or deterministic sites, ``"return"`` for the returned value, or a function
        of the dict of their values. None: every latent and deterministic site.

    Returns
    -------
    The `Program`; print it to see what touches what.
    """
    if not isinstance(model_args, tuple):
        raise TypeError(
            f"`model_args` must be a tuple, got {type(model_args).__name__}. Write (data,) for a "
            "single argument."
        )
    call = ModelCall(model, model_args, dict(model_kwargs or {}), outputs)
    sites = find_sites(model, call.args, call.kwargs)
    traced = trace_program(call, sites)
    return Program(call, sites, traced, find_touches(traced, sites))
