"""Faults: parts of a cluster that are slower or dead, always or for a time, and what capacity
remains.

A fault names parts (links, NICs, switches, rails, hosts, GPUs) and what is left of them. An
*effect* is a fault looked up in a topology: the links and GPUs that it affects, and the fraction of
their rates that it leaves. At any instant the capacity of a link or GPU is the healthy one times
the fractions of all effects that are active then (`remaining_fraction`), whatever their order.

What changes while an operation runs is in `fault_times`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from math import prod
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from netsim.base.errors import shown, suggest
from netsim.base.units import format_bandwidth, parse_bandwidth, parse_ratio
from netsim.base.values import dataclass
from netsim.schedule.schedule import COMPUTING
from netsim.topology.graph import LINK_KINDS, NODE_KINDS, Floats, Longs, Topology, TopologyError
from netsim.yamlio.models import FieldError, Model, Quantity, Seconds

NIC_LINK = LINK_KINDS.index("nic")
FABRIC_LINK = LINK_KINDS.index("fabric")
NIC_NODE = NODE_KINDS.index("nic")
SWITCH_NODES = (NODE_KINDS.index("switch"), NODE_KINDS.index("nvswitch"))


def _what_is_left(value: object) -> tuple[str, float]:
    """Parse what a fault leaves of a link: ("fraction", 0.5), or ("rate", line rate in bytes/s)."""
    if isinstance(value, tuple):  # read before
        return value
    if isinstance(value, str) and value.strip().endswith(("/s", "ps")):
        return "rate", parse_bandwidth(value, allow_zero=True)
    fraction = parse_ratio(value, allow_zero=True)
    if fraction > 1:
        raise ValueError(f"expected what is left of the link, at most 100%, got {shown(value)}")
    return "fraction", fraction


Left = Annotated[tuple[str, float], Quantity(_what_is_left, "0%", "50%", "100Gbps")]


class Fault(Model):
    """One part of a cluster, and what is left of it.

    The part is named by one of these keys; names may be patterns (`node*.nic3`):

    - `link`: `leaf0-spine3` for both directions, `leaf0->spine3` for one. This means all cables
      between the two nodes; with `#1` only cable number 1 of them.
    - `nic`, `switch`, `leaf`, `spine`, `host`, `gpu`: a node or host.
    - `rail`: the NICs of that number in all hosts.

    What is left of it:

    - `bandwidth`: what is left of the links of the part, as a fraction or a line rate. The links of
      a NIC, rail or host are the cables of its NICs, those of a switch all its cables. A NIC, rail,
      switch, leaf or spine without this key is dead.
    - `latency`: latency of the link under the fault; a value below the healthy one has no effect.
    - `slowdown`: factor by which a GPU, or all GPUs of a host, take longer (1.3: 30 % longer).

    When:

    - `at`: seconds after the start of an operation or training step; without it the fault is
      permanent.
    - `for` (field `lasts`): its duration in seconds.
    - `every`: the period in seconds at which it comes again.
    - `loss`: whether a link that is down loses the data in flight (the default); on InfiniBand and
      RoCE the sender repeats them when its retry timer expires. With `loss: false` transfers wait
      until the link is up.
    - `fallback`: whether the other ports of the NIC carry its data meanwhile.
    """

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
    switch: str | None = None
    leaf: str | int | None = None
    spine: str | int | None = None
    rail: str | int | None = None
    host: str | int | None = None

    @model_validator(mode="after")
    def _check_part(self) -> "Fault":
        named = [name for name in PARTS if self._has(name)]
        if len(named) != 1:
            raise FieldError(
                f"expected one of {', '.join(PARTS)}, got {' and '.join(named) or 'none'}"
            )
        part = named[0]
        allowed = EFFECTS_OF_PARTS[part]
        effects = [name for name in ("bandwidth", "latency", "slowdown") if self._has(name)]
        for name in effects:
            if name not in allowed:
                raise FieldError(f"has no meaning for a {part}", name)
        if not effects and part not in DEAD_BY_DEFAULT:
            raise FieldError(NEEDS[part])
        if part == "host" and len(effects) > 1:
            raise FieldError("give bandwidth or slowdown; write a second fault for the other one")
        return self

    @model_validator(mode="after")
    def _check_times(self) -> "Fault":
        only_in_time = ("lasts", "every", "loss", "fallback")
        extra = next((name for name in only_in_time if self._has(name)), None)
        if self.at is None and extra:
            key = "for" if extra == "lasts" else extra
            raise FieldError("needs at: when it begins, such as 2ms", key)
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

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None

    @property
    def part(self) -> str:
        """The kind of part that the fault names: `link`, `nic`, `gpu` and so on."""
        return next(name for name in PARTS if self._has(name))

    @property
    def down(self) -> bool:
        """Whether the fault leaves no bandwidth of its links while it is active."""
        if self.part in ("gpu", "host"):
            return self.bandwidth is not None and self.bandwidth[1] == 0
        if self.bandwidth is None:
            return self.part in DEAD_BY_DEFAULT
        return self.bandwidth[1] == 0

    @property
    def permanent(self) -> bool:
        """Whether the fault is there all the time, so that NCCL plans with it."""
        return self.at is None

    @property
    def loses(self) -> bool:
        """Whether data that is in flight when the fault begins is lost, and sent again after a
        timeout.
        """
        return self.at is not None and self.down and self.loss is not False and not self.fallback


PARTS = ("link", "nic", "switch", "leaf", "spine", "rail", "host", "gpu")
DEAD_BY_DEFAULT = frozenset({"nic", "switch", "leaf", "spine", "rail"})
EFFECTS_OF_PARTS: Mapping[str, tuple[str, ...]] = {
    "link": ("bandwidth", "latency"),
    "nic": ("bandwidth",),
    "switch": ("bandwidth",),
    "leaf": ("bandwidth",),
    "spine": ("bandwidth",),
    "rail": ("bandwidth",),
    "host": ("bandwidth", "slowdown"),
    "gpu": ("slowdown",),
}
NEEDS: Mapping[str, str] = {
    "link": "a link needs what is left of it: bandwidth (0%, 50%) or latency",
    "host": "a host needs bandwidth (what is left of the cables of its NICs) or slowdown (of its "
    "GPUs); to leave it out, take fewer nodes",
    "gpu": "a GPU needs a slowdown such as 1.3",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """What one fault does to a topology.

    Args:
        links: links with less bandwidth; both directions of half-duplex links.
        fractions: fraction that is left of the bandwidth of each of `links`.
        delayed: links that get the latency of the fault.
        gpus: numbers of the GPUs that it slows.
    """

    fault: Fault
    links: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    fractions: Floats = field(default_factory=lambda: np.zeros(0))
    delayed: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    gpus: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    ports: int = 0
    """With `fallback`: the ports of the NIC whose port is down, that one included."""
    down_ports: frozenset[int] = frozenset()
    """With `fallback`: the links of the ports that are down."""


def remaining_fraction(fractions: Iterable[float]) -> float:
    """Return what is left of a capacity when several faults are active at once.

    Each fault leaves a fraction of what the others leave, so fractions multiply. They are sorted
    first, so that the order of the faults cannot change the last digit.

    >>> remaining_fraction([0.5, 1.0, 0.5])
    0.25
    """
    return prod(sorted(fractions))


def with_faults(topology: Topology, faults: Sequence[Fault], usable: float = 1.0) -> Topology:
    """Return the topology with its links and GPUs as permanent faults leave them.

    Its `effects` are those of all faults: `fault_times.in_time` applies the ones that begin later.
    `usable` is the fraction of the line rate of cables that the transport carries.
    """
    return with_effects(topology, effects_of(topology, faults, usable))


def with_effects(topology: Topology, effects: Sequence[Effect]) -> Topology:
    """Return the topology with all permanent effects applied. Effects of later faults are only
    stored in it, for `fault_times.in_time`.
    """
    layout = topology.layout
    links = layout.links
    latency = links.latency.copy()
    link_fractions: dict[int, list[float]] = {}
    slowdowns: dict[int, list[float]] = {}
    for effect in effects:
        if not effect.fault.permanent:
            continue
        if effect.fault.latency is not None:
            latency[effect.delayed] = np.maximum(latency[effect.delayed], effect.fault.latency)
        for link, fraction in zip(effect.links.tolist(), effect.fractions.tolist(), strict=True):
            link_fractions.setdefault(link, []).append(fraction)
        for gpu in effect.gpus.tolist():
            slowdowns.setdefault(gpu, []).append(1 / (effect.fault.slowdown or 1.0))
    bandwidth = links.bandwidth.copy()
    for link, fractions in link_fractions.items():
        bandwidth[link] = scaled_capacity(bandwidth[link], remaining_fraction(fractions))
    capacities: dict[str, NDArray[Any]] = dict(topology.capacities)
    if slowdowns:
        left = np.ones(len(topology))
        for gpu, fractions in slowdowns.items():
            left[gpu] = remaining_fraction(fractions)
        capacities = {name: healthy * left for name, healthy in capacities.items()}
        for name in COMPUTING:
            capacities.setdefault(name, left)
    changed = replace(layout, links=replace(links, bandwidth=bandwidth, latency=latency))
    return replace(topology, description=changed, capacities=capacities, effects=tuple(effects))


def with_slow_gpus(topology: Topology, slowdowns: Mapping[int, float]) -> Topology:
    """Return the topology with additional permanently slow GPUs: `slowdowns` maps the number of a
    GPU to the factor by which it takes longer.
    """
    effects = [
        Effect(
            Fault.model_validate({"gpu": str(topology.gpus[gpu]), "slowdown": slowdown}),
            gpus=np.array([gpu]),
        )
        for gpu, slowdown in slowdowns.items()
    ]
    if not effects:
        return topology
    slower = with_effects(topology, effects)
    return replace(slower, effects=(*topology.effects, *effects))


def slowdowns_of(topology: Topology) -> dict[int, float]:
    """Return the factor by which each GPU takes longer all the time, by number of the GPU; only
    GPUs that are slower.
    """
    left = topology.capacities.get("sms")
    if left is None:
        return {}
    return {gpu: 1 / fraction for gpu, fraction in enumerate(left.tolist()) if 0 < fraction < 1}


def scaled_capacity(capacity: float, fraction: float) -> float:
    """Return `capacity` times `fraction`; 0 if `fraction` is 0, even of an infinite capacity."""
    return capacity * fraction if fraction > 0 else 0.0


def effects_of(topology: Topology, faults: Sequence[Fault], usable: float = 1.0) -> list[Effect]:
    """Look up faults in a healthy topology; return the effect of each. Errors begin with the key
    that they are about, such as `faults.0.link`.

    `usable` is the fraction of the line rate of cables that the transport carries.
    """
    return [_effect(topology, fault, number, usable) for number, fault in enumerate(faults)]


def _effect(topology: Topology, fault: Fault, number: int, usable: float) -> Effect:
    if fault.slowdown is not None:
        return Effect(fault, gpus=_gpus_named(topology, fault, number))
    named = _links_of_part(topology, fault, number)
    if fault.bandwidth is None and not fault.down:  # a link that is only farther away
        return Effect(fault, delayed=named)
    links = _with_other_directions(topology, named)
    fractions = _fractions_left(topology, fault, number, links, usable)
    delayed = named if fault.latency is not None else named[:0]
    if fault.fallback:
        return _fallback_effect(topology, fault, number, links)
    return Effect(fault, links, fractions, delayed)


def _with_other_directions(topology: Topology, named: Longs) -> Longs:
    """Return the links `named` and, of half-duplex links, their other direction as well: both are
    one wire.
    """
    resource = topology.links.resource
    return np.flatnonzero(np.isin(resource, resource[named]))


def _fractions_left(
    topology: Topology, fault: Fault, number: int, links: Longs, usable: float
) -> Floats:
    """Return the fraction that a fault leaves of the bandwidth of each link.

    A rate in the fault is a line rate, as quoted: 200Gbps is half of a 400Gbps port, though the
    transport carries only the fraction `usable` of 400 Gb/s over it. The NICs of a single host have
    no cables: then there are no links, and the result is empty. `number` is the number of the
    fault, for messages.
    """
    unit, left = fault.bandwidth or ("fraction", 0.0)
    if unit == "fraction" or left == 0 or not len(links):
        return np.full(len(links), left)
    cables = np.isin(topology.links.kind[links], (NIC_LINK, FABRIC_LINK))
    line_rates = topology.links.bandwidth[links] / np.where(cables, usable, 1.0)
    fastest = float(line_rates.max())
    if fastest == np.inf:
        raise TopologyError(
            f"faults.{number}.bandwidth: the link has infinite bandwidth; expected a fraction such "
            "as 50%, or its rate in overrides"
        )
    if left > fastest * (1 + RATE_ROUNDING):
        message = f"more than the link has ({format_bandwidth(fastest)})"
        raise TopologyError(f"faults.{number}.bandwidth: {message}")
    return np.minimum(1.0, left / line_rates)


RATE_ROUNDING = 1e-6  # relative; so much more than the line rate is still the line rate


def _fallback_effect(topology: Topology, fault: Fault, number: int, down: Longs) -> Effect:
    """Return the effect of ports that are down while the other ports of their NIC carry their
    traffic.

    Every port of the NIC keeps the same fraction of its bandwidth: with 1 of 2 ports down, 0.5.
    `down` are the links of the ports that are down, `number` is the number of the fault.
    """
    links = topology.links
    is_nic = topology.node_kinds == NIC_NODE
    outward = is_nic[links.tail]
    nic = np.where(outward, links.tail, links.head)
    ports = (links.kind == NIC_LINK) & np.isin(nic, nic[down]) & np.isin(outward, outward[down])
    if ports.sum() <= len(down) or not ports[down].all():
        raise TopologyError(f"faults.{number}.fallback: expected a port of a NIC that has others")
    count = int(ports.sum())
    fractions = np.full(count, 1 - len(down) / count)
    return Effect(
        fault, np.flatnonzero(ports), fractions, ports=count, down_ports=frozenset(down.tolist())
    )


# Finding the links and GPUs that a fault names.


def _links_of_part(topology: Topology, fault: Fault, number: int) -> Longs:
    """Return the links of the part that a fault names; `number` is the number of the fault, for
    messages.
    """
    if fault.link is not None:
        return links_named(topology, fault.link, f"faults.{number}.link")
    nodes = np.flatnonzero(_nodes_of_part(topology, fault, number))
    links = topology.links
    cables = np.isin(links.kind, (NIC_LINK, FABRIC_LINK))
    if fault.part == "switch":
        cables = np.ones(len(links), bool)
    return np.flatnonzero(cables & (np.isin(links.tail, nodes) | np.isin(links.head, nodes)))


def pattern_of_part(fault: Fault) -> str:
    """Return the pattern of the names of the nodes that a fault names.

    `leaf: 3` means `leaf3`, `rail: 3` means `node*.nic3`, and `host: 2` means `node2.nic*`.

    >>> pattern_of_part(Fault(rail=3))
    'node*.nic3'
    """
    name = str(getattr(fault, fault.part))
    if fault.part == "rail":
        return f"node*.nic{name.removeprefix('rail')}"
    if fault.part == "host":
        return f"{_host_name(name)}.nic*"
    if fault.part in ("leaf", "spine"):
        return name if name.startswith(fault.part) or _is_pattern(name) else fault.part + name
    return name


def _host_name(name: str) -> str:
    return f"node{name}" if name.isdigit() else name


def _nodes_of_part(topology: Topology, fault: Fault, number: int) -> NDArray[np.bool_]:
    pattern = pattern_of_part(fault)
    kinds = (NIC_NODE,) if fault.part in ("nic", "rail", "host") else SWITCH_NODES
    is_part = nodes_named(topology, pattern) & np.isin(topology.node_kinds, kinds)
    if is_part.any():
        return is_part
    names = [
        str(name)
        for name, kind in zip(topology.nodes, topology.node_kinds.tolist(), strict=True)
        if kind in kinds
    ]
    hint = suggest(pattern, names[:4096])
    part_name = {"nic": "NIC", "rail": "NIC", "host": "NIC"}.get(fault.part, "switch")
    raise TopologyError(f"faults.{number}.{fault.part}: there is no {part_name} '{pattern}'{hint}")


def _gpus_named(topology: Topology, fault: Fault, number: int) -> Longs:
    """Return the numbers of the GPUs that a fault slows; `number` is the number of the fault."""
    pattern = str(fault.gpu) if fault.gpu is not None else f"{_host_name(str(fault.host))}.gpu*"
    names = [str(gpu) for gpu in topology.gpus]
    if pattern in names:
        return np.array([names.index(pattern)])
    matching = [place for place, name in enumerate(names) if fnmatchcase(name, pattern)]
    if matching and _is_pattern(pattern):
        return np.array(matching)
    hint = suggest(pattern, names[:1024])
    raise TopologyError(f"faults.{number}.{fault.part}: there is no GPU '{pattern}'{hint}")


def _ends_and_cable(text: str) -> tuple[list[tuple[str, str]], int | None]:
    """Return every way to read the name of a link as (tail, head), and the number of the cable
    (None if the name has none).

    A name with several dashes can be divided at each of them.

    >>> _ends_and_cable("leaf0->spine3#1")
    ([('leaf0', 'spine3')], 1)
    >>> _ends_and_cable("a-b-c")
    ([('a', 'b-c'), ('a-b', 'c')], None)
    """
    name, sign, number = text.rpartition("#")
    cable = int(number) if sign and number.isascii() and number.isdigit() else None
    name = text if cable is None else name
    if "->" in name:
        tail, _, head = name.partition("->")
        return [(tail, head)], cable
    dashes = [place for place, letter in enumerate(name) if letter == "-"]
    return [(name[:place], name[place + 1 :]) for place in dashes], cable


def links_named(topology: Topology, text: str, field_name: str) -> Longs:
    """Return the links that a name such as `leaf0-spine3`, `leaf0->spine3` or `leaf0-spine3#1`
    means.

    The names of both nodes may be patterns. Without `->` both directions are returned. `field_name`
    is the key in the file, for messages. Raises a TopologyError if there is no such link.
    """
    ends, cable = _ends_and_cable(text)
    links = topology.links
    for tail, head in ends:
        near = nodes_named(topology, tail)
        far = nodes_named(topology, head)
        hit = near[links.tail] & far[links.head]
        if "->" not in text:
            hit |= far[links.tail] & near[links.head]
        if hit.any() and cable is not None:
            count = int(topology.parallel_numbers[hit].max()) + 1
            hit &= topology.parallel_numbers == cable
            if not hit.any():
                cables = ", ".join(f"#{number}" for number in range(min(count, 8)))
                verb = "is" if count == 1 else "are"
                more = " …" if count > 8 else ""
                raise TopologyError(f"{field_name}: no cable '{text}': there {verb} {cables}{more}")
        if hit.any():
            return np.flatnonzero(hit)
    raise TopologyError(f"{field_name}: no link '{text}': {_why_no_link(topology, text, ends)}")


def nodes_named(topology: Topology, name: str) -> NDArray[np.bool_]:
    """Mask over the nodes: True if a name or pattern matches the node."""
    is_named = np.zeros(len(topology.nodes), bool)
    if name in topology.node_number:
        is_named[topology.node_number[name]] = True
    elif _is_pattern(name):
        is_named[:] = [fnmatchcase(str(node), name) for node in topology.nodes]
    return is_named


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _why_no_link(topology: Topology, text: str, ends: list[tuple[str, str]]) -> str:
    """Return why there is no link named `text`: its neighbors, similar names, or the key that was
    probably meant. `ends` are the ways to read the name as (tail, head).
    """
    nodes = topology.node_number
    links = topology.links
    if text in nodes:
        kind = NODE_KINDS[int(topology.node_kinds[nodes[text]])]
        key = {"nic": "nic", "switch": "switch", "nvswitch": "switch"}.get(kind)
        if key is not None:
            kind = kind.replace("nic", "NIC")
            return f"'{text}' is a {kind}; write {{{key}: {text}}} for all its cables"
    existing_ends = [(tail, head) for tail, head in ends if tail in nodes and head in nodes]
    if existing_ends:
        tail, _ = existing_ends[0]
        neighbors = np.unique(links.head[links.tail == nodes[tail]])[:8]
        near = ", ".join(str(topology.nodes[int(node)]) for node in neighbors)
        return f"'{tail}' has links to {near}"
    every_end = (end for pair in ends[:1] for end in pair)
    unknown = next((end for end in every_end if not nodes_named(topology, end).any()), text)
    # Suggest nodes inside hosts if the unknown name has a dot, else switches.
    names = [name for name in map(str, topology.nodes) if ("." in name) == ("." in unknown)]
    return f"there is no '{unknown}'{suggest(unknown, names[:4096])}"


def notes_on_names(topology: Topology, names: Sequence[str]) -> list[str]:
    """Return a note for the user on each name of a link that means several cables."""
    notes = []
    for text in names:
        hit = links_named(topology, text, "link")
        count = len(hit) // (1 if "->" in text else 2)
        last = int(topology.parallel_numbers[hit].max()) if len(hit) else 0
        if count > 1:
            hint = f" ({text}#0 … #{last} name one each)" if last else ""
            notes.append(f"{text} takes {count} cables{hint}")
    return notes


# Parts without any capacity from the start: NCCL and routes plan without them.


@dataclass(frozen=True, slots=True)
class Damage:
    """What is dead from the start.

    Args:
        nics: numbers of dead NICs by the name of their host.
        inside: dead links inside hosts (local names such as `gpu0->pcie0`) by the name of the host.
        links: numbers of all dead links in the healthy topology.
    """

    nics: Mapping[str, frozenset[int]] = field(default_factory=dict)
    inside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    links: frozenset[int] = frozenset()

    def nics_of(self, host: str) -> frozenset[int]:
        """Return the numbers of the dead NICs of a host."""
        return self.nics.get(host, frozenset())

    def links_in(self, host: str) -> tuple[str, ...]:
        """Return the local names of the dead links inside a host."""
        return self.inside.get(host, ())


NO_DAMAGE = Damage()


def find_damage(topology: Topology, effects: Sequence[Effect]) -> Damage:
    """Return the parts that permanent effects leave without any capacity.

    A NIC is dead if a fault says so, if none of its cables works in both directions, or if none of
    its links to the host does.
    """
    permanent = [effect for effect in effects if effect.fault.permanent]
    dead = np.zeros(len(topology.links), bool)
    killed = np.zeros(len(topology.nodes), bool)
    for effect in permanent:
        dead[effect.links[effect.fractions == 0]] = True
        if effect.fault.part in ("nic", "rail") and effect.fault.down:
            killed |= nodes_named(topology, pattern_of_part(effect.fault))
    if not dead.any() and not killed.any():
        return NO_DAMAGE
    killed |= _nics_cut_off(topology, dead)
    nics: dict[str, set[int]] = {}
    for node in np.flatnonzero(killed & (topology.node_kinds == NIC_NODE)).tolist():
        host, _, name = str(topology.nodes[node]).partition(".nic")
        nics.setdefault(host, set()).add(int(name))
    return Damage(
        {host: frozenset(numbers) for host, numbers in nics.items()},
        _dead_links_by_host(topology, dead),
        frozenset(np.flatnonzero(dead).tolist()),
    )


def _nics_cut_off(topology: Topology, dead: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask over the nodes: True for NICs with no cable, or no link to the host, that works in both
    directions. `dead` is a mask over the links.
    """
    links = topology.links
    is_nic = topology.node_kinds == NIC_NODE
    cut_off = np.zeros(len(topology.nodes), bool)
    for node in np.unique(np.r_[links.tail[dead], links.head[dead]]).tolist():
        if not is_nic[node]:
            continue
        for outside in (True, False):
            side = (links.kind == NIC_LINK) == outside
            leaving = side & (links.tail == node)
            arriving = side & (links.head == node)
            neighbors = set(links.head[leaving].tolist())
            working = {
                (far, cable)
                for far, cable in zip(
                    links.head[leaving & ~dead].tolist(),
                    topology.parallel_numbers[leaving & ~dead].tolist(),
                    strict=True,
                )
            }
            working &= {
                (near, cable)
                for near, cable in zip(
                    links.tail[arriving & ~dead].tolist(),
                    topology.parallel_numbers[arriving & ~dead].tolist(),
                    strict=True,
                )
            }
            if neighbors and not working:
                cut_off[node] = True
    return cut_off


