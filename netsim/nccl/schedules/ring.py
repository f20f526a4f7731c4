"""Rings of NCCL: what their functions do in each step, and the rows of all loops.

NCCL: runRing in src/device/all_reduce.h, all_gather.h and reduce_scatter.h."""

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
from netsim.nccl.schedules.writing import Output, Segments, Turn, Weave, chunk_table, remembered
from netsim.nccl.split import ALIGNMENT, steps_of
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.schedule import COPY, IN, IN_ORDER, OUT, REDUCE_INPUT, SCRATCH, Schedule


@dataclass(frozen=True)
class Walk:
    """What a function does with rings: each step's pass, how far the data it moves is behind. In
    step j the rank at place p sends the block of place p + `start` - j. `last` is the pass that
    takes the data out of the FIFO in the end, None where there is nothing to do but wait."""

    passes: tuple[Pass, ...]
    start: int
    last: Pass | None

    @property
    def steps(self) -> int:
        """Sends of a loop."""
        return len(self.passes)

    def cut(self, hops: int, ranks: int) -> "Walk":
        """The same for chunks that go only `hops` ranks far in each round of the ring."""
        rounds = [self.passes[k : k + ranks - 1] for k in range(0, self.steps, ranks - 1)]
        return replace(self, passes=tuple(made for way in rounds for made in way[:hops]))


def _all_reduce(n: int, direct: bool) -> Walk:
    buffers = [IN, *[SCRATCH] * (n - 2), *[OUT] * (n - 1), OUT if direct else SCRATCH]
    passes = []
    for step in range(2 * (n - 1)):
        owner = step == n - 1  # has the result, stores it and passes it on
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
    buffers = [IN, *[OUT] * (n - 2), OUT if direct else SCRATCH]
    passes = [
        Pass(buffers[step], buffers[step + 1], COPY, 1, int(step > 0)) for step in range(n - 1)
    ]
    return Walk(tuple(passes), 0, None if direct else Pass(SCRATCH, OUT, writes=1))


def _reduce_scatter(n: int, direct: bool) -> Walk:
    del direct  # the sum of FIFO and input is always a pass
    passes = [
        Pass(SCRATCH if step else IN, SCRATCH, REDUCE_INPUT, 2 if step else 1)
        for step in range(n - 1)
    ]
    return Walk(tuple(passes), -1, Pass(SCRATCH, OUT, reads=2, writes=1))


WALKS = {"all_reduce": _all_reduce, "all_gather": _all_gather, "reduce_scatter": _reduce_scatter}


@dataclass(frozen=True)
class Numbers:
    """The numbers of rows of one loop: by step, sub and place in the ring. Step by step come the
    blocks of all ranks and the proxies (`net`: the places that have one): of Simple by slice, for
    each is a message; of LL first all pieces by the blocks, then those of the one message. After
    the `steps` sends come the last passes."""

    n: int
    subs: int
    steps: int
    net: Ints
    simple: bool

    @property
    def width(self) -> int:
        """Rows of one step."""
        return self.subs * (self.n + len(self.net))

    def columns(self) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Sub and place of the rows of one step, in order, and whether a proxy makes them."""
        turns = self.subs if self.simple else 1
        blocks = np.arange(self.subs * self.n).reshape(turns, -1)
        proxies = -1 - np.arange(self.subs * len(self.net)).reshape(turns, -1)
        code = np.hstack([blocks, proxies]).ravel()
        proxy = code < 0
        m = max(1, len(self.net))
        number = np.where(proxy, -1 - code, code)
        net = self.net if len(self.net) else np.arange(1)
        place = np.where(proxy, net[number % m], number % self.n)
        return np.where(proxy, number // m, number // self.n), place, proxy

    def block(self, step: Ints, sub: Ints, place: Ints) -> Ints:
        """What the block of a rank does; step `steps` is its last pass."""
        skipped = sub * len(self.net) if self.simple else 0
        sends = step * self.width + sub * self.n + skipped + place
        last = self.steps * self.width + sub * self.n + place
        return np.where(step < self.steps, sends, last)

    def sent(self, step: Ints, sub: Ints, place: Ints) -> Ints:
        """What brings data to the next rank: the proxy's row where there is one."""
        proxy = np.searchsorted(self.net, place)
        behind = (sub + 1 if self.simple else self.subs) * self.n + sub * len(self.net)
        message = step * self.width + behind + proxy
        return np.where(np.isin(place, self.net), message, self.block(step, sub, place))


