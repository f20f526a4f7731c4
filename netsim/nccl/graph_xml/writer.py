"""The searched channels of a node as NCCL_GRAPH_DUMP_FILE writes them."""

from collections.abc import Iterator

from netsim.nccl.channels import Channel, ChannelGraph
from netsim.nccl.graph_xml.devices import gpu_numbers, port_numbers, written
from netsim.nccl.node import NodeView

# The field of a view by the id of a graph, in the order of NCCL's dumps.
GRAPHS = {0: "ring", 1: "tree", 4: "collnet_direct", 2: "collnet_chain", 3: "nvls"}


def write_graphs(view: NodeView) -> str:
    """The XML text of all graphs that were found."""
    lines = ['<graphs version="1">']
    for number, field in GRAPHS.items():
        graph = getattr(view, field)
        if graph is not None and graph.n_channels:
            lines += (f"  {line}" for line in _graph(view, number, graph))
    return "\n".join([*lines, "</graphs>"]) + "\n"


def _graph(view: NodeView, number: int, graph: ChannelGraph) -> Iterator[str]:
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
        yield "  <channel>"
        yield from (f"    {line}" for line in _channel(channel, gpus, ports))
        yield "  </channel>"
    yield "</graph>"


def _channel(channel: Channel, gpus: dict[int, int], ports: dict[int, int]) -> Iterator[str]:
    ends = channel.nics
    if ends is not None:
        yield f'<net dev="{written(ports[ends[0]])}"/>'
    for rank in channel.gpus:
        yield f'<gpu dev="{written(gpus[rank])}" rank="{rank}"/>'
    if ends is not None:
        yield f'<net dev="{written(ports[ends[1]])}"/>'
