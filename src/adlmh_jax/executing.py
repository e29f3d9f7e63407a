"""A run in shares: its superchains are divided among the workers of an executor, then merged.

A share is a stored part of the run, so whoever takes it up after a worker died goes on where that
worker was. Nothing that a share gives depends on who ran it, or with which others.
"""

import contextlib
import functools
import pickle
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax

from adlmh_jax.engine import Meter, RunConfig, make_meter, watch_signals
from adlmh_jax.store import Lock, StoreError, clear_draws, load_json, merge, read_counts, save_json

MAX_TRIES = 3  # of a share
POLL_SECONDS = 0.2  # how often futures are asked whether they are done
MARK, SHARES = "shares.json", "shares"  # in the directory of the run
SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_threefry_partitionable")

RunPart = Callable[[Any, range, Path], int]
"""Runs a part of a task to its end, stored in a directory; returns how many draws it has."""


class Outcome(NamedTuple):
    """What a worker sends back; errors are its result: what is raised is the executor's doing."""

    num_draws: int = 0
    error: Exception | None = None


@dataclass
class Share:
    """A part of the run, on its way."""

    numbers: range
    directory: Path
    tries: int = 0
    future: Any = None
    is_done: bool = False

    def __str__(self) -> str:
        return f"superchains {self.numbers.start} to {self.numbers.stop - 1}"


