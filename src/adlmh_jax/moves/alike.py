"""Alike terms among those that summed sites touch, found and cut out as factors."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from adlmh_jax.graph import Cutter, Elimination, Scope, Variable, plan_elimination
from adlmh_jax.moves.factors import Factor, Source
from adlmh_jax.moves.rolling import LoneTerm, RolledReads, RunFinder, gather_constants, join_runs


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
    kinds: Sequence[tuple[Variable, Hashable]]
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
        return Factor(
            body=first.fragment,
            body_inputs=(*first.reads, *first.constants),
            sources=tuple(sources),
            scopes=tuple(self._scope(term) for term in run),
            shape=self.runs.graph.avals[self.runs.terms[first.name]].shape,
            plate=plate,
            axes=axes,
            is_moved=not self.runs.moved.isdisjoint(first.reads.values()),
            is_tempered=first.name not in self.runs.values,
        )
