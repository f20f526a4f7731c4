"""What NCCL makes of the collectives of a step: each simulated once for groups that are alike.

Groups are alike if their ranks sit at the same places of equal hosts, in the same pattern, over
ways of the same latency and bandwidth.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from netsim.collectives import Collective, collective_of
from netsim.expect.choice import operations, planned
from netsim.expect.job import Job, job_of
from netsim.expect.launching import nccl_launch
from netsim.expect.plans import nccl_plan
from netsim.expect.settings import Wishes
from netsim.explain.parameters import link_kinds
from netsim.looped import Looped, looped_nccl
from netsim.nccl.plan import Planned
from netsim.nccl.schedules import Plan, with_blocks
from netsim.program import place
from netsim.rings import full_ring, has_long_ring
from netsim.scenario.names import DTYPES
from netsim.schedule import Launch, Schedule
from netsim.timing import Bench
from netsim.topology import Topology
from netsim.topology.cluster import Cluster
from netsim.training.coarse import coarse_of
from netsim.workloads.lower import Coarse
from netsim.workloads.tape import Task

Group = tuple[int, ...]
Key = tuple[object, ...]
NOTABLE = 1e-3  # difference between hosts that is worth a word
STEADY = "large collectives from their steady state"


@dataclass(frozen=True)
class Timed:
    """A collective alone, after its launch: how long, and how it was simplified.

    `hops` is how far chunks went round rings (0: all the way), `scale` by how much they would have
    moved more.
    """

    seconds: float
    approximation: str = ""
    hops: int = 0
    scale: float = 1.0


@dataclass
class Costs:
    """The collectives of one cluster, by group, size and kind; `wishes` is what NCCL is told.

    `topology` is what they are simulated on, if that is not the cluster's own, by which NCCL
    decides; `crossed` tells the kinds of links that each collective known crosses.

    Without `holds_sms`, kernels beside collectives are as fast as without: recorded ones have
    lost that time already.
    """

    cluster: Cluster
    wishes: Wishes
    launch: str = "process_per_gpu"
    registered: bool = False
    holds_sms: bool = True
    topology: Topology | None = None
    crossed: dict[Key, frozenset[str]] = field(default_factory=dict)
    known: dict[Key, Coarse] = field(default_factory=dict)
    times: dict[Key, Timed] = field(default_factory=dict)
    jobs: dict[Key, Job] = field(default_factory=dict)
    patterns: dict[Group, tuple[Key, Key]] = field(default_factory=dict)

    def __call__(self, task: Task, group: Group) -> Coarse:
        """The coarse form of a task's collective in one group."""
        key = (self._places(group), task.collective, task.nbytes, task.dtype)
        if key not in self.known:
            self.known[key], self.crossed[key] = self._made(task, group)
        return self.known[key]

    def on(self, topology: Topology, kind: str) -> "Costs":
        """The same decisions on a topology whose links of one kind are others; what crosses none
        of these is not simulated again.
        """
        kept = {key: made for key, made in self.known.items() if kind not in self.crossed[key]}
        crossed = {key: self.crossed[key] for key in kept}
        return replace(self, topology=topology, known=kept, crossed=crossed, times={})

    def _places(self, group: Group) -> Key:
        """What groups over the same places of equal hosts have in common."""
        return self._both(group)[0]

    def _ways(self, group: Group) -> Key:
        """What groups have in common that take as long: with one GPU a host, not which it is."""
        return self._both(group)[1]

    def _both(self, group: Group) -> tuple[Key, Key]:
        if group not in self.patterns:
            self.patterns[group] = self._pattern(group)
        return self.patterns[group]

    def _pattern(self, group: Group) -> tuple[Key, Key]:
        cluster, gpus = self.cluster, np.array(group, np.int32)
        hosts = cluster.gpu_host[gpus]
        first = np.searchsorted(cluster.gpu_host, hosts)
        seen = {host: number for number, host in enumerate(dict.fromkeys(hosts.tolist()))}
        places = tuple((gpus - first).tolist())
        pattern = tuple(seen[host] for host in hosts.tolist())
        kinds = tuple(cluster.host_class[hosts].tolist())
        near = np.roll(gpus, -1)
        channel = np.zeros(len(gpus), np.int32)
        routes = cluster.topology.routes(gpus, near, channel)
        bandwidth = cluster.topology.links.bandwidth[routes.link]
        least = np.minimum.reduceat(bandwidth, routes.ptr[:-1])
        ways = (
            pattern, kinds, tuple(np.diff(routes.ptr).tolist()),
            tuple(np.round(routes.latency * 1e12).tolist()), tuple(np.round(least).tolist()),
        )  # fmt: skip
        return (places, *ways), ways if len(seen) == len(gpus) else (places, *ways)

    def _job(self, group: Group) -> Job:
        key = self._places(group)
        if key not in self.jobs:
            self.jobs[key] = job_of(self.cluster, np.array(group, np.int32), self.wishes)
        return self.jobs[key]

    def _made(self, task: Task, group: Group) -> tuple[Coarse, frozenset[str]]:
        job, collective = self._job(group), _collective(task, len(group))
        topology = with_blocks(self.topology or self.cluster.topology, job.mechanism)
        plan = nccl_plan(job, collective, task.dtype, registered=self.registered)
        key = (self._ways(group), task.collective, task.nbytes, task.dtype)
        if key not in self.times:
            gpus = np.array(group, np.int32)
            bench = Bench(topology, gpus, Launch(), single=True, engine="compiled")
            self.times[key] = _timed(bench, collective, plan)
        timed = self.times[key]
        call = _call(collective, plan, timed.hops)
        loops = call.least if call.worth_shortening else call.loops
        program = place(call.schedule(loops), topology, group)
        chosen = planned(job, collective, task.dtype)
        made = coarse_of(
            program, timed.seconds, self._launch(job, collective, chosen),
            self._part_of_sms(chosen), scale=timed.scale * _scale(call, loops),
        )  # fmt: skip
        made = replace(
            made, algorithm=chosen.algorithm, protocol=chosen.protocol,
            channels=chosen.n_channels, approximation=timed.approximation,
        )  # fmt: skip
        return made, frozenset(link_kinds(program)[program.paths.link].tolist())

    def _part_of_sms(self, chosen: Planned) -> float:
        """What the channels of a collective take from kernels beside it."""
        return chosen.n_channels / self.cluster.machine_of(0).gpu.sms if self.holds_sms else 0.0

    def _launch(self, job: Job, collective: Collective, chosen: Planned) -> float:
        """Seconds from the end of the kernel before to the first byte; the host runs ahead."""
        return nccl_launch(
            self.launch,
            job.comm.version,
            begin=job.mechanism.begin.of(chosen.protocol.rpartition("/")[2]),
            channels=chosen.n_channels,
            sends_and_receives=operations(collective),
        ).kernel


