"""The command line: `adlmh demo`, `reproduce`, `run`, `report`, `merge`."""

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import jax

from adlmh_jax.interop import Files, doubtful_names, headline, run_datasets, run_model
from adlmh_jax.paper.experiments import (
    CASE_NAMES,
    Budget,
    demo,
    load_numbers,
    quick_budget,
    reproduce,
    summary_table,
)
from adlmh_jax.results import ConvergenceWarning, Result, read_record, write_report
from adlmh_jax.store import StoreError, make_directory, merge
from adlmh_jax.version import VERSION

USAGE_ERROR = 2  # exit code of wrong arguments, as argparse has it
NOT_CONVERGED = 3  # something speaks against convergence, or there is too little to tell
INTERRUPTED = 130
EXIT_CODES = """\
exit codes: 0 done (of `run`: and converged, as far as the draws can tell); 2 wrong arguments;
3 of `run`: not converged, or too little to tell; 130 interrupted
"""


class UsageError(Exception):
    """What is wrong with the arguments, in one line."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors have one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and leave."""
        self.exit(USAGE_ERROR, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments
        Default: those of the process.

    Returns
    -------
    int
        0, 2 if the arguments are wrong, 3 if a run has not converged, 130 if it was interrupted.
    """
    options = build_parser().parse_args(arguments)
    try:
        with plain_warnings():
            checked(set_device_count, options.device_count)
            return options.command(options) or 0
    except UsageError as error:
        print(f"adlmh: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print("adlmh: interrupted", file=sys.stderr)
        return INTERRUPTED


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings as sentences; that of convergence not at all, for the verdict is printed."""

    def show(message: Warning | str, *place: Any, **more: Any) -> None:
        print(f"adlmh: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.showwarning = show
        yield


def checked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function whose errors are the user's."""
    try:
        return function(*args, **kwargs)
    except (ValueError, OSError, ImportError, StoreError) as error:
        raise UsageError(" ".join(str(error).split())) from error


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="adlmh",
        description="Output-sensitive adaptive Metropolis-Hastings for NumPyro models",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "numpyro", "arviz"))
    parser.add_argument("--version", action="version", version=f"adlmh_jax {VERSION} ({versions})")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    one = commands.add_parser("demo", help="three schedules on a hidden Markov model")
    one.add_argument("--restarts", type=int, default=4, help="superchains of each schedule (4)")
    one.add_argument("--steps", type=int, default=50_000, help="steps after warm-up (50000)")
    one.add_argument("--out", type=Path, default=Path("adlmh-demo"), help="directory to write")
    one.set_defaults(command=_demo)

    one = commands.add_parser("reproduce", help="the case studies of the paper")
    one.add_argument("case", choices=(*CASE_NAMES, "all"), help="which case study")
    one.add_argument("--restarts", type=int, help="runs of each method (25)")
    one.add_argument("--steps", type=int, help="steps of each run (500000)")
    one.add_argument(
        "--claim-restarts", type=int, help="runs behind the sample ratios (200); 0: no further runs"
    )
    one.add_argument("--quick", action="store_true", help="few restarts and steps: a first look")
    one.add_argument("--out", type=Path, default=Path("adlmh-paper"), help="directory to write")
    one.set_defaults(command=_reproduce)

    _add_run(commands)
    one = commands.add_parser("report", help="a page of HTML of a run that is on disk")
    one.add_argument("run", type=Path, help="draws.nc, or the directory of a stored run")
    one.add_argument("--out", type=Path, default=Path("report.html"), help="file to write")
    one.set_defaults(command=_report)

    one = commands.add_parser("merge", help="stored parts of a run, put together as one")
    one.add_argument("parts", nargs="+", type=Path, help="directories of --superchains --store")
    one.add_argument("--into", type=Path, required=True, help="directory to write")
    one.set_defaults(command=_merge)

    for command in commands.choices.values():
        command.add_argument(
            "--seed", type=int, default=0, help="random numbers follow from it (0)"
        )
        command.add_argument("--device-count", type=int, help="CPU devices (one for each core)")
        command.add_argument("--no-progress", action="store_true", help="no progress bars")
    return parser


