"""Bad input: a full sentence that names the culprit, before anything is compiled."""

import inspect
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import adlmh_jax
from adlmh_jax.engine.config import RunConfig
from adlmh_jax.model.errors import ModelError
from adlmh_jax.results.verdict import ConvergenceWarning

DATA = np.arange(10.0, dtype=np.float32)
SMALL = {"num_chains": 4, "num_superchains": 2, "num_warmup": 2, "num_samples": 3}


def normal():
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.deterministic("double", 2 * mean)
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=2.0)
    return mean


def check_sentence(error):
    """A message is made of sentences, without what only a machine understands."""
    message = str(error)
    assert re.match(r"[A-Z`\d]", message)
    assert message.endswith((".", "?"))
    assert " at 0x" not in message
    assert "``" not in message


@pytest.fixture
def refused(monkeypatch):
    """Return a function that expects `sample` to raise before a kernel is built."""

    def fail(*args, **kwargs):
        raise AssertionError("a kernel was built")

    monkeypatch.setattr("adlmh_jax.engine.build.build_kernel", fail)

    def expect(kind, patterns, model, args=(), kwargs=None, **settings):
        with pytest.raises(kind) as caught:
            adlmh_jax.sample(0, model, args, kwargs, progress=False, **settings)
        check_sentence(caught.value)
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            assert re.search(pattern, str(caught.value)), str(caught.value)
        return caught.value

    return expect


# No latent site


def test_no_latent_site(refused):
    def only_observed():
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=1.0)

    refused(ModelError, "no latent site.*only observed sites, `y`.*without `obs=`", only_observed)
    refused(ModelError, "no latent site.*no `sample` statement", lambda: 3.0)


def test_latent_sites_without_elements(refused):
    def empty():
        numpyro.sample("x", dist.Normal(0.0, 1.0).expand([0]))

    refused(ModelError, "latent sites `x` have no elements", empty)


# Outputs


@pytest.mark.parametrize(
    ("outputs", "pattern"),
    [
        ("meen", "no output `meen`. Did you mean `mean`"),
        (["mean", "duoble"], "no output `duoble`. Did you mean `double`"),
        ("zzz", "no output `zzz`. It can be one of `mean`, `double`, `return`"),
        ("y", "`y` is an observed site.*one of `mean`, `double`"),
        ([], "`outputs` is empty. Name at least one of `mean`, `double`"),
        (lambda values: "text", "`output` is 'text' of type str, neither a number nor an array"),
        (lambda values: {"a": None, "b": values}, "Output `a` is None of type NoneType"),
        (lambda values: {"a": np.array(["x"])}, r"Output `a` is \['x'\] of type ndarray"),
        (lambda values: values["men"], r"`outputs` raised KeyError: 'men' \(.*test_errors.*`mean`"),
        (lambda values: float(values["mean"]), "`float.*` .*latent site `mean`"),
    ],
)
def test_wrong_outputs(refused, outputs, pattern):
    refused(ModelError, pattern, normal, outputs=outputs)


@pytest.mark.parametrize("outputs", [3, ["mean", 3], {"mean"}])
def test_outputs_of_the_wrong_type(refused, outputs):
    refused(TypeError, "`outputs` must be a name, a list of names, a func", normal, outputs=outputs)


def test_returned_value_is_no_array(refused):
    def returns_text():
        return {"x": numpyro.sample("x", dist.Normal(0.0, 1.0)), "note": "text"}

    def returns_nothing():
        numpyro.sample("x", dist.Normal(0.0, 1.0))

    pattern = "`return.note` is 'text' of type str, neither a number nor an array"
    refused(ModelError, pattern, returns_text, outputs="return")
    refused(ModelError, "`return` is None of type NoneType", returns_nothing, outputs="return")


# Python code that asks for the value of a latent


def uses_if():
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(a, 1.0))
    numpyro.sample("c", dist.Normal(b, 1.0))
    if b > 0:
        numpyro.sample("y", dist.Normal(a, 1.0), obs=0.0)
    else:
        numpyro.sample("y", dist.Normal(b, 1.0), obs=0.0)


def uses_while():
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    n = numpyro.sample("n", dist.Poisson(3.0))
    total = numpyro.sample("total", dist.Normal(0.0, 1.0))
    while total < n:
        total = total + 1.0
    numpyro.sample("y", dist.Normal(a + total, 1.0), obs=0.0)


def uses_range():
    n = numpyro.sample("n", dist.Poisson(3.0))
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    for i in range(n):
        numpyro.sample(f"y_{i}", dist.Normal(x, 1.0), obs=0.0)


