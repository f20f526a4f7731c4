"""What NCCL's primitives cost a block on each kind of link, as styles and lags of rows.

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

# By protocol, the bytes on the wire for each byte of data.
PAYLOAD_WIRE = {protocol: float(1 / part) for protocol, part in PAYLOAD.items()}
# The fraction of the fixed cost of a ring step of LL128 that comes before its data is passed on.
BEFORE = value("share.of_a_step")
# The (negligible) use of memory by a row whose data another row of the same pass reads or writes.
FREE = Use("hbm", "src", 1e-9)


@dataclass(frozen=True, slots=True)
class Parts:
    """The seconds that a pass over several parts of the data takes before any byte is passed on.

    - `heads`: the most parts; a pass has one for each head.
    - `least`: the least bytes of a part, so that a small pass has fewer parts (0: no such limit).
    - `seconds`: the time of each part, whatever its size.
    - `seconds_per_byte`: the time of each byte.
    """

    heads: int = 0
    least: int = 0
    seconds: float = 0.0
    seconds_per_byte: float = 0.0

    def of(self, nbytes: float) -> float:
        """Return the seconds that pass before a row of `nbytes` bytes passes on its first byte."""
        filled = ceil(nbytes / self.least) if self.least else self.heads
        return self.seconds * min(self.heads, filled) + self.seconds_per_byte * nbytes


NO_PARTS = Parts()


@dataclass(frozen=True, slots=True)
class RowKind:
    """A kind of row: its style, and costs that depend on the bytes of a row.

    - `messages`: entries (resource, endpoint, seconds): the time for which a message uses a
      resource, whatever the message's size.
    - `least`: the least seconds of a row, or of every `wave_bytes` bytes of it. They overlap with
      the time in which the bytes move.
    - `path`: how the network's library handles the message, by its size.
    - `protocol`: the protocol of the message.
    - `follows`: whether the message follows an earlier one of the same connection, which costs
      more.
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
        """Return the style of a row of this kind with `nbytes` bytes; an empty row costs
        nothing.
        """
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
    - `keeps`: whether the pass also stores the data for its own rank (NCCL's `directCopySend`).
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
    """A channel of a plan, which makes the kinds and the lags of its rows.

    - `multiplicity`: the number of equal channels over the same ranks that it represents.
    - `pieces`: the number of rows in which a chunk moves.
    - `copies`: the number of equal rows on other GPUs that each of its rows represents.
    - `channels_of_send`: grouped sends: the number of channels that share the send.
    - `rate`: the highest rate of a block, in bytes a second.
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
        """What the rows of a loop depend on besides the plan, as a key for a cache."""
        return self.number, self.multiplicity, self.pieces, self.copies

    @property
    def tags(self) -> dict[str, Any]:
        """The arguments of `Style` that are equal for all rows of the channel."""
        return {"channel": self.number, "multiplicity": self.multiplicity, "copies": self.copies}

    @property
    def simple(self) -> bool:
        """Whether the protocol is Simple, which passes data on slice by slice."""
        return self.plan.protocol == "Simple"

    def is_net(self, src: int, dst: int) -> bool:
        """Return whether the proxy of rank `src` sends to rank `dst` over the network."""
        return self.plan.link_of(src, dst) == NET

    def sync(self, src: int, dst: int) -> Lag:
        """Return the lag from the end of a transfer from `src` to `dst` until `dst` may use the
        data.
        """
        mechanism = self.plan.mechanism
        protocol = self.plan.protocol
        kind = self.plan.link_of(src, dst)
        if kind != NET:
            return Lag(mechanism.link(kind).sync.of(protocol))
        network = mechanism.network
        return Lag(network.delivery.of(protocol) + (network.flush if self.simple else 0.0))

    def credit(self, src: int, dst: int) -> Lag:
        """Return the lag from the end of the use of a slot at `dst` until `src` may fill it
        again.
        """
        kind = self.plan.link_of(src, dst)
        mechanism = self.plan.mechanism
        seconds = mechanism.network.credit if kind == NET else mechanism.link(kind).credit
        return Lag(seconds, arrival=False)

    @property
    def noticed(self) -> Lag:
        """The lag from the end of a block's pass until the proxy of its rank has noticed it."""
        return Lag(self.plan.mechanism.network.notice, arrival=False)

    @property
    def local_credit(self) -> Lag:
        """The lag from the end of a proxy's send until its block may fill the slot again."""
        return Lag(self.plan.mechanism.local_credit, arrival=self.plan.mechanism.answers)

    def hop(self, src: int, dst: int, block_pass: Pass, *, proxy: bool) -> RowKind:
        """Return the kind of row of a pass from rank `src` to rank `dst`.

        Over the network the block of `src` fills a FIFO of its own GPU, and the proxy sends from
        there: with `proxy` the row is the proxy's, else the block's.
        """
        key = (block_pass, self.is_net(src, dst), self.plan.route_of(self.number, src, dst), proxy)
        if key not in self._kinds:
            self._kinds[key] = self._hop(src, dst, block_pass, proxy=proxy)
        return self._kinds[key]

    def _hop(self, src: int, dst: int, block_pass: Pass, *, proxy: bool) -> RowKind:
        """Make the kind of row that `hop` returns."""
        if proxy:
            return self.message(src, dst, block_pass.dst_buffer, block_pass.op)
        if self.is_net(src, dst):
            kind = self.local(
                replace(
                    block_pass,
                    dst_buffer=SCRATCH,
                    op=COPY,
                    writes=block_pass.writes + block_pass.fan,
                )
            )
            if self.plan.transfers is None or not self.simple:
                return kind
            # The proxy serves the channels one after the other, which sets the least seconds
            # between two chunks of a block.
            network = self.plan.mechanism.network
            return replace(
                kind, least=network.pool_turn + self.channels_of_send * network.pool_each
            )
        return self.write(src, dst, block_pass)

    def wait(self) -> RowKind:
        """Return the kind of a row by which a block waits for data that is in place already."""
        return RowKind(Style(MARK, **self.tags))

    def write(self, src: int, dst: int, block_pass: Pass) -> RowKind:
        """Return the kind of row of a pass by which the block of `src` writes into the memory of
        `dst`.
        """
        wire = PAYLOAD_WIRE[self.plan.protocol]
        mechanism = self.plan.mechanism
        if self.plan.link_of(src, dst) == "nvlink":
            wire *= 1.0 if self.simple else mechanism.nvlink_lines
            wire *= mechanism.crowding if self.simple and self.plan.crowded else 1.0
        staged = self.plan.link_of(src, dst) == "shm"
        style = Style(
            TRANSFER,
            block_pass.op,
            block_pass.src_buffer,
            block_pass.dst_buffer,
            wire=wire,
            route=self.plan.route_of(self.number, src, dst),
            uses=(*self._uses(block_pass), Use("hbm", "dst", 1.0), *self._bus(src, dst)),
        )
        if self.simple and self.plan.link_of(src, dst) == "nvlink":
            block_pass = replace(block_pass, threads=min(block_pass.threads, mechanism.store_share))
        kind = self._by_block(style, block_pass)
        return self._read_from_host(kind, block_pass.threads) if staged else kind

    def _read_from_host(self, kind: RowKind, thread_fraction: float) -> RowKind:
        """Return a kind of row whose receiving block reads the data from the host's memory.

        It is slower than `kind`, because each read crosses PCIe and comes back. In LL a wave (the
        lines that the threads hold at once) takes this time, and the next wave begins after it: a
        block of 512 threads gets 4 KiB in 1.05 us, and if eight sends share a block, each gets an
        eighth of 4 KiB. In Simple threads have several loads under way, so that a rate
        (`Mechanism.shm_rate`) bounds what a block reads.

        - `kind`: the kind of row without this limit.
        - `thread_fraction`: the fraction of the block's threads that make the pass.
        """
        mechanism = self.plan.mechanism
        if self.simple:
            # In grouped sends only the receiving part of the threads reads. In a ring all threads
            # read, and store afterwards.
            alone = 1.0 if self.plan.transfers is None else mechanism.send_share
            cap = min(kind.style.cap, mechanism.shm_rate * min(1.0, alone * thread_fraction))
            return replace(kind, style=replace(kind.style, cap=cap))
        if self.plan.protocol != "LL" or not mechanism.shm_wave:
            return kind
        wave_bytes = mechanism.grain.ll * thread_fraction
        least = max(kind.least, mechanism.shm_wave)
        return replace(kind, least=least, wave_bytes=wave_bytes)

    def _bus(self, src: int, dst: int) -> Iterator[Use]:
        """Yield what loads and stores of blocks draw on the PCIe links of both GPUs.

        A PCIe link carries both directions together at less than twice its rate. So each GPU has a
        resource `bus`, on which both directions draw.
        """
        kind = self.plan.link_of(src, dst)
        if kind in ("pcie", "phb", "shm"):
            wire = PAYLOAD_WIRE[self.plan.protocol]
            if kind == "phb" and self.plan.protocol == "LL":
                wire *= self.plan.mechanism.phb_lines
            yield Use("bus", "src", wire)
            yield Use("bus", "dst", wire)

    def local(self, block_pass: Pass) -> RowKind:
        """Return the kind of row of a pass in one GPU, such as into a FIFO from which the proxy
        sends.
        """
        style = Style(
            LOCAL_COPY,
            block_pass.op,
            block_pass.src_buffer,
            block_pass.dst_buffer,
            uses=self._uses(block_pass),
        )
        return self._by_block(style, block_pass)

    def store(self, block_pass: Pass) -> RowKind:
        """Return the kind of row of a pass from a FIFO to the output, in grouped sends.

        With Simple it has no latency, because the block already waits for the data.
        """
        kind = self.local(block_pass)
        return replace(kind, style=replace(kind.style, latency=0.0)) if self.simple else kind

    def staging(self, src_buffer: int, dst_buffer: int, *, least_part: int = 0) -> RowKind:
        """Return the kind of row of a copy between a rank's own buffer and its switch's.

        The switch's buffer is the one that NVSwitch accesses. A copy has a part for each head. If
        parts have at least `least_part` bytes, small copies have fewer parts.
        """
        mechanism = self.plan.mechanism
        heads = len(self.plan.heads[0])
        kind = self.local(Pass(src_buffer, dst_buffer, writes=1))
        cap = min(mechanism.nvls_copy_rate, kind.style.cap)
        style = replace(kind.style, latency=mechanism.step_cost.simple, cap=cap)
        return RowKind(style, parts=Parts(heads, least_part, mechanism.nvls_part))

    def message(self, src: int, dst: int, dst_buffer: int, op: int = COPY) -> RowKind:
        """Return the kind of row of a message that the proxy of `src` sends to `dst`.

        `dst_buffer` is the buffer at the receiver, `op` what happens to the data there (`COPY`,
        ...).
        """
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
        """Return the kind of the rows that a proxy has in a step after its first one.

        `kind` is that of the first. With Simple every slice is a message of its own. With LL and
        LL128 all rows of a step are one message: the further rows only add bytes to it, and the
        receiver uses the bytes that have arrived.
        """
        if self.simple:
            return replace(kind, follows=True)
        return replace(kind, messages=(), path=PLAIN)

    def first_and_further(self, kind: RowKind) -> tuple[RowKind, RowKind]:
        """Return the kinds of a block's first row and of its further rows in a step of a ring.

        In LL128 a step begins and ends with a barrier of all warps, which costs the same however
        many pieces there are. So the first row has the cost of the barrier at the beginning, and
        further rows have no fixed cost. In the other protocols both kinds are `kind`.
        """
        if self.plan.protocol != "LL128" or kind.style.kind == MARK:
            return kind, kind
        begin = BEFORE * self.plan.mechanism.step_cost.ll128
        first, later = (replace(kind.style, latency=late) for late in (begin, 0.0))
        return replace(kind, style=first), replace(kind, style=later)

    @property
    def next_step(self) -> Lag:
        """The lag from the end of a block's step in a ring until the block begins the next step.

        With LL and LL128 the warps of the block have a barrier in between.
        """
        mechanism = self.plan.mechanism
        after = {"LL": mechanism.step_gap, "LL128": (1 - BEFORE) * mechanism.step_cost.ll128}
        seconds = after.get(self.plan.protocol, 0.0)
        return Lag(seconds, arrival=False) if seconds else schedule.IN_ORDER

    def merge(self, dst_buffer: int, op: int) -> RowKind:
        """Return the kind of a row that adds one more source to a pass.

        The row costs next to nothing, because the cost of the source is part of the pass.
        """
        return RowKind(Style(LOCAL_COPY, op, SCRATCH, dst_buffer, uses=(FREE,), **self.tags))

    def _uses(self, block_pass: Pass) -> tuple[Use, ...]:
        """Return the uses of the block's SM and of the memory of its GPU by a pass."""
        work = self.plan.mechanism.rate.simple / self.rate / block_pass.fan
        memory = (block_pass.reads + block_pass.writes) / block_pass.fan
        return Use("sm", "src", work, index=self.number), Use("hbm", "src", memory)

    def _by_block(self, style: Style, block_pass: Pass) -> RowKind:
        """Return the kind of row of a block's pass, from a style without costs.

        It adds the pass's fixed cost and highest rate to the style.
        """
        mechanism = self.plan.mechanism
        protocol = self.plan.protocol
        threads = block_pass.threads
        step = mechanism.step_cost
        fixed = {"Simple": step.simple, "LL128": step.ll128 / self.pieces, "LL": 0.0}[protocol]
        if protocol == "LL" and self.plan.transfers is not None:
            threads = min(1.0, mechanism.send_share * threads)
        elif protocol == "LL":
            stores = block_pass.writes + (block_pass.fan if style.kind == TRANSFER else 0)
            threads /= 1 + (mechanism.further_store - 1) * max(0, stores - 1)
        elif self.simple and style.kind == LOCAL_COPY and not self.plan.cached:
            threads /= 1 + (mechanism.further_source - 1) * max(0, block_pass.reads - 1)
        block_style = replace(style, **self.tags, latency=fixed, cap=self.rate * threads)
        parts = NO_PARTS
        copy_seconds = max(0.0, mechanism.copy_send - 1) / self.rate
        if block_pass.keeps and copy_seconds:
            parts = Parts(seconds_per_byte=copy_seconds)
        return RowKind(block_style, least=step.ll if protocol == "LL" else 0.0, parts=parts)


def link_kinds(plan: Plan, node: Ints, src: Ints, dst: Ints) -> Ints:
    """Return the kind of link between each pair of ranks (`src`, `dst`) as a number.

    The network is 0, the usual link inside a node (`plan.link`) is 1; exceptions are 2 and more.
    `node` is the node of every rank.
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
    """Return the name of the route between each pair of ranks on a channel; "" is the usual route.

    `kind` is the kind of link of each pair (`link_kinds`).
    """
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
    """The heads and the ranks of a node whose rows are written; each represents equal ones.

    - `channel`: makes the rows of a member that represents only itself.
    - `heads`: by number of a head whose rows are written, how many heads it represents.
    - `ranks`: by place of a rank in its node, likewise.
    """

    channel: PlannedChannel
    heads: Mapping[int, int]
    ranks: Mapping[int, int]
    _channels: dict[int, PlannedChannel] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> tuple[object, ...]:
        """What the rows of a loop depend on besides the plan, as a key for a cache."""
        return *self.channel.key, tuple(self.heads.items()), tuple(self.ranks.items())

    def with_copies(self, times: int) -> PlannedChannel:
        """Return the channel that makes rows which represent `times` ranks each."""
        number, multiplicity, pieces, copies = self.channel.key
        block_pass = PlannedChannel(self.channel.plan, number, multiplicity, pieces, copies * times)
        return self._channels.setdefault(times, block_pass)

    @property
    def by_sub(self) -> dict[int, PlannedChannel]:
        """By sub, the channel that makes its rows; a sub is a head's part, or a piece of it."""
        pieces = self.channel.pieces
        heads = self.heads.items()
        return {h * pieces + k: self.with_copies(n) for h, n in heads for k in range(pieces)}


def members_of(
    plan: Plan,
    written: WrittenChannel,
    nodes: Sequence[Sequence[int]],
    extent: Extent,
    pieces: int = 1,
) -> Members:
    """Return one member of each class of equal heads and of equal ranks, for a written channel.

    - `nodes`: the ranks of every node.
    - `pieces`: the number of rows in which a chunk moves.
    """
    channel = PlannedChannel(
        plan, written.work.channel, written.multiplicity, pieces, written.copies
    )
    return Members(
        channel,
        heads=written_places(plan, written, plan.heads, extent.partition),
        ranks=written_places(plan, written, nodes, extent.partition),
    )
