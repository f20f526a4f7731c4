"""How similar a task is to measured runs: its class, its differences, and the interval of
its time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netsim.base.memo import cached_per_object
from netsim.collectives.collective import Collective
from netsim.nccl.choice import planned
from netsim.nccl.environment import Settings
from netsim.nccl.job import NcclJob, Wishes
from netsim.nccl.schedules.plan import Plan
from netsim.results import row as result_rows
from netsim.results.novelty import Trait, interval_of_novelty, nccl_generation, novelty_text
from netsim.scenario.models import cluster_label, node_count
from netsim.tasks.resolve import ResolvedCell
from netsim.topology.machine import oldest_machine

# Settings that only choose an algorithm or a protocol, with their default values.
CHOICE: dict[str, Any] = {"algorithms": {}, "protocols": {}}


def validation_of(resolved: ResolvedCell, size: int) -> str:
    """The text of the column `validated`: the error of this class of machines in measured runs."""
    plan = resolved.planned(size)
    if plan is None:
        return result_rows.NOT_VALIDATED
    collective = resolved.collective(size)
    if reason := departure(resolved, collective, plan):
        return result_rows.not_validated(reason)
    where = class_of(resolved)
    text = result_rows.validated(where, collective.name, size)
    return text + novelty_text(_trait_of(resolved), result_rows.band_of(size))


def interval_at(
    resolved: ResolvedCell,
    size: int,
    time_us: float,
    *,
    is_validated: bool = True,
    uncertainty: float = 0.0,
) -> dict[str, Any]:
    """The columns `time_low_us` and `time_high_us`, the interval around the time `time_us`; none if
    no interval is known.

    It is the interval of the cell's class of measured runs, or of the widest class if nothing
    similar was measured; for a cell that no measured system resembles, the interval of such cells.
    It is at least as wide as `uncertainty`, the relative error of an approximation, and as the
    uncertain time of launches.
    """
    is_measured = resolved.is_nccl and is_validated
    where = class_of(resolved) if is_measured else result_rows.Joined("", "")
    name = resolved.collective(size).name
    classes = result_rows.wider(where, name, result_rows.band_of(size))
    interval = result_rows.interval_of(classes if where.machine else classes[-1:])
    if is_measured:
        band = result_rows.band_of(size)
        interval = interval_of_novelty(_trait_of(resolved), band) or interval
    if interval is None:
        return {}
    less_us, more_us = range_of_launches_us(resolved)
    low = time_us * min(interval.low, 1 / (1 + uncertainty))
    high = time_us * max(interval.high, 1 + uncertainty)
    return {
        "time_low_us": min(low, max(0.0, time_us - less_us)),
        "time_high_us": max(high, time_us + more_us),
    }


def range_of_launches_us(resolved: ResolvedCell) -> tuple[float, float]:
    """Two numbers of microseconds: by how much less, and by how much more, the launches of an
    operation may take than assumed.

    (0, 0) if each process has one GPU, or if the range of the host is not known.
    """
    costs = resolved.host_costs
    if resolved.gpus_per_process == 1 or costs is None:
        return 0.0, 0.0
    if costs.launch_low is None or costs.launch_high is None:
        return 0.0, 0.0
    launches = resolved.gpus_per_process
    less = costs.launch - costs.launch_low
    more = costs.launch_high - costs.launch
    return launches * less * 1e6, launches * more * 1e6


@cached_per_object
def class_of(resolved: ResolvedCell) -> result_rows.Joined:
    """The machine, transport and rate (Gbit/s of a node) by which a cell of NCCL is assigned to a
    class of measured runs.
    """
    config = resolved.cell.scenario.cluster
    job = resolved.jobs[0]
    machine = oldest_machine(job.machines)
    if node_count(config) == 1:
        transport = result_rows.ONE_HOST
    elif job.comm.n_nodes == 1:
        transport = result_rows.NVLINK
    else:
        transport = job.cluster.transport.name if job.cluster.transport else machine.transport
    rate = min(sum(one.nics.rates) if one.nics else 0.0 for one in job.machines)
    nvlink = all(one.scale_up is not None and one.scale_up.fitted for one in job.machines)
    return result_rows.joined(cluster_label(config), transport, rate * 8 / 1e9, nvlink=nvlink)


@cached_per_object
def _trait_of(resolved: ResolvedCell) -> Trait:
    """The properties of a cell of NCCL that decide which measured runs it resembles."""
    where = class_of(resolved)
    version = resolved.jobs[0].comm.version
    return Trait(where.machine, where.transport, nccl_generation(version.major, version.minor))


def departure(resolved: ResolvedCell, collective: Collective, plan: Plan) -> str:
    """The reason why a task of NCCL differs from all measured runs, as a clause; empty if it does
    not.
    """
    if reason := _departure_of_all_sizes(resolved):
        return reason
    unforced = _unforced_job(resolved)
    if unforced is None:
        return ""
    dtype = resolved.cell.scenario.collective.dtype
    return "" if planned(unforced, collective, dtype) == plan else "the choice is forced"


@cached_per_object
def _departure_of_all_sizes(resolved: ResolvedCell) -> str:
    """The reason why a cell differs from all measured runs at every size; empty if it does not."""
    scenario = resolved.cell.scenario
    if scenario.cluster.faults:
        return "with faults"
    if scenario.cluster.overrides:
        return "figures of the machine are overridden"
    if scenario.nccl.graph is not None:
        return "channels are given"
    if len(resolved.groups) > 1:
        return "several communicators at once"
    job = resolved.jobs[0]
    if replace(job.comm.settings, **CHOICE) != replace(_default_settings(job), **CHOICE):
        return "NCCL variables change more than its choice"
    cluster = job.cluster
    usual = ""
    if cluster.transport is not None:
        usual = cluster.transport.routing_for(cluster.ports.fastest_rate)
    if cluster.routing not in ("", "static", "rail", usual):
        return f"paths are {cluster.routing} where {usual} ones were timed"
    return ""


def _default_settings(job: NcclJob) -> Settings:
    """NCCL's settings without the user's variables: its defaults with those of the network's
    plugin.
    """
    return Wishes(job.comm.version).on(job.cluster, job.gpus).settings()


@cached_per_object
def _unforced_job(resolved: ResolvedCell) -> NcclJob | None:
    """The communicator without the user's settings; None if the user has none."""
    job = resolved.jobs[0]
    defaults = _default_settings(job)
    if job.comm.settings == defaults and not job.comm.tuner:
        return None
    return replace(job, comm=replace(job.comm, settings=defaults, tuner=()))
