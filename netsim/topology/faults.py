"""What is wrong with a cluster: links with less bandwidth or none, slow GPUs, missing NICs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product
from math import inf
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from netsim.base.errors import shown, suggest
from netsim.base.units import format_bandwidth, parse_bandwidth, parse_ratio
from netsim.base.values import dataclass
from netsim.topology.graph import LINK_KINDS, Floats, Topology, TopologyError
from netsim.yamlio.models import FieldError, Model, Quantity, Seconds

LINE_RATE = 1.15  # of line over usable rate, the most of all transports (EFA: 0.876)


def _left(value: object) -> tuple[str, float]:
    """What is left of a link: a part of its bandwidth, or so many bytes/s."""
    if isinstance(value, str) and value.strip().endswith(("/s", "ps")):
        return "rate", parse_bandwidth(value, allow_zero=True)
    part = parse_ratio(value, allow_zero=True)
    if part > 1:
        raise ValueError(f"expected what is left of the link, at most 100%, got {shown(value)}")
    return "part", part


Left = Annotated[tuple[str, float], Quantity(_left, "0%", "50%", "100Gbps")]


class Fault(Model):
    """One of: a link (`leaf0-spine3` for both directions, `leaf0->spine3` for one; all cables
    between them, or with `#1` one of them) with what is left of its bandwidth, or more latency; a
    GPU that is slower; a NIC that is missing.

    `at`, `for` and `every` say when, from the beginning of an operation or step; a NIC is dead
    then. What is down loses what is in flight, which is sent again when a timer runs out; with
    `loss: false` it is a pause, with `fallback: true` the other ports of the NIC carry it."""

    link: str | None = None
    bandwidth: Left | None = None
    latency: Seconds | None = None
    gpu: str | None = None
    slowdown: Annotated[float, Field(ge=1, le=1e6)] | None = None
    nic: str | None = None
    at: Seconds | None = None
    lasts: Seconds | None = Field(None, alias="for")
    every: Seconds | None = None
    loss: bool | None = None
    fallback: bool | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> "Fault":
        given = [name for name in ("link", "gpu", "nic") if getattr(self, name) is not None]
        if len(given) != 1:
            raise FieldError(
                f"expected one of link, gpu or nic, got {' and '.join(given) or 'none'}"
            )
        if self.link is not None and self.bandwidth is None and self.latency is None:
            raise FieldError("a link needs what is left of it: bandwidth (0%, 50%) or latency")
        if self.gpu is not None and self.slowdown is None:
            raise FieldError("a GPU needs a slowdown such as 1.3")
        for name, owner in (("bandwidth", "link"), ("latency", "link"), ("slowdown", "gpu")):
            if getattr(self, name) is not None and owner not in given:
                raise FieldError(f"has no meaning for a {given[0]}", name)
        return self

    @model_validator(mode="after")
    def _in_time(self) -> "Fault":
        given = {"for": self.lasts, "every": self.every, "loss": self.loss}
        given["fallback"] = self.fallback
        extra = next((name for name, value in given.items() if value is not None), None)
        if self.at is None and extra:
            raise FieldError("needs at: when it begins, such as 2ms", extra)
        if self.at is not None and self.latency is not None:
            raise FieldError("a latency does not change in time", "latency")
        if self.lasts == 0:
            raise FieldError("expected more than 0 s", "for")
        if self.every is not None and not 0 < (self.lasts or 0) < self.every:
            raise FieldError("expected a time longer than for, which it needs", "every")
        if self.loss is not None and not self.down:
            raise FieldError("only what is down loses: a link with 0%, or a NIC", "loss")
        if self.fallback and (self.link is None or not self.down or self.loss):
            raise FieldError("goes with a port that is down (0%) and loses nothing", "fallback")
        return self

    @property
    def down(self) -> bool:
        """Whether nothing is left, at least for a time."""
        return self.nic is not None or (self.bandwidth is not None and self.bandwidth[1] == 0)

    @property
    def dead(self) -> bool:
        """Whether nothing is left of the link at any time."""
        return self.link is not None and self.down and self.at is None

    @property
    def ends(self) -> list[tuple[str, str]]:
        """Every way in which the name of the link can be taken apart, as (tail, head)."""
        return _taken_apart(self.link or "")[0]


def _taken_apart(text: str) -> tuple[list[tuple[str, str]], int | None]:
    """Every way to read the name of a link, as (tail, head), and the number of the cable."""
    name, sign, number = text.rpartition("#")
    lane = int(number) if sign and number.isascii() and number.isdigit() else None
    name = text if lane is None else name
    if "->" in name:
        return [(name.partition("->")[0], name.partition("->")[2])], lane
    return [(name[:n], name[n + 1 :]) for n, sign in enumerate(name) if sign == "-"], lane


def dead_inside(faults: Sequence[Fault], host: str) -> tuple[str, ...]:
    """Links without capacity inside a host, by local names as `gpu0->pcie0`."""
    found = []
    for fault in faults:
        for tail, head in fault.ends if fault.dead else []:
            if tail.startswith(f"{host}.") and head.startswith(f"{host}."):
                a, b = tail.removeprefix(f"{host}."), head.removeprefix(f"{host}.")
                found += [f"{a}->{b}"] if "->" in str(fault.link) else [f"{a}->{b}", f"{b}->{a}"]
    return tuple(found)


def missing_nics(faults: Sequence[Fault], host: str) -> set[int]:
    """The numbers of the NICs of a host that are missing."""
    names = [f.nic.removeprefix(f"{host}.nic") for f in faults if f.nic and f.at is None]
    return {int(name) for name in names if name.isdigit()}


def with_faults(topology: Topology, faults: Sequence[Fault]) -> Topology:
    """The topology with its links and GPUs as the faults leave them."""
    layout, links = topology.layout, topology.layout.links
    bandwidth, latency = links.bandwidth.copy(), links.latency.copy()
    slow = np.ones(len(topology))
    hosts = {str(gpu).partition(".")[0] for gpu in topology.gpus}
    for number, fault in enumerate(faults):
        if fault.nic is not None and fault.nic.partition(".")[0] not in hosts:
            raise TopologyError(f"faults.{number}.nic: there is no NIC '{fault.nic}'")
        now = fault.at is None  # others are only looked up, and change later
        if fault.gpu is not None:
            slow[_gpu(topology, fault.gpu, number)] = fault.slowdown or 1.0 if now else 1.0
        if fault.link is not None:
            hit, left = _left_of(topology, fault, number, bandwidth)
            bandwidth[hit] = left if now else bandwidth[hit]
            latency[hit] = latency[hit] if fault.latency is None else fault.latency
    changed = replace(layout, links=replace(links, bandwidth=bandwidth, latency=latency))
    capacities: dict[str, NDArray[Any]] = dict(topology.capacities)
    if (slow > 1).any():
        capacities = {name: given / slow for name, given in capacities.items()}
        capacities["sms"] = 1 / slow
    return replace(topology, description=changed, capacities=capacities)


def _left_of(
    topology: Topology, fault: Fault, number: int, bandwidth: Floats
) -> tuple[NDArray[np.int64], Floats]:
    """The links that a fault strikes, and what is left of each."""
    if fault.nic is not None:
        node, links = topology.node_number.get(fault.nic, -1), topology.links
        hit = np.flatnonzero((links.kind == NIC) & ((links.tail == node) | (links.head == node)))
        return hit, np.zeros(len(hit))
    hit = links_named(topology, fault.link or "", f"faults.{number}.link")
    kind, left = fault.bandwidth or ("part", 1.0)
    most = float(bandwidth[hit].max())
    if kind == "rate" and left > most * LINE_RATE:
        message = f"more than the link has ({format_bandwidth(most)})"
        raise TopologyError(f"faults.{number}.bandwidth: {message}")
    return hit, bandwidth[hit] * left if kind == "part" else np.minimum(bandwidth[hit], left)


# Faults in time. What is lost is sent again when the timer of its connection runs out, and again
# each time that it does, until the link answers or there were too many tries.

REPEATS = 10_000  # of a fault, after which it stops
NIC = LINK_KINDS.index("nic")


@dataclass(frozen=True, slots=True)
class Retries:
    """A try every so many seconds, and how many there are."""

    seconds: float
    tries: int

    def silence(self, fault: Fault) -> float:
        """Seconds from a loss to the first try that is answered; infinite if none is."""
        each, lasts = fault.every or inf, inf if fault.lasts is None else fault.lasts
        times = (number * self.seconds for number in range(1, self.tries + 1))
        return next((t for t in times if (t % each) >= lasts), inf)

    def fatal(self, faults: Sequence[Fault]) -> float | None:
        """When the last try fails; None if none is too many."""
        lost = [f.at for f in faults if loses(f) and f.at is not None and self.silence(f) == inf]
        return min(lost) + (self.tries + 1) * self.seconds if lost else None


def loses(fault: Fault) -> bool:
    """Whether what is in flight is lost."""
    return fault.at is not None and fault.down and fault.loss is not False and not fault.fallback


def in_time(topology: Topology, faults: Sequence[Fault], retries: Retries | None) -> Topology:
    """The topology with what faults change while something runs. Without retries, nothing is lost
    for longer than its link is down."""
    changes, slower = list(topology.changes), list(topology.slower)
    bandwidth = topology.links.bandwidth
    for number, fault in enumerate(faults):
        spans = list(_spans(fault, retries))
        if not spans:
            continue
        if fault.gpu is not None:
            gpu = _gpu(topology, fault.gpu, number)
            for begin, end in spans:
                slower += [(begin, gpu, 1 / (fault.slowdown or 1.0)), (end, gpu, 1.0)]
            continue
        hit, left = _left_of(topology, fault, number, bandwidth)
        if fault.fallback:
            hit, left = _carried(topology, hit, number)
        drawn = topology.links.resource[hit].tolist()
        rates = zip(drawn, left.tolist(), bandwidth[drawn].tolist(), strict=True)
        for (begin, end), (link, less, whole) in product(spans, list(rates)):
            changes += [(begin, link, less), (end, link, whole)]
    times = [tuple(one for one in some if one[0] < inf) for some in (changes, slower)]
    return replace(topology, changes=times[0], slower=times[1])


def _carried(topology: Topology, down: NDArray[np.int64], fault: int) -> tuple[Any, Floats]:
    """All ports of a NIC, each with its part of what those carry that are left."""
    links, own = topology.links, np.array([".nic" in str(name) for name in topology.nodes])
    out, nic = own[links.tail], np.where(own[links.tail], links.tail, links.head)
    ports = (links.kind == NIC) & np.isin(nic, nic[down]) & np.isin(out, out[down])
    if ports.sum() <= len(down) or not ports[down].all():
        raise TopologyError(f"faults.{fault}.fallback: expected a port of a NIC that has others")
    return np.flatnonzero(ports), links.bandwidth[ports] * (1 - len(down) / ports.sum())


def _spans(fault: Fault, retries: Retries | None) -> Iterator[tuple[float, float]]:
    """From when to when nothing passes, or what is slower is."""
    lasts = inf if fault.lasts is None else fault.lasts
    if retries is not None and loses(fault):
        lasts = retries.silence(fault)
    end = -1.0
    for number in range(0 if fault.at is None else REPEATS if fault.every else 1):
        begin = (fault.at or 0.0) + number * (fault.every or 0.0)
        if begin >= end:
            end = begin + lasts
            yield begin, end


def _gpu(topology: Topology, name: str, fault: int) -> int:
    if name not in topology.gpus:
        hint = suggest(name, [str(gpu) for gpu in topology.gpus[:1024]])
        raise TopologyError(f"faults.{fault}.gpu: there is no GPU '{name}'{hint}")
    return topology.gpus.index(name)


def links_named(topology: Topology, text: str, field: str) -> NDArray[np.int64]:
    """The links of a name, whose ends may be patterns; both directions if it says none."""
    ends, lane = _taken_apart(text)
    links = topology.links
    for tail, head in ends:
        sides = _nodes(topology, tail), _nodes(topology, head)
        hit = sides[0][links.tail] & sides[1][links.head]
        if "->" not in text:
            hit |= sides[1][links.tail] & sides[0][links.head]
        if hit.any() and lane is not None:
            count = int(topology.lanes[hit].max()) + 1
            hit &= topology.lanes == lane
            if not hit.any():
                known = ", ".join(f"#{number}" for number in range(min(count, 8)))
                message = f"no cable '{text}': there {'is' if count == 1 else 'are'} {known}"
                raise TopologyError(f"{field}: {message}{' …' * (count > 8)}")
        if hit.any():
            return np.flatnonzero(hit)
    raise TopologyError(f"{field}: no link '{text}': {_why_none(topology, text, ends)}")


def _nodes(topology: Topology, name: str) -> NDArray[np.bool_]:
    found = np.zeros(len(topology.nodes), bool)
    if name in topology.node_number:
        found[topology.node_number[name]] = True
    elif any(sign in name for sign in "*?["):
        found[:] = [fnmatchcase(str(node), name) for node in topology.nodes]
    return found


def _why_none(topology: Topology, text: str, ends: list[tuple[str, str]]) -> str:
    nodes, links = topology.node_number, topology.links
    known = [(a, b) for a, b in [*ends, (text, text)] if a in nodes and b in nodes]
    if known:
        joined = np.unique(links.head[links.tail == nodes[known[0][0]]])[:8]
        near = ", ".join(str(topology.nodes[int(n)]) for n in joined)
        return f"'{known[0][0]}' has links to {near}"
    unknown = next((e for pair in ends[:1] for e in pair if not _nodes(topology, e).any()), text)
    # To suggest: nodes of a host where one is named, else switches.
    names = [name for name in map(str, topology.nodes) if ("." in name) == ("." in unknown)]
    return f"there is no '{unknown}'{suggest(unknown, names[:4096])}"


def told_of(topology: Topology, named: Sequence[str]) -> list[str]:
    """What is to be told of names that stand for several cables."""
    notes = []
    for text in named:
        hit = links_named(topology, text, "link")
        count = len(hit) // (1 if "->" in text else 2)
        several = int(topology.lanes[hit].max()) if len(hit) else 0
        if count > 1:
            one = f" ({text}#0 … #{several} name one each)" if several else ""
            notes.append(f"{text} takes {count} cables{one}")
    return notes


def with_overrides(topology: Topology, overrides: Sequence[Any], usable: float) -> Topology:
    """The topology with other line rates and latencies of links that are named."""
    layout, links = topology.layout, topology.layout.links
    bandwidth, latency = links.bandwidth.copy(), links.latency.copy()
    outside = np.isin(links.kind, [LINK_KINDS.index("fabric"), LINK_KINDS.index("nic")])
    for number, one in enumerate(overrides):
        if one.link is None:
            continue
        hit = links_named(topology, one.link, f"overrides.{number}.link")
        if one.bandwidth is not None:
            bandwidth[hit] = one.bandwidth * np.where(outside[hit], usable, 1.0)
        if one.latency is not None:
            latency[hit] = one.latency
    changed = replace(layout, links=replace(links, bandwidth=bandwidth, latency=latency))
    return replace(topology, description=changed)
