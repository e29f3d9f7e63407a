"""What moving one entry of the schedule computes: the branches of a step."""

from adlmh_jax.moves.groups import Group, GroupData
from adlmh_jax.moves.metropolis import Accept, accept_by_ratio, accept_unless_worse, to_uniform
from adlmh_jax.moves.move import bind, is_different, move_one
from adlmh_jax.moves.scope import Before, Moved, Pace
from adlmh_jax.moves.table import Kernel, KernelData, build_kernel, build_start, name_entries

__all__ = [
    "Accept",
    "Before",
    "Group",
    "GroupData",
    "Kernel",
    "KernelData",
    "Moved",
    "Pace",
    "accept_by_ratio",
    "accept_unless_worse",
    "bind",
    "build_kernel",
    "build_start",
    "is_different",
    "move_one",
    "name_entries",
    "to_uniform",
]
