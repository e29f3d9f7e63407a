"""The numbers of a run, checked before anything else is done."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

MIN_EPOCH, MAX_EPOCH = 64, 1024  # of the epochs that we choose
MAX_NUMBER = 2**30  # up to here numbers of draws are exact, in 32 bits and in batches of 64
MIN_SUPERCHAINS = 4  # fewer cannot disagree with each other


def default_epoch(num_entries: int) -> int:
    """Return how many steps to make with the same weights: a quarter of a sweep, within limits.

    Learning costs a fixed amount per epoch, which grows with the number of entries.
    """
    return min(max(MIN_EPOCH, num_entries // 4), MAX_EPOCH)


@dataclass(frozen=True)
class RunConfig:
    """The numbers of a run, checked.

    Attributes
    ----------
    num_chains, num_superchains
        Chains, and the superchains that share them evenly.
    num_warmup, num_samples
        Draws before and during sampling.
    thinning
        Steps per draw; None for N, a sweep's worth.
    epoch
        Steps with frozen weights; 1 is exactly the paper. None: see `default_epoch`.
    adapt
        Whether the schedule learns during warm-up only, or always.
    start
        Whether chains go from prior to posterior as particles, or start at prior draws.
    part
        First superchain, and the one after the last, of those that are run; None for all.
    """

    num_chains: int = 256
    num_superchains: int | None = None
    num_warmup: int = 1000
    num_samples: int = 1000
    thinning: int | None = None
    epoch: int | None = None
    adapt: Literal["warmup", "always"] = "warmup"
    start: Literal["anneal", "prior"] = "anneal"
    part: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that make no run."""
        for name, least in (
            ("num_chains", 1),
            ("num_superchains", 1),
            ("num_warmup", 0),
            ("num_samples", 1),
            ("thinning", 1),
            ("epoch", 1),
        ):
            value = getattr(self, name)
            if value is None and name in ("num_superchains", "thinning", "epoch"):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(
                    f"`{name}` must be a whole number, got {value!r} of type "
                    f"{type(value).__name__}."
                )
            if value < least:
                raise ValueError(f"`{name}` must be at least {least}, got {value}.")
            if value > MAX_NUMBER:
                raise ValueError(f"`{name}` must be at most {MAX_NUMBER}, got {value}.")
        if self.adapt not in ("warmup", "always"):
            raise ValueError(f'`adapt` must be "warmup" or "always", got {self.adapt!r}.')
        if self.start not in ("anneal", "prior"):
            raise ValueError(f'`start` must be "anneal" or "prior", got {self.start!r}.')
        self._check_superchains()

    def _check_superchains(self) -> None:
        """Refuse superchains that cannot share the chains evenly, or that the run does not have."""
        if self.part is not None and not 0 <= self.part[0] < self.part[1] <= self.superchains:
            raise ValueError(
                f"`superchains` = range({self.part[0]}, {self.part[1]}) is no part of the run, "
                f"whose superchains are range({self.superchains})."
            )
        superchains, chains = self.num_superchains, self.num_chains
        if superchains is None:
            return
        if superchains > chains:
            raise ValueError(
                f"`num_superchains` = {superchains} is more than `num_chains` = {chains}: a "
                "superchain has at least one chain. Take fewer superchains or more chains."
            )
        if chains % superchains:
            more = -(-chains // superchains) * superchains
            raise ValueError(
                f"`num_superchains` = {superchains} does not divide `num_chains` = {chains}: all "
                f"superchains have the same number of chains. Take, say, {more} chains."
            )

    @property
    def chains_each(self) -> int:
        """Chains of a superchain."""
        return self.num_chains // self.superchains

    @property
    def num_run(self) -> int:
        """Number of chains that are run: all, or those of a part."""
        return len(self.numbers) * self.chains_each

    @property
    def numbers(self) -> range:
        """Numbers of the superchains that are run: all, or a part."""
        return range(*(self.part or (0, self.superchains)))

    @property
    def superchains(self) -> int:
        """Number of superchains: as given, or the least divisor of the chains from 4 on."""
        if self.num_superchains is not None:
            return self.num_superchains
        fitting = (
            n for n in range(MIN_SUPERCHAINS, self.num_chains + 1) if self.num_chains % n == 0
        )
        return next(fitting, self.num_chains)
