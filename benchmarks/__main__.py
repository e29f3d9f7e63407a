"""Run all benchmarks: ``python -m benchmarks``."""

from benchmarks import compilation, evaluations, plates, posteriordb, throughput

for benchmark in (throughput, compilation, plates, posteriordb, evaluations):
    benchmark.main()
