"""NCCL's graph XML: the searched channels of a node, read and written."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from netsim.base.errors import shown, suggest
from netsim.base.files import text_of
from netsim.base.values import dataclass
from netsim.nccl import communicator
from netsim.nccl.communicator import Channel, ChannelGraph
from netsim.nccl.facts import Facts, PathType
from netsim.nccl.node import NodeView
from netsim.nccl.paths import PathTable
from netsim.topology.foreign import nccl_xml
from netsim.topology.foreign.nccl_xml import Element, check_names, integer, text

HOST_SHIFT = 56  # bits below the number of a host, in nodes that are several hosts


def gpu_numbers(table: PathTable) -> dict[int, int]:
    """Return the ranks within the node of its GPUs, by the number of the GPU in a graph file."""
    numbers = (_number(table, gpu, table.graph.gpu(gpu).dev) for gpu in table.gpus)
    return dict(zip(numbers, table.graph.local_ranks, strict=True))


def port_numbers(table: PathTable) -> dict[int, int]:
    """Return the indices of the ports of a node, by the number of the port in a graph file."""
    ports = enumerate(table.nets)
    return {_number(table, net, table.graph.net(net).dev): place for place, net in ports}


def written(number: int) -> str:
    """Return a number as C's %#lx writes it: "0" for 0, "0x3" for 3."""
    return f"{number:#x}" if number else "0"


def _number(table: PathTable, node: int, device: int) -> int:
    """Return the number by which a graph file names a GPU or port.

    It is the number of the device, with the number of the host above bit 56.
    """
    nodes = table.graph.nodes
    hosts = list(dict.fromkeys(one.host for one in nodes if one.kind == "CPU"))
    return (hosts.index(nodes[node].host) << HOST_SHIFT) + device


# A user may state channels (NCCL_GRAPH_FILE), which replace those that would be searched. A file
# that does not match the topology is refused with a line number; NCCL would fail later.

TREES = (communicator.BALANCED_TREE, communicator.SPLIT_TREE, communicator.TREE)
# By the id of a graph, the patterns that it may have.
PATTERNS = {
    0: (communicator.RING,),
    1: TREES,
    2: TREES,
    3: (communicator.NVLS,),
    4: (communicator.COLLNET_DIRECT,),
}
HEADED = (3, 4)  # ids of graphs whose channels are a head only
ATTRIBUTES = {
    *("id", "pattern", "crossnic", "nchannels", "speedintra", "speedinter", "latencyinter"),
    *("typeintra", "typeinter", "samechannels"),
}


@dataclass(frozen=True)
class GraphFile:
    """The content of a graph XML file, and its path."""

    source: str
    text: str


def read_graph_file(path: Path) -> GraphFile:
    """Return the file at `path`; it is checked that it has graphs."""
    graph_file = GraphFile(path.as_posix(), text_of(path))
    _root(graph_file)
    return graph_file


def graphs_of(file: GraphFile, table: PathTable, facts: Facts) -> dict[int, ChannelGraph]:
    """Return the graphs of a file by id, over the GPUs and ports of a node."""
    devices = _Devices(gpu_numbers(table), port_numbers(table))
    graphs: dict[int, ChannelGraph] = {}
    for element in _root(file).children:
        number = integer(element, "id", most=4)
        if number in graphs:
            raise element.error(f"graph {number} is there twice", "id")
        graphs[number] = _read_graph(element, number, devices, facts)
    return graphs


def _root(file: GraphFile) -> Element:
    """Return the top element of a file; other XML than of graphs is refused."""
    root = nccl_xml.parse_elements(file.text.encode(), file.source)
    if root.name != "graphs":
        raise root.error(f"expected a graphs element at the top, got {root.name}")
    check_names(root, {"version"}, {"graph"})
    if text(root, "version") != "1":
        raise root.error(f"expected version 1, got {shown(text(root, 'version'))}", "version")
    for child in root.children:
        if child.name != "graph":
            raise child.error("expected graph elements only")
    if not root.children:
        raise root.error("no graph element")
    return root


@dataclass(frozen=True)
class _Devices:
    """The GPUs and ports of a node by their numbers in a graph file.

    - `gpus`: the rank of each GPU within the node; `ports`: the index of each port.
    """

    gpus: Mapping[int, int]
    ports: Mapping[int, int]

    def gpu(self, element: Element) -> int:
        """Return the rank (within the node) of the GPU that an XML element names."""
        return self._of(element, self.gpus, "GPUs")

    def port(self, element: Element) -> int:
        """Return the index of the port that an XML element names."""
        return self._of(element, self.ports, "NICs")

    def _of(self, element: Element, numbers: Mapping[int, int], label: str) -> int:
        """Return the value in `numbers` for the device that an XML element names (`dev`).

        `label` says in the error message what the devices are.
        """
        number = int(nccl_xml.hexadecimal(element, "dev"), 16)
        if number not in numbers:
            there = ", ".join(written(one) for one in sorted(numbers)) or "none"
            raise element.error(f"the node has the {label} {there}, not {written(number)}", "dev")
        return numbers[number]


