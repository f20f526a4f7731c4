"""Algorithms along trees: packed into given links, searched over time, double binary trees, chains.

Each tree carries a part of the data, divided into pieces: sums up to its root, copies down from it,
or both.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import digest
from netsim.base.values import dataclass
from netsim.collectives.collective import ROOTED, Collective, CollectiveError
from netsim.collectives.writing import Ints, Lanes, edges, piece_count
from netsim.schedule import schedule
from netsim.schedule.schedule import COPY, IN, OUT, REDUCE, REDUCE_INPUT, SCRATCH, Schedule
from netsim.topology.graph import Floats, Sides, Topology, flow

# **** Connections between ranks ****

MOST_RANKS = 128  # ranks between which connections are listed
MOST_CHANNELS = 8  # channels whose connections are listed


@dataclass(frozen=True)
class TreeLinks:
    """The connections between `ranks` ranks: routes from one rank to another that cross no third
    rank.

    An algorithm with a parameter `links` gets those of its cluster. All fields but `ranks` and
    `rate` have one entry for each connection.

    Args:
        src: rank where the connection begins.
        dst: rank where it ends.
        channel: channel that uses it.
        latency: seconds.
        over: the links of the connection, as (number of the link, fraction of the bytes on it).
        rate: by number of the link, its bytes per second.
    """

    ranks: int
    src: tuple[int, ...]
    dst: tuple[int, ...]
    channel: tuple[int, ...]
    latency: tuple[float, ...]
    over: tuple[tuple[tuple[int, float], ...], ...]
    rate: tuple[float, ...]

    def __repr__(self) -> str:
        return f"Links({self.ranks} ranks, {digest(vars(self)).hex()})"

    def seconds(self, connection: int) -> float:
        """The seconds per byte of a connection if nothing else uses its links."""
        return max(part / self.rate[link] for link, part in self.over[connection])

    @property
    def reversed_links(self) -> "TreeLinks":
        """These connections with source and destination exchanged; this object if that makes no
        difference.
        """
        load = np.bincount([link for over in self.over for link, _ in over], minlength=1)
        kinds = [
            sorted((self.rate[link], load[link], fraction) for link, fraction in over)
            for over in self.over
        ]
        forward = sorted(zip(self.src, self.dst, kinds, strict=True))
        backward = sorted(zip(self.dst, self.src, kinds, strict=True))
        return self if forward == backward else replace(self, src=self.dst, dst=self.src)


def mesh(ranks: int) -> TreeLinks:
    """Connections of equal rate from every rank to every other, for use without a topology."""
    src, dst = (tuple(one.tolist()) for one in np.nonzero(~np.eye(ranks, dtype=bool)))
    connections = len(src)
    over = tuple(((connection, 1.0),) for connection in range(connections))
    return TreeLinks(
        ranks, src, dst, (0,) * connections, (0.0,) * connections, over, (1.0,) * connections
    )


def links_of(topology: Topology, gpus: NDArray[np.int32]) -> TreeLinks:
    """The connections between the GPUs of a topology.

    A pair of GPUs has one connection for each distinct route that its channels take. Routes that
    cross another GPU or a dead link are left out. `gpus` are the numbers of the GPUs in the
    topology, by rank.
    """
    n = len(gpus)
    wires = topology.links
    nodes = topology.gpu_nodes[gpus]
    if n > MOST_RANKS:
        message = f"ways are listed between up to {MOST_RANKS} ranks, not {n}"
        raise CollectiveError("algorithm", message)
    src, dst = np.nonzero(~np.eye(n, dtype=bool))
    channel_and_latency: dict[tuple[Any, ...], tuple[int, float]] = {}
    for channel in range(MOST_CHANNELS if topology.router.per_channel else 1):
        routes = topology.routes(gpus[src], gpus[dst], np.full(len(src), channel, np.int32))
        through = np.isin(wires.head[routes.link], nodes)
        through[routes.ptr[1:] - 1] = False
        through |= wires.bandwidth[routes.link] <= 0
        for pair, seconds in enumerate(routes.latency.tolist()):
            hops = slice(routes.ptr[pair], routes.ptr[pair + 1])
            link = wires.resource[routes.link[hops]]
            part = routes.fraction[hops]
            draws = tuple(zip(link.tolist(), part.tolist(), strict=True))
            if not through[hops].any():
                ends = int(src[pair]), int(dst[pair])
                channel_and_latency.setdefault((*ends, draws), (channel, seconds))
    connections = [(*key, *value) for key, value in sorted(channel_and_latency.items())]
    if not connections and n > 1:
        raise CollectiveError("algorithm", "some ranks are not connected by links")
    columns: Any = zip(*connections, strict=True) if connections else ((),) * 5
    sources, targets, overs, channels, latency = columns
    number: dict[int, int] = {}  # equal for equal links
    drawn = [
        [(number.setdefault(k, len(number)), part) for k, part in connection]
        for connection in overs
    ]
    rate = np.minimum(wires.bandwidth, wires.bandwidth[wires.bandwidth < np.inf].sum())[[*number]]
    over = tuple(map(tuple, drawn))
    return TreeLinks(n, sources, targets, channels, latency, over, tuple(rate.tolist()))


# **** Trees, and the moves of data along them ****

Hop = tuple[int, int, int, int, int]  # tree, from, to, channel, queue that it keeps to (-1: none)
Place = tuple[int, int]  # a buffer, and where in it
WHOLE, OWN = range(2)  # offset in all data, or in the block of the tree's root; then scratch slots
# Ranges of data by piece (row) and tree (column): offset in all data, offset in the root's block,
# and length, in elements.
Parts = tuple[Ints, Ints, Ints]


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees that each reach all ranks from a root.

    - `roots`: by tree, its root.
    - `weights`: by tree, its part of the data and its share of links, relative to the other trees.
    - `hops`: the hops of all trees as (tree, from rank, to rank, channel, queue or -1), parents
      before children. A hop waits for the hop that brings its data, and for the hop before it in
      its queue.
    """

    roots: tuple[int, ...]
    weights: tuple[int, ...]
    hops: tuple[Hop, ...]


