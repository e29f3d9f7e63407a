"""Samplers of other people on the same models: ``python -m benchmarks.peers``, when it is quiet.

An interrupted run goes on: cells that are in ``peers.json`` are measured anew with ``--anew`` only.
"""

import argparse

from benchmarks.peers import report
from benchmarks.peers.cases import CASES
from benchmarks.peers.samplers import PEERS


def _names(known):
    """Return the function from a text to some of the known names."""

    def parse(text):
        names = text.split(",")
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}; known: {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=_names(CASES), default=list(CASES), help="a,b; all")
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS), help="x,y; all")
    parser.add_argument("--limit", type=float, default=report.LIMIT, help="seconds of sampling")
    parser.add_argument("--patience", type=float, default=report.PATIENCE, help="then it is ended")
    parser.add_argument("--anew", action="store_true", help="cells that are there, too")
    parser.add_argument("--out", help="a directory in the place of RESULTS.md and docs/peers.png")
    chosen = parser.parse_args()
    report.main(
        chosen.models, chosen.peers, limit=chosen.limit, patience=chosen.patience,
        is_anew=chosen.anew, out=chosen.out,
    )  # fmt: skip
