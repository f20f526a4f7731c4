"""NCCL's search of channels on the graph of a node (NCCL: src/graph/search.cc).

It tries patterns, path types and speeds in NCCL's order, gives up one wish after the other until a
solution exists, and then tries higher speeds (ncclTopoCompute)."""

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
    """What one attempt looks for: the pattern, GB/s a channel, the worst types it may use."""

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
class Found:
    """The best solution so far: the attempt that found it and its channels."""

    attempt: Attempt
    channels: tuple[Channel, ...] = ()
    n_hops: int = 0
    latency_inter: float = 0.0

    @property
    def n_channels(self) -> int:
        """Channels found; 0 before anything is."""
        return len(self.channels)


@dataclass
class VisitBudget:
    """Visits that are left; -1 once nothing better can be found. Where bounds have `settled` that,
    how many the walk would have left is not known."""

    left: int
    settled: bool = False

    @property
    def complete(self) -> bool:
        """Whether the walk ended with the best there is."""
        return self.left == -1


# What the channel search takes bandwidth from: links with what is left, hops with their needs.
# Flat arrays of whole numbers (1/1000 GB/s), so that a hop is tried in a microsecond. Made once
# for a system; knows nothing of channels and of their order.

Score = tuple[float, float, int, float, int, int, int]
Needs = tuple[tuple[int, int], ...]
NO_TYPE = 99
TREES = (BALANCED_TREE, TREE, communicator.SPLIT_TREE)


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
        types = [[self.type_of(gpu, net) for net in self.nets] for gpu in self.gpus]
        self.ports_by_type = [grouped(range(len(row)), row.__getitem__) for row in types]
        # By pattern: where to go from a GPU, given those used, the port and when it comes.
        self.onwards: dict[int, dict[tuple[int, int, int, int], list[int]]] = {}
        self.scores: dict[tuple[int, int], list[Score]] = {}
        self.needs = cache(self._needs)

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

    def take(self, needs: Needs) -> bool:
        """Take what a hop needs from every link of it, or nothing (NCCL: ncclTopoFollowPath)."""
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

    def nvls_flows(self, head: int, amount: int, limit: int) -> Needs | None:
        """What one NVLS head takes: every GPU to and from the switch once, itself twice.

        NCCL: ncclTopoSearchTryNvls."""
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
        """What one CollNet head takes: its share from and to every other GPU of the node.

        NCCL: ncclTopoSearchTryCollnetDirect."""
        node, flows = self.gpus[head], list[tuple[int, int]]()
        share = amount // max(1, len(self.gpus) - 1)
        others = [gpu for gpu in self.gpus if gpu != node]
        for ends in [(node, gpu) for gpu in others] + [(gpu, node) for gpu in others]:
            if self.type_of(*ends) == NO_TYPE:
                return None
            flows += self.needs(*ends, share)
        return _summed(flows)

    def _needs(self, source: int, target: int, amount: int) -> Needs:
        """What a flow of `amount` takes on each link of the path, in the order of the path. PCIe
        flows through an Intel CPU cost 6/5; into old GPUs 1/8 comes back as requests."""
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
        graph = self.table.graph
        ends = (graph.links[index].target for index in links)
        cpus = (graph.cpu(end) for end in ends if graph.nodes[end].kind == "CPU")
        return any(cpu.arch == "x86_64" and cpu_vendor(cpu) == "Intel" for cpu in cpus)

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
    by_link = grouped(needs, itemgetter(0))
    return tuple((link, sum(amount for _, amount in some)) for link, some in by_link.items())


def total_bandwidth(arena: Arena) -> float:
    """What one GPU can send in total: its NVLinks together or its PCIe link (NCCL: getTotalBw)."""
    graph = arena.table.graph
    out = ([graph.links[index] for index in graph.links_out[gpu]] for gpu in arena.gpus)
    nvlinks = (sum(link.bandwidth for link in links if link.kind == "NVL") for links in out)
    return max(0.0, *arena.pci_of_gpu, *nvlinks)


# In which order the channel search tries ports and GPUs: the nearest first, by NCCL's scores.
# Orders decide which of many equal solutions is found first, so they are rules and not a matter
# of speed.


