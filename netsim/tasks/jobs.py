"""Simulate several jobs in one cluster, and background messages: the time of each job alone and
together with the others.

Every job is first resolved as the cell that it would be without the others. Then the operations or
steps of all jobs become one program on one topology, whose ranks are all GPUs in use.
"""

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

MOST_ROWS = 20_000_000  # most rows of everything that runs together
BACKGROUND = "background"
WHOLE = "workload"  # the name of the only job if it has none
ROOM = 1.5  # background messages are made for this many times the time of the jobs
Ints = NDArray[np.int32]
Path = tuple[str | int, ...]


@dataclass(frozen=True, eq=False)
class JobPart:
    """A job in a common program: the schedule of one operation, its launch, its GPUs, its start in
    seconds, and how many times it runs.

    A background is such a part, too, whose one operation has all its messages; nothing waits for
    their end.
    """

    name: str
    schedule: Schedule
    gpus: Ints
    launch: Launch = Launch()
    start: float = 0.0
    times: int = 1

    @property
    def rows(self) -> int:
        """The number of rows of all operations of the job."""
        return (len(self.schedule) + 2 * self.schedule.ranks) * self.times


@dataclass(frozen=True, eq=False)
class RunTogether:
    """The simulation of parts that run together.

    `ends` has, for each part, the numbers of the marks that end its last operation, one for each
    rank.
    """

    program: Program
    timeline: Timeline
    parts: Sequence[JobPart]
    ends: Sequence[NDArray[np.int64]]

    @cached_property
    def seconds(self) -> tuple[float, ...]:
        """By part, the mean seconds of an operation."""
        return self.of(self.timeline)

    @property
    def until(self) -> float:
        """When the last job is complete, in seconds since the start of the simulation. Background
        messages do not count.
        """
        is_job = [part.name != BACKGROUND for part in self.parts]
        return max(float(self.timeline.end[rows].max()) for rows in compress(self.ends, is_job))

    def of(self, timeline: Timeline) -> tuple[float, ...]:
        """By part, the mean seconds of an operation in another timeline of the same program."""
        last = [float(timeline.end[rows].max()) for rows in self.ends]
        both = zip(self.parts, last, strict=True)
        return tuple((end - part.start) / part.times for part, end in both)

    @property
    def messages(self) -> NDArray[np.float64]:
        """For each background message that started before the last job was complete, the seconds
        from its start to its arrival.
        """
        schedule = self.program.schedule
        rows = schedule.release_row
        is_background = np.array(
            [name.split(" ")[0] == BACKGROUND for name in schedule.collectives]
        )
        members = is_background[schedule.style_column("collective")] & (schedule.kind == TRANSFER)
        members = members[rows] & (schedule.release_time < self.until)
        end = self.timeline.end + self.program.path_latency[self.program.path]
        took: NDArray[np.float64] = end[rows[members]] - schedule.release_time[members]
        return took


def run_together(parts: Sequence[JobPart], topology: Topology, engine: str) -> RunTogether:
    """Simulate parts at the same time on one topology."""
    used = different(np.concatenate([part.gpus for part in parts]))
    schedules = list[Schedule]()
    ends = list[NDArray[np.int64]]()
    rows = 0
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
    return RunTogether(program.as_run(timeline), timeline, parts, ends)


# **** Hosts of the jobs ****


def hosts_of(cell: Cell, jobs: Sequence[JobConfig], total: int) -> list[Ints]:
    """The hosts of every job, in the order of the file; the cluster has `total` hosts.

    Jobs that name hosts get these. Then each other job gets the number of free hosts that it asks
    for, or all of them.
    """
    owner = dict[int, str]()
    hosts = dict[int, Ints]()
    names_hosts_first = sorted(range(len(jobs)), key=lambda n: isinstance(jobs[n].placement, str))
    for number in names_hosts_first:
        job = jobs[number]
        path = ("jobs", number)
        placement = job.placement
        for position, host in enumerate(() if isinstance(placement, str) else placement):
            check_host(cell, host, total, (*path, "placement", position))
            holder = job.name if host in placement[:position] else owner.get(host)
            if holder is not None:
                message = f"host {host} is one of job {holder} already"
                raise cell.source.error((*path, "placement", position), message)
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
    """Raise an error at `path` of the scenario for a host that the cluster of `total` hosts does
    not have.
    """
    if host >= total:
        message = f"there is no host {host}: the cluster has hosts 0 to {total - 1}"
        raise cell.source.error(path, message)


# **** Background messages ****

Messages = Callable[[float], JobPart]  # a function of a time: all messages that start before it


