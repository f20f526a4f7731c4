"""A machine as its file describes it; transports; the source of every figure (its stamp);
calibration.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from math import inf
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from netsim.base.constants import value
from netsim.base.errors import suggest
from netsim.base.units import parse_bandwidth, parse_ratio, parse_size, parse_time
from netsim.base.values import dataclass
from netsim.topology.host_costs import HostCosts
from netsim.yamlio import models

Stamp = Literal["measured", "calibrated", "vendor", "transferred", "assumed"]
MACHINE = ("scale_up.link_bandwidth", "cpu.memory_bandwidth")
USABLE = "transport.usable"
TRANSPORT = (USABLE, "transport.latency", "transport.nic_cap")
BOTH_WAYS = "pcie.both_ways"
RATIOS = (USABLE, "nvls_efficiency", BOTH_WAYS, "phb_lines")
RATES = (*MACHINE, "transport.nic_cap")

Kind = Literal["time", "rate", "ratio", "bytes"]
# For each kind of quantity: the function that reads it, the factor from SI units to the unit in
# which it is written, and the format for writing it.
KINDS: Mapping[Kind, tuple[Callable[[Any], float], float, str]] = {
    "time": (parse_time, 1e6, "{:.4g}us"), "rate": (parse_bandwidth, 1e-9, "{:.5g}GB/s"),
    "ratio": (parse_ratio, 1.0, "{:.4g}"), "bytes": (parse_size, 1.0, "{:.0f}B"),
}  # fmt: skip


class Figure(models.Model):
    """A calibrated value with its unit.

    - `value`: a number or a text with a unit.
    - `stamp`: where it is from.
    - `low`, `high`: the range in which it probably lies.
    """

    value: str | float
    stamp: Stamp = "calibrated"
    low: str | float | None = None
    high: str | float | None = None


def kind_of(name: str) -> Kind:
    """Return the kind of quantity of a calibrated figure: time, rate, ratio or bytes."""
    if name in RATIOS or name.endswith("_bytes"):
        return "ratio" if name in RATIOS else "bytes"
    rates = name in RATES or name.startswith("rate.") or name.endswith("_rate")
    return "rate" if rates else "time"


def value_of(name: str, figure: Figure) -> float:
    """Return the value of a figure in SI units."""
    return float(KINDS[kind_of(name)][0](figure.value))


def written(name: str, value: float) -> str:
    """Return a value in SI units as the text that a machine file has for the figure `name`."""
    _, part, text = KINDS[kind_of(name)]
    return text.format(value * part)


# Where every figure of a machine is from: the key `stamps` of its file lists paths under one of
# five words (`measured`, `vendor`, …). A path names a figure (`gpu.sms`), or a part (`gpu.flops`)
# with all its figures; the longest path that applies to a figure decides. A figure without a stamp
# is assumed. Figures in the section `calibration` have a stamp of their own.

WORDS: tuple[Stamp, ...] = get_args(Stamp)
PROSE = ("description", "purpose", "stamps", "calibration")  # these hold no figures
NAMES = ("family", "model_id")  # nor are the numbers by which a CPU is called
Stamps = Mapping[Stamp, tuple[str, ...]]


@dataclass(frozen=True)
class Stamped:
    """One figure of a machine: its path, its value (in SI units, or as written in `calibration`),
    and its stamp (where it is from).
    """

    path: str
    value: Any
    stamp: Stamp


def figures_of(parts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every figure that a machine file states; names of parts are not
    figures.
    """
    for name, part in parts.items():
        if name not in PROSE:
            yield from _figures(part, name)