def nets_of(arena: Arena, type_inter: int, gpus: Iterable[int]) -> list[int]:
    """Ports in the order in which these GPUs try them: their own first, then by path type.

    NCCL: ncclTopoSelectNets."""
    gpus = list(gpus)
    tried = [arena.local_ports[gpu] for gpu in gpus]
    for kind in range(type_inter + 1):
        tried += [arena.ports_by_type[gpu].get(kind, []) for gpu in gpus]
    return list(dict.fromkeys(chain.from_iterable(tried)))


def next_gpus(arena: Arena, pattern: int, gpu: int, used: int, door: int, sort: int) -> list[int]:
    """GPUs to try after `gpu`: by the way to the port `door` if `sort`, then by the way to them.
    With `sort` = -1 the port comes later: where all GPUs are equally far from this one, those far
    from the port go first, so that the channel ends near it."""
    count = len(arena.gpus)
    if arena.switches:  # behind it all are equal; the same neighbours each time are best
        before, after = (gpu - 1) % count, (gpu + 1) % count
        first = {
            RING: (before, after),
            communicator.SPLIT_TREE: (after, before),
            BALANCED_TREE: (after, before),
        }
        near = dict.fromkeys(first.get(pattern, (after,)))
        return [peer for peer in near if not used >> peer & 1]
    if (gpu, door) not in arena.scores:  # by the way to the port, then by that to them
        others = ((gpu + ahead) % count for ahead in range(1, count))
        every = [_score(arena, gpu, peer, door) for peer in others]
        arena.scores[gpu, door] = sorted(score for score in every if score[4])
    scores = [score for score in arena.scores[gpu, door] if not used >> score[-1] & 1]
    order = [score[-1] for score in scores]
    if sort == -1 and len({score[3:5] for score in scores}) == 1:
        order.reverse()
    return order


def _score(arena: Arena, gpu: int, peer: int, door: int) -> Score:
    source, target = arena.gpus[gpu], arena.gpus[peer]
    to_net = (0.0, 0.0, 0)
    if door >= 0:
        port = arena.nets[door]
        to_net = (-arena.bandwidth(port, target), -arena.pci_of_gpu[peer], arena.hops(port, target))
    ahead = (peer - gpu) % len(arena.gpus)
    way = (-arena.bandwidth(source, target), arena.hops(source, target))
    return (*to_net, *way, ahead, peer)


# The most channels that any walk of an attempt could find, from capacities alone.
# Lets the search skip walks that cannot improve on what it has, without changing what it finds.


def hopeless(arena: Arena, attempt: Attempt, most: int, found: Found) -> bool:
    """Whether `most` channels of this attempt are too few, or cannot be better than `found`."""
    if most < attempt.min_channels or most == 0:
        return True
    if not found.n_channels:
        return False
    old = found.attempt
    if attempt.pattern == NVLS:
        wider = most * attempt.bw_inter > found.n_channels * old.bw_inter
        return most <= found.n_channels and not wider
    gain = most * attempt.bw_intra - found.n_channels * old.bw_intra
    if gain or (attempt.pattern, attempt.cross_nic) != (old.pattern, old.cross_nic):
        return gain <= 0
    return most * fewest_hops(arena, attempt) >= found.n_hops


