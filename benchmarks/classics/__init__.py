"""Twelve classics as a newcomer would write them, the HMM of the paper, and the exact answers."""

from benchmarks.classics import counts, mixtures, networks, series
from benchmarks.classics.case import Classic

CLASSICS: dict[str, Classic] = {
    "change_point": series.change_point(),
    "sprinkler": networks.sprinkler(),
    "asia": networks.asia(),
    "occupancy": mixtures.occupancy(),
    "n_mixture": counts.n_mixture(),
    "spike_and_slab": mixtures.spike_and_slab(),
    "ising": networks.ising(),
    "multinomial": counts.multinomial(),
    "mixture": mixtures.mixture(),
    "local_level": series.local_level(),
    "epidemic": counts.epidemic(),
    "poisson_hmm": series.poisson_hmm(),
    "paper_hmm": series.paper_hmm(),
}
