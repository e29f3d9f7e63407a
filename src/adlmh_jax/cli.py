"""The command line: `adlmh demo`, `adlmh reproduce`, `adlmh run`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import jax

from adlmh_jax.interop import run_model
from adlmh_jax.paper.experiments import CASE_NAMES, Budget, demo, quick_budget, reproduce
from adlmh_jax.store import make_directory

USAGE_ERROR = 2  # exit code of wrong arguments, as argparse has it
INTERRUPTED = 130


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
        0, or 2 if the arguments are wrong.
    """
    options = build_parser().parse_args(arguments)
    try:
        checked(set_device_count, options.device_count)
        options.command(options)
    except UsageError as error:
        print(f"adlmh: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print("adlmh: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def checked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function whose errors are the user's."""
    try:
        return function(*args, **kwargs)
    except (ValueError, OSError, ImportError) as error:
        raise UsageError(" ".join(str(error).split())) from error


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="adlmh", description="Output-sensitive adaptive Metropolis-Hastings for NumPyro models"
    )
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

    one = commands.add_parser("run", help="sample a model of your own")
    one.add_argument("model", metavar="MODULE:MODEL", help="a NumPyro model that can be imported")
    one.add_argument("--args", type=Path, help="the model's arguments: a .json or .npz file")
    one.add_argument("--outputs", help="sites to predict, with commas between (all)")
    one.add_argument("--chains", type=int, default=256, help="number of chains (256)")
    one.add_argument("--warmup", type=int, default=1000, help="draws before sampling (1000)")
    one.add_argument("--samples", type=int, default=1000, help="draws of each chain (1000)")
    one.add_argument("--out", type=Path, help="NetCDF file to write")
    one.set_defaults(command=_run)

    for command in commands.choices.values():
        command.add_argument(
            "--seed", type=int, default=0, help="random numbers follow from it (0)"
        )
        command.add_argument("--device-count", type=int, help="CPU devices (one for each core)")
        command.add_argument("--no-progress", action="store_true", help="no progress bars")
    return parser


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
    print(f"Report: {path}")


def _run(options: argparse.Namespace) -> None:
    result = checked(
        run_model,
        options.model,
        options.args,
        options.outputs.split(",") if options.outputs else None,
        options.out,
        options.seed,
        num_chains=options.chains,
        num_warmup=options.warmup,
        num_samples=options.samples,
        progress=not options.no_progress,
    )
    print(result.summary().to_string(float_format="{:.4g}".format))
    print(result.diagnose())
    if options.out is not None:
        print(f"Draws: {options.out}")


if __name__ == "__main__":
    sys.exit(main())
