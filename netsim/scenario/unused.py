"""Keys of a scenario that are written down and change nothing: each with the reason."""

from collections.abc import Callable, Iterator, Sequence

from netsim.scenario.cells import Cell
from netsim.scenario.clusters import node_count
from netsim.scenario.models import Scenario, Workload
from netsim.yamlio.source import KeyPath

ROOTED = ("broadcast", "reduce", "gather", "scatter")
NCCL_ALGORITHMS = (
    "auto", "Ring", "Tree", "NVLS", "NVLSTree", "CollNetDirect", "CollNetChain", "PAT",
)  # fmt: skip


def _one_host(scenario: Scenario) -> bool:
    return scenario.cluster.graph is None and node_count(scenario.cluster) == 1


def _textbook(scenario: Scenario) -> bool:
    if not isinstance(scenario.workload, Workload):
        return False
    work = scenario.workload
    return work.algorithm not in NCCL_ALGORITHMS and work.collective != "p2p"


# A key, when it is idle, and why.
RULES: tuple[tuple[KeyPath, Callable[[Scenario], bool], str], ...] = (
    (("workload", "root"), lambda s: s.collective.collective not in ROOTED,
     "only broadcast, reduce, gather and scatter have a root"),
    (("workload", "pairs"), lambda s: s.collective.collective not in ("p2p", "sendrecv"),
     "only p2p has pairs"),
    (("workload", "matrix"), lambda s: s.collective.collective != "alltoallv",
     "only alltoallv has a matrix"),
    (("workload", "parameters"), lambda s: not _textbook(s),
     "NCCL's algorithms take none; nccl.env sets its variables"),
    (("nccl",), _textbook, "a textbook algorithm does not ask NCCL"),
    (("cluster", "fabric"), _one_host, "there is one host"),
    (("cluster", "placement"), _one_host, "there is one host"),
    (("cluster", "nic"), _one_host, "there is one host"),
    (("cluster", "nics_per_node"), _one_host, "there is one host"),
)  # fmt: skip


def unused_keys(cells: Sequence[Cell]) -> Iterator[str]:
    """A warning for every key that is idle in all cells."""
    for path, idle, reason in RULES:
        if all(_written(cell, path) and idle(cell.scenario) for cell in cells):
            source = cells[0].source
            place = source.locate(path, key=True)
            where = ":".join(str(p) for p in (place.name, place.line, place.column) if p)
            yield f"{where}: {'.'.join(map(str, path))} changes nothing: {reason}"


def idle_axis(cells: Sequence[Cell], axis: str) -> str:
    """Why an axis changes nothing by the rules of keys; "" where they do not say."""
    key = tuple(axis.split("."))
    for path, idle, reason in RULES:
        if key[: len(path)] == path and all(idle(cell.scenario) for cell in cells):
            return reason
    return ""


def _written(cell: Cell, path: KeyPath) -> bool:
    value: object = cell.source.data
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True
