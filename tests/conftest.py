from pathlib import Path

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)  # takes effect only before the first array is made
jax.config.update("jax_numpy_dtype_promotion", "standard")

MOST_MAPS = 30_000  # a process may have 65,530 memory maps; compiled code takes hundreds each


@pytest.fixture(autouse=True)
def bounded_memory_maps():
    """Forget compiled code before it exhausts the memory maps of the process."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
