"""Golden texts of programs: schedules placed on machines and fabrics, with the links they cross."""

from collections.abc import Callable
from functools import partial

import numpy as np

from netsim.program.place import place
from netsim.program.program import Program
from netsim.scenario.cells import expand
from netsim.tasks.explained import shown_of
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.yamlio.read import parse_source
from tests.extent.cells import folded
from tests.golden.layout import MOST_LINES, path_text, row_text, traffic_lines

Writer = Callable[[], list[str]]
COLLNET = "}\nnccl: {env: {NCCL_COLLNET_ENABLE: 1}"
WIRES = ("nvlink", "xgmi", "c2c", "pcie", "upi", "hostmem", "nic", "fabric")

# Small questions: cluster, workload. `channels` limits NCCL's, so that a program is short.
SCENES: dict[str, tuple[str, str]] = {
    "dgx-h100-two-nodes-ring": (
        "machine: dgx-h100, nodes: 2, gpus_per_node: 2",
        "all_reduce, algorithm: ring, sizes: [4KiB]",
    ),
    "dgx-h100-two-nodes-nccl-tree": (
        "machine: dgx-h100, nodes: 2, gpus_per_node: 2",
        "all_reduce, algorithm: Tree, protocol: LL, sizes: [1KiB]",
    ),
    "dgx-h100-nvls": (
        "machine: dgx-h100, gpus_per_node: 2",
        "all_reduce, algorithm: NVLS, sizes: [1KiB]",
    ),
    "dgx-h100-two-nodes-alltoall": (
        "machine: dgx-h100, nodes: 2, gpus_per_node: 2",
        "alltoall, sizes: [4KiB]",
    ),
    "l40s-pcie-sockets-ring": (
        "machine: l40s-pcie-x8",
        "all_reduce, algorithm: Ring, protocol: LL, sizes: [64B]",
    ),
    "gb200-nvl72-sixteen-gpus": (
        "machine: gb200-nvl72, nodes: 4",
        "all_gather, algorithm: ring, sizes: [16KiB]",
    ),
    "leaf-spine-ecmp-ring": (
        "machine: dgx-a100, nodes: 4, gpus_per_node: 2, fabric: {kind: leaf-spine, "
        "nodes_per_leaf: 1, routing: ecmp}",
        "all_gather, algorithm: ring, sizes: [8KiB]",
    ),
    "leaf-spine-adaptive-alltoall": (
        "machine: dgx-a100, nodes: 4, gpus_per_node: 1, fabric: {kind: leaf-spine, "
        "nodes_per_leaf: 2, oversubscription: 2, routing: adaptive}",
        "alltoall, algorithm: pairwise, sizes: [16KiB]",
    ),
    "fat-tree-spray-ring": (
        "machine: dgx-h100, nodes: 4, gpus_per_node: 1, nics_per_node: 1, "
        "fabric: {kind: fat-tree, k: 4, routing: spray}",
        "reduce_scatter, algorithm: ring, sizes: [16KiB]",
    ),
    "dragonfly-ring": (
        "machine: gh200-x4, nodes: 3, gpus_per_node: 2, fabric: {kind: dragonfly, routers: 2, "
        "ports_per_router: 4, global_links: 6, transport: slingshot}",
        "all_gather, algorithm: ring, sizes: [16KiB]",
    ),
    "mi300x-mesh": ("machine: mi300x, gpus_per_node: 4", "all_reduce, sizes: [1KiB]"),
    "dgx-1-v100-broadcast": (
        "machine: dgx-1-v100",
        "broadcast, algorithm: Ring, protocol: LL, root: 2, sizes: [64B]",
    ),
    "in-network": (
        "machine: dgx-a100, nodes: 2, gpus_per_node: 2, fabric: {kind: rail-optimized, "
        "sharp: true}",
        "all_reduce, algorithm: CollNetDirect, sizes: [1KiB]" + COLLNET,
    ),
    "staged-pairs": (
        "machine: rtx4090-x8, gpus_per_node: 4",
        "p2p, pairs: [[0, 3], [1, 2]], sizes: [4KiB]",
    ),
}


def resolved(name: str) -> ResolvedCell:
    """Return the resolved cell of a scene."""
    cluster, work = SCENES[name]
    text = f"cluster: {{{cluster}}}\nworkload: {{collective: {work}}}\n"
    return resolve(expand(parse_source(text, "golden.yaml"))[0])


def placed(name: str) -> tuple[str, Program]:
    """Return what a scene runs, in words, and its program."""
    cell = resolved(name)
    (size,) = cell.cell.scenario.collective.size_list()
    plan = cell.planned(size)
    how = "textbook"
    if plan is not None:
        how = f"NCCL's {plan.algorithm} {plan.protocol}, {plan.n_channels} channels"
    shown = shown_of(cell, size)
    return how, place(shown.schedule, cell.topology, cell.gpus.tolist())


def program(name: str) -> list[str]:
    """Return the rows of a program with all that they draw on, then who shares each wire."""
    how, made = placed(name)
    cluster, work = SCENES[name]
    lines = [
        f"Program of {work.partition(chr(10))[0]} ({how})",
        f"on {cluster}",
        "Below each transfer the links that it crosses and the parts of GPUs that it uses; then",
        "the wires with the transfers that share them.",
        f"ranks: {' '.join(made.gpus)}",
        "",
    ]
    shared = traffic_lines(made, WIRES)
    room = (MOST_LINES - len(lines) - min(len(shared), 60) - 4) // 2
    rows = [row for row in range(len(made)) if int(made.path[row]) >= 0]
    for row in rows[:room]:
        lines += [row_text(made.schedule, row), f"      {path_text(made, row)}"]
    if len(rows) > room:
        lines.append(f"... {len(rows) - room} more of {len(rows)} transfers")
    lines += ["", "wires:", *shared[:60]]
    if len(shared) > 60:
        lines.append(f"... {len(shared) - 60} more of {len(shared)} wires")
    return lines


def folding(names: list[str]) -> list[str]:
    """Return which ranks stand for which in programs whose equal parts are simulated once."""
    lines = ["Equal ranks and channels are simulated once: representatives of each scene."]
    for name in names:
        cell = resolved(name)
        (size,) = cell.cell.scenario.collective.size_list()
        schedule = folded(cell, size).schedule()
        lines += ["", f"{name}: {len(schedule)} rows"]
        if schedule.fold is not None:
            for leader in schedule.fold.leaders.tolist():
                members = np.flatnonzero(schedule.fold.ranks.first == leader).tolist()
                lines.append(f"  r{leader} stands for {' '.join(f'r{rank}' for rank in members)}")
    return lines


WRITERS: dict[str, Writer] = {
    **{f"programs/{name}": partial(program, name) for name in SCENES},
    "programs/folding": partial(folding, list(SCENES)),
}