def uses_numpy():
    x = numpyro.sample("x", dist.Normal(jnp.zeros(3), 1.0))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(np.sin(x) + z, 1.0), obs=0.0)


def uses_boolean_index():
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    x = numpyro.sample("x", dist.Normal(z, 1.0).expand([3]))
    numpyro.sample("y", dist.Normal(x[x > 0].sum(), 1.0), obs=0.0)


def uses_two_ifs():
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    scale = 1.0 if a > 0 else 2.0
    shift = 1.0 if b > 0 else 2.0
    numpyro.sample("y", dist.Normal(shift, scale), obs=0.0)


@pytest.mark.parametrize(
    ("model", "what", "sites", "code", "remedy"),
    [
        (uses_if, "Python `if`, `while`", "site `b`", "if b > 0:", "`jnp.where`.*`.*lax.cond`"),
        (uses_while, "`while`", "sites `n`, `total`", "while total < n:", "control_flow.cond`"),
        (uses_range, r"`range\(\)`", "site `n`", "for i in range(n):", "fixed number of turns"),
        (uses_numpy, "NumPy function", "site `x`", "np.sin(x)", "`jax.numpy`"),
        (uses_boolean_index, "indexed", "site `x`", "x[x > 0].sum()", "`jnp.where`"),
        (uses_two_ifs, "`if`", "site `a`", "1.0 if a > 0 else 2.0", "`jnp.where`"),
    ],
)
def test_python_code_asks_for_a_latent(refused, model, what, sites, code, remedy):
    error = refused(ModelError, [what, f"latent {sites} ", remedy], model)
    lines, first = inspect.getsourcelines(model)
    number = next(first + i for i, line in enumerate(lines) if code in line)
    assert f"({__file__}:{number}: {lines[number - first].strip()})" in str(error)
    assert isinstance(error.__cause__, (jax.errors.JAXTypeError, jax.errors.JAXIndexError))


def test_python_code_asks_for_what_jax_makes_of_data(refused):
    def sizes_by_jax(data):
        num_groups = int(jnp.max(data))
        numpyro.sample("x", dist.Normal(0.0, 1.0).expand([num_groups]))

    patterns = ["array that `jax.numpy` makes inside the model", "with NumPy, or before the model"]
    refused(ModelError, patterns, sizes_by_jax, (jnp.array([1, 3]),))


# Structure that is not fixed


def counting():
    """Return a function that counts its calls."""
    numbers = iter(range(1, 100))
    return lambda: next(numbers)


def test_site_names_change(refused):
    count = counting()
    generator = np.random.default_rng(0)

    def counted():
        numpyro.sample(f"x_{count()}", dist.Normal(0.0, 1.0))
        numpyro.sample("z", dist.Normal(0.0, 1.0))

    def random():
        numpyro.sample(f"x_{generator.random():.8f}", dist.Normal(0.0, 1.0))

    def counted_data():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample(f"y_{count()}", dist.Normal(x, 1.0), obs=0.0)

    pattern = r"not fixed: a first run met `{0}_[\d.]+`, a second one `{0}_[\d.]+`.*not on counters"
    refused(ModelError, pattern.format("x"), counted)
    refused(ModelError, pattern.format("x"), random)
    refused(ModelError, pattern.format("y"), counted_data)


def test_sites_come_and_go(refused):
    count = counting()

    def sometimes():
        numpyro.sample("x", dist.Normal(0.0, 1.0))
        if count() % 2:
            numpyro.sample("z", dist.Normal(0.0, 1.0))

    refused(ModelError, "first run met `z`, a second one no other site", sometimes)


def test_shapes_change(refused):
    count = counting()

    def grows():
        numpyro.sample("x", dist.Normal(0.0, 1.0).expand([count()]))

    def grows_beside_data():
        size = count()
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([size]))
        numpyro.sample("y", dist.Normal(x @ jnp.ones(size), 1.0), obs=0.0)  # raises when traced

    pattern = r"not fixed: site `x` had shape \(\d,\) on a first run and \(\d,\) on a second one"
    refused(ModelError, pattern, grows)
    refused(ModelError, pattern, grows_beside_data)


# What has no prior, or other data on every run


def test_improper_uniform(refused):
    def improper():
        x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=0.0)

    refused(ModelError, "`x` is ImproperUniform.*no prior to draw from.*proper prior", improper)


