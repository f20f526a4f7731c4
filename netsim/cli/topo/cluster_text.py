"""The figures of a cluster as text: bandwidths, bisection, tiers of switches, rails, a route."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from netsim.cli.topo.columns import columns, labelled, plural
from netsim.topology.cluster import Cluster
from netsim.topology.figures import Figures, fabric_figures, gpu_bandwidth
from netsim.topology.tiers import Side, tiers_of
from netsim.units import format_bandwidth, format_time

MOST_RAILS = 16


def cluster_lines(name: str, cluster: Cluster) -> Iterator[str]:
    """All lines about what is between hosts."""
    hosts, gpus = len(cluster.host_class), len(cluster.topology)
    found = fabric_figures(cluster)
    kind = cluster.fabric.kind if cluster.fabric else "no fabric between them"
    over = f" over {cluster.transport.name}" if cluster.transport and cluster.fabric else ""
    yield f"{name}: {plural(hosts, 'host')}, {plural(gpus, 'GPU')}, {kind}{over}"
    yield from labelled(_figures(cluster, found))
    if found is not None:
        yield ""
        yield from columns(_tier_rows(cluster), right=(1, 2))
        yield ""
        yield from columns(_rail_rows(cluster), right=(1, 3))


def _figures(cluster: Cluster, found: Figures | None) -> list[tuple[str, str]]:
    up, out = gpu_bandwidth(cluster)
    usable = cluster.transport.usable if cluster.transport else 1.0
    domains = np.bincount(cluster.domain)
    sizes = _span([float(n) for n in sorted(set(domains.tolist()))], lambda n: f"{n:.0f}")
    figures = [
        ("scale-up a GPU", _rates(up) + " in each direction, usable"),
        ("scale-out a GPU", f"{_rates(out, bits=True)} of NIC, {_rates(out * usable)} usable"
                            if out.any() else "none"),
        ("NVLink domains", f"{plural(len(domains), 'domain')} of {sizes} hosts"
                           if domains.max() > 1 else ""),
    ]  # fmt: skip
    if found is None:
        return figures
    pairs = max(1, len(cluster.topology) // 2)
    cables = f"{found.access} to NICs, {found.cables} between switches"
    return [
        *figures,
        ("switches", ", ".join(f"{n} {level}" for level, n in found.switches.items())),
        ("reduction", "in all switches (SHARP)" if cluster.fabric and cluster.fabric.reduces
                      else ""),
        ("cables", cables),
        ("bisection", f"{format_bandwidth(found.bisection)} in each direction, "
                      f"{format_bandwidth(found.bisection / pairs)} a GPU"),
        ("oversubscription", f"{found.oversubscription:.3g}:1 between halves"),
        ("diameter", plural(found.diameter, "switch")),
        ("longest route", _route(cluster)),
    ]  # fmt: skip


def _rates(rates: NDArray[np.float64], *, bits: bool = False) -> str:
    """One rate, or from the lowest to the highest."""
    return _span(
        sorted({float(rates.min()), float(rates.max())}),
        lambda rate: format_bandwidth(rate, bits=bits),
    )


def _span(values: list[float], text: Callable[[float], str]) -> str:
    low, high = text(values[0]), text(values[-1])
    return low if low == high else f"{low} to {high}"


def _tier_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    """Tiers from the top down, with what the fullest switch of each has on every side."""
    assert cluster.fabric is not None
    usable = cluster.transport.usable if cluster.transport else 1.0
    head = ("tier", "switches", "ports used", "down", "across", "up", "down : up")
    rows = []
    for tier in reversed(tiers_of(cluster.fabric)):
        sides = [_side(side, usable) for side in (tier.down, tier.across, tier.up)]
        ratio = f"{tier.ratio:.3g} : 1" if tier.ratio else "-"
        rows.append((tier.name, str(tier.switches), str(tier.ports), *sides, ratio))
    return [head, *rows]


def _side(side: Side, usable: float) -> str:
    if not side.ports:
        return "-"
    rate = side.bandwidth / side.ports / usable
    return f"{side.ports} x {format_bandwidth(rate, bits=True)}"


def _rail_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    """What each rail has: NICs, their rate, GPUs of a host that use it, and its switches."""
    ports, made = cluster.ports, cluster.fabric
    assert made is not None
    access = made.tail < made.ports  # two links of each port where there are two planes
    port, switch = made.tail[access], made.head[access] - made.ports
    users = _users(cluster)
    alike: dict[tuple[str, ...], list[int]] = {}
    for rail in sorted(set(ports.rail.tolist())):
        mine = ports.rail == rail
        at = _names([made.switches[n] for n in np.unique(switch[mine[port]]).tolist()])
        rate = _rates(ports.rate[mine], bits=True)
        alike.setdefault((str(int(mine.sum())), rate, users.get(rail, "0"), at), []).append(rail)
    rows = [("rail", "NICs", "line rate", "GPUs a host", "switches")]
    shown = list(alike.items())[:MOST_RAILS]
    left = len(alike) - len(shown)
    more = [(f"… {left} more", "", "", "", "")] if left else []
    return [*rows, *((_rails(rails), *cells) for cells, rails in shown), *more]


def _rails(rails: list[int]) -> str:
    """The names of rails that are alike."""
    if len(rails) > 2 and rails == list(range(rails[0], rails[-1] + 1)):
        return f"nic{rails[0]} … nic{rails[-1]}, each"
    return ", ".join(f"nic{rail}" for rail in rails) + (", each" if len(rails) > 1 else "")


def _users(cluster: Cluster) -> dict[int, str]:
    """For each rail, how many GPUs of a host have its NIC as their own."""
    found: dict[int, set[float]] = {}
    for host in cluster.hosts:
        for place, rail in enumerate(host.rail.tolist()):
            found.setdefault(rail, set()).add(float((host.local == place).any(axis=1).sum()))
    return {rail: _span(sorted(counts), lambda n: f"{n:.0f}") for rail, counts in found.items()}


def _names(names: list[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]}, {names[1]}, … {names[-1]} ({len(names)})"


def _route(cluster: Cluster) -> str:
    """The longest route from the first GPU to the last of any host: its latency, and its narrowest
    link.
    """
    topology, host = cluster.topology, cluster.gpu_host
    ends = np.flatnonzero(np.append(host[1:] != host[:-1], True)).astype(np.int32)
    start, channel = np.zeros(len(ends), np.int32), np.zeros(len(ends), np.int32)
    routes = topology.routes(start, ends, channel)
    longest = len(ends) - 1 - int(np.round(routes.latency, 12)[::-1].argmax())
    mine = slice(routes.ptr[longest], routes.ptr[longest + 1])
    link = routes.link[mine]
    if not len(link):
        return ""
    narrow = float((topology.links.bandwidth[link] / routes.fraction[mine]).min())
    return (
        f"{topology.gpus[0]} to {topology.gpus[ends[longest]]}: "
        f"{format_time(float(routes.latency[longest]))}, "
        f"{format_bandwidth(narrow)} at its narrowest"
    )
