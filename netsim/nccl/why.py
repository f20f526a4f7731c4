"""Why NCCL chooses what it does: its cost table, channels and searches, as its debug log has them.

Lines of text only; values come from `job` and `choice`.
"""

from collections.abc import Iterator, Sequence

from netsim.nccl.communicator import ChannelGraph
from netsim.nccl.connect import Tree
from netsim.nccl.facts import ALGORITHMS, PROTOCOLS
from netsim.nccl.job import Job
from netsim.nccl.p2p import Planned
from netsim.nccl.tuning import TimedCost

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


def cost_lines(costs: Sequence[TimedCost], chosen: Planned) -> Iterator[str]:
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


def cost_rows(costs: Sequence[TimedCost], chosen: Planned) -> list[dict[str, object]]:
    """The same table as rows, for programs; nothing stands for what cannot run."""
    return [dict(zip(COST_COLUMNS, _cost_row(entry, chosen), strict=True)) for entry in costs]


def _cost_row(entry: TimedCost, chosen: Planned) -> tuple[object, ...]:
    cost, runs = entry.cost, entry.time_us is not None
    won = (cost.algorithm, cost.protocol) == (chosen.algorithm, chosen.protocol)
    figures = (cost.latency_us, cost.bandwidth) if runs else (None, None)
    name = (cost.function, cost.algorithm, cost.protocol)
    return (*name, *figures, entry.time_us, int(won), entry.disabled)


def _cost_line(entry: TimedCost, chosen: Planned) -> str:
    cost = entry.cost
    name = f"{cost.algorithm:<14}{cost.protocol:<9}"
    if entry.time_us is None:
        return f"{name}  out: {entry.disabled}"
    won = (cost.algorithm, cost.protocol) == (chosen.algorithm, chosen.protocol)
    figures = f"{cost.latency_us:>10.1f}{cost.bandwidth:>11.2f}{entry.time_us:>14.2f}"
    return name + figures + ("  <- chosen" if won else "")


def search_lines(job: Job) -> Iterator[str]:
    """What the searches found on every kind of node, as NCCL logs it."""
    kinds = list({id(node.view): node for node in job.nodes}.values())
    for node in kinds:
        if len(kinds) > 1:
            yield f"node with rank {node.ranks[0]}:"
        for name, field in SEARCHED.items():
            graph = getattr(node.view, field)
            if graph is not None:
                yield f"{name + ':':<15}{pattern_line(graph)}"


def pattern_line(graph: ChannelGraph) -> str:
    """One search as NCCL's log has it."""
    return (
        f"Pattern {graph.pattern}, crossNic {graph.cross_nic}, nChannels {graph.n_channels}, "
        f"bw {graph.bw_intra:f}/{graph.bw_inter:f}, type {graph.type_intra}/{graph.type_inter}, "
        f"sameChannels {int(graph.same_channels)}"
    )


def rate_lines(job: Job) -> Iterator[str]:
    """What one executed channel is counted for by the search, and what its block can move."""
    comm, rate = job.comm, job.mechanism.rate
    each = comm.ring.n_channels / comm.n_channels
    inside, outside = comm.ring.bw_intra * each, comm.ring.bw_inter * each
    between = f", {outside:.2f} GB/s between nodes" if comm.n_nodes > 1 else ""
    yield f"a ring channel is counted for {inside:.2f} GB/s inside a node{between}"
    rates = ", ".join(f"{name} {rate.of(name) / 1e9:.2f} GB/s" for name in PROTOCOLS)
    yield f"the block of a channel moves {rates}"


def count_line(job: Job) -> str:
    """How many channels there are of each kind, as NCCL logs it."""
    comm, sends = job.comm, job.sends.channels
    collnet = comm.n_channels if comm.collnet_chain is not None else 0
    nvls = comm.nvls_channels if comm.nvls is not None else 0
    return (
        f"{comm.n_channels} coll channels, {collnet} collnet channels, {nvls} nvls channels, "
        f"{sends.total} p2p channels, {sends.per_peer} p2p channels per peer"
    )


def channel_lines(job: Job) -> Iterator[str]:
    """Rings and trees as NCCL's log has them: `Channel 00/24 : 0 1 2`, `Trees [0] 1->0->-1`."""
    found = job.wiring
    count = len(found.rings)
    for number, ring in enumerate(found.rings):
        start = ring.index(0)
        order = " ".join(str(rank) for rank in (*ring[start:], *ring[:start]))
        yield f"Channel {number:02d}/{count:02d} : {order}"
    ranks = range(min(job.comm.n_ranks, MOST_TREES))
    for rank in ranks:
        places = (f"[{number}] {tree_place(tree, rank)}" for number, tree in enumerate(found.trees))
        yield f"rank {rank}: Trees " + " ".join(places)
    if job.comm.n_ranks > MOST_TREES:
        yield f"... and {job.comm.n_ranks - MOST_TREES} more ranks"


def tree_place(tree: Tree, rank: int) -> str:
    """The place of a rank in a tree: three children, itself, its parent; -1 is none."""
    down = [*tree.down[rank], -1, -1, -1][:3]
    return f"{'/'.join(str(child) for child in down)}->{rank}->{tree.up[rank]}"
