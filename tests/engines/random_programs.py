"""Random programs for the tests of engines: every feature of the model, in small.

Numbers come from short lists, so that ties, zero-time cascades and full links are common; rows are
few, so that a failing program can be read.
"""

from math import inf
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from netsim.program.place import place
from netsim.program.program import Program
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import (
    COMPUTE,
    LOCAL_COPY,
    MARK,
    MULTICAST,
    SWITCH_REDUCE,
    TRANSFER,
    Lag,
    Style,
    Use,
)
from netsim.topology.graph import Topology
from netsim.topology.routing import StaticRouter

BANDWIDTHS = st.sampled_from([1.0, 1.0, 2.0, 3.0, 7.5, 10.0, inf, 1.0, 2.0, 10.0, 0.0])
SECONDS = st.sampled_from([0.0, 0.0, 0.0, 0.1, 0.25, 1.0, 1 / 3])
AMOUNTS = st.sampled_from([0.0, 1.0, 1.0, 2.0, 5.0, 12.0, 1 / 7])
WEIGHTS = st.sampled_from([0.5, 1.0, 16 / 15, 2.0, 0.3])
UNEVEN = 0.19030921581284319  # UNEVEN / 3 * 3 < UNEVEN
SHARES = st.sampled_from([1.0, 1.0, 1.0, 0.25, 3.0, 1e-15])
CAPS = st.sampled_from([inf, inf, inf, 0.4, 1.0, 2.5, UNEVEN])
KINDS = st.sampled_from([TRANSFER] * 6 + [LOCAL_COPY, MULTICAST, SWITCH_REDUCE, COMPUTE, MARK])
RESOURCES = ("sm", "sms", "hbm", "proxy", "nvls")


@st.composite
def topologies(draw: st.DrawFn, gpus: int) -> Topology:
    """GPUs on two switches with a trunk between them, and capacities that change."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_nodes_from((f"gpu{i}" for i in range(gpus)), kind="gpu")
    graph.add_nodes_from(("left", "right"), kind="switch")
    ends = [(f"gpu{i}", "left" if i % 2 else "right") for i in range(gpus)]
    for a, b in [*ends, ("left", "right")]:
        duplex = draw(st.sampled_from(["full", "full", "half"]))
        for tail, head in ((a, b), (b, a)):
            given = {"bandwidth": draw(BANDWIDTHS), "latency": draw(SECONDS), "duplex": duplex}
            graph.add_edge(tail, head, **given)
    capacities = {
        name: np.array([draw(BANDWIDTHS) for _ in range(gpus)])
        for name in RESOURCES
        if draw(st.booleans())
    }
    links = st.integers(0, 2 * (gpus + 1) - 1)
    values = st.sampled_from([0.0, 0.5, 1.0, 4.0, inf])
    change = st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.0, 20 / 3]), links, values)
    changes = [*draw(st.lists(change, max_size=4))]
    if draw(st.integers(0, 9)) > 0:  # otherwise the program may stall
        changes += [(100.0, link, 2.0) for _, link, value in changes if value == 0]
    names = tuple(f"gpu{i}" for i in range(gpus))
    return Topology("random", graph, names, StaticRouter(), capacities, tuple(changes))


@st.composite
def styles(draw: st.DrawFn) -> Style:
    """What rows have in common; a row on no link gets a cap."""
    kind = draw(KINDS)
    cap = draw(CAPS)
    if kind == LOCAL_COPY and cap == inf:
        cap = 4.0
    use = st.builds(
        Use, st.sampled_from(RESOURCES), st.sampled_from(["src", "dst"]), WEIGHTS, st.just(0)
    )
    return Style(
        kind=kind,
        op=draw(st.integers(0, 1)),
        channel=draw(st.integers(0, 1)),
        latency=draw(SECONDS),
        cap=cap,
        share=draw(SHARES),
        wire=draw(WEIGHTS),
        uses=() if kind == MARK else tuple(draw(st.lists(use, max_size=2))),
    )


@st.composite
def programs(draw: st.DrawFn, rows: int = 25) -> Program:
    """A placed schedule of up to so many rows."""
    gpus = draw(st.integers(2, 5))
    builder = Builder(gpus)
    known = [builder.style(style) for style in draw(st.lists(styles(), min_size=1, max_size=6))]
    pieces = builder.work([draw(AMOUNTS) for _ in range(4)])
    nothing = builder.work(0.0)[0]
    groups = [builder.group(range(gpus)), builder.group((gpus - 1, 0))]
    kinds = [style.kind for style in builder._styles]
    lags = [Lag(draw(SECONDS), draw(st.booleans())) for _ in range(2)]
    for row in range(draw(st.integers(1, rows))):
        style = draw(st.sampled_from(known))
        src, dst = draw(st.permutations(range(gpus)))[:2]
        kind = kinds[style]
        src = draw(st.sampled_from(groups)) if kind == SWITCH_REDUCE else src
        dst = draw(st.sampled_from(groups)) if kind == MULTICAST else dst
        dst = src if kind in (LOCAL_COPY, COMPUTE, MARK) else dst
        piece = nothing if kind == MARK else draw(st.sampled_from(list(pieces)))
        earlier = draw(st.lists(st.integers(0, row - 1), max_size=3)) if row else []
        after = [(e, draw(st.sampled_from(lags))) for e in earlier]
        builder.rows(style, src, dst, piece, after=after)
        if draw(st.integers(0, 4)) == 0:
            builder.release(row, draw(st.sampled_from([0.5, 1.0, 2 / 3])))
    return place(builder.finish(), draw(topologies(gpus)))
