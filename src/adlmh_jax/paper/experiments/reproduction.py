"""`reproduce`: run the case studies and write numbers, figures and a report."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adlmh_jax.paper import zoo
from adlmh_jax.paper.experiments import figures, report, studies
from adlmh_jax.paper.experiments.budget import Budget
from adlmh_jax.paper.experiments.cases import CASE_NAMES, CASES, Case
from adlmh_jax.paper.experiments.runs import Lab
from adlmh_jax.store import load_json, make_directory, save_json, save_text


def reproduce(
    case_names: tuple[str, ...],
    directory: Path,
    budget: Budget,
    say: Callable[[str], None] = print,
    progress: bool = True,
) -> Path:
    """Reproduce case studies of the paper.

    Every run is kept in a file of its own as soon as it is complete, and a second call with the
    same settings goes on from there.

    Parameters
    ----------
    case_names
        Some of `CASE_NAMES`.
    directory
        Where to write; it is made if need be.
    budget
        How much to run.
    say
        Called with a line before each run.
    progress
        Show a progress bar during each run.

    Returns
    -------
    Path
        The report. It covers all cases that the directory has results of.
    """
    unknown = [name for name in case_names if name not in CASE_NAMES]
    if unknown:
        raise ValueError(f"`{unknown[0]}` is not a case; expected one of {', '.join(CASE_NAMES)}.")
    figures.check_plots()
    lab = Lab(make_directory(directory), budget, say, progress)
    for name in case_names:
        numbers = study_lemma(lab) if name == "lemma" else study_case(lab, CASES[name])
        numbers["settings"] = budget.as_dict()
        numbers["seconds"] = round(lab.total_seconds(name), 1)
        save_json(lab.directory / f"{name}.json", numbers)
    path = lab.directory / "report.md"
    save_text(path, report.write_report(load_numbers(lab.directory)))
    return path


def load_numbers(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the numbers of all cases that a directory has results of."""
    saved = {name: load_json(directory / f"{name}.json") for name in CASE_NAMES}
    return {name: numbers for name, numbers in saved.items() if numbers}


def study_case(lab: Lab, case: Case) -> dict[str, Any]:
    """Run a case study, draw its figures, and return its numbers."""
    numbers: dict[str, Any] = {
        "case": case.name,
        "title": case.title,
        "paper_says": case.paper_says,
    }
    numbers["curves"] = studies.study_curves(lab, case)
    if case.has_bars:
        numbers["bars"] = studies.study_bars(lab, case)
    if case.has_window:
        numbers["mixing"] = studies.study_mixing(lab, case)
        numbers["literal"] = literal_kalman()
    figures.save_figure(figures.draw_case(lab, case), lab.directory, case.name)
    numbers["claim"] = studies.study_claim(lab, case)
    figure = figures.draw_claim(lab, case, numbers["claim"])
    figures.save_figure(figure, lab.directory, f"{case.name}-claim")
    return numbers


def study_lemma(lab: Lab) -> dict[str, Any]:
    """Run Lemma 1's program, draw its figure, and return its numbers."""
    numbers = studies.study_lemma(lab)
    figures.save_figure(figures.draw_lemma(numbers), lab.directory, "lemma")
    return {"case": "lemma", "title": studies.LEMMA.title, "lemma": numbers}


def literal_kalman() -> dict[str, float]:
    """Return where the printed prior of the Kalman smoother, read literally, puts omega."""
    means = {variant: zoo.kalman(variant).truth for variant in ("paper", "scaled")}
    true_omega = 4.0 * math.pi / 100.0
    return {
        "true_omega": true_omega,
        **{variant: float(truth().mean[0]) for variant, truth in means.items() if truth},
    }
