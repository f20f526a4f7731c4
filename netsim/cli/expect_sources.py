"""How sure the figures are that bound an answer: those that nobody measured or vouches for."""

from collections.abc import Iterator, Sequence

from netsim import departures
from netsim.cli.topo.sources_text import figure_text
from netsim.results import Row
from netsim.simulate import Prepared
from netsim.topology.machine import Machine
from netsim.validated import stored

# What a row is bound by, as its words begin, and the figures that decide it.
DECIDED_BY = {
    "NVLink": ("scale_up.link_bandwidth",),
    "xGMI": ("scale_up.link_bandwidth",),
    "NVLS": ("scale_up.link_bandwidth",),
    "PCIe": ("pcie.generation", "pcie.width"),
    "host memory": ("cpu.memory_bandwidth",),
    "UPI": ("cpu.link",),
    "C2C": ("c2c.bandwidth",),
    "NIC": ("nics.rate",),
}
SERIAL = "serial transfers ("
EXECUTION = ("latency", "launch", "proxy", "SM", "own rate", "NIC messages")
WEAK = ("assumed", "transferred")


def weak_figures(prepared: Prepared, rows: Sequence[Row]) -> Iterator[str]:
    """A line for every figure that decides some rows and is assumed or transferred."""
    config = prepared.cell.scenario.cluster
    if config.graph is not None or not config.members:
        return
    machine = config.members[0].loaded.machine
    count: dict[str, int] = {}
    for row in rows:
        kind = kind_of(row.bound_by or "")
        count[kind] = count.get(kind, 0) + (row.status == "ok")
    chosen = config.nic is not None or (config.network is not None and config.network.nic)
    for path, bounds in _sizes(count).items():
        found = next((one for one in machine.sources if one.path == path), None)
        if found is None or found.stamp not in WEAK or (path == "nics.rate" and chosen):
            continue
        yield f"{found.stamp}: {path} {figure_text(path, found.value)}, {_bounds(bounds, rows)}"
    slow = sum(count.get(kind, 0) for kind in EXECUTION)
    if slow and prepared.jobs and not _known(prepared, machine):
        yield (
            "transferred: latencies and channel rates, of other machines with such GPUs, "
            f"{_bounds(slow, rows)} (netsim calibrate fits them to a log)"
        )


def kind_of(bound_by: str) -> str:
    """What bounds a row, without its place and share: `NIC` of `NIC egress node0.nic1 97 %`."""
    text = bound_by.removeprefix(SERIAL)
    return max((kind for kind in (*DECIDED_BY, *EXECUTION) if text.startswith(kind)), key=len,
               default="")  # fmt: skip


def _sizes(count: dict[str, int]) -> dict[str, int]:
    """Rows that each figure decides."""
    found: dict[str, int] = {}
    for kind, number in count.items():
        for path in DECIDED_BY.get(kind, ()) if number else ():
            found[path] = found.get(path, 0) + number
    return found


def _bounds(number: int, rows: Sequence[Row]) -> str:
    return f"which decides {number} of {len(rows)} sizes"


def _known(prepared: Prepared, machine: Machine) -> bool:
    """Whether times of this machine were fitted, or held against a run."""
    fitted = any(
        figure.stamp in ("calibrated", "measured") for figure in machine.calibration.values()
    )
    where = departures.class_of(prepared)
    return fitted or any(one == where for one, _, _ in stored())
