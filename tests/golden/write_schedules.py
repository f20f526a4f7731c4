"""Golden texts of schedules: small collectives, transfer by transfer."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from netsim.collectives.collective import ROOTED, Collective, collective_of
from netsim.collectives.msccl import AlgoFile, PlanFile, algorithm
from netsim.collectives.table import build
from netsim.collectives.verify import verify
from netsim.nccl.choice import schedule_of
from netsim.nccl.p2p import P2pChannels
from netsim.schedule.builder import Builder
from netsim.schedule.extent import Extent
from netsim.schedule.schedule import ARRIVED, IN, LOCAL_COPY, REDUCE, Schedule, Style
from tests.collectives.collective_cases import TABLE, build_small, make
from tests.golden.layout import MOST_LINES, SCHEDULE_LEGEND, schedule_lines
from tests.nccl.nccl_plans import small_plan
from tests.nccl.test_schedules_collnet import chains_of, heads_of
from tests.nccl.test_schedules_send_recv import plan_of

Writer = Callable[[], list[str]]
# A multi-ring over ranks without links is the bucket algorithm, row by row.
SAME_AS_BUCKET = [(name, "multi-ring") for name in ("all_reduce", "all_gather", "reduce_scatter")]


EXTENT = Extent(merges_channels=False, has_places=True)


def section(title: str, schedule: Schedule) -> list[str]:
    """Return a schedule under a title."""
    return ["", f"== {title} ==", *schedule_lines(schedule)]


# Elements of 4 bytes by number of ranks: one a chunk, or (3 and 2 ranks) chunks of unequal size.
# The first that fit into a golden text are written.
ELEMENTS = {4: 4, 3: 7, 5: 5, 2: 5}


def textbook(name: str, algorithm_name: str) -> list[str]:
    """Return the schedules of one algorithm over 2 to 5 ranks, as many as fit."""
    lines = [f"{name}, {algorithm_name} algorithm, elements of 4 bytes.", *legend()]
    sections: dict[int, list[str]] = {}
    for ranks, elements in ELEMENTS.items():
        root = 1 if name in ROOTED else 0
        collective = make(name, ranks, elements, root=root)
        schedule = build_small(collective, algorithm_name)
        title = f"{ranks} ranks, {collective.count} elements"
        title += ", root r1" if name in ROOTED else ""
        title += f", matrix {collective.matrix}" if name == "alltoallv" else ""
        title += f", pairs {collective.pairs}" if name == "p2p" else ""
        written = section(title, schedule)
        length = len(lines) + len(written) + sum(map(len, sections.values()))
        if length <= MOST_LINES:
            sections[ranks] = written
    for ranks in sorted(sections):
        lines += sections[ranks]
    return lines


def legend() -> list[str]:
    """Return the legend of schedules as lines."""
    return SCHEDULE_LEGEND.splitlines()


@dataclass(frozen=True)
class Case:
    """One call as NCCL runs it: a heading, the collective and the arguments of its small plan."""

    heading: str
    name: str
    count: int
    algorithm: str
    protocol: str
    nodes: int
    local: int
    root: int = 0
    channels: int = 1
    given: Mapping[str, Any] = field(default_factory=dict)

    def schedule(self) -> Schedule:
        """Return its schedule; the mechanism costs nothing, so that only structure is written."""
        ranks = self.nodes * self.local
        elements = max(self.count, 1)
        plan = small_plan(
            self.algorithm,
            self.protocol,
            self.nodes,
            self.local,
            elements,
            channels=self.channels,
            **self.given,
        )
        return schedule_of(make(self.name, ranks, elements, root=self.root), plan, EXTENT)


def nccl(title: str, cases: Sequence[Case]) -> list[str]:
    """Return NCCL's schedules of some calls."""
    lines = [*title.splitlines(), *legend()]
    for case in cases:
        lines += section(case.heading, case.schedule())
    return lines


def sends(name: str, cases: Sequence[tuple[int, int]]) -> list[str]:
    """Return the grouped sends of a collective, over (nodes, ranks a node)."""
    lines = [
        f"NCCL's grouped sends and receives for {name}: the rounds of ncclSend/ncclRecv.",
        *legend(),
    ]
    for nodes, local in cases:
        collective = make(name, nodes * local, 2, root=1 if name in ("gather", "scatter") else 0)
        plan = plan_of(collective, nodes, P2pChannels(total=2, per_peer=1, fewest=1))
        title = f"{nodes} nodes of {local} ranks, {collective.count} elements a block"
        lines += section(title, schedule_of(collective, plan, EXTENT))
    return lines


