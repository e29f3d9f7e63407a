"""What can be wrong with a model, in full sentences: the name, what was got, what to do."""

import difflib
from collections.abc import Iterable
from typing import Any


class ModelError(ValueError):
    """A model that cannot be compiled as it is."""


def _listed(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def no_latent_sites(observed: list[str]) -> ModelError:
    """Refuse a model with nothing to sample."""
    seen = f"only observed sites {_listed(observed)}" if observed else "no `sample` statement"
    return ModelError(
        f"The model has no latent site: one run met {seen}. Leave at least one "
        "`numpyro.sample(name, distribution)` without `obs=` for the sampler to move."
    )


def no_outputs(known: list[str]) -> ModelError:
    """Refuse an empty choice of outputs."""
    return ModelError(f"`outputs` is empty. Name at least one of {_listed(known)}.")


def unknown_output(name: Any, known: list[str]) -> ModelError:
    """Refuse an output that the model does not have."""
    near = difflib.get_close_matches(str(name), known, n=3)
    hint = f"Did you mean {_listed(near)}?" if near else f"It can be one of {_listed(known)}."
    return ModelError(f"The model has no output `{name}`. {hint}")


def not_an_array(name: str, value: Any) -> ModelError:
    """Refuse an output that cannot be recorded."""
    return ModelError(
        f"Output `{name}` is {value!r} of type {type(value).__name__}, neither a number nor an "
        "array. Return numbers, arrays, or tuples and dicts of them."
    )


def python_branch(sites: list[str], error: Exception, line: str) -> ModelError:
    """Refuse Python control flow on a latent value."""
    whose = _listed(sites) if sites else "a latent value"
    return ModelError(
        f"The model's Python code needs the concrete value of {whose}, as `if`, `while`, `int()` "
        f"or NumPy functions do ({type(error).__name__}; {line}). The structure of the model must "
        "not depend on what is sampled: use `jnp.where` or `jax.lax.cond` "
        "(`numpyro.contrib.control_flow.cond` around `sample` statements) instead."
    )


def structure_changes(first: Iterable[str], second: Iterable[str]) -> ModelError:
    """Refuse sites that come and go."""
    only_first, only_second = set(first) - set(second), set(second) - set(first)
    return ModelError(
        "The model's structure is not fixed: two runs met different sites "
        f"(only in one: {_listed(sorted(only_first)) or 'none'}; only in the other: "
        f"{_listed(sorted(only_second)) or 'none'}). Site names and shapes must be the same on "
        "every run: make them depend on the arguments only."
    )


def shape_changes(name: str, first: tuple, second: tuple) -> ModelError:
    """Refuse a site whose shape changes."""
    return ModelError(
        f"The model's structure is not fixed: site `{name}` had shape {first} on one run and "
        f"{second} on another. Make shapes depend on the arguments only."
    )


def improper_site(name: str) -> ModelError:
    """Refuse a site that has no prior to draw from."""
    return ModelError(
        f"Site `{name}` is ImproperUniform, which has no prior to draw from. Give it the "
        "proposal `random_walk()` and an initial value, or a proper prior."
    )


def random_subsample(name: str, size: int, subsample: int) -> ModelError:
    """Refuse a plate that picks other rows on each run."""
    return ModelError(
        f"Plate `{name}` subsamples {subsample} of {size} rows at random, without a seed: every "
        "run would see other data. Fix the rows with `numpyro.handlers.substitute(model, "
        f'data={{"{name}": rows}})` or `numpyro.handlers.seed(model, 0)`, or drop '
        "`subsample_size`."
    )


def own_support(name: str) -> ModelError:
    """Refuse a support that depends on other elements of the same site."""
    return ModelError(
        f"The support of site `{name}` depends on other elements of the same site, so that they "
        "cannot be redrawn in program order. Write the elements as sites of their own."
    )


def model_raised(error: Exception, where: str) -> ModelError:
    """Report that the model itself failed; its traceback is kept as the cause."""
    return ModelError(
        f"The model raised {type(error).__name__}: {error} when it was run once with prior draws."
        f" Its own traceback is above; it ended at:\n{where}"
    )


def no_finite_start(terms: dict[str, float], values: dict[str, Any], tries: int) -> ModelError:
    """Report that no prior draw has a finite density."""
    bad = ", ".join(f"`{name}` = {value}" for name, value in list(terms.items())[:8])
    at = ", ".join(f"`{name}` = {value}" for name, value in list(values.items())[:4])
    return ModelError(
        f"No starting point with a finite log density was found in {tries} tries of prior draws. "
        f"At the last one these log terms were not finite: {bad}; there {at}. Check the "
        "observed values against the supports of their distributions, or give `init` values."
    )
