"""Machines, clusters, routes and the sources of figures, as text for `netsim topo`."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError
from netsim.base.units import format_bandwidth, format_size, format_time
from netsim.cli.topo_subject import Subject
from netsim.topology.cluster import Cluster
from netsim.topology.figures import (
    Figures,
    TierSide,
    fabric_figures,
    gpu_bandwidth,
    links_of_fabric,
    loads_by_routing,
    route_statistics,
    tiers_of,
)
from netsim.topology.host import PATH_TYPES, Host, cpu_above, path_types, relations
from netsim.topology.load import figure_text
from netsim.topology.machine import WORDS, Machine


def columns(rows: Sequence[tuple[str, ...]], *, right: Sequence[int] = ()) -> list[str]:
    """Rows of cells as lines with aligned columns; the columns whose numbers are in `right` are
    right-aligned.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def labelled(figures: Sequence[tuple[str, str]]) -> list[str]:
    """A line for each pair of label and text; pairs with an empty text are left out."""
    return [f"  {label:<22} {text}" for label, text in figures if text]


def plural(count: int, noun: str) -> str:
    """The count with its noun: `1 host`, `2 hosts`, `3 switches`."""
    ending = "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{ending if count != 1 else ''}"


KINDS = {"nvlink": "NVLink", "xgmi": "xGMI"}
LEGEND = (
    "NVL: NVLink or xGMI   NVB: NVLink through a GPU   C2C: GPU to its CPU   PIX: one PCIe switch",
    "PXB: several PCIe switches   P2C: C2C and PCIe   PHB: through a CPU   SYS: between sockets",
)


def figures(machine: Machine) -> list[tuple[str, str]]:
    """The label and text of each figure of a machine."""
    gpu = machine.gpu
    cpu = machine.cpu
    pcie = machine.pcie
    shared = machine.scale_up.hosts if machine.scale_up else 1
    domains = f"{cpu.domains} NUMA domain{'s' * (cpu.domains > 1)}"
    between = f", {format_bandwidth(cpu.link)} between two" if cpu.link and cpu.domains > 1 else ""
    return [
        ("GPUs", f"{gpu.count} x {gpu.model} ({gpu.arch}, {gpu.sms} SMs)"),
        ("memory per GPU", f"{format_size(gpu.memory)}, {format_bandwidth(gpu.memory_bandwidth)}"),
        ("scale-up per GPU", scale_up(machine)),
        (
            "NVLink domain",
            f"{shared} such hosts share their NVLink switches: {shared * gpu.count} GPUs"
            if shared > 1
            else "",
        ),
        (
            "PCIe",
            f"gen {pcie.generation} x{pcie.width}, {format_bandwidth(pcie.usable)} usable "
            "in each direction",
        ),
        ("CPU", f"{cpu.vendor} {cpu.model}, {domains}{between}"),
        ("NICs", nics(machine)),
        ("peer access", "yes" if machine.p2p else "no: GPUs exchange data through host memory"),
    ]


def scale_up(machine: Machine, *, short: bool = False) -> str:
    """The rate at which a GPU sends over NVLink or xGMI, and over how many links, as text.

    With `short`, only the rate and the kind of link.
    """
    up = machine.scale_up
    if up is None or not up.fitted:
        return "none"
    links = up.links_of(machine.gpu.count)
    rate = format_bandwidth(links * up.link_bandwidth)
    kind = KINDS[up.kind]
    if short:
        return f"{rate} {kind}"
    peers = "to switches" if up.switches is not None else "to other GPUs"
    fewer = [
        f"GPU {gpu} has {up.switch_links(gpu)}"
        for gpu in range(machine.gpu.count if up.links_each else 0)
        if up.switch_links(gpu) < links
    ]
    odd = f"; {', '.join(fewer)}" if fewer else ""
    return f"{rate} ({links} {kind} links {peers}{odd}) in each direction, usable"


