"""Several jobs in one cluster, and messages beside them: how long each takes alone and together.

Every job is resolved as the cell that it would be alone. Their operations or steps, one after the
other, become one program on one topology, whose ranks are all GPUs that anybody uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import NoRoomError
from netsim.base.memo import Memo, different
from netsim.base.values import dataclass
from netsim.engines.engine import choose, simulate
from netsim.extent.noise import NoiseDraws, sampled
from netsim.extent.shown import complete_schedule
from netsim.metrics.bound import bound_by
from netsim.metrics.links import link_amounts
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.results.row import Row, not_validated, of_samples
from netsim.scenario.cells import Cell, cell_of, with_job
from netsim.scenario.models import BackgroundConfig, JobConfig, kind_of_workload
from netsim.schedule.builder import Builder
from netsim.schedule.repeat import Launch, repeat
from netsim.schedule.schedule import TRANSFER, Schedule, Style, combine
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.row import question_row, untimed
from netsim.topology.cluster import Cluster, build_at, build_cluster
from netsim.topology.fault_times import in_time
from netsim.topology.faults import with_slow_gpus
from netsim.topology.graph import LINK_KINDS, Topology
from netsim.training.resolve import ResolvedStep, resolve_step
from netsim.workloads.lower import lower

MOST_ROWS = 20_000_000  # of all that runs together
BACKGROUND = "background"
WHOLE = "workload"  # the name of the only job, where it has none
ROOM = 1.5  # times as long as jobs take, messages of a background are made for
Ints = NDArray[np.int32]
Path = tuple[str | int, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """What one job does: an operation or step, how it begins, on which GPUs, from when, how often;
    of a background all its messages, for whose end nobody waits."""

    name: str
    schedule: Schedule
    gpus: Ints
    launch: Launch = Launch()
    start: float = 0.0
    times: int = 1

    @property
    def rows(self) -> int:
        """How many rows all of it has."""
        return (len(self.schedule) + 2 * self.schedule.ranks) * self.times


@dataclass(frozen=True, eq=False)
class Ran:
    """Parts that ran together, and the rows that end each."""

    program: Program
    timeline: Timeline
    parts: Sequence[Part]
    ends: Sequence[NDArray[np.int64]]

    @cached_property
    def seconds(self) -> tuple[float, ...]:
        """Of an operation of each part in the mean."""
        return self.of(self.timeline)

    @property
    def until(self) -> float:
        """When the last job was over."""
        is_job = [part.name != BACKGROUND for part in self.parts]
        return max(float(self.timeline.end[rows].max()) for rows in compress(self.ends, is_job))

    def of(self, timeline: Timeline) -> tuple[float, ...]:
        """The seconds of another run."""
        last = [float(timeline.end[rows].max()) for rows in self.ends]
        both = zip(self.parts, last, strict=True)
        return tuple((end - part.start) / part.times for part, end in both)

    @property
    def messages(self) -> NDArray[np.float64]:
        """Seconds from begin to arrival of every message of a background while jobs ran."""
        schedule, rows = self.program.schedule, self.program.schedule.release_row
        is_background = np.array(
            [name.split(" ")[0] == BACKGROUND for name in schedule.collectives]
        )
        members = is_background[schedule.style_column("collective")] & (schedule.kind == TRANSFER)
        members = members[rows] & (schedule.release_time < self.until)
        end = self.timeline.end + self.program.path_latency[self.program.path]
        took: NDArray[np.float64] = end[rows[members]] - schedule.release_time[members]
        return took


def together(parts: Sequence[Part], topology: Topology, engine: str) -> Ran:
    """Run parts beside each other."""
    used = different(np.concatenate([part.gpus for part in parts]))
    schedules, ends, rows = list[Schedule](), list[NDArray[np.int64]](), 0
    for part in parts:
        made = repeat(part.schedule, part.times, part.launch)
        late = made.schedule.release_time + part.start
        names = tuple(f"{part.name} {name}".strip() for name in made.schedule.collectives)
        schedules.append(replace(made.schedule, release_time=late, collectives=names))
        ends.append(rows + made.ends[-1])
        rows += len(made.schedule)
    ranks = [np.searchsorted(used, part.gpus).tolist() for part in parts]
    program = place(combine(schedules, ranks, len(used)), topology, used.tolist())
    timeline = simulate(program, engine)
    return Ran(program.as_run(timeline), timeline, parts, ends)


# **** Hosts ****


def hosts_of(cell: Cell, jobs: Sequence[JobConfig], total: int) -> list[Ints]:
    """The hosts of every job, in the order of the file.

    Jobs that name hosts get these; then each other job gets the free hosts that it asks for, or all
    that are left."""
    owner, hosts = dict[int, str](), dict[int, Ints]()
    for number in sorted(range(len(jobs)), key=lambda n: isinstance(jobs[n].placement, str)):
        job, path, placement = jobs[number], ("jobs", number), jobs[number].placement
        for turn, host in enumerate(() if isinstance(placement, str) else placement):
            check_host(cell, host, total, (*path, "placement", turn))
            holder = job.name if host in placement[:turn] else owner.get(host)
            if holder is not None:
                message = f"host {host} is one of job {holder} already"
                raise cell.source.error((*path, "placement", turn), message)
        left = [host for host in range(total) if host not in owner]
        free = np.array(left if isinstance(placement, str) else placement, np.int32)
        count = job.nodes or len(free)
        if not 0 < count <= len(free) or (count < len(free) and not isinstance(placement, str)):
            message = f"job {job.name} asks for {count or 'some'} hosts, but {len(free)} are there"
            raise cell.source.error((*path, "nodes"), message)
        if placement == "random":
            free = np.random.default_rng([cell.scenario.seed, number]).permutation(free)
        hosts[number] = free[:: len(free) // count if placement == "spread" else 1][:count]
        owner |= dict.fromkeys(hosts[number].tolist(), job.name)
    return [hosts[number] for number in range(len(jobs))]


def check_host(cell: Cell, host: int, total: int, path: Path) -> None:
    """Refuse a host that is not there."""
    if host >= total:
        message = f"there is no host {host}: the cluster has hosts 0 to {total - 1}"
        raise cell.source.error(path, message)


# **** Background ****

Messages = Callable[[float], Part]  # all that begin before a time


def messages_of(
    cell: Cell, number: int, topology: Topology, gpus: Sequence[Ints], unused: Sequence[int]
) -> Messages:
    """The messages of a background between hosts, of which these are the GPUs."""
    background, path = cell.scenario.background[number], (BACKGROUND, number)
    usual = {"all": range(len(gpus)), "unused": unused}
    hosts = (
        usual[background.hosts]
        if isinstance(background.hosts, str)
        else sorted(set(background.hosts))
    )
    target = next(iter(hosts), 0) if background.target is None else background.target
    for key, host in [("target", target), *(("hosts", host) for host in hosts)]:
        check_host(cell, host, len(gpus), (*path, key))
    if len(hosts) < 2:
        problem = "an incast onto itself" if background.pattern == "incast" else "nobody to send to"
        message = f"{problem}: it has {len(hosts)} hosts, expected 2 or more"
        raise cell.source.error((*path, "hosts"), message)
    if target not in hosts:
        raise cell.source.error((*path, "target"), f"host {target} is none of its hosts")
    host_names = np.array([str(name).partition(".")[0] for name in topology.nodes])
    links, place = topology.links, hosts.index(target)
    wires = np.isin(links.kind, [LINK_KINDS.index("nic"), LINK_KINDS.index("fabric")])
    names_here = [host_names[topology.gpu_nodes[gpus[host][0]]] for host in hosts]
    rates = np.array(
        [links.bandwidth[wires & (host_names[links.tail] == name)].sum() for name in names_here]
    )
    if background.pattern == "incast":  # all senders together fill that part of the receiver's
        rates[:] = rates[place] / (len(hosts) - 1)
        rates[place] = 0
    return partial(
        _messages, background, rates * background.load, [gpus[host] for host in hosts], place
    )


def _messages(
    background: BackgroundConfig,
    rates: NDArray[np.float64],
    gpus: list[Ints],
    target: int,
    until: float,
) -> Part:
    sizes = np.array([len(some) for some in gpus])
    builder = Builder(int(sizes.sum()), collectives=(background.pattern,))
    first, piece = np.cumsum(sizes) - sizes, builder.pieces(background.size)
    turn = np.random.default_rng(background.seed).permutation(len(gpus)).tolist()
    following = dict(zip(turn, turn[1:] + turn[:1], strict=True))
    for sender in np.flatnonzero(rates > 0).tolist():
        mean_gap = background.size / rates[sender]  # seconds from one to the next, in the mean
        gaps, random = (np.random.default_rng([background.seed, sender, what]) for what in (0, 1))
        begins = np.cumsum(
            gaps.exponential(mean_gap, int(until / mean_gap + 8 * (until / mean_gap) ** 0.5 + 16))
        )
        begins = begins[begins < until]
        drawn = random.random((len(begins), 3))
        to = (sender + 1 + (drawn[:, 0] * (len(gpus) - 1)).astype(int)) % len(gpus)
        if background.pattern == "permutation":
            to[:] = following[sender]
        elif background.pattern != "uniform" and sender != target:
            to[(drawn[:, 1] < 0.5) | (background.pattern == "incast")] = target
        gpu = (drawn[:, 2] * sizes[sender]).astype(int)  # a message stays on its rail
        if len(begins):
            rows = builder.rows(Style(), first[sender] + gpu, first[to] + gpu % sizes[to], piece)
            builder.release(rows, begins)
    return Part(BACKGROUND, builder.finish(), np.concatenate(gpus))


# **** Cells ****


@dataclass(frozen=True, eq=False)
class ResolvedJobs:
    """A cell of a shared cluster: each job as the cell that it would be alone, and where."""

    cell: Cell
    jobs: tuple[JobConfig, ...]
    gpus: tuple[Ints, ...]
    alone: tuple[ResolvedCell | ResolvedStep, ...]
    topology: Topology
    cluster: Cluster | None
    messages: tuple[Messages, ...]

    @property
    def number(self) -> int:
        """Which of the jobs the cell is about."""
        return [job.name for job in self.jobs].index(self.cell.scenario.job or WHOLE)

    def memory_needed(self, size: int) -> int:
        """About how many bytes a process needs for a size at most."""
        return sum(one.memory_needed(size) for one in self.alone)

    def part(self, number: int, turn: int) -> Part:
        """What a job does, once; where its list of sizes is shorter, of its last size."""
        cell, name, gpus = self.alone[number], self.jobs[number].name, self.gpus[number]
        if isinstance(cell, ResolvedCell):
            size = cell.cell.scenario.workload.size_list()[: turn + 1][-1]
            task = cell.task(size)
            return Part(name, complete_schedule(task, cell.budget), cell.gpus, task.launch)
        if cell.lowered is not None:
            return Part(name, cell.lowered.schedule, gpus[: cell.lowered.schedule.ranks])
        assert self.cluster is not None  # steps are not resolved on graphs
        costs = replace(
            cell.costs,
            cluster=self.cluster,
            jobs=Memo(),
            crossed_kinds={},
            coarse_forms={},
            times={},
            patterns={},
        )
        lowered = lower(
            cell.tape(), len(gpus), lambda task, group: costs(task, tuple(gpus[[*group]].tolist()))
        )
        return Part(name, lowered.schedule, gpus)


def resolve_jobs(cell: Cell) -> ResolvedJobs:
    """Check that jobs and background of a cell fit; errors name the field."""
    scenario, config = cell.scenario, cell.scenario.cluster
    cluster = build_cluster(config) if config.graph is None else None
    topology = build_at(config, cell.source) if cluster is None else cluster.topology
    host = np.arange(len(topology)) if cluster is None else cluster.gpu_host
    every = [np.flatnonzero(host == one).astype(np.int32) for one in different(host).tolist()]
    jobs = scenario.jobs or (JobConfig(name=WHOLE, workload={}),)
    hosts = hosts_of(cell, jobs, len(every))
    gpus = tuple(np.concatenate([every[host] for host in mine.tolist()]) for mine in hosts)
    alone = tuple(_resolved(cell, *one) for one in zip(jobs, map(len, hosts), gpus, strict=True))
    slowdowns = _stragglers_of(alone, gpus)
    joined = next((one.topology for one in alone if isinstance(one, ResolvedCell)), None)
    if joined is None:
        joined = in_time(topology, scenario.retries) if scenario.timed else topology
    joined = with_slow_gpus(joined, slowdowns)
    if cluster is not None:
        cluster = replace(cluster, topology=with_slow_gpus(cluster.topology, slowdowns))
    unused = sorted(set(range(len(every))).difference(*(mine.tolist() for mine in hosts)))
    numbers = range(len(scenario.background))
    messages = tuple(messages_of(cell, number, joined, every, unused) for number in numbers)
    return ResolvedJobs(cell, jobs, gpus, alone, joined, cluster, messages)


def _stragglers_of(
    alone: Sequence[ResolvedCell | ResolvedStep], gpus: Sequence[Ints]
) -> dict[int, float]:
    """The slowdowns that steps among the jobs ask for, by GPU of the cluster."""
    return {
        int(of_job[straggler.rank]): straggler.slowdown
        for one, of_job in zip(alone, gpus, strict=True)
        if not isinstance(one, ResolvedCell)
        for straggler in one.work.stragglers
    }


def _resolved(cell: Cell, job: JobConfig, hosts: int, gpus: Ints) -> ResolvedCell | ResolvedStep:
    """A job as the cell that it would be alone: on its GPUs, or (a step) on as many hosts."""
    source = with_job(cell.source, job.name) if cell.scenario.jobs else cell.source
    data = {k: v for k, v in source.data.items() if k not in ("jobs", "job", "background")}
    work, config = dict(data["workload"]), dict(data["cluster"])
    if kind_of_workload(work) == "collective":
        chosen = work.get("ranks", [*range(len(gpus))])
        if isinstance(chosen, list) and set(chosen) <= set(range(len(gpus))):
            work["ranks"] = gpus[chosen].tolist()
        data["workload"] = work
        return resolve(cell_of(replace(source, data=data), cell.axes))
    if "machine" not in config:
        message = "a training step beside others needs a cluster of one machine"
        raise source.error(("workload",), message, key=True)
    kept_keys = {k: v for k, v in config.items() if k not in ("overrides", "faults", "placement")}
    data["cluster"] = {**kept_keys, "nodes": hosts}
    return resolve_step(cell_of(replace(source, data=data), cell.axes))


# **** Rows ****


class Shared:
    """The runs of a cell at a turn: each job alone, all together, and any two, when asked for."""

    def __init__(self, resolved: ResolvedJobs, turn: int, engine: str) -> None:
        self.resolved, self.engine = resolved, engine
        self.parts = self._repeated([resolved.part(n, turn) for n in range(len(resolved.jobs))])
        self.alone = [self._run([part]) for part in self.parts]

    @cached_property
    def all(self) -> Ran:
        """All jobs and the background."""
        return self.beside(range(len(self.parts)), self.resolved.messages)

    @cached_property
    def samples(self) -> NDArray[np.float64]:
        """The seconds of every part (second axis) in each sample of noise."""
        disturbances = self.resolved.cell.scenario.disturbances
        if disturbances is None:
            return np.zeros((0, len(self.parts)))
        runs = sampled(self.all.program, NoiseDraws(*disturbances), self.engine)
        return np.array([self.all.of(timeline) for timeline in runs])

    def beside(self, numbers: Iterable[int], messages: Sequence[Messages] = ()) -> Ran:
        """Some jobs, and messages that go on until they are over."""
        parts, horizon = [self.parts[number] for number in numbers], 0.0
        ran = self._run(parts)
        while messages and ran.until > horizon:
            horizon = ROOM * ran.until
            ran = self._run([*parts, *(until(horizon) for until in messages)])
        return ran

    def slowed(self, number: int) -> Iterator[tuple[str, float, str]]:
        """By whom a job is slowed, how many times, and on which link they meet most."""
        messages, cell = self.resolved.messages, self.alone[number]
        few = len(self.parts) + bool(messages) < 3
        for number_beside, part in enumerate(self.parts):
            if number_beside != number:
                both = self.all if few else self.beside((number, number_beside))
                place = number if few else 0
                yield part.name, both.seconds[place] / cell.seconds[0], self._met(cell, both)
        if messages:
            both = self.all if few else self.beside([number], messages)
            yield BACKGROUND, both.seconds[0] / cell.seconds[0], self._met(cell, both)

    def _run(self, parts: Sequence[Part]) -> Ran:
        rows = sum(part.rows for part in parts)
        if rows > MOST_ROWS:
            message = f"all rows of what runs together are run, and {rows:.2g} are too many"
            raise self.resolved.cell.source.error(("cluster",), message, kind=NoRoomError)
        return together(parts, self.resolved.topology, self.engine)

    def _repeated(self, once: Sequence[Part]) -> list[Part]:
        """How often each job runs: until the longest job with a stated number of runs is over."""
        jobs, took = self.resolved.jobs, [self._run([part]).until for part in once]
        until = max(
            j.start + (j.repeat or 1) * seconds for j, seconds in zip(jobs, took, strict=True)
        )
        counts = []
        for part, job, seconds in zip(once, jobs, took, strict=True):
            often = int(np.ceil((until - job.start) / seconds * (1 - 1e-9)))
            often = job.repeat or max(1, min(often, MOST_ROWS // len(once) // 2 // part.rows))
            counts.append(replace(part, start=job.start, times=often))
        return counts

    def _met(self, run: Ran, both: Ran) -> str:
        """The fullest of the links that both use."""
        wires = len(self.resolved.topology.links)
        first_amounts, every = (link_amounts(ran.program)[:wires] for ran in (run, both))
        shared = (first_amounts > 0) & (every > first_amounts * (1 + 1e-9))
        full = np.where(shared, every / run.program.links.capacity[:wires], 0.0)
        return run.program.links.name(int(full.argmax())) if full.any() else ""


RUNS = Memo(1)  # the last one: its jobs are cells that ask one after the other


def shared(resolved: ResolvedJobs, size: int, engine: str) -> Shared:
    """The runs that a row is made of."""
    data = resolved.cell.source.data
    turn = resolved.cell.scenario.workload.size_list().index(size)  # jobs take theirs in step
    key = repr(({k: v for k, v in data.items() if k not in ("job", "workload")}, turn, engine))
    return RUNS.of(key, lambda: Shared(resolved, turn, engine))


def row_of_job(resolved: ResolvedJobs, size: int, engine: str) -> Row:
    """The row of a job at a size: beside the others, and how much longer than alone."""
    runs, cell, number = shared(resolved, size, engine), resolved.cell, resolved.number
    job_cell, part, ran = resolved.alone[number], runs.parts[number], runs.all
    seconds, alone = ran.seconds[number], runs.alone[number].seconds[0]
    hosts = resolved.cluster.gpu_host[part.gpus] if resolved.cluster else np.zeros(1)
    columns: dict[str, Any] = {"size_bytes": size, "repeat": part.times, "alone_us": alone * 1e6}
    for name, times, link in runs.slowed(number):
        columns |= {f"by:{name}": times, f"on:{name}": link}
    if len(took := ran.messages * 1e6):
        columns["messages"] = len(took)
        columns |= {f"message_p{q}_us": float(np.percentile(took, q)) for q in (50, 99)}
    time_columns: dict[str, Any] = {
        "alone_us": alone * 1e6, "slowdown": seconds / alone, "rows": len(ran.program),
        "engine": choose(ran.program, engine), "neighbours": columns, "ranks": len(part.gpus),
        "bound_by": bound_by(ran.program, ran.timeline), "nodes": len(different(hosts)),
        "validated": not_validated("beside others"), "cell": cell.id, "axes": dict(cell.axes),
        **of_samples(runs.samples[:, number] * 1e6, size),
    }  # fmt: skip
    if not isinstance(job_cell, ResolvedCell):
        return replace(untimed(cell), step_time_us=seconds * 1e6, **time_columns)
    collective = job_cell.collective(size)
    algbw = collective.size_bytes / seconds / 1e9
    rates = {"algbw_GBps": algbw, "busbw_GBps": algbw * collective.bus_factor}
    return replace(question_row(job_cell, size, time_us=seconds * 1e6, **rates), **time_columns)