def _add_run(commands: Any) -> None:
    """Add the command that samples a user's model."""
    one = commands.add_parser(
        "run",
        help="sample a model of your own",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.add_argument(
        "model", metavar="MODEL", help="a NumPyro model: module:model or file.py:model"
    )
    one.add_argument(
        "--args", type=Path, help="the model's arguments: a .json, .npz or .csv file (by column)"
    )
    one.add_argument(
        "--datasets",
        type=Path,
        metavar="DIR",
        help="sample the model for each data set in a directory: files as for --args, whose "
        "arguments are then common to all",
    )
    one.add_argument("--outputs", help="sites to predict, with commas between (all)")
    one.add_argument(
        "--chains", type=int, help="number of chains (256; with --datasets 64 for each)"
    )
    one.add_argument("--num-superchains", type=int, help="superchains of the whole run (4 or more)")
    one.add_argument(
        "--superchains",
        type=read_range,
        metavar="A:B",
        help="run only superchains A to B - 1; `adlmh merge` puts stored parts together",
    )
    one.add_argument("--warmup", type=int, default=1000, help="draws before sampling (1000)")
    one.add_argument("--samples", type=int, default=1000, help="draws of each chain (1000)")
    one.add_argument("--float64", action="store_true", help="compute in double precision")
    one.add_argument("--store", type=Path, help="directory that keeps the run while it goes on")
    one.add_argument("--resume", action="store_true", help="go on with the run in --store")
    one.add_argument("--out", type=Path, help="NetCDF file of the draws to write")
    one.add_argument("--summary", type=Path, help="JSON file of verdict and table to write")
    one.add_argument("--report", type=Path, help="HTML page to write")
    loudness = one.add_mutually_exclusive_group()
    loudness.add_argument("--quiet", action="store_true", help="print the verdict alone")
    loudness.add_argument("--verbose", action="store_true", help="print model and moves too")
    one.set_defaults(command=_run)


def set_device_count(count: int | None) -> None:
    """Divide the CPU into devices; the package makes one for each core unless told otherwise."""
    if count is None:
        return
    if count < 1:
        raise ValueError(f"`--device-count` must be at least 1, got {count}.")
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:  # JAX has started: too late
        if count != jax.device_count():
            raise ValueError(
                f"`--device-count` is {count}, but JAX has started with {jax.device_count()}."
            ) from error


def _demo(options: argparse.Namespace) -> None:
    checked(Budget, options.restarts, options.steps, seed=options.seed)
    checked(make_directory, options.out)
    demo(
        options.out,
        options.restarts,
        options.steps,
        options.seed,
        progress=not options.no_progress,
    )


def _reproduce(options: argparse.Namespace) -> None:
    budget = quick_budget() if options.quick else Budget()
    given = {
        name: getattr(options, name)
        for name in ("restarts", "steps", "claim_restarts", "seed")
        if getattr(options, name) is not None
    }
    if options.quick and "steps" in given:
        given["bar_steps"] = (given["steps"],)
    budget = checked(replace, budget, **given)
    checked(make_directory, options.out)
    names = CASE_NAMES if options.case == "all" else (options.case,)
    path = reproduce(names, options.out, budget, progress=not options.no_progress)
    claims = {n: c for n, c in load_numbers(options.out).items() if "claim" in c}
    if claims:
        print(summary_table(claims))
    print(f"Report: {path}")


def _run(options: argparse.Namespace) -> int:
    if options.float64:
        jax.config.update("jax_enable_x64", True)
    files = Files(draws=options.out, summary=options.summary, report=options.report)
    outputs = options.outputs.split(",") if options.outputs else None
    settings = {
        "num_superchains": options.num_superchains,
        "num_warmup": options.warmup,
        "num_samples": options.samples,
        "store": options.store,
        "resume": options.resume,
        "progress": not (options.no_progress or options.quiet),
    }
    if options.chains is not None:
        settings["num_chains"] = options.chains
    named = zip(("Draws", "Summary", "Report", "Store"), (*files, options.store), strict=True)
    written = [f"{name}: {path}" for name, path in named if path is not None]
    if options.datasets is not None:
        return _run_datasets(options, files, outputs, settings, written)
    result: Result = checked(
        run_model,
        options.model,
        options.args,
        outputs,
        files,
        options.seed,
        superchains=options.superchains,
        **settings,
    )
    diagnosis = result.diagnose()
    if options.quiet:
        print(diagnosis.headline)
    else:
        if options.verbose:
            moves = "\n".join(f"{site}: {text}" for site, text in result.proposals.items())
            print(result.program, "Moves", moves, result.summary(by="site"), sep="\n\n", end="\n\n")
        print(result.summary(), diagnosis, sep="\n\n")
        print(*written, sep="\n", end="\n" * bool(written))
    return 0 if diagnosis.is_converged else NOT_CONVERGED


def _run_datasets(
    options: argparse.Namespace,
    files: Files,
    outputs: list[str] | None,
    settings: dict[str, Any],
    written: list[str],
) -> int:
    """Sample a model for each data set in a directory."""
    if options.superchains is not None:
        raise UsageError("`--superchains` is a part of one run: leave it out, or `--datasets`.")
    results = checked(
        run_datasets,
        options.model,
        options.datasets,
        options.args,
        outputs,
        files,
        options.seed,
        **settings,
    )
    if not options.quiet:
        if options.verbose:
            moves = "\n".join(f"{site}: {text}" for site, text in results[0].proposals.items())
            print(results.engine.program, "Moves", moves, sep="\n\n", end="\n\n")
        print(results.summary(), end="\n\n")
    print(headline(results))
    if not options.quiet:
        print(*written, sep="\n", end="\n" * bool(written))
    return NOT_CONVERGED if doubtful_names(results) else 0


def read_range(text: str) -> range:
    """Return a range that is written as ``8:16``."""
    first, _, last = text.partition(":")
    try:
        return range(int(first), int(last))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be written as 8:16, got {text!r}") from None


def _merge(options: argparse.Namespace) -> None:
    print(f"Store: {checked(merge, options.parts, options.into)}")


def _report(options: argparse.Namespace) -> None:
    checked(write_report, checked(read_record, options.run), options.out)
    print(f"Report: {options.out}")


if __name__ == "__main__":
    sys.exit(main())