class Pool:
    """An executor; or a function that makes one, and another one if the first breaks."""

    def __init__(self, executor: Any) -> None:
        self._make = None if hasattr(executor, "submit") else executor
        if self._make is not None and not callable(executor):
            raise TypeError(
                "`executor` must have `submit`, as those of `concurrent.futures` and Dask's "
                f"`Client` have, or be a function that makes such a one; got {executor!r}."
            )
        self._executor = executor if self._make is None else self._new()
        _refuse_forks(self._executor)

    def _new(self) -> Any:
        made = self._make() if self._make is not None else None
        if not hasattr(made, "submit"):
            raise TypeError(f"`executor` made {made!r}, which has no `submit`.")
        return made

    @property
    def num_workers(self) -> int | None:
        """How many workers there are, if the executor tells."""
        number = getattr(self._executor, "_max_workers", None)  # concurrent.futures, loky
        if isinstance(number, int):
            return number
        count = getattr(getattr(self._executor, "_client", self._executor), "ncores", None)  # Dask
        return len(count()) if callable(count) else None

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return a future; an executor that takes no more work is replaced, if possible."""
        try:
            return self._executor.submit(function, *args)
        except Exception:
            if self._make is None:
                raise
        self.close()
        self._executor = self._new()
        return self._executor.submit(function, *args)

    def close(self, wait: bool = True) -> None:
        """Shut down what was made here."""
        shutdown = getattr(self._executor, "shutdown", None)
        if self._make is not None and shutdown is not None:
            shutdown(wait=wait, cancel_futures=True)  # wait: nobody is left to write


def _refuse_forks(executor: Any) -> None:
    """Refuse a pool of processes that are forked: JAX has threads, which they would not have."""
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "`executor` forks its workers, and JAX hangs in a forked process. Write "
            '`ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn"))`.'
        )


def run_in_shares(
    executor: Any,
    num_shares: int | None,
    run_part: RunPart,
    task: Any,
    config: RunConfig,
    directory: Path,
    resume: bool,
    progress: bool,
) -> None:
    """Leave the stored run of all superchains in a directory.

    Parameters
    ----------
    executor
        Anything with the `submit` of `concurrent.futures`, or a function that makes it.
    num_shares
        How many; None: one for each worker, or for each superchain where nobody knows.
    run_part, task
        What workers call, and with what.
    config
        The numbers of the whole run.
    directory, resume, progress
        As for `sample`; workers must see the directory too.
    """
    if num_shares is not None and not 1 <= num_shares <= config.superchains:
        raise ValueError(
            f"`num_shares` must be from 1 to {config.superchains}, the number of superchains, got "
            f"{num_shares}."
        )
    if _is_whole(directory, config, resume):
        _forget(directory)
        return
    pool = Pool(executor)
    directory.mkdir(parents=True, exist_ok=True)
    lock = Lock(directory)
    lock.take()
    is_over = False
    try:
        shares = _divide(directory, config.superchains, num_shares or pool.num_workers)
        payload = _pack(task)
        with make_meter(progress) as meter:
            submit = functools.partial(pool.submit, _run_share, run_part, payload)
            _run_all(shares, submit, config, meter)
        is_over = True
    finally:
        pool.close(wait=is_over)
        lock.release()
    clear_draws(directory)  # of a merge that was cut off
    merge([share.directory for share in shares], directory)
    _forget(directory)


def _is_whole(directory: Path, config: RunConfig, resume: bool) -> bool:
    """Whether the run is there already; refuse one that has begun, but not in shares."""
    counts = read_counts(directory)
    if counts is None and not (directory / MARK).exists():
        return False
    if not resume:
        raise StoreError(
            f"`store` = {str(directory)!r} holds a run already. Pass `resume=True` to go on with "
            "it, or name another directory."
        )
    if counts is not None and counts.num_stored < config.num_samples:
        raise StoreError(
            f"`store` = {str(directory)!r} holds a run of {counts.num_stored} draws that is not "
            "divided into shares: it can go on here, without `executor`, or anew in another "
            "directory."
        )
    return counts is not None


def _divide(directory: Path, total: int, number: int | None) -> list[Share]:
    """Divide the superchains, or find how they were divided when the run began."""
    ends = load_json(directory / MARK)
    if ends is None:
        count = min(number or total, total)
        ends = [total * place // count for place in range(count + 1)]
        save_json(directory / MARK, ends)
    ranges = [range(first, last) for first, last in zip(ends, ends[1:], strict=False)]
    root = directory.resolve() / SHARES
    return [Share(numbers, root / f"{numbers.start}-{numbers.stop}") for numbers in ranges]


def _forget(directory: Path) -> None:
    """Remove the shares of a run that is whole."""
    shutil.rmtree(directory / SHARES, ignore_errors=True)
    (directory / MARK).unlink(missing_ok=True)


def _pack(task: Any) -> bytes:
    """Return what is sent to workers; models may be defined anywhere, in notebooks too."""
    try:
        import cloudpickle
    except ImportError as error:
        raise ImportError(
            "`executor` needs cloudpickle, which sends models to other processes: "
            "`pip install cloudpickle`."
        ) from error
    settings = {name: getattr(jax.config, name) for name in SETTINGS}
    try:
        return cloudpickle.dumps((settings, task))
    except Exception as error:
        raise ValueError(
            f"`executor` cannot send the model to its workers ({type(error).__name__}: {error}). "
            "The model, its arguments, and functions among the settings are pickled, with all "
            "that they refer to: leave out open files, locks, clients and the like."
        ) from error


@functools.lru_cache(maxsize=1)
def _unpack(payload: bytes) -> tuple[dict[str, Any], Any]:
    """Return what was sent; the same for all shares of a worker, so that it compiles once."""
    return pickle.loads(payload)


def _run_share(
    run_part: RunPart, payload: bytes, numbers: range, directory: str, token: str
) -> Outcome:
    """Run a share: what a worker does. Executors may know calls by arguments: each has a token."""
    del token
    try:
        settings, task = _unpack(payload)
        for name, value in settings.items():
            if getattr(jax.config, name) != value:
                jax.config.update(name, value)
        return Outcome(num_draws=run_part(task, numbers, Path(directory)))
    except KeyboardInterrupt:  # during warm-up
        return Outcome()
    except Exception as error:
        return Outcome(error=_sendable(error))


def _sendable(error: Exception) -> Exception:
    """Return an error that survives the way back."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _run_all(
    shares: Sequence[Share], submit: Callable[..., Any], config: RunConfig, meter: Meter
) -> None:
    """Submit shares, and submit them again if their workers die, until all are there."""
    meter.enter(f"sampling in {len(shares)} shares")
    meter.begin(config.num_warmup + config.num_samples, 0)
    with watch_signals() as interruption, _cancelling(shares):
        while True:
            for share in shares:
                _go_on(share, submit, config)
            _tell(shares, config, meter)
            if all(share.is_done for share in shares):
                return
            if interruption.is_asked:
                raise KeyboardInterrupt(
                    "The run was interrupted. Workers go on with the shares that they have begun. "
                    "With `store=`, what they make is kept, and `resume=True` goes on with it."
                )
            time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _cancelling(shares: Sequence[Share]) -> Iterator[None]:
    """Take back what has not begun, if the run ends in any way but well."""
    try:
        yield
    except BaseException:
        for share in shares:
            if share.future is not None:
                with contextlib.suppress(Exception):  # of an executor that is broken
                    share.future.cancel()
        raise


