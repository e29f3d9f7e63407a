"""Run all benchmarks: ``python -m benchmarks``."""

from benchmarks import (
    compilation,
    evaluations,
    numpyro_kernel,
    plates,
    posteriordb,
    schedules,
    soak,
    throughput,
)
from benchmarks.classics import report as classics

BENCHMARKS = (
    throughput,
    compilation,
    numpyro_kernel,
    plates,
    posteriordb,
    classics,
    schedules,
    evaluations,
    soak,
)

for benchmark in BENCHMARKS:
    benchmark.main()