def _figures(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, models.Model):
        for name in type(value).model_fields:
            if name in value.model_fields_set and name not in NAMES:
                yield from _figures(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            yield f"{path}.{key}", inside
    elif value is not None and not isinstance(value, str):
        yield path, value


def stamped(
    parts: Mapping[str, Any], stamps: Stamps, calibration: Mapping[str, Figure]
) -> list[Stamped]:
    """Return every figure with its stamp, or the stamp of the smallest part that contains it.

    A calibrated figure replaces the nominal one of the same path.
    """
    words = {path: word for word, paths in stamps.items() for path in paths}
    entries = [
        Stamped(path, value, next((words[p] for p in _upwards(path) if p in words), "assumed"))
        for path, value in figures_of(parts)
        if path not in calibration
    ]
    return entries + [Stamped(name, one.value, one.stamp) for name, one in calibration.items()]


def check_stamps(parts: Mapping[str, Any], stamps: Stamps) -> None:
    """Refuse stamps whose path is no figure and no part with figures, and paths that are stamped
    twice.
    """
    known_paths = sorted({part for path, _ in figures_of(parts) for part in _upwards(path)})
    seen: dict[str, str] = {}
    for word, paths in stamps.items():
        for number, path in enumerate(paths):
            if path not in known_paths:
                message = f"this machine has no figure '{path}'{suggest(path, known_paths)}"
                raise models.FieldError(message, word, number)
            if path in seen:
                raise models.FieldError(f"'{path}' is stamped {seen[path]} already", word, number)
            seen[path] = word


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]


# Transports: the physical properties of a kind of network. The additional costs of NCCL's protocols
# are in `netsim.nccl`.

TransportName = Literal["infiniband", "roce", "efa", "tcpxo", "slingshot", "tcp", "nvlink"]


@dataclass(frozen=True, slots=True)
class Transport:
    """A kind of network.

    - `hop`: seconds of one switch hop.
    - `usable`: the fraction of a line rate that carries data.
    - `nic_cap`: the most bytes a second of a NIC.
    - `latency`: seconds that a message takes end to end in addition to NICs, cables and switches.
    - `stated_latency`: how much of `latency` its NCCL plugin reports to NCCL (NCCL 2.18 and later).
    - `window`: the most bytes of a connection that may be sent and not yet acknowledged.
    - `gpudirect`: whether NICs reach GPU memory directly.
    - `groups`: whether NICs beyond one for each GPU appear to NCCL as one.
    - `routing`: how its switches usually choose between equal paths.
    - `adaptive_from`: NICs of this line rate (bytes/s) and faster ones belong to a generation whose
      switches usually spread the packets of a message over all equal paths instead.
    - `in_order`: packets that overtake others are dropped and sent again, so a message keeps to one
      path. Otherwise receivers place packets as they come, and a message ends with its last packet.
    - `incast`: the fraction by which a byte takes longer to receive for each further NIC that sends
      to the same NIC (0: not measured).

    `base/constants.csv` states the sources of the figures.
    """

    name: str
    hop: float
    usable: float
    nic_cap: float = inf
    latency: float = 0.0
    stated_latency: float = 0.0
    window: float = inf
    gpudirect: bool = True
    groups: bool = False
    routing: str = "static"
    adaptive_from: float = inf
    in_order: bool = False
    incast: float = 0.0

    def routing_for(self, nic_rate: float) -> str:
        """How switches usually choose between equal paths where the fastest NIC has a line rate of
        `nic_rate` bytes/s.

        >>> TRANSPORTS["infiniband"].routing_for(12.5e9)  # EDR
        'static'
        >>> TRANSPORTS["infiniband"].routing_for(50e9)  # NDR
        'spray'
        """
        return "spray" if nic_rate >= self.adaptive_from else self.routing


_ETHERNET: dict[str, Any] = {"routing": "ecmp", "in_order": True}
PROFILES: dict[str, dict[str, Any]] = {
    "infiniband": {"adaptive_from": value("infiniband.adaptive_from")},
    "roce": _ETHERNET,
    "efa": {"latency": value("efa.latency"), "stated_latency": value("efa.stated_latency"),
            "incast": value("efa.incast"), "groups": True, "routing": "spray"},
    "tcpxo": {**_ETHERNET, "latency": value("tcpxo.latency")},
    "slingshot": {"routing": "spray"},
    "tcp": {**_ETHERNET, "nic_cap": value("tcp.nic_cap"), "latency": value("tcp.latency"),
            "gpudirect": False, "window": value("tcp.window")},
}  # fmt: skip
TRANSPORTS = {
    name: Transport(name, value(f"{name}.hop"), value(f"{name}.usable"), **PROFILES.get(name, {}))
    for name in get_args(TransportName)
}


