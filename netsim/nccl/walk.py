"""One attempt of the channel search: as many channels as fit at one speed, by backtracking.

A channel visits all GPUs, and enters and leaves by a NIC where there is a network. Every visit
costs one unit of a budget. The walk runs on an explicit stack, so that its depth is not Python's.
"""

from collections.abc import Iterator
from typing import NamedTuple

from netsim.nccl.arena import NO_TYPE, TREES, Arena, Needs
from netsim.nccl.attempt import Attempt, Budget, Found
from netsim.nccl.channels import (
    BALANCED_TREE,
    COLLNET_DIRECT,
    NVLS,
    RING,
    SPLIT_TREE,
    TREE,
    Channel,
)
from netsim.nccl.neighbours import nets_of, next_gpus

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
    """Walks one attempt over an arena and keeps the best solution in `found`."""

    def __init__(self, arena: Arena, attempt: Attempt, found: Found) -> None:
        self.arena, self.attempt, self.found = arena, attempt, found
        self.n_gpus = len(arena.gpus)
        self.orders: list[list[int]] = []
        self.doors: list[list[int]] = []
        self.used: list[int] = []
        self.n_hops = 0
        self.latency = 0.0
        self.intra = round(attempt.bw_intra * 1000)
        self.inter = round(attempt.bw_inter * 1000)
        self.whole = int(attempt.bw_inter)  # GB/s that a channel takes from its port
        self.headed = attempt.pattern in (NVLS, COLLNET_DIRECT)
        self.exit_step = self._exit_step()
        self.hops: dict[tuple[int, int, int, int], Hop | None] = {}
        self.inside: list[dict[int, Hop | None]] = [{} for _ in range(self.n_gpus)]
        self.onwards = arena.onwards.setdefault(attempt.pattern, {})
        self.heads: dict[int, Needs | None] = {}
        self.nets = [nets_of(arena, attempt.type_inter, (gpu,)) for gpu in range(self.n_gpus)]
        self.all_nets = nets_of(arena, attempt.type_inter, range(self.n_gpus))

    def run(self, budget: Budget) -> Found:
        """Search until the budget is spent or the solution is complete."""
        stack = [self._channel(budget)]
        while stack:
            below = next(stack[-1], None)
            if below is None:
                stack.pop()
            else:
                stack.append(below)
        return self.found

    def _exit_step(self) -> int:
        """The place in the order at which a channel goes back to a port; -1 for never."""
        if not self.arena.nets:
            return -1
        return {RING: self.n_gpus - 1, SPLIT_TREE: 1}.get(self.attempt.pattern, 0)

    def _channel(self, budget: Budget) -> Walk:
        """All ways to add one more channel."""
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
            own = Budget(REFERENCE_VISITS) if order == IN_ORDER and net >= 0 else budget
            self._open(net)
            self.n_hops += hop.links
            self.used[number] = 1 << gpu
            yield self._visit(gpu, 0, self.exit_step, own, order)
            self.n_hops -= hop.links
            self._shut(net)
            self.arena.give_back(hop.needs)
            if own.complete:
                budget.left = -1
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
        """The GPUs at which a channel may start that enters by this port."""
        attempt, arena, local = self.attempt, self.arena, self.arena.gpu_of_net[net]
        if arena.port_left[net] < self.whole or (attempt.collnet and not arena.collective[net]):
            return []
        paired = attempt.pattern == RING and attempt.cross_nic == 2 and number & 1
        if paired and net != self.doors[number - 1][1]:
            return []
        if attempt.pattern in (NVLS, COLLNET_DIRECT):
            free = number < len(self.all_nets) and local not in [o[0] for o in self.orders]
            return [Start(net, local, FREE)] if free and local >= 0 else []
        if number and attempt.same_channels:
            return [Start(net, last, REPLAY)]
        reference = [] if number or arena.switches else [Start(net, 0, IN_ORDER)]
        near = dict.fromkeys([local, *arena.near_gpus[net]] if local >= 0 else arena.near_gpus[net])
        return reference + [Start(net, gpu, FREE) for gpu in near]

    def _visit(self, gpu: int, step: int, leave: int, budget: Budget, order: int) -> Walk:
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
            yield self._head(gpu, budget)
        else:
            close = self.attempt.pattern == RING and not self.arena.nets
            yield self._close(gpu, budget) if close else self._finish(budget)

    def _following(self, gpu: int, step: int, leave: int, order: int) -> list[int]:
        if order == IN_ORDER:
            return [step + 1]
        if order == REPLAY:
            return [self.orders[-2][step + 1]]
        sort = 0 if leave < 0 else 1 if leave == step + 1 else -1
        key = (gpu, self.used[-1], self.doors[-1][0] if sort else -1, sort)
        if key not in self.onwards:
            self.onwards[key] = next_gpus(self.arena, self.attempt.pattern, *key)
        return self.onwards[key]

    def _close(self, gpu: int, budget: Budget) -> Walk:
        """The last GPU of a ring inside one node sends to the first."""
        hop = self._hop(self.arena.gpus[gpu], self.orders[-1][0], self.intra)
        if hop is None or not self.arena.take(hop.needs):
            return
        self.n_hops += hop.links
        yield self._finish(budget)
        self.n_hops -= hop.links
        self.arena.give_back(hop.needs)

    def _leave(self, gpu: int, step: int, budget: Budget, order: int) -> Walk:
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

    def _head(self, gpu: int, budget: Budget) -> Walk:
        """A head of NVLS or CollNet: traffic between it and all GPUs of the node must fit."""
        if gpu not in self.heads:
            self.heads[gpu] = self._head_needs(gpu)
        needs = self.heads[gpu]
        if needs is None or not self.arena.take(needs):
            return
        self.n_hops += len(needs)
        yield self._finish(budget)
        self.n_hops -= len(needs)
        self.arena.give_back(needs)

    def _head_needs(self, gpu: int) -> Needs | None:
        if self.attempt.pattern == NVLS:
            return self.arena.nvls_flows(gpu, self.intra, self.attempt.type_intra)
        return self.arena.direct_flows(gpu, self.intra)

    def _hop(self, source: int, end: int, amount: int, way: int = 0) -> Hop | None:
        """The hop to GPU `end` (way 1: from a port) or to port `end` (way 2), if it is allowed."""
        key = (source, end, amount, way)
        if key not in self.hops:
            target = self.arena.nets[end] if way == 2 else self.arena.gpus[end]
            limit = self.attempt.type_inter if way else self.attempt.type_intra
            self.hops[key] = self._allowed_hop(source, target, amount, limit)
        return self.hops[key]

    def _allowed_hop(self, source: int, target: int, amount: int, limit: int) -> Hop | None:
        arena = self.arena
        kind = arena.type_of(source, target)
        if self.attempt.pattern in TREES:
            kind = max(kind, arena.type_of(target, source))
        if kind == NO_TYPE or kind > limit:
            return None
        return Hop(arena.needs(source, target, amount), arena.hops(source, target))

    def _finish(self, budget: Budget) -> Walk:
        """A channel is whole: keep the solution if it is better, then look for one more."""
        if budget.left <= 0:
            return
        budget.left -= 1
        count = len(self.orders)
        if self._better(count):
            self.found = Found(self.attempt, self._channels(), self.n_hops, self.latency)
            if count == self.attempt.max_channels:
                budget.left = -1
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
