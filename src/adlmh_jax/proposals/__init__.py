"""How a new value of a component is proposed, and what "auto" chooses."""

from adlmh_jax.proposals.base import (
    PRIOR,
    JointPlan,
    Mixture,
    Plan,
    Proposal,
    SitePlan,
    Variant,
    mixture,
)
from adlmh_jax.proposals.collapse import collapse
from adlmh_jax.proposals.covariance import Walks, forget, watch
from adlmh_jax.proposals.custom import custom
from adlmh_jax.proposals.gibbs import gibbs
from adlmh_jax.proposals.plan import Chosen, foresee_functions, plan_sites, walk_or_draw
from adlmh_jax.proposals.prior import prior
from adlmh_jax.proposals.random_walk import random_walk
from adlmh_jax.proposals.tuning import Evidence, Traits, Tuning, init_tuning, tune

__all__ = [
    "Chosen",
    "Evidence",
    "JointPlan",
    "Mixture",
    "PRIOR",
    "Plan",
    "Proposal",
    "SitePlan",
    "Traits",
    "Tuning",
    "Variant",
    "Walks",
    "collapse",
    "custom",
    "forget",
    "foresee_functions",
    "gibbs",
    "init_tuning",
    "mixture",
    "plan_sites",
    "prior",
    "random_walk",
    "tune",
    "walk_or_draw",
    "watch",
]
