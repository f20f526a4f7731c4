"""What `netsim expect` had to assume, in a line each, for the user to confirm or correct."""

from collections.abc import Iterator, Sequence

from netsim.built import wishes_of
from netsim.cli.expect_question import Given
from netsim.expect import choice
from netsim.expect import job as jobs
from netsim.nccl import environment
from netsim.results import Row
from netsim.scenario.clusters import node_count
from netsim.simulate import Prepared
from netsim.topology.config import ClusterConfig
from netsim.topology.machine import Machine
from netsim.units import format_bandwidth

SHOWN_SIZES = 4


def assumptions(prepared: Prepared, given: Given) -> Iterator[str]:
    """Everything that the answer depends on and nobody said."""
    scenario = prepared.cell.scenario
    config = scenario.cluster
    if config.graph is None and node_count(config) > 1:
        yield from _network(config, given)
        yield from _switches(prepared)
    if given.flags.get("launch") is None and "launch" not in prepared.cell.source.data:
        yield "assumed: one process for each GPU (--launch single_process is nccl-tests -g 8)"
    if prepared.jobs:
        if given.flags.get("nccl") is None and "version" not in scenario.nccl.model_fields_set:
            yield f"assumed: NCCL {scenario.nccl.version} (--nccl names another)"
        yield from _plugin(prepared)
        for name, why in environment.without_effect(scenario.nccl.env).items():
            yield f"warning: {name} is known to NCCL but has no effect here: {why}"
        yield from fallbacks(prepared)
    elif scenario.collective.algorithm == "ring":
        yield "ring is the textbook algorithm, without NCCL's costs; NCCL's is Ring"
    for group in config.members if config.graph is None else ():
        if not group.loaded.machine.gpu.sm:
            yield (
                f"assumed, not validated: NCCL's rules hold for {group.loaded.machine.gpu.model}, "
                "which runs another library"
            )


def fallbacks(prepared: Prepared) -> Iterator[str]:
    """Where NCCL before 2.24 does not do what it is told to."""
    scenario = prepared.cell.scenario
    work = scenario.collective
    for job in prepared.jobs[:1]:
        reason = choice.fallback(job, prepared.collective(max(work.size_list())), work.dtype)
        if reason:
            yield f"NCCL {scenario.nccl.version} falls back to Ring: {reason}"


def _plugin(prepared: Prepared) -> Iterator[str]:
    """What the network's plugin sets by itself."""
    job, scenario = prepared.jobs[0], prepared.cell.scenario
    wishes = wishes_of(scenario)
    variables = wishes.with_plugin(jobs.plugin_of(job.cluster, job.gpus)).variables
    ours = [f"{name}={value}" for name, value in variables.items() if name not in wishes.variables]
    if ours and job.cluster.transport:
        yield f"assumed: the plugin of {job.cluster.transport.name} sets {', '.join(ours)} (--env)"


def approximations(rows: Sequence[Row]) -> Iterator[str]:
    """Where not everything was simulated, and by how much that may move an answer."""
    for row in rows:
        if row.approximation:
            most = row.approximation_pct or 0.0
            yield f"approximated: {row.size_bytes} B: {row.approximation} (within {most:.2g} %)"


def roundings(prepared: Prepared, sizes: list[int]) -> Iterator[str]:
    """Sizes that nccl-tests rounds, and to what."""
    pairs = [(size, prepared.collective(size).size_bytes) for size in sizes]
    rounded = [f"{size} B -> {became} B" for size, became in pairs if size != became]
    if rounded:
        more = len(rounded) - SHOWN_SIZES
        shown = ", ".join(rounded[:SHOWN_SIZES]) + (f" and {more} more" if more > 0 else "")
        yield f"rounded as nccl-tests rounds: {shown}"


def _network(config: ClusterConfig, given: Given) -> Iterator[str]:
    """What joins the hosts, as far as it was not said."""
    machine = config.members[0].loaded.machine
    if given.fabric is None and config.fabric is None:
        several = _nics(config, machine) > 1
        kind = "rail-optimized fabric" if several else "single switch"
        yield f"assumed: a {kind} that never blocks (--fabric names another)"
    said = config.nic or (config.network.nic if config.network else None)
    if said is None and machine.nics is not None:
        rate = format_bandwidth(machine.nics.rates[0], bits=True)
        yield f"assumed: {_nics(config, machine)} NICs of {rate} a host (--nic, --nics-per-node)"
    if config.network is None or config.network.transport is None:
        yield f"assumed: {machine.transport} (--transport names another)"


def _switches(prepared: Prepared) -> Iterator[str]:
    """What was assumed of the switches, if NCCL runs on a cluster."""
    for job in prepared.jobs[:1]:
        made = job.cluster.fabric
        if made is not None and made.note:
            yield made.note


def _nics(config: ClusterConfig, machine: Machine) -> int:
    have = machine.nics.count if machine.nics else 0
    return have if config.nics_per_node is None else config.nics_per_node
