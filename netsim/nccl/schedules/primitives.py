"""The cost of a primitive of a block on each kind of link, as styles and lags of rows.

Inside a node a block writes into the FIFO of the next GPU itself. Over a network it fills a FIFO in
its own memory, from which the proxy sends (NCCL: `src/device/prims_simple.h`, `prims_ll.h`,
`prims_ll128.h`; `src/transport/net.cc`). Algorithms and the order of rows are not defined here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import ceil, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.constants import value
from netsim.base.values import dataclass
from netsim.nccl.constants import PLAIN, MessagePath
from netsim.nccl.schedules.channels import WrittenChannel, written_places
from netsim.nccl.schedules.plan import NET, ROUTES_BY_LINK, Ints, Plan
from netsim.nccl.split import PAYLOAD
from netsim.schedule import schedule
from netsim.schedule.extent import Extent
from netsim.schedule.schedule import COPY, LOCAL_COPY, MARK, SCRATCH, TRANSFER, Lag, Style, Use

# Bytes on the wire for each byte of data.
PAYLOAD_WIRE = {protocol: float(1 / part) for protocol, part in PAYLOAD.items()}
# The fraction of the fixed cost of a ring step of LL128 that comes before its data is passed on.
BEFORE = value("share.of_a_step")
# The use of memory by a row whose data another row reads or writes in the same pass.
FREE = Use("hbm", "src", 1e-9)


@dataclass(frozen=True, slots=True)
class Parts:
    """The time of a pass over parts of the data, before any byte is passed on.

    - `heads`: the most parts; a pass has one for each head.
    - `least`: the least bytes of a part, so that a small pass has fewer parts (0: no such limit).
    - `seconds`: the time of a part, whatever its size.
    - `seconds_per_byte`: the time of a byte.
    """

    heads: int = 0
    least: int = 0
    seconds: float = 0.0
    seconds_per_byte: float = 0.0

    def of(self, nbytes: float) -> float:
        """Return the seconds of a pass of `nbytes` bytes."""
        filled = ceil(nbytes / self.least) if self.least else self.heads
        return self.seconds * min(self.heads, filled) + self.seconds_per_byte * nbytes


NO_PARTS = Parts()


@dataclass(frozen=True, slots=True)
class RowKind:
    """The kind of a row: its style, and costs that depend on its bytes.

    - `messages`: (resource, endpoint, seconds) that a message takes, whatever its size.
    - `least`: the least seconds of a row, or of every `wave_bytes` of it; they overlap with moving
      its bytes.
    - `path`: the costs of a message in the network.
    - `protocol`: of the message.
    - `follows`: whether an earlier message of the same connection precedes it, which costs more.
    - `pieces`: the number of rows of the message, of which this one is the first.
    - `parts`: the time that passes before the bytes of the row move.
    """

    style: Style
    messages: tuple[tuple[str, str, float], ...] = ()
    least: float = 0.0
    wave_bytes: float = inf
    path: MessagePath = PLAIN
    protocol: str = ""
    follows: bool = False
    pieces: int = 1
    parts: Parts = NO_PARTS

    def of(self, nbytes: float) -> Style:
        """Return the style of a row of `nbytes` bytes; an empty row costs nothing."""
        if nbytes <= 0:
            return replace(self.style, latency=0.0, uses=())
        if self.parts is not NO_PARTS:
            return replace(self.style, latency=self.style.latency + self.parts.of(nbytes))
        if self.least:
            waves = max(1, ceil(nbytes / self.wave_bytes))
            late = waves * self.least - nbytes / self.style.cap
            return replace(self.style, latency=max(self.style.latency, late))
        if not self.messages:
            return self.style
        wire = nbytes * self.pieces * self.style.wire
        busy = self.path.busy(wire, self.protocol, follows=self.follows)
        uses = [
            Use(resource, end, (seconds + (busy if resource == "nic_msg" else 0.0)) / nbytes)
            for resource, end, seconds in self.messages
        ]
        late = self.path.latency(wire, follows=self.follows)
        return replace(self.style, latency=late, uses=(*self.style.uses, *uses))


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of a block over data.

    - `src_buffer`, `dst_buffer`, `op`: as in a style.
    - `reads`, `writes`: how often each byte is read from and written to the memory of the block's
      own GPU.
    - `fan`: the number of ranks that the pass writes to.
    - `threads`: the fraction of the block's threads that make the pass.
    - `keeps`: whether it also stores the data for its own rank (NCCL's `directCopySend`).
    """

    src_buffer: int
    dst_buffer: int
    op: int = COPY
    reads: int = 1
    writes: int = 0
    fan: int = 1
    threads: float = 1.0
    keeps: bool = False


