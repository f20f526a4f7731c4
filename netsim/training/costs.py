"""What the collectives of a step cost: each simulated once, and written in few rows that share.

Simulated by itself, the coarse collective takes exactly as long as the real one, over the same
links with the same bytes. Beside others it shares links as if its bytes were spread evenly over
its time: that, and that nobody leaves it before the last, is the approximation."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo
from netsim.base.values import dataclass, grouped
from netsim.collectives.collective import Collective, collective_of
from netsim.collectives.table import ALGORITHMS
from netsim.engines.engine import give_back_memory
from netsim.explain.what_if import link_kinds
from netsim.extent.budget import Budget, budget_for
from netsim.extent.distance import ring_distances, why_not_fewer_hops
from netsim.extent.forms import Form, LoopSchedule, form_of
from netsim.extent.invariants import sound
from netsim.extent.solve import solve
from netsim.nccl.choice import nccl_plan, with_blocks
from netsim.nccl.constants import nccl_launch
from netsim.nccl.job import Job, Wishes, job_of
from netsim.nccl.schedules.plan import Plan
from netsim.program.place import place
from netsim.program.program import Program
from netsim.scenario.names import DTYPES
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import (
    COMPUTE,
    LOCAL_COPY,
    MARK,
    MULTICAST,
    SWITCH_REDUCE,
    TRANSFER,
    Schedule,
    Style,
    Use,
)
from netsim.topology.cluster import Cluster
from netsim.topology.graph import LINK_KINDS, Topology
from netsim.topology.network import entries_of
from netsim.workloads.lower import Coarse
from netsim.workloads.tape import TapeEntry
from netsim.workloads.task import Task

Floats = NDArray[np.float64]
KEPT = ("hbm", "nic_msg", "nvls")  # what other collectives and kernels share with this one
MOST_TARGETS = 8  # of one rank; more are stood for by some of them


@dataclass
class _Way:
    """All bytes of one way, and what they draw on, summed over rows."""

    style: Style
    src: int
    dst: int
    nbytes: float = 0.0
    wire: float = 0.0

    def __post_init__(self) -> None:
        self.uses: dict[tuple[str, str], float] = defaultdict(float)

    def add(self, style: Style, nbytes: float) -> None:
        self.nbytes += nbytes
        self.wire += style.wire * nbytes
        for use in style.uses:
            if use.resource in KEPT:
                self.uses[use.resource, use.end] += use.weight * nbytes

    def join(self, other: "_Way", part: float = 1.0) -> None:
        """Carry a part of the bytes of another way as well."""
        self.nbytes += part * other.nbytes
        self.wire += part * other.wire
        for use, weight in other.uses.items():
            self.uses[use] += part * weight


def coarse_of(
    program: Program, seconds: float, launch: float, sms: Floats, *, scale: float
) -> Coarse:
    """The coarse form of a collective that takes `seconds` after its launch, of which `program` is
    a simulation, perhaps with fewer bytes: `scale` times as many are meant. `sms` is by rank the
    fraction of its GPU's SMs that the channels hold."""
    ways = _thinned(_ways(program), program.schedule.ranks)
    held = _held(ways, seconds / scale, sms)
    amounts = [max(1, round(way.nbytes * scale)) for way in ways]
    styles = []
    for way, amount in zip(ways, amounts, strict=True):
        uses = [Use(what, end, w / way.nbytes) for (what, end), w in way.uses.items() if w > 0]
        uses += [Use("sms", end, held[rank]) for end, rank in _ends(way) if held[rank] > 0]
        styles.append(
            Style(
                kind=way.style.kind,
                channel=way.style.channel,
                route=way.style.route,
                latency=launch,
                cap=amount / seconds,
                wire=max(way.wire / way.nbytes, 1e-9),
                uses=tuple(uses),
            )
        )
    return Coarse(
        seconds=launch + seconds,
        styles=tuple(styles),
        src=np.array([way.src for way in ways], np.int32),
        dst=np.array([way.dst for way in ways], np.int32),
        amount=np.array(amounts, np.int64),
        groups=program.schedule.groups,
    )


