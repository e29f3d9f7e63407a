"""`gibbs`: draws from the full conditional of a finite support."""

from adlmh_jax.model import Program, Site
from adlmh_jax.proposals.base import Proposal


def gibbs() -> Proposal:
    """Draw from the full conditional, by trying every value of a finite support.

    Where at least four components or blocks take turns, the present value is never drawn and the
    others are accepted or rejected (metropolised Gibbs): values change more often.
    """
    return Proposal("gibbs()", function_for=lambda site: None, check=_check, is_gibbs=True)


def _check(program: Program, site: Site) -> None:
    if not program.can_enumerate(site.name):
        raise ValueError(
            f"Site `{site.name}` cannot have `gibbs()`: its support, {site.support}, is not a "
            "finite list of values known in advance. Use `random_walk() | prior()`."
        )