def _read_graph(element: Element, number: int, devices: _Devices, facts: Facts) -> ChannelGraph:
    """Return the graph that an XML element describes; `number` is the graph's id."""
    check_names(element, ATTRIBUTES, {"channel"})
    pattern = integer(element, "pattern", least=1, most=6)
    if pattern not in PATTERNS[number]:
        wanted = " or ".join(map(str, PATTERNS[number]))
        raise element.error(f"graph {number} has pattern {wanted}, got {pattern}", "pattern")
    count = integer(element, "nchannels", least=1, most=facts.max_channels)
    if count != len(element.children):
        message = f"{count} channels announced, {len(element.children)} there"
        raise element.error(message, "nchannels")
    return ChannelGraph(
        pattern=pattern,
        n_channels=count,
        bw_intra=_speed(element, "speedintra"),
        bw_inter=_speed(element, "speedinter"),
        type_intra=_path_type(element, "typeintra", facts),
        type_inter=_path_type(element, "typeinter", facts),
        same_channels=nccl_xml.flag(element, "samechannels"),
        cross_nic=integer(element, "crossnic", 0, most=2),
        latency_inter=nccl_xml.real(element, "latencyinter", 0.0),
        channels=tuple(_read_channel(child, number, devices) for child in element.children),
    )


def _speed(element: Element, name: str) -> float:
    """Return the speed in GB/s in the attribute `name` of an XML element; 0 is refused."""
    text(element, name)
    speed = nccl_xml.real(element, name, 0.0)
    if speed == 0:
        raise element.error("expected a speed in GB/s above 0", name)
    return speed


def _path_type(element: Element, name: str, facts: Facts) -> PathType:
    """Return the path type in the attribute `name` of an XML element."""
    word = text(element, name)
    for known_type in facts.path_types:
        if word == known_type:
            return known_type
    names = ", ".join(facts.path_types)
    hint = suggest(word, facts.path_types)
    raise element.error(f"expected one of {names}, got {shown(word)}{hint}", name)


def _read_channel(element: Element, number: int, devices: _Devices) -> Channel:
    """Return the channel that an XML element describes; `number` is the id of its graph."""
    check_names(element, set(), {"gpu", "net"})
    nets = [child for child in element.children if child.name == "net"]
    inner = element.children
    if devices.ports:
        if len(nets) != 2 or inner[0].name != "net" or inner[-1].name != "net":
            raise element.error("of several nodes: expected a net first and last, GPUs between")
        inner = inner[1:-1]
    elif nets:
        raise nets[0].error("the job has one node, whose channels do not use the network")
    gpus = tuple(devices.gpu(child) for child in inner)
    twice = next((place for place, gpu in enumerate(gpus) if gpu in gpus[:place]), None)
    if twice is not None:
        dev = inner[twice].attributes["dev"]
        raise inner[twice].error(f"GPU {dev} is in this channel twice", "dev")
    count = 1 if number in HEADED else len(devices.gpus)
    if len(gpus) != count:
        expected = "the one GPU that is its head" if count == 1 else f"all {count} GPUs of the node"
        raise element.error(f"expected {expected}, got {len(gpus)}")
    return Channel(gpus, (devices.port(nets[0]), devices.port(nets[1])) if nets else None)


# By the id of a graph, the field of `NodeView` that holds it, in the order of NCCL's dumps.
GRAPHS = {0: "ring", 1: "tree", 4: "collnet_direct", 2: "collnet_chain", 3: "nvls"}


def write_graphs(view: NodeView) -> str:
    """Return the XML text of all graphs of a node."""
    lines = ['<graphs version="1">']
    for number, field in GRAPHS.items():
        graph = getattr(view, field)
        if graph is not None and graph.n_channels:
            lines += (f"  {line}" for line in _written_graph(view, number, graph))
    return "\n".join([*lines, "</graphs>"]) + "\n"


def _written_graph(view: NodeView, number: int, graph: ChannelGraph) -> Iterator[str]:
    """Yield the lines of one graph."""
    attributes = {
        "id": number,
        "pattern": graph.pattern,
        "crossnic": graph.cross_nic,
        "nchannels": graph.n_channels,
        "speedintra": f"{graph.bw_intra:g}",
        "speedinter": f"{graph.bw_inter:g}",
        "latencyinter": f"{graph.latency_inter:g}",
        "typeintra": graph.type_intra,
        "typeinter": graph.type_inter,
        "samechannels": int(graph.same_channels),
    }
    written_out = " ".join(f'{key}="{value}"' for key, value in attributes.items())
    yield f"<graph {written_out}>"
    gpus = {rank: number for number, rank in gpu_numbers(view.table).items()}
    ports = {place: number for number, place in port_numbers(view.table).items()}
    for channel in graph.channels:
        nets = [f'    <net dev="{written(ports[end])}"/>' for end in channel.nics or ()]
        inner = (f'    <gpu dev="{written(gpus[r])}" rank="{r}"/>' for r in channel.gpus)
        yield from ("  <channel>", *nets[:1], *inner, *nets[1:], "  </channel>")
    yield "</graph>"