def collnet(heads: int, nodes: int, local: int) -> dict[str, Any]:
    """Return what plans through switches of a network need to know of heads, chains and NICs."""
    return {
        "heads": heads_of(nodes, local, heads),
        "chains": chains_of(nodes, local),
        "nic_routes": ("net",) * max(heads, 2),
        "chunk": 64,
    }


MSCCL_XML = """\
<algo name="relay" nchannels="1" nchunksperloop="2" proto="Simple" ngpus="2" coll="allgather" inplace="0" outofplace="1" minBytes="0" maxBytes="0">
  <gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="2" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""  # noqa: E501


def msccl_read() -> list[str]:
    """Return what an MSCCL algorithm of two ranks becomes."""
    lines = ["A small MSCCL file, and the schedule that it becomes.", *legend(), ""]
    schedule = algorithm("relay.xml", MSCCL_XML)(collective_of("all_gather", 2, 2 * 32))
    return [*lines, *MSCCL_XML.splitlines(), *section("2 ranks, blocks of 8 elements", schedule)]


def json_lines(value: Any, begin: str = "", indent: int = 0) -> list[str]:
    """Return JSON with one line for every value that fits into one."""
    line = f"{' ' * indent}{begin}{json.dumps(value)}"
    if len(line) <= 100 or not isinstance(value, dict | list):
        return [line]
    inner = []
    if isinstance(value, dict):
        for key, part in value.items():
            inner += json_lines(part, f"{json.dumps(key)}: ", indent + 1)
    else:
        for part in value:
            inner += json_lines(part, "", indent + 1)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return [f"{' ' * indent}{begin}{opening}", *inner, f"{' ' * indent}{closing}"]


def sheet_written(kind: type[AlgoFile] | type[PlanFile], title: str, name: str) -> list[str]:
    """Return a ring all_gather over two ranks as a file of MSCCL or a plan of MSCCL++."""
    collective = collective_of("all_gather", 2, 2 * 48)
    schedule = build(collective, "ring")
    text = kind("ring2", schedule, collective).text()
    if name.endswith("json"):
        text = "\n".join(json_lines(json.loads(text)))
    again = algorithm(name, kind("ring2", schedule, collective).text())(collective)
    return [title, *legend(), "", *text.splitlines(), *section("read again", again)]


def broadcast_star(collective: Collective, hub: int = 0) -> Schedule:
    """Return an all_reduce of a user's own file: a star around one rank."""
    builder = Builder(collective.ranks, collective.element_bytes)
    piece = builder.pieces([collective.count])
    others = [rank for rank in range(collective.ranks) if rank != hub]
    own = builder.rows(Style(LOCAL_COPY, src_buffer=IN), [hub], [hub], piece)
    last = own
    for rank in others:
        style = Style(op=REDUCE, src_buffer=IN)
        last = builder.rows(style, [rank], [hub], piece, step=1, after=[(last, ARRIVED)])
    out = builder.rows(Style(), [hub], others, piece, step=2, after=[(last, ARRIVED)])
    builder.marks(others, step=3, after=[(out, ARRIVED)])
    return builder.finish()


def own_algorithm() -> list[str]:
    """Return the schedule of an algorithm as users write them, which `verify` accepts."""
    collective = Collective("all_reduce", 4, 4, 4)
    schedule = broadcast_star(collective)
    verify(schedule, collective)
    return [
        "A user's own algorithm: all_reduce as a star around rank 0 (docs/extending.md).",
        *legend(),
        *section("4 ranks, 4 elements", schedule),
    ]


def hierarchical(name: str) -> list[str]:
    """Return hierarchical algorithms over two nodes of two ranks and three nodes of two ranks."""
    lines = [f"{name}, hierarchical: inside nodes, between nodes, inside nodes.", *legend()]
    for nodes in (2, 3):
        collective = make(name, 2 * nodes, 2 * nodes)
        schedule = build(collective, "hierarchical", node_size=2)
        lines += section(f"{nodes} nodes of 2 ranks, {collective.count} elements", schedule)
    return lines


def swing(name: str) -> list[str]:
    """Return swing schedules, which need a power of two of ranks."""
    lines = [f"{name}, swing algorithm: distances 1, -1, 3, -5 to and fro on a ring.", *legend()]
    for ranks in (2, 4):
        schedule = build(make(name, ranks, ranks), "swing")
        lines += section(f"{ranks} ranks", schedule)
    return lines


