"""A Host: one class of equal hosts, with the routes inside it worked out once for all of them.

Routes are tables of local link numbers, padded with -1. Knows machines, but no cluster.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netsim.topology.affinity import nics_of_gpus
from netsim.topology.graph import Topology
from netsim.topology.host_graph import cpu_above, host_graph
from netsim.topology.layout import GPU_LINKS, LINK_KINDS, Layout, Sketch
from netsim.topology.machine import Machine
from netsim.topology.routing import StaticRouter, walk
from netsim.values import dataclass

Table = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of which `gpus` are used, in device order, and NICs with the numbers `rail`.

    Tables by GPU (and GPU or NIC) of links: `peer` the way between two GPUs, `staged` the way
    through the host's memory, `out` and `into` between GPU and NIC, `relay` the way to a NIC over
    NVLink and the GPU beside that NIC. `local` lists the NICs of a GPU, one a channel in turn;
    `egress` and `ingress` are the links of a GPU to NVSwitches (-1: none).
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
    """The routes of a machine with some of its GPUs and NICs; `dead` links have no capacity."""
    rails = tuple(range(machine.nics.count if machine.nics else 0) if nics is None else nics)
    graph = _part_in_use(machine, gpus, rails, dead)
    search = _Search(machine, graph, tuple(gpus), rails)
    out, into = search.to_nics()
    peer, staged = search.between_gpus()
    local = nics_of_gpus(search.topology.layout, out, tuple(gpus))
    return Host(
        machine,
        tuple(gpus),
        search.topology.layout,
        np.array(rails, np.int32),
        search.gpu_node,
        search.nic_node,
        peer,
        staged,
        out,
        into,
        search.relays(peer, out, local),
        local,
        search.switch_links(out=True),
        search.switch_links(out=False),
    )


def _part_in_use(
    machine: Machine, gpus: Sequence[int], nics: Sequence[int], dead: Sequence[str]
) -> Sketch:
    """The graph of a machine without the GPUs and NICs that nobody uses."""
    graph = host_graph(machine)
    every = range(machine.nics.count if machine.nics else 0)
    for number in set(range(machine.gpu.count)) - set(gpus):
        graph.remove(f"gpu{number}")
    for number in set(every) - set(nics):
        graph.remove(f"nic{number}")
    for link in dead:
        tail, _, head = link.partition("->")
        if (tail, head) in graph.edges:
            graph.edges[tail, head]["bandwidth"] = 0.0
    return graph


class _Search:
    """Cheapest paths in the graph of one host."""

    def __init__(
        self,
        machine: Machine,
        graph: Sketch,
        gpus: tuple[int, ...],
        rails: tuple[int, ...],
    ) -> None:
        self.machine = machine
        names = tuple(f"gpu{number}" for number in gpus)
        self.topology = Topology("host", graph, names, StaticRouter())
        number = self.topology.node_number
        self.gpu_node = self.topology.gpu_nodes
        self.nic_node = np.array([number[f"nic{k}"] for k in rails], np.int32)
        homes = [cpu_above(machine, machine.gpu_at(g)).replace("cpu", "mem") for g in gpus]
        self.memory = np.array([number[home] for home in homes], np.int32)

    def table(self, start: Table, end: Table) -> Table:
        """Links from every start to every end; nothing where both are the same."""
        pairs = [side.ravel() for side in np.meshgrid(start, end, indexing="ij")]
        hops = walk(self.topology, pairs[0].astype(np.int32), pairs[1].astype(np.int32))
        assert hops is not None  # a PCIe tree joins everything
        whole = np.full((len(pairs[0]), max(1, hops.shape[1])), -1, np.int32)
        whole[:, : hops.shape[1]] = hops
        return whole.reshape(len(start), len(end), whole.shape[1])

    def between_gpus(self) -> tuple[Table, Table]:
        """The usual way between GPUs, and the way through the receiver's memory."""
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
        return self._over_neighbours(wire, over_pcie), staged

    def _over_neighbours(self, wire: Table, over_pcie: NDArray[np.bool_]) -> Table:
        """Where two GPUs of a mesh are not neighbours, the widest way over a third (NCCL's NVB)."""
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
        """GPU to NIC and NIC to GPU; through the memory of the GPU's host without GPUDirect."""
        if not self.machine.nics or self.machine.nics.gpudirect:
            out, into = (
                self.table(self.gpu_node, self.nic_node),
                self.table(self.nic_node, self.gpu_node),
            )
            return out, into
        each = np.arange(len(self.gpu_node))
        up = self.table(self.gpu_node, self.memory)[each, each]
        down = self.table(self.memory, self.gpu_node)[each, each]
        nics = len(self.nic_node)
        out = joined(np.repeat(up[:, None], nics, 1), self.table(self.memory, self.nic_node))
        into = joined(
            self.table(self.nic_node, self.memory), np.broadcast_to(down, (nics, *down.shape))
        )
        return out, into

    def relays(self, peer: Table, out: Table, local: Table) -> Table:
        """To a NIC of another GPU: over NVLink to that GPU, and on from there (NCCL's PXN). Of the
        GPUs that use a NIC, it is that of the nearest: one whose own NIC is dead borrows from afar.
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
        """The link of every GPU to or from the NVSwitch; -1 without one."""
        number = self.topology.node_number.get("nvswitch0", -1)
        links = self.topology.links
        ends, others = (links.tail, links.head) if out else (links.head, links.tail)
        found = np.full(len(self.topology.nodes), -1, np.int32)
        mine = np.flatnonzero(others == number)
        found[ends[mine]] = mine
        return found[self.gpu_node]


def padded(*tables: Table) -> list[Table]:
    """The tables with as many columns as the widest of them."""
    width = max(table.shape[-1] for table in tables)
    return [_widened(table, width) for table in tables]


def _widened(table: Table, width: int) -> Table:
    missing = [(0, 0)] * (table.ndim - 1) + [(0, width - table.shape[-1])]
    return np.pad(table, missing, constant_values=-1)


def joined(first: Table, second: Table) -> Table:
    """Every path of `first` followed by that of `second`."""
    return np.concatenate([first, second], axis=-1)
