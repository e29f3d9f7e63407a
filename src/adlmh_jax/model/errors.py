"""What can be wrong with a model, in full sentences: the name, what was got, what to do."""

import difflib
import os
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jaxlib
import numpy as np
import numpyro

MAX_CHARACTERS = 80  # of a value or a line of code in a message

# What Python code did with an array that is not known yet, and what to write instead.
_WANTS_VALUE: tuple[tuple[type[Exception], str, str], ...] = (
    (
        jax.errors.TracerBoolConversionError,
        "A Python `if`, `while`, `and`, `or` or `assert` asks for the value of",
        "What a model does must not depend on what is sampled: use `jnp.where` or `jax.lax.cond`; "
        "around `sample` statements, `numpyro.contrib.control_flow.cond`.",
    ),
    (
        jax.errors.NonConcreteBooleanIndexError,
        "An array is indexed by the truth values of",
        "The shape of the result would change, too: use `jnp.where`, or weights of 0 and 1.",
    ),
    (
        jax.errors.TracerArrayConversionError,
        "A NumPy function asks for the value of",
        "Use the function of the same name of `jax.numpy`.",
    ),
    (
        Exception,
        "A Python `int()`, `float()`, `range()` or the like asks for the value of",
        "Keep it an array: compute with `jax.numpy`, loop over a fixed number of turns, and leave "
        "out the superfluous ones with `jnp.where` or `numpyro.handlers.mask`.",
    ),
)


class ModelError(ValueError):
    """A model that cannot be compiled as it is."""


class NoLatentSites(ModelError):
    """A model with nothing to sample."""


def listed(names: Iterable[Any], most: int = 8) -> str:
    """Return names in backticks; of many, the first few."""
    names = list(names)
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def nearest(name: Any, known: Iterable[str]) -> str:
    """Return a sentence that helps to find the right name."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=3)
    return f"Did you mean {listed(near)}?" if near else f"It can be one of {listed(known)}."


def shown(value: Any) -> str:
    """Return a value as text of bounded length."""
    is_array = isinstance(value, (jax.Array, np.ndarray, np.generic)) and not isinstance(
        value, jax.core.Tracer
    )
    return _shortened(repr(np.asarray(value).tolist() if is_array else value))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def user_line(error: BaseException) -> str:
    """Return the last line of the user's own code in a traceback, as ``file:line: code``, or ""."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    if not frames:
        return ""
    place, code = f"{frames[-1].filename}:{frames[-1].lineno}", frames[-1].line
    return f"{place}: {_shortened(code)}" if code else place


_PACKAGE = os.path.dirname(__file__)
_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(str(file))) + os.sep
    for file in (jax.__file__, jaxlib.__file__, np.__file__, numpyro.__file__, _PACKAGE)
)
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep


def _is_users(filename: str) -> bool:
    """Whether a file is neither ours nor a library's."""
    if filename.startswith("<frozen"):
        return False
    is_standard = filename.startswith(_STANDARD_LIBRARY) and "site-packages" not in filename
    return not is_standard and not filename.startswith(_LIBRARIES)


def _at(error: BaseException) -> str:
    line = user_line(error)
    return f" ({line})" if line else ""


def not_a_model(model: Any) -> TypeError:
    """Refuse what cannot be called."""
    return TypeError(
        f"`model` must be a NumPyro model, a function with `numpyro.sample` statements, got "
        f"{shown(model)} of type {type(model).__name__}."
    )


def wrong_arguments(name: str, value: Any, expected: str, remedy: str) -> TypeError:
    """Refuse arguments of the model that are not in a tuple or dict."""
    return TypeError(
        f"`{name}` must be a {expected}, got {shown(value)} of type {type(value).__name__}. "
        f"{remedy}"
    )


def no_latent_sites(observed: Iterable[str]) -> ModelError:
    """Refuse a model with nothing to sample."""
    names = listed(observed)
    seen = f"only observed sites, {names}" if names else "no `sample` statement"
    return NoLatentSites(
        f"The model has no latent site: one run met {seen}. Leave at least one "
        "`numpyro.sample(name, distribution)` without `obs=` for the sampler to move."
    )


def no_components(names: Iterable[str]) -> ModelError:
    """Refuse latent sites without elements."""
    return ModelError(
        f"The latent sites {listed(names)} have no elements: some dimension of their shapes is 0. "
        "Check the sizes of the plates and of the data."
    )


def no_outputs(known: Iterable[str]) -> ModelError:
    """Refuse an empty choice of outputs."""
    return ModelError(f"`outputs` is empty. Name at least one of {listed(known)}.")


