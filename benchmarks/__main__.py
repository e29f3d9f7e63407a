"""Run all benchmarks: ``python -m benchmarks``."""

from benchmarks import (
    compilation,
    evaluations,
    numpyro_kernel,
    plates,
    posteriordb,
    soak,
    throughput,
)

for benchmark in (throughput, compilation, numpyro_kernel, plates, posteriordb, evaluations, soak):
    benchmark.main()
