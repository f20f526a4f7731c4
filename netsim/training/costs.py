"""Simulate the collectives of a training step, and give each a coarse form of few rows.

A step runs many collectives beside each other and beside kernels. To simulate all their transfers
would take too long. So each collective is simulated once by itself, and its rows are replaced by
one flow for each pair of ranks, kind of transfer and route: the coarse form.

The coarse form takes as long as the collective when nothing runs beside it, and moves the same
bytes over the same links. Beside other work it shares links as if its bytes were spread evenly over
its time and all its ranks finished together. That is the approximation.
"""

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
from netsim.nccl.job import NcclJob, Wishes, job_of
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
SHARED_RESOURCES = ("hbm", "nic_msg", "nvls")
"""Resources that a collective shares with other collectives and with kernels."""

MOST_TARGETS = 8
"""Flows of one rank in a coarse form; with more targets, some of them carry all bytes."""


@dataclass
class _Traffic:
    """A flow: the sum of all bytes between two ranks over one route, and of the resources that they
    use.

    `nbytes` are bytes of data, `wire` bytes on the wire with headers. `uses` has the amount of each
    (resource, endpoint).
    """

    style: Style
    src: int
    dst: int
    nbytes: float = 0.0
    wire: float = 0.0

    def __post_init__(self) -> None:
        self.uses: dict[tuple[str, str], float] = defaultdict(float)

    def add(self, style: Style, nbytes: float) -> None:
        """Add `nbytes` bytes that rows of a style move."""
        self.nbytes += nbytes
        self.wire += style.wire * nbytes
        for use in style.uses:
            if use.resource in SHARED_RESOURCES:
                self.uses[use.resource, use.end] += use.weight * nbytes

    def join(self, joined: "_Traffic", fraction: float = 1.0) -> None:
        """Add the fraction `fraction` of another flow."""
        self.nbytes += fraction * joined.nbytes
        self.wire += fraction * joined.wire
        for use, weight in joined.uses.items():
            self.uses[use] += fraction * weight


def coarse_of(
    program: Program, seconds: float, launch: float, sms: Floats, *, scale: float
) -> Coarse:
    """The coarse form of a collective, made from a simulation of it.

    Args:
        program: the simulated rows, perhaps of fewer loops than the collective has.
        seconds: time of the collective after its launch.
        launch: seconds from the launch to the first transfer.
        sms: by rank, the fraction of its GPU's SMs that the channels hold.
        scale: bytes of the collective divided by those of `program`.
    """
    traffic = _thinned(_traffic_of(program), program.schedule.ranks)
    sms_per_byte = _sm_seconds_per_byte(traffic, seconds / scale, sms)
    amounts = [max(1, round(flow.nbytes * scale)) for flow in traffic]
    styles = []
    for flow, nbytes in zip(traffic, amounts, strict=True):
        uses = []
        for (resource, end), work in flow.uses.items():
            if work > 0:
                uses.append(Use(resource, end, work / flow.nbytes))
        for end, rank in _endpoints(flow):
            if sms_per_byte[rank] > 0:
                uses.append(Use("sms", end, sms_per_byte[rank]))
        styles.append(
            Style(
                kind=flow.style.kind,
                channel=flow.style.channel,
                route=flow.style.route,
                latency=launch,
                cap=nbytes / seconds,
                wire=max(flow.wire / flow.nbytes, 1e-9),
                uses=tuple(uses),
            )
        )
    return Coarse(
        seconds=launch + seconds,
        styles=tuple(styles),
        src=np.array([flow.src for flow in traffic], np.int32),
        dst=np.array([flow.dst for flow in traffic], np.int32),
        amount=np.array(amounts, np.int64),
        groups=program.schedule.groups,
    )