def wrong_outputs(outputs: Any) -> TypeError:
    """Refuse outputs that are no names."""
    return TypeError(
        f"`outputs` must be a name, a list of names, a function, or None, got {shown(outputs)} of "
        f"type {type(outputs).__name__}."
    )


def unknown_output(name: str, known: Iterable[str]) -> ModelError:
    """Refuse an output that the model does not have."""
    return ModelError(f"The model has no output `{name}`. {nearest(name, known)}")


def same_outputs(name: str) -> ModelError:
    """Refuse two outputs that could not be told apart."""
    return ModelError(
        f"Two outputs are called `{name}`: an element of an array, and a site of that name. Rename "
        "the site, or leave one of them out of `outputs`."
    )


def random_term(names: Iterable[str], what: str) -> ModelError:
    """Refuse a model that draws random numbers which are no latent sites."""
    return ModelError(
        f"The model makes random numbers of its own: {listed(names)} {what}. They would be drawn "
        "once and stay the same in the whole run. Make them a latent site with `numpyro.sample`, "
        "or draw them before the model is called and pass them as data."
    )


def observed_output(name: str, known: Iterable[str]) -> ModelError:
    """Refuse an output that never changes."""
    return ModelError(
        f"Output `{name}` is an observed site, whose value is fixed. Name what you want to know "
        f"instead, one of {listed(known)}."
    )


def not_an_array(name: str, value: Any) -> ModelError:
    """Refuse an output that cannot be recorded."""
    return ModelError(
        f"Output `{name}` is {shown(value)} of type {type(value).__name__}, neither a number nor "
        "an array. Return numbers, arrays, or tuples and dicts of them."
    )


def outputs_raised(error: Exception, known: Iterable[str]) -> ModelError:
    """Report that the user's function of the values failed."""
    return ModelError(
        f"`outputs` raised {type(error).__name__}: {error}{_at(error)}. It is called with a dict "
        f"of the values of {listed(known)}."
    )


def wants_value(sites: list[str], error: Exception) -> ModelError:
    """Refuse Python control flow on a latent value."""
    what, remedy = next((w, r) for kind, w, r in _WANTS_VALUE if isinstance(error, kind))
    if sites:
        return ModelError(
            f"{what} the latent {'site' if len(sites) == 1 else 'sites'} {listed(sites)}"
            f"{_at(error)}, which changes from draw to draw. {remedy}"
        )
    return ModelError(
        f"{what} an array that `jax.numpy` makes inside the model{_at(error)}. It does not depend "
        "on a latent site, but it is not known either while the model is compiled. Compute it with "
        "NumPy, or before the model is called."
    )


def wants_data(error: Exception) -> ModelError:
    """Refuse a model that needs to know the values of data which many data sets have."""
    return ModelError(
        f"The model asks for the value of an array that differs between data sets{_at(error)}. It "
        "is traced once for all of them: compute with `jax.numpy`, not with `numpy`, and let "
        "Python's `if`, `for` and `int` depend on shapes alone; or prepare the data beforehand."
    )


def structure_of_dataset(number: int) -> ModelError:
    """Refuse data sets that give a model other sites, or sites of other shapes."""
    return ModelError(
        f"With data set {number} the model has other sites, or sites of other shapes, than with "
        "data set 0. The structure must be the same for all data sets: pad and mask."
    )


def structure_changes(first: Iterable[str], second: Iterable[str]) -> ModelError:
    """Refuse sites that come and go."""
    first, second = list(first), list(second)
    only_first = [name for name in first if name not in second]
    only_second = [name for name in second if name not in first]
    return ModelError(
        "The model's structure is not fixed: a first run met "
        f"{listed(only_first) or 'no other site'}, a second one "
        f"{listed(only_second) or 'no other site'} instead. Every run must meet the same sites: "
        "let their names depend on the model's arguments only, not on counters, global variables "
        "or random numbers."
    )


def shape_changes(name: str, first: tuple, second: tuple) -> ModelError:
    """Refuse a site whose shape changes."""
    return ModelError(
        f"The model's structure is not fixed: site `{name}` had shape {first} on a first run and "
        f"{second} on a second one. Let shapes depend on the model's arguments only, not on "
        "counters, global variables or random numbers."
    )


def unknown_init(name: str, sites: Sequence[str]) -> ModelError:
    """Refuse a starting value of no site."""
    return ModelError(f"`init` has no latent site `{name}`. {nearest(name, list(sites))}")