# The Machine: one host as a file describes it, part by part, every figure in SI units. Devices are
# `at` a place of the PCIe tree: `cpu0`, `cpu1`, … (NUMA domains; behind a host bridge of their own,
# or, as `cpu0.1`, behind bridge 1 together with others) or `pcie0`, `pcie1`, … (switches). This
# module does not know clusters.

Dtype = Literal["double", "float", "tf32", "half", "bfloat16", "fp8", "fp6", "fp4", "int8"]
LinkKind = Literal["nvlink", "xgmi", "c2c", "pcie", "upi", "hostmem", "nic"]
BRIDGE = re.compile(r"(cpu\d+)\.\d{1,3}", re.ASCII)
ARCH = re.compile(r"sm_\d{2,3}[af]?|gfx[0-9a-f]{3,5}", re.ASCII)
PeerLinks = Annotated[tuple[models.Index, models.Index, models.Count], Strict(False)]

# Raw rate of one lane in one direction after line coding, bytes/s (PCI-SIG base specifications).
PCIE_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
PCIE_MEASURED = (3, 5)  # the oldest and the newest generation of which runs show both ways
PCIE_EFFICIENCY = value("pcie.efficiency")  # what is left for data after packet headers


def _arch(name: str) -> str:
    if not ARCH.fullmatch(name):
        raise ValueError(f"expected an architecture such as sm_90 or gfx942, got '{name}'")
    return name


class PcieLink(models.Model):
    """A PCIe link: generation and width, or `bandwidth`: measured usable bytes/s in each
    direction.
    """

    generation: Annotated[int, Field(ge=1, le=6)]
    width: Literal[1, 2, 4, 8, 16, 32] = 16
    bandwidth: models.Bandwidth | None = None

    @property
    def usable(self) -> float:
        """Bytes/s of data in each direction."""
        return self.bandwidth or PCIE_LANE[self.generation] * self.width * PCIE_EFFICIENCY


class Pcie(PcieLink):
    """The PCIe tree, and the link of all parts that state no other.

    - `switches`: the place of each switch in the tree.
    - `uplinks`: the link of each switch to the part above it, if these differ.
    - `bridged`: whether NCCL sees every device behind a bridge of its own, so that a GPU and a NIC
      on the same switch are PXB and not PIX.
    """

    switches: models.ListOf[str] = ()
    uplinks: models.ListOf[PcieLink] | None = None
    bridged: bool = False

    def uplink(self, switch: int) -> PcieLink:
        """Return the link of a switch to the part above it in the tree."""
        return self.uplinks[switch] if self.uplinks else self


class Gpu(models.Model):
    """The GPUs of a machine, all of one model.

    - `flops`: peak of dense operations a second, by data type.
    - `at`: place of each GPU in the PCIe tree, or one place for all.
    - `pcie`: PCIe link of each GPU, or one for all.
    """

    model: str
    count: models.Count
    arch: Annotated[str, AfterValidator(_arch)]
    sms: models.Count
    memory: models.Bytes
    memory_bandwidth: models.Bandwidth
    flops: dict[Dtype, models.Flops]
    power: models.Watts | None = None
    at: models.ListOf[str]
    pcie: PcieLink | models.ListOf[PcieLink] | None = None

    @property
    def sm(self) -> int:
        """The compute capability as NCCL writes it (90 for 9.0); 0 for GPUs of other makers."""
        digits = self.arch.removeprefix("sm_").rstrip("af")
        return int(digits) if self.arch.startswith("sm_") and digits.isdigit() else 0


