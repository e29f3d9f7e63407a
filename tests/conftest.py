import os
from pathlib import Path

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)  # takes effect only before the first array is made
jax.config.update("jax_numpy_dtype_promotion", "standard")

# Nearly all of the tests' time is compilation. Everything is compiled in little time, as the engine
# does with its steps, where XLA is known to have the options: it refuses to run with unknown ones.
if (0, 10) <= jax.__version_info__ < (0, 11):
    QUICKLY = " --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + QUICKLY

# What one of them compiled serves all others, those of other processes too.
CACHE = Path(os.environ.get("ADLMH_TEST_CACHE", Path(__file__).parents[1] / ".cache" / "tests"))
jax.config.update("jax_compilation_cache_dir", str(CACHE))
os.environ.setdefault("ADLMH_CACHE", str(CACHE))  # for the processes that tests start
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

MAX_MAPS = 30_000  # a process may have 65,530 memory maps; compiled code takes hundreds each


@pytest.fixture(autouse=True)
def bounded_memory_maps():
    """Forget compiled code before it exhausts the memory maps of the process."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MAX_MAPS:
        jax.clear_caches()


@pytest.fixture
def precision(request):
    """Switch to the precision of the test's parameter, as a user would."""
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", False)
