"""Trees: binomial ones over whole buffers, and the pipelined double binary tree.

Ranks are counted from the root on. In round s of a broadcast every v < 2^s hands the data to
v + 2^s; a reduce runs backwards. A rank's next message waits until its last one has arrived, as
with blocking sends, so that each of the ceil(log2 n) rounds takes α + S/B.
"""

import numpy as np

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.collectives.reduced import Part
from netsim.collectives.writing import (
    Folding,
    Ints,
    Lanes,
    Rows,
    ceil_log2,
    edges,
    piece_count,
    rank_of,
)
from netsim.schedule.schedule import (
    ARRIVED,
    COPY,
    IN,
    IN_ORDER,
    LOCAL_COPY,
    OUT,
    REDUCE,
    REDUCE_INPUT,
    SCRATCH,
    Schedule,
    Style,
)


def broadcast(collective: Collective, *, fold: Folding = None) -> Schedule:
    """The ranks that have the data double every round."""
    lanes = Lanes(collective, fold=fold).keep()
    _spread(lanes, collective.root, IN, 0)
    return lanes.close()


def reduce(collective: Collective, *, fold: Folding = None) -> Schedule:
    """The ranks that have partial sums halve every round."""
    lanes = Lanes(collective, fold=fold).keep()
    _collect(lanes, collective.root, SCRATCH)
    return lanes.close()


def binomial_all_reduce(collective: Collective, *, root: int = 0, fold: Folding = None) -> Schedule:
    """A reduce to one root, then a broadcast from there."""
    lanes, root = Lanes(collective, fold=fold).keep(), rank_of("root", root, collective.ranks)
    _spread(lanes, root, OUT, _collect(lanes, root, OUT))
    return lanes.close()


def _spread(lanes: Lanes, root: int, from_buffer: int, step: int) -> int:
    n = lanes.ranks
    piece = lanes.builder.pieces(lanes.collective.count)
    for s in range(ceil_log2(n)):
        v = np.arange(min(1 << s, n - (1 << s)))
        part = Part(lanes.styles(np.where(v == 0, from_buffer, OUT), OUT), np.repeat(piece, len(v)))
        source, target = (v + root) % n, (v + (1 << s) + root) % n
        lanes.send(source, target, [part], step + s, blocking=True)
    return step + ceil_log2(n)


def _collect(lanes: Lanes, root: int, elsewhere: int) -> int:
    """Sum up into OUT at the root and into the buffer `elsewhere` on the others."""
    n, rounds = lanes.ranks, ceil_log2(lanes.ranks)
    piece = lanes.builder.pieces(lanes.collective.count)
    summed = np.zeros(n, bool)  # by distance from the root: holds more than its own input
    buffer = np.where(np.arange(n) == 0, OUT, elsewhere)
    for step, s in enumerate(reversed(range(rounds))):
        v = np.arange(min(1 << s, n - (1 << s)))
        w = v + (1 << s)
        style = lanes.styles(
            np.where(summed[w], buffer[w], IN), buffer[v], np.where(summed[v], REDUCE, REDUCE_INPUT)
        )
        part = Part(style, np.repeat(piece, len(v)))
        lanes.send((w + root) % n, (v + root) % n, [part], step, ready=True)
        summed[v] = True
    return rounds


# Double binary tree (Sanders, Speck and Träff, 2009; as NCCL builds it): pipelined all-reduce.
# Each of two trees sums up half of the data to its root and hands it back, piece by piece. Inner
# ranks of one tree are leaves of the other (even n), so that both directions of all links are used.


@dataclass(frozen=True, slots=True)
class Trees:
    """Both trees as one forest: node t·n + r is rank r in tree t."""

    parent: Ints  # -1 at the roots
    depth: Ints
    second: Ints  # whether a node is the second child of its parent


def parents(n: int) -> Ints:
    """The parent of each rank in the first tree: leaves are the odd ranks, 0 is the root."""
    rank = np.arange(n)
    bit = rank & -rank
    up = (rank ^ bit) | (bit << 1)
    up = np.where(up >= n, rank ^ bit, up)
    up[0] = -1
    return up


def trees_of(n: int) -> Trees:
    """The second tree is the first one mirrored, or shifted by a rank if n is odd."""
    first = parents(n)
    rename = np.arange(n)[::-1] if n % 2 == 0 else (np.arange(n) + 1) % n
    parent = np.full(2 * n, -1)
    parent[:n] = first
    parent[n + rename] = np.where(first < 0, -1, n + rename[first])
    depth, above = np.zeros(2 * n, np.int64), parent
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    order = np.argsort(parent, kind="stable")
    second = np.zeros(2 * n, bool)
    second[order[1:]] = (parent[order[1:]] == parent[order[:-1]]) & (parent[order[1:]] >= 0)
    return Trees(parent, depth, second)


