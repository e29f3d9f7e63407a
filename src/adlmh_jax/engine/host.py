"""What the package sets up on the machine it runs on: its cores, and a cache of compiled code."""

import os
from pathlib import Path

import jax


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


def use_compilation_cache(directory: str | Path | None = None) -> Path:
    """Keep compiled code on disk, so that the next Python session need not compile it again.

    Parameters
    ----------
    directory
        Where; default a directory of the user's own, which nobody else can read.

    Returns
    -------
    The directory.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    path = base / "adlmh_jax" if directory is None else Path(directory)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    return path
