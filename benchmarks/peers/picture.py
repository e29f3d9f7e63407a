"""The picture of the comparison: bars on a log scale."""

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.peers.cases import CASES
from benchmarks.peers.samplers import PEERS
from benchmarks.results import HERE

PATH = HERE.parent / "docs" / "peers.png"
PANELS = (
    ("ess_per_second", "least effective draws per second\n(start-up excluded)"),
    ("seconds_to_wanted", "seconds from a cold start\nto 400 effective draws"),
)
SHARE = 0.85  # of the room of a model that its bars take


def draw(cells, path):
    """Draw two panels; a cross stands for an answer that is wrong or has not converged."""
    models = [name for name in CASES if any(key.startswith(f"{name}/") for key in cells)]
    peers = [
        peer for peer in PEERS
        if any(cells.get(f"{model}/{peer}", {}).get("ess") for model in models)
    ]  # fmt: skip
    figure, all_axes = plt.subplots(2, 1, figsize=(12, 7.5), sharex=True, layout="constrained")
    width = SHARE / max(1, len(peers))
    for axes, (name, label) in zip(all_axes, PANELS, strict=True):
        for number, peer in enumerate(peers):
            places = np.arange(len(models)) + (number - (len(peers) - 1) / 2) * width
            found = [cells.get(f"{model}/{peer}", {}) for model in models]
            heights = [cell.get(name) if cell.get("verdict") == "right" else None for cell in found]
            colour = "black" if peer == "ours" else f"C{number - 1}"
            axes.bar(
                places, [height or np.nan for height in heights], width, color=colour,
                label=PEERS[peer].replace("*", ""),
            )  # fmt: skip
            lost = [
                place for place, cell in zip(places, found, strict=True)
                if cell.get("verdict", "right").startswith(("wrong", "not converged", "killed"))
            ]  # fmt: skip
            axes.plot(
                lost, np.full(len(lost), 0.02), "x", color=colour, markersize=5,
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip
        axes.set_yscale("log")
        axes.set_ylabel(label)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    all_axes[1].set_xticks(range(len(models)), models)
    all_axes[0].legend(ncols=3, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.3))
    all_axes[1].set_xlabel("cross: wrong, not converged, or out of time", fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)
