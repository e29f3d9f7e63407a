"""Exact transition matrices of moves that sum choices out, from the production `move`.

A move proposes a value of one site, decides, and draws the summed ones by inverting distribution
functions, one uniform number for each. So the probability of each outcome is found by bisection of
one random word after the other.
"""

import itertools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from exact import Exact, log_prior, position_of, prepare
from updates import one_step

from adlmh_jax.proposals import plan_sites

ALWAYS, NEVER = 0, 2**32 - 1  # accept words
CHAINS = 1024  # that are moved at once
NUM_TRIES = 64  # random words from which those of each proposal are taken


@dataclass(frozen=True)
class Case:
    """A start, the words of a proposal, and whether it is accepted."""

    state: tuple
    words: tuple
    proposed: tuple  # the moved site's new value; None where it is not moved
    log_ratio: float = 0.0
    weight: float = 1.0  # of the places in windows


class Mover:
    """The production move of one entry, on chains at given states with given words."""

    def __init__(self, exact: Exact, entry: int, mover: str, summed: tuple[str, ...]) -> None:
        self.exact, self.entry, self.mover, self.summed = exact, entry, mover, summed
        group = int(exact.data.group_of[0, entry])
        self.branch = exact.kernel.groups[group].branch
        self.joint = self.branch.joint
        self.step = jax.jit(self._step)

    def _step(self, data, words, states):
        """Return the new states ``[C, N]``, the log ratios, and how wrong kept terms are."""
        program, position, start = self.exact.program, {}, 0
        for site in program.sites.sites:
            columns = states[:, start : start + site.num_components]
            position[site.name] = columns.reshape(-1, *site.shape).astype(site.dtype)
            start += site.num_components
        chains, moved = one_step(
            self.exact.kernel,
            data,
            words,
            program.chains_at(position),
            self.entry,
            beta=self.exact.beta,
        )
        values = program.latent_layout.unpack(chains.latent)
        fresh = program.chains_at(values)
        differences = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), chains, fresh)
        columns = [values[site.name].reshape(len(states), -1) for site in program.sites.sites]
        wrong = jnp.max(jnp.stack(jax.tree.leaves(differences)))
        return jnp.concatenate(columns, axis=1), moved.log_ratio, wrong

    def run(self, states, words):
        """Return the new states, and the log ratios, of chains that start at states."""
        states, words = np.asarray(states, np.int32), np.asarray(words, np.uint32)
        ends, ratios = [], []
        for first in range(0, len(states), CHAINS):  # one size, one compilation
            some, own = states[first : first + CHAINS], words[first : first + CHAINS]
            padding = ((0, CHAINS - len(some)), (0, 0))
            new, ratio, wrong = self.step(
                self.exact.data, np.pad(own, padding, "edge").T, np.pad(some, padding, "edge")
            )
            assert wrong < (1e-11 if ratio.dtype == np.float64 else 1e-4)
            ends.append(np.asarray(new)[: len(some)])
            ratios.append(np.asarray(ratio, float)[: len(some)])
        return np.concatenate(ends), np.concatenate(ratios)

    def variable_of(self, component):
        """Return the summed variable that a component belongs to."""
        sites = self.exact.program.sites
        return self.joint.variables[self.summed.index(sites.sites[sites.site_of[component]].name)]

    def place_word(self, component):
        """Return the word that places the window of a component."""
        sites = self.exact.program.sites
        start = self.joint.draw_start + sum(v.size for v in self.joint.variables)
        for name, variable in zip(self.summed, self.joint.variables, strict=True):
            if variable.window:
                element = component - sites.first_components[name]
                if 0 <= element < variable.size:
                    return start + element
                start += variable.size
        raise KeyError(component)


def draw_order(joint) -> list[int]:
    """Return the variables in the order in which they are drawn."""
    elimination = joint.elimination
    if hasattr(elimination, "buckets"):
        return [bucket.variable for bucket in reversed(elimination.buckets)]
    return list(reversed(range(elimination.length)))


def digits(mover: Mover) -> list[tuple[int, int, int]]:
    """Return (word, component, number of values) of each draw, in the order of drawing."""
    joint, sites = mover.joint, mover.exact.program.sites
    starts = np.cumsum([0, *(v.size for v in joint.variables)])
    names = mover.summed
    found = []
    for number in draw_order(joint):
        variable = joint.variables[number]
        for element in range(variable.size):
            word = joint.draw_start + int(starts[number]) + element
            component = sites.first_components[names[number]] + element
            found.append((word, component, variable.window or len(variable.candidates)))
    return found


def outcome_probabilities(mover: Mover, cases: list[Case], accept: int) -> list[dict]:
    """Return for each case the probability of each state that it may lead to."""
    nodes = [(index, np.array(case.words, np.int64), 1.0) for index, case in enumerate(cases)]
    for _, words, _ in nodes:
        words[0] = accept
    for word, component, num_values in digits(mover):
        nodes = _split(mover, cases, nodes, word, component, num_values)
    found: list[dict] = [{} for _ in cases]
    ends, _ = mover.run([cases[i].state for i, _, _ in nodes], np.array([w for _, w, _ in nodes]))
    for (index, _, probability), end in zip(nodes, map(tuple, ends.tolist()), strict=True):
        found[index][end] = found[index].get(end, 0.0) + probability
    return found


