"""What else `netsim expect` answers: why NCCL chooses so, its graph file, a table for its tuner."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from netsim.base.errors import InputError, NetsimError
from netsim.base.files import csv_of, text_of, write_text
from netsim.base.values import dataclass
from netsim.cli.shown import MANY_SIZES, Engine, Format
from netsim.engines.engine import at_hand
from netsim.nccl.choice import cost_table
from netsim.nccl.communicator import TunerRule
from netsim.nccl.facts import ALGORITHMS, COLLECTIVES, PROTOCOLS, Algorithm, Protocol
from netsim.nccl.graph_xml import write_graphs
from netsim.nccl.job import NcclJob
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.tuning import TimedCost, parse_tuner, tuner_text
from netsim.results.row import Row
from netsim.tasks.resolve import ResolvedCell
from netsim.tasks.row import row_of_size

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


def explain(resolved: ResolvedCell, size: int, form: Format) -> None:
    """Print it as text, or the cost table alone as CSV or JSON."""
    plan = resolved.planned(size)
    if plan is None:
        algorithm = resolved.cell.scenario.collective.algorithm
        raise InputError(f"--why: {algorithm} is a textbook algorithm, which nobody chose")
    job, collective = resolved.jobs[0], resolved.collective(size)
    costs = cost_table(job, collective, resolved.cell.scenario.collective.dtype)
    if form in ("csv", "json"):
        rows = [_cost_row(entry, plan) for entry in costs]
        table = [dict(zip(COST_COLUMNS, row, strict=True)) for row in rows]
        as_csv, as_json = csv_of([COST_COLUMNS, *rows]), json.dumps(table, indent=1) + "\n"
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
    """The table that NCCL compares, with the rule behind everything that is out."""
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
    """A line of the same table, for programs; nothing stands for what cannot run."""
    cost, runs = entry.cost, entry.time_us is not None
    won = (cost.algorithm, cost.protocol) == (chosen.algorithm, chosen.protocol)
    figures = (cost.latency_us, cost.bandwidth) if runs else (None, None)
    name = (cost.function, cost.algorithm, cost.protocol)
    return (*name, *figures, entry.time_us, int(won), entry.disabled)


def _cost_line(entry: TimedCost, chosen: Plan) -> str:
    cost = entry.cost
    name = f"{cost.algorithm:<14}{cost.protocol:<9}"
    if entry.time_us is None:
        return f"{name}  out: {entry.disabled}"
    won = (cost.algorithm, cost.protocol) == (chosen.algorithm, chosen.protocol)
    figures = f"{cost.latency_us:>10.1f}{cost.bandwidth:>11.2f}{entry.time_us:>14.2f}"
    return name + figures + ("  <- chosen" if won else "")


def search_lines(job: NcclJob) -> Iterator[str]:
    """What the searches found on every kind of node, as NCCL logs it."""
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
    """What one executed channel is counted for by the search, what its block can move, and how
    many channels there are of each kind, as NCCL logs it."""
    comm, rate = job.comm, job.mechanism.rate
    each = comm.ring.n_channels / comm.n_channels
    inside, outside = comm.ring.bw_intra * each, comm.ring.bw_inter * each
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
    """Rings and trees as NCCL's log has them: `Channel 00/24 : 0 1 2`, `Trees [0] 1->0->-1`."""
    found = job.wiring
    count = len(found.rings)
    for number, ring in enumerate(found.rings):
        start = ring.index(0)
        order = " ".join(str(rank) for rank in (*ring[start:], *ring[:start]))
        yield f"Channel {number:02d}/{count:02d} : {order}"
    ranks = range(min(job.comm.n_ranks, MOST_TREES))
    for rank in ranks:
        places = []  # three children, the rank itself, its parent; -1 is none
        for number, tree in enumerate(found.trees):
            down = "/".join(str(child) for child in [*tree.down[rank], -1, -1, -1][:3])
            places.append(f"[{number}] {down}->{rank}->{tree.up[rank]}")
        yield f"rank {rank}: Trees " + " ".join(places)
    if job.comm.n_ranks > MOST_TREES:
        yield f"... and {job.comm.n_ranks - MOST_TREES} more ranks"


