"""Run the benchmarks: ``python -m benchmarks``."""

from benchmarks.throughput import main

main()
