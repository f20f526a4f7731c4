"""python -m tests.bench.many_cells [CELLS]: the memory of a process that answers many cells.

Answers a sweep of 500 cells (50 clusters, five collectives, two versions of NCCL, two sizes each)
one after the other in one process, and prints the memory that the process holds after every 50:
what is remembered of clusters and tasks must stay bounded.
"""

import sys
from pathlib import Path

from netsim.scenario.cells import expand_all
from netsim.tasks.answer import answer, resolve_any
from netsim.yamlio.read import parse_source

SWEEP = """
name: many-cells
cluster: {machine: dgx-h100, nodes: 2}
workload: {collective: all_reduce, sizes: [64KiB, 16MiB]}
sweep:
  cluster.nodes: [2, 4, 6, 8, 10, 12, 16, 20, 24, 32]
  cluster.nic: [50Gbps, 100Gbps, 200Gbps, 400Gbps, 800Gbps]
  workload.collective: [all_reduce, all_gather, reduce_scatter, broadcast, alltoall]
  nccl.version: ["2.21", "2.27"]
"""


def held_megabytes() -> int:
    """The memory that this process holds now, in MB (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1000


def main(cell_count: int) -> None:
    """Answer the cells and print what the process holds."""
    cells = expand_all(parse_source(SWEEP, "many-cells.yaml")).cells[:cell_count]
    # Cells of one cluster after each other, as `netsim run` has them.
    for number, cell in enumerate(sorted(cells, key=lambda cell: cell.cluster), start=1):
        resolved = resolve_any(cell)
        for size in cell.scenario.workload.size_list():
            answer(resolved, size, engine="compiled")
        if number % 50 == 0 or number == len(cells):
            print(f"{number:4} cells  {held_megabytes():5} MB", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