def test_observed_improper_uniform_is_fine():
    def flat_data():
        numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.ImproperUniform(dist.constraints.real, (), ()), obs=0.0)

    assert adlmh_jax.compile_model(flat_data).sites.names == ("x",)


def subsampling(data):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", 10, subsample_size=3) as rows:
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=jnp.asarray(data)[rows])


def test_subsampling_without_a_seed(refused):
    patterns = ["Plate `rows` subsamples 3 of 10 rows", "without a seed", 'data={"rows": rows}']
    refused(ModelError, patterns, subsampling, (DATA,))


def test_subsampling_with_a_seed_is_fine():
    program = adlmh_jax.compile_model(handlers.seed(subsampling, 0), (DATA,))
    points = [program.log_density({"mean": jnp.float32(0.5)}) for _ in range(2)]
    assert points[0] == points[1]


# A model that raises, or is called the wrong way


def test_model_raises(refused):
    def raises(data):
        numpyro.sample("x", dist.Normal(0.0, 1.0))
        return data["missing"]

    error = refused(ModelError, "raised KeyError: 'missing'. The last line.*missing", raises, ({},))
    assert isinstance(error.__cause__, KeyError)
    frames = inspect.getinnerframes(error.__cause__.__traceback__)
    assert frames[-1].function == "raises"


def test_model_raises_only_when_traced(refused):
    def raises():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        if isinstance(x, jax.core.Tracer):
            raise RuntimeError("no tracers, please")

    pattern = "traced with its latent values unknown, the model raised RuntimeError: no tracers, pl"
    assert isinstance(refused(ModelError, pattern, raises).__cause__, RuntimeError)


def test_invalid_parameter(refused):
    def negative_scale():
        numpyro.sample("x", dist.Normal(0.0, -1.0))

    pattern = r"Normal distribution got invalid scale parameter\. The last line.*\(0.0, -1.0\)"
    refused(ModelError, pattern, negative_scale)


def test_shapes_that_do_not_fit(refused):
    def misfit(data):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([4]))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=data)

    patterns = [r"site `y`.*value has shape \(10,\).*Normal has batch shape \(4,\)", "broadcast"]
    assert isinstance(refused(ModelError, patterns, misfit, (DATA,)).__cause__, TypeError)


def test_wrong_call(refused):
    def takes_data(data, *, scale=1.0):
        numpyro.sample("x", dist.Normal(data, scale))

    refused(ModelError, "with 0 positional arguments.*missing 1 required.*'data'", takes_data)
    pattern = "1 positional.*`width` from `model_kwargs`.*unexpected keyword argument 'width'"
    refused(ModelError, pattern, takes_data, (0.0,), {"width": 2.0})
    pattern = r"`model_args` must be a tuple, got 3.0 of type float. Write `\(data,\)`"
    refused(TypeError, pattern, takes_data, 3.0)
    pattern = r"`model_args` must be a tuple, got \[0.0, 1.0, .*…? of type ndarray"
    refused(TypeError, pattern, takes_data, DATA)
    pattern = r"`model_kwargs` must be a dict, got \[\('scale', 1.0\)\] of type list"
    refused(TypeError, pattern, takes_data, (0.0,), [("scale", 1.0)])
    refused(TypeError, "`model` must be a NumPyro model.*got 3 of type int", 3)


# Settings: refused before the model is even run


def never_run():
    raise AssertionError("the model was run")


@pytest.mark.parametrize(
    ("settings", "kind", "pattern"),
    [
        ({"num_chains": 0}, ValueError, "`num_chains` must be at least 1, got 0"),
        ({"num_chains": -4}, ValueError, "`num_chains` must be at least 1, got -4"),
        ({"num_chains": 4.0}, TypeError, "`num_chains` must be a whole number, got 4.0 of type fl"),
        ({"num_chains": True}, TypeError, "`num_chains` must be a whole number, got True"),
        ({"num_chains": None}, TypeError, "`num_chains` must be a whole number, got None"),
        ({"num_chains": "4"}, TypeError, "`num_chains` must be a whole number, got '4'"),
        ({"num_superchains": 0}, ValueError, "`num_superchains` must be at least 1, got 0"),
        (
            {"num_chains": 10, "num_superchains": 4},
            ValueError,
            "`num_superchains` = 4 does not divide `num_chains` = 10.*Take, say, 12 chains",
        ),
        (
            {"num_chains": 4, "num_superchains": 8},
            ValueError,
            "`num_superchains` = 8 is more than `num_chains` = 4.*fewer superchains or more chains",
        ),
        ({"num_superchains": 2.5}, TypeError, "`num_superchains` must be a whole number, got 2.5"),
        ({"thinning": 0}, ValueError, "`thinning` must be at least 1, got 0"),
        ({"thinning": False}, TypeError, "`thinning` must be a whole number, got False"),
        ({"num_warmup": -1}, ValueError, "`num_warmup` must be at least 0, got -1"),
        ({"num_warmup": 1e3}, TypeError, "`num_warmup` must be a whole number, got 1000.0"),
        ({"num_samples": 0}, ValueError, "`num_samples` must be at least 1, got 0"),
        ({"epoch": 0}, ValueError, "`epoch` must be at least 1, got 0"),
        ({"adapt": "never"}, ValueError, '`adapt` must be "warmup" or "always", got \'never\''),
        ({"adapt": True}, ValueError, '`adapt` must be "warmup" or "always", got True'),
    ],
)
def test_wrong_numbers(refused, settings, kind, pattern):
    refused(kind, pattern, never_run, **settings)
    with pytest.raises(kind, match=pattern):
        RunConfig(**settings)


