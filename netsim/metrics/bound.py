"""What bounds a run, in a few words: `NIC ingress node1.nic0 97 %`, `latency 83 %`, `launch 71 %`.

A first answer: the busiest link if it is busy most of the time, else the largest part of the
critical path. Knows Program and Timeline only.
"""

from collections.abc import Callable, Mapping

import numpy as np

from netsim.metrics.critical import CriticalPath, critical_path, narrowest
from netsim.metrics.links import LinkUse, link_use
from netsim.program import LinkTable, Program, Timeline
from netsim.values import dataclass

BUSY = 0.6  # utilisation from which a link is what bounds a run
_ALIKE = 0.02  # links within this of the busiest are as busy

SPOKEN = {
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "c2c": "C2C",
    "pcie": "PCIe",
    "upi": "UPI",
    "hostmem": "host memory",
    "nic": "NIC",
    "fabric": "fabric",
    "sm": "SM",
    "sms": "compute",
    "hbm": "memory",
    "proxy": "proxy",
    "nic_msg": "NIC messages",
    "nvls": "NVLS",
    "host": "launch",
    "bus": "PCIe both ways",
}


@dataclass(frozen=True, slots=True)
class Causes:
    """What the time of a run goes to: the part of each cause; and the seconds of its transfers by
    the kind of link that makes them take as long, for whom it concerns.
    """

    shares: Mapping[str, float]
    transfers: Callable[[], Mapping[str, float]]


def bound_by(
    program: Program,
    timeline: Timeline,
    use: LinkUse | None = None,
    causes: Causes | None = None,
) -> str:
    """What a run would have to get more of to be faster; `use` is that of its links and `causes`
    are those of its time, if known.
    """
    if timeline.makespan <= 0:
        return "nothing"
    use = link_use(program, timeline) if use is None else use
    most = float(use.utilisation.max(initial=0.0))
    causes = _causes(program, timeline) if causes is None else causes
    shares = causes.shares
    cause = max(shares, key=lambda name: shares[name])
    if most >= BUSY or (cause == "transfer" and most >= shares[cause] * BUSY):
        return _busiest(program.links, use)
    what = cause
    if cause == "transfer":
        transfers = causes.transfers()
        what = f"serial transfers ({max(transfers, key=lambda kind: transfers[kind])})"
    return f"{what} {shares[cause]:.0%}".replace("%", " %")


def _causes(program: Program, timeline: Timeline) -> Causes:
    """Those of the critical path."""
    path = critical_path(program, timeline)
    return Causes(path.shares(), lambda: _transfers(program, timeline, path))


def link_label(table: LinkTable, link: int) -> tuple[str, str]:
    """A link's class and place in words: ("NIC ingress", "node1.nic0"), ("memory", "gpu3")."""
    name, kind = table.name(link), table.kind(link)
    spoken = SPOKEN.get(kind, kind)
    if "->" not in name:
        return spoken, name.partition("(")[2].rstrip(")") or name
    tail, _, head = name.partition("->")
    ends = [end for end in (tail, head) if _is_device(end)]
    if len(ends) != 1:
        return spoken, name
    return f"{spoken} {'egress' if ends[0] == tail else 'ingress'}", ends[0]


def _is_device(node: str) -> bool:
    """Whether a node is one end of a link (a GPU or NIC) rather than a switch in the middle."""
    return node.rpartition(".")[2].startswith(("gpu", "nic"))


def _busiest(table: LinkTable, use: LinkUse) -> str:
    """The class of the busiest link, and its place unless most of that class are as busy."""
    most = float(use.utilisation.max())
    hot = (use.utilisation >= most - _ALIKE).tolist()
    label, place = link_label(table, int(use.link[np.argmax(use.utilisation)]))
    same, alike = 0, 0
    for link, is_hot in zip(use.link.tolist(), hot, strict=True):
        if link_label(table, link)[0] == label:
            same += _count(table, link)
            alike += is_hot * _count(table, link)
    where = f" {place}" if alike * 2 < same or same == 1 else ""
    return f"{label}{where} {min(most, 1.0):.0%}".replace("%", " %")


def _count(table: LinkTable, link: int) -> int:
    """How many links like it a link stands for."""
    return 1 if table.count is None else int(table.count[link])


def _transfers(program: Program, timeline: Timeline, path: CriticalPath) -> dict[str, float]:
    """Transfers one after another: each fills its link, but no link is in use all the time."""
    seconds: dict[str, float] = {}
    for row in path.rows.tolist():
        kind = narrowest_kind(program, row)
        took = float(timeline.end[row] - timeline.start[row])
        seconds[kind] = seconds.get(kind, 0.0) + took
    return seconds


def narrowest_kind(program: Program, row: int) -> str:
    """The kind of link that makes a row take as long; of kinds as narrow as each other the first by
    name counts, for a way has no order.
    """
    kinds = {link_label(program.links, link)[0] for link in narrowest(program, row)}
    return min(kinds, default="own rate")
