"""Golden texts of topologies: machines, fabrics, what NCCL finds in them, foreign formats."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from netsim.nccl.communicator import ChannelGraph
from netsim.nccl.graph_xml import write_graphs
from netsim.topology.cluster import build_cluster
from netsim.topology.config import ClusterConfig
from netsim.topology.figures import fabric_figures, gpu_bandwidth, tiers_of
from netsim.topology.foreign.formats import read_astra, write_node_link
from netsim.topology.foreign.nccl import machine_of
from netsim.topology.foreign.nccl_xml import write_system
from netsim.topology.foreign.smi import parse_matrix, preset_of
from netsim.yamlio.read import parse_source
from netsim.yamlio.validate import validate
from tests.golden.layout import (
    MOST_LINES,
    plain_value,
    route_lines,
    significant,
    topology_lines,
    wrapped,
)
from tests.nccl.nccl_nodes import node_of, system_of
from tests.nccl.test_nccl_layout import mixed_layout
from tests.topology.topology_tools import topology

Writer = Callable[[], list[str]]
DATA = Path(__file__).parents[1] / "data"


def machine(name: str, text: str) -> list[str]:
    """Return the table of one or more hosts: nodes, links, and the routes between some GPUs."""
    built = topology(text)
    last = len(built.gpus) - 1
    pairs = sorted({(0, 1), (1, 0), (0, last), (last // 2, last // 2 + 1)} - {(last, last)})
    lines = [f"{name}: {text.strip().replace(chr(10), ', ')}", *topology_lines(built)]
    lines += ["", "routes:", *route_lines(built, [pair for pair in pairs if pair[0] != pair[1]])]
    if "staged" in name:
        lines += ["staged through host memory:", *route_lines(built, pairs[:1], "staged")]
    return lines


def fabric(text: str, routing: tuple[str, ...] = ("static",)) -> list[str]:
    """Return a fabric of one-GPU hosts: switches, cables, routes by policy and figures."""
    title = text.strip().replace("{{", "{").replace("}}", "}").replace("{routing}", "")
    title = title.replace("\n", ", ")
    lines = [f"Fabric of hosts with one GPU and one NIC: {title}"]
    for number, policy in enumerate(routing):
        given = text.format(routing=f", routing: {policy}" if policy != "static" else "")
        source = parse_source(given, "golden.yaml")
        cluster = build_cluster(validate(ClusterConfig, source))
        built = cluster.topology
        last = len(built.gpus) - 1
        if number == 0:
            shown = topology_lines(built, ("gpu", "nic", "switch"))
            lines += [line for line in shown if not line.startswith("capacity")]
            figures = fabric_figures(cluster)
            lines += ["", f"figures: {plain_value(figures)}"]
            lines += [f"bandwidth of GPUs: {plain_value(gpu_bandwidth(cluster))}"]
            lines += [f"tiers: {plain_value(tiers_of(cluster.fabric))}"]
        pairs = [(0, 1), (0, last), (last, 0), (1, last - 1)]
        lines += ["", f"routes, {policy}:", *route_lines(built, pairs)]
    return lines


def value_lines(value: object) -> list[str]:
    """Return a value with a line for each field, and for each row of a table."""
    return plain_value(value).replace("; ", "\n").replace(") (", ")\n  (").split("\n")


def graph_lines(name: str, graph: ChannelGraph | None) -> list[str]:
    """Return what NCCL's search found: speeds, path types, and the GPUs of every channel."""
    if graph is None:
        return ["", f"{name}: not searched"]
    lines = [
        "",
        f"{name}: pattern {graph.pattern}, {graph.n_channels} channels, "
        f"{significant(graph.bw_intra, 4)}/{significant(graph.bw_inter, 4)} GB/s inside/between, "
        f"{graph.type_intra}/{graph.type_inter}, same channels {graph.same_channels}, "
        f"cross NIC {graph.cross_nic}",
    ]
    for number, channel in enumerate(graph.channels):
        nics = "" if channel.nics is None else f"   NIC {channel.nics[0]} in, {channel.nics[1]} out"
        lines.append(f"  channel {number}: {' '.join(map(str, channel.gpus))}{nics}")
    return lines