@dataclass(frozen=True)
class PlannedChannel:
    """A channel of a plan, which makes the kinds and lags of its rows.

    - `multiplicity`: the number of equal channels over the same ranks that it represents.
    - `pieces`: the number of rows in which a chunk moves.
    - `copies`: the number of equal rows on other GPUs that each row represents.
    - `channels_of_send`: the number of channels of the send that it belongs to.
    - `rate`: the highest rate of a block in bytes/s.
    """

    plan: Plan
    number: int
    multiplicity: int = 1
    pieces: int = 1
    copies: int = 1
    channels_of_send: int = 1
    rate: float = field(init=False)
    _kinds: dict[tuple[object, ...], RowKind] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        mechanism = self.plan.mechanism
        sends = self.plan.transfers is not None and self.simple
        faster = mechanism.from_cache if sends and self.plan.cached else 1.0
        object.__setattr__(self, "rate", mechanism.rate.of(self.plan.protocol) * faster)

    @property
    def key(self) -> tuple[int, int, int, int]:
        """A key of all that the rows of a turn depend on besides the plan."""
        return self.number, self.multiplicity, self.pieces, self.copies

    @property
    def tags(self) -> dict[str, Any]:
        """The arguments of `Style` that are the same for all rows of the channel."""
        return {"channel": self.number, "multiplicity": self.multiplicity, "copies": self.copies}

    @property
    def simple(self) -> bool:
        """Whether the protocol is Simple, which passes data on slice by slice."""
        return self.plan.protocol == "Simple"

    def is_net(self, src: int, dst: int) -> bool:
        """Return whether the proxy of `src` sends to `dst` over the network."""
        return self.plan.link_of(src, dst) == NET

    def sync(self, src: int, dst: int) -> Lag:
        """Return the lag from the end of a hop until the receiver may use its data."""
        mechanism = self.plan.mechanism
        protocol = self.plan.protocol
        kind = self.plan.link_of(src, dst)
        if kind != NET:
            return Lag(mechanism.link(kind).sync.of(protocol))
        network = mechanism.network
        return Lag(network.delivery.of(protocol) + (network.flush if self.simple else 0.0))

    def credit(self, src: int, dst: int) -> Lag:
        """Return the lag from the end of the use of a slot at `dst` until `src` may refill it."""
        kind = self.plan.link_of(src, dst)
        mechanism = self.plan.mechanism
        seconds = mechanism.network.credit if kind == NET else mechanism.link(kind).credit
        return Lag(seconds, arrival=False)

    @property
    def noticed(self) -> Lag:
        """The lag from the end of a pass until the proxy notices it."""
        return Lag(self.plan.mechanism.network.notice, arrival=False)

    @property
    def local_credit(self) -> Lag:
        """The lag from the end of a proxy's send until the block may fill the slot again."""
        return Lag(self.plan.mechanism.local_credit, arrival=self.plan.mechanism.answers)

    def hop(self, src: int, dst: int, made: Pass, *, proxy: bool) -> RowKind:
        """Return the kind of a pass to `dst` by the block of `src`, or with `proxy` by its proxy.

        Over the network the block fills a FIFO of its own GPU, and the proxy sends from there.
        """
        key = (made, self.is_net(src, dst), self.plan.route_of(self.number, src, dst), proxy)
        if key not in self._kinds:
            self._kinds[key] = self._hop(src, dst, made, proxy=proxy)
        return self._kinds[key]

    def _hop(self, src: int, dst: int, made: Pass, *, proxy: bool) -> RowKind:
        if proxy:
            return self.message(src, dst, made.dst_buffer, made.op)
        if self.is_net(src, dst):
            kind = self.local(
                replace(made, dst_buffer=SCRATCH, op=COPY, writes=made.writes + made.fan)
            )
            if self.plan.transfers is None or not self.simple:
                return kind
            # The least seconds between chunks of a block: the proxy serves the channels in turn.
            network = self.plan.mechanism.network
            return replace(
                kind, least=network.pool_turn + self.channels_of_send * network.pool_each
            )
        return self.write(src, dst, made)

    def wait(self) -> RowKind:
        """Return the kind of a row of a block that only waits, because its data is in place."""
        return RowKind(Style(MARK, **self.tags))

    def write(self, src: int, dst: int, made: Pass) -> RowKind:
        """Return the kind of a pass of the block of `src` that writes into the memory of `dst`."""
        wire = PAYLOAD_WIRE[self.plan.protocol]
        mechanism = self.plan.mechanism
        if self.plan.link_of(src, dst) == "nvlink":
            wire *= 1.0 if self.simple else mechanism.nvlink_lines
            wire *= mechanism.crowding if self.simple and self.plan.crowded else 1.0
        staged = self.plan.link_of(src, dst) == "shm"
        style = Style(
            TRANSFER,
            made.op,
            made.src_buffer,
            made.dst_buffer,
            wire=wire,
            route=self.plan.route_of(self.number, src, dst),
            uses=(*self._uses(made), Use("hbm", "dst", 1.0), *self._bus(src, dst)),
        )
        if self.simple and self.plan.link_of(src, dst) == "nvlink":
            made = replace(made, threads=min(made.threads, mechanism.store_share))
        kind = self._by_block(style, made)
        return self._read_from_host(kind, made.threads) if staged else kind

    def _read_from_host(self, kind: RowKind, thread_fraction: float) -> RowKind:
        """The same pass where the receiving block reads its data out of the host's memory.

        Each read crosses PCIe and comes back. In LL a wave (the lines that the threads hold) takes
        as long as that, and the next one begins after it: a block of 512 threads gets 4 KiB in
        1.05 us, one of eight sends that share a block an eighth of that. In Simple, threads have
        several loads under way, which bounds what a block reads by a rate."""
        mechanism = self.plan.mechanism
        if self.simple:
            # Of the threads of a send, those that receive only read, where in a ring all of them
            # read and then store.
            alone = 1.0 if self.plan.transfers is None else mechanism.send_share
            cap = min(kind.style.cap, mechanism.shm_rate * min(1.0, alone * thread_fraction))
            return replace(kind, style=replace(kind.style, cap=cap))
        if self.plan.protocol != "LL" or not mechanism.shm_wave:
            return kind
        wave_bytes = mechanism.grain.ll * thread_fraction
        least = max(kind.least, mechanism.shm_wave)
        return replace(kind, least=least, wave_bytes=wave_bytes)

    def _bus(self, src: int, dst: int) -> Iterator[Use]:
        """Yield the uses of the PCIe links of both GPUs by loads and stores of blocks.

        Each link carries both directions together at less than twice its rate."""
        kind = self.plan.link_of(src, dst)
        if kind in ("pcie", "phb", "shm"):
            wire = PAYLOAD_WIRE[self.plan.protocol]
            if kind == "phb" and self.plan.protocol == "LL":
                wire *= self.plan.mechanism.phb_lines
            yield Use("bus", "src", wire)
            yield Use("bus", "dst", wire)

    def local(self, made: Pass) -> RowKind:
        """Return the kind of a pass in one GPU, such as into a FIFO from which the proxy sends."""
        style = Style(LOCAL_COPY, made.op, made.src_buffer, made.dst_buffer, uses=self._uses(made))
        return self._by_block(style, made)

    def store(self, made: Pass) -> RowKind:
        """Return the kind of a pass out of a FIFO of grouped sends.

        With Simple it has no latency, because the block already waits for the data.
        """
        kind = self.local(made)
        return replace(kind, style=replace(kind.style, latency=0.0)) if self.simple else kind

    def staging(self, src_buffer: int, dst_buffer: int, *, least_part: int = 0) -> RowKind:
        """Return the kind of a pass between a rank's buffer and the one that its switch accesses.

        A pass has a part for each head. If parts have at least `least_part` bytes, small passes
        have fewer parts.
        """
        mechanism = self.plan.mechanism
        heads = len(self.plan.heads[0])
        kind = self.local(Pass(src_buffer, dst_buffer, writes=1))
        cap = min(mechanism.nvls_copy_rate, kind.style.cap)
        style = replace(kind.style, latency=mechanism.step_cost.simple, cap=cap)
        return RowKind(style, parts=Parts(heads, least_part, mechanism.nvls_part))

    def message(self, src: int, dst: int, dst_buffer: int, op: int = COPY) -> RowKind:
        """Return the kind of a message from the proxy of `src` to `dst`."""
        network = self.plan.mechanism.network
        style = Style(
            TRANSFER,
            op,
            SCRATCH,
            dst_buffer,
            **self.tags,
            wire=PAYLOAD_WIRE[self.plan.protocol],
            route=self.plan.route_of(self.number, src, dst),
            uses=(Use("hbm", "src", 1.0), Use("hbm", "dst", 1.0)),
        )
        pool = network.pool if self.plan.transfers is not None else 0.0
        post = network.post.of(self.plan.protocol) + pool
        all_costs = (
            ("proxy", "src", post),
            ("proxy", "dst", network.receive),
            ("nic_msg", "src", network.message),
        )
        costs = tuple(cost for cost in all_costs if cost[2] > 0)
        return RowKind(
            style,
            costs,
            path=network.path,
            protocol=self.plan.protocol,
            pieces=1 if self.simple else self.pieces,
        )

    def further(self, kind: RowKind) -> RowKind:
        """Return the kind of the rows of a proxy after the first one of a step.

        With Simple every slice is a message. With LL and LL128 a step is one message, so further
        rows only add bytes to it; the receiver uses the bytes that have arrived.
        """
        if self.simple:
            return replace(kind, follows=True)
        return replace(kind, messages=(), path=PLAIN)

    def in_turn(self, kind: RowKind) -> tuple[RowKind, RowKind]:
        """Return the kinds of the first and of any further row of a block in a ring step.

        A ring step of LL128 begins and ends with a barrier of all warps; the number of pieces in
        which it passes data on does not matter.
        """
        if self.plan.protocol != "LL128" or kind.style.kind == MARK:
            return kind, kind
        begin = BEFORE * self.plan.mechanism.step_cost.ll128
        first, later = (replace(kind.style, latency=late) for late in (begin, 0.0))
        return replace(kind, style=first), replace(kind, style=later)

    @property
    def next_step(self) -> Lag:
        """The lag from the end of a block's ring step until it begins the next one.

        With LL and LL128 the warps of the block have a barrier in between.
        """
        mechanism = self.plan.mechanism
        after = {"LL": mechanism.step_gap, "LL128": (1 - BEFORE) * mechanism.step_cost.ll128}
        seconds = after.get(self.plan.protocol, 0.0)
        return Lag(seconds, arrival=False) if seconds else schedule.IN_ORDER

    def merge(self, dst_buffer: int, op: int) -> RowKind:
        """Return the kind of a row for a further source of a pass, whose cost is in that pass."""
        return RowKind(Style(LOCAL_COPY, op, SCRATCH, dst_buffer, uses=(FREE,), **self.tags))

    def _uses(self, made: Pass) -> tuple[Use, ...]:
        """Return the uses of the SM and of the memory by a pass."""
        work = self.plan.mechanism.rate.simple / self.rate / made.fan
        memory = (made.reads + made.writes) / made.fan
        return Use("sm", "src", work, index=self.number), Use("hbm", "src", memory)

    def _by_block(self, style: Style, made: Pass) -> RowKind:
        """Return the kind of a row of a block, with its fixed cost and its highest rate."""
        mechanism = self.plan.mechanism
        protocol = self.plan.protocol
        threads = made.threads
        step = mechanism.step_cost
        fixed = {"Simple": step.simple, "LL128": step.ll128 / self.pieces, "LL": 0.0}[protocol]
        if protocol == "LL" and self.plan.transfers is not None:
            threads = min(1.0, mechanism.send_share * threads)
        elif protocol == "LL":
            stores = made.writes + (made.fan if style.kind == TRANSFER else 0)
            threads /= 1 + (mechanism.further_store - 1) * max(0, stores - 1)
        elif self.simple and style.kind == LOCAL_COPY and not self.plan.cached:
            threads /= 1 + (mechanism.further_source - 1) * max(0, made.reads - 1)
        block_style = replace(style, **self.tags, latency=fixed, cap=self.rate * threads)
        parts = NO_PARTS
        copy_seconds = max(0.0, mechanism.copy_send - 1) / self.rate
        if made.keeps and copy_seconds:
            parts = Parts(seconds_per_byte=copy_seconds)
        return RowKind(block_style, least=step.ll if protocol == "LL" else 0.0, parts=parts)