def write_graph(resolved: ResolvedCell, path: Path) -> None:
    """Write the graphs of the node with rank 0, as NCCL_GRAPH_DUMP_FILE does."""
    if not resolved.is_nccl:
        algorithm = resolved.cell.scenario.collective.algorithm
        raise InputError(f"--graph-out: {algorithm} is a textbook algorithm without channels")
    kinds = len(resolved.jobs[0].kinds)
    write_text(path, write_graphs(resolved.jobs[0].nodes[0].view))
    more = f" of the node with rank 0; there are {kinds} kinds of node" if kinds > 1 else ""
    typer.echo(f"wrote {path}{more} (NCCL_GRAPH_FILE)", err=True)


def write_tuner(resolved: ResolvedCell, path: Path, engine: Engine) -> None:
    """Try everything at every size, print what won, and write the table."""
    work = resolved.cell.scenario.collective
    if work.collective not in COLLECTIVES:
        raise InputError(
            f"--tuner-out: NCCL runs {work.collective} as sends and receives, without a choice"
        )
    if not resolved.is_nccl:
        raise InputError(f"--tuner-out: {work.algorithm} is a textbook algorithm, not NCCL's")
    filled = path.is_file() and path.stat().st_size
    old = parse_tuner(text_of(path), str(path)) if filled else ()
    sizes = sorted(size for size in work.size_list() if resolved.collective(size).size_bytes)
    if not sizes:
        raise InputError("--tuner-out: none of the sizes has any data")
    tuner = Tuner(resolved, at_hand(engine, many=len(sizes) >= MANY_SIZES))
    typer.echo(f"{'size (B)':>12}  {'NCCL chooses':<36}{'fastest simulated':<36}{'tried':>5}")
    found = []
    for size in sizes:
        found.append(tuner.best(size))
        typer.echo(_line(found[-1]))
    write_text(path, tuner_text(merged(old, rules_of(resolved, found))))
    typer.echo(f"wrote {path} (NCCL_TUNER_CONFIG_FILE of NCCL's example tuner plugin)", err=True)
    variables = resolved.cell.scenario.nccl.env
    if variables:
        listed = " ".join(f"{name}={value}" for name, value in variables.items())
        typer.echo(f"found with {listed}: set them there as well", err=True)


def _line(one: Tuned) -> str:
    gain = (one.usual.time_us or 0.0) / (one.best.time_us or 1.0) - 1
    same = one.candidate.n_channels is None and _words(one.usual) == _words(one.best)
    better = "the same" if same else f"{_words(one.best)}  {gain:+.1%}"
    return f"{one.best.size_bytes:>12}  {_words(one.usual):<36}{better:<36}{one.tried:>5}"


def _words(row: Row) -> str:
    return f"{row.algorithm} {row.protocol} x{row.channels}  {row.time_us:.2f} us"


# The best algorithm, protocol and channels by size. NCCL's own formula takes no part: whatever its
# rules allow is simulated, and the fastest wins. What comes out are rules for a tuner table.

EVERYTHING = 2**62
WORTH = 0.005  # by which part a candidate must be faster than NCCL's own choice to replace it


@dataclass(frozen=True)
class Candidate:
    """One way to run a call; `n_channels` None is NCCL's number."""

    algorithm: Algorithm
    protocol: Protocol
    n_channels: int | None = None


@dataclass(frozen=True)
class Tuned:
    """One size: the row of NCCL's choice, that of the best, and how many were tried."""

    usual: Row
    best: Row
    candidate: Candidate
    tried: int