def _dead_links_by_host(topology: Topology, dead: NDArray[np.bool_]) -> dict[str, tuple[str, ...]]:
    """Return the local names of dead links inside hosts, by the name of the host.

    A link to an NVSwitch that several hosts share belongs to the host at its other end. `dead` is a
    mask over the links.
    """
    by_host: dict[str, list[str]] = {}
    for link in np.flatnonzero(dead).tolist():
        ends = topology.links.tail[link], topology.links.head[link]
        tail, head = (str(topology.nodes[int(end)]) for end in ends)
        hosts = {end.partition(".")[0] for end in (tail, head) if end.startswith("node")}
        local = [end.partition(".")[2] for end in (tail, head)]
        if len(hosts) == 1 and all(local):
            by_host.setdefault(hosts.pop(), []).append("->".join(local))
    return {host: tuple(names) for host, names in by_host.items()}


def moved_effects(
    effects: Sequence[Effect], healthy: Topology, damaged: Topology
) -> tuple[Effect, ...]:
    """Return the effects with their links renumbered from the healthy topology to the damaged one,
    which lacks dead NICs and their cables.

    Links are matched by name; links that no longer exist are dropped from the effects.
    """
    number_of = {
        damaged.link_name(link): link for link in _candidate_links(effects, healthy, damaged)
    }
    moved = []
    for effect in effects:
        places = [number_of.get(healthy.link_name(link), -1) for link in effect.links.tolist()]
        is_present = np.array([place >= 0 for place in places], bool)
        delayed = [number_of.get(healthy.link_name(link), -1) for link in effect.delayed.tolist()]
        moved.append(
            replace(
                effect,
                links=np.array(places, np.int64)[is_present],
                fractions=effect.fractions[is_present],
                delayed=np.array([link for link in delayed if link >= 0], np.int64),
            )
        )
    return tuple(moved)


