"""What sets a case apart from all that was held against hardware, and the class it belongs to."""

from dataclasses import replace
from typing import Any

from netsim.expect.choice import planned
from netsim.expect.job import Job, plugin_of
from netsim.expect.settings import Wishes
from netsim.kept import kept
from netsim.nccl.settings import Settings
from netsim.prepared import Prepared
from netsim.scenario.clusters import cluster_label, node_count
from netsim.validated import NVLINK, ONE_HOST, Joined, joined

CHOICE: dict[str, Any] = {"algorithms": {}, "protocols": {}}  # settings that only choose


@kept
def class_of(prepared: Prepared) -> Joined:
    """The machines of a case with NCCL's jobs, and what joins them."""
    config, job = prepared.cell.scenario.cluster, prepared.jobs[0]
    machine = job.cluster.machine_of(0)
    if node_count(config) == 1:
        transport = ONE_HOST
    elif job.comm.n_nodes == 1:
        transport = NVLINK
    else:
        transport = job.cluster.transport.name if job.cluster.transport else machine.transport
    rates = machine.nics.rates if machine.nics else ()
    return joined(cluster_label(config), transport, sum(rates) * 8 / 1e9)


def departure(prepared: Prepared, size: int) -> str:
    """Why a case with NCCL's jobs is like none that was measured; empty where it may be."""
    if always := _at_all_sizes(prepared):
        return always
    left = _left_alone(prepared)
    return "the choice is forced" if left is not None and _forced(prepared, size, left) else ""


@kept
def _at_all_sizes(prepared: Prepared) -> str:
    scenario = prepared.cell.scenario
    if scenario.cluster.faults:
        return "with faults"
    if scenario.cluster.overrides:
        return "figures of the machine are overridden"
    if scenario.nccl.graph is not None:
        return "channels are given"
    job = prepared.jobs[0]
    if replace(job.comm.settings, **CHOICE) != replace(_of_nobody(job), **CHOICE):
        return "NCCL variables change more than its choice"
    return ""


def _of_nobody(job: Job) -> Settings:
    """The settings where the user says nothing: those of the network's plugin."""
    return Wishes(job.comm.version).with_plugin(plugin_of(job.cluster, job.gpus)).settings()


@kept
def _left_alone(prepared: Prepared) -> Job | None:
    """The job where the user says nothing; None if that is this one."""
    job = prepared.jobs[0]
    free = _of_nobody(job)
    if job.comm.settings == free and not job.comm.tuner:
        return None
    return replace(job, comm=replace(job.comm, settings=free, tuner=()))


def _forced(prepared: Prepared, size: int, left: Job) -> bool:
    """Whether what runs is not what NCCL would have chosen at that size."""
    dtype = prepared.cell.scenario.collective.dtype
    chosen = (prepared.planned(size), planned(left, prepared.collective(size), dtype))
    names = [(one.algorithm, one.protocol, one.n_channels) for one in chosen if one]
    return len(set(names)) > 1
