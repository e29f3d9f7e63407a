"""What the schedule of a run was at its end."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np


class ScheduleReport(NamedTuple):
    """The schedule of each superchain at the end of the run, per component.

    Attributes
    ----------
    names
        Names of the schedule's entries: components, or blocks such as ``z[:]``.
    weights
        Selection probabilities of the entries, one row for each superchain.
    learned
        What the schedule learned about its entries, by name, one row for each superchain; nothing
        for a schedule that does not learn.
    selected, accepted, invalid
        Steps of chains in which the entry was selected, its proposal accepted with another value
        than before, and its density NaN or +inf; a block counts each of its components.
    race
        What else it learned, by name, one row for each superchain: of `influence`, the
        ``share_of_uniform`` in its weights (NaN if UCB's weights won) and the scores of the
        ``race`` that decided on it, of UCB's weights and of shares 0.1, 0.3, 0.5, 0.7 and 1: the
        variance of the outputs' means, in units in which less is better.
    rule
        How components were selected, as written by the user: ``"ucb(exploration=0.5, ...)"``.
    component_names, component_selected, component_accepted, component_invalid
        The same for the single components.
    stuck
        Names of components that never changed in some chains, which hold them at different values.
    settled
        Names of discrete components that most chains came to one value of, and stayed there.
    drawn_exactly
        Sites that are drawn anew, exactly, whenever those that they hang on move: where one of them
        hardly changes, it is that certain.
    output_names
        Names of the scalar outputs.
    """

    names: list[str]
    weights: np.ndarray
    learned: Mapping[str, np.ndarray]
    selected: np.ndarray
    accepted: np.ndarray
    invalid: np.ndarray
    race: Mapping[str, np.ndarray] = MappingProxyType({})
    rule: str | None = None
    component_names: Sequence[str] = ()
    component_selected: np.ndarray = np.zeros(0)
    component_accepted: np.ndarray = np.zeros(0)
    component_invalid: np.ndarray = np.zeros(0)
    stuck: Sequence[str] = ()
    settled: Sequence[str] = ()
    drawn_exactly: Collection[str] = ()
    output_names: Sequence[str] = ()

    @property
    def rewards(self) -> np.ndarray | None:
        """The paper's r; None for a schedule that has none."""
        return self.learned.get("rewards")

    @property
    def counts(self) -> np.ndarray | None:
        """The paper's c; None for a schedule that has none."""
        return self.learned.get("counts")

    @property
    def influence(self) -> np.ndarray | None:
        """What each entry explains of each output, ``[superchain, entry, output]``.

        It is the share of the output's variance, 0 where it cannot be told from noise; what several
        components explain is added up, and may be more than 1. Of more than 16 outputs there is
        only the mean. None for a schedule that does not ask.
        """
        return self.learned.get("influence")

    def drivers(self) -> Any:
        """Return what drives the outputs: a table of `influence`, the mean over superchains.

        Returns
        -------
        A ``pandas.DataFrame`` with a row for each entry and a column for each output.
        """
        if self.influence is None:
            raise ValueError(
                f"The schedule `{self.rule}` does not learn what drives the outputs: sample with "
                "`schedule=adlmh.influence()`."
            )
        import pandas

        columns = list(self.output_names)
        if len(columns) != self.influence.shape[-1]:
            columns = ["all outputs"]
        return pandas.DataFrame(self.influence.mean(axis=0), index=self.names, columns=columns)

    def as_arrays(self) -> dict[str, np.ndarray]:
        """Return names, weights, tallies and what was learned, as arrays to be stored."""
        learned = {n: a for n, a in self.learned.items() if np.shape(a) == self.weights.shape}
        return {
            "names": np.array(self.names, dtype=object),
            "weights": self.weights,
            "selected": self.selected,
            "accepted": self.accepted,
            **learned,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "ScheduleReport":
        """Return the report that `as_arrays` was made of, but for single components."""
        own = {name: np.asarray(array) for name, array in arrays.items()}
        return cls(
            names=[str(name) for name in own.pop("names")],
            weights=own.pop("weights"),
            selected=own.pop("selected"),
            accepted=own.pop("accepted"),
            invalid=np.zeros(0),
            learned=own,
        )

    @property
    def rejected(self) -> np.ndarray:
        """Steps of chains whose proposal was rejected."""
        return self.selected - self.accepted