def link_kinds(plan: Plan, node: Ints, src: Ints, dst: Ints) -> Ints:
    """Return the kind of link between each pair of ranks as a number.

    The network is 0, the usual link in a node (`plan.link`) 1, and exceptions are 2 and more.
    """
    kind: Ints = (node[src] == node[dst]).astype(np.int64) * (plan.link != NET)
    numbers = {kind: number for number, kind in enumerate(sorted(set(plan.links.values())), 2)}
    numbers[NET] = 0  # GPUs of a node may be linked by the network alone
    if plan.links:
        pairs = np.array(list(plan.links), np.int64) @ np.array([len(node), 1])
        named = np.array([numbers[name] for name in plan.links.values()], np.int64)
        order = np.argsort(pairs)
        pair = src * len(node) + dst
        place = order[np.minimum(np.searchsorted(pairs[order], pair), len(pairs) - 1)]
        is_exception = pairs[place] == pair
        kind[is_exception] = named[place[is_exception]]
    return kind


def routes(plan: Plan, channel: int, src: Ints, dst: Ints, kind: Ints) -> NDArray[np.object_]:
    """Return the options of the route between each pair of ranks on a channel."""
    if not plan.links and plan.link not in ROUTES_BY_LINK:  # all routes in a node have no options
        options = np.full(len(src), "", object)
        for hop in np.flatnonzero(kind == 0).tolist():
            key = (channel, int(src[hop]), int(dst[hop]))
            options[hop] = plan.routes.get(key, "")
        return options
    pairs = zip(src.tolist(), dst.tolist(), strict=True)
    return np.array([plan.route_of(channel, a, b) for a, b in pairs], object)