def _split(mover, cases, nodes, word, component, num_values):
    """Split each node at the thresholds of one word."""
    spread = [(i, words, p, rank) for i, words, p in nodes for rank in range(num_values - 1)]
    low = np.zeros(len(spread), np.int64)
    high = np.full(len(spread), 2**32, np.int64)
    states = [cases[i].state for i, _, _, _ in spread]
    base = np.array([words for _, words, _, _ in spread])
    ranks = np.array([rank for _, _, _, rank in spread])
    firsts = _first_values(mover, cases, nodes, word, component, num_values)
    firsts = np.repeat(firsts, num_values - 1)
    for _ in range(33):
        middle = (low + high) // 2
        base[:, word] = np.minimum(middle, 2**32 - 1)
        ends, _ = mover.run(states, base)
        is_below = (ends[:, component] <= firsts + ranks) & (middle < 2**32)
        low, high = np.where(is_below, middle + 1, low), np.where(is_below, high, middle)
    split = []
    bounds = np.minimum(low, 2**32).reshape(len(nodes), num_values - 1)
    for (index, words, probability), bound in zip(nodes, bounds, strict=True):
        edges = [0, *bound, 2**32]
        for left, right in itertools.pairwise(edges):
            if right > left:
                new = words.copy()
                new[word] = (left + right) // 2
                split.append((index, new, probability * (right - left) / 2**32))
    return split


def _first_values(mover, cases, nodes, word, component, num_values):
    """Return the value that has the rank 0: the first of the list, or of the window."""
    variable = mover.variable_of(component)
    if not variable.window:
        return np.full(len(nodes), int(min(variable.candidates)))
    shift = 32 - (variable.window.bit_length() - 1)
    place_word = mover.place_word(component)
    return np.array(
        [cases[i].state[component] - (int(words[place_word]) >> shift) for i, words, _ in nodes]
    )


def find_cases(mover: Mover) -> list[Case]:
    """Return for each state the words of all its proposals, and of all places of windows."""
    exact = mover.exact
    rng = np.random.default_rng(0)
    num_words = exact.kernel.num_words
    cases = []
    own = own_components(mover)
    for state in exact.states:
        words = rng.integers(0, 2**32, (NUM_TRIES if own else 1, num_words), dtype=np.uint32)
        words[:, 0] = ALWAYS
        ends, _ = mover.run([state] * len(words), words)
        by_value = {}
        for row, end in zip(words.tolist(), ends.tolist(), strict=True):
            by_value.setdefault(tuple(end[c] for c in own), row)
        cases += [
            Case(state, placed, proposed, weight=weight)
            for proposed, row in by_value.items()
            for placed, weight in place_windows(mover, row)
        ]
    _, ratios = mover.run([case.state for case in cases], [case.words for case in cases])
    return [replace(case, log_ratio=float(r)) for case, r in zip(cases, ratios, strict=True)]


def own_components(mover: Mover) -> list[int]:
    """Return the components of the moved site that the entry moves."""
    if not mover.mover:
        return []
    sites = mover.exact.program.sites
    first = sites.first_components[mover.mover]
    return [first + int(mover.exact.data.element_of[mover.entry])]


def place_windows(mover: Mover, row: tuple):
    """Yield the words with every place of every window, and the probability of the place."""
    windows = [(v.window, v.size) for v in mover.joint.variables if v.window]
    lengths = [window for window, size in windows for _ in range(size)]
    start = mover.joint.draw_start + sum(v.size for v in mover.joint.variables)
    for places in itertools.product(*map(range, lengths)):
        words = list(row)
        for number, (place, length) in enumerate(zip(places, lengths, strict=True)):
            words[start + number] = place * (2**32 // length) + 7
        yield tuple(words), 1.0 / np.prod(lengths or [1])


def joint_matrix(mover: Mover, prior=None) -> np.ndarray:
    """Assemble P of one entry: proposals from the prior, then draws of what is summed out.

    ``prior(state, proposed)`` is the probability of a proposal; default: the site's prior.
    """
    exact = mover.exact
    prior = prior or (lambda state, proposed: prior_probability(mover, state, proposed))
    index = {state: i for i, state in enumerate(exact.states)}
    matrix = np.zeros((len(index), len(index)))
    cases = find_cases(mover)
    taken = outcome_probabilities(mover, cases, ALWAYS)
    is_never = [min(1.0, np.exp(case.log_ratio)) < 1.0 - 1e-6 for case in cases]
    refused = outcome_probabilities(mover, cases, NEVER)
    for case, if_taken, if_refused, can_refuse in zip(cases, taken, refused, is_never, strict=True):
        q = prior(case.state, case.proposed) * case.weight
        accepted = min(1.0, np.exp(case.log_ratio)) if mover.mover else 1.0
        row = index[case.state]
        for end, probability in if_taken.items():
            matrix[row, index[end]] += q * accepted * probability
        if mover.mover and can_refuse:
            for end, probability in if_refused.items():
                matrix[row, index[end]] += q * (1.0 - accepted) * probability
    return matrix


def prior_probability(mover: Mover, state: tuple, proposed: tuple) -> float:
    """Return the probability that a prior draw of the moved element is as proposed."""
    own = own_components(mover)
    if not own:
        return 1.0
    exact = mover.exact
    new = list(state)
    for component, value in zip(own, proposed, strict=True):
        new[component] = value
    first = exact.program.sites.first_components[mover.mover]
    log_q = log_prior(exact, mover.mover, position_of(exact, tuple(new)))
    return float(np.exp(log_q[own[0] - first]))


def prepare_joint(discrete, proposals, beta=1.0) -> list[Mover]:
    """Compile a program, and return its moves that sum something out."""
    exact = prepare(discrete, proposals, "never", beta)
    plan = plan_sites(exact.program, proposals, "never")
    movers, entry = (
        [],
        sum(
            exact.program.sites[name].num_components for name, p in plan.sites.items() if p.variants
        ),
    )
    for joint in plan.joint:
        mover = joint.movers[0] if joint.movers else ""
        count = exact.program.sites[mover].num_components if mover else 1
        for _ in range(count):
            movers.append(Mover(exact, entry, mover, joint.summed))
            entry += 1
    return movers
