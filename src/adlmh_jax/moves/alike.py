"""Alike terms among those that summed sites touch, found and cut out as factors."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from adlmh_jax.graph import (
    Cutter,
    Elimination,
    Scope,
    Switched,
    Variable,
    find_switches,
    plan_elimination,
)
from adlmh_jax.moves.factors import Factor, Source
from adlmh_jax.moves.rolling import LoneTerm, RolledReads, RunFinder, gather_constants, join_runs

MIN_SWITCHED = 4  # terms; of fewer, each is computed at each value
MAX_SWITCHED = 1 << 20  # terms times values: entries of the table of what each value asks for


@dataclass(frozen=True)
class FactorFinder:
    """Find alike terms among those that summed variables touch.

    Attributes
    ----------
    runs
        What finds runs of alike terms.
    variables
        Number of the variable of each summed site.
    kinds
        The variables themselves, and what else must be equal for terms to be alike.
    axes
        For each site with a plate, which axes of each term carry it.
    """

    runs: RunFinder
    variables: Mapping[str, int]
    kinds: Sequence[tuple[Variable, tuple[tuple[float, ...], Hashable]]]
    axes: Mapping[str, Mapping[str, tuple[int, ...]]]

    def cut(
        self, names: Sequence[str], cutter: Cutter, found: RolledReads
    ) -> tuple[list[Factor], list[tuple[str, tuple[int, ...]]]]:
        """Return the factors of some terms, and of each the first term and the shape of all."""
        factors, terms = [], []
        for run in join_runs(map(self.runs.cut_alone, names), self._step):
            factor = self._factor(run, cutter, found)
            factors.append(factor)
            terms.append((run[0].name, (len(run), *factor.shape)))
        return factors, terms

    def eliminate(self, factors: Sequence[Factor]) -> Elimination:
        """Return how the variables are eliminated."""
        scopes = [scope for factor in factors for scope in factor.scopes]
        elimination, _ = plan_elimination([kind for kind, _ in self.kinds], scopes)
        if elimination is None:
            raise TypeError("Without a limit there is always a way.")
        return elimination

    def _step(self, term: LoneTerm, next_term: LoneTerm) -> tuple | None:
        """Return how reads go on from term to term; None if the two are not alike."""
        if not self.runs.are_neighbours(term, next_term):
            return None
        if self._plate(term) != self._plate(next_term):
            return None
        if self._positions(term) != self._positions(next_term):
            return None
        steps: list = []
        for before, after in zip(term.reads.values(), next_term.reads.values(), strict=True):
            if before in self.variables:
                if self.kinds[self.variables[before]] != self.kinds[self.variables[after]]:
                    return None
                steps.append("summed")
                continue
            goes_on = self.runs.step_of(before, after)
            if goes_on is None:
                return None
            steps.append(goes_on)
        return tuple(steps)

    def _scope(self, term: LoneTerm) -> Scope:
        numbers = {self.variables[site] for site in term.reads.values() if site in self.variables}
        return tuple(sorted(numbers))

    def _positions(self, term: LoneTerm) -> list[int | None]:
        """Return for each read the position of its variable in the scope."""
        scope, numbers = self._scope(term), self.variables
        return [scope.index(numbers[s]) if s in numbers else None for s in term.reads.values()]

    def _plate(self, term: LoneTerm) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the plate of a term's variables, and the axes of the term that carry it."""
        for site in term.reads.values():
            if site in self.axes and site in self.variables:
                return self.kinds[self.variables[site]][0].plate, self.axes[site][term.name]
        return (), ()

    def _factor(self, run: list[LoneTerm], cutter: Cutter, found: RolledReads) -> Factor:
        first, second = run[0], run[min(1, len(run) - 1)]
        sources = []
        positions = self._positions(first)
        for (body_number, site), position in zip(first.reads.items(), positions, strict=True):
            if position is not None:
                sources.append(Source(position, is_summed=True))
            elif second.reads[body_number] == site:
                sources.append(Source(cutter.number(self.runs.values[site])))
            else:
                number = cutter.new_number()
                found.sites[number] = (site, len(run))
                sources.append(Source(number, is_mapped=True))
        for number, is_mapped in gather_constants(self.runs.graph, run, cutter, found):
            sources.append(Source(number, is_mapped=is_mapped))
        plate, axes = self._plate(first)
        scopes = tuple(self._scope(term) for term in run)
        return Factor(
            body=first.fragment,
            body_inputs=(*first.reads, *first.constants),
            sources=tuple(sources),
            scopes=scopes,
            shape=self.runs.graph.avals[self.runs.terms[first.name]].shape,
            plate=plate,
            axes=axes,
            is_moved=not self.runs.moved.isdisjoint(first.reads.values()),
            is_tempered=first.name not in self.runs.values,
            switched=None if plate else self._find_switched(first, scopes),
        )

    def _find_switched(self, term: LoneTerm, scopes: Sequence[Scope]) -> Switched | None:
        """Return how alike terms depend on the variables, if that is by yes or no alone.

        Only where it pays: one scope, listed values, and more of them than there are settings.
        """
        kinds = [self.kinds[variable] for variable in scopes[0]]
        num_values = math.prod(variable.num_values for variable, _ in kinds)
        graph = self.runs.graph
        num_terms = len(scopes) * graph.avals[self.runs.terms[term.name]].size
        if (
            len(set(scopes)) > 1
            or num_terms < MIN_SWITCHED
            or num_values * num_terms > MAX_SWITCHED
        ):
            return None
        if any(not values for _, (values, _) in kinds):
            return None
        sites = {number: self.runs.values[site] for number, site in term.reads.items()}
        avals = {n: graph.avals[value] for n, value in [*sites.items(), *term.constants.items()]}
        deciders = [number for number, site in term.reads.items() if site in self.variables]
        switched = find_switches(term.fragment, avals, deciders, term.constants)
        is_worth = switched is not None and num_values >= 2 * len(switched.settings)
        return switched if is_worth else None
