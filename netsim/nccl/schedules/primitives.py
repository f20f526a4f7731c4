"""What joins ranks, and what a primitive of a block costs on it, as styles and lags of rows.

A block writes into the FIFO of the next GPU itself; over a network it fills a FIFO of its own, and
the proxy sends from there. It knows neither algorithms nor the order of rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.constants import value
from netsim.base.values import dataclass
from netsim.nccl.constants import PLAIN, MessagePath
from netsim.nccl.schedules.channels import WrittenChannel, written_places
from netsim.nccl.schedules.plan import NET, WAYS, Ints, Plan
from netsim.nccl.split import PAYLOAD
from netsim.schedule import schedule
from netsim.schedule.extent import Extent
from netsim.schedule.schedule import COPY, LOCAL_COPY, MARK, SCRATCH, TRANSFER, Lag, Style, Use

PAYLOAD_WIRE = {protocol: float(1 / part) for protocol, part in PAYLOAD.items()}
BEFORE = value("share.of_a_step")  # of LL128's cost of a step of a ring, before it passes data on
FREE = Use("hbm", "src", 1e-9)  # what is part of another row's pass over memory


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a pass, each of `seconds`: one for each head, or one for every `least` bytes.

    `each` is the time of a byte before the pass moves any on."""

    heads: int = 0
    least: int = 0
    seconds: float = 0.0
    each: float = 0.0

    def of(self, nbytes: float) -> float:
        """Seconds of a pass of `nbytes` bytes."""
        filled = ceil(nbytes / self.least) if self.least else self.heads
        return self.seconds * min(self.heads, filled) + self.each * nbytes


NO_PARTS = Parts()