# Ring AllReduce, AllGather and ReduceScatter in NCCL's step order, loop by loop.
# In every step each rank passes on what it has just received; the step after the last takes data
# out of the FIFO. Chains (Broadcast, Reduce) are trees without branches.


def ring(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """All channels' rings."""
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
        write = partial(_turn, channel, collective, walk, cut, period)
        output.add(remembered(collective, plan, key, write), cut)
    return output.close()


def rows_of_rings(collective: Collective, plan: Plan, extent: Extent = ALL) -> int:
    """The rows of blocks, at least, over all channels and loops that are written. Chunks are
    counted as if they went all the way around, whatever the distance of the extent."""
    walk = WALKS[collective.name](collective.ranks, plan.direct)
    rows = 0
    for written in written_channels(plan, ring_keys(plan), extent):
        cut = _cut(collective, plan, written.work, extent)
        rows += len(cut.count) * (walk.steps + 1) * cut.subs * period_of(plan, written, extent)
    return rows


def _cut(c: Collective, plan: Plan, work: Work, extent: Extent) -> Segments:
    steps = steps_of(function_of(c.name), "Ring", plan.protocol)
    offset, count = chunk_table(work, c.element_bytes, c.ranks if c.name == "all_reduce" else 1)
    if extent.distance and c.name == "all_reduce":
        count = round_again(count, extent.distance + 1)
    return writing.segments(plan, c.element_bytes, (offset, count), steps=steps)


def evened(collective: Collective, plan: Plan) -> tuple[Plan, float]:
    """A ring with chunks of one size, and the largest relative error of that.

    Before NCCL 2.22 a ring leaves its last chunks empty, and a run of a few hops would have another
    fraction of these than the full ring. The error is between the data that the ring has and that
    of a ring without empty chunks. Where most are empty, a chunk is at most one line of all
    threads, which takes no longer than a hop takes anyway."""
    if not any(work.last for work in plan.work):
        return plan, 0.0
    element = collective.element_bytes
    ranks = collective.ranks
    lines = ranks * max(1, ALIGNMENT // element)
    most = max(work.count for work in plan.work)

    def even(work: Work) -> Work:
        count = most if most - work.count <= work.last // element else work.count
        return replace(work, count=-(-count // lines) * lines, last=0)

    works = tuple(map(even, plan.work))
    actual_count = sum(work.count for work in plan.work)
    even_count = sum(work.count for work in works)
    room = ranks * sum(int(chunk_table(work, element, ranks)[1][:, 0].sum()) for work in plan.work)
    error = max(1 - actual_count / even_count, min(1.0, room / even_count - 1))
    return replace(plan, work=works), error


def round_again(count: Ints, places: int) -> Ints:
    """Sizes of the chunks of a ring (second axis), as if a ring of `places` ranks went round again.

    Chunks at the end of a ring may be shorter than the others. Here they return after `places`
    chunks, so that chunks that go `places - 1` hops far meet the same fraction of shorter ones as
    on the full ring. Each rank meets the first one before the first round is over; from then on
    ranks are out of step, and resources that they share are free for one while another waits. The
    last turn may have fewer places. An example: 8 ranks of which the last chunk is shorter, and
    places = 4, give shorter chunks at 3 and 7."""
    ranks = count.shape[1]
    tail = _tail(count)
    counts = np.repeat(count[:, :1], ranks, axis=1)
    for end in (*range(places, ranks, places), ranks):
        few = min(tail, end)
        counts[:, end - few : end] = count[:, ranks - few :]
    return counts


def _tail(count: Ints) -> int:
    """The number of chunks at the end that may be shorter than the first one of their loop."""
    uneven = np.flatnonzero((count != count[:, :1]).any(axis=0))
    return count.shape[1] - int(uneven[0]) if len(uneven) else 0


def shorter_chunks(collective: Collective, plan: Plan) -> int:
    """Places at a ring's end with shorter chunks than the others, on the channel with most."""
    if collective.name != "all_reduce":
        return 0
    element = collective.element_bytes
    ranks = collective.ranks
    sizes = {(work.count, work.chunk): work for work in plan.work if not work.last}.values()
    return max((_tail(chunk_table(work, element, ranks)[1]) for work in sizes), default=0)


def period_of(plan: Plan, written: WrittenChannel, extent: Extent) -> int:
    """After how many places of its ring the classes of a channel's blocks repeat."""
    order = np.array(plan.rings[written.work.channel])
    if extent.partition is None:
        return len(order)
    class_of_block = extent.partition.block[written.number * len(order) + order]
    period = len(different(class_of_block))
    repeats = np.array_equal(class_of_block, np.roll(class_of_block, period))
    return period if repeats else len(order)


def ring_keys(plan: Plan) -> dict[int, object]:
    """What tells channels apart: the order of ranks, and the ways between them."""
    channels = {work.channel for work in plan.work}
    return {c: number_of(plan, c, partial(_order_and_ways, plan, c)) for c in channels}


def _order_and_ways(plan: Plan, channel: int) -> tuple[object, ...]:
    order = plan.rings[channel]
    hops = zip(order, (*order[1:], order[0]), strict=True)
    return order, tuple(plan.route_of(channel, a, b) for a, b in hops)


def _turn(channel: PlannedChannel, c: Collective, walk: Walk, cut: Segments, period: int) -> Turn:
    order = np.array(channel.plan.rings[channel.number])
    hops = list(zip(order[:period].tolist(), np.roll(order, -1)[:period].tolist(), strict=True))
    net = np.flatnonzero([channel.is_net(a, b) for a, b in hops])
    numbers = Numbers(period, cut.subs, walk.steps, net, channel.simple)
    woven = Weave()
    _sends(woven, channel, c, walk, numbers, order)
    _last_passes(woven, channel, c, walk, numbers, order)
    _order(woven, channel, numbers)
    _waits(woven, channel, numbers, hops, cut.slots)
    ends = numbers.block(np.array(walk.steps), np.array(numbers.subs - 1), np.arange(period))
    return Turn(woven, (order[:period], ends))


def _sends(
    woven: Weave, channel: PlannedChannel, c: Collective, walk: Walk, numbers: Numbers, order: Ints
) -> None:
    following = np.roll(order, -1)
    hops = list(zip(order[: numbers.n].tolist(), following[: numbers.n].tolist(), strict=True))
    which, kinds = _kinds(woven, channel, walk, hops)
    subs, places, proxies = numbers.columns()
    step, column = (x.ravel() for x in np.indices((walk.steps, numbers.width)))
    sub = subs[column]
    place = places[column]
    by_proxy = proxies[column]
    own_fifo = np.isin(place, numbers.net) & ~by_proxy
    chunk, base = _data(c, walk, order, step, place)
    turn = np.where(by_proxy, np.where(sub > 0, 4, 2 + (step > 0)), sub > 0)
    woven.rows(
        kinds[which[step], place, turn],
        order[place],
        np.where(own_fifo, order[place], following[place]),
        chunk * numbers.subs + sub,
        step=step,
        base=base,
    )


def _last_passes(
    woven: Weave, channel: PlannedChannel, c: Collective, walk: Walk, numbers: Numbers, order: Ints
) -> None:
    sub, place = (x.ravel() for x in np.indices((numbers.subs, numbers.n)))
    step = np.full(len(sub), walk.steps)
    chunk, base = _data(c, walk, order, step, place)
    if walk.last is None:
        kind = woven.kind(channel.wait())
        segment = np.full(len(sub), -1)
    else:
        two = [woven.kind(one) for one in channel.in_turn(channel.local(walk.last))]
        kind = np.array(two)[(sub > 0).astype(int)]
        segment = chunk * numbers.subs + sub
    woven.rows(kind, order[place], order[place], segment, step=step, base=base)


def _data(c: Collective, walk: Walk, order: Ints, step: Ints, place: Ints) -> tuple[Ints, Ints]:
    """Which data rows at some steps and places move: the number of its chunk in the loop, and where
    its block begins among all blocks. Chunks of AllReduce are the blocks of a loop."""
    block = (place + walk.start - step) % len(order)
    nothing = np.zeros_like(block)
    return (block, nothing) if c.name == "all_reduce" else (nothing, order[block] * c.count)


def _kinds(
    woven: Weave, channel: PlannedChannel, walk: Walk, hops: Sequence[tuple[int, int]]
) -> tuple[Ints, Ints]:
    """The pass of every step, and the kinds of its rows by place: of the block, first and further
    ones of a step, and of the proxy's first one of all, its first one of a step, further ones."""
    kinds_of_hop: dict[tuple[object, ...], list[int]] = {}

    def numbers(made: Pass, hop: tuple[int, int]) -> list[int]:
        key = (made, channel.plan.route_of(channel.number, *hop), channel.is_net(*hop))
        if key not in kinds_of_hop:
            kinds_of_hop[key] = [woven.kind(kind) for kind in _kinds_of_hop(channel, hop, made)]
        return kinds_of_hop[key]

    passes = {made: number for number, made in enumerate(dict.fromkeys(walk.passes))}
    which = np.array([passes[made] for made in walk.passes], np.int64)
    return which, np.array([[numbers(made, hop) for hop in hops] for made in passes])


def _kinds_of_hop(channel: PlannedChannel, hop: tuple[int, int], made: Pass) -> Iterator[RowKind]:
    block = channel.hop(*hop, made, proxy=False)
    first, further = channel.in_turn(block)
    yield from (first, further)
    if not channel.is_net(*hop):
        yield from (first,) * 3  # no row is one of a proxy's
        return
    message = channel.hop(*hop, made, proxy=True)
    later = replace(message, follows=True)
    yield from (message, later, channel.further(later))


def _order(woven: Weave, channel: PlannedChannel, numbers: Numbers) -> None:
    subs, turns = numbers.subs, (numbers.steps + 1) * numbers.subs
    turn, place = np.indices((turns, numbers.n))
    before = (turn - 1) % turns
    here = numbers.block(turn // subs, turn % subs, place)
    earlier = numbers.block(before // subs, before % subs, place)
    first = turn % subs == 0
    for chosen, lag in ((first, channel.next_step), (~first, IN_ORDER)):
        woven.after(here[chosen], earlier[chosen], lag, (turn == 0)[chosen])
    turns = numbers.steps * subs
    turn, which = np.indices((turns, len(numbers.net)))
    place = numbers.net[which]
    before = (turn - 1) % turns
    step, sub = np.divmod(turn, subs)
    here = numbers.sent(step, sub, place)
    earlier = numbers.sent(*np.divmod(before, subs), place)
    woven.after(here, earlier, IN_ORDER, turn == 0)
    woven.after(here, numbers.block(step, sub, place), channel.noticed)
    if not channel.simple and subs > 1:  # a message of LL begins when all of a chunk is there
        last = numbers.block(step, np.full_like(sub, subs - 1), place)
        woven.after(here[sub == 0], last[sub == 0], channel.noticed)


def _waits(
    woven: Weave,
    channel: PlannedChannel,
    numbers: Numbers,
    hops: Sequence[tuple[int, int]],
    slots: int,
) -> None:
    syncs, credits = ([f(*hop) for hop in hops] for f in (channel.sync, channel.credit))
    step, sub = (x.ravel() for x in np.indices((numbers.steps, numbers.subs)))
    for lag in dict.fromkeys(syncs):
        place = np.flatnonzero([other == lag for other in syncs])[:, None]
        reader = numbers.block(step + 1, sub, (place + 1) % numbers.n)
        woven.after(reader, numbers.sent(step, sub, place), lag)
    # A sub waits for its own place in the slot; a piece for the whole slot, at the first one.
    used = sub if channel.simple else np.full_like(sub, numbers.subs - 1)
    chosen = slice(None) if channel.simple else sub == 0
    step = step[chosen]
    sub = sub[chosen]
    used = used[chosen]
    ago = -((step - slots) // numbers.steps)
    before = (step - slots) % numbers.steps
    for lag in dict.fromkeys(credits):
        place = np.flatnonzero([other == lag for other in credits])[:, None]
        reader = numbers.block(before + 1, used, (place + 1) % numbers.n)
        woven.after(numbers.sent(step, sub, place), reader, lag, ago)
    place = numbers.net[:, None]
    sent = numbers.sent(before, used, place)
    woven.after(numbers.block(step, sub, place), sent, channel.local_credit, ago)
