"""Parts of sends as columns: what blocks move, which parts are alike, and the turn of each.

Batches that share no channel can be written down together; a wave is as many of them as follow
nothing but earlier waves.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.nccl.p2p import P2pWork
from netsim.nccl.p2p_rounds import BATCH, distinct_rows
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.rounds import Columns, Transfers
from netsim.schedule import Fold
from netsim.values import dataclass

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Like:
    """What parts have in common that are written down together; `alone`: copies on one GPU."""

    protocol: str
    chunk: int
    count: int
    multiplicity: int
    alone: bool


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of sends: where each lies (elements), the channel that moves it, what it is like (a
    place in `likes`) and its wave; and by the receivers' blocks: for every part that one receives,
    the part that stands for it, and the rank.
    """

    src: Ints
    dst: Ints
    offset: Ints
    target: Ints
    channel: Ints
    like: Ints
    likes: tuple[Like, ...]
    wave: Ints
    received: Ints
    receiver: Ints

    @property
    def channels(self) -> int:
        """How many channels there are at most."""
        return int(self.channel.max(initial=0)) + 1

    def waves(self) -> list[tuple[Ints, Ints]]:
        """The parts of every wave, and which of those received belong to it."""
        count = int(self.wave.max(initial=-1)) + 1
        sent, taken = _grouped(self.wave, count), _grouped(self.wave[self.received], count)
        return list(zip(sent, taken, strict=True))


def written_parts(plan: Plan, element_bytes: int) -> Parts:
    """The parts that have to be written down: all, or those of ranks that stand for others."""
    transfers, fold = plan.transfers, plan.stands
    assert transfers is not None
    if fold is None:
        sends = transfers.columns
        stand_in, receiver = np.arange(len(sends.src)), sends.dst
    else:
        sends = transfers.of(fold.leaders.astype(np.int64))
        stand_in, receiver = _received(transfers, sends, fold)
    pieces = _Pieces.of(sends, element_bytes, fold=plan.fold)
    send, place = _spread(pieces.size[pieces.turn])
    row = pieces.first[pieces.turn[send]] + place
    start, _, channel, _ = pieces.table[row].T
    first = np.searchsorted(send, np.arange(len(sends.src)))
    others = np.flatnonzero(sends.src[stand_in] != sends.dst[stand_in])
    which, place = _spread(pieces.size[pieces.turn[stand_in[others]]])
    likes, like = _likes(sends, pieces, send, row)
    return Parts(
        sends.src[send],
        sends.dst[send],
        sends.offset[send] + start,
        sends.target[send] + start,
        channel,
        like,
        likes,
        pieces.wave[pieces.turn[send]],
        first[stand_in[others]][which] + place,
        receiver[others][which],
    )


def _received(transfers: Transfers, sends: Columns, fold: Fold) -> tuple[Ints, Ints]:
    """For every send that a rank which stands for others receives: the one of a rank that stands
    for its sender in the same round, and the receiver.
    """
    src, dst, number = transfers.into(fold.leaders.astype(np.int64))
    leader = np.full(transfers.rounds.n_ranks, -1)
    leader[fold.leaders] = np.arange(len(fold.leaders))
    rounds = transfers.rounds.n_ranks
    known = np.full(len(fold.leaders) * rounds, -1)
    known[leader[sends.src] * rounds + sends.number] = np.arange(len(sends.src))
    return known[leader[fold.ranks.first[src]] * rounds + number], dst


@dataclass(frozen=True, eq=False)
class _Pieces:
    """The pieces of every kind of work in a batch (a turn): rows of `table` from `first` on, `size`
    of them, with start, count, channel and multiplicity; and the turn of each send.
    """

    table: Ints
    first: Ints
    size: Ints
    works: list[P2pWork]
    wave: Ints
    turn: Ints

    @classmethod
    def of(cls, sends: Columns, element_bytes: int, *, fold: bool) -> "_Pieces":
        """The pieces of all turns of some sends."""
        turns, turn = distinct_rows([sends.number // BATCH, sends.work])
        works = [sends.works[work] for _, work in turns]
        batches: dict[int, list[int]] = {}
        for place, (batch, _) in enumerate(turns):
            batches.setdefault(batch, []).append(place)
        pieces: list[list[tuple[int, ...]]] = [[] for _ in turns]
        wave, after = np.zeros(len(turns), np.int64), dict[int, int]()
        for batch in sorted(batches):
            mine = batches[batch]
            sets = {frozenset(works[place].channels) for place in mine}
            used = frozenset[int]().union(*sets)
            wave[mine] = now = max(after.get(channel, 0) for channel in used)
            after.update(dict.fromkeys(used, now + 1))
            apart = sum(map(len, sets)) == len(used)
            for place in mine:
                pieces[place] = _cut(works[place], element_bytes, fold=fold and apart)
        size = np.array([len(cut) for cut in pieces], np.int64)
        table = np.array([row for cut in pieces for row in cut], np.int64).reshape(-1, 4)
        return cls(table, np.cumsum(size) - size, size, works, wave, turn)


def _cut(work: P2pWork, element_bytes: int, *, fold: bool) -> list[tuple[int, ...]]:
    """Start and count (elements), channel and multiplicity of every part that is not empty. Equal
    ones, which meet equal parts on all their channels, are one.
    """
    counts = [nbytes // element_bytes for nbytes in work.parts]
    if fold and len(set(work.parts)) == 1 < len(counts):
        return [(0, counts[0], min(work.channels), len(counts))]
    starts = np.cumsum([0, *counts]).tolist()
    columns = zip(starts, counts, work.channels, strict=False)
    return [(start, count, channel, 1) for start, count, channel in columns if count]


def _likes(sends: Columns, pieces: _Pieces, send: Ints, row: Ints) -> tuple[tuple[Like, ...], Ints]:
    works = pieces.works
    alone = (sends.src == sends.dst).astype(np.int64)
    keys = list(dict.fromkeys((work.protocol, work.chunk) for work in works))
    kind = np.array([keys.index((work.protocol, work.chunk)) for work in works], np.int64)
    _, count, _, times = pieces.table[row].T
    table, like = distinct_rows([kind[pieces.turn[send]], count, times, alone[send]])
    likes = [Like(*keys[kind], count, times, bool(own)) for kind, count, times, own in table]
    return tuple(likes), like


def _spread(size: Ints) -> tuple[Ints, Ints]:
    """Each number as often as its size says, and how often it came before."""
    number = np.repeat(np.arange(len(size)), size)
    return number, np.arange(len(number)) - np.repeat(np.cumsum(size) - size, size)


def _grouped(number: Ints, count: int) -> list[Ints]:
    """The places of each number below `count`."""
    order = np.argsort(number, kind="stable")
    return np.split(order, np.searchsorted(number[order], np.arange(1, count)))[:count]
