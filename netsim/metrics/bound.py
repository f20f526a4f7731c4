"""What bounds a run, in a few words: `NIC ingress node1.nic0 97 %`, `latency 83 %`, `launch 71 %`.

A first answer: the busiest link if it is busy most of the time, else the largest part of the
critical path. Knows Program and Timeline only.
"""

import numpy as np

from netsim.metrics.critical import CriticalPath, critical_path, narrowest
from netsim.metrics.links import LinkUse, link_use
from netsim.program import LinkTable, Program, Timeline

BUSY = 0.6  # utilisation from which a link is what bounds a run
_ALIKE = 0.02  # links within this of the busiest are as busy

_KINDS = {
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


def bound_by(program: Program, timeline: Timeline, use: LinkUse | None = None) -> str:
    """What a run would have to get more of to be faster; `use` is that of its links, if known."""
    if timeline.makespan <= 0:
        return "nothing"
    use = link_use(program, timeline) if use is None else use
    most = float(use.utilisation.max(initial=0.0))
    path = critical_path(program, timeline)
    shares = path.shares()
    cause = max(shares, key=lambda name: shares[name])
    if most >= BUSY or (cause == "transfer" and most >= shares[cause] * BUSY):
        return _busiest(program.links, use)
    what = _serial(program, timeline, path) if cause == "transfer" else cause
    return f"{what} {shares[cause]:.0%}".replace("%", " %")


def link_label(table: LinkTable, link: int) -> tuple[str, str]:
    """A link's class and place in words: ("NIC ingress", "node1.nic0"), ("memory", "gpu3")."""
    name, kind = table.name(link), table.kind(link)
    spoken = _KINDS.get(kind, kind)
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
    hot = use.link[use.utilisation >= most - _ALIKE].tolist()
    label, place = link_label(table, int(use.link[np.argmax(use.utilisation)]))
    same = sum(_count(table, k) for k in use.link.tolist() if link_label(table, k)[0] == label)
    alike = sum(_count(table, k) for k in hot if link_label(table, k)[0] == label)
    where = f" {place}" if alike * 2 < same or same == 1 else ""
    return f"{label}{where} {min(most, 1.0):.0%}".replace("%", " %")


def _count(table: LinkTable, link: int) -> int:
    """How many links like it a link stands for."""
    return 1 if table.count is None else int(table.count[link])


def _serial(program: Program, timeline: Timeline, path: CriticalPath) -> str:
    """Transfers one after another: each fills its link, but no link is in use all the time.

    Of links that are as narrow as each other the first by name counts, for a way has no order.
    """
    seconds: dict[str, float] = {}
    for row in path.rows.tolist():
        kinds = {link_label(program.links, link)[0] for link in narrowest(program, row)}
        kind = min(kinds, default="own rate")
        took = float(timeline.end[row] - timeline.start[row])
        seconds[kind] = seconds.get(kind, 0.0) + took
    return f"serial transfers ({max(seconds, key=lambda kind: seconds[kind])})"