RING = "NCCL's ring {}: one channel, the ring r0 -> r1 -> ... (netsim/nccl/schedules/ring.py)."
TREE = "NCCL's double binary tree all_reduce: up to the root and down again."

WRITERS: dict[str, Writer] = {
    **{
        f"schedules/textbook-{name}-{algorithm_name}": partial(textbook, name, algorithm_name)
        for name, algorithm_name in TABLE
        if (name, algorithm_name) not in SAME_AS_BUCKET
    },
    "schedules/textbook-all_reduce-hierarchical-nodes": partial(hierarchical, "all_reduce"),
    **{
        f"schedules/textbook-{name}-swing": partial(swing, name)
        for name in ("all_reduce", "all_gather", "reduce_scatter")
    },
    **{
        f"schedules/nccl-ring-{name}": partial(nccl, RING.format(name), cases)
        for name, cases in {
            "all_reduce": [
                Case("1 node of 4 ranks, Simple", "all_reduce", 1024, "Ring", "Simple", 1, 4),
                Case("1 node of 3 ranks, LL, 1 loop", "all_reduce", 60, "Ring", "LL", 1, 3),
                Case(
                    "1 node of 2 ranks, 2 channels",
                    "all_reduce",
                    1024,
                    "Ring",
                    "Simple",
                    1,
                    2,
                    0,
                    2,
                ),
            ],
            "all_gather": [
                Case("1 node of 4 ranks, Simple", "all_gather", 1, "Ring", "Simple", 1, 4),
                Case("2 nodes of 2 ranks, LL128", "all_gather", 30, "Ring", "LL128", 2, 2),
            ],
            "reduce_scatter": [
                Case("1 node of 4 ranks, Simple", "reduce_scatter", 1, "Ring", "Simple", 1, 4),
                Case("2 nodes of 2 ranks, LL", "reduce_scatter", 30, "Ring", "LL", 2, 2),
            ],
            "broadcast": [
                Case("1 node of 4 ranks, root r1", "broadcast", 4, "Ring", "Simple", 1, 4, 1),
                Case("2 nodes of 2 ranks, root r2, LL", "broadcast", 60, "Ring", "LL", 2, 2, 2),
            ],
            "reduce": [
                Case("1 node of 4 ranks, root r1", "reduce", 4, "Ring", "Simple", 1, 4, 1),
                Case("2 nodes of 2 ranks, root r2, LL", "reduce", 60, "Ring", "LL", 2, 2, 2),
            ],
        }.items()
    },
    "schedules/nccl-tree-one-node": partial(
        nccl,
        TREE,
        [
            Case("1 node of 4 ranks, Simple", "all_reduce", 4, "Tree", "Simple", 1, 4),
            Case("1 node of 3 ranks, LL, 2 loops", "all_reduce", 40, "Tree", "LL", 1, 3),
        ],
    ),
    "schedules/nccl-tree-nodes": partial(
        nccl,
        TREE,
        [
            Case("4 nodes of 1 rank, both trees", "all_reduce", 8, "Tree", "Simple", 4, 1, 0, 2),
            Case("2 nodes of 2 ranks, LL128", "all_reduce", 8, "Tree", "LL128", 2, 2),
        ],
    ),
    "schedules/nccl-tree-patterns": partial(
        nccl,
        TREE + " \nNCCL's patterns in a node: 1 balanced, 2 split, 3 tree.",
        [
            Case(
                f"3 nodes of 2 ranks, pattern {pattern}",
                "all_reduce",
                4,
                "Tree",
                "Simple",
                3,
                2,
                given={"pattern": pattern},
            )
            for pattern in (1, 2, 3)
        ],
    ),
    **{
        f"schedules/nccl-nvls-{name}": partial(
            nccl,
            f"NVLS {name}: heads read sums from the NVSwitch and multicast through it.",
            [
                Case(
                    f"1 node of 2 ranks, 2 heads{', registered buffers' * registered}",
                    name,
                    16,
                    "NVLS",
                    "Simple",
                    1,
                    2,
                    given={"heads": ((0, 1),), "registered": registered, "chunk": 32},
                )
                for registered in (False, True)
            ]
            + [
                Case(
                    "1 node of 4 ranks, 2 heads, registered buffers",
                    name,
                    8,
                    "NVLS",
                    "Simple",
                    1,
                    4,
                    given={
                        "heads": ((0, 1),) if name == "all_reduce" else ((0, 1, 2, 3),),
                        "registered": True,
                        "chunk": 64,
                    },
                )
            ],
        )
        for name in ("all_reduce", "all_gather", "reduce_scatter")
    },
    # The elements divide neither by heads nor by the pieces of a head's chunk.
    "schedules/nccl-nvls-uneven": partial(
        nccl,
        "NVLS and NVLSTree all_reduce of counts that do not divide evenly by heads and pieces.",
        [
            Case(
                f"{algorithm}, nodes: {nodes} of 2 ranks, 2 heads, {count} elements",
                "all_reduce",
                count,
                algorithm,
                "Simple",
                nodes,
                2,
                given={"heads": heads_of(nodes, 2, 2), "registered": True, "chunk": 64},
            )
            for algorithm, nodes, count in (("NVLS", 1, 45), ("NVLSTree", 2, 23))
        ],
    ),
    "schedules/nccl-nvlstree": partial(
        nccl,
        "NVLSTree all_reduce: the switch of each node, and a tree of heads between nodes.",
        [
            Case(
                f"{nodes} nodes of {local} ranks, {heads} heads",
                "all_reduce",
                4,
                "NVLSTree",
                "Simple",
                nodes,
                local,
                given={"heads": heads_of(nodes, local, heads), "registered": True, "chunk": 64},
            )
            for nodes, local, heads in ((2, 2, 1), (3, 2, 2))
        ],
    ),
    "schedules/nccl-collnet-chain": partial(
        nccl,
        "CollNetChain all_reduce: a chain in each node, sums in the switches of the network.",
        [
            Case(
                "2 nodes of 2 ranks",
                "all_reduce",
                4,
                "CollNetChain",
                "Simple",
                2,
                2,
                given=collnet(1, 2, 2),
            ),
            Case(
                "2 nodes of 3 ranks, direct",
                "all_reduce",
                4,
                "CollNetChain",
                "Simple",
                2,
                3,
                given={**collnet(1, 2, 3), "direct": True},
            ),
        ],
    ),
    **{
        f"schedules/nccl-collnet-direct-{name}": partial(
            nccl,
            f"CollNetDirect {name}: heads gather from their node, the network adds up.",
            [
                Case(
                    f"2 nodes of 2 ranks, 2 heads{', direct' * direct}",
                    name,
                    4,
                    "CollNetDirect",
                    "Simple",
                    2,
                    2,
                    given={**collnet(2, 2, 2), "direct": direct},
                )
                for direct in (False, True)
            ],
        )
        for name in ("all_reduce", "all_gather", "reduce_scatter")
    },
    **{
        f"schedules/nccl-nvls-network-{name}": partial(
            nccl,
            f"NVLS {name} of two nodes, whose switches and those of the network add up.",
            [
                Case(
                    "2 nodes of 2 ranks, 2 heads, registered",
                    name,
                    4,
                    "NVLS",
                    "Simple",
                    2,
                    2,
                    given={**collnet(2, 2, 2), "registered": True},
                )
            ],
        )
        for name in ("all_reduce", "all_gather")
    },
    **{
        f"schedules/nccl-pat-{name}": partial(
            nccl,
            f"PAT {name}: trees of logarithmic depth, turned for every rank (one rank a node).",
            [
                Case(
                    f"{ranks} nodes of 1 rank",
                    name,
                    1,
                    "PAT",
                    "Simple",
                    ranks,
                    1,
                    given={"chunk": 64},
                )
                for ranks in (2, 4, 5)
            ],
        )
        for name in ("all_gather", "reduce_scatter")
    },
    **{
        f"schedules/nccl-sends-{name}": partial(sends, name, cases)
        for name, cases in {
            "alltoall": ((1, 3), (2, 2)),
            "sendrecv": ((1, 3), (2, 2)),
            "gather": ((1, 4), (2, 2)),
            "scatter": ((1, 4), (2, 2)),
            "p2p": ((1, 4),),
        }.items()
    },
    "schedules/msccl-read": msccl_read,
    "schedules/msccl-written": partial(
        sheet_written, AlgoFile, "A ring all_gather over 2 ranks as an MSCCL file.", "x.xml"
    ),
    "schedules/mscclpp-written": partial(
        sheet_written, PlanFile, "A ring all_gather over 2 ranks as an MSCCL++ plan.", "x.json"
    ),
    "schedules/own-algorithm": own_algorithm,
}
