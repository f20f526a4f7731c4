"""The best path between any two GPUs, CPUs, NVSwitches and ports in NCCL's graph of a node.

NCCL: src/graph/paths.cc. At first it is the widest of the shortest paths. Then pairs of GPUs
without peer-to-peer access go through a CPU, a GPU may use the port of another GPU (PXN), and ports
without GPUDirect go through a CPU.
"""

from itertools import product
from typing import NamedTuple

from netsim.base.values import dataclass
from netsim.nccl.environment import NO_SETTINGS, Settings
from netsim.nccl.facts import PathType
from netsim.nccl.system import LOCAL, NodeKind, SystemGraph, cpu_vendor

ENDS: tuple[NodeKind, ...] = ("CPU", "GPU", "NET", "NVS")
LINK_PATH = {"LOC": "LOC", "NVL": "NVL", "C2C": "C2C", "PCI": "PIX", "SYS": "SYS", "NET": "LOC"}


class Path(NamedTuple):
    """One path.

    - `type`: the index of its type in the order of `Facts.path_types`.
    - `bandwidth`: the GB/s of its narrowest link.
    - `links`: its links in order.
    """

    type: int
    bandwidth: float
    links: tuple[int, ...]


Paths = dict[tuple[int, int], Path]


@dataclass(frozen=True)
class PathTable:
    """All paths of one system, by (from, to) node; pairs without a path are left out.

    `gpus` and `nets` are the nodes of the GPUs and ports.
    """

    graph: SystemGraph
    paths: Paths
    gpus: tuple[int, ...]
    nets: tuple[int, ...]
    # By port, the GPU beside it, or -1.
    gpu_of_net: tuple[int, ...] = ()

    def type_of(self, source: int, target: int) -> PathType:
        """Return the type of the path between two nodes; DIS if there is none."""
        path = self.paths.get((source, target))
        return self.graph.facts.path_types[path.type] if path else "DIS"


def path_table(graph: SystemGraph, settings: Settings = NO_SETTINGS) -> PathTable:
    """Return all paths of a system as NCCL uses them (ncclTopoComputePaths).

    `settings` are the user's, such as limits on peer-to-peer access and GPUDirect.
    """
    paths: Paths = {}
    for kind in ENDS:
        for node in graph.of_kind(kind):
            _paths_to(graph, node, paths, nvb=not settings.nvb_disabled)
    gpus = tuple(graph.of_kind("GPU"))
    nets = tuple(graph.of_kind("NET"))
    table = PathTable(graph, paths, gpus, nets)
    limit = graph.facts.rank(p2p_level(graph, settings))
    for target, source in product(gpus, gpus):  # without P2P through the receiver's CPU
        path = paths.get((source, target))
        if source != target and (path is None or path.type > limit):
            _via(table, local_cpu(table, target), source, target)
    _to_nets(table, settings)
    beside = tuple(local_gpu(table, net, settings) for net in nets)
    return PathTable(graph, paths, gpus, nets, beside)


def _paths_to(graph: SystemGraph, base: int, paths: Paths, *, nvb: bool) -> None:
    """Add the best paths from all nodes to the node `base` (NCCL: ncclTopoSetPaths).

    The search goes breadth first from `base`; a path that is found later must be shorter or wider
    to win. `nvb`: whether paths over NVLink may go through another GPU.
    """
    local, nvlink, through_gpu = (graph.facts.rank(name) for name in ("LOC", "NVL", "NVB"))
    paths[base, base] = Path(local, LOCAL, ())
    level = [base]
    while level:
        following: dict[int, None] = {}
        for node in level:
            onward = paths[node, base]
            for index in graph.links_out[node]:
                link = graph.links[index]
                peer = link.target
                if node != base and graph.nodes[node].kind == "GPU":
                    hop = link.kind == "NVL" and graph.nodes[peer].kind == "GPU"
                    if not (nvb and hop) or len(onward.links) > 1:
                        continue
                bandwidth = min(onward.bandwidth, link.bandwidth)
                old = paths.get((peer, base))
                if old and (len(old.links) <= len(onward.links) or old.bandwidth >= bandwidth):
                    continue
                kind = _hop_type(graph, index)
                if (
                    graph.nodes[node].kind == "GPU"
                    and onward.type == kind == nvlink
                    and onward.links
                ):
                    kind = through_gpu
                back = reverse_of(graph, index)
                if back >= 0:
                    links = (back, *onward.links)
                    paths[peer, base] = Path(max(onward.type, kind), bandwidth, links)
                    following[peer] = None
        level = list(following)