class TreeMoves:
    """The moves of one piece along every tree, from which the rows of all pieces are written.

    A move is a transfer along one hop or a local sum. It waits for the moves that bring its data,
    and for the move before it in its queue; without a queue, for the same move of the piece before.
    """

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.parts: list[Parts] = []
        self.weights: tuple[int, ...] = ()
        self.sums: dict[int, list[int]] = {}  # by root, the last moves of what it sums up
        self.moves: list[tuple[int, ...]] = []
        self.waits: list[list[int]] = []
        self.queues: dict[int, int] = {}  # the last move in each

    def _move(self, op: int, hop: Hop, source: Place, target: Place, waits: list[int]) -> list[int]:
        """Add a move; return its number as a list of one.

        Args:
            op: COPY, REDUCE or REDUCE_INPUT.
            hop: the hop along which the data moves; from a rank to itself for a local sum.
            source: buffer and place in it that are read.
            target: buffer and place in it that are written.
            waits: numbers of the moves that must have arrived.
        """
        tree, src, dst, channel, queue = hop
        kind = schedule.LOCAL_COPY if src == dst else schedule.TRANSFER
        share = float(self.weights[tree])
        style = schedule.Style(kind, op, source[0], target[0], channel=channel, share=share)
        before = self.queues.get(queue, -1)
        number = len(self.moves)
        step = 1 + max((self.moves[one][0] for one in (*waits, before) if one >= 0), default=-1)
        if queue >= 0:
            self.queues[queue] = number
        places = self.lanes.builder.style(style), src, dst, tree, source[1], target[1]
        self.moves.append((step, *places, before))
        self.waits.append(waits)
        return [number]

    def add_sums(self, forest: Forest, parts: Parts, buffer: int) -> None:
        """Add the moves that sum the data of all ranks up the trees to the outputs of the roots.

        Args:
            parts: the ranges of data by piece and tree.
            buffer: where ranks between leaves and root keep partial sums. The first child adds to
                its parent's partial sum directly; the others send to scratch slots, from which the
                parent adds them.
        """
        self.parts.append(parts)
        self.weights += forest.weights
        ready = dict[tuple[int, int], list[int]]()
        children = dict[tuple[int, int], int]()
        for tree, parent, child, channel, queue in reversed(forest.hops):
            receiver = (tree, child)
            above = (tree, parent)
            up = (tree, child, parent, channel, queue)
            number = children[above] = children.get(above, -1) + 1
            target = (OUT, OWN) if parent == forest.roots[tree] else (buffer, WHOLE)
            source = (buffer if receiver in ready else IN, WHOLE)
            slot = (SCRATCH, OWN + number)
            waits = ready.get(receiver, [])
            if number == 0:
                ready[above] = self._move(REDUCE_INPUT, up, source, target, waits)
            else:
                waits = ready[above] + self._move(COPY, up, source, slot, waits)
                ready[above] = self._move(
                    REDUCE, (tree, parent, parent, 0, -1), slot, target, waits
                )
        for tree, root in enumerate(forest.roots):
            self.sums.setdefault(root, []).extend(ready.get((tree, root), []))

    def add_copies(self, forest: Forest, parts: Parts, buffer: int) -> None:
        """Add the moves that copy data down the trees, from `buffer` of the roots to all ranks'
        outputs.
        """
        first = len(self.weights)
        self.parts.append(parts)
        self.weights += forest.weights
        ready = {(tree, root): self.sums.get(root, []) for tree, root in enumerate(forest.roots)}
        for tree, parent, child, channel, queue in forest.hops:
            source = (buffer, OWN) if parent == forest.roots[tree] else (OUT, WHOLE)
            hop = (first + tree, parent, child, channel, queue)
            waits = ready[tree, parent]
            ready[tree, child] = self._move(COPY, hop, source, (OUT, WHOLE), waits)

    def write(self) -> Schedule:
        """Write the rows of every move for every piece, and the marks that end all ranks; return
        the schedule.
        """
        lanes, builder, width = self.lanes, self.lanes.builder, len(self.moves)
        if not width:
            return lanes.close()
        step, style, src, dst, tree, source, target, queued = np.array(self.moves).T
        input_offset, own_offset, count = (
            np.hstack(column)[:, tree] for column in zip(*self.parts, strict=True)
        )
        pieces = len(input_offset)
        size = lanes.collective.input_count(lanes.collective.root)
        row = len(builder) + np.arange(pieces * width).reshape(pieces, width)
        waits = np.full((max(map(len, self.waits)), width), -1)
        for move, row_numbers in enumerate(self.waits):
            waits[: len(row_numbers), move] = row_numbers
        after = [
            (np.where(one < 0, -1, row[:, :1] + one).ravel(), schedule.ARRIVED) for one in waits
        ]
        before = np.where(row < row[0, 0] + width, -1, row - width)
        before = np.where(queued < 0, before, row[:, :1] + queued)
        after.append((before.ravel(), schedule.IN_ORDER))
        source, target = (
            np.where(at == OWN, own_offset, input_offset + np.maximum(at - OWN, 0) * size).ravel()
            for at in (source, target)
        )
        piece = builder.pieces(count.ravel(), source, target, input_offset.ravel())
        style, *ends = (np.tile(column, pieces) for column in (style, src, dst))
        steps = (step + np.arange(pieces)[:, None]).ravel()
        builder.rows(style, ends[0], ends[1], piece, step=steps, after=after)
        lanes.wait(src, row[-1], schedule.IN_ORDER)
        lanes.wait(dst, row[-1], schedule.ARRIVED, int(steps.max()))
        return lanes.close()


