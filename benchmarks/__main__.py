"""Run all benchmarks: ``python -m benchmarks``."""

from benchmarks import compilation, throughput

for benchmark in (throughput, compilation):
    benchmark.main()
