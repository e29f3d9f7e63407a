"""How much to run: the paper's settings, a quick look, and anything in between."""

from dataclasses import asdict, dataclass
from typing import Any

BAR_STEPS = (1_000, 10_000, 100_000)  # section 5
FAST_EPOCH = 50  # divides the numbers of steps at which schedules are shown


@dataclass(frozen=True)
class Budget:
    """The size of a reproduction, checked.

    Attributes
    ----------
    restarts, steps
        Independent runs of each method, and steps of each: 25 and 500,000 in section 5.
    epoch
        Steps between updates of AdLMH's weights in the paper's figures; 1 is exactly the paper.
    bar_steps
        Numbers of steps at which schedules are shown. One that equals `steps` costs nothing.
    claim_restarts
        Runs of each method behind the measured sample ratios; 0 takes the `restarts` above, and
        measures no further rows.
    claim_scale
        Factor on the number of steps of those runs.
    seed
        Every random number of the reproduction follows from it.
    """

    restarts: int = 25
    steps: int = 500_000
    epoch: int = 1
    bar_steps: tuple[int, ...] = BAR_STEPS
    claim_restarts: int = 200
    claim_scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that make no experiment."""
        for name, least in (
            ("restarts", 1),
            ("steps", 1),
            ("epoch", 1),
            ("claim_restarts", 0),
            ("seed", 0),
        ):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"`{name}` must be at least {least}, got {value}.")
        if self.seed >= 1 << 32:
            raise ValueError(f"`seed` must be less than 2**32, got {self.seed}.")
        if self.claim_scale <= 0:
            raise ValueError(f"`claim_scale` must be greater than 0, got {self.claim_scale}.")

    def bars(self) -> tuple[int, ...]:
        """Return the numbers of steps to show that fit in the run."""
        return tuple(steps for steps in self.bar_steps if steps <= self.steps) or (self.steps,)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain numbers."""
        return asdict(self)


def quick_budget(restarts: int = 8, steps: int = 5_000, seed: int = 0) -> Budget:
    """Return a budget for a first look: few restarts, few steps, no further rows."""
    return Budget(restarts, steps, FAST_EPOCH, (steps,), claim_restarts=0, seed=seed)
