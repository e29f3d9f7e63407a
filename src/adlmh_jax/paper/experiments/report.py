"""The report in Markdown: every number in it comes from the JSON files of the cases."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adlmh_jax.paper.experiments.figures import hardest_target

Numbers = dict[str, Any]


def write_report(cases: Mapping[str, Numbers]) -> str:
    """Return the report on the cases that were run, by name."""
    compared = {name: numbers for name, numbers in cases.items() if "claim" in numbers}
    sections = ["# The paper, reproduced", _settings(cases)]
    if compared:
        sections += ["## The claim, measured", summary_table(compared), CLAIM_NOTES]
    for name, numbers in compared.items():
        sections.append(_case_section(name, numbers))
    if "lemma" in cases:
        sections.append(_lemma_section(cases["lemma"]))
    sections.append(_times(cases))
    return "\n\n".join(sections) + "\n"


def readme_section(cases: Mapping[str, Numbers], directory: str) -> str:
    """Return what the README says of the reproduction, whose files are in a directory."""
    compared = {name: numbers for name, numbers in cases.items() if "claim" in numbers}
    minutes = sum(numbers["seconds"] for numbers in cases.values()) / 60
    parts = []
    if compared:
        restarts = min(n["claim"]["rows"][0]["superchains"] for n in compared.values())
        words = f"Measured with {restarts} restarts or more, and 95 % bootstrap intervals:"
        parts = [words, summary_table(compared)]
    if "hmm" in compared:
        curves = compared["hmm"]["curves"]
        parts.append(
            f"![LMH and AdLMH on a hidden Markov model]({directory}/hmm.png)\n\n"
            f"Hidden Markov model: {curves['restarts']} restarts of {curves['steps']:,} steps."
        )
    if "lemma" in cases:
        lemma = cases["lemma"]["lemma"]
        last = sorted(ratios[-1] for ratios in lemma["rows"][-1]["ratios"])
        parts.append(
            f"Lemma 1's equilibrium, {lemma['theory']:.4f} in theory, is "
            f"{last[len(last) // 2]:.4f} after {lemma['steps'][-1]:,} steps without exploration."
        )
    parts.append(
        f"All of it took {minutes:.0f} minutes: [report]({directory}/report.md), with further rows "
        "(superchains, exploration, automatic proposals)."
    )
    return "\n\n".join(parts)


CLAIM_NOTES = """\
A ratio is the number of steps after which the median error of LMH reaches a target, divided by that
of the other method; more than 1 means that LMH needs more. Intervals are 95 % bootstrap intervals
over restarts (over superchains where chains share one). The paper's "half as many samples" is a
ratio of 2. "Per second" multiplies the ratio by the method's steps per second relative to LMH's."""

ROW_NOTES = """\
All rows have superchains of one chain, prior proposals, C = 0.5 and adaptation throughout unless
they say otherwise; weights are updated every 50 steps except where a row says so. Steps per second
are those of all chains together. A step with automatic proposals may try every value of a choice,
or move a block of choices: those rows are best compared per second. As in the paper every draw
counts from the first step on, so that errors include the approach of the posterior."""
APPROACH_NOTES = """\
Here that approach weighs heavily. With automatic proposals the states reach the observations
before they agree with each other, and until then q is far too large; the draws of that time remain
in the running distribution. Beyond it automatic proposals mix better than prior ones, by the factor
that benchmarks/RESULTS.md gives."""


def _settings(cases: Mapping[str, Numbers]) -> str:
    """Say how much was run; cases may differ."""
    lines = []
    for name, numbers in cases.items():
        settings = numbers["settings"]
        epoch = settings["epoch"]
        adapting = (
            "at every step, exactly as in the paper" if epoch == 1 else f"every {epoch} steps"
        )
        lines.append(
            f"- {name}: {settings['restarts']} restarts of {settings['steps']:,} steps, AdLMH "
            f"adapting {adapting}; seed {settings['seed']}."
        )
    return "\n".join(
        [
            "Output-Sensitive Adaptive Metropolis-Hastings for Probabilistic Programs (Tolpin, van "
            "de Meent, Paige, Wood, 2015), section 5. LMH and AdLMH with prior proposals, C = 0.5, "
            "adaptation throughout, superchains of one chain.",
            "",
            *lines,
        ]
    )


def summary_table(cases: Mapping[str, Numbers]) -> str:
    """Return one row for each case: what the paper says, and what was measured."""
    rows = []
    for name, numbers in cases.items():
        claim = numbers["claim"]
        number = hardest_target(claim)
        cells = ["-", "-", "no target was reached"]
        if number is not None:
            ratio = claim["rows"][1]["ratios"][number]
            target = f"{claim['error']} {claim['targets'][number]:g}"
            cells = [f"{_interval(ratio)} at {target}", _number(ratio["per_second"])]
            cells.append(ratio["verdict"])
        rows.append([name, numbers["paper_says"], *cells])
    heads = ["case", "the paper says", "steps of LMH per step of AdLMH", "per second", "so"]
    return table(heads, rows)


def _case_section(name: str, numbers: Numbers) -> str:
    """Return the section of one case."""
    curves, claim = numbers["curves"], numbers["claim"]
    share = curves["share_of_checkpoints_with_band_below"]
    parts = [
        f"## {numbers['title']} ({name})",
        f"![{name}]({name}.png)",
        f"Median and quartiles of {curves['restarts']} restarts of {curves['steps']:,} steps. At "
        f"the end the median {claim['error']} is {_last(curves, 'lmh')} for LMH and "
        f"{_last(curves, 'adlmh')} for AdLMH. From 1,000 steps on, AdLMH's upper quartile lies "
        f"below LMH's median at {share:.0%} of the checkpoints.",
    ]
    if "bars" in numbers:
        parts.append(_bars(numbers["bars"]))
    if "mixing" in numbers:
        parts += [_mixing(numbers["mixing"]), _literal(numbers["literal"])]
    parts += [f"![{name}, the claim]({name}-claim.png)", claim_table(claim), ROW_NOTES]
    if "mixing" in numbers and any(row["method"].endswith("auto") for row in claim["rows"]):
        parts.append(APPROACH_NOTES)
    return "\n\n".join(parts)


def _last(curves: Numbers, method: str) -> str:
    return _number(curves["bands"][method][1][-1])


def _bars(bars: Sequence[Numbers]) -> str:
    """Say which choices were selected most, and which were accepted least."""
    rows = []
    for bar in bars:
        rates = bar["acceptance_rate"]
        least = sorted(range(len(rates)), key=rates.__getitem__)[:3]
        rewarded = sorted(range(len(rates)), key=lambda i: -bar["unit_rewards"][i])[:3]
        rows.append(
            [
                f"{bar['steps']:,}",
                _listed(bar["most_selected"]),
                _listed(bar["names"][i] for i in rewarded),
                _listed(f"{bar['names'][i]} ({rates[i]:.2f})" for i in least),
            ]
        )
    heads = ["steps", "selected most often", "highest unit rewards", "accepted least often"]
    return table(heads, rows)


def _mixing(mixing: Numbers) -> str:
    """Return autocorrelations and effective sizes."""
    rows = []
    for method, outputs in mixing["methods"].items():
        for output, values in outputs.items():
            lags = [_number(value) for value in values["autocorrelation"]]
            per_thousand = _number(values["effective_draws_per_1000_steps"])
            rows.append([method, output, *lags, per_thousand])
    lags = [f"lag {lag:,}" for lag in mixing["lags"]]
    heads = ["method", "output", *lags, "effective draws per 1,000 steps"]
    intro = "Autocorrelations between steps, in the second half of a run; medians over restarts."
    return f"{intro}\n\n{table(heads, rows)}"


def _literal(literal: Numbers) -> str:
    """Say what the printed prior of omega means, taken literally."""
    return (
        "The printed prior of omega, Gamma(10, 2.5), has the mean 4, while the true omega is "
        f"{literal['true_omega']:.3f}: read literally it puts the posterior mean at "
        f"{literal['paper']:.3f}, one whole turn further on. Here omega has that prior in units of "
        f"pi / T, with the posterior mean {literal['scaled']:.3f}. The figure shows 500 "
        "consecutive steps after 10,000 (upper row), and 500 steps that are a sweep apart (lower "
        "row); the cross is the exact posterior."
    )


def claim_table(claim: Numbers) -> str:
    """Return one row for each method: its ratios at each target, and its speed."""
    number = hardest_target(claim)
    rows = []
    for row in claim["rows"]:
        hardest = row["ratios"][number] if number is not None else None
        rows.append(
            [
                row["label"],
                f"{row['superchains']} x {row['chains']}",
                *[_interval(ratio) for ratio in row["ratios"]],
                f"{row['steps_per_second']:,.0f}",
                _number(hardest["per_second"]) if hardest else "-",
            ]
        )
    targets = [f"{claim['error']} {target:g}" for target in claim["targets"]]
    heads = ["method", "restarts x chains", *targets, "steps per second", "per second"]
    return table(heads, rows)


def _lemma_section(numbers: Numbers) -> str:
    """Return the section on Lemma 1."""
    lemma = numbers["lemma"]
    rows = []
    for row in lemma["rows"]:
        by_steps = zip(*row["ratios"], strict=True)
        rows.append([row["label"], *[_number(sorted(r)[len(r) // 2]) for r in by_steps]])
    heads = ["ratio of selection probabilities", *[f"{n:,} steps" for n in lemma["steps"]]]
    words = (
        f"Two independent choices, of which one is predicted. Eq. 16 gives {lemma['theory']:.4f} "
        "for the equilibrium, which the exploration term delays; medians over restarts."
    )
    parts = [f"## {numbers['title']} (lemma)", "![lemma](lemma.png)", words, table(heads, rows)]
    return "\n\n".join(parts)


def _times(cases: Mapping[str, Numbers]) -> str:
    rows = [[name, f"{numbers['seconds'] / 60:.1f}"] for name, numbers in cases.items()]
    rows.append(["together", f"{sum(n['seconds'] for n in cases.values()) / 60:.1f}"])
    return "## Time\n\n" + table(["case", "minutes of runs"], rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(heads), ["---"] * len(heads), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _interval(ratio: Numbers | None) -> str:
    """Return a ratio and its interval; an end without bound is open."""
    if ratio is None:
        return "-"
    if ratio["value"] is None:
        return f"> {_number(ratio['low'])}"
    if ratio["value"] == 0.0:
        return "not reached"
    low, high = ratio["low"], ratio["high"]
    if low == high:  # LMH compared with itself
        return _number(ratio["value"])
    ends = f"{_number(low)} to {_number(high)}" if low and high else "interval open"
    return f"{_number(ratio['value'])} ({ends})"


def _number(value: float | None) -> str:
    """Return a number with about three digits."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