def nics(machine: Machine, *, short: bool = False) -> str:
    """The number, line rate and model of the NICs as text; without the model if `short`."""
    machine_nics = machine.nics
    if machine_nics is None:
        return "none"
    rates = sorted(set(machine_nics.rates), reverse=True)
    rate = " and ".join(format_bandwidth(one, bits=True) for one in rates)
    if short:
        return f"{machine_nics.count} x {rate}"
    direct = "" if machine_nics.gpudirect else ", without GPUDirect"
    return f"{machine_nics.count} x {rate} {machine_nics.model}{direct}"


def path_matrix(host: Host) -> list[tuple[str, ...]]:
    """The rows of a table: NCCL's path type from each GPU to all GPUs and NICs, and the GPU's own
    NICs.
    """
    between = path_types(host.layout, host.peer)
    to_nic = path_types(host.layout, host.out)
    gpus = [f"GPU{number}" for number in host.gpus]
    names = [f"NIC{number}" for number in host.rail.tolist()]
    rows = [("", *gpus, *names, "NUMA", "own NIC")]
    for slot, gpu in enumerate(gpus):
        kinds = [PATH_TYPES[int(kind)] for kind in between[slot]]
        kinds[slot] = "X"
        ways = [PATH_TYPES[int(kind)] for kind in np.atleast_1d(to_nic[slot])] if names else []
        own_nics = ", ".join(dict.fromkeys(names[int(nic)] for nic in host.local[slot]))
        cpu = cpu_above(host.machine, host.machine.gpu_at(host.gpus[slot]))
        rows.append((gpu, *kinds, *ways, cpu.removeprefix("cpu"), own_nics or "-"))
    return rows


def device_matrix(host: Host) -> list[tuple[str, ...]]:
    """The rows of a table as `nvidia-smi topo -m` prints it: relations of all devices, and NUMA
    domains.
    """
    shown = relations(host)
    rows = [("", *shown.devices, "NUMA")]
    for name, cells, cpu in zip(shown.devices, shown.cells, shown.affinity, strict=True):
        rows.append((name, *cells, cpu.removeprefix("cpu")))
    return rows


MOST_RAILS = 16


def cluster_lines(name: str, cluster: Cluster) -> Iterator[str]:
    """Yield the figures of a cluster's fabric, its tiers of switches and its rails."""
    hosts = len(cluster.host_class)
    gpus = len(cluster.topology)
    fabric = fabric_figures(cluster)
    kind = cluster.fabric.kind if cluster.fabric else "no fabric between them"
    over = f" over {cluster.transport.name}" if cluster.transport and cluster.fabric else ""
    yield f"{name}: {plural(hosts, 'host')}, {plural(gpus, 'GPU')}, {kind}{over}"
    yield from labelled(_figures(cluster, fabric))
    if fabric is not None:
        yield ""
        yield from columns(_tier_rows(cluster), right=(1, 2))
        yield ""
        yield from columns(_rail_rows(cluster), right=(1, 3))


