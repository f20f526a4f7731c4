"""Sends of a collective one by one, in the plainest code: what Transfers are held to."""

from dataclasses import dataclass
from math import ceil, gcd

from netsim.nccl.p2p import BATCH, Sends, alternating_order, quadratic_order, rounds_of


@dataclass(frozen=True)
class Transfer:
    """One send and its receive: `parts` (bytes) go over `channels` in chunks; `batch` is the turn.
    `offset` and `target` say where the data lies in the source's input and the target's output, in
    elements."""

    src: int
    dst: int
    offset: int
    target: int
    parts: tuple[int, ...]
    channels: tuple[int, ...]
    chunk: int
    protocol: str
    batch: int


def one_by_one(sends):
    """The sends of columns."""
    ends = (column.tolist() for column in (sends.src, sends.dst, sends.offset, sends.target))
    turns = ([sends.works[work] for work in sends.work], (sends.number // BATCH).tolist())
    return [
        Transfer(*pair, work.parts, work.channels, work.chunk, work.protocol, batch)
        for *pair, work, batch in zip(*ends, *turns, strict=True)
    ]


def plain_transfers(c, nodes, channels, chunk, facts, settings):
    """All sends, by source (pairs: as they are given)."""
    home = {rank: number for number, ranks in enumerate(nodes) for rank in ranks}
    peers = {rank: plain_peers(nodes, rank, facts, settings) for rank in range(c.ranks)}
    found, rounds = [], rounds_of(nodes, facts, settings)
    for src, dst, offset, target, count in plain_messages(c):
        if not count or (c.in_place and src == dst):
            continue
        number = peers[src].index(dst)
        base = plain_channel(number, channels.total, nodes, settings)
        nbytes, apart = count * c.element_bytes, home[src] != home[dst]
        work = Sends(channels, chunk).work(nbytes, base, rounds, over_network=apart)
        made = (work.parts, work.channels, work.chunk, work.protocol, number // BATCH)
        found.append(Transfer(src, dst, offset, target, *made))
    return found


def plain_group_size(nodes, settings):
    return len(nodes[0]) if len(nodes) == 1 else gcd(settings.p2p_group, *map(len, nodes))


def plain_peers(nodes, rank, facts, settings):
    """Whom a rank sends to, round after round."""
    if facts.p2p_rounds == "grouped":
        size = plain_group_size(nodes, settings)
        groups = [node[k : k + size] for node in nodes for k in range(0, len(node), size)]
    elif len(set(map(len, nodes))) == 1:
        groups = list(nodes)
    else:
        groups = [[rank for node in nodes for rank in node]]
    size, count = len(groups[0]), len(groups)
    far = alternating_order(count) if facts.p2p_rounds == "alternating" else quadratic_order(count)
    near = quadratic_order(size) if facts.p2p_rounds == "quadratic" else range(size)
    own = next(number for number, group in enumerate(groups) if rank in group)
    place = list(groups[own]).index(rank)
    return [groups[(own + g) % count][(place + k) % size] for g in far for k in near]


def plain_channel(number, total, nodes, settings):
    if len(nodes) > 1:
        size = plain_group_size(nodes, settings)
        number = number // size * ceil(size / BATCH) + number % size // BATCH
    bits = total.bit_length() - 1
    return int(format(number % total, f"0{bits}b")[::-1], 2) if bits else 0


def plain_messages(c):
    """Source, destination, place in input and output, elements."""
    ranks, n = range(c.ranks), c.count
    if c.name in ("alltoall", "alltoallv"):
        table = c.matrix or [[n] * c.ranks] * c.ranks
        return [
            (s, d, sum(table[s][:d]), sum(row[d] for row in table[:s]), table[s][d])
            for s in ranks
            for d in ranks
        ]
    if c.name == "gather":
        return [(s, c.root, 0, s * n, n) for s in ranks]
    if c.name == "scatter":
        return [(c.root, d, d * n, 0, n) for d in ranks]
    if c.name == "sendrecv":
        return [(s, (s + 1) % c.ranks, 0, 0, n) for s in ranks]
    return [
        (
            s,
            d,
            n * [p[0] for p in c.pairs[:k]].count(s),
            n * [p[1] for p in c.pairs[:k]].count(d),
            n,
        )
        for k, (s, d) in enumerate(c.pairs)
    ]
