"""What the channel search takes bandwidth from: links with what is left, hops with their needs.

Flat arrays of whole numbers (1/1000 GB/s), so that a hop is tried in a microsecond. Made once
for a system; knows nothing of channels and of their order.
"""

from netsim.nccl.channels import BALANCED_TREE, SPLIT_TREE, TREE
from netsim.nccl.paths import PathTable, nearest, ports_of
from netsim.nccl.settings import Settings
from netsim.nccl.system import cpu_vendor, net_bandwidth

Score = tuple[float, float, int, float, int, int, int]
Needs = tuple[tuple[int, int], ...]
NO_TYPE = 99
TREES = (BALANCED_TREE, TREE, SPLIT_TREE)


class Arena:
    """The capacities of one system while a search draws on them and gives back."""

    def __init__(self, table: PathTable, settings: Settings) -> None:
        graph = table.graph
        self.table = table
        self.facts = graph.facts
        self.gpus, self.nets = table.gpus, table.nets
        self.switches = tuple(graph.of_kind("NVS"))
        self.left = [round(link.bandwidth * 1000) for link in graph.links]
        self.port_left = [net_bandwidth(graph.net(net)) for net in self.nets]
        self.ports = [self._same_port(net) for net in self.nets]
        self.rails = [self._rail(net) for net in self.nets]
        self.latency = [graph.net(net).latency for net in self.nets]
        self.collective = [graph.net(net).coll for net in self.nets]
        cpu = graph.first_cpu
        self.cpu = (cpu.arch, cpu_vendor(cpu))
        self.min_cc = min(graph.gpu(gpu).sm for gpu in self.gpus)
        self.local_ports = [
            [self.nets.index(net) for net in ports_of(table, gpu, settings)] for gpu in self.gpus
        ]
        self.gpu_of_net = [self.gpus.index(gpu) if gpu >= 0 else -1 for gpu in table.gpu_of_net]
        self.near_gpus = [
            [self.gpus.index(gpu) for gpu in nearest(table, net, self.gpus)] for net in self.nets
        ]
        self.pci_of_gpu = [self._pci_bandwidth(gpu) for gpu in self.gpus]
        self.ports_by_type = [self._ports_by_type(gpu) for gpu in self.gpus]
        # By pattern: where to go from a GPU, given those used, the port and when it comes.
        self.onwards: dict[int, dict[tuple[int, int, int, int], list[int]]] = {}
        self.scores: dict[
            tuple[int, int], list[tuple[float, float, int, float, int, int, int]]
        ] = {}
        self._needs: dict[tuple[int, int, int], Needs] = {}

    def type_of(self, source: int, target: int) -> int:
        """The rank of the path type between two nodes, larger than all where there is none."""
        path = self.table.paths.get((source, target))
        return path.type if path else NO_TYPE

    def hops(self, source: int, target: int) -> int:
        """Links between two nodes; 0 where there is no path."""
        path = self.table.paths.get((source, target))
        return len(path.links) if path else 0

    def bandwidth(self, source: int, target: int) -> float:
        """The narrowest link between two nodes, GB/s."""
        path = self.table.paths.get((source, target))
        return path.bandwidth if path else 0.0

    def left_of_gpu(self, gpu: int, type_intra: int) -> list[int]:
        """What is left of every link out of a GPU that paths up to this type may use."""
        graph, rank = self.table.graph, self.facts.rank
        usable = {"NVL", "C2C", "PCI", "LOC"} if type_intra >= rank("PIX") else {"NVL", "C2C"}
        if type_intra <= rank("NVB"):
            usable = {"NVL"}
        out = graph.links_out[self.gpus[gpu]]
        return [self.left[link] for link in out if graph.links[link].kind in usable]

    def left_of_port(self, net: int) -> int:
        """What is left of the link by which a port sends into the node."""
        return sum(self.left[index] for index in self.table.graph.links_out[self.nets[net]])

    def take(self, needs: Needs) -> bool:
        """Take what a hop needs from every link of it, or nothing at all."""
        left = self.left
        for link, amount in needs:
            if left[link] < amount:
                return False
        for link, amount in needs:
            left[link] -= amount
        return True

    def give_back(self, needs: Needs) -> None:
        """Undo a `take`."""
        left = self.left
        for link, amount in needs:
            left[link] += amount

    def needs(self, source: int, target: int, amount: int) -> Needs:
        """What a flow of `amount` takes on each link of the path, in the order of the path."""
        key = (source, target, amount)
        found = self._needs.get(key)
        if found is None:
            found = self._needs[key] = self._count(source, target, amount)
        return found

    def nvls_flows(self, head: int, amount: int, limit: int) -> Needs | None:
        """What one NVLS head takes: every GPU to and from the switch once, itself twice."""
        switch, flows = self.switches[0], list[tuple[int, int]]()
        for inwards in (True, False):
            for index, gpu in enumerate(self.gpus):
                ends = (switch, gpu) if inwards else (gpu, switch)
                kind, times = self.type_of(*ends), 2 if index == head else 1
                if kind == NO_TYPE or (kind > limit and times == 1):
                    return None
                flows += self.needs(*ends, amount * times)
        return _summed(flows)

    def direct_flows(self, head: int, amount: int) -> Needs | None:
        """What one CollNet head takes: its share from and to every other GPU of the node."""
        node, flows = self.gpus[head], list[tuple[int, int]]()
        share = amount // max(1, len(self.gpus) - 1)
        others = [gpu for gpu in self.gpus if gpu != node]
        for ends in [(node, gpu) for gpu in others] + [(gpu, node) for gpu in others]:
            if self.type_of(*ends) == NO_TYPE:
                return None
            flows += self.needs(*ends, share)
        return _summed(flows)

    def _ports_by_type(self, gpu: int) -> dict[int, list[int]]:
        by_type: dict[int, list[int]] = {}
        for port, net in enumerate(self.nets):
            by_type.setdefault(self.type_of(gpu, net), []).append(port)
        return by_type

    def _count(self, source: int, target: int, amount: int) -> Needs:
        """PCIe flows through an Intel CPU cost 6/5; into old GPUs 1/8 comes back as requests."""
        graph = self.table.graph
        path = self.table.paths[source, target]
        from_gpu = graph.nodes[source].kind == "GPU"
        root = path.type == self.facts.rank("PHB") and from_gpu and self._crosses_intel(path.links)
        taken: list[tuple[int, int]] = []
        for index in path.links:
            link = graph.links[index]
            forward = amount * 6 // 5 if root and link.kind == "PCI" else amount
            taken.append((index, forward))
            end = graph.nodes[link.target]
            if end.kind == "GPU" and not from_gpu and graph.gpu(link.target).sm < 80:
                taken.append((self._reverse(index), -(-forward // 8)))
            if end.kind == "CPU" and link.kind == "NVL" and graph.cpu(link.target).arch == "ppc64":
                taken.append((self._reverse(index), forward))
        return _summed(taken)

    def _crosses_intel(self, links: tuple[int, ...]) -> bool:
        graph = self.table.graph
        ends = (graph.links[index].target for index in links)
        cpus = (graph.cpu(end) for end in ends if graph.nodes[end].kind == "CPU")
        return any(cpu.arch == "x86_64" and cpu_vendor(cpu) == "Intel" for cpu in cpus)

    def _reverse(self, index: int) -> int:
        graph = self.table.graph
        link = graph.links[index]
        return next(
            back
            for back in graph.links_out[link.target]
            if graph.links[back].target == link.source and graph.links[back].kind == link.kind
        )

    def _rail(self, net: int) -> tuple[str, str, int]:
        """What tells rails apart: the rail of the file if it has one, else the physical port."""
        port, host = self.table.graph.net(net), self.table.graph.nodes[net].host
        if port.rail is not None:
            return ("", "rail", port.rail)
        card = port.guid if int(port.guid, 16) else f"device {port.dev}"
        return (host, card, port.port)

    def _same_port(self, net: int) -> tuple[int, ...]:
        graph = self.table.graph
        port, host = graph.net(net), graph.nodes[net].host
        if not int(port.guid, 16):
            return (self.nets.index(net),)
        return tuple(
            index
            for index, other in enumerate(self.nets)
            if graph.nodes[other].host == host
            and (graph.net(other).guid, graph.net(other).port) == (port.guid, port.port)
        )

    def _pci_bandwidth(self, gpu: int) -> float:
        graph = self.table.graph
        links = (graph.links[index] for index in graph.links_out[gpu])
        return max((link.bandwidth for link in links if link.kind == "PCI"), default=0.0)


def _summed(needs: list[tuple[int, int]]) -> Needs:
    """Needs with every link once, so that checking them one by one is checking them all."""
    total: dict[int, int] = {}
    for link, amount in needs:
        total[link] = total.get(link, 0) + amount
    return tuple(total.items())


def widest_path(arena: Arena) -> float:
    """The best single path of any GPU, to a port if there are ports, else to another GPU."""
    ends = arena.nets or arena.gpus
    pairs = ((gpu, end) for gpu in arena.gpus for end in ends if gpu != end)
    return max((arena.bandwidth(gpu, end) for gpu, end in pairs), default=0.0)


def total_bandwidth(arena: Arena) -> float:
    """What one GPU can send in total: its NVLinks together or its PCIe link."""
    graph = arena.table.graph
    best = 0.0
    for gpu, pci in zip(arena.gpus, arena.pci_of_gpu, strict=True):
        links = (graph.links[index] for index in graph.links_out[gpu])
        nvlinks = sum(link.bandwidth for link in links if link.kind == "NVL")
        best = max(best, pci, nvlinks)
    return best