def _go_on(share: Share, submit: Callable[..., Any], config: RunConfig) -> None:
    """Submit a share if nobody has it; look at what has become of it if its worker is through."""
    reason: BaseException | None = None
    if share.future is not None and share.future.done():
        future, share.future = share.future, None
        try:
            outcome: Outcome = future.result()
        except Exception as error:  # not the share's own: its worker is gone, or the executor
            reason = error
        else:
            if outcome.error is not None:
                outcome.error.add_note(f"This happened in the share of {share}.")
                raise outcome.error
            if outcome.num_draws >= config.num_samples:
                _require(share)
                share.is_done = True
    if share.is_done or share.future is not None:
        return
    if _has_all(share, config):
        share.is_done = True
        return
    if share.tries == MAX_TRIES:
        raise _given_up(share, f"was given up after {MAX_TRIES} tries", reason) from reason
    share.tries += 1
    try:
        share.future = submit(share.numbers, str(share.directory), uuid.uuid4().hex)
    except Exception as error:
        words = "could not be submitted: the executor takes no more work"
        raise _given_up(share, words, error) from (reason or error)


def _has_all(share: Share, config: RunConfig) -> bool:
    """Whether a share is complete on disk; whether it is of this run is seen when it is read."""
    counts = read_counts(share.directory)
    return counts is not None and counts.num_stored >= config.num_samples


def _require(share: Share) -> None:
    """Refuse draws that are where only the worker sees them."""
    if read_counts(share.directory) is None:
        raise StoreError(
            f"The share of {share} was run, but nothing is in {str(share.directory)!r}: workers on "
            "other machines need `store=`, a directory that they and this machine share."
        )


def _given_up(share: Share, words: str, reason: BaseException | None) -> RuntimeError:
    cause = f" ({type(reason).__name__}: {reason})" if reason is not None else ""
    return RuntimeError(
        f"The share of {share} {words}{cause}. With `store=`, what the shares have made is kept, "
        "and `resume=True` goes on with it, in a new executor. A `ProcessPoolExecutor` breaks "
        "when a worker dies: give a function that makes it, such as "
        "`executor=functools.partial(ProcessPoolExecutor, n, mp_context=...)`, and a broken one "
        "is replaced."
    )


def _tell(shares: Sequence[Share], config: RunConfig, meter: Meter) -> None:
    """Show how far all superchains are, on average."""
    num_draws = 0.0
    for share in shares:
        counts = read_counts(share.directory)
        if counts is not None:
            made = counts.num_warmup + min(counts.num_stored, config.num_samples)
            num_draws += made * len(share.numbers) / config.superchains
    num_done = sum(share.is_done for share in shares)
    num_again = sum(max(0, share.tries - 1) for share in shares)
    again = f", {num_again} tried again" if num_again else ""
    meter.reach(int(num_draws), f"{num_done} of {len(shares)} done{again}")
