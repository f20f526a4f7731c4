"""python -m tests.bench.standard_dataclasses [--runs N]: what `netsim.base.values.dataclass` saves.

Runs one question of `netsim expect` in processes of its own, in turn with the dataclasses of
`netsim/base/values.py` and with those of the standard library in their place. Printed are the least
and the median of the processor seconds of each.
"""

import argparse
import statistics
import sys
from pathlib import Path

from tests.bench.measure import process_use

QUESTION = "expect dgx-h100 all_reduce --sizes 1M"
KINDS = {
    "netsim.base.values": "",
    "standard library": "import dataclasses, netsim.base.values as values; "
    "values.dataclass = dataclasses.dataclass; ",
}


def seconds_of(preparation: str) -> float:
    """Processor seconds of a process that answers the question."""
    code = f"{preparation}from netsim.cli import main; main()"
    command = [sys.executable, "-c", code, *QUESTION.split()]
    seconds, _ = process_use(command, Path.cwd())
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="processes of each kind")
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(runs + 1):
        for kind, preparation in KINDS.items():
            seconds = seconds_of(preparation)
            if number:  # the first of each writes byte code
                times[kind].append(seconds)
    for kind, seconds_of_kind in times.items():
        least, median = min(seconds_of_kind), statistics.median(seconds_of_kind)
        print(f"{kind:20} least {least:.3f} s, median {median:.3f} s")


if __name__ == "__main__":
    main()
