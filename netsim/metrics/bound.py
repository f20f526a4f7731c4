"""What bounds a run: its critical path, from the row that finishes last back to the first.

Every second of the makespan belongs to one cause. The second half of the module computes a lower
bound on the time of any algorithm on a topology.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.metrics.links import LinkUse, link_use
from netsim.program.program import LinkTable, Program, Timeline
from netsim.schedule.schedule import COMPUTE, MARK
from netsim.topology.graph import (
    LINK_KINDS,
    NODE_KINDS,
    Floats,
    Ints,
    Longs,
    Topology,
    TopologyError,
    flow,
    least_and_most,
)

_EQUAL = 1e-9  # rates with a smaller relative difference are equal
# The walk back over the critical path computes a block of rows at once, of SHORTEST to LONGEST
# rows. The block grows if the path goes through at least one in MANY of its rows, and shrinks
# otherwise.
SHORTEST = 16
LONGEST = 8192
MANY = 32


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The rows of a critical path from first to last, and the seconds of the makespan by cause.

    `latency` is the time of paths and start-up before bytes move, `launch` the launches by hosts
    and of kernels, `transfer` and `compute` the time in which bytes move or kernels compute, and
    `release` the time before the first row's release.
    """

    rows: Longs
    latency: float
    launch: float
    transfer: float
    compute: float
    release: float

    def shares(self) -> dict[str, float]:
        """The fraction of the makespan (0 to 1) by name of the cause."""
        causes = ("latency", "launch", "transfer", "compute", "release")
        seconds = {cause: float(getattr(self, cause)) for cause in causes}
        total = sum(seconds.values())
        return {cause: value / total if total > 0 else 0.0 for cause, value in seconds.items()}


def critical_path(program: Program, timeline: Timeline) -> CriticalPath:
    """The critical path of a run.

    It is found by a walk back from the row that finishes last, always to the dependency that was
    ready last.
    """
    if not len(program):
        return CriticalPath(
            rows=np.zeros(0, np.int64),
            latency=0.0,
            launch=0.0,
            transfer=0.0,
            compute=0.0,
            release=0.0,
        )
    rows, lags, release = _walk(program, timeline)
    startup = program.style_values("latency")[program.schedule.style[rows]]
    spent = timeline.end[rows] - timeline.start[rows]
    startup = np.minimum(startup, spent)
    flow = spent - startup
    kind = program.schedule.kind[rows]
    compute = kind == COMPUTE
    mark = kind == MARK  # a mark with a start-up is the launch of a kernel
    launch = on_host(program, rows) & ~compute
    issued = release if mark[0] and startup[0] > 0 else 0.0
    return CriticalPath(
        rows=rows,
        latency=lags + float(startup[~mark].sum()),
        launch=float(flow[launch].sum() + startup[mark].sum()) + issued,
        transfer=float(flow[~launch & ~compute].sum()),
        compute=float(flow[compute].sum()),
        release=release - issued,
    )


