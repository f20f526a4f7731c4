"""NCCL's search of channels on the graph of a node (src/graph/search.cc, ncclTopoCompute).

It tries patterns, path types and speeds in NCCL's order, relaxes one requirement after the other
until a solution exists, and then tries higher speeds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from netsim.base.values import dataclass, grouped
from netsim.nccl import communicator
from netsim.nccl.communicator import BALANCED_TREE, NVLS, RING, TREE, Channel, ChannelGraph
from netsim.nccl.environment import NO_SETTINGS, Settings
from netsim.nccl.facts import architecture
from netsim.nccl.paths import PathTable, nearest, ports_of, reverse_of
from netsim.nccl.system import cpu_vendor, net_bandwidth


@dataclass(frozen=True)
class Attempt:
    """The requirements of one attempt.

    - `pattern`: NCCL's number for the shape of channels, such as `RING`.
    - `bw_intra`, `bw_inter`: GB/s of each channel inside the node and at its ports.
    - `type_intra`, `type_inter`: the worst path types allowed inside the node, and to ports.
    - `same_channels`: whether all channels have one order of GPUs.
    - `cross_nic`: 0: a channel leaves by the rail where it entered; 1: by any; 2: pairs of channels
      swap their ports.
    - `min_channels`, `max_channels`: the fewest and the most channels.
    - `collnet`: whether ports need a network that reduces.
    """

    pattern: int
    bw_intra: float
    bw_inter: float
    type_intra: int
    type_inter: int
    same_channels: bool
    cross_nic: int
    min_channels: int
    max_channels: int
    collnet: bool = False


@dataclass(frozen=True)
class Solution:
    """The best solution so far: the attempt that led to it, and its channels.

    - `n_hops`: the links that all its channels cross together.
    - `latency_inter`: the latency of its port in µs.
    """

    attempt: Attempt
    channels: tuple[Channel, ...] = ()
    n_hops: int = 0
    latency_inter: float = 0.0

    @property
    def n_channels(self) -> int:
        """The number of channels; 0 if there is no solution yet."""
        return len(self.channels)


@dataclass
class VisitBudget:
    """The number of visits of GPUs that a walk may still make; -1 if it found the best solution.

    `settled` is set if bounds, not the walk, showed that no better solution exists. How many visits
    the walk would have left is then not known.
    """

    left: int
    settled: bool = False

    @property
    def complete(self) -> bool:
        """Whether the walk ended with the best possible solution."""
        return self.left == -1


Score = tuple[float, float, int, float, int, int, int]
Needs = tuple[tuple[int, int], ...]
NO_TYPE = 99
TREES = (BALANCED_TREE, TREE, communicator.SPLIT_TREE)


class Arena:
    """The remaining capacities of one system during a search.

    Capacities are whole numbers of 1/1000 GB/s in flat lists, so that a hop is tried in a
    microsecond.
    """

    def __init__(self, table: PathTable, settings: Settings) -> None:
        graph = table.graph
        self.table = table
        self.facts = graph.facts
        self.gpus = table.gpus
        self.nets = table.nets
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
        types = [[self.type_of(gpu, net) for net in self.nets] for gpu in self.gpus]
        self.ports_by_type = [grouped(range(len(row)), row.__getitem__) for row in types]
        # By pattern, and by the other arguments of `next_gpus`, the results of that function.
        self.onwards: dict[int, dict[tuple[int, int, int, int], list[int]]] = {}
        self.scores: dict[tuple[int, int], list[Score]] = {}
        self.needs = cache(self._needs)

    def type_of(self, source: int, target: int) -> int:
        """Return the index of the type of the path between two nodes; `NO_TYPE` if there is no
        path.
        """
        path = self.table.paths.get((source, target))
        return path.type if path else NO_TYPE

    def hops(self, source: int, target: int) -> int:
        """Return the number of links of the path between two nodes; 0 if there is no path."""
        path = self.table.paths.get((source, target))
        return len(path.links) if path else 0

    def bandwidth(self, source: int, target: int) -> float:
        """Return the GB/s of the narrowest link on the path between two nodes; 0 without a path."""
        path = self.table.paths.get((source, target))
        return path.bandwidth if path else 0.0

    def left_of_gpu(self, gpu: int, type_intra: int) -> list[int]:
        """Return the remaining capacity, in 1/1000 GB/s, of each usable link out of a GPU.

        - `gpu`: index of the GPU.
        - `type_intra`: the worst path type allowed; it decides which kinds of link are usable.
        """
        graph = self.table.graph
        rank = self.facts.rank
        usable = {"NVL", "C2C", "PCI", "LOC"} if type_intra >= rank("PIX") else {"NVL", "C2C"}
        if type_intra <= rank("NVB"):
            usable = {"NVL"}
        out = graph.links_out[self.gpus[gpu]]
        return [self.left[link] for link in out if graph.links[link].kind in usable]

    def take(self, needs: Needs) -> bool:
        """Take what a hop needs from its links if all have enough; return whether they do.

        `needs` are pairs of a link and an amount in 1/1000 GB/s. NCCL: followPath in
        src/graph/search.cc.
        """
        left = self.left
        for link, amount in needs:
            if left[link] < amount:
                return False
        for link, amount in needs:
            left[link] -= amount
        return True

    def give_back(self, needs: Needs) -> None:
        """Undo a `take` of the same `needs`."""
        left = self.left
        for link, amount in needs:
            left[link] += amount

    def nvls_flows(self, head: int, amount: int, limit: int) -> Needs | None:
        """Return what one NVLS head takes from links: pairs of a link and an amount in 1/1000 GB/s.

        Each GPU sends to the switch and receives from it once, the head twice. None if a path is
        missing or too bad.

        - `head`: index of the head's GPU.
        - `amount`: the bandwidth of a channel in 1/1000 GB/s.
        - `limit`: the worst path type allowed.

        NCCL: ncclTopoSearchTryNvls.
        """
        switch = self.switches[0]
        flows = list[tuple[int, int]]()
        for inwards in (True, False):
            for index, gpu in enumerate(self.gpus):
                ends = (switch, gpu) if inwards else (gpu, switch)
                kind = self.type_of(*ends)
                times = 2 if index == head else 1
                if kind == NO_TYPE or (kind > limit and times == 1):
                    return None
                flows += self.needs(*ends, amount * times)
        return _summed(flows)

    def direct_flows(self, head: int, amount: int) -> Needs | None:
        """Return what one CollNetDirect head takes from links: pairs of a link and an amount.

        The head divides its bandwidth among the other GPUs of the node, from and to each of them.
        None if a path is missing.

        - `head`: index of the head's GPU.
        - `amount`: the bandwidth of a channel in 1/1000 GB/s.

        NCCL: ncclTopoSearchTryCollnetDirect.
        """
        node = self.gpus[head]
        flows = list[tuple[int, int]]()
        share = amount // max(1, len(self.gpus) - 1)
        others = [gpu for gpu in self.gpus if gpu != node]
        for ends in [(node, gpu) for gpu in others] + [(gpu, node) for gpu in others]:
            if self.type_of(*ends) == NO_TYPE:
                return None
            flows += self.needs(*ends, share)
        return _summed(flows)

    def _needs(self, source: int, target: int, amount: int) -> Needs:
        """Return what a flow takes from each link of a path, as pairs of a link and an amount.

        - `source`, `target`: the nodes at both ends of the path.
        - `amount`: the bandwidth of the flow, in 1/1000 GB/s like the result.

        PCIe flows through an Intel CPU cost 6/5. Flows into GPUs before Ampere also cost 1/8 in the
        other direction, for read requests.
        """
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
                taken.append((reverse_of(graph, index), -(-forward // 8)))
            if end.kind == "CPU" and link.kind == "NVL" and graph.cpu(link.target).arch == "ppc64":
                taken.append((reverse_of(graph, index), forward))
        return _summed(taken)

    def _crosses_intel(self, links: tuple[int, ...]) -> bool:
        """Return whether the links pass an Intel CPU."""
        graph = self.table.graph
        ends = (graph.links[index].target for index in links)
        cpus = (graph.cpu(end) for end in ends if graph.nodes[end].kind == "CPU")
        return any(cpu.arch == "x86_64" and cpu_vendor(cpu) == "Intel" for cpu in cpus)

    def _rail(self, net: int) -> tuple[str, str, int]:
        """Return a key that is equal for ports of one rail: the rail in the file, else the physical
        port.
        """
        port = self.table.graph.net(net)
        host = self.table.graph.nodes[net].host
        if port.rail is not None:
            return ("", "rail", port.rail)
        card = port.guid if int(port.guid, 16) else f"device {port.dev}"
        return (host, card, port.port)

    def _same_port(self, net: int) -> tuple[int, ...]:
        """Return the ports (by index) that are one physical port with `net`, itself included."""
        graph = self.table.graph
        port = graph.net(net)
        host = graph.nodes[net].host
        if not int(port.guid, 16):
            return (self.nets.index(net),)
        return tuple(
            index
            for index, other in enumerate(self.nets)
            if graph.nodes[other].host == host
            and (graph.net(other).guid, graph.net(other).port) == (port.guid, port.port)
        )

    def _pci_bandwidth(self, gpu: int) -> float:
        """Return the GB/s of the PCIe link of a GPU."""
        graph = self.table.graph
        links = (graph.links[index] for index in graph.links_out[gpu])
        return max((link.bandwidth for link in links if link.kind == "PCI"), default=0.0)


def _summed(needs: list[tuple[int, int]]) -> Needs:
    """Return the needs of each link added up, so that links can be checked one by one."""
    by_link = grouped(needs, itemgetter(0))
    return tuple((link, sum(amount for _, amount in some)) for link, some in by_link.items())


def total_bandwidth(arena: Arena) -> float:
    """Return the most GB/s that one GPU can send, over its NVLinks or its PCIe link (NCCL:
    getTotalBw).
    """
    graph = arena.table.graph
    out = ([graph.links[index] for index in graph.links_out[gpu]] for gpu in arena.gpus)
    nvlinks = (sum(link.bandwidth for link in links if link.kind == "NVL") for links in out)
    return max(0.0, *arena.pci_of_gpu, *nvlinks)


# The order in which the search tries ports and GPUs: the nearest first, by NCCL's scores. The order
# decides which of many equal solutions is found first, so it must be NCCL's.


def nets_of(arena: Arena, type_inter: int, gpus: Iterable[int]) -> list[int]:
    """Return the ports (by index) in the order in which a channel with these GPUs tries them.

    The GPUs' own ports come first, then the others by path type, up to `type_inter`. NCCL:
    ncclTopoSelectNets.
    """
    gpus = list(gpus)
    tried = [arena.local_ports[gpu] for gpu in gpus]
    for kind in range(type_inter + 1):
        tried += [arena.ports_by_type[gpu].get(kind, []) for gpu in gpus]
    return list(dict.fromkeys(chain.from_iterable(tried)))


def next_gpus(
    arena: Arena, pattern: int, gpu: int, used: int, entry_port: int, sort: int
) -> list[int]:
    """Return the GPUs to try after `gpu`, in NCCL's order (ncclTopoSearchNextGpuSort).

    GPUs and ports are indices.

    - `used`: bit mask of the GPUs that the channel has visited.
    - `entry_port`: the port at which the channel entered; -1 for none.
    - `sort`: 0: by the path from `gpu` to the next GPU. 1: first by the path from the next GPU to
      the port, because the channel leaves there. -1: by the path from `gpu`, and GPUs that are
      equally far by the path to the port, the farthest first, because the channel leaves later.
    """
    count = len(arena.gpus)
    if arena.switches:  # all GPUs are equally far; NCCL tries the neighbors by number only
        before = (gpu - 1) % count
        after = (gpu + 1) % count
        first = {
            RING: (before, after),
            communicator.SPLIT_TREE: (after, before),
            BALANCED_TREE: (after, before),
        }
        neighbors = dict.fromkeys(first.get(pattern, (after,)))
        return [peer for peer in neighbors if not used >> peer & 1]
    if (gpu, entry_port) not in arena.scores:
        peers = ((gpu + ahead) % count for ahead in range(1, count))
        all_scores = [_score(arena, gpu, peer, entry_port) for peer in peers]
        arena.scores[gpu, entry_port] = sorted(score for score in all_scores if score[4])
    scores = [score for score in arena.scores[gpu, entry_port] if not used >> score[-1] & 1]
    order = [score[-1] for score in scores]
    if sort == -1 and len({score[3:5] for score in scores}) == 1:
        order.reverse()
    return order


def _score(arena: Arena, gpu: int, peer: int, entry_port: int) -> Score:
    """Return the key by which GPU `peer` is sorted among those to try after `gpu`.

    It compares first the path from the entry port to the peer, then the path from `gpu`. All are
    indices.
    """
    source = arena.gpus[gpu]
    target = arena.gpus[peer]
    to_net = (0.0, 0.0, 0)
    if entry_port >= 0:
        port = arena.nets[entry_port]
        to_net = (-arena.bandwidth(port, target), -arena.pci_of_gpu[peer], arena.hops(port, target))
    ahead = (peer - gpu) % len(arena.gpus)
    to_peer = (-arena.bandwidth(source, target), arena.hops(source, target))
    return (*to_net, *to_peer, ahead, peer)


# Bounds on the channels of an attempt, from capacities alone. With them the search skips walks that
# cannot improve the solution; its result does not change.


def cannot_improve(arena: Arena, attempt: Attempt, channel_limit: int, best: Solution) -> bool:
    """Return whether an attempt cannot lead to a better solution than `best`.

    `channel_limit` is the most channels that it can have. They may be too few for the request, or
    cannot be better than those of `best`.
    """
    if channel_limit < attempt.min_channels or channel_limit == 0:
        return True
    if not best.n_channels:
        return False
    best_attempt = best.attempt
    if attempt.pattern == NVLS:
        wider = channel_limit * attempt.bw_inter > best.n_channels * best_attempt.bw_inter
        return channel_limit <= best.n_channels and not wider
    gain = channel_limit * attempt.bw_intra - best.n_channels * best_attempt.bw_intra
    if gain or (attempt.pattern, attempt.cross_nic) != (
        best_attempt.pattern,
        best_attempt.cross_nic,
    ):
        return gain <= 0
    return channel_limit * fewest_hops(arena, attempt) >= best.n_hops


def most_channels(arena: Arena, attempt: Attempt) -> int:
    """Return an upper bound on the channels of an attempt, from capacities of ports and GPUs
    alone.
    """
    intra = round(attempt.bw_intra * 1000)
    inter = round(attempt.bw_inter * 1000)
    most = attempt.max_channels
    if arena.nets:
        ports = set(arena.ports)
        most = min(most, sum(_through_port(arena, port, attempt, inter) for port in ports))
    count = len(arena.gpus)
    if count == 1:
        return most
    slots = [arena.left_of_gpu(gpu, attempt.type_intra) for gpu in range(count)]
    if attempt.pattern == NVLS:
        return min(most, max(map(sum, slots)) // intra - 1)
    out = [sum(left // min(intra, inter) for left in links) for links in slots]
    # A ring inside a node has a hop from every GPU; other channels have none from their last GPU,
    # which may be another one on each channel.
    closed = attempt.pattern == RING and not arena.nets
    return min(most, min(out) if closed else sum(out) // (count - 1))


def fewest_hops(arena: Arena, attempt: Attempt) -> int:
    """Return a lower bound on the number of links that one channel crosses."""
    gpus = arena.gpus
    nets = arena.nets
    inside = (arena.hops(source, target) for source in gpus for target in gpus if source != target)
    hop = min((hops for hops in inside if hops), default=0)
    ring = attempt.pattern == RING
    total = hop * (len(gpus) - 1 + (ring and not nets))
    if nets:
        rails = arena.rails if attempt.cross_nic == 0 else [("", "", 0)] * len(nets)
        ports_by_rail = grouped(range(len(nets)), rails.__getitem__).values()
        total += min(
            _outside(arena, ports, apart=ring and len(gpus) > 1) for ports in ports_by_rail
        )
    return total


def _outside(arena: Arena, ports: Iterable[int], *, apart: bool) -> int:
    """Return the fewest links that a channel crosses outside the GPUs: from a port and to a port.

    - `ports`: indices of the ports that it may enter and leave by.
    - `apart`: whether it leaves from another GPU than the one where it entered, as a ring does.
    """
    nets = [arena.nets[port] for port in ports]
    into = sorted((min(arena.hops(net, gpu) for net in nets), gpu) for gpu in arena.gpus)[:2]
    out = sorted((min(arena.hops(gpu, net) for net in nets), gpu) for gpu in arena.gpus)[:2]
    return min(a + b for a, first in into for b, last in out if first != last or not apart)


def _through_port(arena: Arena, nets: tuple[int, ...], attempt: Attempt, inter: int) -> int:
    """Return the most channels that fit through a physical port.

    - `nets`: the indices of the ports that it consists of.
    - `inter`: the bandwidth of a channel in 1/1000 GB/s.
    """
    whole_bandwidth = int(attempt.bw_inter)
    links = arena.table.graph.links_out
    inwards = [sum(arena.left[link] for link in links[arena.nets[net]]) for net in nets]
    most = max(inwards) // inter * len(nets)
    return (
        min(most, max(int(arena.port_left[net]) // whole_bandwidth for net in nets))
        if whole_bandwidth
        else most
    )


# Attempts that would take the same walk; one of them suffices.

WalkKey = tuple[Attempt, tuple[int, ...]]


@dataclass(frozen=True)
class PresentTypes:
    """The types of the paths that occur in a system.

    Limits on path types differ in their effect only if a type between them occurs.
    """

    inside: frozenset[int]  # between GPUs (and NVSwitches) of the node
    either_way: frozenset[int]  # between GPUs and ports; each direction counts by itself
    both_ways: frozenset[int]  # the worse direction of every GPU and port, as trees use both
    at_starts: frozenset[int]  # as `both_ways`, only of GPUs at which a port's channel may start


def present_types(arena: Arena) -> PresentTypes:
    """Return the path types that occur in a system, by the kinds of limits on them."""
    ends = (*arena.gpus, *arena.switches)
    inside = {arena.type_of(source, target) for source in ends for target in ends}
    out = set[int]()
    into = set[int]()
    both_ways = set[int]()
    at_starts = set[int]()
    for port, net in enumerate(arena.nets):
        starts = {0, arena.gpu_of_net[port], *arena.near_gpus[port]}
        for gpu, node in enumerate(arena.gpus):
            type_out = arena.type_of(node, net)
            type_in = arena.type_of(net, node)
            out.add(type_out)
            into.add(type_in)
            both_ways.add(max(type_out, type_in))
            if gpu in starts:
                at_starts.add(max(type_out, type_in))
    return PresentTypes(*(frozenset(kinds) for kinds in (inside, out | into, both_ways, at_starts)))


def walk_key(arena: Arena, kinds: PresentTypes, attempt: Attempt) -> WalkKey:
    """Return a key that is equal for attempts whose walks take the same steps.

    Path types that do not occur make no difference, nor do types of ports that a tree cannot use.
    `kinds` are the types that occur.
    """
    nets = nets_of(arena, attempt.type_inter, range(len(arena.gpus)))
    outside = kinds.either_way
    if attempt.pattern in TREES:
        outside = kinds.both_ways
    # A channel of pattern TREE leaves by the port and the GPU where it entered, so that
    # `cross_nic` makes no difference.
    is_plain_tree = attempt.pattern == TREE and not attempt.same_channels
    if is_plain_tree:
        outside = kinds.at_starts
        attempt = replace(attempt, cross_nic=0)
    intra = _widest(kinds.inside, attempt.type_intra)
    inter = _widest(outside, attempt.type_inter)
    return replace(attempt, type_intra=intra, type_inter=inter), tuple(nets)


def _widest(kinds: frozenset[int], limit: int) -> int:
    """Return the worst type that occurs and is at most `limit`; 0 if there is none."""
    return max((kind for kind in kinds if kind <= limit), default=0)


Walk = Iterator["Walk"]
FREE = 0
IN_ORDER = 1
REPLAY = 2
REFERENCE_VISITS = 1 << 10


class Hop(NamedTuple):
    """What one hop takes: capacity of links (pairs of link and amount), and the number of links."""

    needs: Needs
    links: int


class Start(NamedTuple):
    """A way to begin a channel.

    - `net`: the port (-1: none).
    - `gpu`: the first GPU.
    - `order`: in which order to visit the others: `FREE`, `IN_ORDER` of their numbers, or `REPLAY`
      of the channel before.
    """

    net: int
    gpu: int
    order: int


class Walker:
    """Walks one attempt by backtracking and stores the best solution (ncclTopoSearchRec).

    A channel visits all GPUs, and enters and leaves by a port if there is a network. A step is the
    number of a GPU in its channel, from 0 on. Every visit costs one unit of a budget. The walk uses
    an explicit stack, so that its depth is not limited by Python's. It stops when nothing better is
    possible or, with `in_full`, when NCCL would stop.
    """

    def __init__(self, arena: Arena, attempt: Attempt, best: Solution, *, in_full: bool) -> None:
        self.arena = arena
        self.attempt = attempt
        self.best = best
        self.in_full = in_full
        self.most = most_channels(arena, attempt)
        self.n_gpus = len(arena.gpus)
        self.orders: list[list[int]] = []
        self.channel_ports: list[list[int]] = []
        self.used: list[int] = []
        self.n_hops = 0
        self.latency = 0.0
        self.intra = round(attempt.bw_intra * 1000)
        self.inter = round(attempt.bw_inter * 1000)
        self.whole_bandwidth = int(attempt.bw_inter)  # GB/s that a channel takes from its port
        self.has_heads = attempt.pattern in (NVLS, communicator.COLLNET_DIRECT)
        # The step at which a channel leaves by a port; -1: never.
        leaves = {RING: self.n_gpus - 1, communicator.SPLIT_TREE: 1}
        self.exit_step = leaves.get(attempt.pattern, 0) if arena.nets else -1
        self._hop = cache(self._allowed_hop)
        self.inside: list[dict[int, Hop | None]] = [{} for _ in range(self.n_gpus)]
        self.onwards = arena.onwards.setdefault(attempt.pattern, {})
        self._head = cache(self._hop_of_head)
        self.nets = [nets_of(arena, attempt.type_inter, (gpu,)) for gpu in range(self.n_gpus)]
        self.all_nets = nets_of(arena, attempt.type_inter, range(self.n_gpus))

    def run(self, budget: VisitBudget) -> Solution:
        """Search until the budget is spent or the solution is the best possible; return the best
        solution.
        """
        stack = [self._channel(budget)]
        while stack:
            below = next(stack[-1], None)
            if below is None:
                stack.pop()
            else:
                stack.append(below)
        return self.best

    def _channel(self, budget: VisitBudget) -> Walk:
        """Begin a channel at each possible start (ncclTopoSearchRecNet, ncclTopoSearchTryGpu)."""
        number = len(self.orders)
        starts = self._starts(number)
        self.orders.append([])
        self.channel_ports.append([-1, -1])
        self.used.append(0)
        for net, gpu, order in starts:
            if budget.left <= 0:
                break
            entry_hop = (
                self._hop(self.arena.nets[net], gpu, self.inter, 1) if net >= 0 else Hop((), 0)
            )
            if entry_hop is None or not self.arena.take(entry_hop.needs):
                continue
            # As in NCCL, a walk with GPUs in order of number comes first, with a budget of its own.
            visits = VisitBudget(REFERENCE_VISITS) if order == IN_ORDER and net >= 0 else budget
            self._take_port(net)
            self.n_hops += entry_hop.links
            self.used[number] = 1 << gpu
            yield self._visit(gpu, 0, self.exit_step, visits, order)
            self.n_hops -= entry_hop.links
            self._return_port(net)
            self.arena.give_back(entry_hop.needs)
            if visits.complete or visits.settled:
                budget.left = visits.left
                budget.settled = visits.settled
        self.orders.pop()
        self.channel_ports.pop()
        self.used.pop()

    def _take_port(self, net: int) -> None:
        """Let the channel enter by the port with this index (-1: none), and take its bandwidth."""
        if net >= 0:
            self.channel_ports[-1][0] = net
            self.latency = self.arena.latency[net]
            for port in self.arena.ports[net]:
                self.arena.port_left[port] -= self.whole_bandwidth

    def _return_port(self, net: int) -> None:
        """Undo `_take_port`."""
        if net >= 0:
            for port in self.arena.ports[net]:
                self.arena.port_left[port] += self.whole_bandwidth

    def _starts(self, number: int) -> list[Start]:
        """Return the possible starts of channel number `number`, in NCCL's order."""
        attempt = self.attempt
        everyone = range(self.n_gpus)
        last = self.orders[number - 1][0] if number else 0
        if self.arena.nets:
            turns = range(number, number + len(self.all_nets))
            nets = [self.all_nets[turn % len(self.all_nets)] for turn in turns]
            return [start for net in nets for start in self._starts_at(number, net, last)]
        if attempt.pattern == NVLS:
            return [Start(-1, number, FREE)]
        first = Start(-1, last, REPLAY if number else IN_ORDER)
        if number and attempt.same_channels:
            return [first]
        return [first, *(Start(-1, gpu, FREE) for gpu in everyone)]

    def _starts_at(self, number: int, net: int, last: int) -> list[Start]:
        """Return the possible starts of channel number `number` if it enters by the port `net`.

        `last` is the first GPU of the channel before.
        """
        attempt, arena, local_gpu = self.attempt, self.arena, self.arena.gpu_of_net[net]
        if arena.port_left[net] < self.whole_bandwidth or (
            attempt.collnet and not arena.collective[net]
        ):
            return []
        is_second_of_pair = attempt.pattern == RING and attempt.cross_nic == 2 and number & 1
        if is_second_of_pair and net != self.channel_ports[number - 1][1]:
            return []
        if attempt.pattern in (NVLS, communicator.COLLNET_DIRECT):
            is_free_head = number < len(self.all_nets) and local_gpu not in [
                o[0] for o in self.orders
            ]
            return [Start(net, local_gpu, FREE)] if is_free_head and local_gpu >= 0 else []
        if number and attempt.same_channels:
            return [Start(net, last, REPLAY)]
        reference = [] if number or arena.switches else [Start(net, 0, IN_ORDER)]
        start_gpus = dict.fromkeys(
            [local_gpu, *arena.near_gpus[net]] if local_gpu >= 0 else arena.near_gpus[net]
        )
        return reference + [Start(net, gpu, FREE) for gpu in start_gpus]

    def _visit(self, gpu: int, step: int, leave: int, budget: VisitBudget, order: int) -> Walk:
        """Visit a GPU as number `step` of the channel, then leave by a port or go to the next GPU.

        - `gpu`: index of the GPU.
        - `leave`: the step at which the channel leaves by a port; -1: never, or it has left
          already.
        - `budget`: the visits that remain.
        - `order`: in which order GPUs are visited, as in `Start`.

        NCCL: ncclTopoSearchRecGpu.
        """
        if budget.left <= 0:
            return
        budget.left -= 1
        path = self.orders[-1]
        del path[step:]
        path.append(gpu)
        if step != leave and step < self.n_gpus - 1 and not self.has_heads:
            used = self.used
            arena = self.arena
            hops = self.inside[gpu]
            for following in self._following(gpu, step, leave, order):
                if following not in hops:
                    hops[following] = self._hop(arena.gpus[gpu], following, self.intra)
                hop = hops[following]
                if hop is None or budget.left <= 0 or not arena.take(hop.needs):
                    continue
                self.n_hops += hop.links
                used[-1] ^= 1 << following
                yield self._visit(following, step + 1, leave, budget, order)
                used[-1] ^= 1 << following
                self.n_hops -= hop.links
                arena.give_back(hop.needs)
        elif step == leave:
            yield self._leave(gpu, step, budget, order)
        elif self.has_heads:
            yield self._end(self._head(gpu), budget)
        elif self.attempt.pattern == RING and not self.arena.nets:
            yield self._end(self._hop(self.arena.gpus[gpu], path[0], self.intra), budget)
        else:
            yield self._finish(budget)

    def _following(self, gpu: int, step: int, leave: int, order: int) -> list[int]:
        """Return the GPUs to try after a GPU; the arguments are those of `_visit`."""
        if order == IN_ORDER:
            return [step + 1]
        if order == REPLAY:
            return [self.orders[-2][step + 1]]
        if leave < 0:
            sort = 0
        else:
            sort = 1 if leave == step + 1 else -1
        key = (gpu, self.used[-1], self.channel_ports[-1][0] if sort else -1, sort)
        if key not in self.onwards:
            self.onwards[key] = next_gpus(self.arena, self.attempt.pattern, *key)
        return self.onwards[key]

    def _end(self, hop: Hop | None, budget: VisitBudget) -> Walk:
        """Finish a channel by a last hop, and continue the walk if its links have room for it.

        The last hop leads back to the channel's first GPU, or is the traffic of a head.
        """
        if hop is None or not self.arena.take(hop.needs):
            return
        self.n_hops += hop.links
        yield self._finish(budget)
        self.n_hops -= hop.links
        self.arena.give_back(hop.needs)

    def _leave(self, gpu: int, step: int, budget: VisitBudget, order: int) -> Walk:
        """Let the channel leave from `gpu` by each possible port in turn, and continue the walk.

        A channel with pattern BALANCED_TREE leaves twice by the same port, at step 0 and at step 1,
        with half of its bandwidth each time. The arguments are those of `_visit`.
        """
        arena = self.arena
        ports = self.channel_ports[-1]
        is_balanced = self.attempt.pattern == BALANCED_TREE
        amount = self.inter // 2 if is_balanced else self.inter
        for net in self.nets[gpu]:
            if not self._may_leave(net) or (is_balanced and step > 0 and net != ports[1]):
                continue
            hop = self._hop(arena.gpus[gpu], net, amount, 2)
            if hop is None or budget.left <= 0 or not arena.take(hop.needs):
                continue
            self.n_hops += hop.links
            ports[1] = net
            yield self._visit(gpu, step, 1 if is_balanced and step == 0 else -1, budget, order)
            self.n_hops -= hop.links
            arena.give_back(hop.needs)

    def _may_leave(self, net: int) -> bool:
        """Return whether the channel may leave by the port `net`, given where it entered."""
        entry = self.channel_ports[-1][0]
        if self.attempt.pattern == TREE and net != entry:
            return False
        if self.attempt.pattern == RING and self.attempt.cross_nic == 2:
            return len(self.channel_ports) & 1 == 1 or net == self.channel_ports[-2][0]
        rails = self.arena.rails
        return self.attempt.cross_nic != 0 or rails[net] == rails[entry]

    def _hop_of_head(self, gpu: int) -> Hop | None:
        """Return the traffic of a head (of NVLS or CollNetDirect) with all GPUs of its node, as one
        hop.

        None if a path is missing or too bad.
        """
        if self.attempt.pattern == NVLS:
            needs = self.arena.nvls_flows(gpu, self.intra, self.attempt.type_intra)
        else:
            needs = self.arena.direct_flows(gpu, self.intra)
        return None if needs is None else Hop(needs, len(needs))

    def _allowed_hop(self, source: int, end: int, amount: int, way: int = 0) -> Hop | None:
        """Return the hop from a node to a GPU or port; None if the path type is worse than allowed.

        - `source`: the node of the graph where the hop begins.
        - `end`: the index of the GPU or port where it ends.
        - `amount`: the bandwidth of the channel in 1/1000 GB/s.
        - `way`: 0: from a GPU to a GPU; 1: from a port to a GPU; 2: from a GPU to a port.
        """
        arena = self.arena
        target = arena.nets[end] if way == 2 else arena.gpus[end]
        limit = self.attempt.type_inter if way else self.attempt.type_intra
        kind = arena.type_of(source, target)
        if self.attempt.pattern in TREES:
            kind = max(kind, arena.type_of(target, source))
        if kind == NO_TYPE or kind > limit:
            return None
        return Hop(arena.needs(source, target, amount), arena.hops(source, target))

    def _finish(self, budget: VisitBudget) -> Walk:
        """Compare the finished channels with the best solution, then search for one more
        channel.
        """
        if budget.left <= 0:
            return
        budget.left -= 1
        count = len(self.orders)
        if self._better(count):
            self.best = Solution(self.attempt, self._channels(), self.n_hops, self.latency)
            if count == self.attempt.max_channels:
                budget.left = -1
            elif not self.in_full and cannot_improve(
                self.arena, self.attempt, self.most, self.best
            ):
                budget.left = 0
                budget.settled = True
        if count < self.attempt.max_channels:
            yield self._channel(budget)

    def _better(self, count: int) -> bool:
        """Return whether the present `count` channels are better than the best solution
        (ncclTopoCompareGraphs).
        """
        attempt = self.attempt
        best = self.best
        if count < attempt.min_channels:
            return False
        if attempt.pattern == NVLS:
            has_more_channels = best.n_channels < count <= self.n_gpus
            return (
                has_more_channels
                or count * attempt.bw_inter > best.n_channels * best.attempt.bw_inter
            )
        old = best.attempt
        gain = count * attempt.bw_intra - best.n_channels * old.bw_intra
        is_same_kind = (attempt.pattern, attempt.cross_nic) == (old.pattern, old.cross_nic)
        return gain > 0 or (gain == 0 and is_same_kind and self.n_hops < best.n_hops)

    def _channels(self) -> tuple[Channel, ...]:
        """Return the channels of the present walk."""
        local = self.arena.table.graph.local_ranks
        orders = (tuple(local[gpu] for gpu in order) for order in self.orders)
        if not self.arena.nets:
            return tuple(Channel(order) for order in orders)
        pairs = zip(orders, self.channel_ports, strict=True)
        return tuple(Channel(order, (ports[0], ports[1])) for order, ports in pairs)


