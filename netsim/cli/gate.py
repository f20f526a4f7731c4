"""`netsim expect --gate`: the least acceptable bandwidth for groups of nodes, in formats of other
programs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import typer

from netsim.base.errors import InputError, NetsimError
from netsim.base.files import write_text
from netsim.base.startup import on
from netsim.base.values import dataclass
from netsim.cli.gate_options import GateOptions
from netsim.cli.options import Engine
from netsim.cli.output import print_lines
from netsim.cli.questions import simulated
from netsim.results.gates import (
    GroupGate,
    GroupKind,
    SizeGate,
    aicr_warnings,
    gate_text,
    min_bandwidth_lines,
)
from netsim.results.margins import least_fraction
from netsim.results.row import NVLINK, ONE_HOST, Joined
from netsim.scenario.models import node_count
from netsim.tasks.answer import checked_cells
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.row import UNLIKE
from netsim.tasks.validation import class_of
from netsim.topology.racks import NVLINK_DOMAIN, Racks, racks_of
from netsim.yamlio.models import override
from netsim.yamlio.read import Source

ORIGIN = "the group of a gate"


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that run one collective together; `hosts` are their numbers in the cluster."""

    kind: GroupKind
    name: str
    hosts: tuple[int, ...]


def write_gates(
    tests: Sequence[ResolvedCell],
    options: GateOptions,
    engine: Engine,
    failures: list[NetsimError],
) -> None:
    """Simulate every group of nodes and write the least bandwidth that it must reach with each
    collective.

    `tests` has one resolved cell for each collective.
    """
    for test in tests:
        refuse_what_has_no_gate(test)
    gates = [gate for test in tests for gate in _gates_of(test, options, engine, failures)]
    if not gates:
        return
    text = gate_text(gates, options.form)
    if options.form == "aicr":
        print_lines(aicr_warnings(gates), err=True)
    if options.file is None:
        typer.echo(text, nl=False)
    else:
        write_text(options.file, text)
        typer.echo(f"wrote {options.file}", err=True)
    if options.form == "nccl-tests":
        print_lines(min_bandwidth_lines(gates), err=True)


def refuse_what_has_no_gate(test: ResolvedCell) -> None:
    """Raise an InputError for a cluster or an algorithm of which no healthy measurement exists."""
    scenario = test.cell.scenario
    if not test.is_nccl:
        raise InputError(
            f"--gate: {scenario.collective.algorithm} is a textbook algorithm, which no healthy "
            "machine was measured with",
            hint="leave --algo away",
        )
    if scenario.cluster.faults:
        raise InputError("--gate: the cluster has faults, a gate is of a healthy one")
    if len(test.groups) > 1:
        raise InputError("--gate: several communicators at once have no gate")


def node_groups(test: ResolvedCell) -> list[NodeGroup]:
    """The groups of nodes to test: one node, one rack, two racks, and all nodes.

    Racks of the same number of hosts are represented by one of them. If two groups have the same
    hosts, the widest is kept.
    """
    racks = _racks_or_none(test)
    count = node_count(test.cell.scenario.cluster)
    everyone = NodeGroup("all", f"all {count} nodes", tuple(range(count)))
    if racks is None or count == 1:
        return [replace(everyone, kind="node", name="one node")] if count == 1 else [everyone]
    groups = [NodeGroup("node", "one node", (0,)), *_rack_groups(racks), everyone]
    unique: dict[tuple[int, ...], NodeGroup] = {}
    for group in groups:  # the widest group keeps its name: all nodes rather than a pair of racks
        unique[group.hosts] = group
    return list(unique.values())


def _racks_or_none(test: ResolvedCell) -> Racks | None:
    """The racks of the cluster; None if hosts differ, because then no node can represent the
    others.
    """
    config = test.cell.scenario.cluster
    if len(config.members) > 1 or config.overrides or config.sites is not None:
        return None
    return racks_of(test.jobs[0].cluster)