def messages_of(
    cell: Cell, number: int, topology: Topology, gpus: Sequence[Ints], unused: Sequence[int]
) -> Messages:
    """A function that returns the messages of a background up to a time.

    Args:
        number: number of the background in the scenario.
        gpus: the GPUs of each host.
        unused: the hosts without a job.
    """
    background = cell.scenario.background[number]
    path = (BACKGROUND, number)
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
    links = topology.links
    place = hosts.index(target)
    wires = np.isin(links.kind, [LINK_KINDS.index("nic"), LINK_KINDS.index("fabric")])
    names_here = [host_names[topology.gpu_nodes[gpus[host][0]]] for host in hosts]
    rates = np.array(
        [links.bandwidth[wires & (host_names[links.tail] == name)].sum() for name in names_here]
    )
    if background.pattern == "incast":  # the load is that of the receiver, from all senders
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
) -> JobPart:
    """A JobPart with all background messages that start before `until` seconds, at random times.

    - `rates`: by host, the mean bytes/s that it sends.
    - `gpus`: the GPUs of each host.
    - `target`: the position of the host to which an incast, or half of the messages of a hot spot,
      goes.
    """
    sizes = np.array([len(of_host) for of_host in gpus])
    builder = Builder(int(sizes.sum()), collectives=(background.pattern,))
    first = np.cumsum(sizes) - sizes
    piece = builder.pieces(background.size)
    order = np.random.default_rng(background.seed).permutation(len(gpus)).tolist()
    following = dict(zip(order, order[1:] + order[:1], strict=True))
    for sender in np.flatnonzero(rates > 0).tolist():
        mean_gap = background.size / rates[sender]  # mean seconds between two messages
        gaps = np.random.default_rng([background.seed, sender, 0])
        random = np.random.default_rng([background.seed, sender, 1])
        mean_count = until / mean_gap
        # The mean number of messages plus 8 standard deviations, so that the messages reach
        # `until`.
        count = int(mean_count + 8 * mean_count**0.5 + 16)
        begins = np.cumsum(gaps.exponential(mean_gap, count))
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
    return JobPart(BACKGROUND, builder.finish(), np.concatenate(gpus))


# **** Resolving the jobs of a cell ****


@dataclass(frozen=True, eq=False)
class ResolvedJobs:
    """A cell of a shared cluster.

    - `jobs`, `gpus`: the jobs in the order of the file, and the GPUs of each.
    - `alone`: each job as a cell of its own.
    - `messages`: by background, a function that returns its messages up to a time.
    """

    cell: Cell
    jobs: tuple[JobConfig, ...]
    gpus: tuple[Ints, ...]
    alone: tuple[ResolvedCell | ResolvedStep, ...]
    topology: Topology
    cluster: Cluster | None
    messages: tuple[Messages, ...]

    @property
    def number(self) -> int:
        """The number of the job whose times are in the rows of this cell."""
        return [job.name for job in self.jobs].index(self.cell.scenario.job or WHOLE)

    def memory_needed(self, size: int) -> int:
        """An upper estimate of the bytes that a process needs to simulate a size."""
        return sum(job.memory_needed(size) for job in self.alone)

    def part(self, number: int, size_number: int) -> JobPart:
        """One operation or step of job number `number`.

        The operation has the size at position `size_number` in the job's list of sizes, or the last
        one if the list is shorter.
        """
        cell = self.alone[number]
        name = self.jobs[number].name
        gpus = self.gpus[number]
        if isinstance(cell, ResolvedCell):
            size = cell.cell.scenario.workload.size_list()[: size_number + 1][-1]
            task = cell.task(size)
            return JobPart(name, complete_schedule(task, cell.budget), cell.gpus, task.launch)
        if cell.lowered is not None:
            return JobPart(name, cell.lowered.schedule, gpus[: cell.lowered.schedule.ranks])
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
        return JobPart(name, lowered.schedule, gpus)


def resolve_jobs(cell: Cell) -> ResolvedJobs:
    """The resolved jobs and backgrounds of a cell; an error has the place of the wrong key."""
    scenario = cell.scenario
    config = scenario.cluster
    cluster = build_cluster(config) if config.graph is None else None
    topology = build_at(config, cell.source) if cluster is None else cluster.topology
    host = np.arange(len(topology)) if cluster is None else cluster.gpu_host
    gpus_of_host = [
        np.flatnonzero(host == number).astype(np.int32) for number in different(host).tolist()
    ]
    jobs = scenario.jobs or (JobConfig(name=WHOLE, workload={}),)
    hosts = hosts_of(cell, jobs, len(gpus_of_host))
    gpus = tuple(
        np.concatenate([gpus_of_host[number] for number in of_job.tolist()]) for of_job in hosts
    )
    alone = tuple(
        _resolved(cell, job, len(of_job), job_gpus)
        for job, of_job, job_gpus in zip(jobs, hosts, gpus, strict=True)
    )
    slowdowns = _stragglers_of(alone, gpus)
    joined = next((job.topology for job in alone if isinstance(job, ResolvedCell)), None)
    if joined is None:
        joined = in_time(topology, scenario.retries) if scenario.timed else topology
    joined = with_slow_gpus(joined, slowdowns)
    if cluster is not None:
        cluster = replace(cluster, topology=with_slow_gpus(cluster.topology, slowdowns))
    used = {number for of_job in hosts for number in of_job.tolist()}
    unused = sorted(set(range(len(gpus_of_host))) - used)
    messages = tuple(
        messages_of(cell, number, joined, gpus_of_host, unused)
        for number in range(len(scenario.background))
    )
    return ResolvedJobs(
        cell=cell,
        jobs=jobs,
        gpus=gpus,
        alone=alone,
        topology=joined,
        cluster=cluster,
        messages=messages,
    )