# Double binary tree (Sanders, Speck and Träff 2009; NCCL: src/graph/trees.cc, ncclGetDtree):
# pipelined all-reduce. Each of two trees sums half of the data at its root and copies the result
# back, piece by piece. With an even number of ranks, inner ranks of one tree are leaves of the
# other, so that both directions of all links are used.


def parents(n: int) -> Ints:
    """The parent of each rank in the first tree, -1 for its root 0. Odd ranks are leaves."""
    rank = np.arange(n)
    bit = rank & -rank
    up = (rank ^ bit) | (bit << 1)
    up = np.where(up >= n, rank ^ bit, up)
    up[0] = -1
    return up


def names_in_second_tree(n: int) -> list[int]:
    """By rank of the first tree, the rank that takes its place in the second tree.

    That is n - 1 - rank if n is even, otherwise the next rank (mod n).
    """
    return [n - 1 - rank if n % 2 == 0 else (rank + 1) % n for rank in range(n)]


def double_tree(n: int) -> Forest:
    """Both binary trees of n ranks, with hops ordered from the roots down."""
    hops = list[Hop]()
    reached = [0]
    children = dict[int, list[int]]()
    rename = names_in_second_tree(n)
    for rank, parent in enumerate(parents(n).tolist()):
        children.setdefault(parent, []).append(rank)
    for up in reached:
        for down in children.get(up, []):
            reached.append(down)
            hops += [(0, up, down, 0, -1), (1, rename[up], rename[down], 1, -1)]
    return Forest((0, rename[0]), (1, 1), tuple(hops))


