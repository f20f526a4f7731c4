"""What stands between a question and its answer, part by part and at many corners: NCCL's searches,
tables and splits by version, senders, sites, faults, rings too long to run (see `tests.pins`)."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from netsim.base.errors import InputError, NetsimError
from netsim.collectives.collective import BLOCKS, Collective, collective_of
from netsim.collectives.forest import searched
from netsim.nccl.choice import busiest_sender
from netsim.nccl.environment import settings_from
from netsim.nccl.facts import ALGORITHMS, FUNCTIONS, PROTOCOLS, facts_of, parse_version
from netsim.nccl.graph_xml import write_graphs
from netsim.nccl.node import communicator, search_node
from netsim.nccl.paths import local_gpu, path_table, ports_of
from netsim.nccl.split import chunk_bytes, split_over_channels
from netsim.nccl.system import system_graph
from netsim.nccl.tuning import Call, choose, launch, timed_costs
from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from netsim.timing.fits import LIMITS
from netsim.topology.figures import fabric_figures, gpu_bandwidth
from netsim.yamlio.read import parse_source
from tests.nccl.nccl_nodes import system_of
from tests.nccl.nccl_oracles import DATA
from tests.pinned import links, rows
from tests.pins import Found, family
from tests.timing import test_ladder as ladder_cases
from tests.timing import test_rungs_keep_their_word as word
from tests.timing.cells import timed
from tests.topology.test_fabrics import FABRICS, hosts
from tests.topology.topology_tools import cluster, topology

SYSTEMS = sorted(path.stem for path in (DATA / "topo").glob("*.xml"))
SLOW = (
    "a100_8nic",
    "a100x4",
    "b200_8nic",
    "b200_8nic800",
    "dgx2_8nic",
    "h100_4nic",
    "h100_8nic",
    "h100x4",
)


def tried(ask: Any, *given: Any, **named: Any) -> object:
    """What a question gives, or the words with which it is refused."""
    try:
        return ask(*given, **named)
    except (NetsimError, ValueError) as error:
        return str(error)


@family
def searched_graphs() -> Found:
    """Graphs that are found on every system, alone and of several, however ports may be crossed."""
    for name in (one for one in SYSTEMS if one not in SLOW):
        told = [write_graphs(search_node(system_of(name), networked=False))]
        for crossed in ("0", "1"):
            settings = settings_from({"NCCL_CROSS_NIC": crossed})
            found = tried(search_node, system_of(name), networked=True, settings=settings)
            told.append(found if isinstance(found, str) else write_graphs(found))
        yield name, told


@family
def ports() -> Found:
    """Ports that each GPU takes in turn, and which GPU is first at each, by policy."""
    for name in SYSTEMS:
        graph = system_graph(system_of(name), facts_of(), networked=True)
        told = []
        for policy in ("AUTO", "ALL", "MAX:2"):
            settings = settings_from({"NCCL_NETDEVS_POLICY": policy})
            table = path_table(graph, settings)
            told += [ports_of(table, gpu, settings) for gpu in table.gpus]
            told += [local_gpu(table, net, settings) for net in table.nets]
        yield name, told


VERSIONS = ("2.18.5", "2.20.5", "2.22.3", "2.24.3", "2.27.7")
FEW = (("h100_2nic", 4), ("dgxa100", 1), ("dgx1v_4nic", 3), ("a100_tcp", 2))


@family
def choices_by_version() -> Found:
    """Costs, choices and launches of earlier versions."""
    for name, nodes in FEW:
        for text in VERSIONS:
            version = parse_version(text)
            node = search_node(system_of(name), networked=nodes > 1, version=version)
            comm = communicator(node, nodes, version=version)
            calls = [Call(each, size) for each in FUNCTIONS for size in (2**12, 2**20, 2**27)]
            told = [(timed_costs(comm, one), choose(comm, one)) for one in calls]
            yield f"{name} {nodes} {text}", told


@family
def splits() -> Found:
    """Chunks and parts of channels at many sizes."""
    node = search_node(system_of("h100_8nic"), networked=True)
    sizes = [size for k in range(8, 32) for size in (2**k, 3 * 2**k + 4)]
    for nodes in (1, 2, 5):
        comm = communicator(node, nodes, version=parse_version("2.27.7"))
        for algorithm in ALGORITHMS:
            for protocol in PROTOCOLS:
                yield (
                    f"{nodes} {algorithm} {protocol}",
                    [
                        [tried(launch, comm, size, algorithm, protocol) for size in sizes],
                        [
                            tried(
                                chunk_bytes,
                                comm,
                                function,
                                algorithm,
                                protocol,
                                size,
                                n_channels=count,
                            )
                            for function in FUNCTIONS
                            for size in sizes
                            for count in (1, 6, 24)
                        ],
                    ],
                )
    for function in FUNCTIONS:
        yield (
            f"{function} over channels",
            [
                tried(split_over_channels, function, protocol, size + 3, 4, channels, 8)
                for protocol in PROTOCOLS
                for size in sizes
                for channels in (1, 2, 7, 24)
            ],
        )


@family
def senders() -> Found:
    """Which rank sends most, to whom and how much."""
    for name in sorted(BLOCKS):
        for ranks in (1, 2, 5):
            for root in {0, ranks - 1}:
                asked = tried(collective_of, name, ranks, 4 * 60 * ranks, root=root)
                if isinstance(asked, Collective):
                    yield f"{name} {ranks} {root}", tried(busiest_sender, asked)


@family
def greedy() -> Found:
    """Schedules that are searched, in one part and in several."""
    for name in ("all_gather", "all_reduce", "broadcast"):
        for count in (3, 2**17, 5 * 2**17):
            asked = collective_of(name, 4, 4 * count * (4 if name == "all_gather" else 1))
            yield f"{name} {count}", rows(searched(asked, seed=count))


SITES = (
    "nodes: 4, sites: {count: 2, distance: 100km, bandwidth: 400Gbps, links: 3}",
    "nodes: 6, sites: {count: 3, latency: 1ms, bandwidth: 100Gbps}",
    "nodes: 5, sites: {nodes: [2, 3], distance: 10km, bandwidth: 1600Gbps, links: 2}",
)
FAULTS = (
    "[{link: node1.nic1-*, bandwidth: 50%}]",
    "[{nic: node2.nic0}]",
    "[{nic: node1.nic*}]",
    "[{gpu: node0.gpu1, slowdown: 2}]",
    "[{link: node0.nic*-*, latency: 3us}]",
    "[{link: 'leaf0-spine*', bandwidth: 25%}]",
    "[{link: 'leaf0-spine1', bandwidth: 0%}]",
)


@family
def sites() -> Found:
    """Fabrics of several sites, and with faults."""
    for given in SITES:
        for fabric in FABRICS[:5]:
            told = given.replace(", sites", "\nsites")
            yield f"{given} {fabric}", shown(f"machine: dgx-h100\nfabric: {fabric}\n{told}\n")
    for given in FAULTS:
        yield given, [shown(hosts(4, fabric, more=f"faults: {given}\n")) for fabric in FABRICS[:6]]


def shown(text: str) -> object:
    """A network: its links, ways and figures."""
    with suppress(InputError):
        made = cluster(text)
        figures = [fabric_figures(made), gpu_bandwidth(made)] if made.fabric else []
        return [links(made.topology), figures]
    return tried(topology, text)


RINGS = (
    "all_reduce, algorithm: ring",
    "all_gather, algorithm: ring",
    "broadcast, algorithm: ring",
    "reduce_scatter, algorithm: ring",
    "all_reduce, algorithm: multi-ring",
)
GRAPHS = (
    "graph: {kind: switch, gpus: 24, bandwidth: 50GB/s, latency: 1us}, "
    "faults: [{gpu: gpu3, slowdown: 1.5}]",
    "graph: {kind: torus, dims: [24], bandwidth: 50GB/s, latency: 1us}",
    "machine: dgx-h100, nodes: 12, gpus_per_node: 2, faults: [{gpu: node1.gpu1, slowdown: 1.2}]",
)


@family
def long_rings() -> Found:
    """Rings as long ones are told: by powers of two of their steps, or whole."""
    near = replace(LIMITS, long=8, rounds=1)
    for place in GRAPHS:
        for work in RINGS:
            text = f"cluster: {{{place}}}\nworkload: {{collective: {work}, sizes: [960KB]}}\n"
            told = []
            for limits in (near, LIMITS):
                made = tried(lambda text=text: resolve(expand(parse_source(text, "r.yaml"))[0]))
                found = made if isinstance(made, str) else tried(timed, made, 960_000, limits)
                told.append(found if isinstance(found, str) else list(facts(found)))
            yield f"{place} {work}", told


@family
def rungs() -> Found:
    """What each rung of the ladder tells of calls that others would tell, were it not forced."""
    for name, limits in word.FORCED.items():
        makers = (word.drawn,) if name in ("fewer_loops", "as_timed") else (word.textbook,)
        calls = [make(seed) for make in makers for seed in range(4)]
        yield name, [list(facts(timed(one, word.size_of(one), limits))) for one in calls]


@family
def rungs_of_instants() -> Found:
    """The same of messages that crowd."""
    wide = (word.crowded(seed) for seed in range(3))
    yield "wide instants", [list(facts(timed(one, word.size_of(one), some))) for one, some in wide]


@family
def rungs_of_channels() -> Found:
    """The same of rings and trees with fewer channels or hops."""
    for timing in word.TIMINGS:
        some = [word.trees(seed, timing) for seed in (0, 1, 2)]
        told = [list(facts(timed(one, word.size_of(one), word.BY_CHANNEL))) for one in some]
        yield f"one channel for all, {timing}", told
    hops = replace(LIMITS, rings=0, around=0.5)
    for seed in range(4):
        ring = ladder_cases.drawn(seed)
        told = [list(facts(timed(ring.ready, ring.size, some))) for some in (hops, LIMITS)]
        yield f"rings {seed}", told


def facts(timing: Any) -> Iterator[object]:
    """What of a timing is told."""
    for name in ("seconds", "approximation", "uncertainty", "hops", "use"):
        yield name, getattr(timing, name)
    if timing.causes is not None:  # differences of sums: to five digits
        for told in (timing.causes.shares, timing.causes.transfers()):
            yield "causes", [(name, round(float(part), 5)) for name, part in told.items()]
