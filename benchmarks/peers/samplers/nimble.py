"""NIMBLE, an R package that comes from CRAN alone."""

from benchmarks.peers.cell import Refused


def run(model, data, limit, clock):
    del model, data, limit, clock
    raise Refused("not installed: no package of Debian, npm or PyPI; CRAN could not be reached")