def double_tree_all_reduce(
    collective: Collective, *, chunks: int | None = None, chunk_bytes: int | str | None = None
) -> Schedule:
    """The all-reduce by a double binary tree, with `chunks` pieces in each tree or pieces of
    `chunk_bytes`.
    """
    half = (collective.count + 1) // 2
    element = collective.element_bytes
    k = piece_count(half, element, chunks, chunk_bytes)
    bounds = edges(collective.count, 2 * k)
    offset, count = (part.reshape(2, k).T for part in (bounds[:-1], np.diff(bounds)))
    lanes = Lanes(collective).copy_local_data()
    forest = double_tree(collective.ranks)
    return up_and_down(lanes, forest, (offset, offset, count))


def chain(
    collective: Collective, *, chunks: int | None = None, chunk_bytes: int | str | None = None
) -> Schedule:
    """The broadcast or reduce along a chain of all ranks, in `chunks` pieces or pieces of
    `chunk_bytes`.

    With k pieces on n ranks, latency α, bandwidth B and size S it takes (n-1)·α + (n-2+k)·S/(kB): a
    rank sends the next piece as soon as the last one has left, so only the first piece pays the
    latency of every hop.
    """
    n = collective.ranks
    root = collective.root
    direction = -1 if collective.reducing else 1
    k = piece_count(collective.count, collective.element_bytes, chunks, chunk_bytes)
    bounds = edges(collective.count, k)[:, None]
    moves = TreeMoves(Lanes(collective).copy_local_data())
    line = ((root + direction * np.arange(n)) % n).tolist()
    forest = Forest((root,), (1,), tuple((0, *hop, 0, -1) for hop in pairwise(line)))
    write, buffer = (moves.add_sums, SCRATCH) if collective.reducing else (moves.add_copies, IN)
    write(forest, (bounds[:-1], bounds[:-1], np.diff(bounds, axis=0)), buffer)
    return moves.write()


def up_and_down(lanes: Lanes, forest: Forest, parts: Parts) -> Schedule:
    """The schedule that sums data up the trees and copies the sums down the same trees."""
    moves = TreeMoves(lanes)
    moves.add_sums(forest, parts, OUT)
    moves.add_copies(forest, parts, OUT)
    return moves.write()


# **** Algorithms on the links of a cluster ****


