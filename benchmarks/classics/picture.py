"""The picture of docs/summing_out.md: ``python -m benchmarks.classics.picture``.

The eight states of the sprinkler network with their exact probabilities: those that single moves
must go through, and what one draw of all three choices does.
"""

import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.classics.networks import SPRINKLER

PATH = Path(__file__).parents[2] / "docs" / "summing_out.png"
WORDS = (("clear", "cloudy"), ("sprinkler off", "sprinkler on"), ("no rain", "rain"))
AXES = np.array([[2.6, 0.0], [0.0, 1.6], [1.0, 0.7]])  # where each choice leads in the picture


def probabilities():
    """Return the posterior probability of each state, given that the grass is wet."""
    weights = {}
    for cloudy, sprinkler, rain in itertools.product((0, 1), repeat=3):
        on, falls = SPRINKLER["sprinkler"][cloudy], SPRINKLER["rain"][cloudy]
        weights[cloudy, sprinkler, rain] = (
            (on if sprinkler else 1 - on)
            * (falls if rain else 1 - falls)
            * SPRINKLER["wet"][sprinkler, rain]
        )
    total = sum(weights.values())
    return {state: weight / total for state, weight in weights.items()}


def main():
    """Draw states, single moves and the joint draw."""
    found = probabilities()
    places = {state: np.array(state) @ AXES for state in found}
    figure, axes = plt.subplots(figsize=(6.8, 3.9), layout="constrained")
    for first, second in itertools.combinations(found, 2):
        if sum(a != b for a, b in zip(first, second, strict=True)) == 1:
            axes.plot(*np.transpose([places[first], places[second]]), color="0.75", lw=1, zorder=1)
    for state, place in places.items():
        axes.scatter(*place, s=3000 * found[state] + 12, color="C0", zorder=2)
        words = "\n".join(pair[value] for pair, value in zip(WORDS, state, strict=True))
        text = f"{words}\n{100 * found[state]:.2g} %"
        is_likely, is_left = found[state] > 0.1, state[0] == 0
        shift = (-20 if is_left else 24) if is_likely else 6
        axes.annotate(text, place, (shift, -4), textcoords="offset points", va="top",
                      ha="right" if is_likely and is_left else "left",
                      fontsize=8 if is_likely else 6.5)  # fmt: skip
    likely = sorted(found, key=lambda state: -found[state])[:2]
    axes.annotate("", places[likely[0]], places[likely[1]],
                  arrowprops={"arrowstyle": "<->", "color": "C3", "lw": 2, "shrinkA": 20,
                              "shrinkB": 24, "connectionstyle": "arc3,rad=-0.1"})  # fmt: skip
    middle = (places[likely[0]] + places[likely[1]]) / 2
    axes.text(*(middle + [-0.4, -0.2]), "drawn at once", color="C3", ha="center")
    axes.margins(0.2, 0.15)
    axes.axis("off")
    figure.savefig(PATH, dpi=150)


if __name__ == "__main__":
    main()
