"""What "auto" sums out and draws together, and what is refused."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adlmh_jax as adlmh
from adlmh_jax.model import compile_model
from adlmh_jax.proposals import plan_sites


def mixture(num=6):
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    with numpyro.plate("kinds", 2):
        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    with numpyro.plate("items", num):
        kind = numpyro.sample("kind", dist.Bernoulli(share))
        numpyro.sample("y", dist.Normal(mean[kind], 1.0), obs=jnp.arange(num, dtype=float))


def hidden_chain(length=6):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    transition = jnp.array([[0.9, 0.1], [0.2, 0.8]])
    state = 0
    for t in range(length):
        state = numpyro.sample(f"state_{t}", dist.Categorical(transition[state]))
        numpyro.sample(f"y_{t}", dist.Poisson(rate * (1.0 + state)), obs=t % 3)


def abundance():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    seen = numpyro.sample("seen", dist.Beta(2.0, 2.0))
    with numpyro.plate("sites", 4):
        number = numpyro.sample("number", dist.Poisson(rate))
        numpyro.sample("y", dist.Binomial(number, seen), obs=jnp.array([1, 0, 2, 3]))


def local_rates():
    with numpyro.plate("items", 30):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        is_on = numpyro.sample("is_on", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Poisson(rate * (0.1 + is_on)), obs=jnp.ones(30, int))


def dependent_support():
    total = numpyro.sample("total", dist.DiscreteUniform(1, 4))
    part = numpyro.sample("part", dist.DiscreteUniform(0, total))
    numpyro.sample("y", dist.Normal(part, 1.0), obs=1.0)


def plan(model, proposals="auto", blocks="auto", **options):
    return plan_sites(compile_model(model), proposals, blocks, **options)


def movers(planned):
    return {joint.movers: joint.summed for joint in planned.joint}


def test_assignments_are_summed_out():
    planned = plan(mixture)
    assert movers(planned) == {("share", "mean"): ("kind",)}
    assert planned.sites["kind"].is_block
    words = planned.describe()["mean"]
    assert words == (
        "random_walk() | prior(); moves at once with `share`, `mean`, `kind` summed out"
    )


def test_states_are_drawn_at_once_and_summed_out():
    planned = plan(hidden_chain)
    states = tuple(f"state_{t}" for t in range(6))
    assert movers(planned) == {(): states, ("rate",): states}
    assert not planned.sites["state_3"].variants
    assert planned.describe()["state_3"] == "drawn with `state_0`, …, `state_5`"


def test_counts_have_windows():
    planned = plan(abundance, held=["seen"])
    assert movers(planned) == {("rate",): ("number",)}
    assert planned.joint[0].windows == (16,)


def test_counts_go_along_with_a_walk():
    planned = plan(abundance)
    assert movers(planned) == {("rate", "seen"): ()}
    assert planned.joint[0].riders == ("number",)


def test_elements_that_meet_one_to_one_move_as_a_block():
    (joint,) = plan(local_rates).joint
    assert joint.movers == ("rate",) and joint.is_block


@pytest.mark.parametrize(
    ("proposals", "blocks"), [("prior", "auto"), ("prior", "never"), ("auto", "never")]
)
def test_nothing_is_summed_out_unless_wanted(proposals, blocks):
    assert plan(mixture, proposals, blocks).joint == ()
    assert plan(hidden_chain, proposals, blocks).joint == ()


def test_sites_that_the_user_chose_for_are_left_alone():
    planned = plan(mixture, {"kind": adlmh.prior()})
    assert movers(planned) == {("share", "mean"): ()}
    assert plan(mixture, {"*": adlmh.prior()}).joint == ()


def test_held_sites_are_not_summed_out():
    assert movers(plan(mixture, held=["kind"])) == {("share", "mean"): ()}
    assert movers(plan(mixture, held=["mean"])) == {("share",): ("kind",)}


def test_dependent_supports_are_left_out():
    assert plan(dependent_support).joint == ()


def test_asked_for_moves_take_the_place_of_single_ones():
    planned = plan(mixture, {"mean": adlmh.collapse("kind")})
    assert not planned.sites["mean"].variants
    assert movers(planned) == {("mean",): ("kind",), ("share",): ("kind",)}


@pytest.mark.parametrize(
    ("model", "proposals", "words"),
    [
        (mixture, {"mean": adlmh.collapse("share")}, "`share` cannot be summed out: it is cont"),
        (mixture, {"mean": adlmh.collapse("mean")}, "`mean` cannot be summed out of its own"),
        (mixture, {"mean": adlmh.collapse("sort")}, "No latent site matches `sort`"),
        (
            hidden_chain,
            {"state_5": adlmh.collapse("state_0")},
            "`state_5` has no term in common with `state_0`",
        ),
        (
            dependent_support,
            {"total": adlmh.collapse("part")},
            "`part` cannot be summed out: its support depends on `total`",
        ),
    ],
)
def test_what_cannot_be_summed_out_is_refused(model, proposals, words):
    with pytest.raises(ValueError, match=words):
        plan(model, proposals)


def test_too_many_combinations_are_refused():
    def meeting():
        names = [numpyro.sample(f"z_{i}", dist.DiscreteUniform(0, 19)) for i in range(4)]
        numpyro.sample("y", dist.Normal(sum(names), 1.0), obs=30.0)

    with pytest.raises(ValueError, match="more than 1024 combinations"):
        plan(meeting, {"z_*": adlmh.collapse()})
    assert all(len(joint.summed) < 3 for joint in plan(meeting).joint)


def test_a_proposal_that_looks_at_what_is_summed_out_is_refused():
    def model():
        kind = numpyro.sample("kind", dist.Bernoulli(0.5))
        mean = numpyro.sample("mean", dist.Normal(kind, 1.0))
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=0.3)

    with pytest.raises(ValueError, match="its proposal depends on"):
        adlmh.sample(
            0,
            model,
            proposals={"mean": adlmh.collapse("kind", proposal=adlmh.prior())},
            num_chains=4,
            progress=False,
        )


@pytest.mark.parametrize("window", [0, 3, 24, 2.0])
def test_windows_are_powers_of_two(window):
    with pytest.raises(ValueError, match="power of two"):
        adlmh.collapse("n", window=window)


def test_arguments_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="names of sites"):
        adlmh.collapse(3)
    with pytest.raises(TypeError, match="The `proposal` of `collapse`"):
        adlmh.collapse("z", proposal="prior")


def test_counts_come_out_right():
    """Known answer: of counts seen with noise, by sums; a false-alarm rate of 1e-5."""
    seen = np.array([2.2, 3.9, 0.4])
    result = adlmh.sample(
        0,
        lambda: numpyro.sample(
            "y",
            dist.Normal(_counts(), 0.7),
            obs=seen,
        ),
        num_chains=64,
        num_warmup=200,
        num_samples=400,
        progress=False,
    )
    values = np.arange(40)
    rates = np.linspace(0.01, 20.0, 4000)
    from scipy import stats

    weight = stats.poisson.pmf(values[:, None], rates) * 1.0
    like = stats.norm.pdf(seen[:, None], values, 0.7) @ weight  # [3, rates]
    density = like.prod(axis=0) * stats.gamma.pdf(rates, 2.0)
    mean = (rates * density).sum() / density.sum()
    row = result.summary().loc["rate"]
    assert abs(row["mean"] - mean) < 4.4 * row["mcse_mean"]


def _counts():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("items", 3):
        return numpyro.sample("n", dist.Poisson(rate))