def _schedule_along_trees(
    c: Collective, links: TreeLinks | None, find: Callable[[TreeLinks], Forest], pieces: int
) -> Schedule:
    """The schedule of a collective along trees: data is summed up trees, copied down trees, or
    both.

    - `c`: the collective.
    - `links`: the connections of the cluster; None: a mesh.
    - `find`: returns the trees, from their roots outwards, for some connections. For sums it gets
      the connections with source and destination exchanged, as data then flows towards the roots.
    - `pieces`: the number of pieces of each tree; 0: what `LEAST_PIECE`, `MOST_PIECES` and
      `MOST_ROWS` allow.
    """
    n = c.ranks
    everywhere = c.name == "all_reduce"
    if links is not None and not isinstance(links, TreeLinks):
        raise CollectiveError("links", f"follow from the cluster; leave them out, got {links!r}")
    connections = links or mesh(n)
    moves = TreeMoves(Lanes(c).copy_local_data())
    up = [find(connections.reversed_links)] if c.reducing and n > 1 else []
    down = [find(connections)] if (everywhere or not c.reducing) and n > 1 else []
    small = c.count * c.element_bytes // LEAST_PIECE
    hops = sum(len(forest.hops) for forest in (*up, *down))
    pieces = pieces or max(1, min(small, MOST_PIECES, MOST_ROWS // max(1, hops)))
    for forest in up:
        buffer = OUT if everywhere else SCRATCH
        moves.add_sums(forest, _divided_pieces(c, forest, pieces), buffer)
    for forest in down:
        moves.add_copies(forest, _divided_pieces(c, forest, pieces), OUT if everywhere else IN)
    return moves.write()


def _divided_pieces(collective: Collective, forest: Forest, pieces: int) -> Parts:
    """The ranges of data by piece and tree: every piece of a root's block is divided among the
    trees of this root in proportion to their weights.
    """
    n = collective.ranks
    everywhere = collective.name == "all_reduce"
    roots = np.array(forest.roots)
    bounds = edges(collective.count, n) if everywhere else np.arange(n + 1) * collective.count
    first = bounds[roots] * (collective.name not in ROOTED)
    same = (roots[:, None] == roots) * np.array(forest.weights)
    high = np.where(np.tri(len(roots)), same, 0).sum(axis=1)
    total = same.sum(axis=1)
    piece = np.diff(bounds)[roots] * np.arange(pieces + 1)[:, None] // pieces
    start, stop = (
        piece[:-1] + np.diff(piece, axis=0) * at // total for at in (high - np.diag(same), high)
    )
    return first + start, start + first * everywhere, stop - start


def packed(
    collective: Collective,
    *,
    links: TreeLinks | None = None,
    chunks: int | None = None,
    chunk_bytes: int | str | None = None,
) -> Schedule:
    """The schedule of a collective along trees that use the links fully ("forest").

    The trees carry `chunks` pieces each, or pieces of `chunk_bytes`; by default the number of
    pieces follows from the size.
    """
    n = collective.ranks
    chunking = (chunks, chunk_bytes)
    size = collective.element_bytes
    pieces = 0
    if chunking != (None, None):
        pieces = piece_count(collective.count, size, *chunking)
    supply = tuple(int(r == collective.root or collective.name not in ROOTED) for r in range(n))
    return _schedule_along_trees(
        collective, links, lambda links: _packed_forest(links, supply), pieces
    )


def searched(collective: Collective, *, links: TreeLinks | None = None, seed: int = 0) -> Schedule:
    """The fastest schedule of `TRIES` greedy searches over time ("synth"); `seed` starts their
    random numbers.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise CollectiveError("seed", f"expected a whole number from 0 up, got {seed!r}")
    n = collective.ranks
    blocks = collective.ranks if collective.name == "all_reduce" else 1
    block = collective.count * collective.element_bytes / blocks
    parts = max(1, min(int(block) // LEAST_PIECE, MOST_PARTS, MOST_SEARCHED // (n * n)))

    def find(links: TreeLinks) -> Forest:
        random = (np.random.default_rng((seed, number)) for number in range(TRIES))
        tries = (_search_hops(links, parts, block / parts, one) for one in random)
        best = min(tries, key=lambda attempt: attempt[0])
        return Forest(tuple(range(n)) * parts, (1,) * n * parts, tuple(best[1]))

    return _schedule_along_trees(collective, links, find, 1)


ON_LINKS: dict[str, Callable[..., Schedule]] = {"forest": packed, "synth": searched}

# **** Packed trees **** As in ForestColl (arXiv 2402.06787), by a theorem of Edmonds: trees from
# the roots to all ranks with given rates exist if and only if every cut carries what the roots on
# its source side send together. The best rates of connections that share links are the solution of
# a linear program, whose constraints (cuts) are added one by one until no cut is too narrow. Trees
# are then grown hop by hop, each hop such that the remaining rates suffice to complete all trees.

EXACT = 16  # ranks up to which trees are always packed; of more it takes seconds
MOST_PACKED = 64  # ranks up to which trees are packed at all; of more it would take minutes
LEAST_PIECE = 1 << 16  # default bytes of a piece
MOST_PIECES = 1024  # default limit on pieces
MOST_ROWS = 3 << 19  # default limit on rows
MULTIPLES = (*range(1, 17), 20, 24, 28, 32, 48, 64)  # numbers of trees per root to try
# Fractions of the rate of all links that trees may leave unused; they are tried in this order.
LOSSES = (1e-6, 0.002, 0.004, 0.008, 0.02, 0.1, 0.4)
STARS = 256  # stars of a root in a mixture
FEW = 0.005  # fraction of a mixture below which a kind of stars is omitted
UNITS = 2**26  # integer rate of all roots together in maximum flows
Group = tuple[list[int], int, list[int]]  # equal trees: ranks reached, number, connections


def _narrow_cuts(links: TreeLinks, supply: Ints, rates: Ints) -> list[Sides]:
    """The cuts that are too narrow: those across which connections carry less than the roots on
    their source side have to send.

    A cut is an array that says for each rank whether it is on the source side.

    - `supply`: by rank, how much it sends as a root; 0 if it is none.
    - `rates`: by connection, how much it carries, in the unit of `supply`. Both are integers.
    """
    roots = np.flatnonzero(supply)
    n = links.ranks
    hops = [(links.src, links.dst, rates), (np.full(len(roots), n), roots, supply[roots])]
    flows = [flow(hops, n, sink) for sink in range(n)]
    return [side[:n] for value, side in flows if value < supply.sum()]


def _highest_rates(links: TreeLinks, supply: Ints, cuts: Sequence[Sides]) -> Floats:
    """The rates of connections that maximize the rate of a root if only the given cuts limit it.

    Rates are relative to the fastest link; the last entry of the result is the rate of a root. The
    solution is a corner of the linear program, so few connections are used.
    """
    from scipy import optimize, sparse

    connections = len(links.src)
    src = np.array(links.src)
    dst = np.array(links.dst)
    draws = [
        (link, connection, part)
        for connection, over in enumerate(links.over)
        for link, part in over
    ]
    link, connection, part = (np.array(column) for column in zip(*draws, strict=True))
    rate = np.array(links.rate) / _fastest(links)
    use = sparse.csr_array((part, (link, connection)), shape=(len(rate), connections))
    over = np.array([np.where(cut[src] & ~cut[dst], -1.0, 0.0) for cut in cuts])
    wanted = np.array([[float(supply[cut].sum())] for cut in cuts])
    blocks: Any = [[use, None], [over, wanted]]
    table: Any = sparse.bmat(blocks, format="csr")
    most = np.concatenate([rate, np.zeros(len(cuts))])
    gain = np.r_[np.zeros(connections), -1.0]
    corner = optimize.linprog(gain, A_ub=table, b_ub=most).x
    if corner is None or not corner[-1] > 0:
        raise CollectiveError("algorithm", "some ranks are not connected by links")
    return corner


def _fastest(links: TreeLinks) -> float:
    """The rate of the fastest link of any connection, in bytes per second."""
    return max(links.rate[link] for over in links.over for link, _ in over)


def _rate_choices(links: TreeLinks, supply: Ints) -> tuple[float, list[Floats]]:
    """(highest rate of a root, rates of connections with which roots reach it). The second entry
    has one or two choices, each an array by connection.

    The first choice divides every link equally among its connections; it is left out if roots do
    not reach the highest rate with it. The last choice uses few connections. Rates are relative to
    the fastest link.
    """
    users = np.zeros(len(links.rate))
    rate = np.array(links.rate)
    for link, part in (one for over in links.over for one in over):
        users[link] += part
    used = [[link for link, _ in over] for over in links.over]
    equal = np.array([min(rate[over] / users[over]) for over in used]) / _fastest(links)
    cuts = [~one for one in np.eye(links.ranks, dtype=bool) if supply[~one].any()]
    while True:
        corner = _highest_rates(links, supply, cuts)
        unit = corner[-1] * supply.sum() / UNITS * (1 - 1e-5)
        fitting = list[Floats]()
        for rates in (equal, corner[:-1]):
            capacity = np.minimum(rates / unit, UNITS).astype(np.int64)
            new = _narrow_cuts(links, supply * (UNITS // supply.sum()), capacity)
            fitting += [] if new else [rates]
        if not new:
            return float(corner[-1]), fitting
        cuts += new


def _packed_groups(links: TreeLinks, supply: Ints) -> list[Group]:
    """Trees that fill the links, as groups of equal trees.

    A group is (ranks in the order in which its trees reach them, number of trees, connections in
    the same order). `supply` is 1 for ranks that are roots, else 0.

    The number of trees of each root is the least one with which the trees lose least of the rate
    (`LOSSES`, `MULTIPLES`). In a mesh the trees are known: a star from each root; with a single
    root, a tree for every other rank, in which this rank is the only child of the root and the
    parent of all others. More than `MOST_PACKED` ranks raise a CollectiveError, unless trees of two
    levels are good enough.
    """
    n = links.ranks
    roots = np.flatnonzero(supply).tolist()
    if links == mesh(n):  # connections are sorted by source and destination
        stars = np.arange(n * (n - 1)).reshape(n, n - 1).tolist()
        if len(roots) == n:
            return [([root], 1, star) for root, star in enumerate(stars)]
        top = stars[roots[0]]
        below = [
            [
                connection
                for connection in stars[links.dst[first]]
                if links.dst[connection] != roots[0]
            ]
            for first in top
        ]
        return [(roots, 1, [first, *rest]) for first, rest in zip(top, below, strict=True)]
    if n > EXACT and (host_trees := _two_level_trees(links, supply)):
        return host_trees
    if n > MOST_PACKED:
        message = f"forest packs trees for up to {MOST_PACKED} ranks, not {n}; synth takes more"
        raise CollectiveError("algorithm", message)
    best, choices = _rate_choices(links, supply)
    counts = sorted({*MULTIPLES, links.ranks - 1})
    for loss, trees, rates in product(LOSSES, counts, choices):
        capacity = np.minimum(rates / best * trees / (1 - loss), trees * supply.sum())
        free = capacity.astype(np.int64)
        if not _narrow_cuts(links, supply * trees, free):
            break
    todo: list[Group] = [([root], trees, []) for root in roots]
    done: list[Group] = []
    while todo:
        reached, width, connections = todo.pop()
        while len(reached) < links.ranks:
            connection, most = _next_connection(links, free, (reached, width, connections), todo)
            if most < width:
                todo.append(([*reached], width - most, [*connections]))
            width = most
            free[connection] = free[connection] - most
            reached.append(links.dst[connection])
            connections.append(connection)
        done.append((reached, width, connections))
    return done


def _two_level_trees(links: TreeLinks, supply: Ints) -> list[Group]:
    """Trees of two levels: from each root to some ranks of every other host, and from these to the
    other ranks of their host.

    The result is the best mixture of trees that reach one, two and all ranks of a host directly, as
    groups like those of `_packed_groups`. A host is a set of ranks that the fastest connections
    join. The result is empty if the hosts are not a partition of the ranks, or if the cuts around
    ranks and hosts allow a higher rate than these trees reach.
    """
    from scipy.optimize import linprog

    roots = np.flatnonzero(supply).tolist()
    seconds = np.array([links.seconds(connection) for connection in range(len(links.src))])
    slowest = np.lexsort((np.array(links.latency), seconds))[::-1].tolist()
    between = {(links.src[k], links.dst[k]): k for k in slowest}  # the fastest of parallel ones
    fast = [ends for ends, k in between.items() if seconds[k] <= seconds.min() * (1 + 1e-9)]
    hosts = {tuple(sorted({r, *(b for a, b in fast if a == r)})) for r in range(links.ranks)}
    if len(between) < links.ranks * (links.ranks - 1) or sum(map(len, hosts)) > links.ranks:
        return []

    def star(root: int, several: int) -> list[int]:
        """The connections of a tree from `root`: to all ranks of its host and to `several` ranks of
        every other host, and from these in turn to the other ranks of their host.
        """
        (members,) = (host for host in hosts if root in host)
        connections = [between[root, rank] for rank in members if rank != root]
        here = members.index(root)
        for host in sorted(hosts - {members}):
            near = [between[root, host[(here + k) % len(host)]] for k in range(len(host))]
            first = sorted(near, key=lambda k: float(seconds[k]))
            heads = [links.dst[k] for k in first[:several]]
            rest = [links.dst[k] for k in first[several:]]
            connections += first[:several]
            connections += [between[heads[k % several], rank] for k, rank in enumerate(rest)]
        return connections

    kinds = [[([root], 1, star(root, n)) for root in roots] for n in (1, 2, max(map(len, hosts)))]
    lasts = np.array([_seconds_per_byte(links, kind) for kind in kinds]).T
    table = np.c_[lasts / lasts.max(), -np.ones(len(lasts))]
    solution = linprog([0, 0, 0, 1], table, np.zeros(len(lasts)), [[1, 1, 1, 0]], [1])
    assert solution.x is not None  # a mixture of one kind alone meets all conditions
    mixed = solution.x[:3]
    widths = np.round(np.where(mixed < FEW, 0, mixed) * STARS).astype(int).tolist()
    trees = [
        (r, w, connections)
        for w, kind in zip(widths, kinds, strict=True)
        if w
        for r, _, connections in kind
    ]
    around = [np.isin(np.arange(links.ranks), one) for one in (*hosts, *np.arange(links.ranks))]
    cuts = [~one for one in around if supply[~one].any()]
    rate = _highest_rates(links, supply, cuts)[-1] * _fastest(links)
    return (
        trees
        if _seconds_per_byte(links, trees).max() * rate <= sum(widths) * (1 + LOSSES[3])
        else []
    )


def _seconds_per_byte(links: TreeLinks, groups: Sequence[Group]) -> Floats:
    """By number of the link, the seconds that the link needs if each tree of all groups carries one
    byte.
    """
    load = np.zeros(len(links.rate))
    for _, width, connections in groups:
        for link, part in (one for connection in connections for one in links.over[connection]):
            load[link] += width * part
    return load / links.rate


def _next_connection(
    links: TreeLinks, free: Ints, group: Group, others: list[Group]
) -> tuple[int, int]:
    """The number of the next connection of a group of equal trees, and how many of these trees may
    use it.

    The connection leads from a rank that the trees have reached to one that they have not. Ranks
    that were reached earlier are tried first. The number of trees leaves enough of `free` to
    complete all other groups.

    - `free`: by connection, how many more trees it can carry.
    - `group`: the group that grows, as in `_packed_groups`.
    - `others`: the other groups that are not complete.
    """
    src = np.array(links.src)
    dst = np.array(links.dst)
    inside = np.isin(np.arange(links.ranks), group[0])
    for rank in group[0]:
        for connection in np.flatnonzero((src == rank) & ~inside[dst] & (free > 0)).tolist():
            hops: list[tuple[Any, Any, Any]] = [(src, dst, free)]
            for number, (reached, width, _) in enumerate(others, links.ranks):
                lone = len(reached) == 1
                widths = np.full(len(reached), width)
                hops.append((rank, reached[0] if lone else number, width))
                hops += [] if lone else [(np.full(len(reached), number), reached, widths)]
            room = flow(hops, rank, links.dst[connection])[0] - sum(width for _, width, _ in others)
            if room > 0:
                return connection, min(group[1], room, int(free[connection]))
    raise AssertionError("trees that fit have room to grow")


@lru_cache(maxsize=64)
def _packed_forest(links: TreeLinks, supply: tuple[int, ...]) -> Forest:
    """The packed trees of some connections as a Forest; `supply` is 1 for ranks that are roots,
    else 0.
    """
    groups = sorted(_packed_groups(links, np.array(supply)))
    connections = [
        (tree, connection) for tree, group in enumerate(groups) for connection in group[2]
    ]
    hops = [
        (tree, links.src[connection], links.dst[connection], links.channel[connection], -1)
        for tree, connection in connections
    ]
    roots = tuple(group[0][0] for group in groups)
    weights = tuple(group[1] for group in groups)
    return Forest(roots, weights, tuple(hops))


# **** Searched hops **** As in TACOS (arXiv 2304.05301): time advances from event to event, and
# each free connection takes a part of the data that its source has and its destination lacks; of
# several, the part that the fewest ranks have. A schedule that copies a block to all ranks becomes
# one that sums it if it runs backwards.

TRIES = 4
MOST_PARTS = 8
MOST_SEARCHED = 1 << 13


def _search_hops(
    links: TreeLinks, parts: int, nbytes: float, random: "np.random.Generator"
) -> tuple[float, list[Hop]]:
    """One greedy search: the seconds until all ranks have all data, and the hops ordered by start
    time.

    Args:
        parts: parts of each rank's block; each part has a tree of its own.
        nbytes: bytes of a part.
        random: breaks ties between connections and between parts.
    """
    src = np.array(links.src)
    dst = np.array(links.dst)
    hops = list[Hop]()
    seconds = np.array([nbytes * links.seconds(connection) for connection in range(len(src))])
    users: dict[int, list[int]] = {}
    for connection, over in enumerate(links.over):
        for link, _ in over:
            users.setdefault(link, []).append(connection)
    held = np.tile(np.eye(links.ranks, dtype=bool), parts)
    free = np.zeros(len(src))
    claimed = held.copy()
    events = [(0.0, 0, 0)]
    now = 0.0
    while events:
        now = events[0][0]
        while events and events[0][0] <= now * (1 + 1e-12):
            _, rank, tree = heappop(events)
            held[rank, tree] = True
        able = random.permutation(np.flatnonzero(free <= now))
        for connection in able[np.argsort(seconds[able], kind="stable")].tolist():
            wanted = np.flatnonzero(held[src[connection]] & ~claimed[dst[connection]])
            if free[connection] > now or not len(wanted):
                continue
            have = claimed[:, wanted].sum(axis=0) + random.random(len(wanted))
            tree = int(wanted[have.argmin()])
            end = now + float(seconds[connection])
            claimed[dst[connection], tree] = True
            for link, _ in links.over[connection]:
                free[users[link]] = np.maximum(free[users[link]], end)
            heappush(events, (end, 0, 0))
            heappush(events, (end + links.latency[connection], int(dst[connection]), tree))
            queue = links.over[connection][0][0]
            hops.append(
                (
                    tree,
                    links.src[connection],
                    links.dst[connection],
                    links.channel[connection],
                    queue,
                )
            )
    if not claimed.all():
        raise CollectiveError("algorithm", "some ranks are not connected by links")
    return now, hops
