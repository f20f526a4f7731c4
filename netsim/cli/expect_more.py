"""`netsim expect --why` and `--graph-out`: prints why NCCL chooses an algorithm, and
its channels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from netsim.base.errors import InputError
from netsim.base.files import csv_of, write_text
from netsim.cli.options import Format
from netsim.nccl.choice import cost_table
from netsim.nccl.facts import ALGORITHMS, PROTOCOLS
from netsim.nccl.graph_xml import write_graphs
from netsim.nccl.job import NcclJob
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.tuning import TimedCost
from netsim.tasks.resolve import ResolvedCell

COST_COLUMNS = (
    *("function", "algorithm", "protocol", "latency_us", "bandwidth_GBps", "time_us"),
    *("chosen", "disabled"),
)
MOST_TREES = 64  # ranks whose place in the trees is shown
SEARCHED = {
    "Ring": "ring",
    "Tree": "tree",
    "NVLS": "nvls",
    "CollNetChain": "collnet_chain",
    "CollNetDirect": "collnet_direct",
}


def explain_choice(resolved: ResolvedCell, size: int, form: Format) -> None:
    """Print why NCCL chooses its algorithm for a size in bytes.

    The text has the cost table, the graphs found by NCCL's search, the rates and the channels; CSV
    and JSON have the cost table alone.
    """
    plan = resolved.planned(size)
    if plan is None:
        algorithm = resolved.cell.scenario.collective.algorithm
        raise InputError(f"--why: {algorithm} is a textbook algorithm, which nobody chose")
    job = resolved.jobs[0]
    collective = resolved.collective(size)
    costs = cost_table(job, collective, resolved.cell.scenario.collective.dtype)
    if form in ("csv", "json"):
        rows = [_cost_row(entry, plan) for entry in costs]
        table = [dict(zip(COST_COLUMNS, row, strict=True)) for row in rows]
        as_csv = csv_of([COST_COLUMNS, *rows])
        as_json = json.dumps(table, indent=1) + "\n"
        typer.echo(as_json if form == "json" else as_csv, nl=False)
        return
    by = " (by the tuner)" if plan.tuned else ""
    typer.echo(
        f"{collective.name} of {collective.size_bytes} B on {collective.ranks} ranks, "
        f"{job.comm.n_nodes} node{'s' * (job.comm.n_nodes > 1)}: {plan.algorithm} "
        f"{plan.protocol}{by}, {plan.n_channels} of {job.comm.n_channels} channels\n"
    )
    parts = (cost_lines(costs, plan), search_lines(job), rate_lines(job), channel_lines(job))
    typer.echo("\n\n".join("\n".join(part) for part in parts))


def cost_lines(costs: Sequence[TimedCost], chosen: Plan) -> Iterator[str]:
    """Yield NCCL's cost table: the time that its formula expects for each algorithm and protocol.

    An entry that NCCL excludes has the rule that excludes it. `chosen` is the plan that NCCL takes.
    """
    if not costs:
        yield "no table: NCCL runs this as sends and receives, without a choice"
        return
    yield f"{'algorithm':<14}{'protocol':<9}{'latency':>10}{'bandwidth':>11}{'time':>14}"
    yield f"{'':<14}{'':<9}{'(us)':>10}{'(GB/s)':>11}{'(us)':>14}"
    by_name = {(entry.cost.algorithm, entry.cost.protocol): entry for entry in costs}
    for algorithm in ALGORITHMS:
        entries = [by_name[algorithm, protocol] for protocol in PROTOCOLS]
        rules = {entry.disabled for entry in entries}
        if len(rules) == 1 and rules != {""}:
            yield f"{algorithm:<14}{'all':<9}  out: {rules.pop()}"
            continue
        for entry in entries:
            yield _cost_line(entry, chosen)


def _cost_row(entry: TimedCost, chosen: Plan) -> tuple[object, ...]:
    """An entry of the cost table as values by COST_COLUMNS; None for the times of an excluded
    entry.
    """
    cost = entry.cost
    can_run = entry.time_us is not None
    won = (cost.algorithm, cost.protocol) == (chosen.algorithm, chosen.protocol)
    figures = (cost.latency_us, cost.bandwidth) if can_run else (None, None)
    name = (cost.function, cost.algorithm, cost.protocol)
    return (*name, *figures, entry.time_us, int(won), entry.disabled)


def _cost_line(entry: TimedCost, chosen: Plan) -> str:
    """An entry of the cost table as a line of text."""
    cost = entry.cost
    name = f"{cost.algorithm:<14}{cost.protocol:<9}"
    if entry.time_us is None:
        return f"{name}  out: {entry.disabled}"
    won = (cost.algorithm, cost.protocol) == (chosen.algorithm, chosen.protocol)
    figures = f"{cost.latency_us:>10.1f}{cost.bandwidth:>11.2f}{entry.time_us:>14.2f}"
    return name + figures + ("  <- chosen" if won else "")


def search_lines(job: NcclJob) -> Iterator[str]:
    """Yield the graphs that NCCL's topology search found for each kind of node, as NCCL
    logs them.
    """
    for node in job.kinds:
        if len(job.kinds) > 1:
            yield f"node with rank {node.ranks[0]}:"
        for name, field in SEARCHED.items():
            graph = getattr(node.view, field)
            if graph is not None:
                yield (
                    f"{name + ':':<15}Pattern {graph.pattern}, crossNic {graph.cross_nic}, "
                    f"nChannels {graph.n_channels}, bw {graph.bw_intra:f}/{graph.bw_inter:f}, "
                    f"type {graph.type_intra}/{graph.type_inter}, "
                    f"sameChannels {int(graph.same_channels)}"
                )


def rate_lines(job: NcclJob) -> Iterator[str]:
    """Yield the rates of a channel (GB/s) and the number of channels of each kind, as NCCL logs
    them.

    A channel has two rates: the bandwidth that the topology search reserves for it, and what its
    thread block can move with each protocol.
    """
    comm = job.comm
    rate = job.mechanism.rate
    searched_fraction = comm.ring.n_channels / comm.n_channels  # of the channels that are executed
    inside = comm.ring.bw_intra * searched_fraction
    outside = comm.ring.bw_inter * searched_fraction
    between = f", {outside:.2f} GB/s between nodes" if comm.n_nodes > 1 else ""
    yield f"a ring channel is counted for {inside:.2f} GB/s inside a node{between}"
    rates = ", ".join(f"{name} {rate.of(name) / 1e9:.2f} GB/s" for name in PROTOCOLS)
    yield f"the block of a channel moves {rates}"
    sends = job.sends.channels
    collnet = comm.n_channels if comm.collnet_chain is not None else 0
    nvls = comm.nvls_channels if comm.nvls is not None else 0
    yield (
        f"{comm.n_channels} coll channels, {collnet} collnet channels, {nvls} nvls channels, "
        f"{sends.total} p2p channels, {sends.per_peer} p2p channels per peer"
    )


def channel_lines(job: NcclJob) -> Iterator[str]:
    """Yield rings and trees as NCCL logs them: `Channel 00/24 : 0 1 2`, `Trees [0] 1->0->-1`."""
    wiring = job.wiring
    count = len(wiring.rings)
    for number, ring in enumerate(wiring.rings):
        start = ring.index(0)
        order = " ".join(str(rank) for rank in (*ring[start:], *ring[:start]))
        yield f"Channel {number:02d}/{count:02d} : {order}"
    ranks = range(min(job.comm.n_ranks, MOST_TREES))
    for rank in ranks:
        places = []  # three children, the rank itself, its parent; -1 is none
        for number, tree in enumerate(wiring.trees):
            down = "/".join(str(child) for child in [*tree.down[rank], -1, -1, -1][:3])
            places.append(f"[{number}] {down}->{rank}->{tree.up[rank]}")
        yield f"rank {rank}: Trees " + " ".join(places)
    if job.comm.n_ranks > MOST_TREES:
        yield f"... and {job.comm.n_ranks - MOST_TREES} more ranks"


def write_graph(resolved: ResolvedCell, path: Path) -> None:
    """Write the graphs of the node with rank 0 as XML, as NCCL does with NCCL_GRAPH_DUMP_FILE."""
    if not resolved.is_nccl:
        algorithm = resolved.cell.scenario.collective.algorithm
        raise InputError(f"--graph-out: {algorithm} is a textbook algorithm without channels")
    kinds = len(resolved.jobs[0].kinds)
    write_text(path, write_graphs(resolved.jobs[0].nodes[0].view))
    more = f" of the node with rank 0; there are {kinds} kinds of node" if kinds > 1 else ""
    typer.echo(f"wrote {path}{more} (NCCL_GRAPH_FILE)", err=True)
