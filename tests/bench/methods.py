"""python -m tests.bench.methods [--case NAME…] [--without METHOD…] [--limit S]: what methods earn.

Every case runs as a process of its own with all methods, and once without each of some (all, unless
they are named): seconds of its processor time, memory, and by how much the answer differs. A method
without which nothing takes twice as long, and everything still runs, is to be deleted.
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from netsim.extent.budget import USUAL_BUDGET
from netsim.extent.solve import METHODS
from netsim.measured import accuracy
from netsim.measured.compare import answer
from netsim.measured.index import read_index
from netsim.scenario.cells import expand
from netsim.tasks.outcome import simulate_one
from netsim.tasks.resolve import resolve
from netsim.training.resolve import resolve_step
from netsim.training.run import simulate_step
from netsim.yamlio.read import parse_source

ALL = "none"  # of the methods is left out
INDEX = Path("scenarios/measured/index.yaml")
SIZES = "{from: 8B, to: 8GiB, factor: 2}"
DRAGONFLY = "cluster: {machine: a100-x4, nodes: %d, fabric: {kind: dragonfly}}\n"
ALL_REDUCE = "workload: {collective: all_reduce, sizes: %s}\n"
LEAVES = "leaf-spine, oversubscription: 2, transport: roce"
RAILS = "cluster: {machine: dgx-h100, nodes: %d, fabric: {kind: rail-optimized}}\n"
CELLS = {
    "dragonfly-128": DRAGONFLY % 128 + ALL_REDUCE % SIZES,
    "dragonfly-540": DRAGONFLY % 540 + ALL_REDUCE % SIZES,
    "ring-dragonfly-540": DRAGONFLY % 540 + ALL_REDUCE % "[4GiB]",
    "tree-dragonfly-128": (DRAGONFLY % 128).replace("a100-x4", "gh200-x4")
    + ALL_REDUCE % "[64MiB, 256MiB]",
    "tree-odd-nic": (RAILS % 64).replace("}}", "}, faults: [{nic: node8.nic3}]}")
    + ALL_REDUCE % "[8MiB, 16MiB]",
    "broadcast-16": RAILS % 16 + "workload: {collective: broadcast, sizes: [64KiB, 1MiB, 2GiB]}",
    "sendrecv-16": RAILS % 16 + "workload: {collective: sendrecv, sizes: [512MiB, 8GiB]}",
    "nvlstree-128": RAILS % 128 + ALL_REDUCE % "[1GiB, 8GiB]",
    "nvlstree-leaves-128": (RAILS % 128).replace("rail-optimized", LEAVES)
    + ALL_REDUCE % "[1GiB, 2GiB]",
    "ring-rails-8192": RAILS % 1024
    + "workload: {collective: all_reduce, algorithm: ring, sizes: [1GiB]}",
    "alltoall-131072": RAILS % 16384
    + "workload: {collective: alltoall, algorithm: hierarchical, sizes: [128GiB], timing: single}",
}
STEPS = {
    "405b-8192": RAILS % 1024 + "workload: {model: llama3-405b, batch: 2048, parallelism: {tp: 8, "
    "pp: 16, dp: 64, data: distributed-optimizer, sequence_parallel: true}, pipeline: {stages: "
    f"{[8] * 14 + [7] * 2}}}, recompute: full}}\n",
    "moe-2048": (RAILS % 256).replace("dgx-h100", "hgx-h200")
    + "workload: {model: qwen3-235b-a22b, batch: 4096, recompute: full, allow_oom: true, "
    "parallelism: {ep: 128, dp: 2048, data: distributed-optimizer}}\n",
}
INDEXED = "index-slowest"  # the ten runs of the index with most to simulate
SLOWEST = 10


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.methods", description=__doc__)
    cases = [*CELLS, *STEPS, INDEXED]
    parser.add_argument("--case", nargs="+", default=cases, choices=cases, metavar="NAME")
    names = [method.__name__ for method in METHODS]
    parser.add_argument(
        "--without", nargs="+", default=names, choices=[*names, ALL], metavar="METHOD"
    )
    parser.add_argument(
        "--limit", type=float, default=120.0, metavar="S", help="a process, at most"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(_here(given.one, given.without[0])))
        return
    print(f"{'case':<18}{'without':<18}{'s':>8}{'times':>8}{'MB':>8}{'differs':>10}")
    for case in given.case:
        usual = _measured(case, "", given.limit)
        print(_line(case, "", usual, usual), flush=True)
        for method in given.without:
            print(_line(case, method, _measured(case, method, given.limit), usual), flush=True)


def _measured(case: str, method: str, limit: float) -> dict[str, object]:
    """A process of its own; its figures, or why there are none."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.methods",
        "--one",
        case,
        "--without",
        method or ALL,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"why": f"over {limit:.0f} s"}
    if done.returncode:
        return {"why": (done.stderr.strip().splitlines() or ["ended"])[-1][-60:]}
    found: dict[str, object] = json.loads(done.stdout)
    return found


def _here(case: str, without: str) -> dict[str, object]:
    """What a case takes in this process, less one method."""
    off = frozenset({without} - {ALL})
    object.__setattr__(USUAL_BUDGET, "excluded", off)  # for all who ask in this process
    seconds = list(_seconds(case))
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = used.ru_maxrss * 1024 / 1e6
    return {"s": used.ru_utime + used.ru_stime, "mb": peak, "seconds": seconds}


def _seconds(case: str) -> Iterator[float]:
    """The answers of a case."""
    if case == INDEXED:
        parts = [part for entry in read_index(INDEX) for part in accuracy._parts(entry, {})]
        for part in sorted(parts, key=accuracy._work)[-SLOWEST:]:
            yield from (point.simulated_us for point in answer(part).points)
        return
    cell = expand(parse_source(CELLS.get(case) or STEPS[case], f"{case}.yaml"))[0]
    if case in STEPS:
        yield simulate_step(resolve_step(cell)).seconds
        return
    resolved = resolve(cell)
    for size in cell.scenario.collective.size_list():
        yield simulate_one(resolved, size, engine="compiled").seconds


def _line(case: str, method: str, found: dict[str, Any], usual: dict[str, Any]) -> str:
    """A line of the table: times as long as with all methods, and how far answers differ."""
    if "s" not in found:
        return f"{case:<18}{method:<18}  {found['why']}"
    times, off = 1.0, 0.0
    if "s" in usual:
        times = found["s"] / usual["s"]
        off = max(abs(a / b - 1) for a, b in zip(found["seconds"], usual["seconds"], strict=True))
    return f"{case:<18}{method:<18}{found['s']:>8.1f}{times:>8.2f}{found['mb']:>8.0f}{off:>10.1e}"


if __name__ == "__main__":
    main()