# The search on one node: it starts from the best conceivable requirements and relaxes one after the
# other until there is a solution, then doubles channels or increases their speed.

ALL_VISITS = 1 << 19
VISITS = 1 << 14
VISITS_SAME = 1 << 8
MOST_COLLNET_HEADS = 8
FALLBACK_SPEED = 0.1  # GB/s of the single channel if there is no solution


@dataclass(frozen=True)
class Request:
    """The graph that is wanted.

    - `pattern`: NCCL's number for the shape of its channels.
    - `min_channels`, `max_channels`: the fewest and the most channels.
    - `collnet`: whether its ports need a network that reduces.
    """

    pattern: int
    min_channels: int
    max_channels: int
    collnet: bool = False


def search(arena: Arena, request: Request, settings: Settings = NO_SETTINGS) -> ChannelGraph:
    """Return the graph that NCCL finds for a request, with its channels in order
    (ncclTopoCompute).
    """
    # NVLS and CollNet have at most one head per GPU.
    gpus = len(arena.gpus)
    pattern = request.pattern
    most = request.max_channels
    if pattern == NVLS:
        most = min(arena.facts.nvls_heads, gpus)
    if pattern == communicator.COLLNET_DIRECT:
        most = min(MOST_COLLNET_HEADS, gpus)
    if gpus == 1 and pattern != RING:
        pattern = TREE
    least = most if pattern == NVLS and not arena.nets else request.min_channels
    request = replace(request, pattern=pattern, min_channels=least, max_channels=most)
    if request.pattern == NVLS and (not arena.switches or arena.min_cc < 90):
        return _no_channels(request)
    ladder = _Relaxation(arena, request, settings)
    ladder.relax()
    ladder.double()
    ladder.speed_up()
    return _graph(arena, request, ladder.best)


