"""How graph XML names GPUs and ports: device numbers in hexadecimal, the host in the high byte."""

from collections.abc import Sequence

from netsim.nccl.paths import PathTable

HOST_SHIFT = 56  # bits below the number of a host, in nodes that are several hosts


def gpu_numbers(table: PathTable) -> dict[int, int]:
    """The GPU of the node, by rank within it, behind every number."""
    graph = table.graph
    pairs = zip(table.gpus, graph.local_ranks, strict=True)
    hosts = _hosts(table)
    return {_number(hosts, graph.nodes[gpu].host, graph.gpu(gpu).dev): rank for gpu, rank in pairs}


def port_numbers(table: PathTable) -> dict[int, int]:
    """The port of the node, by its place in the file, behind every number."""
    graph, hosts = table.graph, _hosts(table)
    return {
        _number(hosts, graph.nodes[net].host, graph.net(net).dev): place
        for place, net in enumerate(table.nets)
    }


def written(number: int) -> str:
    """A number as C's %#lx writes it: 0, but 0x3."""
    return f"{number:#x}" if number else "0"


def _hosts(table: PathTable) -> list[str]:
    return list(dict.fromkeys(node.host for node in table.graph.nodes if node.kind == "CPU"))


def _number(hosts: Sequence[str], host: str, device: int) -> int:
    return (hosts.index(host) << HOST_SHIFT) + device