@pytest.mark.parametrize("chains", [1, 2, 3, 4, 6, 7, 256, 1000])
def test_default_superchains_divide_the_chains(chains):
    config = RunConfig(num_chains=chains)
    assert chains % config.superchains == 0
    assert config.superchains >= min(4, chains)


@pytest.mark.parametrize("number", [np.int32(4), np.int64(4)])
def test_numpy_integers_are_whole_numbers(number):
    assert RunConfig(num_chains=number, num_superchains=number).superchains == 4


@pytest.mark.parametrize("schedule", [None, "ucb", 0.5, ("ucb",)])
def test_wrong_schedule(refused, schedule):
    pattern = r"must be what `influence\(\)`, `ucb\(\)` or `uniform\(\)` returns, got .* of type"
    refused(TypeError, pattern, never_run, schedule=schedule)


@pytest.mark.parametrize(
    ("key", "kind", "pattern"),
    [
        (None, TypeError, r"`key` must be `jax.random.key\(seed\)` or an integer, got None"),
        (True, TypeError, "got True of type bool"),
        (0.5, TypeError, "got 0.5 of type float"),
        ("0", TypeError, "got '0' of type str"),
        (2**64, ValueError, "at most 64 bits, got 18446744073709551616"),
        (jnp.zeros(3), TypeError, r"an array of shape \(3,\) and dtype float32"),
        (jnp.uint32(3), TypeError, r"an array of shape \(\) and dtype uint32"),
        (jax.random.split(jax.random.key(0), 3), TypeError, r"single key.*shape \(3,\)"),
    ],
)
def test_wrong_key(key, kind, pattern):
    with pytest.raises(kind, match=pattern) as caught:
        adlmh_jax.sample(key, never_run, progress=False)
    check_sentence(caught.value)


@pytest.mark.parametrize(
    ("keep", "kind", "pattern"),
    [
        ("meen", ValueError, "`keep` has no output or site `meen`. Did you mean `mean`"),
        (["mean", "y"], ValueError, "no output or site `y`. It can be one of `double`, `mean`"),
        (3, TypeError, '`keep` must be "outputs", "all", or names, got 3 of type int'),
        ([3], TypeError, r'`keep` must be "outputs", "all", or names, got \[3\] of type list'),
    ],
)
def test_wrong_keep(refused, keep, kind, pattern):
    refused(kind, pattern, normal, outputs="double", keep=keep)


def test_settings_are_refused_without_a_compilation():
    events = []

    def listen(event, duration, **_):
        if "compile" in event:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for settings in ({"num_chains": 0}, {"adapt": "never"}, {"schedule": None}):
            with pytest.raises((TypeError, ValueError)):
                adlmh_jax.sample(0, never_run, progress=False, **settings)
        assert events == []
        jax.jit(lambda x: x + 1.25)(2.0)
        assert events != []  # the listener hears
    finally:
        jax.monitoring.clear_event_listeners()


# Densities that are zero or not numbers


def impossible_data():
    a = numpyro.sample("a", dist.HalfNormal(2.0))
    with numpyro.plate("rows", 4):
        numpyro.sample("y", dist.Beta(a, 1.0), obs=jnp.array([0.2, 0.3, 7.0, 8.0]))


def impossible_factor():
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.factor("penalty", jnp.where(a < 100.0, -jnp.inf, 0.0))