def _traffic_of(program: Program) -> list[_Traffic]:
    """The flows of a program: its rows that move data, summed by kind, ranks and wires, in the
    order of the first row.
    """
    schedule = program.schedule
    amount = schedule.amount * schedule.style_column("multiplicity").astype(np.float64)
    is_transfer = ~np.isin(schedule.kind, (MARK, COMPUTE, LOCAL_COPY))
    moving_rows = np.flatnonzero((amount > 0) & is_transfer)

    # Rows of one path and style have the same ranks and wires: sum these first, as arrays.
    path = program.path[moving_rows].astype(np.int64)
    style_count = len(schedule.styles)
    key, first_of_key, key_of_row = np.unique(
        path * style_count + schedule.style[moving_rows], return_index=True, return_inverse=True
    )
    bytes_of_key = np.bincount(key_of_row, amount[moving_rows])

    wires = {number: _wires(program, number) for number in np.unique(path).tolist()}
    flow_of_key: dict[object, _Traffic] = {}
    for position in np.argsort(first_of_key).tolist():
        row = moving_rows[first_of_key[position]]
        src = int(schedule.src[row])
        dst = int(schedule.dst[row])
        path_number, style_number = divmod(int(key[position]), style_count)
        style = schedule.styles[style_number]
        flow_key = (style.kind, src, dst, wires[path_number])
        flow = flow_of_key.setdefault(flow_key, _Traffic(style, src, dst))
        flow.add(style, float(bytes_of_key[position]))
    return list(flow_of_key.values())


def _wires(program: Program, path: int) -> bytes:
    """A key that is equal for two paths if they cross the same wires."""
    span = slice(int(program.paths.ptr[path]), int(program.paths.ptr[path + 1]))
    links = program.paths.link[span]
    return links[links < program.links.wires].tobytes()