def _timed(bench: Bench, collective: Collective, plan: Plan) -> Timed:
    """The time of a collective alone; of a ring over very many ranks, from a few hops."""
    if has_long_ring(plan, collective.name):
        found = full_ring(
            plan, lambda hops: bench.time_looped(_call(collective, plan, hops)).seconds
        )
        if found is not None:
            words = "long rings from what a few hosts add"
            if found.spread > NOTABLE:
                words += f", which differ by up to {found.spread:.1%}"
            return Timed(found.seconds, words, found.hops, found.scale)
    timing = bench.time_looped(_call(collective, plan))
    return Timed(timing.seconds, STEADY if timing.approximation else "")


def _call(collective: Collective, plan: Plan, hops: int = 0) -> Looped:
    return looped_nccl(collective, [replace(plan, hops=hops)], lambda made: made[0])


def _scale(call: Looped, loops: int) -> float:
    """How many times more bytes the call moves than with so many loops."""
    if loops == call.loops:
        return 1.0
    few, more = _moved(call.schedule(loops)), _moved(call.schedule(loops + 1))
    return (few + (more - few) * (call.loops - loops)) / few


def _moved(schedule: Schedule) -> float:
    times = schedule.style_column("multiplicity").astype(np.float64)
    return float((schedule.amount * times).sum())


def _collective(task: Task, ranks: int) -> Collective:
    """The collective of a task; sizes are rounded up to what its ranks can share evenly."""
    element = DTYPES[task.dtype]
    even = ranks * max(element, 16)
    size = -(-task.nbytes // even) * even
    pairs = [(0, 1)] if task.collective == "p2p" else []
    return collective_of(task.collective, ranks, size, element, pairs=pairs)