def search(config: str, *, networked: bool) -> list[str]:
    """Return the graphs that NCCL's search finds on a system of tests/data/nccl/topo."""
    node = node_of(config, networked=networked)
    lines = [f"NCCL's channels on {config}, {'of several nodes' if networked else 'alone'}."]
    for name in ("ring", "tree", "nvls"):
        lines += graph_lines(name, getattr(node, name))
    return lines[:MOST_LINES]


def joined_nodes(configs: Sequence[str]) -> list[str]:
    """Return the rings and trees over nodes of several kinds, of one node after the other."""
    views = [node_of(config, networked=True) for config in configs]
    rings = [view.ring for view in views]
    trees = [view.tree for view in views]
    sizes = [len(ring.channels[0].gpus) for ring in rings]
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    nodes = [range(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    searched = min(graph.n_channels for graph in (*rings, *trees))
    found = mixed_layout(rings, trees, nodes, 2 * searched + 1)
    lines = [f"Rings and trees over nodes of several kinds: {' '.join(configs)}.", ""]
    lines += [f"ring {number}: {spaced(ring)}" for number, ring in enumerate(found.rings)]
    for number, tree in enumerate(found.trees):
        children = [f"r{rank}: {spaced(down)}" for rank, down in enumerate(tree.down) if down]
        lines += ["", f"tree {number}, root r{tree.root}, children:", *wrapped(children)]
    return lines


def spaced(ranks: Sequence[int]) -> str:
    """Return ranks with spaces between them."""
    return " ".join(map(str, ranks))


def graph_file(config: str, *, networked: bool) -> list[str]:
    """Return the graphs as NCCL_GRAPH_DUMP_FILE has them."""
    text = write_graphs(node_of(config, networked=networked))
    return [f"NCCL's graph file (NCCL_GRAPH_DUMP_FILE) of {config}.", "", *text.splitlines()]


def system_file(config: str) -> list[str]:
    """Return a system as NCCL_TOPO_DUMP_FILE has it, and the machine that is read from it."""
    system = system_of(config)
    text = write_system(system)
    lines = [f"NCCL's topology file (NCCL_TOPO_DUMP_FILE) of {config}, written again.", ""]
    lines += text.splitlines()
    return [*lines, "", "as a machine:", *value_lines(machine_of(system))]


def matrix(file: str, gpu: str) -> list[str]:
    """Return what is read from `nvidia-smi topo -m`, and the machine that it becomes."""
    text = (DATA / "smi" / file).read_text(encoding="utf-8")
    found = parse_matrix(text, file)
    lines = [f"nvidia-smi topo -m, {file}: the text, what is read, and the machine of {gpu}.", ""]
    lines += [line.expandtabs(6) for line in text.strip().splitlines()[:14]]
    lines += ["", "read:", *value_lines(found)]
    return [*lines, "", "machine:", *value_lines(preset_of(found, gpu))]


ASTRA = "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [50.0, 25.0]\nlatency: [5, 7]\n"


def astra() -> list[str]:
    """Return the topology that an ASTRA-sim file of two dimensions becomes."""
    lines = ["An ASTRA-sim network file and the topology that it becomes.", *ASTRA.splitlines(), ""]
    built = read_astra(ASTRA, "golden.yml")
    return [*lines, *topology_lines(built), *route_lines(built, [(0, 1), (0, 7), (3, 0)])]


def node_link() -> list[str]:
    """Return a ring of three GPUs in networkx's node-link JSON."""
    built = topology("graph: {kind: ring, gpus: 3, bandwidth: 25GB/s, latency: 700ns}")
    text = write_node_link(built)
    return ["A ring of three GPUs as node-link JSON.", *text.splitlines()]


def graph(text: str) -> list[str]:
    """Return a plain graph and its routes."""
    built = topology(f"graph: {text}")
    last = len(built.gpus) - 1
    pairs = [(0, last), (1, last), (last, 1)]
    return [f"graph: {text}", *topology_lines(built), "routes:", *route_lines(built, pairs)]


MACHINES = {
    "dgx-h100": "machine: dgx-h100\n",
    "dgx-a100": "machine: dgx-a100\n",
    "dgx-1-v100": "machine: dgx-1-v100\n",
    "dgx-2-two-gpus": "machine: dgx-2\ngpus_per_node: 2\n",
    "l40s-pcie-x8-staged": "machine: l40s-pcie-x8\n",
    "a100-x4": "machine: a100-x4\n",
    "gh200-x4": "machine: gh200-x4\n",
    "gb200-nvl72-hosts": "machine: gb200-nvl72\nnodes: 2\n",
    "mi300x": "machine: mi300x\n",
    "hgx-b300": "machine: hgx-b300\n",
    "rtx4090-x8-staged": "machine: rtx4090-x8\n",
}
ONE = "machine: dgx-h100\ngpus_per_node: 1\nnics_per_node: 1\nnodes: {}\n"
FABRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "leaf-spine": (
        "{{kind: leaf-spine, nodes_per_leaf: 2, oversubscription: 2{routing}}}",
        ("static", "ecmp", "spray"),
    ),
    "fat-tree": ("{{kind: fat-tree, k: 4{routing}}}", ("static", "ecmp", "spray")),
    "dragonfly": (
        "{{kind: dragonfly, routers: 2, ports_per_router: 4, global_links: 2{routing}}}",
        ("static", "valiant"),
    ),
    "torus": ("{{kind: torus, dims: [2, 3]}}", ("static",)),
    "single-switch": ("{{kind: single-switch}}", ("static",)),
}
GRAPHS = {
    "torus": "{kind: torus, dims: [3, 2], bandwidth: 50GB/s, latency: 1us}",
    "full-mesh": "{kind: full-mesh, gpus: 4, bandwidth: 40GB/s, latency: 1us}",
    "switch": "{kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 700ns}",
}

WRITERS: dict[str, Writer] = {
    **{
        f"topologies/machine-{name}": partial(machine, name, text)
        for name, text in MACHINES.items()
    },
    "topologies/machine-rails": partial(
        machine,
        "two hosts on rails",
        "machine: dgx-h100\nnodes: 2\ngpus_per_node: 2\nfabric: {kind: rail-optimized}\n",
    ),
    "topologies/machine-sites": partial(
        machine,
        "two sites",
        "machine: dgx-h100\nnodes: 2\ngpus_per_node: 1\nnics_per_node: 1\n"
        "sites: {count: 2, distance: 100km, bandwidth: 400Gbps, links: 2}\n",
    ),
    "topologies/machine-sites-leaf-spine": partial(
        machine,
        "two sites with leaves and spines each",
        "machine: dgx-h100\nnodes: 8\ngpus_per_node: 1\nnics_per_node: 1\n"
        "fabric: {kind: leaf-spine, nodes_per_leaf: 2, oversubscription: 2}\n"
        "sites: {count: 2, distance: 100km, bandwidth: 400Gbps, links: 2}\n",
    ),
    "topologies/machine-nvlink-domains": partial(
        machine,
        "domains of NVLink, joined by leaves and spines",
        "machine: gb200-nvl72\nnodes: 4\ngpus_per_node: 1\nnics_per_node: 1\n"
        "fabric: {kind: nvlink-domain, hosts: 2, between: {kind: leaf-spine, nodes_per_leaf: 1}}\n",
    ),
    "topologies/machine-faults": partial(
        machine,
        "faults",
        "machine: dgx-h100\nnodes: 2\ngpus_per_node: 2\nfaults: "
        "[{link: node1.nic1-*, bandwidth: 50%}, {gpu: node0.gpu1, slowdown: 2}]\n",
    ),
    **{
        f"topologies/fabric-{name}": partial(
            fabric, ONE.format(6 if name == "torus" else 5) + f"fabric: {text}\n", routing
        )
        for name, (text, routing) in FABRICS.items()
    },
    **{f"topologies/graph-{name}": partial(graph, text) for name, text in GRAPHS.items()},
    **{
        f"topologies/search-{config}-{'nodes' if networked else 'alone'}": partial(
            search, config, networked=networked
        )
        for config, networked in (
            ("h100_8nic", True),
            ("dgxa100", False),
            ("dgx1v_4nic", True),
            ("a100x4_1nic", True),
            ("l40s8sw", False),
            ("a10pcie8_amd", False),
        )
    },
    "topologies/joined-nodes-of-two-kinds": partial(joined_nodes, ("dgxa100", "a100x4", "dgxa100")),
    "topologies/graph-file-h100x2": partial(graph_file, "h100x2", networked=True),
    "topologies/system-file-h100x2": partial(system_file, "h100x2"),
    "topologies/smi-gh200": partial(matrix, "gh200.txt", "GH200"),
    "topologies/smi-dgx1v": partial(matrix, "dgx1v.txt", "V100"),
    "topologies/astra": astra,
    "topologies/node-link": node_link,
}