class _Writer:
    """Rows of all pieces on the edges of one level at a time, piece by piece."""

    def __init__(self, lanes: Lanes, trees: Trees, chunks: int) -> None:
        n, count = lanes.ranks, lanes.collective.count
        self.lanes, self.trees, self.chunks, self.n = lanes, trees, chunks, n
        bounds = edges(count, 2 * chunks)
        self.pieces = lanes.builder.pieces(np.diff(bounds), bounds[:-1]).reshape(2, chunks)
        # After which row a node may go on with each piece: all of its subtree has arrived there.
        self.ready = np.full((chunks, 2 * n), -1, np.int32)

    def add(self, styles: Rows, src: Ints, dst: Ints, step: int, waits: list[Rows]) -> Rows:
        """A row for each piece and edge (nodes src → dst), after `waits` and the piece before."""
        k, width = self.chunks, len(src)
        first = len(self.lanes.builder)
        before = first + np.arange(-width, (k - 1) * width).reshape(k, width)
        before[0] = -1
        after = [(rows.ravel(), ARRIVED) for rows in waits] + [(before.ravel(), IN_ORDER)]
        pieces = self.pieces[src // self.n].T
        shape = (k, width)
        rows = self.lanes.builder.rows(
            np.broadcast_to(styles, shape).ravel(),
            np.broadcast_to(src % self.n, shape).ravel(),
            np.broadcast_to(dst % self.n, shape).ravel(),
            pieces.ravel(),
            step=step + np.repeat(np.arange(k), width),
            after=after,
        )
        return rows.reshape(shape)


def double_tree_all_reduce(
    collective: Collective, *, chunks: int | None = None, chunk_bytes: int | str | None = None
) -> Schedule:
    """Sums go up and results come down, in `chunks` pieces a tree or in `chunk_bytes` each."""
    lanes = Lanes(collective, channels=2).keep()
    half, trees = (collective.count + 1) // 2, trees_of(collective.ranks)
    k = piece_count(half, collective.element_bytes, chunks, chunk_bytes)
    writer = _Writer(lanes, trees, k)
    levels = int(trees.depth.max())
    for depth in range(levels, 0, -1):
        _up(writer, np.flatnonzero(trees.depth == depth), levels - depth)
    # Only the roots have something to hand down.
    writer.ready[:, trees.depth > 0] = -1
    for depth in range(1, levels + 1):
        _down(writer, np.flatnonzero(trees.depth == depth), levels + depth - 1)
    return lanes.close()


def _up(writer: _Writer, child: Ints, step: int) -> None:
    """Sums go up one level; a second child's go to scratch, and the parent adds them there."""
    trees, ready, n = writer.trees, writer.ready, writer.n
    parent, second = trees.parent[child], trees.second[child]
    waits = ready[:, child]
    styles = _transfers(
        writer,
        child // n,
        np.where(waits[0] >= 0, OUT, IN),
        np.where(second, SCRATCH, OUT),
        np.where(second, COPY, REDUCE_INPUT),
    )
    rows = writer.add(styles, child, parent, step, [waits])
    ready[:, parent[~second]] = rows[:, ~second]
    twice = parent[second]
    if len(twice):
        styles = _adds(writer, twice // n)
        ready[:, twice] = writer.add(styles, twice, twice, step, [ready[:, twice], rows[:, second]])


def _down(writer: _Writer, child: Ints, step: int) -> None:
    parent = writer.trees.parent[child]
    styles = _transfers(writer, child // writer.n, OUT, OUT, COPY)
    rows = writer.add(styles, parent, child, step, [writer.ready[:, parent]])
    writer.ready[:, child] = rows
    writer.lanes.wait(parent, rows[-1], IN_ORDER, step + writer.chunks - 1)
    writer.lanes.wait(child, rows[-1])


def _transfers(
    writer: _Writer, tree: Ints, source: Ints | int, target: Ints | int, op: Ints | int
) -> Rows:
    return np.array(
        [
            writer.lanes.style(int(a), int(b), int(o), int(t))
            for t, a, b, o in zip(*np.broadcast_arrays(tree, source, target, op), strict=True)
        ],
        np.int32,
    )


def _adds(writer: _Writer, tree: Ints) -> Rows:
    style = [
        writer.lanes.builder.style(Style(LOCAL_COPY, REDUCE, SCRATCH, OUT, channel=channel))
        for channel in range(2)
    ]
    return np.array(style, np.int32)[tree]
