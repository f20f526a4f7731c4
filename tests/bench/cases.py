"""The cases of the benchmark: `pattern-fabric-ranks`, with `-random` for random start times.

`ring-switch-1024` is a ring all-reduce of 1 GiB over 1,024 GPUs on one switch, every row of it;
`alltoall-fattree-256` sends everything to everyone at once over leaves with 2:1 oversubscription.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from netsim.collectives.collective import collective_of
from netsim.collectives.table import build
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import ARRIVED, IN, OUT, Schedule, Style
from netsim.topology.graph import Topology
from netsim.topology.routing import switch

SIZE = 1 << 30  # bytes
RATE = 50e9  # bytes/s
LATENCY = 1e-6  # seconds, a whole traversal
SPREAD = 100e-6  # of random start times
SEED = 1


@dataclass(frozen=True, slots=True)
class Case:
    """One benchmark, made when it is asked for."""

    name: str
    pattern: str
    fabric: str
    ranks: int
    random: bool

    def schedule(self) -> Schedule:
        """What moves."""
        schedule = PATTERNS[self.pattern](self.ranks)
        if not self.random:
            return schedule
        starts = np.random.default_rng(SEED).uniform(0, SPREAD, self.ranks)
        first = np.flatnonzero(np.diff(schedule.dep_ptr) == 0).astype(np.int32)
        return replace(
            schedule, release_row=first, release_time=starts[schedule.src[first] % self.ranks]
        )

    def topology(self) -> Topology:
        """Where it moves."""
        return FABRICS[self.fabric](self.ranks)


def parse_case(name: str) -> Case:
    """The case with a name."""
    pattern, fabric, ranks, *rest = name.split("-")
    if pattern not in PATTERNS or fabric not in FABRICS or rest not in ([], ["random"]):
        raise SystemExit(
            f"unknown case {name!r}: expected PATTERN-FABRIC-RANKS[-random] with "
            f"{', '.join(PATTERNS)} and {', '.join(FABRICS)}"
        )
    return Case(name, pattern, fabric, int(ranks), bool(rest))


# **** Patterns ****


def _ring(ranks: int) -> Schedule:
    return build(collective_of("all_reduce", ranks, SIZE), "ring")


def _tree(ranks: int) -> Schedule:
    return build(collective_of("all_reduce", ranks, SIZE), "double-binary-tree", chunks=128)


def _shift(ranks: int) -> Schedule:
    return build(collective_of("alltoall", ranks, SIZE), "linear-shift")


def _all_to_all(ranks: int) -> Schedule:
    """Everyone sends everything at once."""
    block = SIZE // ranks
    builder = Builder(ranks)
    src = np.tile(np.arange(ranks, dtype=np.int32), ranks - 1)
    dst = (src + np.repeat(np.arange(1, ranks, dtype=np.int32), ranks)) % np.int32(ranks)
    pieces = builder.pieces(block, dst.astype(np.int64) * block, src.astype(np.int64) * block)
    builder.rows(Style(src_buffer=IN, dst_buffer=OUT), src, dst, pieces)
    return builder.finish()


def _permutation(ranks: int) -> Schedule:
    """Everyone sends to one other, at random, 64 messages in a row."""
    order = np.random.default_rng(SEED).permutation(ranks).astype(np.int32)
    builder = Builder(ranks)
    piece = int(builder.pieces(SIZE // 64)[0])
    rows = np.full(ranks, -1, np.int32)
    for step in range(64):
        style = Style(src_buffer=IN, dst_buffer=OUT)
        after = [(rows, ARRIVED)]
        rows = builder.rows(style, order, np.roll(order, 1), piece, step=step, after=after)
    return builder.finish()


def _sharing(ranks: int) -> Schedule:
    """1,000 flows at any time between random GPUs: each is followed by another when it ends."""
    generator = np.random.default_rng(SEED)
    builder = Builder(ranks)
    flows, rounds = 1000, 200
    rows = np.full(flows, -1, np.int32)
    for step in range(rounds):
        src = generator.integers(0, ranks, flows)
        dst = (src + generator.integers(1, ranks, flows)) % ranks
        pieces = builder.pieces(generator.integers(1 << 20, 1 << 24, flows))
        rows = builder.rows(Style(), src, dst, pieces, step=step, after=[(rows, ARRIVED)])
    return builder.finish()


PATTERNS: dict[str, Callable[[int], Schedule]] = {
    "ring": _ring,
    "tree": _tree,
    "shift": _shift,
    "alltoall": _all_to_all,
    "permutation": _permutation,
    "sharing": _sharing,
}


# **** Fabrics ****


def _switch(ranks: int) -> Topology:
    return switch(ranks, RATE, LATENCY)


def _rail(ranks: int) -> Topology:
    """Hosts of 8 H100 GPUs and 8 NICs."""
    return _cluster(f"{{machine: dgx-h100, nodes: {max(1, ranks // 8)}}}")


def _leaf_spine(ranks: int) -> Topology:
    """Hosts of one GPU, 16 on a leaf, paths by hash."""
    fabric = f"kind: leaf-spine, nodes_per_leaf: {min(16, ranks)}, routing: ecmp"
    return _cluster(f"{{{_single(ranks)}, fabric: {{{fabric}}}}}")


def _fat_tree(ranks: int) -> Topology:
    """Hosts of one GPU, 16 on a leaf with 8 spines above it, paths by destination."""
    fabric = "kind: leaf-spine, nodes_per_leaf: 16, spines: 8, oversubscription: 2, routing: static"
    return _cluster(f"{{{_single(ranks)}, fabric: {{{fabric}}}}}")


def _single(ranks: int) -> str:
    return f"machine: dgx-h100, nodes: {ranks}, gpus_per_node: 1, nics_per_node: 1"


def _cluster(text: str) -> Topology:
    """Only what is described in YAML needs what reads it."""
    from netsim.topology.cluster import build_topology
    from netsim.topology.config import ClusterConfig
    from netsim.yamlio.read import parse_source
    from netsim.yamlio.validate import validate

    return build_topology(validate(ClusterConfig, parse_source(text, "bench")))


FABRICS: dict[str, Callable[[int], Topology]] = {
    "switch": _switch,
    "rail": _rail,
    "leafspine": _leaf_spine,
    "fattree": _fat_tree,
}
