"""python -m tests.bench [--case NAME…] [--json FILE] [--against FILE]: how fast netsim is.

Every case runs in processes of its own; figures are medians, times in seconds, memory in MB.
"""

import time

BEGAN = time.perf_counter()  # before anything else is imported

import argparse  # noqa: E402
import json  # noqa: E402
from dataclasses import asdict  # noqa: E402
from pathlib import Path  # noqa: E402

from tests.bench.folded import is_folded, measured, table  # noqa: E402
from tests.bench.measure import Figures, as_json, measure, measure_here  # noqa: E402
from tests.bench.table import comparison, exponents, header, line  # noqa: E402

USUAL = (
    "ring-switch-8",
    "ring-switch-64",
    "ring-switch-256",
    "ring-switch-1024",
    "ring-switch-256-random",
    "ring-switch-1024-random",
    "ring-switch-4096",
    "ring-rail-64",
    "ring-rail-1024",
    "tree-rail-64",
    "tree-rail-1024",
    "alltoall-switch-64",
    "alltoall-switch-256",
    "alltoall-switch-1024",
    "alltoall-fattree-64",
    "alltoall-fattree-256",
    "permutation-leafspine-64",
    "permutation-leafspine-1024",
    "sharing-switch-1024",
    "sharing-switch-128",
)


def main() -> None:
    """Measure, print, write and compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--case", nargs="+", default=list(USUAL), metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--against", type=Path, metavar="FILE", help="an earlier run's figures")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="processes a case")
    parser.add_argument("--engine", default="compiled", choices=["compiled", "simpy", "auto"])
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(asdict(measure_here(given.one, BEGAN, given.engine))))
        return
    folded = [name for name in given.case if is_folded(name)]
    for text in table(measured(name, given.runs) for name in folded) if folded else ():
        print(text, flush=True)
    given.case = [name for name in given.case if not is_folded(name)]
    if not given.case:
        return
    before = _earlier(given.against) if given.against else {}
    print(header())
    found: list[Figures] = []
    for name in given.case:
        found.append(measure(name, given.runs, given.engine))
        print(line(found[-1]), flush=True)
    for text in [*exponents(found), *comparison(found, before)]:
        print(text)
    if given.json:
        given.json.write_text(as_json(found))


def _earlier(file: Path) -> dict[str, dict[str, float]]:
    return {case["case"]: case for case in json.loads(file.read_text())["cases"]}


main()