def _hop_type(graph: SystemGraph, index: int) -> int:
    """Return the index of the path type that one link has by itself."""
    link = graph.links[index]
    rank = graph.facts.rank
    ends = {graph.nodes[link.source].kind, graph.nodes[link.target].kind}
    if ends == {"PCI"}:
        return rank("PXB")
    if link.kind == "PCI" and "CPU" in ends:
        return rank("PHB")
    name = LINK_PATH[link.kind]
    return rank(name) if name in graph.facts.path_types else rank("NVL")


def reverse_of(graph: SystemGraph, index: int) -> int:
    """Return the link of the same kind in the other direction; -1 if there is none."""
    link = graph.links[index]
    out = ((one, graph.links[one]) for one in graph.links_out[link.target])
    return next((one for one, it in out if it.target == link.source and it.kind == link.kind), -1)


def _via(table: PathTable, middle: int, source: int, target: int, least_type: int = 0) -> None:
    """Replace the path from `source` to `target` by one through the node `middle`.

    Nothing changes if there is no path to or from `middle`. The type of the new path is
    `least_type`, or with 0 the worse one of both parts.
    """
    first = table.paths.get((source, middle))
    second = table.paths.get((middle, target))
    if first is None or second is None:
        return
    kind = least_type or max(first.type, second.type)
    bandwidth = min(first.bandwidth, second.bandwidth)
    table.paths[source, target] = Path(kind, bandwidth, first.links + second.links)


def local_cpu(table: PathTable, gpu: int) -> int:
    """Return the CPU with the fewest hops from a GPU (NCCL: ncclGetLocalCpu)."""
    cpus = [cpu for cpu in table.graph.of_kind("CPU") if (gpu, cpu) in table.paths]
    return min(cpus, key=lambda cpu: len(table.paths[gpu, cpu].links))


def p2p_level(graph: SystemGraph, settings: Settings) -> PathType:
    """Return the worst path type over which GPUs access each other's memory (ncclTopoCheckP2p)."""
    if settings.p2p_disabled:
        return "LOC"
    if settings.p2p_level is not None:
        return settings.p2p_level
    cpu = graph.first_cpu
    vendor = cpu_vendor(cpu)
    if graph.facts.p2p_narrow:
        few = len(graph.of_kind("GPU")) <= 2
        return "SYS" if cpu.arch == "x86_64" and vendor == "AMD" and few else "PXB"
    return "PXB" if cpu.arch == "arm64" or vendor in ("Intel", "Zhaoxin") else "SYS"


def _to_nets(table: PathTable, settings: Settings) -> None:
    """Adapt the paths between GPUs and ports: over chip-to-chip links, by PXN, or through a CPU."""
    for net in table.nets:
        beside = local_gpu(table, net, settings)
        for gpu in table.gpus:
            _over_chip_link(table, gpu, net)
            if not settings.pxn_disabled and beside not in (gpu, -1):
                _through_neighbour(table, gpu, net, beside, settings)
            if (gpu, net) not in table.paths:
                continue
            if not _within_gdr(table, gpu, net, beside, settings):
                cpu = local_cpu(table, gpu)
                _via(table, cpu, net, gpu)
                _via(table, cpu, gpu, net)


def _over_chip_link(table: PathTable, gpu: int, net: int) -> None:
    """Let a GPU reach a port of its own CPU over the chip-to-chip link to that CPU (type P2C)."""
    facts = table.graph.facts
    cpu = local_cpu(table, gpu)
    if "P2C" not in facts.path_types or table.type_of(gpu, cpu) != "C2C":
        return
    to_port = table.paths.get((cpu, net))
    if to_port is not None and to_port.type <= facts.rank("PHB"):
        _via(table, cpu, gpu, net, facts.rank("P2C"))
        _via(table, cpu, net, gpu, facts.rank("P2C"))