def _rack_groups(racks: Racks) -> Iterator[NodeGroup]:
    """Yield one rack of each size (in hosts), and one pair of racks for each two sizes."""
    by_size: dict[int, list[tuple[int, ...]]] = {}
    for hosts in racks.hosts:
        by_size.setdefault(len(hosts), []).append(hosts)
    for size, members in by_size.items():
        if size > 1:
            yield NodeGroup("rack", f"one rack of {size} nodes", members[0])
    sizes = list(by_size)
    for place, size in enumerate(sizes):
        for second in sizes[place:]:
            pair = by_size[size][:2] if size == second else [by_size[size][0], by_size[second][0]]
            if len(pair) == 2:
                hosts = pair[0] + pair[1]
                yield NodeGroup("racks", f"a pair of racks of {size} and {second} nodes", hosts)


def _gates_of(
    test: ResolvedCell, options: GateOptions, engine: Engine, failures: list[NetsimError]
) -> Iterator[GroupGate]:
    """Simulate every group of nodes with one collective and yield the gates of each group."""
    racks = _racks_or_none(test)
    has_nvlink_racks = racks is not None and racks.meaning == NVLINK_DOMAIN
    for group in node_groups(test):
        on(f"{test.cell.scenario.collective.collective} on {group.name}")
        resolved = _resolved_group(test, group)
        sizes = []
        for row in simulated(resolved, engine, failures):
            if row.status != "ok":
                typer.echo(f"left out: {group.name}: {row.size_bytes} B: {row.error}", err=True)
                continue
            where = Joined("", "") if row.validated in UNLIKE else class_of(resolved)
            error_bound = (row.approximation_pct or 0.0) / 100
            fraction = least_fraction(
                where, row.collective, row.requested_size, options.confidence, error_bound
            )
            sizes.append(SizeGate(row, fraction))
        if sizes:
            yield GroupGate(
                kind=group.kind,
                name=group.name,
                nodes=len(group.hosts),
                ranks=len(resolved.gpus),
                collective=resolved.cell.scenario.collective.collective,
                fabric=fabric_class(resolved),
                confidence=options.confidence,
                sizes=tuple(sizes),
                root=resolved.cell.scenario.collective.root,
                has_nvlink_racks=has_nvlink_racks,
            )


def fabric_class(resolved: ResolvedCell) -> str:
    """What joins the GPUs of a cell, as text.

    `nvlink inside a node` or `pcie inside a node` for one node, `nvlink` for an NVLink domain, else
    the transport between nodes, such as `infiniband`.
    """
    where = class_of(resolved)
    if where.transport == ONE_HOST:
        return f"{where.kind} inside a node"
    return NVLINK if where.transport == NVLINK else where.transport


def _resolved_group(test: ResolvedCell, group: NodeGroup) -> ResolvedCell:
    """The resolved cell with only the hosts of a group, each at its place in the fabric of the
    whole cluster.
    """
    config = test.cell.scenario.cluster
    count = node_count(config)
    if len(group.hosts) == count:
        return test
    source = override(test.cell.source, "cluster.nodes", len(group.hosts), ORIGIN)
    if len(group.hosts) > 1:
        fabric_hosts = (config.network.nodes if config.network else None) or count
        source = _with_places(source, test, group, fabric_hosts)
    elif config.placement not in ("contiguous", "spread", "random"):
        source = override(source, "cluster.placement", "contiguous", ORIGIN)
    return resolve(checked_cells(source)[0])


def _with_places(source: Source, test: ResolvedCell, group: NodeGroup, fabric_hosts: int) -> Source:
    """The source with a fabric for `fabric_hosts` hosts and with the places in it that the group's
    hosts have.
    """
    cluster = test.jobs[0].cluster
    section = source.data["cluster"].get("fabric")
    fabric = dict(section) if isinstance(section, dict) else {}
    if not fabric and cluster.fabric is not None:
        fabric = {"kind": cluster.fabric.kind}
    between = fabric.get("between")
    if isinstance(between, dict):
        fabric["between"] = {**between, "nodes": fabric_hosts}
    else:
        fabric["nodes"] = fabric_hosts
    places = dict(zip(cluster.ports.owner.tolist(), cluster.ports.host.tolist(), strict=True))
    source = override(source, "cluster.fabric", fabric, ORIGIN)
    return override(source, "cluster.placement", [places[host] for host in group.hosts], ORIGIN)
