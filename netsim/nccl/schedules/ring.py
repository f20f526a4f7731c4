"""Rings of NCCL: the passes of each step, and the rows of all loops.

In every step each rank passes on what it has just received; the step after the last one takes data
out of the FIFO. Broadcast and Reduce run along chains, which are trees without branches
(`tree.py`).

NCCL: runRing in src/device/all_reduce.h, all_gather.h and reduce_scatter.h.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.facts import function_of
from netsim.nccl.schedules import writing
from netsim.nccl.schedules.channels import WrittenChannel, written_channels
from netsim.nccl.schedules.plan import Ints, Plan, Work, number_of
from netsim.nccl.schedules.primitives import Pass, PlannedChannel, RowKind
from netsim.nccl.schedules.writing import (
    LoopBody,
    Output,
    Segments,
    WrittenLoop,
    cached_loop,
    chunk_table,
)
from netsim.nccl.split import ALIGNMENT, steps_of
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.schedule import COPY, IN, IN_ORDER, OUT, REDUCE_INPUT, SCRATCH, Schedule


@dataclass(frozen=True)
class Walk:
    """The passes of one loop of a collective around a ring.

    - `passes`: the pass of each step.
    - `start`: in step j the rank at place p of the ring sends block p + `start` - j (modulo ranks).
    - `last`: the pass that takes data out of the FIFO in the end; None if the data is in its place
      then and a block only waits.
    """

    passes: tuple[Pass, ...]
    start: int
    last: Pass | None

    @property
    def steps(self) -> int:
        """The number of steps of a loop in which ranks send."""
        return len(self.passes)

    def cut(self, hops: int, ranks: int) -> "Walk":
        """Return the walk in which chunks go at most `hops` hops far.

        A chunk goes round the ring once in `ranks` - 1 steps (twice in an AllReduce); the first
        `hops` steps of each round are kept.
        """
        rounds = [self.passes[k : k + ranks - 1] for k in range(0, self.steps, ranks - 1)]
        return replace(
            self, passes=tuple(block_pass for way in rounds for block_pass in way[:hops])
        )


def _all_reduce(n: int, direct: bool) -> Walk:
    """Return the passes of a loop of AllReduce on a ring of `n` ranks.

    `direct`: whether ranks write directly into the output of the next rank.
    """
    buffers = [IN, *[SCRATCH] * (n - 2), *[OUT] * (n - 1), OUT if direct else SCRATCH]
    passes = []
    for step in range(2 * (n - 1)):
        owner = step == n - 1  # each rank completes the sum of one block, stores and sends it
        if step == 0:
            reads = 1
            writes = 0
        elif step < n:
            reads = 2
            writes = int(owner)
        else:
            reads = 1
            writes = 1
        op = REDUCE_INPUT if step < n - 1 else COPY
        passes.append(Pass(buffers[step], buffers[step + 1], op, reads, writes))
    return Walk(tuple(passes), -1, None if direct else Pass(SCRATCH, OUT, writes=1))


def _all_gather(n: int, direct: bool) -> Walk:
    """Return the passes of a loop of AllGather on a ring of `n` ranks.

    `direct`: whether ranks write directly into the output of the next rank.
    """
    buffers = [IN, *[OUT] * (n - 2), OUT if direct else SCRATCH]
    passes = [
        Pass(buffers[step], buffers[step + 1], COPY, 1, int(step > 0)) for step in range(n - 1)
    ]
    return Walk(tuple(passes), 0, None if direct else Pass(SCRATCH, OUT, writes=1))


def _reduce_scatter(n: int, direct: bool) -> Walk:
    """Return the passes of a loop of ReduceScatter on a ring of `n` ranks; `direct` changes
    nothing.
    """
    del direct  # the sum of FIFO and input is always a pass
    passes = [
        Pass(SCRATCH if step else IN, SCRATCH, REDUCE_INPUT, 2 if step else 1)
        for step in range(n - 1)
    ]
    return Walk(tuple(passes), -1, Pass(SCRATCH, OUT, reads=2, writes=1))


WALKS = {"all_reduce": _all_reduce, "all_gather": _all_gather, "reduce_scatter": _reduce_scatter}


@dataclass(frozen=True)
class RowNumbers:
    """The numbers of the rows of one loop: from step, sub and place in the ring to the row.

    - `n_places`: the number of places of the ring whose rows are written.
    - `subs`: the number of subs of a chunk.
    - `steps`: the number of steps in which ranks send.
    - `net`: the places whose proxies send over the network, ascending.
    - `simple`: whether the protocol is Simple.

    The rows of step 0 come first, then those of step 1, and so on; after them come the last passes.
    In a step of Simple, each sub has the rows of all blocks and then those of all proxies. In a
    step of LL or LL128 the rows of all blocks for all subs come first, then those of all proxies.
    """

    n_places: int
    subs: int
    steps: int
    net: Ints
    simple: bool

    @property
    def width(self) -> int:
        """The number of rows of one step."""
        return self.subs * (self.n_places + len(self.net))

    def columns(self) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Return sub, place, and whether the row is a proxy's, for the rows of one step in
        order.
        """
        turns = self.subs if self.simple else 1
        blocks = np.arange(self.subs * self.n_places).reshape(turns, -1)
        proxies = -1 - np.arange(self.subs * len(self.net)).reshape(turns, -1)
        code = np.hstack([blocks, proxies]).ravel()
        proxy = code < 0
        m = max(1, len(self.net))
        number = np.where(proxy, -1 - code, code)
        net = self.net if len(self.net) else np.arange(1)
        place = np.where(proxy, net[number % m], number % self.n_places)
        return np.where(proxy, number // m, number // self.n_places), place, proxy

    def block(self, step: Ints, sub: Ints, place: Ints) -> Ints:
        """Return the numbers of rows of blocks: of the pass of a step, sub and place of the ring.

        For step `steps` it is the last pass. The arguments are broadcast against each other.
        """
        earlier_proxies = sub * len(self.net) if self.simple else 0
        sends = step * self.width + sub * self.n_places + earlier_proxies + place
        last = self.steps * self.width + sub * self.n_places + place
        return np.where(step < self.steps, sends, last)

    def sent(self, step: Ints, sub: Ints, place: Ints) -> Ints:
        """Return the numbers of rows that move data to the next rank in a step.

        They are those of the proxy, or without a proxy those of the block. The arguments are
        broadcast against each other.
        """
        proxy = np.searchsorted(self.net, place)
        behind = (sub + 1 if self.simple else self.subs) * self.n_places + sub * len(self.net)
        message = step * self.width + behind + proxy
        return np.where(np.isin(place, self.net), message, self.block(step, sub, place))


def ring(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllReduce, AllGather or ReduceScatter over the rings of all channels."""
    output = Output(collective, extent=extent)
    walk = WALKS[collective.name](collective.ranks, plan.direct)
    if collective.name == "all_gather" and plan.protocol == "Simple" and not collective.in_place:
        walk = replace(walk, passes=(replace(walk.passes[0], keeps=True), *walk.passes[1:]))
    if extent.distance:
        walk = walk.cut(extent.distance, collective.ranks)
    for written in written_channels(plan, ring_keys(plan), extent):
        work = written.work
        period = period_of(plan, written, extent)
        copies = written.copies * (collective.ranks // period)
        channel = PlannedChannel(plan, work.channel, written.multiplicity, copies=copies)
        cut = _cut(collective, plan, work, extent)
        channel = replace(channel, pieces=cut.subs)
        key = (
            *channel.key,
            walk.passes[0],
            walk.steps,
            cut.subs,
            cut.slots,
            cut.first_chunk,
            period,
        )
        write = partial(_write_loop, channel, collective, walk, cut, period)
        output.add(cached_loop(collective, plan, key, write), cut)
    return output.close()


def rows_of_rings(collective: Collective, plan: Plan, extent: Extent = ALL) -> int:
    """Return a lower bound of the number of rows of a ring, over the channels that are written.

    It counts the rows of blocks and none of proxies. `extent.distance` is ignored: chunks are
    counted as if they went all the way around the ring.
    """
    walk = WALKS[collective.name](collective.ranks, plan.direct)
    rows = 0
    for written in written_channels(plan, ring_keys(plan), extent):
        cut = _cut(collective, plan, written.work, extent)
        rows += len(cut.count) * (walk.steps + 1) * cut.subs * period_of(plan, written, extent)
    return rows


def _cut(c: Collective, plan: Plan, work: Work, extent: Extent) -> Segments:
    """Return the segments of all loops of one channel (`work`)."""
    steps = steps_of(function_of(c.name), "Ring", plan.protocol)
    offset, count = chunk_table(work, c.element_bytes, c.ranks if c.name == "all_reduce" else 1)
    if extent.distance and c.name == "all_reduce":
        count = repeat_short_chunks(count, extent.distance + 1)
    return writing.segments(plan, c.element_bytes, (offset, count), steps=steps)


def with_equal_chunks(collective: Collective, plan: Plan) -> tuple[Plan, float]:
    """Return a ring's plan with chunks of one size, and the largest relative error of its time.

    Before NCCL 2.22 the last chunks of a ring may be empty. A simulation of a few hops would meet
    another fraction of empty chunks than the full ring does, so it uses equal chunks. The error is
    the larger of two fractions:

    - how much less data the ring has than the equal chunks;
    - how much more data than the equal chunks it would have if all chunks of a loop were as large
      as the loop's first. This is cut to 1: if most chunks are empty, a chunk has at most one line
      of every thread and takes no longer than the latency of a hop.
    """
    if not any(work.last for work in plan.work):
        return plan, 0.0
    element = collective.element_bytes
    ranks = collective.ranks
    lines = ranks * max(1, ALIGNMENT // element)
    most = max(work.count for work in plan.work)

    def even(work: Work) -> Work:
        """Return a channel's part of a size that all its chunks can share equally."""
        count = most if most - work.count <= work.last // element else work.count
        return replace(work, count=-(-count // lines) * lines, last=0)

    works = tuple(map(even, plan.work))
    actual_count = sum(work.count for work in plan.work)
    even_count = sum(work.count for work in works)
    room = ranks * sum(int(chunk_table(work, element, ranks)[1][:, 0].sum()) for work in plan.work)
    error = max(1 - actual_count / even_count, min(1.0, room / even_count - 1))
    return replace(plan, work=works), error


def repeat_short_chunks(count: Ints, places: int) -> Ints:
    """Return the sizes of a ring's chunks [loop, chunk], with its short chunks repeated.

    The last chunks of a ring may be shorter than the others. Here short chunks are at the end of
    every `places` chunks, so that a chunk that travels `places` - 1 hops meets the same fraction of
    short chunks as on the full ring. (Each rank meets the first short chunk within `places` chunks.
    From then on ranks are out of step, and a resource that they share is free for one while another
    waits.) The last group may have fewer than `places` chunks. Example: of 8 chunks only chunk 7 is
    short; with `places` = 4, chunks 3 and 7 are short.
    """
    ranks = count.shape[1]
    tail = _count_short_chunks(count)
    counts = np.repeat(count[:, :1], ranks, axis=1)
    for end in (*range(places, ranks, places), ranks):
        few = min(tail, end)
        counts[:, end - few : end] = count[:, ranks - few :]
    return counts


def _count_short_chunks(count: Ints) -> int:
    """Return from which chunk on, counted from the end of a ring, chunks may be short.

    A chunk is short if it is shorter than the first chunk of its loop, in any loop. `count` has the
    elements of chunks as [loop, chunk]. Example: 2 if only the last two of 8 chunks are short.
    """
    uneven = np.flatnonzero((count != count[:, :1]).any(axis=0))
    return count.shape[1] - int(uneven[0]) if len(uneven) else 0


def shorter_chunks(collective: Collective, plan: Plan) -> int:
    """Return how many chunks at the end of a ring are short, on the channel that has most of them.

    It is 0 for collectives other than AllReduce.
    """
    if collective.name != "all_reduce":
        return 0
    element = collective.element_bytes
    ranks = collective.ranks
    sizes = {(work.count, work.chunk): work for work in plan.work if not work.last}.values()
    return max(
        (_count_short_chunks(chunk_table(work, element, ranks)[1]) for work in sizes), default=0
    )


def period_of(plan: Plan, written: WrittenChannel, extent: Extent) -> int:
    """Return after how many places along a channel's ring the classes of its blocks repeat.

    It is the length of the ring if they do not. Only the rows of these places are written.
    """
    order = np.array(plan.rings[written.work.channel])
    if extent.partition is None:
        return len(order)
    class_of_block = extent.partition.block[written.number * len(order) + order]
    period = len(different(class_of_block))
    repeats = np.array_equal(class_of_block, np.roll(class_of_block, period))
    return period if repeats else len(order)


def ring_keys(plan: Plan) -> dict[int, object]:
    """Return a key for each channel: channels with equal rings and equal routes have equal keys."""
    channels = {work.channel for work in plan.work}
    return {c: number_of(plan, c, partial(_order_and_routes, plan, c)) for c in channels}


def _order_and_routes(plan: Plan, channel: int) -> tuple[object, ...]:
    """Return the ranks of a channel's ring in order, and the names of the routes between them."""
    order = plan.rings[channel]
    hops = zip(order, (*order[1:], order[0]), strict=True)
    return order, tuple(plan.route_of(channel, a, b) for a, b in hops)


def _write_loop(
    channel: PlannedChannel, c: Collective, walk: Walk, cut: Segments, period: int
) -> WrittenLoop:
    """Return one loop of a channel, with the rows of the first `period` places of its ring."""
    order = np.array(channel.plan.rings[channel.number])
    hops = list(zip(order[:period].tolist(), np.roll(order, -1)[:period].tolist(), strict=True))
    net = np.flatnonzero([channel.is_net(a, b) for a, b in hops])
    numbers = RowNumbers(period, cut.subs, walk.steps, net, channel.simple)
    body = LoopBody()
    _add_sends(body, channel, c, walk, numbers, order)
    _add_last_passes(body, channel, c, walk, numbers, order)
    _add_order(body, channel, numbers)
    _add_waits(body, channel, numbers, hops, cut.slots)
    ends = numbers.block(np.array(walk.steps), np.array(numbers.subs - 1), np.arange(period))
    return WrittenLoop(body, (order[:period], ends))


def _add_sends(
    body: LoopBody,
    channel: PlannedChannel,
    c: Collective,
    walk: Walk,
    numbers: RowNumbers,
    order: Ints,
) -> None:
    """Append the rows of all steps in which ranks send, of blocks and proxies; `order` is the
    ring.
    """
    following = np.roll(order, -1)
    hops = list(
        zip(order[: numbers.n_places].tolist(), following[: numbers.n_places].tolist(), strict=True)
    )
    which, kinds = _kinds(body, channel, walk, hops)
    subs, places, proxies = numbers.columns()
    step, column = (x.ravel() for x in np.indices((walk.steps, numbers.width)))
    sub = subs[column]
    place = places[column]
    by_proxy = proxies[column]
    own_fifo = np.isin(place, numbers.net) & ~by_proxy
    chunk, base = _data(c, walk, order, step, place)
    turn = np.where(by_proxy, np.where(sub > 0, 4, 2 + (step > 0)), sub > 0)
    body.rows(
        kinds[which[step], place, turn],
        order[place],
        np.where(own_fifo, order[place], following[place]),
        chunk * numbers.subs + sub,
        step=step,
        base=base,
    )


def _add_last_passes(
    body: LoopBody,
    channel: PlannedChannel,
    c: Collective,
    walk: Walk,
    numbers: RowNumbers,
    order: Ints,
) -> None:
    """Append the rows by which blocks take data out of the FIFO, or wait for it, after all
    steps.
    """
    sub, place = (x.ravel() for x in np.indices((numbers.subs, numbers.n_places)))
    step = np.full(len(sub), walk.steps)
    chunk, base = _data(c, walk, order, step, place)
    if walk.last is None:
        kind = body.kind(channel.wait())
        segment = np.full(len(sub), -1)
    else:
        two = [body.kind(one) for one in channel.first_and_further(channel.local(walk.last))]
        kind = np.array(two)[(sub > 0).astype(int)]
        segment = chunk * numbers.subs + sub
    body.rows(kind, order[place], order[place], segment, step=step, base=base)


def _data(c: Collective, walk: Walk, order: Ints, step: Ints, place: Ints) -> tuple[Ints, Ints]:
    """Return which data the rows at some steps and places move, as two arrays.

    The first is the number of a row's chunk in the loop. The second is the number of elements
    before the row's block in the buffer of all blocks. In an AllReduce the chunks of a loop are the
    blocks, and the second array is 0. In AllGather and ReduceScatter a loop has one chunk of every
    block, and the first array is 0.
    """
    block = (place + walk.start - step) % len(order)
    nothing = np.zeros_like(block)
    return (block, nothing) if c.name == "all_reduce" else (nothing, order[block] * c.count)


def _kinds(
    body: LoopBody, channel: PlannedChannel, walk: Walk, hops: Sequence[tuple[int, int]]
) -> tuple[Ints, Ints]:
    """Return the number of each step's pass, and the kinds of rows as [pass, place, variant].

    The five variants are: first and further rows of a block in a step; the proxy's first row in a
    loop, its first row in a later step, and its further rows in a step.
    """
    kinds_of_hop: dict[tuple[object, ...], list[int]] = {}

    def numbers(block_pass: Pass, hop: tuple[int, int]) -> list[int]:
        """Return the numbers of the five kinds of row (see `_kinds`) of a pass over a hop."""
        key = (block_pass, channel.plan.route_of(channel.number, *hop), channel.is_net(*hop))
        if key not in kinds_of_hop:
            kinds_of_hop[key] = [
                body.kind(kind) for kind in _kinds_of_hop(channel, hop, block_pass)
            ]
        return kinds_of_hop[key]

    passes = {block_pass: number for number, block_pass in enumerate(dict.fromkeys(walk.passes))}
    which = np.array([passes[block_pass] for block_pass in walk.passes], np.int64)
    return which, np.array([[numbers(block_pass, hop) for hop in hops] for block_pass in passes])


def _kinds_of_hop(
    channel: PlannedChannel, hop: tuple[int, int], block_pass: Pass
) -> Iterator[RowKind]:
    """Yield the five kinds of row (see `_kinds`) of a pass over a hop (sender, receiver)."""
    block = channel.hop(*hop, block_pass, proxy=False)
    first, further = channel.first_and_further(block)
    yield from (first, further)
    if not channel.is_net(*hop):
        yield from (first,) * 3  # no row is one of a proxy's
        return
    message = channel.hop(*hop, block_pass, proxy=True)
    later = replace(message, follows=True)
    yield from (message, later, channel.further(later))


def _add_order(body: LoopBody, channel: PlannedChannel, numbers: RowNumbers) -> None:
    """Let each row of a block wait for the block's row before, and each row of a proxy likewise.

    A proxy's row also waits for the row of its block that has filled the slot.
    """
    subs, turns = numbers.subs, (numbers.steps + 1) * numbers.subs
    turn, place = np.indices((turns, numbers.n_places))
    before = (turn - 1) % turns
    here = numbers.block(turn // subs, turn % subs, place)
    earlier = numbers.block(before // subs, before % subs, place)
    first = turn % subs == 0
    for chosen, lag in ((first, channel.next_step), (~first, IN_ORDER)):
        body.after(here[chosen], earlier[chosen], lag, (turn == 0)[chosen])
    turns = numbers.steps * subs
    turn, which = np.indices((turns, len(numbers.net)))
    place = numbers.net[which]
    before = (turn - 1) % turns
    step, sub = np.divmod(turn, subs)
    here = numbers.sent(step, sub, place)
    earlier = numbers.sent(*np.divmod(before, subs), place)
    body.after(here, earlier, IN_ORDER, turn == 0)
    body.after(here, numbers.block(step, sub, place), channel.noticed)
    if not channel.simple and subs > 1:  # a message of LL begins when all of a chunk is there
        last = numbers.block(step, np.full_like(sub, subs - 1), place)
        body.after(here[sub == 0], last[sub == 0], channel.noticed)


def _add_waits(
    body: LoopBody,
    channel: PlannedChannel,
    numbers: RowNumbers,
    hops: Sequence[tuple[int, int]],
    slots: int,
) -> None:
    """Let rows wait for data from the previous rank, and for free slots (credits).

    - `hops`: (sender, receiver) of each place.
    - `slots`: the number of slots of a FIFO, counted in chunks.
    """
    syncs, credits = ([f(*hop) for hop in hops] for f in (channel.sync, channel.credit))
    step, sub = (x.ravel() for x in np.indices((numbers.steps, numbers.subs)))
    for lag in dict.fromkeys(syncs):
        place = np.flatnonzero([other == lag for other in syncs])[:, None]
        reader = numbers.block(step + 1, sub, (place + 1) % numbers.n_places)
        body.after(reader, numbers.sent(step, sub, place), lag)
    # With Simple each sub waits until its own slice of the slot is free. With LL and LL128 the
    # first sub of a chunk waits until the whole slot is free.
    used = sub if channel.simple else np.full_like(sub, numbers.subs - 1)
    chosen = slice(None) if channel.simple else sub == 0
    step = step[chosen]
    sub = sub[chosen]
    used = used[chosen]
    ago = -((step - slots) // numbers.steps)
    before = (step - slots) % numbers.steps
    for lag in dict.fromkeys(credits):
        place = np.flatnonzero([other == lag for other in credits])[:, None]
        reader = numbers.block(before + 1, used, (place + 1) % numbers.n_places)
        body.after(numbers.sent(step, sub, place), reader, lag, ago)
    place = numbers.net[:, None]
    sent = numbers.sent(before, used, place)
    body.after(numbers.block(step, sub, place), sent, channel.local_credit, ago)
