"""The picture of docs/summing_out.md: ``python -m benchmarks.classics.picture``.

How far a rate can move while the counts that hang on it stay, and with the counts summed out.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import adlmh_jax as adlmh
from benchmarks.classics import CLASSICS

PATH = Path(__file__).parents[2] / "docs" / "summing_out.png"
NUM_SITES, SHAPE, RATE = 20, 2.0, 0.2  # of the N-mixture: its rate ~ Gamma(2, 0.2)


def main():
    """Sample the N-mixture, and draw."""
    classic = CLASSICS["n_mixture"]
    classic = classic() if not hasattr(classic, "model") else classic
    result = adlmh.sample(
        0,
        classic.model,
        classic.args,
        outputs=["rate", "total"],
        num_chains=128,
        num_samples=200,
        progress=False,
    )
    rate, total = (np.ravel(result.draws[name]) for name in ("rate", "total"))
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    axes.plot(total + np.random.default_rng(0).uniform(-0.4, 0.4, total.size), rate, ".", ms=1.5,
              color="0.6", alpha=0.4, rasterized=True)  # fmt: skip
    present = np.median(total)
    # Given the counts the rate is Gamma(2 + total, 0.2 + 20).
    mean, spread = (SHAPE + present) / (RATE + NUM_SITES), np.sqrt(SHAPE + present)
    held = 2 * spread / (RATE + NUM_SITES)
    low, high = np.quantile(rate, [0.025, 0.975])
    style = dict(lw=3, solid_capstyle="butt")
    axes.plot([present] * 2, [mean - held, mean + held], color="C3", **style, label="counts held")
    beside = present + 12
    axes.plot([beside] * 2, [low, high], color="C0", **style, label="counts summed out")
    axes.set_xlim(*np.quantile(total, [0.001, 0.995]))
    axes.set_ylim(*np.quantile(rate, [0.0005, 0.998]))
    axes.set_xlabel("animals at all sites")
    axes.set_ylabel("rate per site")
    axes.legend(title="95 % of where the rate can go", loc="upper left", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PATH, dpi=150)


if __name__ == "__main__":
    main()
