"""NCCL's view of one node, and of a communicator over many equal nodes, from a topology file.

It runs the searches of NCCL's initialization in their order (src/init.cc, initTransportsRank). All
nodes are equal, so the work does not depend on their number.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from netsim.base.values import dataclass
from netsim.nccl.communicator import (
    BALANCED_TREE,
    COLLNET_DIRECT,
    NVLS,
    RING,
    TREE,
    Channel,
    ChannelGraph,
    Communicator,
)
from netsim.nccl.connect import executed_channels, limited_channels
from netsim.nccl.environment import NO_SETTINGS, Settings
from netsim.nccl.facts import NEWEST, Facts, Version, facts_of
from netsim.nccl.paths import PathTable, path_table
from netsim.nccl.search import Arena, Request, search
from netsim.nccl.system import cpu_vendor, system_graph
from netsim.topology.foreign.nccl_xml import XmlSystem

GivenGraphs = Callable[[PathTable, Facts], Mapping[int, ChannelGraph]]


@dataclass(frozen=True, eq=False)
class NodeView:
    """One node as NCCL sees it: the paths between its devices, and the graphs of all searches.

    `nvls`, `collnet_chain` and `collnet_direct` are None if there was no such search.
    """

    table: PathTable
    ring: ChannelGraph
    tree: ChannelGraph
    nvls: ChannelGraph | None = None
    collnet_chain: ChannelGraph | None = None
    collnet_direct: ChannelGraph | None = None

    @property
    def local_ranks(self) -> int:
        """The number of GPUs of the node that belong to the communicator."""
        return len(self.table.gpus)


def search_node(
    system: XmlSystem,
    *,
    networked: bool,
    version: Version = NEWEST,
    settings: Settings = NO_SETTINGS,
    devices: Collection[int] | None = None,
    graphs_of_file: GivenGraphs | None = None,
) -> NodeView:
    """Return NCCL's view of a node: the result of all searches of its initialization.

    - `networked`: whether the node is one of several, so that channels use its ports.
    - `devices`: the CUDA devices in use; None: all.
    - `graphs_of_file`: a function that returns by id graphs that the user states in place of
      searches.
    """
    facts = facts_of(version)
    graph = system_graph(system, facts, networked=networked, devices=devices)
    arena = Arena(path_table(graph, settings), settings)
    file_graphs = graphs_of_file(arena.table, facts) if graphs_of_file else {}
    ring = file_graphs.get(0) or search(arena, Request(RING, 1, facts.search_channels), settings)
    if not networked and 0 not in file_graphs:
        ring = over_all_links(system, ring)
    count = ring.n_channels
    tree = file_graphs.get(1) or search(arena, Request(BALANCED_TREE, count, count), settings)
    nvls = chain = direct = None
    if settings.collnet and networked:
        chain = file_graphs.get(2) or search(
            arena, Request(TREE, count, count, collnet=True), settings
        )
        wish = Request(COLLNET_DIRECT, 1, facts.max_channels, collnet=True)
        direct = file_graphs.get(4) or search(arena, wish, settings)
    # NVSwitches reduce and multicast from Hopper on.
    multicast = arena.switches and arena.min_cc >= 90 and len(arena.gpus) > 1
    if "NVLS" in facts.algorithms and settings.nvls and multicast:
        nvls = file_graphs.get(3) or search(arena, Request(NVLS, 1, facts.max_channels), settings)
    return NodeView(arena.table, ring, tree, nvls, chain, direct)


def communicator(
    node: NodeView,
    n_nodes: int = 1,
    *,
    version: Version = NEWEST,
    settings: Settings = NO_SETTINGS,
    network_collectives: bool = False,
) -> Communicator:
    """Return the communicator over `n_nodes` nodes that are equal to `node`."""
    graph = node.table.graph
    facts = facts_of(version)
    heads = node.nvls or node.collnet_direct
    capabilities = [graph.gpu(gpu).sm for gpu in node.table.gpus]
    vendors = {cpu_vendor(graph.cpu(cpu)) for cpu in graph.of_kind("CPU")}
    channels = executed_channels(
        node.ring,
        node.tree,
        n_nodes=n_nodes,
        local_ranks=node.local_ranks,
        min_cc=min(capabilities),
        facts=facts,
        settings=settings,
        collnet=node.collnet_chain,
    )
    return Communicator(
        n_ranks=n_nodes * node.local_ranks,
        n_nodes=n_nodes,
        ring=node.ring,
        tree=node.tree,
        n_channels=channels,
        min_cc=min(capabilities),
        max_cc=max(capabilities),
        cpu_arch=graph.first_cpu.arch,
        cpu_vendor=vendors.pop() if len(vendors) == 1 else "mixed",
        nvls=node.nvls,
        collnet_direct=node.collnet_direct,
        collnet_chain=node.collnet_chain,
        nvls_channels=nvls_channels(min(capabilities), n_nodes, facts, settings),
        n_heads=len({channel.gpus[0] for channel in heads.channels}) if heads else 0,
        nvswitch=bool(graph.of_kind("NVS")),
        rccl=any(graph.gpu(gpu).gcn for gpu in node.table.gpus),
        network_collectives=network_collectives,
        version=version,
        settings=settings,
    )


def nvls_channels(min_cc: int, n_nodes: int, facts: Facts, settings: Settings) -> int:
    """Return the channels (SMs) of NVLS: 16 on Hopper, on Blackwell 24 in one node and 32 in
    several.
    """
    if settings.nvls_channels is not None:
        return settings.nvls_channels
    if min_cc < 100 or facts.max_channels < 64:
        count = 16
    else:
        count = 24 if n_nodes == 1 else 32
    return limited_channels(count, facts, settings)


# RCCL's rings for GPUs of which every two have a link (a full mesh). NCCL's search prefers few hops
# and leaves links of a full mesh idle; RCCL recognizes these machines and has rings for them that
# use every link once in each direction.

COPIES = 4  # copies of 7 rings: RCCL logs 28 rings, 56 channels on 8 MI300X
Order = tuple[int, ...]


def over_all_links(system: XmlSystem, graph: ChannelGraph) -> ChannelGraph:
    """Return RCCL's rings if AMD's GPUs form a full mesh; else the graph as it is."""
    gpus = list(system.gpus())
    others = len(gpus) - 1
    joined = (len({link.target for link in gpu.nvlinks}) >= others for gpu in gpus)
    amd = all(gpu.gcn and gpu.rank is not None for gpu in gpus)
    if len(gpus) < 3 or graph.n_channels >= others or not amd or not all(joined):
        return graph
    rings = rings_of_mesh(len(gpus))
    if not rings:
        return graph
    channels = tuple(Channel(order) for order in rings) * COPIES
    speed = graph.bw_intra / COPIES
    return replace(
        graph, n_channels=len(channels), channels=channels, bw_intra=speed, bw_inter=speed
    )


@lru_cache
def rings_of_mesh(gpus: int) -> tuple[Order, ...]:
    """Return n - 1 rings over n GPUs that use every pair once in each direction.

    For 4 and 6 GPUs no such rings exist: the result is ().
    """
    used: set[tuple[int, int]] = set()
    rings: list[Order] = []

    def longer(path: Order, rest: frozenset[int]) -> Iterator[Order]:
        """Yield the closed rings over unused hops that continue `path` over the GPUs in `rest`."""
        if not rest and (path[-1], 0) not in used:
            yield path
        for gpu in sorted(rest):
            if (path[-1], gpu) not in used:
                yield from longer((*path, gpu), rest - {gpu})

    def solved() -> bool:
        """Add the missing rings to `rings`; return whether that is possible."""
        first = len(rings) + 1
        if first == gpus:
            return True
        for ring in longer((0, first), frozenset(range(1, gpus)) - {first}):
            hops = set(zip(ring, (*ring[1:], 0), strict=True))
            used.update(hops)
            rings.append(ring)
            if solved():
                return True
            used.difference_update(hops)
            rings.pop()
        return False

    return tuple(rings) if gpus not in (4, 6) and solved() else ()