@dataclass(frozen=True)
class Members:
    """The heads and ranks of the nodes that are written, with the number that each represents.

    `channel` makes the rows of a member that represents only itself.
    """

    channel: PlannedChannel
    heads: Mapping[int, int]
    ranks: Mapping[int, int]
    _channels: dict[int, PlannedChannel] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> tuple[object, ...]:
        """A key of all that the rows of a turn depend on."""
        return *self.channel.key, tuple(self.heads.items()), tuple(self.ranks.items())

    def standing(self, times: int) -> PlannedChannel:
        """Return the channel that makes rows which represent this number of ranks."""
        number, multiplicity, pieces, copies = self.channel.key
        made = PlannedChannel(self.channel.plan, number, multiplicity, pieces, copies * times)
        return self._channels.setdefault(times, made)

    @property
    def by_sub(self) -> dict[int, PlannedChannel]:
        """The channel that makes the rows of each sub: a head's part, or a piece of it."""
        pieces = self.channel.pieces
        heads = self.heads.items()
        return {h * pieces + k: self.standing(n) for h, n in heads for k in range(pieces)}


def members_of(
    plan: Plan,
    written: WrittenChannel,
    nodes: Sequence[Sequence[int]],
    extent: Extent,
    pieces: int = 1,
) -> Members:
    """Return the members of a written channel: one of each class of equal heads and ranks."""
    channel = PlannedChannel(
        plan, written.work.channel, written.multiplicity, pieces, written.copies
    )
    return Members(
        channel,
        heads=written_places(plan, written, plan.heads, extent.partition),
        ranks=written_places(plan, written, nodes, extent.partition),
    )
