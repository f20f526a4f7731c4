"""Rounds: which sends a collective becomes, in which batch, on which channels, in which parts.

It follows NCCL's order of rounds; collectives are alltoall, gather, scatter and the like.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from netsim.collectives.collective import Collective
from netsim.nccl.facts import Facts
from netsim.nccl.names import Protocol
from netsim.nccl.p2p import (
    BATCH,
    P2pChannels,
    P2pWork,
    base_channel,
    group_size,
    p2p_work,
    schedule,
)
from netsim.nccl.schedules.plan import Transfer
from netsim.nccl.settings import NO_SETTINGS, Settings


@dataclass(frozen=True, slots=True)
class Message:
    """What one rank has for another: elements of its input, and where they go in the output."""

    src: int
    dst: int
    offset: int
    target: int
    count: int


def transfers_of(
    collective: Collective,
    nodes: Sequence[Sequence[int]],
    channels: P2pChannels,
    chunk: int,
    facts: Facts,
    settings: Settings = NO_SETTINGS,
) -> tuple[Transfer, ...]:
    """All sends of a collective as NCCL plans them, over the ranks of `nodes`."""
    size, total = group_size(nodes, settings), channels.total
    home = {rank: number for number, ranks in enumerate(nodes) for rank in ranks}
    rounds: dict[int, dict[int, int]] = {}
    found = []
    for one in messages_of(collective):
        if one.src not in rounds:
            order = schedule(nodes, one.src, facts, settings)
            rounds[one.src] = {step.send_to: step.number for step in order}
        number = rounds[one.src][one.dst]
        work = p2p_work(
            one.count * collective.element_bytes,
            base_channel(number, total, len(nodes), size),
            channels,
            chunk,
            n_nodes=len(nodes),
            over_network=home[one.src] != home[one.dst],
            settings=settings,
        )
        found.append(_transfer(one, work, number // BATCH))
    return tuple(found)


def _transfer(one: Message, work: P2pWork, batch: int) -> Transfer:
    protocol: Protocol = "LL" if work.protocol == "LL" else "Simple"
    ends = (one.src, one.dst, one.offset, one.target)
    return Transfer(*ends, work.parts, work.channels, work.chunk, protocol, batch)


def messages_of(collective: Collective) -> Iterator[Message]:
    """Every send of a collective that is not empty; in place, own data stays where it is."""
    for one in _messages(collective):
        if one.count and not (collective.in_place and one.src == one.dst):
            yield one


def _messages(c: Collective) -> Iterator[Message]:
    ranks, count = range(c.ranks), c.count
    if c.name in ("alltoall", "alltoallv"):
        blocks = c.blocks()
        for src, dst in np.ndindex(c.ranks, c.ranks):
            table = (blocks.in_offset, blocks.out_offset, blocks.count)
            yield Message(src, dst, *(int(column[src, dst]) for column in table))
    elif c.name == "gather":
        yield from (Message(src, c.root, 0, src * count, count) for src in ranks)
    elif c.name == "scatter":
        yield from (Message(c.root, dst, dst * count, 0, count) for dst in ranks)
    elif c.name == "sendrecv":
        yield from (Message(src, (src + 1) % c.ranks, 0, 0, count) for src in ranks)
    elif c.name == "p2p":
        source, target = c.pair_offsets()
        for number, (src, dst) in enumerate(c.pairs):
            yield Message(src, dst, int(source[number]), int(target[number]), count)
    else:
        raise ValueError(f"collective: {c.name} does not run as sends and receives")