class _Relaxation:
    """The state of one search: the current attempt, the best solution, and the visits that
    remain.
    """

    def __init__(self, arena: Arena, request: Request, settings: Settings) -> None:
        self.arena = arena
        self.request = request
        row = arena.facts.inter_speeds if arena.nets else arena.facts.intra_speeds
        self.speeds = row[architecture(arena.min_cc, row)]
        ends = ((gpu, end) for gpu in arena.gpus for end in arena.nets or arena.gpus if gpu != end)
        self.widest = max((arena.bandwidth(*pair) for pair in ends), default=0.0)
        self.total = total_bandwidth(arena)
        self.types = _type_limits(arena)
        self.cross_nic = settings.cross_nic if len(arena.nets) > 1 else 0
        self.speed_index = self._first_speed()
        self.start = Attempt(
            pattern=request.pattern,
            bw_intra=self.speeds[self.speed_index],
            bw_inter=self.speeds[self.speed_index],
            type_intra=self.types[0],
            type_inter=self.types[2],
            same_channels=request.pattern != NVLS,
            cross_nic=int(self.cross_nic == 1),
            min_channels=request.min_channels,
            max_channels=request.max_channels,
            collnet=request.collnet,
        )
        self.current = self.start
        self.best = Solution(replace(self.start, bw_intra=0.0, bw_inter=0.0))
        self.visits_left = ALL_VISITS
        self.deferred: list[Attempt] = []
        self.results: dict[WalkKey, VisitBudget] = {}
        self.kinds = present_types(arena)

    def _first_speed(self) -> int:
        """Return the index of the highest speed in NCCL's table that a channel could have.

        No path and no GPU may be too slow for it.
        """
        gpus = len(self.arena.gpus)
        total = self.total
        if gpus > 1 and self.request.pattern != RING:
            total *= gpus / (gpus - 1)
        least = self.request.min_channels
        indexes = range(len(self.speeds))
        fits = (
            n for n in indexes if self.speeds[n] <= self.widest and self.speeds[n] * least <= total
        )
        return next(fits, indexes[-1])

    def relax(self) -> None:
        """Pass 1: try attempts; while there is no solution, relax one requirement."""
        following: Attempt | None = self.current
        while following is not None:
            self.current = following
            budget = self._try()
            if budget.complete or self.best.n_channels * self.best.attempt.bw_inter >= self.total:
                return
            following = self._relaxed(budget)

    def _try(self) -> VisitBudget:
        """Walk the current attempt, unless bounds show that it cannot improve the solution."""
        full = VISITS_SAME if self.current.same_channels else VISITS
        if cannot_improve(
            self.arena, self.current, most_channels(self.arena, self.current), self.best
        ):
            self.deferred.append(self.current)
            self.visits_left -= full
            return VisitBudget(0)
        if self.deferred and self.visits_left < 0 and self.best.n_channels:
            # NCCL would have walked the deferred attempts: walk them to count the visits left.
            for attempt in self.deferred:
                left = self._walk(attempt, in_full=True).left
                if not attempt.same_channels or self._keeps_channels(attempt):
                    self.visits_left += left
            self.deferred.clear()
            if self.visits_left < 0:
                return VisitBudget(-1)
        self.visits_left -= full
        budget = self._walk(self.current, in_full=False)
        if budget.settled:
            self.deferred.append(self.current)
        return budget

    def _walk(self, attempt: Attempt, *, in_full: bool) -> VisitBudget:
        """Walk an attempt and keep its solution if it is better; return the budget after the walk.

        If an attempt with the same walk has been tried, its budget is returned without a walk,
        which could not improve anything. `in_full`: the walk ends when NCCL would end it.
        """
        key = walk_key(self.arena, self.kinds, attempt)
        budget = self.results.get(key)
        if budget is None or (in_full and budget.settled):
            budget = VisitBudget(VISITS_SAME if attempt.same_channels else VISITS)
            self.best = Walker(self.arena, attempt, self.best, in_full=in_full).run(budget)
            self.results[key] = budget
        return budget

    def _keeps_channels(self, attempt: Attempt) -> bool:
        """Return whether NCCL keeps equal channels for an attempt: on AMD CPUs with paths between
        sockets.
        """
        sockets = attempt.type_intra == self.arena.facts.rank("SYS")
        return self.arena.cpu == ("x86_64", "AMD") and sockets

    def _relaxed(self, budget: VisitBudget) -> Attempt | None:
        """Return the attempt after the current one, or None if there is none.

        Requirements change like the digits of a counter: when the last value of one has been tried,
        it gets its first value again and the next requirement changes. `budget` is what the current
        walk has left.
        """
        now = self.current
        start = self.start
        if now.same_channels and not self._keeps_channels(now):
            return replace(now, same_channels=False)
        now = replace(now, same_channels=start.same_channels)
        self.visits_left += budget.left
        if self.visits_left < 0 and self.best.n_channels and not self.deferred:
            return None
        if self.arena.min_cc >= 90 and now.pattern == BALANCED_TREE:
            return replace(now, pattern=TREE)
        now = replace(now, pattern=start.pattern)
        widest = now.type_inter if self.arena.nets else self.types[1]
        if now.type_intra < widest and self._may_improve(now.type_intra, intra=True):
            return replace(now, type_intra=now.type_intra + 1)
        now = replace(now, type_intra=start.type_intra)
        near = now.type_inter < self.arena.facts.rank("PXN")
        wider = near or self._may_improve(now.type_inter, intra=False)
        if self.arena.nets and now.type_inter < self.types[3] and wider:
            return replace(now, type_inter=now.type_inter + 1)
        now = replace(now, type_inter=start.type_inter)
        rails = self.cross_nic == 2 and now.cross_nic == 0
        if rails and self.request.pattern in (RING, BALANCED_TREE):
            return replace(now, cross_nic=2)
        return self._slower(replace(now, cross_nic=start.cross_nic))

    def _may_improve(self, kind: int, *, intra: bool) -> bool:
        """Return whether a worse path type than `kind` may still give a better solution.

        `intra`: whether `kind` is the path type inside the node, and not that to ports.
        """
        best = self.best.attempt
        return not self.best.n_channels or kind < (best.type_intra if intra else best.type_inter)

    def _slower(self, now: Attempt) -> Attempt | None:
        """Return the attempt `now` with the next lower speed.

        None if there is none, or if it is less than half of the best solution's.
        """
        if self.speed_index + 1 >= len(self.speeds):
            return None
        speed = self.speeds[self.speed_index + 1]
        if self.best.n_channels and speed / self.best.attempt.bw_inter <= 0.49:
            return None
        self.speed_index += 1
        return replace(now, bw_intra=speed, bw_inter=speed)

    def double(self) -> None:
        """Split wide channels in two, so that more SMs share the work (ncclTopoDupChannels)."""
        best, count = self.best, self.best.n_channels
        intra = best.attempt.bw_intra
        most = self.request.max_channels
        hopper_full = self.arena.min_cc > 80 and intra < 50 and count > 4
        if not count or self.request.pattern == NVLS or intra < 25 or hopper_full:
            return
        doubled = (best.channels * 2)[:most]
        parts = -(-len(doubled) // count)
        inter = best.attempt.bw_inter / parts
        attempt = replace(best.attempt, bw_intra=intra / parts, bw_inter=inter)
        self.best = replace(best, channels=doubled, attempt=attempt)

    def speed_up(self) -> None:
        """Pass 2: keep the number of channels and try higher speeds."""
        best = self.best.attempt
        fitting = (rung for rung, speed in enumerate(self.speeds) if speed <= best.bw_inter)
        self.speed_index = next(fitting, len(self.speeds) - 1)
        speed = self.speeds[self.speed_index]
        count = self.best.n_channels
        self.current = replace(best, bw_intra=speed, bw_inter=speed, min_channels=count)
        self.results.clear()
        budget = VisitBudget(1)
        while self.speed_index > 0 and (budget.complete or budget.left > 0):
            following = self._faster(self.speeds[self.speed_index - 1])
            if following is None or most_channels(self.arena, following) < count:
                return  # this number of channels does not fit at higher speeds either
            self.current = following
            self.speed_index -= 1
            budget = self._walk(self.current, in_full=True)

    def _faster(self, speed: float) -> Attempt | None:
        """Return the current attempt with a higher speed (GB/s); None if its pattern has none."""
        now = self.current
        best = self.best.attempt
        if best.pattern == RING:
            return replace(now, bw_intra=speed, bw_inter=speed)
        if best.pattern == NVLS and now.bw_inter == best.bw_inter < now.bw_intra * 2:
            count = self.best.n_channels
            return replace(now, bw_inter=speed, min_channels=count, max_channels=count)
        if now.bw_intra == best.bw_intra < now.bw_inter * 2:
            return replace(now, bw_intra=speed)
        return None


def _type_limits(arena: Arena) -> tuple[int, int, int, int]:
    """Return four path types as indices: best and worst between GPUs, best and worst to ports."""
    rank = arena.facts.rank
    inside = [
        arena.type_of(source, target)
        for source in arena.gpus
        for target in arena.gpus
        if source != target
    ]
    outside = [arena.type_of(gpu, net) for gpu in arena.gpus for net in arena.nets]
    outside += [arena.type_of(net, gpu) for gpu in arena.gpus for net in arena.nets]
    least, most = (min(inside), max(inside)) if inside else (rank("LOC"), rank("SYS"))
    near, far = (min(outside), max(outside)) if outside else (rank("PIX"), rank("SYS"))
    return least, min(most, rank("SYS")), near, min(far, rank("SYS"))


def _no_channels(request: Request) -> ChannelGraph:
    """Return a graph without channels."""
    return ChannelGraph(request.pattern, 0, 0.0, 0.0, "DIS", "DIS", same_channels=False)


def _graph(arena: Arena, request: Request, solution: Solution) -> ChannelGraph:
    """Return the graph of a solution.

    Without a solution it is a single slow channel over all GPUs in order, as in NCCL.
    """
    attempt = solution.attempt
    types = arena.facts.path_types
    if not solution.n_channels and (request.collnet or request.pattern == NVLS):
        return _no_channels(request)
    if not solution.n_channels:
        channel_in_order = Channel(tuple(range(len(arena.gpus))), (0, 0) if arena.nets else None)
        slow = FALLBACK_SPEED
        return ChannelGraph(
            request.pattern, 1, slow, slow, "SYS", "SYS", True, channels=(channel_in_order,)
        )
    return ChannelGraph(
        pattern=attempt.pattern,
        n_channels=solution.n_channels,
        bw_intra=attempt.bw_intra,
        bw_inter=attempt.bw_inter,
        type_intra=types[attempt.type_intra],
        type_inter=types[attempt.type_inter],
        same_channels=attempt.same_channels,
        cross_nic=attempt.cross_nic,
        latency_inter=solution.latency_inter,
        channels=solution.channels,
    )