@dataclass(frozen=True, slots=True)
class RowKind:
    """The kind of a row: its style, and costs that depend on its bytes.

    - `messages`: seconds that each message takes of resources, whatever its size.
    - `least`: the least seconds of a row, which overlap with moving its bytes.
    - `path`: how the network sends a message of this `protocol`, of whose `pieces` the row is the
      first; one that `follows` another of its connection costs more there.
    - `parts`: take their time before the bytes of a row.
    """

    style: Style
    messages: tuple[tuple[str, str, float], ...] = ()
    least: float = 0.0
    path: MessagePath = PLAIN
    protocol: str = ""
    follows: bool = False
    pieces: int = 1
    parts: Parts = NO_PARTS

    def of(self, nbytes: float) -> Style:
        """The style of a row of `nbytes` bytes; an empty row costs nothing."""
        if nbytes <= 0:
            return replace(self.style, latency=0.0, uses=())
        if self.parts is not NO_PARTS:
            return replace(self.style, latency=self.style.latency + self.parts.of(nbytes))
        if self.least:
            late = self.least - nbytes / self.style.cap
            return replace(self.style, latency=max(self.style.latency, late))
        if not self.messages:
            return self.style
        wire = nbytes * self.pieces * self.style.wire
        busy = self.path.busy(wire, self.protocol, follows=self.follows)
        uses = [
            Use(what, end, (seconds + (busy if what == "nic_msg" else 0.0)) / nbytes)
            for what, end, seconds in self.messages
        ]
        late = self.path.latency(wire, follows=self.follows)
        return replace(self.style, latency=late, uses=(*self.style.uses, *uses))


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of a block over data: buffers, operation, and how often each byte is touched.
    `reads` and `writes` count passes over the memory of the block's own GPU; `fan` is the number of
    ranks that one pass writes to, `threads` the part of the block's threads that make it. One that
    `keeps` its data stores it for the block's own rank as well (NCCL's `directCopySend`)."""

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
    """A channel, or `multiplicity` equal ones; rows of a step, and `copies` of each row; `of` is
    how many channels its send has."""

    plan: Plan
    number: int
    multiplicity: int = 1
    pieces: int = 1
    copies: int = 1
    of: int = 1
    rate: float = field(init=False)
    _kinds: dict[tuple[object, ...], RowKind] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        mechanism = self.plan.mechanism
        sends = self.plan.transfers is not None and self.simple
        faster = mechanism.from_cache if sends and self.plan.cached else 1.0
        object.__setattr__(self, "rate", mechanism.rate.of(self.plan.protocol) * faster)

    @property
    def key(self) -> tuple[int, int, int, int]:
        """What a turn depends on besides the plan."""
        return self.number, self.multiplicity, self.pieces, self.copies

    @property
    def tags(self) -> dict[str, Any]:
        """What styles of its rows say of it."""
        return {"channel": self.number, "multiplicity": self.multiplicity, "copies": self.copies}

    @property
    def simple(self) -> bool:
        """Whether data is passed on slice by slice."""
        return self.plan.protocol == "Simple"

    def is_net(self, src: int, dst: int) -> bool:
        """Whether a proxy does the sending."""
        return self.plan.link_of(src, dst) == NET

    def sync(self, src: int, dst: int) -> Lag:
        """From the end of a hop until the receiver may use what it brought."""
        mechanism, protocol = self.plan.mechanism, self.plan.protocol
        kind = self.plan.link_of(src, dst)
        if kind != NET:
            return Lag(mechanism.link(kind).sync.of(protocol))
        network = mechanism.network
        return Lag(network.delivery.of(protocol) + (network.flush if self.simple else 0.0))

    def credit(self, src: int, dst: int) -> Lag:
        """From the end of the use of a slot at `dst` until `src` may fill it again."""
        kind, mechanism = self.plan.link_of(src, dst), self.plan.mechanism
        seconds = mechanism.network.credit if kind == NET else mechanism.link(kind).credit
        return Lag(seconds, arrival=False)

    @property
    def noticed(self) -> Lag:
        """From the end of a pass until the proxy has seen it."""
        return Lag(self.plan.mechanism.network.notice, arrival=False)

    @property
    def local_credit(self) -> Lag:
        """From the end of a proxy's send until the block may fill its slot again."""
        return Lag(self.plan.mechanism.local_credit, arrival=self.plan.mechanism.answers)

    def hop(self, src: int, dst: int, made: Pass, *, proxy: bool) -> RowKind:
        """A pass to `dst` as the block of `src` makes it, or its `proxy` over the network."""
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
            # Seconds between chunks of a block, at least: the proxy serves all channels in turn.
            network = self.plan.mechanism.network
            return replace(kind, least=network.pool_turn + self.of * network.pool_each)
        return self.write(src, dst, made)

    def wait(self) -> RowKind:
        """What a block does that finds its data in place."""
        return RowKind(Style(MARK, **self.tags))

    def write(self, src: int, dst: int, made: Pass) -> RowKind:
        """A pass of the block of `src` that writes into the memory of `dst`."""
        wire, mechanism = PAYLOAD_WIRE[self.plan.protocol], self.plan.mechanism
        if self.plan.link_of(src, dst) == "nvlink":
            wire *= 1.0 if self.simple else mechanism.nvlink_lines
            wire *= mechanism.crowding if self.simple and self.plan.crowded else 1.0
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
        return self._by_block(style, made)

    def _bus(self, src: int, dst: int) -> Iterator[Use]:
        """What the loads and stores of blocks take of the PCIe links of both GPUs."""
        kind, protocol = self.plan.link_of(src, dst), self.plan.protocol
        if kind in ("pcie", "shm"):
            lines = self.plan.mechanism.pcie_lines if protocol == "LL" else 1.0
            wire = PAYLOAD_WIRE[protocol] * lines
            yield from (Use("bus", end, wire) for end in ("src", "dst"))

    def local(self, made: Pass) -> RowKind:
        """A pass within one GPU: into a FIFO that the proxy sends from, or out of one."""
        style = Style(LOCAL_COPY, made.op, made.src_buffer, made.dst_buffer, uses=self._uses(made))
        return self._by_block(style, made)

    def store(self, made: Pass) -> RowKind:
        """A pass out of a FIFO of grouped sends: the receiver waits ready for what comes."""
        kind = self.local(made)
        return replace(kind, style=replace(kind.style, latency=0.0)) if self.simple else kind

    def staging(self, src_buffer: int, dst_buffer: int, *, least_part: int = 0) -> RowKind:
        """A pass between a rank's own buffer and the one that its switch reads and writes.

        With parts of at least `least` bytes, small passes have none for some heads."""
        mechanism, heads = self.plan.mechanism, len(self.plan.heads[0])
        kind = self.local(Pass(src_buffer, dst_buffer, writes=1))
        cap = min(mechanism.nvls_copy_rate, kind.style.cap)
        style = replace(kind.style, latency=mechanism.step_cost.simple, cap=cap)
        return RowKind(style, parts=Parts(heads, least_part, mechanism.nvls_part))

    def message(self, src: int, dst: int, dst_buffer: int, op: int = COPY) -> RowKind:
        """What the proxy of `src` sends to `dst`."""
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
        every = (
            ("proxy", "src", post),
            ("proxy", "dst", network.receive),
            ("nic_msg", "src", network.message),
        )
        costs = tuple(cost for cost in every if cost[2] > 0)
        return RowKind(
            *(style, costs),
            path=network.path,
            protocol=self.plan.protocol,
            pieces=1 if self.simple else self.pieces,
        )

    def further(self, kind: RowKind) -> RowKind:
        """What a proxy sends after the first row of a step: a message for every slice of Simple;
        more bytes of the one message of LL, of which the receiver uses what there is."""
        if self.simple:
            return replace(kind, follows=True)
        return replace(kind, messages=(), path=PLAIN)

    def in_turn(self, kind: RowKind) -> tuple[RowKind, RowKind]:
        """What a block does in a step of a ring: its first piece, and a further one. Steps of LL128
        begin and end with a barrier of all warps, in however many pieces they pass data on."""
        if self.plan.protocol != "LL128" or kind.style.kind == MARK:
            return kind, kind
        begin = BEFORE * self.plan.mechanism.step_cost.ll128
        first, later = (replace(kind.style, latency=late) for late in (begin, 0.0))
        return replace(kind, style=first), replace(kind, style=later)

    @property
    def next_step(self) -> Lag:
        """From the end of a block's step of a ring until it begins the next one, in which the warps
        of LL and LL128 meet."""
        mechanism = self.plan.mechanism
        after = {"LL": mechanism.step_gap, "LL128": (1 - BEFORE) * mechanism.step_cost.ll128}
        seconds = after.get(self.plan.protocol, 0.0)
        return Lag(seconds, arrival=False) if seconds else schedule.IN_ORDER

    def merge(self, dst_buffer: int, op: int) -> RowKind:
        """A further source of a pass that has several: its time is in that pass."""
        return RowKind(Style(LOCAL_COPY, op, SCRATCH, dst_buffer, uses=(FREE,), **self.tags))

    def _uses(self, made: Pass) -> tuple[Use, ...]:
        work = self.plan.mechanism.rate.simple / self.rate / made.fan
        memory = (made.reads + made.writes) / made.fan
        return Use("sm", "src", work, index=self.number), Use("hbm", "src", memory)

    def _by_block(self, style: Style, made: Pass) -> RowKind:
        mechanism, protocol, threads = self.plan.mechanism, self.plan.protocol, made.threads
        step = mechanism.step_cost
        fixed = {"Simple": step.simple, "LL128": step.ll128 / self.pieces, "LL": 0.0}[protocol]
        if protocol == "LL" and self.plan.transfers is not None:
            threads = min(1.0, mechanism.send_share * threads)
        elif protocol == "LL":
            stores = made.writes + (made.fan if style.kind == TRANSFER else 0)
            threads /= 1 + (mechanism.further_store - 1) * max(0, stores - 1)
        elif self.simple and style.kind == LOCAL_COPY and not self.plan.cached:
            threads /= 1 + (mechanism.further_source - 1) * max(0, made.reads - 1)
        made_so = replace(style, **self.tags, latency=fixed, cap=self.rate * threads)
        each = max(0.0, mechanism.copy_send - 1) / self.rate
        parts = Parts(each=each) if made.keeps and each else NO_PARTS
        return RowKind(made_so, least=step.ll if protocol == "LL" else 0.0, parts=parts)


