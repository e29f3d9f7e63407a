"""What the package sets up on the machine it runs on: its cores, and a cache of compiled code."""

import contextlib
import hashlib
import os
import platform
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from adlmh_jax.version import VERSION

OFF = "off"  # in the place of a directory: no cache
MIN_SECONDS = 0.5  # of compilation; what takes less is not kept
MAX_BYTES = 1 << 30  # of the cache, when a session begins


def use_all_cores() -> None:
    """Make one JAX device of each core, so that superchains run in parallel on a CPU.

    Runs when the package is imported. It does nothing if JAX has already looked for its devices
    (import ``adlmh_jax`` before the first use of JAX), or if their number was chosen by
    ``JAX_NUM_CPU_DEVICES``, ``XLA_FLAGS`` or ``numpyro.set_host_device_count``; ``ADLMH_CORES=1``
    keeps a single device.
    """
    is_chosen = (
        "JAX_NUM_CPU_DEVICES" in os.environ
        or "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
        or jax.config.values["jax_num_cpu_devices"] >= 0
    )
    num_cores = int(os.environ.get("ADLMH_CORES", count_cores()))
    if is_chosen or num_cores < 2:
        return
    try:
        jax.config.update("jax_num_cpu_devices", num_cores)
    except RuntimeError:  # JAX has its devices already
        return


def count_cores() -> int:
    """Return how many cores this process may use; where that is not known, how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_compilation_cache(directory: str | Path | None = None) -> Path | None:
    """Keep compiled code on disk, so that the next Python session need not compile it again.

    Importing the package does it, unless ``ADLMH_CACHE=off`` is set or JAX has a cache already
    (``JAX_COMPILATION_CACHE_DIR``); ``ADLMH_CACHE`` may also name the directory.

    Parameters
    ----------
    directory
        Where, or ``"off"`` for no cache. Default: a directory of the user's own, which nobody else
        can read, for this version of the package and this kind of processor.

    Returns
    -------
    The directory; None for no cache.
    """
    path = None if directory == OFF else Path(directory or default_directory())
    if path is not None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget_oldest(path)
        if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
            jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)
    jax.config.update("jax_compilation_cache_dir", None if path is None else str(path))
    compilation_cache.reset_cache()  # JAX looks only once where its cache is
    return path


def use_default_cache() -> None:
    """Keep compiled code on disk, unless the user has decided otherwise or the disk refuses."""
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    asked = os.environ.get("ADLMH_CACHE")
    if asked == OFF:
        return
    try:
        path = Path(asked or default_directory())
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Compiled code is run as it is found: nobody else may have put it there.
        if asked or _is_private(path):
            use_compilation_cache(path)
    except OSError:
        return


def default_directory() -> Path:
    """Return where compiled code is kept: code for another processor may not run on this one."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / f"adlmh_jax-{VERSION}-{_digest_processor()}"


def _digest_processor() -> str:
    """Return a short text that tells kinds of processors apart."""
    text = f"{platform.machine()} {platform.processor()}"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        text += next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    except OSError:  # a system that does not say
        pass
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _is_private(path: Path) -> bool:
    """Whether a directory is the user's own, and only the user can write to it."""
    if not hasattr(os, "getuid"):
        return True  # Windows keeps what is in a user's home to the user
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _forget_oldest(path: Path) -> None:
    """Remove the oldest half of a cache that has become too large; other processes may too."""
    found = []
    for entry in path.glob("*-cache"):
        with contextlib.suppress(OSError):
            status = entry.stat()
            found.append((status.st_mtime, status.st_size, entry))
    left = sum(size for _, size, _ in found)
    if left <= MAX_BYTES:
        return
    for _, size, entry in sorted(found):
        if left <= MAX_BYTES // 2:
            return
        with contextlib.suppress(OSError):
            entry.unlink(missing_ok=True)
        left -= size