def _stragglers_of(
    alone: Sequence[ResolvedCell | ResolvedStep], gpus: Sequence[Ints]
) -> dict[int, float]:
    """By GPU of the cluster, the factor by which it is slower, as a training step among the jobs
    states it.
    """
    return {
        int(of_job[straggler.rank]): straggler.slowdown
        for job, of_job in zip(alone, gpus, strict=True)
        if not isinstance(job, ResolvedCell)
        for straggler in job.work.stragglers
    }


def _resolved(cell: Cell, job: JobConfig, hosts: int, gpus: Ints) -> ResolvedCell | ResolvedStep:
    """A job as a resolved cell of its own: a collective on its GPUs, or a step on a cluster of
    `hosts` hosts.
    """
    source = with_job(cell.source, job.name) if cell.scenario.jobs else cell.source
    of_all_jobs = ("jobs", "job", "background")
    data = {key: value for key, value in source.data.items() if key not in of_all_jobs}
    work = dict(data["workload"])
    config = dict(data["cluster"])
    if kind_of_workload(work) == "collective":
        chosen = work.get("ranks", [*range(len(gpus))])
        if isinstance(chosen, list) and set(chosen) <= set(range(len(gpus))):
            work["ranks"] = gpus[chosen].tolist()
        data["workload"] = work
        return resolve(cell_of(replace(source, data=data), cell.axes))
    if "machine" not in config:
        message = "a training step beside others needs a cluster of one machine"
        raise source.error(("workload",), message, key=True)
    of_hosts = ("overrides", "faults", "placement")
    remaining = {key: value for key, value in config.items() if key not in of_hosts}
    data["cluster"] = {**remaining, "nodes": hosts}
    return resolve_step(cell_of(replace(source, data=data), cell.axes))


# **** Rows of results ****