@pytest.mark.parametrize(
    ("model", "patterns"),
    [
        (
            impossible_data,
            [
                r"`y\[2\]` has log-probability -inf at the value 7.0, outside the support of its "
                r"Beta distribution \(unit interval\)",
                r"where `a` = \d",
                "Check the observed values",
            ],
        ),
        (impossible_factor, [r"where `a` = [-\d.e]+: `penalty` has log-probability -inf\."]),
    ],
)
def test_no_starting_point(model, patterns):
    with pytest.raises(ModelError, match="No starting point.* in 100 tries of prior d") as caught:
        adlmh_jax.sample(0, model, progress=False, proposals="prior", **SMALL)
    check_sentence(caught.value)
    for pattern in patterns:
        assert re.search(pattern, str(caught.value)), str(caught.value)


def sometimes_invalid():
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.sample("c", dist.Normal(0.0, 1.0))
    d = numpyro.sample("d", dist.Categorical(probs=jnp.array([0.5, 0.3, 0.2])))
    numpyro.factor("of_a", jnp.where(a > 1.0, jnp.nan, 0.0))
    numpyro.factor("of_b", jnp.where(b > 1.0, jnp.inf, 0.0))
    numpyro.factor("of_d", jnp.where(d == 1, jnp.nan, 0.0))


def test_invalid_densities_are_rejected_counted_and_announced_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = adlmh_jax.sample(
            0,
            sometimes_invalid,
            proposals={"[abc]": adlmh_jax.prior(), "d": adlmh_jax.gibbs()},
            num_chains=8,
            num_warmup=20,
            num_samples=40,
            progress=False,
        )
    warning, doubt = caught
    assert issubclass(doubt.category, ConvergenceWarning)
    assert warning.filename == doubt.filename == __file__
    check_sentence(warning.message)
    check_sentence(doubt.message)
    invalid = dict(zip(result.schedule.names, result.schedule.invalid.sum(axis=0), strict=True))
    worst = max(invalid, key=invalid.get)
    assert f"{sum(invalid.values())} proposals had a log density of NaN" in str(warning.message)
    assert f"most of them ({invalid[worst]}) at `{worst}`" in str(warning.message)
    assert min(invalid["a"], invalid["b"], invalid["d"]) > 0
    assert invalid["c"] == 0
    assert result.draws["a"].max() <= 1.0
    assert result.draws["b"].max() <= 1.0
    assert set(np.unique(result.draws["d"])) == {0, 2}
    assert np.isfinite(result.log_density).all()


def test_a_schedule_without_brackets():
    with pytest.raises(TypeError, match=r"write `uniform\(\)`, with brackets"):
        adlmh_jax.sample(0, never_run, schedule=adlmh_jax.uniform, progress=False)


def test_an_impossible_start_blames_the_value_given():
    def model():
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        numpyro.sample("y", dist.Poisson(rate), obs=3)

    with pytest.raises(ModelError, match="starting values `rate` = -1.0 are impossible") as caught:
        adlmh_jax.sample(0, model, init={"rate": -1.0}, progress=False, **SMALL)
    check_sentence(caught.value)


def test_starting_values_that_exclude_each_other_are_blamed():
    def model():
        x, y = (numpyro.sample(name, dist.Bernoulli(0.5)) for name in "xy")
        numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.factor("tie", jnp.where(x == y, 0.0, -jnp.inf))

    match = "starting values `x` = 0, `y` = 1 are impossible: `tie` has log-probability -inf"
    with pytest.raises(ModelError, match=match) as caught:
        adlmh_jax.sample(0, model, init={"x": 0, "y": 1}, progress=False, **SMALL)
    check_sentence(caught.value)


def test_an_impossible_start_of_one_chain():
    values = np.full(SMALL["num_chains"], 0.5)
    values[-1] = 2.0
    with pytest.raises(ModelError, match="starting values `x` = 2.0 are impossible: `x` has log"):
        adlmh_jax.sample(
            0, lambda: numpyro.sample("x", dist.Uniform(0.0, 1.0)), init={"x": values},
            progress=False, **SMALL,
        )  # fmt: skip


def test_starting_values_are_not_blamed_for_impossible_data():
    def model():
        numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("f", -jnp.inf)

    with pytest.raises(ModelError, match="No starting point"):
        adlmh_jax.sample(0, model, init={"x": 0.0}, progress=False, **SMALL)


def test_no_start_because_of_a_factor_reads_well():
    def model():
        numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("f", -jnp.inf)

    with pytest.raises(ModelError, match="At the last one: `f` has log-probability -inf"):
        adlmh_jax.sample(0, model, progress=False, **SMALL)