class Tuner:
    """Tries candidates on one resolved question; each is set up once for all sizes."""

    def __init__(self, resolved: ResolvedCell, engine: str = "auto") -> None:
        self.resolved, self.engine = resolved, engine
        self._forced: dict[Candidate, ResolvedCell] = {}

    def best(self, size: int) -> Tuned:
        """The fastest of all that can run at a size."""
        usual = row_of_size(self.resolved, size, engine=self.engine)
        dtype = self.resolved.cell.scenario.collective.dtype
        table = cost_table(self.resolved.jobs[0], self.resolved.collective(size), dtype)
        able = [entry.cost for entry in table if entry.time_us is not None]  # by NCCL's rules
        candidates = [Candidate(cost.algorithm, cost.protocol) for cost in able]
        times = {candidate: self._row(candidate, size) for candidate in candidates}
        for candidate in sorted(times, key=lambda one: _time(times[one]))[:2]:
            self._fewer_channels(candidate, size, times)
        winner = min(times, key=lambda one: _time(times[one]))
        if _time(times[winner]) > _time(usual) * (1 - WORTH):
            own = usual.algorithm, usual.protocol
            winner = next((c for c in candidates if (c.algorithm, c.protocol) == own), winner)
        return Tuned(usual, times[winner], winner, len(times))

    def _fewer_channels(self, start: Candidate, size: int, times: dict[Candidate, Row]) -> None:
        """Halve the channels for as long as that is faster."""
        best = times[start]
        while best.channels is not None and best.channels > 1:
            fewer = replace(start, n_channels=best.channels // 2)
            row = self._row(fewer, size)
            if _time(row) >= _time(best) * (1 - WORTH):
                return
            times[fewer] = best = row

    def _row(self, candidate: Candidate, size: int) -> Row:
        return row_of_size(self._with(candidate), size, engine=self.engine)

    def _with(self, candidate: Candidate) -> ResolvedCell:
        if candidate not in self._forced:
            function = COLLECTIVES[self.resolved.cell.scenario.collective.collective]
            wish = (candidate.algorithm, candidate.protocol, candidate.n_channels)
            rule = TunerRule(function, 0, EVERYTHING, *wish)
            jobs = self.resolved.jobs  # each is made anew but once
            made = {job: replace(job, comm=replace(job.comm, tuner=(rule,))) for job in set(jobs)}
            self._forced[candidate] = replace(self.resolved, jobs=tuple(made[job] for job in jobs))
        return self._forced[candidate]


def rules_of(resolved: ResolvedCell, found: Sequence[Tuned]) -> list[TunerRule]:
    """Rules for what was found at rising sizes; each holds up to the next size that was tried."""
    comm = resolved.jobs[0].comm
    function = COLLECTIVES[resolved.cell.scenario.collective.collective]
    settings = comm.settings  # a number that the user's limits make is written out
    limited = settings.min_channels is not None or settings.max_channels is not None
    sizes = [one.best.size_bytes or 0 for one in found]
    rules: list[TunerRule] = []
    for number, one in enumerate(found):
        last = sizes[number + 1] - 1 if number + 1 < len(found) else sizes[number]
        channels = one.best.channels if limited else one.candidate.n_channels
        wish = (one.candidate.algorithm, one.candidate.protocol, channels)
        if rules and (rules[-1].algorithm, rules[-1].protocol, rules[-1].n_channels) == wish:
            rules[-1] = replace(rules[-1], most_bytes=last)
        else:
            rule = TunerRule(function, sizes[number], last, *wish, comm.n_nodes, comm.n_ranks)
            rules.append(rule)
    return rules


def merged(old: Sequence[TunerRule], new: Sequence[TunerRule]) -> list[TunerRule]:
    """The new rules, and the old ones that are about other functions, nodes or ranks."""
    about = {(rule.function, rule.n_nodes, rule.n_ranks) for rule in new}
    kept = [rule for rule in old if (rule.function, rule.n_nodes, rule.n_ranks) not in about]
    return [*kept, *new]


def _time(row: Row) -> float:
    if row.time_us is None:
        raise NetsimError("a row without a time")
    return row.time_us