def _thinned(flows: list[_Traffic], ranks: int) -> list[_Traffic]:
    """The flows with at most about `MOST_TARGETS` targets of each rank. The flows that are left
    carry all bytes.

    Flows over NVLink and flows that leave the node are thinned separately. All ranks choose targets
    at the same distances where possible, so that each rank receives as much as in the collective.
    """
    by_source: dict[int, list[_Traffic]] = defaultdict(list)
    thinned: list[_Traffic] = []
    for flow in flows:
        (by_source[flow.src] if flow.style.kind == TRANSFER else thinned).append(flow)
    distances = _common_distances(by_source, ranks)
    for source_flows in by_source.values():
        if len(source_flows) <= MOST_TARGETS:
            thinned += source_flows
            continue
        for route, route_flows in grouped(source_flows, lambda flow: flow.style.route).items():
            target_count = max(1, MOST_TARGETS * len(route_flows) // len(source_flows))
            common = distances[route]
            if len(common) >= target_count:
                thinned += _at_distances(route_flows, _spread(common, target_count), ranks)
            else:
                thinned += _evenly_chosen(route_flows, target_count)
    return thinned


def _common_distances(by_source: Mapping[int, list[_Traffic]], ranks: int) -> dict[str, list[int]]:
    """By route, the distances (target - source, modulo the ranks) to which all sources send."""
    sources: dict[tuple[str, int], set[int]] = defaultdict(set)
    sources_of_route: dict[str, set[int]] = defaultdict(set)
    for source, source_flows in by_source.items():
        for flow in source_flows:
            sources[flow.style.route, (flow.dst - source) % ranks].add(source)
            sources_of_route[flow.style.route].add(source)
    return {
        route: sorted(
            distance
            for (route_of_distance, distance), sources_at_distance in sources.items()
            if route_of_distance == route and len(sources_at_distance) == len(all_sources)
        )
        for route, all_sources in sources_of_route.items()
    }


def _spread(values: list[int], count: int) -> list[int]:
    """Return `count` of the values, evenly spread over them.

    >>> _spread([8, 9, 10, 11, 12, 13], 2)
    [9, 12]
    """
    return [values[(2 * place + 1) * len(values) // (2 * count)] for place in range(count)]


def _at_distances(flows: list[_Traffic], distances: list[int], ranks: int) -> list[_Traffic]:
    """The flows of one source to the targets at some distances; each carries an equal part of all
    bytes of `flows`.
    """
    equal_part = _Traffic(flows[0].style, flows[0].src, flows[0].dst)
    for flow in flows:
        equal_part.join(flow, 1 / len(distances))
    by_distance = {(flow.dst - flow.src) % ranks: flow for flow in flows}
    chosen_flows = []
    for distance in distances:
        flow = by_distance[distance]
        chosen = _Traffic(flow.style, flow.src, flow.dst, equal_part.nbytes, equal_part.wire)
        chosen.uses.update(equal_part.uses)
        chosen_flows.append(chosen)
    return chosen_flows


def _evenly_chosen(flows: list[_Traffic], count: int) -> list[_Traffic]:
    """`count` of the flows of one source; each also carries the bytes of the flows between it and
    the next.

    Flows are ordered by target, beginning at another target for each source.
    """
    flows.sort(key=lambda flow: (flow.dst < flow.src, flow.dst))
    # Each source starts at another target, so that the chosen targets of all sources are spread
    # over all ranks.
    rotation = flows[0].src % len(flows) if flows[0].style.route else 0
    ordered = flows[rotation:] + flows[:rotation]
    edges = [k * len(ordered) // count for k in range(count + 1)]
    for first, after in pairwise(edges):
        for joined in ordered[first + 1 : after]:
            ordered[first].join(joined)
    return [ordered[first] for first in edges[:-1]]


def _sm_seconds_per_byte(flows: list[_Traffic], seconds: float, sms: Floats) -> dict[int, float]:
    """By rank, the seconds of SM use for each byte such that all bytes of the rank together hold
    the fraction `sms` of its SMs during `seconds`.
    """
    total_bytes: dict[int, float] = defaultdict(float)
    for flow in flows:
        for _, rank in _endpoints(flow):
            total_bytes[rank] += flow.nbytes
    return {rank: float(sms[rank]) * seconds / nbytes for rank, nbytes in total_bytes.items()}


def _endpoints(flow: _Traffic) -> list[tuple[str, int]]:
    """The endpoints ("src" or "dst", rank) of a flow at which SMs work: the sender of a multicast,
    the receiver of a switch reduction, otherwise both.
    """
    if flow.style.kind == MULTICAST:
        return [("src", flow.src)]
    if flow.style.kind == SWITCH_REDUCE:
        return [("dst", flow.dst)]
    return [("src", flow.src), ("dst", flow.dst)]


# **** Costs of the collectives of a step **** Each collective is simulated as NCCL runs it, once
# for all equal groups.

Group = tuple[int, ...]
Key = tuple[object, ...]
OVERLOAD = 1e-6
"""The fraction of a wire's capacity by which rows may exceed it: their bytes are rounded."""
MIN_STATED_ERROR = 1e-3
"""Relative error bound of a ring from which the note on the step states it."""

MIN_LOOPS_LEFT_OUT = 40
"""If at least this many loops can be omitted, the schedule that shows the links has the fewest."""

MIN_HOP_HOSTS = 3
"""Hosts that chunks pass in a ring that is simulated in place of a longer one."""

FEWER_LOOPS = "large collectives from a part of their loops"


@dataclass(frozen=True)
class CollectiveTime:
    """The seconds of a collective from an idle cluster, without its launch, and what was
    extrapolated.
    """

    seconds: float
    approximation: str = ""


@dataclass(frozen=True)
class ChosenAlgorithm:
    """How one collective of a step runs.

    `columns` are the algorithm, protocol and channels as a coarse form names them. `launch_seconds`
    is the time from the launch to the first transfer. `sms` is, by rank of the group, the fraction
    of its GPU's SMs that the channels hold.
    """

    columns: dict[str, Any]
    launch_seconds: float
    sms: Floats


@dataclass
class Costs:
    """The coarse forms of the collectives of one cluster, by group, size and kind.

    To call it with an entry of a tape and a group returns their coarse form, from the cache if an
    equal one was made before. Groups are equal if their ranks have the same places on equal hosts,
    in the same pattern, over routes of the same latency and bandwidth.
    """

    cluster: Cluster
    wishes: Wishes
    """Version and environment variables of NCCL."""
    launch: str = "process_per_gpu"
    registered: bool = False
    holds_sms: bool = True
    """Whether kernels lose the SMs of channels: recorded kernels have lost that time already."""
    topology: Topology | None = None
    """Where collectives are simulated, if not on the cluster's topology. NCCL decides by that."""
    budget: Budget = budget_for(is_exact=False, is_step=True)
    """How much of a collective may be simulated to find its time."""
    crossed_kinds: dict[Key, frozenset[str]] = field(default_factory=dict)
    """The kinds of links that each coarse form crosses."""
    coarse_forms: dict[Key, Coarse] = field(default_factory=dict)
    times: dict[Key, CollectiveTime] = field(default_factory=dict)
    jobs: Memo = field(default_factory=Memo)
    patterns: dict[Group, tuple[Key, Key]] = field(default_factory=dict)
    """The keys of a group in `coarse_forms` and in `times`."""

    def __call__(self, entry: TapeEntry, group: Group) -> Coarse:
        """Return the coarse form of an entry's collective in one group."""
        if group not in self.patterns:  # then usually none of the entry's groups is
            groups = [tuple(members) for members in np.asarray(entry.groups).tolist()]
            self._look_up(groups if group in groups else [group])
        key = (self.patterns[group][0], entry.collective, entry.nbytes, entry.dtype)
        if key not in self.coarse_forms:
            self.coarse_forms[key], self.crossed_kinds[key] = self._coarse_form(entry, group)
        return self.coarse_forms[key]

    def with_links(self, topology: Topology, kind: str) -> "Costs":
        """The costs on a topology that differs in one kind of links. NCCL's decisions are those on
        the old topology.

        Coarse forms that do not cross this kind of links are kept.
        """
        kept_forms = {
            key: form
            for key, form in self.coarse_forms.items()
            if kind not in self.crossed_kinds[key]
        }
        crossed = {key: self.crossed_kinds[key] for key in kept_forms}
        return replace(
            self, topology=topology, coarse_forms=kept_forms, crossed_kinds=crossed, times={}
        )

    def forget_simulations(self) -> None:
        """Free the memory of the simulations from which the coarse forms were made.

        Call it before the rows of a large step need the memory. Simulations that are needed again
        later are repeated.
        """
        self.jobs.clear()
        (self.topology or self.cluster.topology).memo.clear()
        give_back_memory()

    def _look_up(self, groups: Sequence[Group]) -> None:
        """Store the two cache keys of each group; all groups have the same size. One request finds
        all routes.

        The first key determines the coarse form: positions of the GPUs in their hosts, pattern of
        hosts, classes of hosts, and length, latency and bandwidth of the route from each GPU to the
        next. The second key determines the time; it omits the positions if each rank is on a host
        of its own.
        """
        cluster = self.cluster
        gpus = np.array(groups, np.int32)
        hosts = cluster.gpu_host[gpus]
        places = gpus - np.searchsorted(cluster.gpu_host, hosts)
        next_gpus = np.roll(gpus, -1, axis=1).ravel()
        routes = cluster.topology.routes(gpus.ravel(), next_gpus, np.zeros(gpus.size, np.int32))
        bandwidth = cluster.topology.links.bandwidth[routes.link]
        least_bandwidth = np.minimum.reduceat(bandwidth, routes.ptr[:-1])
        rank_columns = (
            cluster.host_class[hosts],
            np.diff(routes.ptr),
            np.round(routes.latency * 1e12),
            np.round(least_bandwidth),
        )
        columns: list[Any] = [column.reshape(gpus.shape).tolist() for column in rank_columns]
        for group, slots, group_hosts, *columns_of_group in zip(
            groups, places.tolist(), hosts.tolist(), *columns, strict=True
        ):
            host_numbers = {host: number for number, host in enumerate(dict.fromkeys(group_hosts))}
            common = (
                tuple(host_numbers[host] for host in group_hosts),
                *map(tuple, columns_of_group),
            )
            timing_key = common if len(host_numbers) == len(group) else (tuple(slots), *common)
            self.patterns[group] = (tuple(slots), *common), timing_key

    def _job(self, group: Group) -> NcclJob:
        """NCCL's communicator of a group; groups with the same key share one."""
        gpus = np.array(group, np.int32)
        key = self.patterns[group][0]
        return self.jobs.of(key, lambda: job_of(self.cluster, gpus, self.wishes))

    def _coarse_form(self, entry: TapeEntry, group: Group) -> tuple[Coarse, frozenset[str]]:
        """The coarse form of a collective in one group, and the kinds of links that it crosses."""
        task, chosen = self._resolved(entry, group)
        router = task.topology.router
        has_fixed_paths = not router.by_load
        budget = replace(self.budget, may_fold=has_fixed_paths, has_equal_hops=has_fixed_paths)
        key = (self.patterns[group][1], entry.collective, entry.nbytes, entry.dtype)
        if key not in self.times:
            self.times[key] = _timed(task, budget)
        timed = self.times[key]
        loop_schedule, hop_fraction = _schedule_of_links(form_of(task, budget), budget)
        loops = (
            loop_schedule.least
            if loop_schedule.loops - loop_schedule.least >= MIN_LOOPS_LEFT_OUT
            else loop_schedule.loops
        )
        program = place(loop_schedule.schedule(loops), task.topology, group)
        scale = _scale(loop_schedule, loops) / hop_fraction
        form = coarse_of(program, timed.seconds, chosen.launch_seconds, chosen.sms, scale=scale)
        form = _within_links(form, task.topology, group)
        kinds = link_kinds(program)
        loads = _loads(program, kinds, timed.seconds, scale)
        form = replace(form, **chosen.columns, approximation=timed.approximation, loads=loads)
        return form, frozenset(kinds[program.paths.link].tolist())

    def _resolved(self, entry: TapeEntry, group: Group) -> tuple[Task, ChosenAlgorithm]:
        """The task of one collective of a step in one group, and how it runs."""
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
            choice = ChosenAlgorithm({"algorithm": algorithm}, 0.0, np.zeros(len(group)))
            return replace(task, algorithm=algorithm), choice
        job = self._job(group)
        plan = nccl_plan(job, collective, entry.dtype, registered=self.registered)
        task = replace(task, topology=with_blocks(topology, job.mechanism), plans=(plan,))
        return task, self._chosen(job, plan)

    def _chosen(self, job: NcclJob, plan: Plan) -> ChosenAlgorithm:
        """The columns, launch time and SMs of a plan of NCCL."""
        begin = plan.start(job.mechanism, job.comm.n_nodes)
        launch_seconds = nccl_launch(self.launch, job.comm.version, begin=begin).kernel
        columns = {
            "algorithm": plan.algorithm,
            "protocol": plan.protocol,
            "channels": plan.n_channels,
        }
        if not self.holds_sms:
            return ChosenAlgorithm(columns, launch_seconds, np.zeros(len(job.gpus)))
        sms_of_class = np.array([host.machine.gpu.sms for host in self.cluster.hosts])
        sms = sms_of_class[self.cluster.host_class[self.cluster.gpu_host[job.gpus]]]
        return ChosenAlgorithm(columns, launch_seconds, plan.n_channels / sms)


def _within_links(form: Coarse, topology: Topology, group: Group) -> Coarse:
    """Return the coarse form of a collective on the GPUs `group`, changed if its flows would
    overload a wire.

    The collective itself overloads no wire in its time. But the few targets of a coarse form may be
    spread over the links of a fabric less evenly than all targets are. Flows that cross an
    overloaded wire then put fewer bytes on wires, so that the coarse form alone takes as long as
    the collective.
    """
    builder = Builder(len(group))
    groups = np.array([builder.group(list(members)) for members in form.groups], np.int32)
    kinds = np.array([style.kind for style in form.styles])
    src = form.src.copy()
    dst = form.dst.copy()
    for column, kind in ((src, SWITCH_REDUCE), (dst, MULTICAST)):
        column[kinds == kind] = groups[column[kinds == kind]]
    numbers = [builder.style(style) for style in form.styles]
    builder.rows(numbers, src, dst, builder.pieces(form.amount))
    program = place(builder.finish(), topology, group)
    if program.paths.choices is not None:  # messages avoid links that are full
        return form
    row, entries = entries_of(program.paths.ptr, program.path)
    link = program.paths.link[entries]
    rates = np.array([style.cap for style in form.styles])
    demand = np.bincount(link, program.paths.weight[entries] * rates[row], len(program.links))
    overload = demand / program.links.capacity
    overload[program.links.wires :] = 0.0
    worst_of_row = np.ones(len(program))
    np.maximum.at(worst_of_row, row, overload[link])
    if worst_of_row.max() <= 1 + OVERLOAD:
        return form
    styles = tuple(
        replace(style, wire=style.wire / worst)
        for style, worst in zip(form.styles, worst_of_row.tolist(), strict=True)
    )
    return replace(form, styles=styles)


def _loads(
    program: Program, kinds: NDArray[np.str_], seconds: float, scale: float
) -> tuple[tuple[str, float], ...]:
    """Return, by kind of links, the utilization (0 to 1) of the busiest link.

    Args:
        kinds: the kind of each link of the program.
        seconds: time of the collective.
        scale: bytes of the collective divided by those of `program`.
    """
    schedule = program.schedule
    paths = program.paths
    amount = schedule.amount * schedule.style_column("multiplicity").astype(np.float64)
    wire = amount * schedule.style_column("wire").astype(np.float64) * (scale / seconds)
    has_path = program.path >= 0
    by_path = np.bincount(program.path[has_path], wire[has_path], minlength=len(paths.ptr) - 1)
    rates = np.bincount(
        paths.link, np.repeat(by_path, np.diff(paths.ptr)), minlength=len(program.links)
    )
    loads = rates / program.links.capacity
    names = [name for name in LINK_KINDS if (kinds == name).any()]
    return tuple((name, min(1.0, float(loads[kinds == name].max()))) for name in names)


def _timed(task: Task, budget: Budget) -> CollectiveTime:
    """The time of a collective from a simulation, with a note on what was extrapolated."""
    collective = task.collective
    title = f"{collective.name} of {collective.size_bytes} B"
    result = sound(solve(task, budget, "compiled"), collective, title)
    if not result.hops:
        return CollectiveTime(result.seconds, FEWER_LOOPS if result.approximation else "")
    note = "long rings from what a few hosts add"
    if result.uncertainty > MIN_STATED_ERROR:
        note += f", off by up to {result.uncertainty:.1%}"
    return CollectiveTime(result.seconds, note)


def _schedule_of_links(form: Form, budget: Budget) -> tuple[LoopSchedule, float]:
    """Return (a schedule that uses the same links as the task, its number of hops as a fraction of
    the task's).

    It is the complete schedule, with the fraction 1, except for a ring of many rows. There the data
    of each rank travels over some hosts only. This suffices because a rank sends the same bytes in
    every hop.
    """
    if not form.task.is_nccl:
        return form.loop_schedule, 1.0
    plan = form.plans[0]
    thresholds = budget.thresholds
    min_step = thresholds.hop_distance
    has_few_rows = form.ring_rows <= thresholds.min_folded_ring_rows
    if has_few_rows or why_not_fewer_hops(form.collective, plan, min_step):
        return form.loop_schedule, 1.0
    hops = next(islice(ring_distances(form.collective, plan, min_step), MIN_HOP_HOSTS - 1, None))
    shorter = form.without_empty_chunks[0].with_distance(hops)
    return shorter.loop_schedule, hops / (len(plan.node) - 1)


def _scale(call: LoopSchedule, loops: int) -> float:
    """The bytes of all loops divided by the bytes of the schedule with `loops` loops."""
    if loops == call.loops:
        return 1.0
    fewer_bytes = _moved_bytes(call.schedule(loops))
    more_bytes = _moved_bytes(call.schedule(loops + 1))
    return (fewer_bytes + (more_bytes - fewer_bytes) * (call.loops - loops)) / fewer_bytes


def _moved_bytes(schedule: Schedule) -> float:
    """The bytes that all rows of a schedule move."""
    times = schedule.style_column("multiplicity").astype(np.float64)
    return float((schedule.amount * times).sum())


def _collective(entry: TapeEntry, ranks: int) -> Collective:
    """The collective of an entry; its size is rounded up to a multiple of ranks x 16 bytes."""
    element = DTYPES[entry.dtype]
    even = ranks * max(element, 16)
    size = -(-entry.nbytes // even) * even
    pairs = [(0, 1)] if entry.collective == "p2p" else []
    return collective_of(entry.collective, ranks, size, element, pairs=pairs)