def _through_neighbour(
    table: PathTable, gpu: int, net: int, beside: int, settings: Settings
) -> None:
    """Let a GPU reach a port through another GPU (PXN) if that is wider or avoids a CPU.

    `beside` is that GPU: the one nearest to the port.
    """
    facts = table.graph.facts
    paths = table.paths
    near = paths[beside, net]
    across = paths.get((gpu, beside))
    direct = paths.get((gpu, net))
    pxn = facts.rank("PXN")
    c2c = "P2C" in facts.path_types and settings.gdr_c2c
    limit = facts.rank("P2C" if c2c else "PXB")
    same_host = table.graph.nodes[beside].host == table.graph.nodes[gpu].host
    if across is None or across.type > facts.rank("NVL") or not same_host or near.type > limit:
        return
    if not (table.graph.net(net).gdr and table.graph.gpu(beside).gdr):
        return
    if direct is None or near.bandwidth > direct.bandwidth or direct.type > pxn:
        _via(table, beside, gpu, net, pxn)


def _within_gdr(table: PathTable, gpu: int, net: int, beside: int, settings: Settings) -> bool:
    """Return whether a path between a GPU and a port is good enough for GPUDirect RDMA.

    `beside` is the GPU next to the port, which relays paths of PXN.
    """
    facts = table.graph.facts
    if not (table.graph.net(net).gdr and table.graph.gpu(gpu).gdr):
        return False
    c2c = "P2C" in facts.path_types and settings.gdr_c2c
    limit = facts.rank(settings.gdr_level or ("P2C" if c2c else "PXB"))
    distance = table.paths[gpu, net].type
    if distance == facts.rank("PXN"):
        distance = table.paths[beside, net].type
    return distance <= limit


def reaches_directly(table: PathTable, gpu: int, net: int, settings: Settings) -> bool:
    """Return whether a port reads and writes a GPU's memory itself: GPUDirect RDMA.

    NCCL: ncclTopoCheckGdr.
    """
    return _within_gdr(table, gpu, net, table.gpu_of_net[table.nets.index(net)], settings)


def nearest(table: PathTable, node: int, candidates: tuple[int, ...]) -> list[int]:
    """Return those of the candidates to which the path from `node` is best.

    The widest paths are best, and of these the ones with the best type.
    """
    paths = ((one, table.paths.get((node, one))) for one in candidates)
    scores = {one: (path.bandwidth, -path.type) for one, path in paths if path}
    best = max(scores.values(), default=None)
    return [one for one, score in scores.items() if score == best]


def ports_of(table: PathTable, gpu: int, settings: Settings) -> list[int]:
    """Return the ports that a GPU may choose for its channels, in the order of channels.

    Its channels use these ports in turn.
    """
    ports = nearest(table, gpu, table.nets)
    if not ports:
        return []
    sharers = nearest(table, ports[0], table.gpus)
    count = len(ports)
    start = table.graph.gpu(gpu).dev
    if count & (count - 1) == 0:  # the bits of its number in reverse order
        start = int(f"{start % count:0{count.bit_length() - 1}b}"[::-1], 2)
    most = {"ALL": count, "MAX": max(1, min(settings.nics_at_most, count))}
    used = most.get(settings.nics_policy, -(-count // max(1, len(sharers))))
    return [ports[(start + turn) % count] for turn in range(used)]


def local_gpu(table: PathTable, net: int, settings: Settings) -> int:
    """Return the nearest GPU that uses a port on the earliest channel; -1 if none does."""
    near = [(gpu, ports_of(table, gpu, settings)) for gpu in nearest(table, net, table.gpus)]
    for channel in range(max((len(ports) for _, ports in near), default=0)):
        for gpu, ports in near:
            if ports and ports[channel % len(ports)] == net:
                return gpu
    return -1