def _candidate_links(effects: Sequence[Effect], healthy: Topology, damaged: Topology) -> list[int]:
    """Return the links of the damaged topology that could be those of the effects: all that leave a
    node from which an affected link of the healthy topology leaves.
    """
    struck = {link for effect in effects for link in (*effect.links, *effect.delayed)}
    chosen = np.array(sorted(struck), np.int64)
    tails = np.unique(healthy.links.tail[chosen])
    names = {healthy.nodes[int(node)] for node in tails}
    near = np.array([name in names for name in damaged.nodes], bool)
    return [int(link) for link in np.flatnonzero(near[damaged.links.tail])]


def with_overrides(topology: Topology, overrides: Sequence[Any], usable: float) -> Topology:
    """Return the topology with the line rates and latencies that `overrides` (config.Override) give
    to named links.

    `usable` is the fraction of the line rate of cables that the transport carries.
    """
    layout, links = topology.layout, topology.layout.links
    bandwidth = links.bandwidth.copy()
    latency = links.latency.copy()
    cables = np.isin(links.kind, (FABRIC_LINK, NIC_LINK))
    for number, override in enumerate(overrides):
        if override.link is None:
            continue
        named = links_named(topology, override.link, f"overrides.{number}.link")
        if override.bandwidth is not None:
            wires = _with_other_directions(topology, named)
            bandwidth[wires] = override.bandwidth * np.where(cables[wires], usable, 1.0)
        if override.latency is not None:
            latency[named] = override.latency
    changed = replace(layout, links=replace(links, bandwidth=bandwidth, latency=latency))
    return replace(topology, description=changed)