def most_channels(arena: Arena, attempt: Attempt) -> int:
    """A number of channels that the ports and the links out of the GPUs cannot exceed."""
    intra, inter = round(attempt.bw_intra * 1000), round(attempt.bw_inter * 1000)
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
    # A ring that goes by no port leaves every GPU; others leave all but one, each perhaps another.
    closed = attempt.pattern == RING and not arena.nets
    return min(most, min(out) if closed else sum(out) // (count - 1))


def fewest_hops(arena: Arena, attempt: Attempt) -> int:
    """Links that one channel crosses at least."""
    gpus, nets = arena.gpus, arena.nets
    inside = (arena.hops(one, two) for one in gpus for two in gpus if one != two)
    hop = min((hops for hops in inside if hops), default=0)
    ring = attempt.pattern == RING
    total = hop * (len(gpus) - 1 + (ring and not nets))
    if nets:
        rails = arena.rails if attempt.cross_nic == 0 else [("", "", 0)] * len(nets)
        doors = grouped(range(len(nets)), rails.__getitem__).values()
        total += min(_outside(arena, ports, apart=ring and len(gpus) > 1) for ports in doors)
    return total


def _outside(arena: Arena, ports: Iterable[int], *, apart: bool) -> int:
    """Links from and to these ports at least; a ring leaves from another GPU than it came to."""
    nets = [arena.nets[port] for port in ports]
    into = sorted((min(arena.hops(net, gpu) for net in nets), gpu) for gpu in arena.gpus)[:2]
    out = sorted((min(arena.hops(gpu, net) for net in nets), gpu) for gpu in arena.gpus)[:2]
    return min(a + b for a, first in into for b, last in out if first != last or not apart)


def _through_port(arena: Arena, nets: tuple[int, ...], attempt: Attempt, inter: int) -> int:
    whole, links = int(attempt.bw_inter), arena.table.graph.links_out
    inwards = [sum(arena.left[link] for link in links[arena.nets[net]]) for net in nets]
    most = max(inwards) // inter * len(nets)
    return min(most, max(int(arena.port_left[net]) // whole for net in nets)) if whole else most


# Which attempts of the channel search make the same walk, so that one of them is enough.
# Path types between which no path lies make no difference; nor do ports that a tree cannot use.

Likeness = tuple[Attempt, tuple[int, ...]]


@dataclass(frozen=True)
class Kinds:
    """Path types that occur: inside the node, and between GPUs and ports in three readings."""

    inside: frozenset[int]
    either_way: frozenset[int]
    both_ways: frozenset[int]  # the worse of the two directions, which trees need
    at_starts: frozenset[int]  # the same, for GPUs at which a channel may start freely


def kinds_of(arena: Arena) -> Kinds:
    """The path types of a system."""
    ends = (*arena.gpus, *arena.switches)
    inside = {arena.type_of(one, two) for one in ends for two in ends}
    out, back, worse, near = set[int](), set[int](), set[int](), set[int]()
    for port, net in enumerate(arena.nets):
        starts = {0, arena.gpu_of_net[port], *arena.near_gpus[port]}
        for gpu, node in enumerate(arena.gpus):
            there, here = arena.type_of(node, net), arena.type_of(net, node)
            out.add(there)
            back.add(here)
            worse.add(max(there, here))
            if gpu in starts:
                near.add(max(there, here))
    return Kinds(*(frozenset(kinds) for kinds in (inside, out | back, worse, near)))


def likeness(arena: Arena, kinds: Kinds, attempt: Attempt) -> Likeness:
    """What decides the walk of an attempt; attempts of equal likeness take the same steps."""
    nets = nets_of(arena, attempt.type_inter, range(len(arena.gpus)))
    outside = kinds.either_way
    if attempt.pattern in TREES:
        outside = kinds.both_ways
    # A plain tree leaves by the port and GPU where it came in, whatever rails it may cross.
    plain = attempt.pattern == TREE and not attempt.same_channels
    if plain:
        outside, attempt = kinds.at_starts, replace(attempt, cross_nic=0)
    intra = _widest(kinds.inside, attempt.type_intra)
    inter = _widest(outside, attempt.type_inter)
    return replace(attempt, type_intra=intra, type_inter=inter), tuple(nets)


def _widest(kinds: frozenset[int], limit: int) -> int:
    return max((kind for kind in kinds if kind <= limit), default=0)


# One attempt of the channel search: as many channels as fit at one speed, by backtracking.
# A channel visits all GPUs, and enters and leaves by a NIC where there is a network. Every visit
# costs one unit of a budget. The walk runs on an explicit stack, so that its depth is not Python's.

Walk = Iterator["Walk"]
FREE, IN_ORDER, REPLAY = 0, 1, 2
REFERENCE_VISITS = 1 << 10


class Hop(NamedTuple):
    """What going from one end to another takes from the links, and how many links it is."""

    needs: Needs
    links: int


class Start(NamedTuple):
    """A way to begin a channel: the port (-1: none), the first GPU, and how to go on."""

    net: int
    gpu: int
    order: int


class Walker:
    """Walks one attempt over an arena and keeps the best solution in `found`; until nothing better
    can be or, `in_full`, as long as NCCL would."""

    def __init__(self, arena: Arena, attempt: Attempt, found: Found, *, in_full: bool) -> None:
        self.arena, self.attempt, self.found, self.in_full = arena, attempt, found, in_full
        self.most = most_channels(arena, attempt)
        self.n_gpus = len(arena.gpus)
        self.orders: list[list[int]] = []
        self.doors: list[list[int]] = []
        self.used: list[int] = []
        self.n_hops = 0
        self.latency = 0.0
        self.intra = round(attempt.bw_intra * 1000)
        self.inter = round(attempt.bw_inter * 1000)
        self.whole = int(attempt.bw_inter)  # GB/s that a channel takes from its port
        self.headed = attempt.pattern in (NVLS, communicator.COLLNET_DIRECT)
        # The place in the order at which a channel goes back to a port; -1 for never.
        leaves = {RING: self.n_gpus - 1, communicator.SPLIT_TREE: 1}
        self.exit_step = leaves.get(attempt.pattern, 0) if arena.nets else -1
        self._hop = cache(self._allowed_hop)
        self.inside: list[dict[int, Hop | None]] = [{} for _ in range(self.n_gpus)]
        self.onwards = arena.onwards.setdefault(attempt.pattern, {})
        self._head = cache(self._hop_of_head)
        self.nets = [nets_of(arena, attempt.type_inter, (gpu,)) for gpu in range(self.n_gpus)]
        self.all_nets = nets_of(arena, attempt.type_inter, range(self.n_gpus))

    def run(self, budget: VisitBudget) -> Found:
        """Search until the budget is spent or the solution is complete (ncclTopoSearchRec)."""
        stack = [self._channel(budget)]
        while stack:
            below = next(stack[-1], None)
            if below is None:
                stack.pop()
            else:
                stack.append(below)
        return self.found

    def _channel(self, budget: VisitBudget) -> Walk:
        number = len(self.orders)
        starts = self._starts(number)
        self.orders.append([])
        self.doors.append([-1, -1])
        self.used.append(0)
        for net, gpu, order in starts:
            if budget.left <= 0:
                break
            hop = self._hop(self.arena.nets[net], gpu, self.inter, 1) if net >= 0 else Hop((), 0)
            if hop is None or not self.arena.take(hop.needs):
                continue
            # The plain order is a reference for what follows, on a small budget of its own.
            own = VisitBudget(REFERENCE_VISITS) if order == IN_ORDER and net >= 0 else budget
            self._open(net)
            self.n_hops += hop.links
            self.used[number] = 1 << gpu
            yield self._visit(gpu, 0, self.exit_step, own, order)
            self.n_hops -= hop.links
            self._shut(net)
            self.arena.give_back(hop.needs)
            if own.complete or own.settled:
                budget.left, budget.settled = own.left, own.settled
        self.orders.pop()
        self.doors.pop()
        self.used.pop()

    def _open(self, net: int) -> None:
        if net >= 0:
            self.doors[-1][0] = net
            self.latency = self.arena.latency[net]
            for port in self.arena.ports[net]:
                self.arena.port_left[port] -= self.whole

    def _shut(self, net: int) -> None:
        if net >= 0:
            for port in self.arena.ports[net]:
                self.arena.port_left[port] += self.whole

    def _starts(self, number: int) -> list[Start]:
        attempt, everyone = self.attempt, range(self.n_gpus)
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
        attempt, arena, local = self.attempt, self.arena, self.arena.gpu_of_net[net]
        if arena.port_left[net] < self.whole or (attempt.collnet and not arena.collective[net]):
            return []
        paired = attempt.pattern == RING and attempt.cross_nic == 2 and number & 1
        if paired and net != self.doors[number - 1][1]:
            return []
        if attempt.pattern in (NVLS, communicator.COLLNET_DIRECT):
            free = number < len(self.all_nets) and local not in [o[0] for o in self.orders]
            return [Start(net, local, FREE)] if free and local >= 0 else []
        if number and attempt.same_channels:
            return [Start(net, last, REPLAY)]
        reference = [] if number or arena.switches else [Start(net, 0, IN_ORDER)]
        near = dict.fromkeys([local, *arena.near_gpus[net]] if local >= 0 else arena.near_gpus[net])
        return reference + [Start(net, gpu, FREE) for gpu in near]

    def _visit(self, gpu: int, step: int, leave: int, budget: VisitBudget, order: int) -> Walk:
        """Stand at a GPU: leave by a port if it is time, else go on to the next GPU."""
        if budget.left <= 0:
            return
        budget.left -= 1
        path = self.orders[-1]
        del path[step:]
        path.append(gpu)
        if step != leave and step < self.n_gpus - 1 and not self.headed:
            used, arena, hops = self.used, self.arena, self.inside[gpu]
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
        elif self.headed:
            yield self._end(self._head(gpu), budget)
        elif self.attempt.pattern == RING and not self.arena.nets:
            yield self._end(self._hop(self.arena.gpus[gpu], path[0], self.intra), budget)
        else:
            yield self._finish(budget)

    def _following(self, gpu: int, step: int, leave: int, order: int) -> list[int]:
        if order == IN_ORDER:
            return [step + 1]
        if order == REPLAY:
            return [self.orders[-2][step + 1]]
        if leave < 0:
            sort = 0
        else:
            sort = 1 if leave == step + 1 else -1
        key = (gpu, self.used[-1], self.doors[-1][0] if sort else -1, sort)
        if key not in self.onwards:
            self.onwards[key] = next_gpus(self.arena, self.attempt.pattern, *key)
        return self.onwards[key]

    def _end(self, hop: Hop | None, budget: VisitBudget) -> Walk:
        """Finish a channel by a last hop: back to its first GPU, or between a head and its node."""
        if hop is None or not self.arena.take(hop.needs):
            return
        self.n_hops += hop.links
        yield self._finish(budget)
        self.n_hops -= hop.links
        self.arena.give_back(hop.needs)

    def _leave(self, gpu: int, step: int, budget: VisitBudget, order: int) -> Walk:
        """Go out by every port that may be the other end of this channel, then go on inside."""
        arena, doors = self.arena, self.doors[-1]
        balanced = self.attempt.pattern == BALANCED_TREE
        amount = self.inter // 2 if balanced else self.inter
        for net in self.nets[gpu]:
            if not self._may_leave(net) or (balanced and step > 0 and net != doors[1]):
                continue
            hop = self._hop(arena.gpus[gpu], net, amount, 2)
            if hop is None or budget.left <= 0 or not arena.take(hop.needs):
                continue
            self.n_hops += hop.links
            doors[1] = net
            yield self._visit(gpu, step, 1 if balanced and step == 0 else -1, budget, order)
            self.n_hops -= hop.links
            arena.give_back(hop.needs)

    def _may_leave(self, net: int) -> bool:
        entry = self.doors[-1][0]
        if self.attempt.pattern == TREE and net != entry:
            return False
        if self.attempt.pattern == RING and self.attempt.cross_nic == 2:
            return len(self.doors) & 1 == 1 or net == self.doors[-2][0]
        rails = self.arena.rails
        return self.attempt.cross_nic != 0 or rails[net] == rails[entry]

    def _hop_of_head(self, gpu: int) -> Hop | None:
        """A head of NVLS or CollNet: traffic between it and all GPUs of the node must fit."""
        if self.attempt.pattern == NVLS:
            needs = self.arena.nvls_flows(gpu, self.intra, self.attempt.type_intra)
        else:
            needs = self.arena.direct_flows(gpu, self.intra)
        return None if needs is None else Hop(needs, len(needs))

    def _allowed_hop(self, source: int, end: int, amount: int, way: int = 0) -> Hop | None:
        """The hop to GPU `end` (way 1: from a port) or to port `end` (way 2), if it is allowed."""
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
        if budget.left <= 0:
            return
        budget.left -= 1
        count = len(self.orders)
        if self._better(count):
            self.found = Found(self.attempt, self._channels(), self.n_hops, self.latency)
            if count == self.attempt.max_channels:
                budget.left = -1
            elif not self.in_full and hopeless(self.arena, self.attempt, self.most, self.found):
                budget.left, budget.settled = 0, True
        if count < self.attempt.max_channels:
            yield self._channel(budget)

    def _better(self, count: int) -> bool:
        attempt, best = self.attempt, self.found
        if count < attempt.min_channels:
            return False
        if attempt.pattern == NVLS:
            more = best.n_channels < count <= self.n_gpus
            return more or count * attempt.bw_inter > best.n_channels * best.attempt.bw_inter
        old = best.attempt
        gain = count * attempt.bw_intra - best.n_channels * old.bw_intra
        same = (attempt.pattern, attempt.cross_nic) == (old.pattern, old.cross_nic)
        return gain > 0 or (gain == 0 and same and self.n_hops < best.n_hops)

    def _channels(self) -> tuple[Channel, ...]:
        local = self.arena.table.graph.local_ranks
        orders = (tuple(local[gpu] for gpu in order) for order in self.orders)
        if not self.arena.nets:
            return tuple(Channel(order) for order in orders)
        pairs = zip(orders, self.doors, strict=True)
        return tuple(Channel(order, (doors[0], doors[1])) for order, doors in pairs)


# NCCL's channel search on one node: how many channels, how fast, over which GPUs and NICs.
# Starts from the best that could be and relaxes one wish after the other until channels are found,
# then doubles them or speeds them up. Cost depends on one node only, never on how many there are.

ALL_VISITS = 1 << 19
VISITS = 1 << 14
VISITS_SAME = 1 << 8
MOST_COLLNET_HEADS = 8
FALLBACK_SPEED = 0.1  # GB/s, of the plain order that stands in where nothing was found


@dataclass(frozen=True)
class Request:
    """Which graph is searched: a pattern, and how many channels it needs and may have."""

    pattern: int
    min_channels: int
    max_channels: int
    collnet: bool = False


def search(arena: Arena, request: Request, settings: Settings = NO_SETTINGS) -> ChannelGraph:
    """The graph that NCCL finds for a request, with all its channels in order (ncclTopoCompute)."""
    # The request within what a pattern can have: NVLS and CollNet one head a GPU at most.
    gpus, pattern, most = len(arena.gpus), request.pattern, request.max_channels
    if pattern == NVLS:
        most = min(arena.facts.nvls_heads, gpus)
    if pattern == communicator.COLLNET_DIRECT:
        most = min(MOST_COLLNET_HEADS, gpus)
    if gpus == 1 and pattern != RING:
        pattern = TREE
    least = most if pattern == NVLS and not arena.nets else request.min_channels
    request = replace(request, pattern=pattern, min_channels=least, max_channels=most)
    if request.pattern == NVLS and (not arena.switches or arena.min_cc < 90):
        return _nothing(request)
    ladder = _Ladder(arena, request, settings)
    ladder.relax()
    ladder.double()
    ladder.speed_up()
    return _graph(arena, request, ladder.found)


class _Ladder:
    """The state of one search: what is tried now, what was found, and what effort is left."""

    def __init__(self, arena: Arena, request: Request, settings: Settings) -> None:
        self.arena, self.request = arena, request
        row = arena.facts.inter_speeds if arena.nets else arena.facts.intra_speeds
        self.speeds = row[architecture(arena.min_cc, row)]
        ends = ((gpu, end) for gpu in arena.gpus for end in arena.nets or arena.gpus if gpu != end)
        self.widest = max((arena.bandwidth(*pair) for pair in ends), default=0.0)
        self.total = total_bandwidth(arena)
        self.types = _type_limits(arena)
        self.cross_nic = settings.cross_nic if len(arena.nets) > 1 else 0
        self.rung = self._first_rung()
        self.start = Attempt(
            pattern=request.pattern,
            bw_intra=self.speeds[self.rung],
            bw_inter=self.speeds[self.rung],
            type_intra=self.types[0],
            type_inter=self.types[2],
            same_channels=request.pattern != NVLS,
            cross_nic=int(self.cross_nic == 1),
            min_channels=request.min_channels,
            max_channels=request.max_channels,
            collnet=request.collnet,
        )
        self.now = self.start
        self.found = Found(replace(self.start, bw_intra=0.0, bw_inter=0.0))
        self.effort = ALL_VISITS
        self.deferred: list[Attempt] = []
        self.walked: dict[Likeness, VisitBudget] = {}
        self.kinds = kinds_of(arena)

    def _first_rung(self) -> int:
        """The first speed that one path and one GPU could carry at all."""
        gpus, total = len(self.arena.gpus), self.total
        if gpus > 1 and self.request.pattern != RING:
            total *= gpus / (gpus - 1)
        least, rungs = self.request.min_channels, range(len(self.speeds))
        fits = (
            n for n in rungs if self.speeds[n] <= self.widest and self.speeds[n] * least <= total
        )
        return next(fits, rungs[-1])

    def relax(self) -> None:
        """Pass 1: try the present wishes; while they cannot be met, give up one of them."""
        following: Attempt | None = self.now
        while following is not None:
            self.now = following
            budget = self._try()
            if budget.complete or self.found.n_channels * self.found.attempt.bw_inter >= self.total:
                return
            following = self._relaxed(budget)

    def _try(self) -> VisitBudget:
        full = VISITS_SAME if self.now.same_channels else VISITS
        if hopeless(self.arena, self.now, most_channels(self.arena, self.now), self.found):
            self.deferred.append(self.now)
            self.effort -= full
            return VisitBudget(0)
        if self.deferred and self.effort < 0 and self.found.n_channels:
            # Count what the attempts put off would have left of the effort, by walking them.
            for attempt in self.deferred:
                left = self._walk(attempt, in_full=True).left
                if not attempt.same_channels or self._keeps_channels(attempt):
                    self.effort += left
            self.deferred.clear()
            if self.effort < 0:
                return VisitBudget(-1)
        self.effort -= full
        budget = self._walk(self.now, in_full=False)
        if budget.settled:
            self.deferred.append(self.now)
        return budget

    def _walk(self, attempt: Attempt, *, in_full: bool) -> VisitBudget:
        # The same walk again could not do better than it did.
        alike = likeness(self.arena, self.kinds, attempt)
        budget = self.walked.get(alike)
        if budget is None or (in_full and budget.settled):
            budget = VisitBudget(VISITS_SAME if attempt.same_channels else VISITS)
            self.found = Walker(self.arena, attempt, self.found, in_full=in_full).run(budget)
            self.walked[alike] = budget
        return budget

    def _keeps_channels(self, attempt: Attempt) -> bool:
        sockets = attempt.type_intra == self.arena.facts.rank("SYS")
        return self.arena.cpu == ("x86_64", "AMD") and sockets

    def _relaxed(self, budget: VisitBudget) -> Attempt | None:
        """The next attempt, wish by wish like the digits of a counter, or nothing at the end."""
        now, start = self.now, self.start
        if now.same_channels and not self._keeps_channels(now):
            return replace(now, same_channels=False)
        now = replace(now, same_channels=start.same_channels)
        self.effort += budget.left
        if self.effort < 0 and self.found.n_channels and not self.deferred:
            return None
        if self.arena.min_cc >= 90 and now.pattern == BALANCED_TREE:
            return replace(now, pattern=TREE)
        now = replace(now, pattern=start.pattern)
        widest = now.type_inter if self.arena.nets else self.types[1]
        if now.type_intra < widest and self._unsolved(now.type_intra, intra=True):
            return replace(now, type_intra=now.type_intra + 1)
        now = replace(now, type_intra=start.type_intra)
        near = now.type_inter < self.arena.facts.rank("PXN")
        wider = near or self._unsolved(now.type_inter, intra=False)
        if self.arena.nets and now.type_inter < self.types[3] and wider:
            return replace(now, type_inter=now.type_inter + 1)
        now = replace(now, type_inter=start.type_inter)
        rails = self.cross_nic == 2 and now.cross_nic == 0
        if rails and self.request.pattern in (RING, BALANCED_TREE):
            return replace(now, cross_nic=2)
        return self._slower(replace(now, cross_nic=start.cross_nic))

    def _unsolved(self, kind: int, *, intra: bool) -> bool:
        """Whether a worse path type could still be an improvement on what was found."""
        best = self.found.attempt
        return not self.found.n_channels or kind < (best.type_intra if intra else best.type_inter)

    def _slower(self, now: Attempt) -> Attempt | None:
        if self.rung + 1 >= len(self.speeds):
            return None
        speed = self.speeds[self.rung + 1]
        if self.found.n_channels and speed / self.found.attempt.bw_inter <= 0.49:
            return None
        self.rung += 1
        return replace(now, bw_intra=speed, bw_inter=speed)

    def double(self) -> None:
        """Split wide channels in two, so that more SMs share the work (ncclTopoDupChannels)."""
        found, count = self.found, self.found.n_channels
        intra, most = found.attempt.bw_intra, self.request.max_channels
        hopper_full = self.arena.min_cc > 80 and intra < 50 and count > 4
        if not count or self.request.pattern == NVLS or intra < 25 or hopper_full:
            return
        doubled = (found.channels * 2)[:most]
        parts = -(-len(doubled) // count)
        inter = found.attempt.bw_inter / parts
        attempt = replace(found.attempt, bw_intra=intra / parts, bw_inter=inter)
        self.found = replace(found, channels=doubled, attempt=attempt)

    def speed_up(self) -> None:
        """Pass 2: with the number of channels settled, try higher speeds."""
        best = self.found.attempt
        fitting = (rung for rung, speed in enumerate(self.speeds) if speed <= best.bw_inter)
        self.rung = next(fitting, len(self.speeds) - 1)
        speed, count = self.speeds[self.rung], self.found.n_channels
        self.now = replace(best, bw_intra=speed, bw_inter=speed, min_channels=count)
        self.walked.clear()
        budget = VisitBudget(1)
        while self.rung > 0 and (budget.complete or budget.left > 0):
            following = self._faster(self.speeds[self.rung - 1])
            if following is None or most_channels(self.arena, following) < count:
                return  # this number of channels does not fit at higher speeds either
            self.now = following
            self.rung -= 1
            budget = self._walk(self.now, in_full=True)

    def _faster(self, speed: float) -> Attempt | None:
        now, best = self.now, self.found.attempt
        if best.pattern == RING:
            return replace(now, bw_intra=speed, bw_inter=speed)
        if best.pattern == NVLS and now.bw_inter == best.bw_inter < now.bw_intra * 2:
            count = self.found.n_channels
            return replace(now, bw_inter=speed, min_channels=count, max_channels=count)
        if now.bw_intra == best.bw_intra < now.bw_inter * 2:
            return replace(now, bw_intra=speed)
        return None


def _type_limits(arena: Arena) -> tuple[int, int, int, int]:
    rank = arena.facts.rank
    inside = [arena.type_of(one, two) for one in arena.gpus for two in arena.gpus if one != two]
    outside = [arena.type_of(gpu, net) for gpu in arena.gpus for net in arena.nets]
    outside += [arena.type_of(net, gpu) for gpu in arena.gpus for net in arena.nets]
    least, most = (min(inside), max(inside)) if inside else (rank("LOC"), rank("SYS"))
    near, far = (min(outside), max(outside)) if outside else (rank("PIX"), rank("SYS"))
    return least, min(most, rank("SYS")), near, min(far, rank("SYS"))


def _nothing(request: Request) -> ChannelGraph:
    return ChannelGraph(request.pattern, 0, 0.0, 0.0, "DIS", "DIS", same_channels=False)


def _graph(arena: Arena, request: Request, found: Found) -> ChannelGraph:
    attempt, types = found.attempt, arena.facts.path_types
    if not found.n_channels and (request.collnet or request.pattern == NVLS):
        return _nothing(request)
    if not found.n_channels:
        plain = Channel(tuple(range(len(arena.gpus))), (0, 0) if arena.nets else None)
        slow = FALLBACK_SPEED
        return ChannelGraph(request.pattern, 1, slow, slow, "SYS", "SYS", True, channels=(plain,))
    return ChannelGraph(
        pattern=attempt.pattern,
        n_channels=found.n_channels,
        bw_intra=attempt.bw_intra,
        bw_inter=attempt.bw_inter,
        type_intra=types[attempt.type_intra],
        type_inter=types[attempt.type_inter],
        same_channels=attempt.same_channels,
        cross_nic=attempt.cross_nic,
        latency_inter=found.latency_inter,
        channels=found.channels,
    )
