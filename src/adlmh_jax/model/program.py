"""`Program`: a NumPyro model as flat site arrays, terms, outputs and dependencies."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adlmh_jax.graph import (
    Alignments,
    Code,
    Cutter,
    Fragment,
    Layout,
    PerDataset,
    Probe,
    align,
    axes_of_terms,
    find_offender,
    find_users,
    is_independent,
    make_layout,
    run_at_each,
)
from adlmh_jax.model import errors
from adlmh_jax.model.call import ModelCall
from adlmh_jax.model.describe import describe, describe_html
from adlmh_jax.model.distributions import log_terms
from adlmh_jax.model.sites import (
    SiteTable,
    describe_term,
    element_names,
)
from adlmh_jax.model.touches import Touches
from adlmh_jax.model.tracing import Proposals, Traced, trace_program
from adlmh_jax.types import Array, Chains, Key, Position


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
    proposals
        The proposals that were traced with it.
    """

    call: ModelCall
    sites: SiteTable
    traced: Traced
    touches: dict[str, Touches]
    init: dict[str, Array] = field(default_factory=dict)
    proposals: Proposals = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a readable table of the program."""
        return describe(self)

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return describe_html(self)

    @cached_property
    def latent_layout(self) -> Layout:
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
        traced = self.traced
        results = self._compute([*traced.terms.values(), *traced.outputs.values()], position)
        num_terms = len(traced.terms)
        return (
            dict(zip(traced.terms, results[:num_terms], strict=True)),
            dict(zip(traced.outputs, results[num_terms:], strict=True)),
        )

    def evaluate_datasets(
        self, positions: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Compute all terms and outputs at a position for each data set, ``[D, ...]``."""
        traced = self.traced
        fragment, known, site_of = self._cut([*traced.terms.values(), *traced.outputs.values()])
        own = {n: value.values for n, value in known.items() if isinstance(value, PerDataset)}
        common = {n: value for n, value in known.items() if n not in own}
        inputs = {n: positions[name] for n, name in site_of.items()}
        computed = run_at_each(Code(fragment), common, {**own, **inputs})
        results = list(map(np.asarray, computed))
        num_terms = len(traced.terms)
        return (
            dict(zip(traced.terms, results[:num_terms], strict=True)),
            dict(zip(traced.outputs, results[num_terms:], strict=True)),
        )

    def in_supports(self, position: Position) -> dict[str, Array]:
        """Return whether all elements of each latent site lie in their supports."""
        results = self._compute(list(self.traced.supports.values()), position)
        return dict(zip(self.traced.supports, map(jnp.all, results), strict=True))

    def _compute(self, wanted: list[int], position: Position) -> list[Array]:
        """Compute some values of the graph at a position."""
        fragment, known, site_of = self._cut(wanted)
        for number, name in site_of.items():
            known[number] = jnp.asarray(position[name], self.sites[name].dtype)
        return fragment.run(known)

    def _cut(self, wanted: list[int]) -> tuple[Fragment, dict[int, Any], dict[int, str]]:
        """Return what computes some values, its constants, and the sites that it reads."""
        graph = self.traced.graph
        cutter = Cutter(graph, dict.fromkeys(self.traced.values.values(), "value"))
        fragment = cutter.cut(wanted)
        names = {value: name for name, value in self.traced.values.items()}
        known = {n: graph.constants[value] for n, value in cutter.constants.items()}
        return fragment, known, {n: names[value] for n, value in cutter.inputs.items()}

    def _terms_at(self, positions: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all terms at positions ``[B, ...]``, compiled once for all models alike."""
        fragment, known, site_of = self._cut(list(self.traced.terms.values()))
        inputs = {number: positions[name] for number, name in site_of.items()}
        results = run_at_each(Code(fragment), known, inputs)
        return dict(zip(self.traced.terms, map(np.asarray, results), strict=True))

    def terms_in_double(self, position: Position) -> dict[str, np.ndarray]:
        """Compute all terms at positions ``[C, ...]`` anew in double precision, by NumPyro."""

        def compute(position: Position) -> dict[str, Array]:
            run = self.call.run(position, jax.random.key(0))
            return {name: jnp.asarray(log_terms(m)) for name, m in run.scored.items()}

        with jax.enable_x64(True):
            wide = {n: _widened(np.asarray(value)) for n, value in position.items()}
            return {n: np.asarray(term) for n, term in jax.jit(jax.vmap(compute))(wide).items()}

    def log_density(self, position: Position) -> Array:
        """Return the log of the joint density at a position (NumPyro's ``log_density``)."""
        terms, _ = self.evaluate(position)
        return sum((jnp.sum(term) for term in terms.values()), start=jnp.zeros(()))

    def draw_prior(self, key: Key) -> Position:
        """Draw all latent sites from the prior, by running the model."""
        run = self.call.run({}, key)
        return {s.name: jnp.asarray(run.latent[s.name]["value"], s.dtype) for s in self.sites.sites}

    def chains_at(self, position: Position) -> Chains:
        """Pack positions ``[C, ...]`` with their terms and outputs."""
        terms, outputs = jax.vmap(self.evaluate)(position)
        log_terms = self.term_layout.pack(terms)
        if len(log_terms) != 1:
            raise TypeError(f"Terms have several dtypes: {sorted(log_terms)}.")
        return Chains(
            self.latent_layout.pack(position),
            next(iter(log_terms.values())),
            self.output_layout.pack(outputs),
        )

    def empty_chains(
        self,
        num_chains: int,
        given: Position | None = None,
        datasets: np.ndarray | None = None,
    ) -> Chains:
        """Return chains at the given values ``[C, ...]``, zero where there are none.

        Terms and outputs that depend on no site are there already. Chains are those of data set 0,
        or of the ``datasets``, ``[C]``.
        """
        owners = np.zeros(num_chains, int) if datasets is None else datasets
        zeros = {s.name: np.zeros((num_chains, *s.shape), s.dtype) for s in self.sites.sites}
        terms = self._known(self.traced.terms, self.term_layout, owners)
        return Chains(
            self.latent_layout.pack({**zeros, **(given or {})}),
            next(iter(terms.values())),
            self._known(self.traced.outputs, self.output_layout, owners),
        )

    def _known(
        self, numbers: Mapping[str, int], layout: Layout, datasets: np.ndarray
    ) -> dict[str, Array]:
        """Return banks with the values that are constants; the others are zero."""
        constants = self.traced.graph.constants
        values = {}
        for name, number in numbers.items():
            value = constants.get(number, np.zeros(layout[name].shape, layout[name].bank))
            if isinstance(value, PerDataset):
                values[name] = value.values[datasets]
            else:
                values[name] = np.broadcast_to(value, (datasets.size, *layout[name].shape))
        return layout.pack(values)

    def no_finite_start(self, chains: Chains, num_tries: int) -> errors.ModelError:
        """Return an error that names the terms that are not finite, and the values there."""
        bad_chain = int(np.argmax(~np.all(np.isfinite(chains.log_terms), axis=0)))
        terms, values = self._chain_at(chains, bad_chain)
        bad = {n: t for n, t in terms.items() if not np.all(np.isfinite(t))}
        reached = [s for s in self.sites.names if set(self.touches[s].terms) & set(bad)]
        wrong = self._describe_terms(bad, values)
        return errors.no_finite_start(wrong, {n: values[n] for n in reached}, num_tries)

    def check_given(self, chains: Chains, given: Collection[str]) -> None:
        """Raise if sites were given values outside their supports, or of density zero."""
        if not given:
            return
        inside = jax.jit(jax.vmap(self.in_supports))(self.latent_layout.unpack(chains.latent))
        is_inside = np.all([inside[name] for name in given], axis=0)
        chain = int(np.argmin(is_inside & np.all(np.isfinite(chains.log_terms), axis=0)))
        terms, values = self._chain_at(chains, chain)
        is_bad = {name: not np.all(np.isfinite(term)) for name, term in terms.items()}
        bad = {n: terms[n] for n in self._up_to(given) if is_bad[n]}
        bad |= {n: terms[n] for n in given if is_bad[n] or not inside[n][chain]}
        if bad:
            blamed = {s: values[s] for s in given if set(self.touches[s].terms) & set(bad)}
            raise errors.impossible_init(blamed, self._describe_terms(bad, values))

    def _up_to(self, sites: Collection[str]) -> set[str]:
        """Return the terms that some sites can change, and no others."""
        mine: set[str] = set()
        others: set[str] = set()
        for name in self.sites.names:
            (mine if name in sites else others).update(self.touches[name].terms)
        return mine - others

    def _chain_at(self, chains: Chains, index: int) -> tuple[dict, dict]:
        """Return the terms and the latent values of one chain, by name."""
        one = jax.tree.map(lambda leaf: leaf[:, index : index + 1], chains)
        bank = self.term_layout.slots[0].bank
        terms = self.term_layout.unpack({bank: one.log_terms})
        values = self.latent_layout.unpack(one.latent)
        return (
            {name: np.asarray(term[0]) for name, term in terms.items()},
            {name: value[0] for name, value in values.items()},
        )

    def _describe_terms(self, terms: Mapping[str, np.ndarray], values: Position) -> dict[str, str]:
        """Say what is wrong with terms that are not finite, or whose values are impossible."""
        run = self.call.run(values, jax.random.key(0))
        return dict(describe_term(run.scored[name], term) for name, term in terms.items())

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
        probes = []
        for site in self.sites.sites:
            if self.is_block(site.name):
                axes = self.axes_by_term(site.name)
                ends = [(0,) * len(site.batch_shape), tuple(n - 1 for n in site.batch_shape)]
                probes.append(Probe(site.name, axes, ends))
        offender = find_offender(self._terms_at, draws, probes)
        if offender is not None:
            raise errors.wrong_analysis(*offender)

    def can_enumerate(self, name: str) -> bool:
        """Whether the values of a site's choices are a finite list that no other site changes."""
        is_dynamic = any(name in touches.redraws for touches in self.touches.values())
        return (
            bool(self.sites[name].candidates) and not is_dynamic and not self.touches[name].redraws
        )

    def of_dataset(self, number: int) -> "Program":
        """Return the program of one data set; itself, if there is but one."""
        if not self.call.own:
            return self
        graph = self.traced.graph
        own = replace(graph, constants=graph.constants.of_dataset(number))
        return replace(
            self,
            call=self.call.of_dataset(number),
            traced=replace(self.traced, graph=own),
        )

    def with_proposals(self, proposals: Proposals) -> "Program":
        """Return the program with these proposals traced; it is itself if it has them all."""
        if proposals.items() <= self.proposals.items():
            return self
        traced = trace_program(self.call, self.sites, proposals)
        return replace(self, traced=traced, proposals=proposals)

    def axes_by_term(self, name: str) -> dict[str, tuple[int, ...]]:
        """Return which axes of each touched term carry the site's batch axes."""
        terms = {term: self.traced.terms[term] for term in self.touches[name].terms}
        return axes_of_terms(self._alignments[name], terms)


def _widened(array: np.ndarray) -> np.ndarray:
    """Return numbers with twice the bits."""
    return array.astype({"f": np.float64, "i": np.int64}.get(array.dtype.kind, array.dtype))
