"""Twelve classics at all defaults: ``python -m benchmarks.classics [name ...]``.

On a quiet machine; a run of all classics is kept.
"""

import argparse

from benchmarks.classics import CLASSICS, report

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help=f"of {', '.join(CLASSICS)}; default: all, kept")
    parser.add_argument("--nuts", action="store_true", help="NUTS too, where it can be asked")
    parser.add_argument("--before", action="store_true", help="later figures are beside these")
    chosen = parser.parse_args()
    if unknown := set(chosen.name) - set(CLASSICS):
        parser.error(f"no classic {', '.join(sorted(unknown))}; there are {', '.join(CLASSICS)}")
    report.main(chosen.name, chosen.nuts, chosen.before)