def _figures(cluster: Cluster, fabric: Figures | None) -> list[tuple[str, str]]:
    up, out = gpu_bandwidth(cluster)
    usable = cluster.transport.usable if cluster.transport else 1.0
    domains = np.bincount(cluster.domain)
    sizes = _span([float(n) for n in sorted(set(domains.tolist()))], lambda n: f"{n:.0f}")
    figures = [
        ("scale-up per GPU", _rates(up) + " in each direction, usable"),
        (
            "scale-out per GPU",
            f"{_rates(out, bits=True)} of NIC, {_rates(out * usable)} usable"
            if out.any()
            else "none",
        ),
        (
            "NVLink domains",
            f"{plural(len(domains), 'domain')} of {sizes} hosts" if domains.max() > 1 else "",
        ),
    ]
    if fabric is None:
        return figures
    pairs = max(1, len(cluster.topology) // 2)
    cables = f"{fabric.access} to NICs, {fabric.cables} between switches"
    return [
        *figures,
        ("switches", ", ".join(f"{n} {level}" for level, n in fabric.switches.items())),
        (
            "reduction",
            "in all switches (SHARP)" if cluster.fabric and cluster.fabric.reduces else "",
        ),
        ("cables", cables),
        (
            "bisection",
            f"{format_bandwidth(fabric.bisection)} in each direction, "
            f"{format_bandwidth(fabric.bisection / pairs)} per GPU",
        ),
        ("oversubscription", f"{fabric.oversubscription:.3g}:1 between halves"),
        ("diameter", plural(fabric.diameter, "switch")),
        ("longest route", _route(cluster)),
    ]


def _rates(rates: NDArray[np.float64], *, bits: bool = False) -> str:
    return _span(
        sorted({float(rates.min()), float(rates.max())}),
        lambda rate: format_bandwidth(rate, bits=bits),
    )


def _span(values: list[float], text: Callable[[float], str]) -> str:
    low = text(values[0])
    high = text(values[-1])
    return low if low == high else f"{low} to {high}"


def _tier_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    """The rows of a table of switch tiers, from the top down, with the ports of the fullest switch
    of each.
    """
    assert cluster.fabric is not None
    usable = cluster.transport.usable if cluster.transport else 1.0
    head = ("tier", "switches", "ports used", "down", "across", "up", "down : up")
    rows = []
    for tier in reversed(tiers_of(cluster.fabric)):
        sides = [_side(side, usable) for side in (tier.down, tier.across, tier.up)]
        ratio = f"{tier.ratio:.3g} : 1" if tier.ratio else "-"
        rows.append((tier.name, str(tier.switches), str(tier.ports), *sides, ratio))
    return [head, *rows]


def _side(side: TierSide, usable: float) -> str:
    if not side.ports:
        return "-"
    rate = side.bandwidth / side.ports / usable
    return f"{side.ports} x {format_bandwidth(rate, bits=True)}"


def _rail_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    """The rows of a table of rails: NICs, line rate, GPUs per host that use the rail, switches."""
    ports = cluster.ports
    made = cluster.fabric
    assert made is not None
    access = made.tail < made.ports  # two links of each port where there are two planes
    port = made.tail[access]
    switch = made.head[access] - made.ports
    users = _users(cluster)
    rails_of_line: dict[tuple[str, ...], list[int]] = {}
    for rail in sorted(set(ports.rail.tolist())):
        on_rail = ports.rail == rail
        at = _names([made.switches[n] for n in np.unique(switch[on_rail[port]]).tolist()])
        rate = _rates(ports.rate[on_rail], bits=True)
        rails_of_line.setdefault(
            (str(int(on_rail.sum())), rate, users.get(rail, "0"), at), []
        ).append(rail)
    rows = [("rail", "NICs", "line rate", "GPUs per host", "switches")]
    shown = list(rails_of_line.items())[:MOST_RAILS]
    left = len(rails_of_line) - len(shown)
    more = [(f"… {left} more", "", "", "", "")] if left else []
    return [*rows, *((_rails(rails), *cells) for cells, rails in shown), *more]


def _rails(rails: list[int]) -> str:
    if len(rails) > 2 and rails == list(range(rails[0], rails[-1] + 1)):
        return f"nic{rails[0]} … nic{rails[-1]}, each"
    return ", ".join(f"nic{rail}" for rail in rails) + (", each" if len(rails) > 1 else "")


def _users(cluster: Cluster) -> dict[int, str]:
    """By rail, how many GPUs of a host have a NIC of that rail as their own; a range if hosts
    differ.
    """
    users: dict[int, set[float]] = {}
    for host in cluster.hosts:
        for place, rail in enumerate(host.rail.tolist()):
            users.setdefault(rail, set()).add(float((host.local == place).any(axis=1).sum()))
    return {rail: _span(sorted(counts), lambda n: f"{n:.0f}") for rail, counts in users.items()}


def _names(names: list[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]}, {names[1]}, … {names[-1]} ({len(names)})"


def _route(cluster: Cluster) -> str:
    """The route with the highest latency from the first GPU to the last GPU of any host, as text.

    The text has its latency and the bandwidth of its narrowest link; "" if the route has no links.
    """
    topology = cluster.topology
    host = cluster.gpu_host
    ends = np.flatnonzero(np.append(host[1:] != host[:-1], True)).astype(np.int32)
    start = np.zeros(len(ends), np.int32)
    channel = np.zeros(len(ends), np.int32)
    routes = topology.routes(start, ends, channel)
    longest = len(ends) - 1 - int(np.round(routes.latency, 12)[::-1].argmax())
    span = slice(routes.ptr[longest], routes.ptr[longest + 1])
    link = routes.link[span]
    if not len(link):
        return ""
    narrow = float((topology.links.bandwidth[link] / routes.fraction[span]).min())
    return (
        f"{topology.gpus[0]} to {topology.gpus[ends[longest]]}: "
        f"{format_time(float(routes.latency[longest]))}, "
        f"{format_bandwidth(narrow)} at its narrowest"
    )


MOST_LINKS = 5


def route_lines(cluster: Cluster) -> Iterator[str]:
    """Yield how flows spread over links between switches if every GPU sends to the GPU half way
    round.

    GPU g of n sends one flow to GPU (g + n/2) % n. Links with several flows are collisions.
    """
    topology = cluster.topology
    gpus = np.arange(len(topology), dtype=np.int32)
    partner = (gpus + len(gpus) // 2) % len(gpus)
    statistics = route_statistics(topology, gpus, partner)
    flows = statistics.flows[links_of_fabric(topology)]
    yield "\nRoutes when every GPU sends to the one half way round, on channel 0:"
    if not flows.any():
        yield from labelled([("links", "no link between switches is on any of these routes")])
        return
    used = flows[flows > 0]
    rows = [
        ("links", f"{len(used)} of {len(flows)} between switches in use"),
        ("flows a link", f"{used.mean():.3g} in the mean, {used.max():.3g} at most"),
        ("collisions", f"{plural(len(statistics.collisions), 'link')} with more than one flow"),
    ]
    worst = statistics.collisions[
        np.argsort(-statistics.flows[statistics.collisions], kind="stable")
    ]
    rows += [
        ("", f"{statistics.flows[link]:.3g} flows on {topology.link_name(link)}")
        for link in worst[:MOST_LINKS].tolist()
    ]
    yield from labelled(rows)
    yield "\nThe same by routing:"
    table = [("routing", "links in use", "mean", "most", "with more than one flow")]
    for routing, (flows, _) in loads_by_routing(cluster, gpus, partner).items():
        used = flows[flows > 0]
        several = int((flows > 1 + 1e-9).sum())
        mean = f"{used.mean():.3g}"
        most = f"{used.max():.3g}"
        table.append((routing, f"{len(used)}", mean, most, f"{several}"))
    yield from columns(table, right=(1, 2, 3, 4))


def source_summary(machine: Machine) -> str:
    """How many figures of a machine are measured, assumed and so on, as text."""
    count = Counter(one.stamp for one in machine.sources)
    counts = ", ".join(f"{count[word]} {word}" for word in WORDS if count[word])
    return f"{counts} (of each figure: --sources)"


def source_lines(subject: Subject) -> Iterator[str]:
    """Yield a table of every figure of a cluster's machines, with its source and value."""
    if subject.config is None or subject.cluster is None:
        raise InputError("--sources: a graph has no machine whose figures are stamped")
    machines = {group.loaded.name: group.loaded.machine for group in subject.config.members}
    for number, (name, machine) in enumerate(machines.items()):
        yield from [""] * bool(number)
        yield f"{name}: {machine.description}"
        rows = [(one.path, one.stamp, figure_text(one.path, one.value)) for one in machine.sources]
        yield from columns([("figure", "from", "value"), *rows])