def _ways(program: Program) -> list[_Way]:
    """Rows that move data, by kind, ends and wires; in order of their first row."""
    schedule = program.schedule
    amount = schedule.amount * schedule.style_column("multiplicity").astype(np.float64)
    moving = np.flatnonzero((amount > 0) & ~np.isin(schedule.kind, (MARK, COMPUTE, LOCAL_COPY)))
    path, styles = program.path[moving].astype(np.int64), len(schedule.styles)
    key, first, place = np.unique(
        path * styles + schedule.style[moving], return_index=True, return_inverse=True
    )
    bytes_of_key = np.bincount(place, amount[moving])
    order = np.argsort(first)
    rows = moving[first[order]]  # ranks of one path are the same: its wires are theirs
    columns = (
        key[order] // styles,
        key[order] % styles,
        schedule.src[rows],
        schedule.dst[rows],
        bytes_of_key[order],
    )
    wires = {number: _wires(program, number) for number in np.unique(path).tolist()}
    way_of_key: dict[object, _Way] = {}
    for number, style_number, src, dst, nbytes in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        style = schedule.styles[style_number]
        name = (style.kind, src, dst, wires[number])
        way = way_of_key.setdefault(name, _Way(style, src, dst))
        way.add(style, nbytes)
    return list(way_of_key.values())


def _wires(program: Program, path: int) -> bytes:
    """What tells the wires of a path from those of others."""
    span = slice(int(program.paths.ptr[path]), int(program.paths.ptr[path + 1]))
    links = program.paths.link[span]
    return links[links < program.links.wires].tobytes()