class ScaleUp(models.Model):
    """NVLink or xGMI between the GPUs of a machine.

    - `link_bandwidth`: bytes/s of one link in each direction after protocol overhead.
    - `links`: links of every GPU to the switches or, without switches, to every other GPU.
    - `links_each`: links of each GPU to the switches in device order, if they differ (0: none);
      `links` is then the largest of them.
    - `switches`: number of switches.
    - `peers`: linked pairs of GPUs as (GPU, GPU, links), if not all pairs have the same.
    - `hosts`: number of hosts that share the switches.
    - `multicast`: whether the switches can add up and copy data (NVLS).
    - `fitted`: false if the machine has the ports, but no bridge.
    """

    kind: Literal["nvlink", "xgmi"]
    link_bandwidth: models.Bandwidth
    links: models.Count | None = None
    links_each: models.ListOf[models.Index] | None = None
    switches: models.Count | None = None
    peers: models.ListOf[PeerLinks] = ()
    hosts: models.Count = 1
    multicast: bool = False
    fitted: bool = True

    @model_validator(mode="after")
    def _one_shape(self) -> "ScaleUp":
        if (self.links is None) == (not self.peers):
            raise models.FieldError(
                "expected either links (to the switch, or to every peer) or peers, a list such as "
                "[[0, 1, 4]] for 4 links between GPU 0 and GPU 1"
            )
        if self.switches is None and (self.multicast or self.hosts > 1):
            raise models.FieldError("multicast and several hosts need switches")
        if self.switches is not None and self.peers:
            raise models.FieldError("GPUs on switches have links, not peers", "peers")
        if self.links_each is not None:
            self._check_links_each(self.links_each)
        return self

    @model_serializer(mode="wrap")
    def _without_unused_key(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `links_each` out if it is not set.

        Names of cells are made of what is written here; results that were stored before the key
        existed keep their names.
        """
        written: dict[str, Any] = handler(self)
        if self.links_each is None:
            written.pop("links_each", None)
        return written

    def _check_links_each(self, links_each: tuple[int, ...]) -> None:
        """Refuse `links_each` without switches, or with another maximum than `links`."""
        if self.switches is None:
            message = "links of single GPUs need switches; links between two GPUs are peers"
            raise models.FieldError(message, "links_each")
        most = max(links_each, default=0)
        if most != self.links:
            message = f"expected links to be the most of links_each, {most}, got {self.links}"
            raise models.FieldError(message, "links_each")

    def switch_links(self, gpu: int) -> int:
        """Return the number of links of one GPU to the switches."""
        if self.links_each is not None:
            return self.links_each[gpu]
        return self.links or 0

    def pairs(self, gpus: int) -> tuple[tuple[int, int, int], ...]:
        """Return (GPU, GPU, number of links) for every two GPUs with links to each other or to the
        same switches.

        For switches it is the smaller of the two GPUs' numbers of links to them.
        """
        if self.peers:
            return self.peers
        two = combinations(range(gpus), 2)
        if self.links_each is None:
            return tuple((a, b, self.links or 0) for a, b in two)
        shared = ((a, b, min(self.links_each[a], self.links_each[b])) for a, b in two)
        return tuple(pair for pair in shared if pair[2])

    def links_of(self, gpus: int) -> int:
        """Return the most NVLinks that any of the first `gpus` GPUs has."""
        if self.switches is not None:
            return self.links or 0
        pairs = self.pairs(gpus)
        return max(sum(count for *pair, count in pairs if gpu in pair) for gpu in range(gpus))


class C2c(models.Model):
    """The coherent link of a GPU with its CPU (NVLink-C2C): bytes/s in each direction."""

    bandwidth: models.Bandwidth


class Cpu(models.Model):
    """The CPUs of a machine.

    - `domains`: number of NUMA domains that have devices.
    - `memory_bandwidth`: bytes/s of the memory of one domain, reading and writing together.
    - `link`: bytes/s from one domain to another, in each direction.
    """

    vendor: str
    model: str
    arch: Literal["x86_64", "arm64", "ppc64"] = "x86_64"
    family: models.Index = 0
    model_id: models.Index = 0
    domains: Annotated[models.Count, Field(le=1024)]
    memory: models.Bytes | None = None
    memory_bandwidth: models.Bandwidth
    link: models.Bandwidth | None = None

    @model_validator(mode="after")
    def _linked(self) -> "Cpu":
        if self.domains > 1 and self.link is None:
            raise models.FieldError(
                "two domains need a link: the bandwidth between them in one direction"
            )
        return self


class Nics(models.Model):
    """The NICs of a machine.

    - `rate`: line rate of each NIC in bytes/s; `rate_each`: of every NIC, if they differ.
    - `at`: place of each NIC in the PCIe tree, or one place for all.
    - `gpudirect`: whether they reach GPU memory without passing through the host's.
    - `pcie`: PCIe link of each NIC, or one for all.
    """

    model: str
    count: models.Count
    rate: models.Bandwidth
    rate_each: models.ListOf[models.Bandwidth] | None = None
    at: models.ListOf[str]
    gpudirect: bool = True
    pcie: PcieLink | models.ListOf[PcieLink] | None = None

    @property
    def rates(self) -> tuple[float, ...]:
        """The line rate of every NIC in bytes/s."""
        return self.rate_each or (self.rate,) * self.count


class Machine(models.Model):
    """One host.

    - `scale_up`: NVLink or xGMI between its GPUs.
    - `c2c`: coherent links between GPUs and CPUs.
    - `p2p`: whether GPUs may reach each other's memory over PCIe.
    - `host`: time of a kernel launch, if that or the class of the host is known (`host_costs.py`).
    - `transport`: kind of network of its NICs.
    - `latencies`: seconds to cross a link by its kind, if not the usual ones.
    - `calibration`: figures that were fitted to measurements of this very system, by name
      (`kind_of`).
    - `stamps`: paths of figures by the word for where they are from; others are assumed.
    """

    description: str
    purpose: str = ""
    gpu: Gpu
    scale_up: ScaleUp | None = None
    c2c: C2c | None = None
    pcie: Pcie
    cpu: Cpu
    nics: Nics | None = None
    p2p: bool = True
    host: HostCosts | None = None
    transport: TransportName = "infiniband"
    latencies: dict[LinkKind, models.Seconds] = Field(default_factory=dict)
    calibration: dict[str, Figure] = Field(default_factory=dict)
    stamps: dict[Stamp, models.ListOf[str]] = Field(default_factory=dict)

    @field_validator("stamps")
    @classmethod
    def _stamped(
        cls, stamps: dict[Stamp, tuple[str, ...]], info: ValidationInfo
    ) -> dict[Stamp, tuple[str, ...]]:
        if len(info.data) == len(cls.model_fields) - 1:  # else another part is wrong already
            check_stamps(info.data, stamps)
        return stamps

    @property
    def sources(self) -> list[Stamped]:
        """Every figure of the machine with its stamp (where it is from)."""
        parts = {name: getattr(self, name) for name in type(self).model_fields}
        return stamped(parts, self.stamps, self.calibration)

    @model_validator(mode="after")
    def _calibrated(self) -> "Machine":
        for name, figure in self.calibration.items():
            try:
                value_of(name, figure)
            except ValueError as error:
                raise models.FieldError(str(error), "calibration", name, "value") from None
        return self

    @model_validator(mode="after")
    def _places(self) -> "Machine":
        cpus = [f"cpu{i}" for i in range(self.cpu.domains)]
        places = list(cpus)
        for number, parent in enumerate(self.pcie.switches):
            _check_place(parent, places, "pcie", "switches", number)
            places.append(f"pcie{number}")
        if self.pcie.uplinks and len(self.pcie.uplinks) != len(self.pcie.switches):
            message = f"expected one for each of {len(self.pcie.switches)} switches"
            raise models.FieldError(message, "pcie", "uplinks")
        for part, name in ((self.gpu, "gpu"), (self.nics, "nics")):
            if part is not None:
                _check_at(part, name, places)
        if self.scale_up is not None:
            _check_links_each(self.scale_up, self.gpu.count)
            _check_peers(self.scale_up, self.gpu.count)
        return self

    def gpu_at(self, gpu: int) -> str:
        """Return the place of a GPU in the PCIe tree, with its host bridge if the file states
        it.
        """
        return self.gpu.at[gpu if len(self.gpu.at) > 1 else 0]

    def nic_at(self, nic: int) -> str:
        """Return the place of a NIC in the PCIe tree, with its host bridge if stated; empty without
        NICs.
        """
        at = self.nics.at if self.nics else ("",)
        return at[nic if len(at) > 1 else 0]

    @property
    def switches_at(self) -> tuple[str, ...]:
        """The CPU or switch above each PCIe switch."""
        return tuple(map(node_of, self.pcie.switches))

    def link_of(self, part: Gpu | Nics, number: int) -> PcieLink:
        """Return the PCIe link of GPU or NIC number `number`; `part` is `machine.gpu` or
        `machine.nics`.
        """
        stated = part.pcie
        return (stated[number] if isinstance(stated, tuple) else stated) or self.pcie


def node_of(place: str) -> str:
    """Return the CPU or switch of a place, without its host bridge: `cpu0` of `cpu0.1`."""
    return place.partition(".")[0]


def _check_place(place: str, places: list[str], *path: str | int) -> None:
    bridge = BRIDGE.fullmatch(place)
    if (bridge.group(1) if bridge else place) not in places:
        hint = f"{suggest(place, places)}; known: {', '.join(places)}"
        raise models.FieldError(
            f"expected a CPU or a PCIe switch above, got '{place}'{hint}", *path
        )


def _check_at(part: Gpu | Nics, name: str, places: list[str]) -> None:
    if len(part.at) not in (1, part.count):
        raise models.FieldError(
            f"expected one place, or one for each of {part.count}, got {len(part.at)}", name, "at"
        )
    rate_each = part.rate_each if isinstance(part, Nics) else None
    for key, rates in (("pcie", part.pcie), ("rate_each", rate_each)):
        if isinstance(rates, tuple) and len(rates) != part.count:
            raise models.FieldError(
                f"expected one for each of {part.count}, got {len(rates)}", name, key
            )
    for number, place in enumerate(part.at):
        _check_place(place, places, name, "at", number)


def _check_links_each(scale_up: ScaleUp, gpus: int) -> None:
    count = gpus if scale_up.links_each is None else len(scale_up.links_each)
    if count != gpus:
        message = f"expected one number for each of {gpus} GPUs, got {count}"
        raise models.FieldError(message, "scale_up", "links_each")


def _check_peers(scale_up: ScaleUp, gpus: int) -> None:
    seen: set[frozenset[int]] = set()
    for number, (a, b, _) in enumerate(scale_up.peers):
        if a == b or max(a, b) >= gpus:
            raise models.FieldError(
                f"expected two of GPU 0 to {gpus - 1}, got {a} and {b}", "scale_up", "peers", number
            )
        if frozenset((a, b)) in seen:
            raise models.FieldError(f"GPU {a} and {b} twice", "scale_up", "peers", number)
        seen.add(frozenset((a, b)))


# Applying the section `calibration` of a machine file: figures by dotted name that were fitted to
# or measured on this very system, each with its stamp. The figures of the machine and its transport
# are applied here, those of execution by `netsim.nccl`.


def calibrated_machine(machine: Machine) -> Machine:
    """Return the machine with its calibrated figures in place of its nominal ones."""
    for name in MACHINE:
        part, _, field = name.partition(".")
        figure = machine.calibration.get(name)
        now = getattr(machine, part)
        if figure is not None and now is not None:
            changed = now.model_copy(update={field: value_of(name, figure)})
            machine = machine.model_copy(update={part: changed})
    return machine


def oldest_machine(machines: Iterable[Machine]) -> Machine:
    """Return the machine with the oldest generation of GPUs. A communicator over several kinds of
    machines uses its figures, because NCCL decides by the lowest compute capability for all GPUs.

    Between machines of one generation the choice is arbitrary, but it does not depend on their
    order.
    """
    different: list[Machine] = []
    for machine in machines:
        if machine not in different:
            different.append(machine)
    if len(different) == 1:
        return different[0]
    return min(different, key=lambda machine: (machine.gpu.sm, machine.model_dump_json()))


def calibrated_transport(transport: Transport, machine: Machine) -> Transport:
    """Return the transport with the figures of a machine's `calibration`."""
    changes: dict[str, Any] = {
        name.partition(".")[2]: value_of(name, machine.calibration[name])
        for name in TRANSPORT
        if name in machine.calibration
    }
    return replace(transport, **changes) if changes else transport


def both_ways_constant(machine: Machine) -> str:
    """Return the name of the constant that `both_ways` uses: that of the PCIe generation of the
    GPUs, or of the nearest generation that was measured.
    """
    oldest, newest = PCIE_MEASURED
    generation = min(max(machine.link_of(machine.gpu, 0).generation, oldest), newest)
    return f"{BOTH_WAYS}.gen{generation}"


def both_ways(machine: Machine) -> float:
    """Return the rate of GPUs' loads and stores over a PCIe link, both directions together, as a
    multiple of the rate in one direction.
    """
    figure = machine.calibration.get(BOTH_WAYS)
    if figure is None:
        return value(both_ways_constant(machine))
    return value_of(BOTH_WAYS, figure)
