"""python -m tests.bench.scale [--gpus N…] [--fabric NAME…] [--collective NAME…] [--limit S]
[--memory GB] [--page docs/performance.md]: how far netsim goes, as a table.

Every cell is a process of its own, which gets so many seconds of processor time and so much memory.
Cells that were measured are kept in `tests/bench/scale.json`, and measured again only if they are
named. What does not run, or was not run, says what it would need.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError
from netsim.extent.budget import USUAL_BUDGET
from netsim.extent.fit import bytes_of_form, rows_in_full
from netsim.extent.memory import BYTES_A_ROW_OF_NCCL, least_rows_of_nccl
from netsim.scenario.cells import expand
from netsim.tasks.outcome import simulate_one
from netsim.tasks.resolve import resolve
from netsim.yamlio.read import parse_source
from tests.extent.cells import form_at

KEPT = Path(__file__).with_suffix(".json")
GPUS = (64, 512, 1024, 4096, 32768, 131072)
COLLECTIVES = ("all_reduce", "all_gather", "alltoall")
BIG = ", routers: 16, ports_per_router: 24, global_links: 24"  # groups of 384 NICs, up to 385
FABRICS: dict[str, Callable[[int], str]] = {
    "rail": lambda nodes: "kind: rail-optimized",
    "2:1 leaf-spine, hashed": lambda nodes: (
        "kind: leaf-spine, oversubscription: 2, transport: roce"
    ),
    "dragonfly": lambda nodes: "kind: dragonfly" + (BIG if nodes > 512 else ""),
    "three tiers": lambda nodes: "kind: fat-tree",
    "torus": lambda nodes: f"kind: torus, dims: {_dims(nodes)}",
}
SCENE = (
    "cluster: {{machine: dgx-h100, nodes: {nodes}, fabric: {{{fabric}}}}}\n"
    "workload: {{collective: {collective}, sizes: [1GiB]}}\n"
)
MARKS = "<!-- scale: python -m tests.bench.scale -->", "<!-- end of scale -->"
Cell = dict[str, Any]


def main() -> None:
    """Measure what is asked for and not known, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=__doc__)
    parser.add_argument("--gpus", nargs="*", type=int, default=[], choices=GPUS)
    parser.add_argument("--fabric", nargs="*", default=list(FABRICS), choices=FABRICS)
    parser.add_argument("--collective", nargs="*", default=COLLECTIVES, choices=COLLECTIVES)
    parser.add_argument("--limit", type=int, default=60, metavar="S", help="of processor time")
    parser.add_argument("--memory", type=float, default=5.0, metavar="GB")
    parser.add_argument("--page", type=Path, help="the page whose table is written")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        _here(int(given.one[0]), *given.one[1:])
        return
    cells: dict[str, Cell] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    for gpus in given.gpus:
        for fabric in given.fabric:
            for collective in given.collective:
                found = _measured(gpus, fabric, collective, given.limit, given.memory)
                cells[_key(gpus, fabric, collective)] = found
                print(gpus, fabric, collective, _words(gpus, collective, found), flush=True)
                KEPT.write_text(json.dumps(cells, indent=1, sort_keys=True) + "\n", "utf-8")
    text = "\n".join(_table(cells))
    if given.page is None:
        print(text)
        return
    before, _, rest = given.page.read_text("utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    given.page.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", "utf-8")


def _dims(nodes: int) -> list[int]:
    """Three dimensions as equal as powers of two can be."""
    power = nodes.bit_length() - 1
    return [2 ** ((power + k) // 3) for k in range(3)]


def _key(gpus: int, fabric: str, collective: str) -> str:
    return f"{collective} {fabric} {gpus}"


# **** One cell ****


def _measured(gpus: int, fabric: str, collective: str, limit: int, memory: float) -> Cell:
    """A process of its own: what it said last, and what it took."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_AS, (int(memory * 1e9),) * 2)

    command = [sys.executable, "-m", "tests.bench.scale", "--one", str(gpus), fabric, collective]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=bounded)
    found: Cell = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    if "s" not in found and "why" not in found:
        short = done.returncode < 0
        found["why"] = f"over {limit} s" if short else f"over {memory:g} GB"
    return found


def _here(gpus: int, fabric: str, collective: str) -> None:
    """Say what a cell is expected to need, then what it took in this process."""
    nodes = gpus // 8
    scene = SCENE.format(nodes=nodes, fabric=FABRICS[fabric](nodes), collective=collective)
    try:
        resolved = resolve(expand(parse_source(scene, "scale.yaml"))[0])
        size = resolved.cell.scenario.collective.size_list()[0]
        call = form_at(resolved, size)
        needs = {"rows": rows_in_full(call.task), "bytes": bytes_of_form(call, USUAL_BUDGET)}
        print(json.dumps(needs), flush=True)
        timing = simulate_one(resolved, size, engine="compiled")
    except InputError as error:
        print(json.dumps({"why": "refused", "words": str(error)[:400]}))
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "s": used.ru_utime + used.ru_stime,
        "mb": used.ru_maxrss * 1024 / 1e6,
        "written": len(timing.program),
        "methods": [
            decision.method.replace(" ", "_") for decision in timing.decisions if decision.is_taken
        ],
        "off": timing.uncertainty,
    }
    print(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # not to take millions of rows apart


# **** The table ****


def _table(cells: dict[str, Cell]) -> Iterator[str]:
    """One for each collective: a line for each number of GPUs, and how time grows."""
    for collective in COLLECTIVES:
        yield f"\n`{collective}` of 1 GiB:\n"
        yield f"| GPUs | {' | '.join(FABRICS)} |"
        yield f"|---:|{'---|' * len(FABRICS)}"
        for gpus in GPUS:
            found = [cells.get(_key(gpus, fabric, collective), {}) for fabric in FABRICS]
            words = " | ".join(_words(gpus, collective, cell) for cell in found)
            yield f"| {gpus:,} | {words} |"
        growth = (_growth(cells, fabric, collective) for fabric in FABRICS)
        yield f"| time grows as | {' | '.join(growth)} |"


def _words(gpus: int, collective: str, cell: Cell) -> str:
    if "s" in cell:
        return f"{cell['s']:.1f} s, {cell['mb']:,.0f} MB, `{'` `'.join(cell['methods'])}`"
    rows = max(cell.get("rows", 0), least_rows_of_nccl(collective, gpus, "Ring"))
    memory = max(cell.get("bytes", 0), rows * BYTES_A_ROW_OF_NCCL if "bytes" not in cell else 0)
    why = cell.get("why", "not run")
    return f"{why}: in full about {rows:.2g} rows; needs up to {memory / 1e9:,.1f} GB"


def _growth(cells: dict[str, Cell], fabric: str, collective: str) -> str:
    """The power of GPUs by least squares in logarithms, of cells that take over a second."""
    known = ((gpus, cells.get(_key(gpus, fabric, collective), {})) for gpus in GPUS)
    points = [(math.log(n), math.log(cell["s"])) for n, cell in known if cell.get("s", 0) > 1]
    if len(points) < 2:
        return "–"
    x, y = (sum(column) / len(points) for column in zip(*points, strict=True))
    over = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return f"GPUs^{over:.1f}" if over > 0 else "–"  # a larger one folds that a smaller does not


if __name__ == "__main__":
    main()