def wrong_init(name: str, value: Any, shape: tuple[int, ...], is_discrete: bool) -> ModelError:
    """Refuse a starting value that does not fit its site."""
    kind = "integers" if is_discrete else "numbers"
    return ModelError(
        f"`init` of `{name}` has shape {value.shape} and dtype {value.dtype}; the site has {kind} "
        f"of shape {shape}."
    )


def impossible_init(values: Mapping[str, Any], terms: Mapping[str, str]) -> ModelError:
    """Refuse starting values that have density zero."""
    at = ", ".join(f"`{name}` = {shown(value)}" for name, value in list(values.items())[:4])
    bad = "; ".join(f"`{name}` {what}" for name, what in list(terms.items())[:4])
    return ModelError(
        f"The starting values {at} are impossible: {bad}. Give values inside the supports at which "
        "the data are possible, or leave them to prior draws."
    )


def improper_site(name: str) -> ModelError:
    """Refuse a site that has no prior to draw from."""
    return ModelError(
        f"Site `{name}` is ImproperUniform, which has no prior to draw from. Give it a "
        f'starting value, `init={{"{name}": value}}`, or a proper prior, such as a wide Normal.'
    )


def wrong_analysis(site: str, term: str) -> ModelError:
    """Admit that elements were taken for independent that are not."""
    return ModelError(
        f"This is a mistake of adlmh_jax: the elements of `{site}` were taken for conditionally "
        f'independent, but one of them moves the term `{term}` of others. Use `blocks="never"` and '
        "please report the model."
    )


def random_subsample(name: str, size: int, subsample: int) -> ModelError:
    """Refuse a plate that picks other rows on each run."""
    return ModelError(
        f"Plate `{name}` subsamples {subsample} of {size} rows at random, without a seed: every "
        "run would see other data. Fix the rows with `numpyro.handlers.substitute(model, "
        f'data={{"{name}": rows}})` or `numpyro.handlers.seed(model, 0)`, or drop '
        "`subsample_size`."
    )


def cannot_score(name: str, message: Mapping[str, Any], error: Exception) -> ModelError:
    """Report that a site's value does not fit its distribution."""
    fn, value = message["fn"], message["value"]
    return ModelError(
        f"The log-probability of site `{name}` cannot be computed: its value has shape "
        f"{np.shape(value)}, its distribution {type(fn).__name__} has batch shape "
        f"{fn.batch_shape} and event shape {fn.event_shape} ({type(error).__name__}: {error}). "
        "Make the shapes broadcast against each other."
    )


def model_raised(error: Exception, is_traced: bool = False) -> ModelError:
    """Report that the model itself failed; its traceback is kept as the cause."""
    line = user_line(error)
    how = "traced with its latent values unknown" if is_traced else "run once with prior draws"
    ended = f" The last line of your code was {line}." if line else ""
    return ModelError(
        f"When it was {how}, the model raised {type(error).__name__}: {str(error).rstrip('.')}."
        f"{ended} Its own traceback is above."
    )


def wrong_call(error: Exception, args: tuple, kwargs: Mapping[str, Any]) -> ModelError:
    """Report that the model does not take the arguments."""
    return ModelError(
        f"The model cannot be called with {len(args)} positional arguments from `model_args` and "
        f"{listed(kwargs) or 'nothing'} from `model_kwargs`: {error}. Pass what the model takes."
    )


def proposal_raised(name: str, error: Exception) -> ModelError:
    """Report that a user's proposal failed."""
    return ModelError(
        f"The proposal of site `{name}` raised {type(error).__name__}: {error}{_at(error)}. It is "
        "traced, so that it can use `jax.numpy` and `jax.random`, but not the values as numbers."
    )


def no_finite_start(terms: Mapping[str, str], values: Mapping[str, Any], tries: int) -> ModelError:
    """Report that no prior draw has a finite density.

    Parameters
    ----------
    terms
        What is wrong with each term that is not finite.
    values
        The latent values that they depend on.
    tries
        Prior draws tried.
    """
    bad = "; ".join(f"`{name}` {what}" for name, what in list(terms.items())[:4])
    more = f"; and {len(terms) - 4} more" if len(terms) > 4 else ""
    at = ", ".join(f"`{name}` = {shown(value)}" for name, value in list(values.items())[:4])
    where = f", where {at}" if at else ""
    return ModelError(
        f"No starting point with a finite log density was found in {tries} tries of prior draws, "
        f"nor by drawing single choices again. At the last one{where}: {bad}{more}. Check the "
        "observed values against the supports of their distributions, and the priors against the "
        "data, or give starting values."
    )