def _thinned(ways: list[_Way], ranks: int) -> list[_Way]:
    """Where a rank sends to very many others, ways to a few of them carry all of its bytes.

    Those that go over NVLink and those that leave the node stay apart. All ranks choose targets at
    the same distances where they can, so that every rank receives as much as in the collective."""
    by_source: dict[int, list[_Way]] = defaultdict(list)
    kept: list[_Way] = []
    for way in ways:
        (by_source[way.src] if way.style.kind == TRANSFER else kept).append(way)
    distances = _common_distances(by_source, ranks)
    for of_source in by_source.values():
        if len(of_source) <= MOST_TARGETS:
            kept += of_source
            continue
        for route, of_route in grouped(of_source, lambda way: way.style.route).items():
            few = max(1, MOST_TARGETS * len(of_route) // len(of_source))
            common = distances[route]
            if len(common) >= few:
                kept += _at_distances(of_route, _spread(common, few), ranks)
            else:
                kept += _evenly_chosen(of_route, few)
    return kept


def _common_distances(by_source: Mapping[int, list[_Way]], ranks: int) -> dict[str, list[int]]:
    """By route, the distances (target - source, modulo the ranks) to which all sources send."""
    sources: dict[tuple[str, int], set[int]] = defaultdict(set)
    sources_of_route: dict[str, set[int]] = defaultdict(set)
    for source, ways in by_source.items():
        for way in ways:
            sources[way.style.route, (way.dst - source) % ranks].add(source)
            sources_of_route[way.style.route].add(source)
    return {
        route: sorted(
            distance
            for (route_of_distance, distance), sources_at_distance in sources.items()
            if route_of_distance == route and len(sources_at_distance) == len(all_sources)
        )
        for route, all_sources in sources_of_route.items()
    }


def _spread(values: list[int], few: int) -> list[int]:
    """A few of the values, evenly spread over them.

    >>> _spread([8, 9, 10, 11, 12, 13], 2)
    [9, 12]
    """
    return [values[(2 * place + 1) * len(values) // (2 * few)] for place in range(few)]


def _at_distances(ways: list[_Way], distances: list[int], ranks: int) -> list[_Way]:
    """The ways of one source to targets at some distances, which carry equal parts of all bytes."""
    equal_part = _Way(ways[0].style, ways[0].src, ways[0].dst)
    for way in ways:
        equal_part.join(way, 1 / len(distances))
    by_distance = {(way.dst - way.src) % ranks: way for way in ways}
    chosen_ways = []
    for distance in distances:
        way = by_distance[distance]
        chosen = _Way(way.style, way.src, way.dst, equal_part.nbytes, equal_part.wire)
        chosen.uses.update(equal_part.uses)
        chosen_ways.append(chosen)
    return chosen_ways


def _evenly_chosen(ways: list[_Way], few: int) -> list[_Way]:
    """A few of the ways of one source, in order of their targets; each carries the bytes of those
    that follow it, too."""
    ways.sort(key=lambda way: (way.dst < way.src, way.dst))
    # Each rank begins elsewhere, so that what all choose together is spread over all ranks.
    turn = ways[0].src % len(ways) if ways[0].style.route else 0
    ordered = ways[turn:] + ways[:turn]
    edges = [k * len(ordered) // few for k in range(few + 1)]
    for first, after in pairwise(edges):
        for other in ordered[first + 1 : after]:
            ordered[first].join(other)
    return [ordered[first] for first in edges[:-1]]


def _held(ways: list[_Way], seconds: float, sms: Floats) -> dict[int, float]:
    """By rank, the work-seconds of its SMs a byte, of which all its ways add up to its `sms`."""
    total: dict[int, float] = defaultdict(float)
    for way in ways:
        for _, rank in _ends(way):
            total[rank] += way.nbytes
    return {rank: float(sms[rank]) * seconds / nbytes for rank, nbytes in total.items()}


def _ends(way: _Way) -> list[tuple[str, int]]:
    if way.style.kind == MULTICAST:
        return [("src", way.src)]
    if way.style.kind == SWITCH_REDUCE:
        return [("dst", way.dst)]
    return [("src", way.src), ("dst", way.dst)]


# The collectives of a step as NCCL runs them: each is simulated once for equal groups.
# Groups are equal if their ranks sit at the same places of equal hosts, in the same pattern, over
# routes of the same latency and bandwidth.

Group = tuple[int, ...]
Key = tuple[object, ...]
OVERLOAD = 1e-6
"""The fraction of a wire's capacity by which rows may exceed it: their bytes are rounded."""
NOTABLE = 1e-3  # part by which rings may be off that is worth a word
WORTH = 40  # loops that are left out of what is only to show which ways are taken
WRITTEN = 3  # whole hosts, at least, that chunks go in rings that stand for longer ones
STEADY = "large collectives from a part of their loops"


@dataclass(frozen=True)
class Timed:
    """A collective alone, after its launch: how long, and how it was simplified."""

    seconds: float
    approximation: str = ""


@dataclass(frozen=True)
class Choice:
    """What was chosen for a collective of a step.

    `columns` are the algorithm, protocol and channels as a coarse form names them.
    `launch_seconds` is the time from the launch to the first transfer.
    `sms` is, by rank of the group, the fraction of its GPU's SMs that the channels hold.
    """

    columns: dict[str, Any]
    launch_seconds: float
    sms: Floats


@dataclass
class Costs:
    """The collectives of one cluster, by group, size and kind; `wishes` is what NCCL is told.

    `topology` is what they are simulated on, if that is not the cluster's own, by which NCCL
    decides; `crossed` tells the kinds of links that each collective known crosses.

    `budget` is what is allowed for the time of a collective. Without `holds_sms`, kernels beside
    collectives are as fast as without: recorded ones have lost that time already."""

    cluster: Cluster
    wishes: Wishes
    launch: str = "process_per_gpu"
    registered: bool = False
    holds_sms: bool = True
    topology: Topology | None = None
    budget: Budget = budget_for(is_exact=False, is_step=True)
    crossed: dict[Key, frozenset[str]] = field(default_factory=dict)
    known: dict[Key, Coarse] = field(default_factory=dict)
    times: dict[Key, Timed] = field(default_factory=dict)
    jobs: Memo = field(default_factory=Memo)
    patterns: dict[Group, tuple[Key, Key]] = field(default_factory=dict)

    def __call__(self, entry: TapeEntry, group: Group) -> Coarse:
        """The coarse form of the entry's collective in one group."""
        if group not in self.patterns:  # nor those of its entry, as a rule
            groups = [tuple(one) for one in np.asarray(entry.groups).tolist()]
            self._look_up(groups if group in groups else [group])
        key = (self.patterns[group][0], entry.collective, entry.nbytes, entry.dtype)
        if key not in self.known:
            self.known[key], self.crossed[key] = self._made(entry, group)
        return self.known[key]

    def on(self, topology: Topology, kind: str) -> "Costs":
        """The same decisions where links of one kind are others; only what crosses them is new."""
        kept_costs = {
            key: made for key, made in self.known.items() if kind not in self.crossed[key]
        }
        crossed = {key: self.crossed[key] for key in kept_costs}
        return replace(self, topology=topology, known=kept_costs, crossed=crossed, times={})

    def forget_simulations(self) -> None:
        """Free the memory of what was simulated for the forms of collectives, before the rows of a
        step need it; what is asked again is found again."""
        self.jobs.clear()
        (self.topology or self.cluster.topology).memo.clear()
        give_back_memory()

    def _look_up(self, groups: Sequence[Group]) -> None:
        """Places of groups of one size, whose routes are asked for at once; and what groups have in
        common that take as long: with one GPU a host, not which it is."""
        cluster, gpus = self.cluster, np.array(groups, np.int32)
        hosts = cluster.gpu_host[gpus]
        places = gpus - np.searchsorted(cluster.gpu_host, hosts)
        near = np.roll(gpus, -1, axis=1).ravel()
        routes = cluster.topology.routes(gpus.ravel(), near, np.zeros(gpus.size, np.int32))
        bandwidth = cluster.topology.links.bandwidth[routes.link]
        least = np.minimum.reduceat(bandwidth, routes.ptr[:-1])
        of_ranks = (
            cluster.host_class[hosts],
            np.diff(routes.ptr),
            np.round(routes.latency * 1e12),
            np.round(least),
        )
        columns: list[Any] = [column.reshape(gpus.shape).tolist() for column in of_ranks]
        for group, at, on, *ways in zip(
            groups, places.tolist(), hosts.tolist(), *columns, strict=True
        ):
            seen = {host: number for number, host in enumerate(dict.fromkeys(on))}
            common = (tuple(seen[host] for host in on), *map(tuple, ways))
            one_each = common if len(seen) == len(group) else (tuple(at), *common)
            self.patterns[group] = (tuple(at), *common), one_each

    def _job(self, group: Group) -> Job:
        gpus = np.array(group, np.int32)
        key = self.patterns[group][0]
        return self.jobs.of(key, lambda: job_of(self.cluster, gpus, self.wishes))

    def _made(self, entry: TapeEntry, group: Group) -> tuple[Coarse, frozenset[str]]:
        """The coarse form of a collective in one group, and the kinds of links that it crosses."""
        task, choice = self._resolved(entry, group)
        router = task.topology.router
        has_fixed_paths = not router.by_load
        budget = replace(self.budget, may_fold=has_fixed_paths, has_equal_hops=has_fixed_paths)
        key = (self.patterns[group][1], entry.collective, entry.nbytes, entry.dtype)
        if key not in self.times:
            self.times[key] = _timed(task, budget)
        timed = self.times[key]
        work, part = _written(form_of(task, budget), budget)
        loops = work.least if work.loops - work.least >= WORTH else work.loops
        program = place(work.schedule(loops), task.topology, group)
        scale = _scale(work, loops) / part
        made = coarse_of(program, timed.seconds, choice.launch_seconds, choice.sms, scale=scale)
        made = _within_links(made, task.topology, group)
        kinds = link_kinds(program)
        loads = _loads(program, kinds, timed.seconds, scale)
        made = replace(made, **choice.columns, approximation=timed.approximation, loads=loads)
        return made, frozenset(kinds[program.paths.link].tolist())

    def _resolved(self, entry: TapeEntry, group: Group) -> tuple[Task, Choice]:
        """The task of one collective of a step in one group, and what was chosen for it."""
        collective = _collective(entry, len(group))
        topology = self.topology or self.cluster.topology
        task = Task(
            collective,
            topology,
            np.array(group, np.int32),
            (tuple(range(len(group))),),
            back_to_back=None,
        )
        if not self.cluster.hosts:  # a graph, of which NCCL knows nothing
            algorithm = next(iter(ALGORITHMS[collective.name]))
            choice = Choice({"algorithm": algorithm}, 0.0, np.zeros(len(group)))
            return replace(task, algorithm=algorithm), choice
        job = self._job(group)
        plan = nccl_plan(job, collective, entry.dtype, registered=self.registered)
        task = replace(task, topology=with_blocks(topology, job.mechanism), plans=(plan,))
        return task, self._chosen(job, plan)

    def _chosen(self, job: Job, plan: Plan) -> Choice:
        """What NCCL chose by a plan: its columns, launch, and the SMs that its channels hold."""
        begin = plan.start(job.mechanism, job.comm.n_nodes)
        launch_seconds = nccl_launch(self.launch, job.comm.version, begin=begin).kernel
        columns = {
            "algorithm": plan.algorithm,
            "protocol": plan.protocol,
            "channels": plan.n_channels,
        }
        if not self.holds_sms:
            return Choice(columns, launch_seconds, np.zeros(len(job.gpus)))
        sms_of_class = np.array([host.machine.gpu.sms for host in self.cluster.hosts])
        sms = sms_of_class[self.cluster.host_class[self.cluster.gpu_host[job.gpus]]]
        return Choice(columns, launch_seconds, plan.n_channels / sms)


def _within_links(made: Coarse, topology: Topology, group: Group) -> Coarse:
    """The coarse form, with less load on wires where its rows ask for more than a wire has.

    The collective itself overloads no wire in its time. But few targets may be spread over the
    links of a fabric less evenly than all targets are. Rows that cross an overloaded wire then put
    less on wires, so that the coarse form alone takes as long as the collective."""
    builder = Builder(len(group))
    groups = np.array([builder.group(list(members)) for members in made.groups], np.int32)
    kinds = np.array([style.kind for style in made.styles])
    src, dst = made.src.copy(), made.dst.copy()
    for column, kind in ((src, SWITCH_REDUCE), (dst, MULTICAST)):
        column[kinds == kind] = groups[column[kinds == kind]]
    numbers = [builder.style(style) for style in made.styles]
    builder.rows(numbers, src, dst, builder.pieces(made.amount))
    program = place(builder.finish(), topology, group)
    if program.paths.choices is not None:  # messages avoid links that are full
        return made
    row, entries = entries_of(program.paths.ptr, program.path)
    link = program.paths.link[entries]
    rates = np.array([style.cap for style in made.styles])
    demand = np.bincount(link, program.paths.weight[entries] * rates[row], len(program.links))
    overload = demand / program.links.capacity
    overload[program.links.wires :] = 0.0
    worst_of_row = np.ones(len(program))
    np.maximum.at(worst_of_row, row, overload[link])
    if worst_of_row.max() <= 1 + OVERLOAD:
        return made
    styles = tuple(
        replace(style, wire=style.wire / worst)
        for style, worst in zip(made.styles, worst_of_row.tolist(), strict=True)
    )
    return replace(made, styles=styles)


def _loads(
    program: Program, kinds: NDArray[np.str_], seconds: float, scale: float
) -> tuple[tuple[str, float], ...]:
    """How far the busiest link of each kind is loaded, by the `kinds` of all links."""
    schedule, paths = program.schedule, program.paths
    amount = schedule.amount * schedule.style_column("multiplicity").astype(np.float64)
    wire = amount * schedule.style_column("wire").astype(np.float64) * (scale / seconds)
    sent = program.path >= 0
    by_path = np.bincount(program.path[sent], wire[sent], minlength=len(paths.ptr) - 1)
    rates = np.bincount(
        paths.link, np.repeat(by_path, np.diff(paths.ptr)), minlength=len(program.links)
    )
    parts = rates / program.links.capacity
    names = [name for name in LINK_KINDS if (kinds == name).any()]
    return tuple((name, min(1.0, float(parts[kinds == name].max()))) for name in names)


def _timed(task: Task, budget: Budget) -> Timed:
    collective = task.collective
    title = f"{collective.name} of {collective.size_bytes} B"
    result = sound(solve(task, budget, "compiled"), collective, title)
    if not result.hops:
        return Timed(result.seconds, STEADY if result.approximation else "")
    words = "long rings from what a few hosts add"
    if result.uncertainty > NOTABLE:
        words += f", off by up to {result.uncertainty:.1%}"
    return Timed(result.seconds, words)


def _written(form: Form, budget: Budget) -> tuple[LoopSchedule, float]:
    """A schedule that sends over the same links, and the fraction of the hops that it has.

    In rings of many rows chunks travel a few hosts far, as each rank sends the same in every hop.
    """
    if not form.task.is_nccl:
        return form.loop_schedule, 1.0
    plan, thresholds = form.plans[0], budget.thresholds
    min_step = thresholds.hop_distance
    has_few_rows = form.ring_rows <= thresholds.min_folded_ring_rows
    if has_few_rows or why_not_fewer_hops(form.collective, plan, min_step):
        return form.loop_schedule, 1.0
    hops = next(islice(ring_distances(form.collective, plan, min_step), WRITTEN - 1, None))
    shorter = form.without_empty_chunks[0].with_distance(hops)
    return shorter.loop_schedule, hops / (len(plan.node) - 1)


def _scale(call: LoopSchedule, loops: int) -> float:
    """How many times more bytes the call moves than with so many loops."""
    if loops == call.loops:
        return 1.0
    few, more = _moved(call.schedule(loops)), _moved(call.schedule(loops + 1))
    return (few + (more - few) * (call.loops - loops)) / few


def _moved(schedule: Schedule) -> float:
    times = schedule.style_column("multiplicity").astype(np.float64)
    return float((schedule.amount * times).sum())


def _collective(entry: TapeEntry, ranks: int) -> Collective:
    element = DTYPES[entry.dtype]
    even = ranks * max(element, 16)
    size = -(-entry.nbytes // even) * even
    pairs = [(0, 1)] if entry.collective == "p2p" else []
    return collective_of(entry.collective, ranks, size, element, pairs=pairs)
