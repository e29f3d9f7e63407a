"""`compile_model`: a NumPyro model as flat site arrays, terms, outputs and dependencies."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from adlmh_jax.graph.layout import Layout, make_layout
from adlmh_jax.model import errors
from adlmh_jax.graph.alignment import (
    Alignments,
    align,
    find_users,
    is_independent,
    probe,
    term_axes,
)
from adlmh_jax.moves.branch import Way, cut_branch
from adlmh_jax.model.describe import describe
from adlmh_jax.moves.elements import Element, view_element
from adlmh_jax.graph.fragments import Cutter
from adlmh_jax.moves.groups import Group, GroupData
from adlmh_jax.moves.groups import make_groups as group_cuts
from adlmh_jax.model.outputs import check_outputs
from adlmh_jax.model.sites import (
    Outputs,
    SiteTable,
    element_names,
    find_sites,
    run_model,
    starting_value,
    term_in_words,
)
from adlmh_jax.model.touches import Touches, find_completed, find_touches
from adlmh_jax.model.tracing import ModelCall, Propose, Traced, trace_program
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
    init
        Starting values of some sites.
    """

    call: ModelCall
    sites: SiteTable
    traced: Traced
    touches: dict[str, Touches]
    init: dict[str, Array] = field(default_factory=dict)

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
        """Return chains at their starting values, zero where they have none.

        Terms and outputs that depend on no site are there already.
        """
        terms = self._known(self.traced.terms, self.term_layout, num_chains)
        return Chains(
            self.position_layout.pack(
                {
                    site.name: jnp.broadcast_to(
                        self.init.get(site.name, jnp.zeros(site.shape, site.dtype)),
                        (num_chains, *site.shape),
                    )
                    for site in self.sites.sites
                }
            ),
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
        terms = {n: t[0] for n, t in self.term_layout.unpack({bank: one.log_terms}).items()}
        values = {n: v[0] for n, v in self.position_layout.unpack(one.position).items()}
        run = run_model(
            self.call.model, self.call.args, self.call.kwargs, values, jax.random.key(0)
        )
        bad = {n: np.asarray(t) for n, t in terms.items() if not np.all(np.isfinite(t))}
        words = dict(term_in_words(run.scored[name], term) for name, term in bad.items())
        reached = [s for s in self.sites.names if set(self.touches[s].terms) & set(bad)]
        return errors.no_finite_start(words, {n: values[n] for n in reached}, num_tries)

    @cached_property
    def _alignments(self) -> dict[str, Alignments]:
        """How every value is aligned with the elements of each site of several."""
        graph, users = self.traced.graph, find_users(self.traced.graph)
        return {
            site.name: align(graph, self.traced.values[site.name], site.batch_shape, users)
            for site in self.sites.sites
            if site.num_components > 1
        }

    def is_block(self, name: str) -> bool:
        """Whether a site's elements are conditionally independent, so that all may move at once."""
        if self.sites[name].num_components == 1 or self.touches[name].redraws:
            return False
        terms = [self.traced.terms[term] for term in self.touches[name].terms]
        return is_independent(self._alignments[name], terms)

    def check_blocks(self, draws: tuple[Position, Position]) -> None:
        """Move single elements of independent sites, and raise if other elements' terms move.

        Parameters
        ----------
        draws
            Two positions: where to look, and where the value of a moved element comes from.
        """
        for site in self.sites.sites:
            if self.is_block(site.name):
                axes = dict(
                    zip(self.touches[site.name].terms, self._term_axes(site.name), strict=True)
                )
                ends = [(0,) * len(site.batch_shape), tuple(n - 1 for n in site.batch_shape)]
                term = probe(
                    lambda position: self.evaluate(position)[0], draws, site.name, axes, ends
                )
                if term is not None:
                    raise errors.wrong_analysis(site.name, term)

    def can_enumerate(self, name: str) -> bool:
        """Whether the values of a site's choices are a finite list that no other site changes."""
        is_dynamic = any(name in touches.redraws for touches in self.touches.values())
        return (
            bool(self.sites[name].candidates) and not is_dynamic and not self.touches[name].redraws
        )

    def make_groups(
        self,
        ways: Mapping[str, tuple[Way, ...]],
        proposals: Mapping[tuple[str, int], Propose] | None = None,
        is_start: bool = False,
    ) -> tuple[list[Group], list[GroupData], dict[tuple[str, int], tuple[int, int]]]:
        """Return the branches of a step, their arrays, and where each way of a site is found.

        The branches of a start score what is complete when the sites are drawn in program order.
        """
        traced = self.traced
        if proposals:
            traced = trace_program(self.call, self.sites, proposals)
        touches = find_completed(traced, self.sites) if is_start else self.touches
        layouts = (self.position_layout, self.term_layout)
        keys, cuts = [], []
        for name, site_ways in ways.items():
            for number, way in enumerate(site_ways):
                axes = self._term_axes(name) if way.is_block else ()
                element = None if is_start else self._element(traced, name, way)
                keys.append((name, number))
                cuts.append(
                    cut_branch(traced, self.sites, layouts, touches[name], name, way, axes, element)
                )
        groups, data, places = group_cuts(cuts, self.sites, *layouts, self.output_layout)
        return groups, data, dict(zip(keys, places, strict=True))

    def _element(self, traced: Traced, name: str, way: Way) -> Element | None:
        """Return the site seen from one element, where a move of one needs no others."""
        site, touches = self.sites[name], self.touches[name]
        if way.is_block or site.num_components == 1 or touches.redraws:
            return None
        alignments = align(traced.graph, traced.values[name], site.batch_shape)
        return view_element(traced, site, touches, alignments, way.proposal)

    def _term_axes(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Return which axes of each touched term carry the site's batch axes."""
        terms = {term: self.traced.terms[term] for term in self.touches[name].terms}
        axes = term_axes(self._alignments[name], terms)
        return tuple(axes[term] for term in terms)


def compile_model(
    model: Model,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    outputs: Outputs = None,
    init: Mapping[str, Any] | None = None,
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
    init
        Starting values by site name, for all chains; needed for sites without a prior to draw from
        (ImproperUniform). Other sites start at prior draws.

    Returns
    -------
    The `Program`; print it to see what touches what.
    """
    if not callable(model):
        raise errors.not_a_model(model)
    if not isinstance(model_args, tuple):
        remedy = "Write `(data,)` for a single argument."
        raise errors.wrong_arguments("model_args", model_args, "tuple", remedy)
    if not isinstance(model_kwargs, Mapping | None):
        remedy = 'Write `{"name": value}`.'
        raise errors.wrong_arguments("model_kwargs", model_kwargs, "dict", remedy)
    check_outputs(outputs)
    if not isinstance(init, Mapping | None):
        raise errors.wrong_arguments("init", init, "dict", 'Write `{"name": value}`.')
    start = {name: jnp.asarray(value) for name, value in (init or {}).items()}
    # A site without a prior is drawn nowhere: it has its starting value until it is moved.
    start_there = functools.partial(starting_value, start)
    fixed = handlers.substitute(model, substitute_fn=start_there) if start else model
    call = ModelCall(fixed, model_args, dict(model_kwargs or {}), outputs)
    sites = find_sites(fixed, call.args, call.kwargs, start)
    for name in start:
        if name not in sites.names:
            raise errors.unknown_init(name, sites.names)
    start = {name: value.astype(sites[name].dtype) for name, value in start.items()}
    traced = trace_program(call, sites)
    return Program(call, sites, traced, find_touches(traced, sites), start)