def _walk(program: Program, timeline: Timeline) -> tuple[Longs, float, float]:
    """The rows of the critical path, first to last; the seconds of lags on it; and the seconds
    until the release of its first row.
    """
    start = timeline.start
    end = timeline.end
    waits = _Waits(program, timeline)
    row = int(np.argmax(end))
    lags = 0.0
    rows = list[int]()
    first = row + 1
    size = SHORTEST
    met = SHORTEST
    while True:
        if row < first:  # longer stretches where the path goes through many of their rows
            size = min(4 * size, LONGEST) if met * MANY >= size else max(size // 4, SHORTEST)
            first = max(0, row + 1 - size)
            met = 0
            earlier, times = waits.of(first, row + 1)
        rows.append(row)
        met += 1
        best = earlier[row - first]
        when = times[row - first]
        began = start.item(row)
        if best < 0 or when < began * (1 - 1e-12):  # it waited for its release
            return np.array(rows[::-1], np.int64), lags, began
        lags += began - end.item(best)
        row = best


class _Waits:
    """Finds, for each row of a run, the dependency that was ready last."""

    def __init__(self, program: Program, timeline: Timeline) -> None:
        self.schedule = program.schedule
        self.path = program.path
        self.end = timeline.end
        self.seconds = program.lag_seconds
        self.arrival = program.lag_arrival
        self.latency = program.path_latency

    def of(self, first: int, last: int) -> tuple[list[int], list[float]]:
        """Two lists for the rows `first` … `last` - 1: the dependency that was ready last (-1:
        none), and when it was ready, in seconds.
        """
        ptr = self.schedule.dep_ptr[first : last + 1].astype(np.int64)
        span = slice(int(ptr[0]), int(ptr[-1]))
        earlier = self.schedule.dep_row[span]
        lag = self.schedule.dep_lag[span]
        ways = self.arrival[lag] * self.latency[self.path[earlier]]
        ready = self.end[earlier] + (self.seconds[lag] + ways)
        best = np.full(last - first, -1)
        when = np.full(last - first, -inf)
        waiting = np.flatnonzero(np.diff(ptr))
        if len(waiting):
            when[waiting] = np.maximum.reduceat(ready, ptr[waiting] - ptr[0])
            owner = np.repeat(np.arange(last - first), np.diff(ptr))
            hit = np.flatnonzero(ready == when[owner])[::-1]  # of equal ones the first
            best[owner[hit]] = earlier[hit]
        return best.tolist(), when.tolist()


def on_host(program: Program, rows: Longs) -> NDArray[np.bool_]:
    """Whether each row is a launch by a host: its path has a link of the kind "host"."""
    paths = program.paths
    kind = program.links.kind
    launching = {-1: False}
    for path in different(program.path[rows]).tolist():
        if path >= 0:
            links = paths.link[paths.ptr[path] : paths.ptr[path + 1]].tolist()
            launching[path] = any(kind(link) == "host" for link in links)
    return np.array([launching[path] for path in program.path[rows].tolist()], bool)


def narrowest(program: Program, row: int) -> list[int]:
    """The links that limit the rate of a row most.

    Empty if the row's own highest rate is lower, or nothing limits it.
    """
    schedule = program.schedule
    paths = program.paths
    path = int(program.path[row])
    if path < 0:
        return []
    span = slice(int(paths.ptr[path]), int(paths.ptr[path + 1]))
    capacity = program.links.capacity[paths.link[span]]
    weight = paths.weight[span]
    rates = np.divide(capacity, weight, out=np.full(len(weight), inf), where=capacity < inf)
    least = rates.min(initial=inf)
    if least > float(program.caps[schedule.style[row]]) or least == inf:
        return []
    links: list[int] = paths.link[span][rates <= least * (1 + _EQUAL)].tolist()
    return links


def rates_alone(program: Program) -> Floats:
    """The rate of each row if no other row moves: its own highest rate or that of its slowest link.

    In units of the link (bytes, or seconds of work) per second.
    """
    paths = program.paths
    with np.errstate(divide="ignore"):
        limits = program.links.capacity[paths.link] / paths.weight
    by_path = np.full(len(paths) + 1, inf)
    np.minimum.at(by_path, np.repeat(np.arange(len(paths)), np.diff(paths.ptr)), limits)
    rates: Floats = np.minimum(by_path[program.path], program.caps[program.schedule.style])
    return rates


# What bounds a run, in a few words: `NIC ingress node1.nic0 97 %`, `latency 83 %`, `launch 71 %`.
# It is the busiest link if that is in use most of the time, else the largest part of the critical
# path.

BUSY = 0.6  # a link with a larger utilization bounds a run
_EQUALLY_BUSY = 0.02  # links count as equally busy up to this difference of their utilization

SPOKEN = {
    "nvlink": "NVLink", "xgmi": "xGMI", "c2c": "C2C", "pcie": "PCIe", "upi": "UPI",
    "hostmem": "host memory", "nic": "NIC", "fabric": "fabric", "sm": "SM", "sms": "compute",
    "clock": "compute",
    "hbm": "memory", "proxy": "proxy", "nic_msg": "NIC messages", "nvls": "NVLS", "host": "launch",
    "bus": "PCIe both ways",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Causes:
    """What a run's time is spent on: the fraction by cause.

    `transfers()` returns the seconds of transfers on the critical path, by the kind of link that
    limits them.
    """

    shares: Mapping[str, float]
    transfers: Callable[[], Mapping[str, float]]


def bound_by(
    program: Program, timeline: Timeline, use: LinkUse | None = None, causes: Causes | None = None
) -> str:
    """What bounds a run, in words: `NIC ingress node1.nic0 97 %` or `latency 83 %`.

    `use` and `causes` can be passed if they are computed already.
    """
    if timeline.makespan <= 0:
        return "nothing"
    use = link_use(program, timeline) if use is None else use
    most = float(use.utilisation.max(initial=0.0))
    causes = _causes(program, timeline) if causes is None else causes
    shares = causes.shares
    cause = max(shares, key=lambda name: shares[name])
    if most >= BUSY or (cause == "transfer" and most >= shares[cause] * BUSY):
        return _busiest(program.links, use)
    text = cause
    if cause == "transfer":
        transfers = causes.transfers()
        text = f"serial transfers ({max(transfers, key=lambda kind: transfers[kind])})"
    return f"{text} {shares[cause]:.0%}".replace("%", " %")


def _causes(program: Program, timeline: Timeline) -> Causes:
    """The fractions of a run's time by cause, from its critical path."""
    path = critical_path(program, timeline)
    return Causes(path.shares(), lambda: _transfers(program, timeline, path))


def link_label(table: LinkTable, link: int) -> tuple[str, str]:
    """A link in words, as (class, place): ("NIC ingress", "node1.nic0"), ("memory", "gpu3").

    `table` has all links, `link` is the number of one.
    """
    name = table.name(link)
    kind = table.kind(link)
    spoken = ("incast on " if link in table.incast_steps else "") + SPOKEN.get(kind, kind)
    if "->" not in name:
        return spoken, name.partition("(")[2].rstrip(")") or name
    tail, _, head = name.partition("->")
    # The link has one end at a GPU or NIC, which names it better than its switch.
    ends = [end for end in (tail, head) if end.rpartition(".")[2].startswith(("gpu", "nic"))]
    if len(ends) != 1:
        return spoken, name
    return f"{spoken} {'egress' if ends[0] == tail else 'ingress'}", ends[0]


def _busiest(table: LinkTable, use: LinkUse) -> str:
    """The class of the busiest link in words and its utilization: `NIC ingress node1.nic0 97 %`.

    The place is left out if most links of the class are equally busy.
    """
    most = float(use.utilisation.max())
    hot = (use.utilisation >= most - _EQUALLY_BUSY).tolist()
    label, place = link_label(table, int(use.link[np.argmax(use.utilisation)]))
    same = 0
    equal_count = 0
    for link, is_hot in zip(use.link.tolist(), hot, strict=True):
        if link_label(table, link)[0] == label:
            same += _count(table, link)
            equal_count += is_hot * _count(table, link)
    where = f" {place}" if equal_count * 2 < same or same == 1 else ""
    return f"{label}{where} {min(most, 1.0):.0%}".replace("%", " %")


def _count(table: LinkTable, link: int) -> int:
    """The number of identical links that one link of the table represents."""
    return 1 if table.count is None else int(table.count[link])


def _transfers(program: Program, timeline: Timeline, path: CriticalPath) -> dict[str, float]:
    """By kind of link, the seconds of those rows on the critical path that this kind limits."""
    seconds: dict[str, float] = {}
    for row in path.rows.tolist():
        kind = narrowest_kind(program, row)
        took = float(timeline.end[row] - timeline.start[row])
        seconds[kind] = seconds.get(kind, 0.0) + took
    return seconds


def narrowest_kind(program: Program, row: int) -> str:
    """The kind of the link that limits a row, in words; if several do, the first in alphabetical
    order.
    """
    kinds = {link_label(program.links, link)[0] for link in narrowest(program, row)}
    return min(kinds, default="own rate")


# A lower bound on the time of a collective with any algorithm. A cut divides the nodes of the
# network into a sending and a receiving side. For every cut, the bound is the bytes that must cross
# it, divided by the bandwidth of its links. The cut with the largest time is computed by maximum
# flows: if a time is too short, some flow does not fit, and the minimum cut of this flow needs more
# time (a Newton search of few steps). Every cut proves a bound, so it is enough to compute the flow
# of one rank for all ranks with equal surroundings.

_SUPPLY = 2**28  # integer units into which the data of a flow is divided
_MOST_FLOWS = 50_000  # most variables of a linear program
_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


@dataclass(frozen=True, slots=True)
class Limit:
    """The least seconds that any algorithm needs.

    - `bandwidth`: the seconds that the data needs to cross the tightest cut.
    - `latency`: the seconds of latency between the two ranks that are farthest apart.
    - `best`: the seconds that the best schedules in the literature reach for large sizes, without
      latency; None if unknown.
    - `cut`: the tightest cut in words.
    """

    bandwidth: float
    latency: float
    best: float | None
    cut: str


def limit_of(
    topology: Topology,
    gpus: Ints,
    name: str,
    block: float,
    *,
    root: int = 0,
    demand: Floats | None = None,
    nvls: bool = False,
) -> Limit:
    """The lower bound for the collective `name` on the devices `gpus`, in the order of ranks.

    - `block`: bytes of the collective's count, as nccl-tests defines it.
    - `root`: the root of a broadcast, reduce, gather or scatter.
    - `demand`: for sends between pairs, `demand[a, b]` are the bytes from rank a to rank b.
    - `nvls`: whether NVSwitches can add values.
    """
    if len(gpus) < 2 or (block <= 0 if demand is None else not demand.any()):
        return Limit(0.0, 0.0, 0.0, "nothing has to move")
    cuts = _Cuts(topology, gpus, nvls=nvls)
    every = np.full(len(gpus), block)
    root_supply = np.where(np.arange(len(gpus)) == root, block, 0.0)
    best: float | None
    if demand is not None:
        least, side, best = cuts.between(demand)
    elif name == "all_reduce":
        least, side, best = cuts.all_reduce(block)
    else:  # some ranks have what others need; a reduction is the same in the other direction
        supply = root_supply if name in ("broadcast", "reduce") else every
        ends = cuts.sinks(root if supply is root_supply else -1)
        ends = np.array([root]) if name in ("gather", "scatter") else ends
        back = name in ("reduce_scatter", "reduce", "scatter")
        least, side = cuts.tightest(supply, ends, back=back)
        best = least
    if not np.isfinite(least):
        raise TopologyError(f"{topology.name}: some ranks are not connected by links")
    return Limit(least, cuts.distance(), best, cuts.words(side))


class _Cuts:
    """The network between ranks, with parallel links joined, and the cuts through it.

    A cut is a boolean array over the nodes, true for those on its sending side.
    """

    def __init__(self, topology: Topology, gpus: Ints, *, nvls: bool) -> None:
        self.topology = topology
        self.nodes = len(topology.nodes)
        layout = topology.layout
        links = topology.links
        self.ranks = topology.gpu_nodes[gpus].astype(np.int64)
        best = least_and_most(links.bandwidth, topology.changes)[1]
        positive = best > 0
        key = links.tail[positive].astype(np.int64) * self.nodes + links.head[positive]
        pairs, place = np.unique(key, return_inverse=True)
        self.tail, self.head = np.divmod(pairs, self.nodes)
        self.rate = np.bincount(place, best[positive], len(pairs))
        self.latency = np.full(len(pairs), np.inf)
        np.minimum.at(self.latency, place, links.latency[positive])
        self.adds = layout.reduces | (nvls & (layout.kinds == NODE_KINDS.index("nvswitch")))
        hosts = [str(node).rpartition(".")[0] for node in topology.nodes]
        with_ranks = {name: k for k, name in enumerate(dict.fromkeys(hosts[n] for n in self.ranks))}
        alone = np.full(self.nodes, -1)
        alone[self.ranks] = np.arange(len(self.ranks))
        self.parts = [alone, np.array([with_ranks.get(name, -1) for name in hosts])]

    def sinks(self, apart: int = -1) -> Ints:
        """The number of one rank of each kind, as an array. Ranks are of one kind if their links,
        and the links around them as far as the network goes, have equal rates.

        The rank `apart` counts as a kind of its own and is left out (-1: no rank).
        """
        kinds = self.topology.node_kinds.astype(np.uint64)
        color = kinds * 3 + np.isin(np.arange(self.nodes), self.ranks)
        color[self.ranks[apart : apart + 1 or None]] += apart >= 0
        rates = np.unique(self.rate, return_inverse=True)[1].astype(np.uint64)
        count = 0
        while (now := len(np.unique(color))) > count:
            count = now
            seen = color * np.uint64(_MIX[0])
            for here, there, mix in ((self.tail, self.head, 1), (self.head, self.tail, 2)):
                mixed = (color[there] * np.uint64(_MIX[mix])) ^ (rates * np.uint64(_MIX[0]))
                np.add.at(seen, here, mixed * np.uint64(_MIX[3 - mix]) ^ (mixed >> np.uint64(29)))
            color = np.unique(seen, return_inverse=True)[1].astype(np.uint64)
        representatives = np.unique(color[self.ranks], return_index=True)[1].astype(np.int32)
        return np.asarray(representatives[representatives != apart])

    def leaving(self, side: NDArray[np.bool_]) -> float:
        """The bandwidth in bytes/s of the links from the nodes in `side` to all others."""
        return float(self.rate[side[self.tail] & ~side[self.head]].sum())

    def distance(self) -> float:
        """The latency in seconds between the two ranks that are farthest apart."""
        from scipy.sparse import csgraph, csr_array

        shape = (self.nodes,) * 2
        # A latency of 0 would mean to scipy that there is no link.
        least = np.maximum(self.latency, 1e-15)
        graph = csr_array((least, (self.tail, self.head)), shape=shape)
        far = csgraph.dijkstra(graph, indices=self.ranks[self.sinks()])[:, self.ranks]
        return float(far.max())

    def tightest(
        self, supply: Floats, ends: Ints, *, back: bool
    ) -> tuple[float, NDArray[np.bool_]]:
        """The longest time in seconds that any cut takes, and the cut that takes it.

        - `supply`: the bytes that each rank has, all of which each rank in `ends` needs.
        - `ends`: numbers of ranks.
        - `back`: if true, data goes the other way: each rank in `ends` has the bytes that each rank
          needs.
        """
        tail, head = (self.head, self.tail) if back else (self.tail, self.head)
        into = np.bincount(head, self.rate, self.nodes)[self.ranks[ends]]
        alone = (supply.sum() - supply[ends]) / np.where(into > 0, into, np.nan)
        least = 0.0
        side = np.ones(self.nodes, bool)
        if np.isnan(alone).any():
            return np.inf, side
        least = float(alone.max())
        first = int(ends[np.argmax(alone)])
        side[self.ranks[first]] = False
        for end in ends.tolist():
            while least < np.inf:
                cut_side = self._side(supply, int(self.ranks[end]), least, tail, head)
                rate = float(self.rate[cut_side[tail] & ~cut_side[head]].sum())
                crossing = float(supply[cut_side[self.ranks]].sum())
                seconds = crossing / rate if rate > 0 else np.inf * min(crossing, 1.0)
                if not seconds > least * (1 + 1e-9):
                    break
                least = seconds
                side = cut_side
        return least, ~side if back else side

    def _side(
        self, supply: Floats, end: int, seconds: float, tail: Longs, head: Longs
    ) -> NDArray[np.bool_]:
        """The sending side of the minimum cut between the ranks with a supply and the node `end`,
        if all transfers may take `seconds`.

        - `supply`: bytes of each rank.
        - `tail`, `head`: the nodes at which each link begins and ends.
        """
        unit = float(supply.sum()) / _SUPPLY
        source = self.nodes
        sources = np.flatnonzero(supply)
        tails = np.concatenate([tail, np.full(len(sources), source)])
        heads = np.concatenate([head, self.ranks[sources]])
        most = np.concatenate([np.minimum(self.rate * seconds, supply.sum()), supply[sources]])
        return flow([(tails, heads, np.round(most / unit))], source, end)[1][:-1]

    def all_reduce(self, block: float) -> tuple[float, NDArray[np.bool_], float]:
        """The least seconds of an all_reduce by any cut, the cut that decides it, and the seconds
        of the best known schedules. `block` are the bytes of the input.

        The data of each rank must leave every part of a partition, and the result must enter it. If
        no switch adds values, the parts together receive 2 (parts - 1) times the data. The best
        known schedules reduce and scatter the sums and then gather them.
        """
        supply = np.where(np.arange(len(self.ranks)) == 0, block, 0.0)
        every = np.full(len(self.ranks), block / len(self.ranks))
        cuts = [self.tightest(supply, self.sinks(0), back=back) for back in (False, True)]
        halves = [self.tightest(every, self.sinks(), back=back)[0] for back in (False, True)]
        for parts in self.parts:
            count = len(np.unique(parts[parts >= 0]))
            inside = parts[self.head] >= 0
            if count > 1 and not (self.adds & (parts < 0)).any():
                into = self.rate[inside & (parts[self.tail] != parts[self.head])].sum()
                cuts.append((2 * (count - 1) * block / float(into), parts == 0))
        least, side = max(cuts, key=lambda supply: supply[0])
        return least, side, max(least, sum(halves))

    def between(self, demand: Floats) -> tuple[float, NDArray[np.bool_], float | None]:
        """The least seconds of sends between pairs, the tightest cut, and the seconds of the best
        possible flows (None if the network is too large to compute them).

        `demand[a, b]` are the bytes from rank a to rank b. The cuts around ranks and hosts are
        tried; a small network is also solved as a linear program. If that takes longer than any of
        the cuts, the second entry is an empty cut.
        """
        least = 0.0
        side = np.zeros(self.nodes, bool)
        around = [p == k for p in self.parts for k in range(int(p.max()) + 1)]
        for half in [*around, *(~half for half in around)]:
            crossing = float(demand[np.ix_(half[self.ranks], ~half[self.ranks])].sum())
            seconds = crossing / self.leaving(half) if crossing and self.leaving(half) else 0.0
            if seconds > least:
                least = seconds
                side = half
        if len(self.ranks) * len(self.tail) > _MOST_FLOWS or not np.isfinite(least):
            return least, side, None
        best = max(least, self._program(demand))
        return best, side if best <= least * (1 + 1e-6) else np.zeros(self.nodes, bool), best

    def _program(self, demand: Floats) -> float:
        """The least seconds for the demand, as a linear program finds them: all sends at once, each
        divided over any paths. `demand[a, b]` are the bytes from rank a to rank b.
        """
        from scipy import optimize, sparse

        ranks = len(self.ranks)
        edges = len(self.tail)
        unit = float(demand.max())
        rate = np.minimum(self.rate, self.rate[self.rate < np.inf].sum())
        speed = float(rate.max())
        at = np.concatenate([self.tail, self.head])
        signs = np.repeat([-1.0, 1.0], edges)
        balance = sparse.coo_array((signs, (at, np.tile(np.arange(edges), 2))), (self.nodes, edges))
        flows = sparse.kron(sparse.eye_array(ranks), balance)
        wanted = np.zeros((ranks, self.nodes))
        wanted[:, self.ranks] = demand / unit
        wanted[np.arange(ranks), self.ranks] -= demand.sum(axis=1) / unit
        nothing = sparse.coo_array((ranks * self.nodes, 1))
        over = sparse.kron(np.ones((1, ranks)), sparse.eye_array(edges))
        # scipy takes sparse matrices here, but its type stubs only know dense ones.
        limits: Any = sparse.hstack([over, sparse.coo_array(-rate[:, None] / speed)])
        balances: Any = sparse.hstack([flows, nothing])
        solution = optimize.linprog(
            np.r_[np.zeros(ranks * edges), 1.0],
            A_ub=limits.tocsr(),
            b_ub=np.zeros(edges),
            A_eq=balances.tocsr(),
            b_eq=wanted.reshape(-1),
            method="highs-ipm",  # 0.6 s on a torus of 8 x 8, where a simplex takes 11
        )
        if solution.fun is None or solution.status != 0:
            return 0.0
        return float(solution.fun) * unit / speed

    def words(self, side: NDArray[np.bool_]) -> str:
        """A cut in words: its links by kind, their bandwidth, and the ranks on both sides."""
        links = self.topology.links
        names = self.topology.nodes
        over = side[links.tail] & ~side[links.head] & (links.bandwidth > 0)
        if not over.any():
            return "all links together"
        kinds = " and ".join(LINK_KINDS[k] for k in np.unique(links.kind[over]))
        is_inside = side[self.ranks]
        few, way = (
            (is_inside, "out of") if is_inside.sum() <= (~is_inside).sum() else (~is_inside, "into")
        )
        first = names[self.ranks[np.argmax(few)]]
        count = int(few.sum())
        members = f"{first}" if count == 1 else f"{count} GPUs ({first} …)"
        total = self.leaving(side) / 1e9
        return f"{int(over.sum())} {kinds} links {way} {members}, {total:.4g} GB/s"
