"""Run all benchmarks: ``python -m benchmarks``."""

from benchmarks import (
    arrival,
    compilation,
    evaluations,
    many,
    numpyro_kernel,
    plates,
    posteriordb,
    schedules,
    soak,
    supports,
    throughput,
)
from benchmarks.classics import report as classics
from benchmarks.peers import report as peers

BENCHMARKS = (
    throughput,
    compilation,
    numpyro_kernel,
    plates,
    posteriordb,
    arrival,
    classics,
    schedules,
    evaluations,
    many,
    supports,
    soak,
    peers,
)

for benchmark in BENCHMARKS:
    benchmark.main()