class Shared:
    """The simulations of a shared cell at one size: each job alone, all jobs together, and, when
    asked for, pairs of jobs.

    `parts` are the jobs, `alone` the run of each.
    """

    def __init__(self, resolved: ResolvedJobs, size_number: int, engine: str) -> None:
        self.resolved = resolved
        self.engine = engine
        once = [resolved.part(number, size_number) for number in range(len(resolved.jobs))]
        self.parts = self._repeated(once)
        self.alone = [self._run([part]) for part in self.parts]

    @cached_property
    def all(self) -> RunTogether:
        """The run of all jobs and backgrounds together."""
        return self.beside(range(len(self.parts)), self.resolved.messages)

    @cached_property
    def samples(self) -> NDArray[np.float64]:
        """The mean seconds of an operation of every part (second axis) in each sample of noise
        (first axis).
        """
        disturbances = self.resolved.cell.scenario.disturbances
        if disturbances is None:
            return np.zeros((0, len(self.parts)))
        runs = sampled(self.all.program, NoiseDraws(*disturbances), self.engine)
        return np.array([self.all.of(timeline) for timeline in runs])

    def beside(self, numbers: Iterable[int], messages: Sequence[Messages] = ()) -> RunTogether:
        """The run of some jobs together, with background messages that continue until these jobs
        are complete.
        """
        parts = [self.parts[number] for number in numbers]
        horizon = 0.0
        ran = self._run(parts)
        while messages and ran.until > horizon:
            horizon = ROOM * ran.until
            ran = self._run([*parts, *(until(horizon) for until in messages)])
        return ran

    def slowed(self, number: int) -> Iterator[tuple[str, float, str]]:
        """Yield (name, factor, link) for each other job, and for the background: its name, the
        factor by which it makes an operation of job `number` longer, and the name of the link with
        the highest load that both use.
        """
        messages = self.resolved.messages
        cell = self.alone[number]
        few = len(self.parts) + bool(messages) < 3
        for number_beside, part in enumerate(self.parts):
            if number_beside != number:
                both = self.all if few else self.beside((number, number_beside))
                place = number if few else 0
                yield (
                    part.name,
                    both.seconds[place] / cell.seconds[0],
                    self._fullest_shared_link(cell, both),
                )
        if messages:
            both = self.all if few else self.beside([number], messages)
            yield (
                BACKGROUND,
                both.seconds[0] / cell.seconds[0],
                self._fullest_shared_link(cell, both),
            )

    def _run(self, parts: Sequence[JobPart]) -> RunTogether:
        """Simulate parts together; more than `MOST_ROWS` rows raise an error."""
        rows = sum(part.rows for part in parts)
        if rows > MOST_ROWS:
            message = (
                f"jobs side by side are simulated in full, and their {rows:.2g} rows are more than "
                f"{MOST_ROWS:.2g}"
            )
            raise self.resolved.cell.source.error(("cluster",), message, kind=NoRoomError)
        return run_together(parts, self.resolved.topology, self.engine)

    def _repeated(self, once: Sequence[JobPart]) -> list[JobPart]:
        """The jobs with their starts and their numbers of operations.

        `once` are the jobs with one operation each. A job whose number of operations is not stated
        repeats its operation until the longest other job is complete.
        """
        jobs = self.resolved.jobs
        took = [self._run([part]).until for part in once]
        until = max(
            job.start + (job.repeat or 1) * seconds for job, seconds in zip(jobs, took, strict=True)
        )
        counts = []
        for part, job, seconds in zip(once, jobs, took, strict=True):
            often = int(np.ceil((until - job.start) / seconds * (1 - 1e-9)))
            often = job.repeat or max(1, min(often, MOST_ROWS // len(once) // 2 // part.rows))
            counts.append(replace(part, start=job.start, times=often))
        return counts

    def _fullest_shared_link(self, run: RunTogether, both: RunTogether) -> str:
        """The name of the link with the highest load among those that a job shares with other rows;
        empty if it shares none.

        - `run`: the run of the job alone.
        - `both`: the run of the job together with others, from which loads are taken.
        """
        wires = len(self.resolved.topology.links)
        amounts = link_amounts(run.program)[:wires]
        all_amounts = link_amounts(both.program)[:wires]
        is_shared = (amounts > 0) & (all_amounts > amounts * (1 + 1e-9))
        full = np.where(is_shared, all_amounts / run.program.links.capacity[:wires], 0.0)
        return run.program.links.name(int(full.argmax())) if full.any() else ""


RUNS = Memo(1)  # the last runs; the cells of all jobs need the same runs one after the other


def shared(resolved: ResolvedJobs, size: int, engine: str) -> Shared:
    """The simulations of a shared cell at a size, from which the rows of all its jobs are
    computed.
    """
    data = resolved.cell.source.data
    # A job at its n-th size runs beside the other jobs at their n-th sizes.
    size_number = resolved.cell.scenario.workload.size_list().index(size)
    same_for_jobs = {name: value for name, value in data.items() if name not in ("job", "workload")}
    key = repr((same_for_jobs, size_number, engine))
    return RUNS.of(key, lambda: Shared(resolved, size_number, engine))


def row_of_job(resolved: ResolvedJobs, size: int, engine: str) -> Row:
    """The row of a job at a size: its time beside the other jobs, and how much they slow it."""
    runs = shared(resolved, size, engine)
    cell = resolved.cell
    number = resolved.number
    job_cell = resolved.alone[number]
    part = runs.parts[number]
    ran = runs.all
    seconds = ran.seconds[number]
    alone = runs.alone[number].seconds[0]
    hosts = resolved.cluster.gpu_host[part.gpus] if resolved.cluster else np.zeros(1)
    columns: dict[str, Any] = {"size_bytes": size, "repeat": part.times, "alone_us": alone * 1e6}
    for name, times, link in runs.slowed(number):
        columns |= {f"by:{name}": times, f"on:{name}": link}
    if len(took := ran.messages * 1e6):
        columns["messages"] = len(took)
        columns |= {f"message_p{q}_us": float(np.percentile(took, q)) for q in (50, 99)}
    time_columns: dict[str, Any] = {
        "alone_us": alone * 1e6,
        "slowdown": seconds / alone,
        "rows": len(ran.program),
        "engine": choose(ran.program, engine),
        "neighbours": columns,
        "ranks": len(part.gpus),
        "bound_by": bound_by(ran.program, ran.timeline),
        "nodes": len(different(hosts)),
        "validated": not_validated("beside others"),
        "cell": cell.id,
        "axes": dict(cell.axes),
        **of_samples(runs.samples[:, number] * 1e6, size),
    }
    if not isinstance(job_cell, ResolvedCell):
        return replace(untimed(cell), step_time_us=seconds * 1e6, **time_columns)
    collective = job_cell.collective(size)
    algbw = collective.size_bytes / seconds / 1e9
    rates = {"algbw_GBps": algbw, "busbw_GBps": algbw * collective.bus_factor}
    return replace(question_row(job_cell, size, time_us=seconds * 1e6, **rates), **time_columns)