def link_kinds(plan: Plan, node: Ints, src: Ints, dst: Ints) -> Ints:
    """What joins each pair, as a number: the network is 0, what is usual in a node 1."""
    kind: Ints = (node[src] == node[dst]).astype(np.int64) * (plan.link != NET)
    numbers = {kind: number for number, kind in enumerate(sorted(set(plan.links.values())), 2)}
    numbers[NET] = 0  # where a node's GPUs have no other way
    if plan.links:
        pairs = np.array(list(plan.links), np.int64) @ np.array([len(node), 1])
        named = np.array([numbers[name] for name in plan.links.values()], np.int64)
        order, pair = np.argsort(pairs), src * len(node) + dst
        place = order[np.minimum(np.searchsorted(pairs[order], pair), len(pairs) - 1)]
        found = pairs[place] == pair
        kind[found] = named[place[found]]
    return kind


def routes(plan: Plan, channel: int, src: Ints, dst: Ints, kind: Ints) -> NDArray[np.object_]:
    """The way of each pair through the topology."""
    ways: Mapping[tuple[int, int, int], str] = plan.routes
    if not plan.links and plan.link not in WAYS:  # inside a node there is but one way
        found = np.full(len(src), "", object)
        for hop in np.flatnonzero(kind == 0).tolist():
            found[hop] = ways.get((channel, int(src[hop]), int(dst[hop])), "")
        return found
    pairs = zip(src.tolist(), dst.tolist(), strict=True)
    return np.array([plan.route_of(channel, a, b) for a, b in pairs], object)


@dataclass(frozen=True)
class Members:
    """The heads and ranks of a node that are written, with the number that each represents.

    `channel` is that of a member that represents only itself."""

    channel: PlannedChannel
    heads: Mapping[int, int]
    ranks: Mapping[int, int]
    _known: dict[int, PlannedChannel] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> tuple[object, ...]:
        """What a turn depends on."""
        return *self.channel.key, tuple(self.heads.items()), tuple(self.ranks.items())

    def standing(self, times: int) -> PlannedChannel:
        """The channel of rows that represent this number of ranks."""
        number, multiplicity, pieces, copies = self.channel.key
        made = PlannedChannel(self.channel.plan, number, multiplicity, pieces, copies * times)
        return self._known.setdefault(times, made)

    @property
    def by_sub(self) -> dict[int, PlannedChannel]:
        """The channel of rows of each head's part, or of its pieces."""
        pieces, heads = self.channel.pieces, self.heads.items()
        return {h * pieces + k: self.standing(n) for h, n in heads for k in range(pieces)}


def members_of(
    plan: Plan,
    written: WrittenChannel,
    nodes: Sequence[Sequence[int]],
    extent: Extent,
    pieces: int = 1,
) -> Members:
    """The members of a written channel: one for each class of equal ones."""
    fixed = written.work.channel, written.multiplicity, pieces, written.copies
    heads, ranks = (
        written_places(plan, written, some, extent.partition) for some in (plan.heads, nodes)
    )
    return Members(PlannedChannel(plan, *fixed), heads, ranks)
