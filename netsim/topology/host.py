"""The inside of a host: its graph, its routes, and the NICs that each GPU uses.

Nodes are GPUs, one `nvswitch0` for all NVSwitch chips, PCIe switches, CPUs (one per NUMA domain),
their memories, and NICs. A GPU's egress and ingress are its link to `nvswitch0` and the link back.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from netsim.base.constants import value
from netsim.base.values import dataclass
from netsim.topology.graph import (
    GPU_LINKS,
    LINK_KINDS,
    NODE_KINDS,
    Floats,
    GraphSketch,
    Ints,
    Layout,
    Topology,
)
from netsim.topology.machine import LinkKind, Machine, ScaleUp, node_of
from netsim.topology.routing import StaticRouter, cheapest_paths

# Seconds to cross a link of each kind, including forwarding in the node at its end, but without
# costs of protocol and driver. The key `latencies` of a machine replaces them.
DIRECT_NVLINK = value("wire.nvlink_direct")
LATENCY: dict[LinkKind, float] = {kind: value(f"wire.{kind}") for kind in get_args(LinkKind)}


def host_graph(machine: Machine) -> GraphSketch:
    """Return the graph of one host; nodes have a kind, edges bandwidth, latency, kind and
    duplex.
    """
    graph = GraphSketch()
    for number in range(machine.gpu.count):
        graph.node(f"gpu{number}", kind="gpu", forwards=False)
    if machine.scale_up is not None and machine.scale_up.switches is not None:
        graph.node("nvswitch0", kind="nvswitch", reduces=machine.scale_up.multicast)
    for number in range(len(machine.pcie.switches)):
        graph.node(f"pcie{number}", kind="pcie")
    for number in range(machine.cpu.domains):
        graph.node(f"cpu{number}", kind="cpu")
        graph.node(f"mem{number}", kind="memory", forwards=False)
    for number in range(machine.nics.count if machine.nics else 0):
        graph.node(f"nic{number}", kind="nic", forwards=False)
    for a, b, kind, bandwidth in _pcie_and_nvlink_edges(machine):
        latencies = {**LATENCY, **machine.latencies}
        if a.startswith("gpu") and b.startswith("gpu"):
            latencies["nvlink"] = machine.latencies.get("nvlink", DIRECT_NVLINK)
        for tail, head in permutations((a, b)):
            graph.edge(
                tail,
                head,
                kind=kind,
                bandwidth=bandwidth,
                latency=latencies[kind] + (latencies["nic"] if head.startswith("nic") else 0.0),
                duplex="half" if kind == "hostmem" else "full",
            )
    return graph


def _pcie_and_nvlink_edges(machine: Machine) -> Iterator[tuple[str, str, LinkKind, float]]:
    """Yield each pair of neighbors once, as (node, node, kind of link, bytes/s in each
    direction).
    """
    if machine.scale_up is not None and machine.scale_up.fitted:
        yield from _scale_up(machine.scale_up, machine.gpu.count)
    for number, parent in enumerate(machine.switches_at):
        yield f"pcie{number}", parent, "pcie", machine.pcie.uplink(number).usable
    for number in range(machine.gpu.count):
        place = node_of(machine.gpu_at(number))
        link = machine.link_of(machine.gpu, number)
        if machine.c2c is None or place.startswith("pcie"):
            yield f"gpu{number}", place, "pcie", link.usable
        if machine.c2c is not None:
            yield f"gpu{number}", cpu_above(machine, place), "c2c", machine.c2c.bandwidth
    if machine.nics is not None:
        for number in range(machine.nics.count):
            usable = machine.link_of(machine.nics, number).usable
            yield f"nic{number}", node_of(machine.nic_at(number)), "pcie", usable
    for number in range(machine.cpu.domains):
        yield f"cpu{number}", f"mem{number}", "hostmem", machine.cpu.memory_bandwidth
    for a, b in combinations(range(machine.cpu.domains), 2):
        yield f"cpu{a}", f"cpu{b}", "upi", machine.cpu.link or 0.0


def _scale_up(scale_up: ScaleUp, gpus: int) -> Iterator[tuple[str, str, LinkKind, float]]:
    """Yield the NVLinks or xGMI links of a host with `gpus` GPUs, as (node, node, kind, bytes/s in
    each direction).

    All links between two GPUs, or from a GPU to the switch, are one edge. A GPU without links to
    the switch has no edge to it.
    """
    rate = scale_up.link_bandwidth
    if scale_up.switches is not None:
        for gpu in range(gpus):
            if links := scale_up.switch_links(gpu):
                yield f"gpu{gpu}", "nvswitch0", scale_up.kind, links * rate
        return
    for a, b, count in scale_up.pairs(gpus):
        yield f"gpu{a}", f"gpu{b}", scale_up.kind, count * rate


def cpu_above(machine: Machine, place: str) -> str:
    """Return the CPU, such as `cpu0`, above a place of the PCIe tree such as `pcie3`."""
    return node_of(_above(machine, place)[-1])


PATH_TYPES = ("NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PHB", "SYS")


def path_types(layout: Layout, hops: Ints) -> NDArray[np.int8]:
    """Return NCCL's type of each path, as an index of PATH_TYPES (in NCCL's order of preference).

    `hops` are the links of each path along the last axis, padded with -1.
    """
    used = hops >= 0
    links = layout.links
    kind = np.where(used, links.kind[hops], -1)
    enters = np.where(used, layout.kinds[links.head[hops]], -1)
    crossed = {name: (kind == LINK_KINDS.index(name)).any(-1) for name in ("upi", "c2c", "pcie")}
    cpus = (enters == NODE_KINDS.index("cpu")).any(-1)
    switches = (enters == NODE_KINDS.index("pcie")).sum(-1)
    gpus = (enters == NODE_KINDS.index("gpu")).sum(-1)
    nvlink = ~crossed["pcie"] & ~crossed["c2c"]
    cases = [
        (crossed["upi"], "SYS"), (crossed["c2c"] & crossed["pcie"], "P2C"), (crossed["c2c"], "C2C"),
        (nvlink & (gpus > 1), "NVB"), (nvlink, "NVL"), (cpus, "PHB"), (switches > 1, "PXB"),
    ]  # fmt: skip
    result = np.full(hops.shape[:-1], PATH_TYPES.index("PIX"), np.int8)
    for holds, name in reversed(cases):
        result[holds] = PATH_TYPES.index(name)
    return result


def nics_of_gpus(layout: Layout, out: Ints, devices: tuple[int, ...]) -> Ints:
    """Return the NICs of each GPU (a row), which its channels use in turn.

    As in NCCL 2.30 (src/graph/topo.cc, ncclTopoGetLocalNet): a GPU has k nearest NICs, the first of
    which is nearest to m GPUs. The GPU uses ceil(k/m) of them, starting with number `device`,
    bit-reversed if k is a power of two. So GPUs whose own NIC is dead are spread over all that
    remain.

    Args:
        layout: nodes and links of the host.
        out: links from every GPU to every NIC (axes: GPU, NIC, hop), padded with -1.
        devices: number of each GPU in the machine (its CUDA device).
    """
    gpus, nics = out.shape[:2]
    if not nics:
        return np.zeros((gpus, 0), np.int32)
    width = np.where(out >= 0, layout.links.bandwidth[out], np.inf).min(axis=2)
    kind = path_types(layout, out)
    near = [_best(width[gpu], kind[gpu]) for gpu in range(gpus)]
    rows = []
    for gpu, nearest in enumerate(near):
        sharing = len(_best(width[:, nearest[0]], kind[:, nearest[0]]))
        start = _mirrored(devices[gpu], len(nearest))
        nics_per_gpu = -(-len(nearest) // sharing)
        rows.append([nearest[(start + turn) % len(nearest)] for turn in range(nics_per_gpu)])
    longest = max(len(row) for row in rows)
    return np.array([[row[i % len(row)] for i in range(longest)] for row in rows], np.int32)


def _best(width: Floats, kind: NDArray[np.int8]) -> tuple[int, ...]:
    """Return the NICs with the best path: the widest ones (bytes/s), and among these the best type
    (the lowest index of PATH_TYPES).
    """
    widest = width == width.max()
    return tuple(np.flatnonzero(widest & (kind == kind[widest].min())).tolist())


def _mirrored(value: int, count: int) -> int:
    """Return `value` with its bits reversed if `count` is a power of two (as a number below
    `count`); else `value`. With count 8, 1 becomes 4.
    """
    bits = count.bit_length() - 1
    if count != 1 << bits:
        return value
    return sum(1 << (bits - 1 - bit) for bit in range(bits) if value >> bit & 1)


Table = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Host:
    """A class of equal hosts: a machine with the GPUs that are used, and its routes as tables of
    links.

    Tables are indexed by [GPU, GPU or NIC, hop] (`local` by [GPU, number]), hold link numbers of
    `layout`, and are padded with -1.

    Args:
        machine: the machine.
        gpus: numbers of its GPUs that are used, in device order.
        layout: nodes and links.
        rail: number in the machine of every NIC.
        gpu_node: node of every GPU.
        nic_node: node of every NIC.
        peer: route between two GPUs.
        staged: route between two GPUs through the host's memory.
        out: route from GPU to NIC.
        into: route from NIC to GPU (indexed by NIC, then GPU).
        relay: route from GPU to NIC over NVLink and the GPU beside that NIC.
        local: NICs of a GPU, which its channels use in turn.
        egress: link of a GPU to the NVSwitches, or -1.
        ingress: link to a GPU from the NVSwitches, or -1.
    """

    machine: Machine
    gpus: tuple[int, ...]
    layout: Layout
    rail: Table
    gpu_node: Table
    nic_node: Table
    peer: Table
    staged: Table
    out: Table
    into: Table
    relay: Table
    local: Table
    egress: Table
    ingress: Table

    @property
    def nics(self) -> int:
        """The number of NICs."""
        return len(self.nic_node)


def make_host(
    machine: Machine,
    gpus: Sequence[int],
    dead: Sequence[str] = (),
    nics: Sequence[int] | None = None,
) -> Host:
    """Compute the routes of a host.

    Args:
        machine: the machine.
        gpus: numbers of the GPUs that are used.
        dead: links without capacity, such as `gpu0->pcie0`.
        nics: numbers of the NICs that the host has; None: all of the machine.
    """
    every = range(machine.nics.count if machine.nics else 0)
    rails = tuple(every if nics is None else nics)
    graph = host_graph(machine)
    for number in set(range(machine.gpu.count)) - set(gpus):
        graph.remove(f"gpu{number}")
    for number in set(every) - set(rails):
        graph.remove(f"nic{number}")
    for link in dead:
        tail, _, head = link.partition("->")
        if (tail, head) in graph.edges:
            graph.edges[tail, head]["bandwidth"] = 0.0
    search = _Search(machine, graph, tuple(gpus), rails)
    out, into = search.to_nics()
    peer, staged = search.between_gpus()
    local = nics_of_gpus(search.topology.layout, out, tuple(gpus))
    relays = search.relays(peer, out, local)
    numbers = np.array(rails, np.int32)
    return Host(
        machine,
        tuple(gpus),
        search.topology.layout,
        numbers,
        search.gpu_node,
        search.nic_node,
        peer,
        staged,
        out,
        into,
        relays,
        local,
        search.switch_links(out=True),
        search.switch_links(out=False),
    )


class _Search:
    """Finds the cheapest paths in the graph of one host. `rails` are the numbers of its NICs."""

    def __init__(
        self, machine: Machine, graph: GraphSketch, gpus: tuple[int, ...], rails: tuple[int, ...]
    ) -> None:
        self.machine = machine
        names = tuple(f"gpu{number}" for number in gpus)
        self.topology = Topology("host", graph, names, StaticRouter())
        number = self.topology.node_number
        self.gpu_node = self.topology.gpu_nodes
        self.nic_node = np.array([number[f"nic{k}"] for k in rails], np.int32)
        memories = [cpu_above(machine, machine.gpu_at(g)).replace("cpu", "mem") for g in gpus]
        self.memory = np.array([number[memory] for memory in memories], np.int32)

    def table(self, start: Table, end: Table) -> Table:
        """Return the links from every node of `start` to every node of `end` (axes: start, end,
        hop); -1 only, if both are the same node.
        """
        pairs = [side.ravel() for side in np.meshgrid(start, end, indexing="ij")]
        hops = cheapest_paths(self.topology, pairs[0].astype(np.int32), pairs[1].astype(np.int32))
        assert hops is not None  # a PCIe tree joins everything
        table = np.full((len(pairs[0]), max(1, hops.shape[1])), -1, np.int32)
        table[:, : hops.shape[1]] = hops
        return table.reshape(len(start), len(end), table.shape[1])

    def between_gpus(self) -> tuple[Table, Table]:
        """Return two tables of routes between GPUs: the usual ones, and those through the host
        memory of the receiver.
        """
        count = len(self.gpu_node)
        wire = self.table(self.gpu_node, self.gpu_node)
        up = self.table(self.gpu_node, self.memory)
        down = self.table(self.memory, self.gpu_node)[np.arange(count), np.arange(count)]
        staged = joined(up, np.broadcast_to(down, (count, *down.shape)))
        staged[np.arange(count), np.arange(count)] = -1
        kinds = self.topology.links.kind
        over_pcie = ((wire >= 0) & (kinds[wire] == LINK_KINDS.index("pcie"))).any(axis=2)
        if not self.machine.p2p:
            wire, staged = padded(wire, staged)
            wire = np.where(over_pcie[:, :, None], staged, wire)
        return self._over_neighbors(wire, over_pcie), staged

    def _over_neighbors(self, wire: Table, over_pcie: NDArray[np.bool_]) -> Table:
        """In a host whose GPUs are linked in pairs, replace PCIe routes by the widest NVLink route
        over a third GPU (NCCL's NVB).

        `wire` is the table of routes between GPUs, `over_pcie` a mask of the pairs that use PCIe.
        """
        scale_up = self.machine.scale_up
        if scale_up is None or not scale_up.peers or scale_up.kind != "nvlink":
            return wire
        first = np.where(over_pcie, -1, wire[:, :, 0])
        rate = np.where(first >= 0, self.topology.links.bandwidth[first], 0.0)
        wire = padded(wire, np.zeros((1, 1, 2), np.int32))[0]
        for a, b in np.argwhere(over_pcie):
            width = np.minimum(rate[a], rate[:, b])
            if width.max() > 0:
                via = int(width.argmax())
                wire[a, b] = -1
                wire[a, b, :2] = first[a, via], first[via, b]
        return wire

    def to_nics(self) -> tuple[Table, Table]:
        """Return the tables of routes from GPU to NIC and from NIC to GPU; without GPUDirect they
        pass through the host's memory.
        """
        if not self.machine.nics or self.machine.nics.gpudirect:
            out = self.table(self.gpu_node, self.nic_node)
            return out, self.table(self.nic_node, self.gpu_node)
        gpus = np.arange(len(self.gpu_node))
        up = self.table(self.gpu_node, self.memory)[gpus, gpus]
        down = self.table(self.memory, self.gpu_node)[gpus, gpus]
        nics = len(self.nic_node)
        out = joined(np.repeat(up[:, None], nics, 1), self.table(self.memory, self.nic_node))
        into = joined(
            self.table(self.nic_node, self.memory), np.broadcast_to(down, (nics, *down.shape))
        )
        return out, into

    def relays(self, peer: Table, out: Table, local: Table) -> Table:
        """Return the routes from each GPU to each NIC over NVLink and the GPU beside the NIC
        (NCCL's PXN).

        If several GPUs use a NIC, the one with the fewest hops to it is the relay: a GPU whose own
        NIC is dead uses a distant one. Where no relay is possible or needed, the route is the
        direct one of `out`.
        """
        count, nics = out.shape[:2]
        uses = np.zeros((count, nics), bool)
        for gpu in range(count):
            uses[gpu, local[gpu]] = True
        hops = (out >= 0).sum(axis=2)
        least = np.where(uses, hops, np.iinfo(hops.dtype).max)
        owner = np.where(uses.any(axis=0), least.argmin(axis=0), -1)
        links = self.topology.links
        near = (peer[:, :, 0] >= 0) & np.isin(links.kind[peer[:, :, 0]], GPU_LINKS)
        usable = (owner >= 0) & near[:, owner]
        usable &= ~(uses & (hops <= hops[owner, np.arange(nics)]))
        onward = out[owner, np.arange(nics)][None].repeat(count, 0)
        relayed, direct = padded(joined(peer[:, owner], onward), out)
        return np.where(usable[:, :, None], relayed, direct)

    def switch_links(self, *, out: bool) -> Table:
        """Return each GPU's link to the NVSwitch (`out`) or from it; -1 without one."""
        number = self.topology.node_number.get("nvswitch0", -1)
        links = self.topology.links
        ends, others = (links.tail, links.head) if out else (links.head, links.tail)
        link_of_node = np.full(len(self.topology.nodes), -1, np.int32)
        members = np.flatnonzero(others == number)
        link_of_node[ends[members]] = members
        return link_of_node[self.gpu_node]


def padded(*tables: Table) -> list[Table]:
    """Return the tables with equal lengths of their last axis (hops), padded with -1."""
    width = max(table.shape[-1] for table in tables)
    return [widened(table, width) for table in tables]


def widened(table: Table, width: int) -> Table:
    """Return the table with its last axis (hops) extended to `width` by -1."""
    missing = [(0, 0)] * (table.ndim - 1) + [(0, width - table.shape[-1])]
    return np.pad(table, missing, constant_values=-1)


def joined(first: Table, second: Table) -> Table:
    """Return a table with each path of `first` followed by that of `second`."""
    return np.concatenate([first, second], axis=-1)


# How the devices of a host are connected, in the terms of `nvidia-smi topo -m` and NCCL: NV# (that
# number of NVLinks), XGMI, PIX (one PCIe switch), PXB (several switches), PHB (a host bridge of the
# CPU), NODE (host bridges of one NUMA domain), SYS (between NUMA domains).


@dataclass(frozen=True, slots=True)
class Relations:
    """How every two devices of a host are connected.

    Args:
        devices: names such as `GPU0` and `NIC0`.
        cells: a row and a column for each device: `NV4`, `PIX`, `SYS` and so on.
        affinity: the CPU of each device.
    """

    devices: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    affinity: tuple[str, ...]


def relations(host: Host) -> Relations:
    """Return the matrix of a host as `nvidia-smi topo -m` shows it: GPUs in device order, then
    NICs.
    """
    machine = host.machine
    gpus = [(f"GPU{gpu}", machine.gpu_at(gpu)) for gpu in host.gpus]
    nics = [(f"NIC{nic}", machine.nic_at(nic)) for nic in host.rail.tolist()]
    devices = gpus + nics
    links = _links(machine)
    cells = tuple(
        tuple(
            "X" if a == b else links.get(frozenset((a[0], b[0]))) or relation(machine, a[1], b[1])
            for b in devices
        )
        for a in devices
    )
    affinity = tuple(cpu_above(machine, place) for _, place in devices)
    return Relations(tuple(name for name, _ in devices), cells, affinity)


def relation(machine: Machine, first: str, second: str) -> str:
    """Return how two places of the PCIe tree are connected, in nvidia-smi's terms: PIX, PXB, PHB,
    NODE or SYS.
    """
    up = _above(machine, first)
    down = _above(machine, second)
    shared = next((place for place in up if place in down), "")
    if not shared.startswith("pcie"):
        bridge = "PHB" if "." in shared else "NODE"
        return bridge if node_of(up[-1]) == node_of(down[-1]) else "SYS"
    switches = len({*up[: up.index(shared) + 1], *down[: down.index(shared) + 1]})
    return "PIX" if switches == 1 and not machine.pcie.bridged else "PXB"


def _above(machine: Machine, place: str) -> list[str]:
    """Return a place of the PCIe tree and all places above it, up to a CPU."""
    places = [place]
    while place.startswith("pcie"):
        place = machine.pcie.switches[int(place.removeprefix("pcie"))]
        places.append(place)
    return places


def _links(machine: Machine) -> dict[frozenset[str], str]:
    """Return how GPUs are connected by NVLink or xGMI, such as `NV4`, by the names of both."""
    scale_up = machine.scale_up
    if scale_up is None or not scale_up.fitted:
        return {}
    word = "NV" if scale_up.kind == "nvlink" else "XGMI"
    pairs = scale_up.pairs(machine.gpu.count)
    return {frozenset((f"GPU{a}", f"GPU{b}")): f"{word}{n}" for a, b, n in pairs}
