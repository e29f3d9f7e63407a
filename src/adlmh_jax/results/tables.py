"""Tables that are printed whole: of outputs, of running statistics, of sites."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas

from adlmh_jax.model import Program
from adlmh_jax.results.mixing import Mixing, r_hats_of_moments
from adlmh_jax.results.scalars import scalars
from adlmh_jax.statistics import Summary

MAX_ROWS = 500  # of longer tables the middle is left out, with a line that says so
NOTE = "note"  # what is to be said below a table, in its `attrs`
STATISTICS_NOTE = (
    "The run kept no draws: this is from running statistics. Quantiles, `mcse_sd`, `ess_bulk` and "
    "`ess_tail` need draws; `r_hat` is that of whole chains as they are, without ranks. "
    'Sample with `keep="outputs"` for all of it.'
)


def _counts(value: float) -> str:
    return f"{value:,.0f}"


def _decimals(value: float) -> str:
    return f"{value:.3f}"


def _digits(value: float) -> str:
    return f"{value:.4g}"


FORMATS = {
    **dict.fromkeys(("ess_bulk", "ess_tail", "ess_mean"), _counts),
    **dict.fromkeys(("r_hat", "nested_r_hat", "acceptance_rate", "least_rate"), _decimals),
}


class Table(pandas.DataFrame):
    """A ``pandas.DataFrame`` that shows all its columns, in few digits; nothing else differs."""

    @property
    def _constructor(self) -> Any:
        return Table

    def _shown(self) -> dict[str, Any]:
        """Return how to show the numbers."""
        own = {name: show for name, show in FORMATS.items() if name in self.columns}
        return {"max_rows": MAX_ROWS, "float_format": _digits, "formatters": own}

    def __repr__(self) -> str:
        """Return every column, however narrow the terminal."""
        note = self.attrs.get(NOTE)
        return self.to_string(**self._shown()) + (f"\n\n{note}" if note else "")

    def _repr_html_(self) -> str:
        """Return every column for a notebook."""
        note = self.attrs.get(NOTE)
        below = f"<p><small>{note}</small></p>" if note else ""
        return self.to_html(**self._shown(), border=0) + below


def summarise_outputs(
    draws: Mapping[str, np.ndarray], mixing: Mapping[str, Mixing], quantiles: Sequence[float]
) -> Table:
    """Return a table with one row for each scalar output."""
    rows = {}
    for _, scalar, values in scalars(draws):
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            rows[scalar] = _describe(values, mixing[scalar], quantiles)
    return _table(rows)


def _table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    return Table(pandas.DataFrame.from_dict(rows, orient="index"))


def _describe(values: np.ndarray, m: Mixing, quantiles: Sequence[float]) -> dict[str, float]:
    mean = np.mean(values, dtype=float)
    sd = np.std(values, ddof=min(1, values.size - 1), dtype=float)
    squares = np.square(values - mean)
    error_of_variance = np.sqrt(np.var(squares) / m.ess_square)
    return {
        "mean": mean,
        "sd": sd,
        **{f"{100 * q:g}%": np.quantile(values, q) for q in quantiles},
        "mcse_mean": sd / np.sqrt(m.ess_mean),
        # The delta method: an error of the variance is 2 sd errors of the sd.
        "mcse_sd": error_of_variance / (2 * np.sqrt(np.mean(squares))),
        "ess_bulk": m.ess_bulk,
        "ess_tail": m.ess_tail,
        "r_hat": m.r_hat,
        "nested_r_hat": m.nested_r_hat,
    }


def summarise_statistics(names: Sequence[str], statistics: Summary, num_superchains: int) -> Table:
    """Return a table of what running statistics know of each scalar output, and what they lack."""
    number = statistics.num_draws
    means, variances = statistics.mean, np.nan_to_num(statistics.variance)  # [chain, K]
    # Within chains, and between them: the variance of all draws.
    total = np.mean(variances, axis=0) * (number - 1) / number + np.var(means, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = statistics.standard_error
        effective = total / np.square(errors)
    hats = r_hats_of_moments(means, variances, number, num_superchains)
    columns = {
        "mean": np.mean(means, axis=0),
        "sd": np.sqrt(total),
        "mcse_mean": errors,
        "ess_mean": effective,
        "r_hat": hats[0],
        "nested_r_hat": hats[1],
    }
    table = Table(columns, index=list(names))
    table.attrs[NOTE] = STATISTICS_NOTE
    return table


def summarise_sites(
    program: Program, selected: np.ndarray, accepted: np.ndarray, num_chains: int
) -> Table:
    """Return a table with one row for each site: how often its components moved."""
    names = np.array(program.sites.component_names)
    site_of = np.array(program.sites.site_of)
    all_tried, all_taken = selected.sum(axis=0), accepted.sum(axis=0)
    rows = {}
    for index, site in enumerate(program.sites.sites):
        own = site_of == index
        tried, taken = all_tried[own], all_taken[own]
        rates = taken / np.maximum(1, tried)
        worst = int(np.argmin(rates))
        rows[site.name] = {
            "components": site.num_components,
            "selected": tried.mean() / num_chains,
            "acceptance_rate": taken.sum() / max(1, tried.sum()),
            "least_rate": rates[worst],
            "least_moved": names[own][worst],
        }
    return _table(rows)
