"""What would explain a run that is far from its simulation: single causes, each simulated.

A cause changes one thing of the scenario: of the whole cluster, or of a single part of it. Causes
are ranked by how well the changed simulation fits; those that no size tells apart are one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from netsim.base.errors import NetsimError
from netsim.base.startup import at
from netsim.base.values import dataclass
from netsim.measured.compare import Floats, error_figures, few, resolved_for, times_of
from netsim.measured.index import CLOUDS
from netsim.measured.logs import LogRun, Measured
from netsim.measured.single_parts import Cause, single_part_causes
from netsim.tasks.resolve import ResolvedCell
from netsim.topology.machine import Machine
from netsim.yamlio.models import override
from netsim.yamlio.read import Source

SIZES = 6  # of a run that are simulated for each cause
WORTH = 0.67  # a cause that leaves more of the error than this explains nothing
SLOW_HOST = (3.0, 6.0, 12.0, 24.0)  # times the usual cost of a launch
FLAGS = ("transport", "nic", "nics-per-node")
DEVIATES = 0.05  # |log ratio| of simulated over measured time from which a size is to be explained
LEFT_BY_CAUSE = (
    0.33  # a size is explained by a cause that leaves at most this part of its log ratio
)
ALIKE = 0.01  # the largest difference of log times up to which two causes are one


@dataclass(frozen=True)
class Explained:
    """How well a cause fits: the error (measured/compare.py says of what), and as it was without.
    `distance` and `usual` are the same as means of |log ratio|, in which every size counts. `same`
    are the causes that nothing tells apart from it, `nothing` says that it changes nothing.

    Of the sizes that deviate from the simulation without the cause, it explains some and leaves
    others unexplained; `worse_sizes` agree with the simulation only without it."""

    cause: str
    error: float
    before: float
    distance: float
    usual: float
    same: tuple[str, ...] = ()
    nothing: bool = False
    explained_sizes: tuple[int, ...] = ()
    unexplained_sizes: tuple[int, ...] = ()
    worse_sizes: tuple[int, ...] = ()

    @property
    def explains(self) -> bool:
        """Whether it takes most of the error away."""
        return not self.nothing and self.distance < WORTH * self.usual

    @property
    def names(self) -> tuple[str, ...]:
        """All that it may be."""
        return (self.cause, *self.same)


@dataclass(frozen=True)
class Tried:
    """The times of some rows as simulated, by cause; `usual` where nothing is changed."""

    rows: tuple[Measured, ...]
    usual: Floats
    times: Mapping[str, Floats]


def explanations(source: Source, run: LogRun) -> list[Explained]:
    """All causes that can be tried, the best fit first; what changes nothing last."""
    return ranked(tried(source, run), run.collective)


def tried(source: Source, run: LogRun) -> Tried:
    """Simulate every cause at some sizes of a run; those that this system cannot have are left."""
    rows = few(run.rows, SIZES)
    resolved = resolved_for(source, run)
    times: dict[str, Floats] = {}
    every = list(causes(source, resolved))
    for done, cause in enumerate(every):
        at(f"{run.file}, cause tried: {cause.title}", done, len(every))
        changed = source
        for key, value in cause.changes:
            changed = override(changed, key, value, cause.name)
        with suppress(NetsimError):
            times[cause.title] = times_of(resolved_for(changed, run), rows, run.collective)
    return Tried(rows, times_of(resolved, rows, run.collective), times)


def ranked(found: Tried, collective: str) -> list[Explained]:
    """The causes by how well they fit what was measured."""
    measured = np.array([row.seconds(collective) for row in found.rows], dtype=float)
    logs = {name: np.log(times / measured) for name, times in found.times.items()}
    usual = np.log(found.usual / measured)
    groups: dict[str, list[str]] = {}
    for name, seconds in found.times.items():
        twin = next((first for first in groups if _alike(found.times[first], seconds)), name)
        groups.setdefault(twin, []).append(name)
    sizes = [row.size_bytes for row in found.rows]
    explained = [
        Explained(
            cause=first,
            error=error_figures(logs[first])[0],
            before=error_figures(usual)[0],
            distance=float(np.abs(logs[first]).mean()),
            usual=float(np.abs(usual).mean()),
            same=tuple(others),
            nothing=_alike(found.times[first], found.usual),
            **_sizes_explained(sizes, usual, logs[first]),
        )
        for first, *others in groups.values()
    ]
    return sorted(explained, key=lambda one: (one.nothing, one.distance))


def _sizes_explained(
    sizes: Sequence[int], usual: Floats, changed: Floats
) -> dict[str, tuple[int, ...]]:
    """The sizes that a cause explains, leaves unexplained and makes worse, from the log ratios of
    simulated over measured times without and with the cause."""
    deviates = np.abs(usual) > DEVIATES
    agrees = np.abs(changed) <= np.maximum(DEVIATES, np.abs(usual) * LEFT_BY_CAUSE)
    size_array = np.array(sizes)
    return {
        "explained_sizes": tuple(size_array[deviates & agrees].tolist()),
        "unexplained_sizes": tuple(size_array[deviates & ~agrees].tolist()),
        "worse_sizes": tuple(size_array[~deviates & ~agrees].tolist()),
    }


def _alike(one: Floats, other: Floats) -> bool:
    return float(np.abs(np.log(one / other)).max()) < ALIKE


def causes(source: Source, resolved: ResolvedCell) -> Iterator[Cause]:
    """What may be wrong with a system of this kind."""
    config = resolved.cell.scenario.cluster
    if config.graph is not None:
        return
    machine = config.members[0].loaded.machine
    hosts = sum(group.nodes for group in config.members)
    if hosts > 1 and machine.nics is not None:
        yield from _network(source, resolved, machine)
    yield from single_part_causes(source, resolved, machine)
    yield from _inside(source, machine)
    yield from _choices(source, resolved)
    launch = resolved.cell.scenario.launch_costs()
    if launch.style == "process_per_gpu" and machine.gpu.count > 1:
        yield Cause("one process drives all GPUs of a host", (("launch", "single_process"),))
    for factor in SLOW_HOST:
        usual = 4.2e-6 if launch.host is None else launch.host
        costs = {"style": launch.style, "host": f"{usual * factor * 1e6:g}us"}
        yield Cause(
            f"host launch bound: launches take {factor:g} times as long", (("launch", costs),)
        )


def _network(source: Source, resolved: ResolvedCell, machine: Machine) -> Iterator[Cause]:
    config = resolved.cell.scenario.cluster
    nics = machine.nics
    assert nics is not None
    count = nics.count if config.nics_per_node is None else config.nics_per_node
    rate = config.nic_rate or nics.rates[0]
    if count > 1:
        node = {"node": 0, "nics": list(range(1, count))}
        yield Cause("one NIC missing on one host", _add(source, node))
        yield Cause("one NIC missing on every host", (("cluster.nics_per_node", count - 1),))
        slow = [f"{each * 8 / (1 + (n == 0)) / 1e9:g}Gbps" for n, each in enumerate(nics.rates)]
        one = {"node": 0, "machine": {"nics": {"rate_each": slow}}}
        yield Cause("one NIC of one host at half its rate", _add(source, one))
    for part in (2, 4, 8):
        left = count // part
        if 0 < left < count - 1:
            name = f"{left} of {count} NICs in use on every host"
            yield Cause(name, (("cluster.nics_per_node", left),))
    for part, name in ((2, "half its"), (4, "a quarter of its"), (8, "an eighth of its")):
        value = f"{rate * 8 / part / 1e9:g}Gbps"
        yield Cause(f"every NIC at {name} rate", (("cluster.nic", value),))
    no_direct = {"machine": {"nics": {"gpudirect": False}}}
    yield Cause("no GPUDirect: data passes the hosts' memory", _add(source, no_direct))
    yield from _clouds(source, machine, count, rate)


def _clouds(source: Source, machine: Machine, count: int, rate: float) -> Iterator[Cause]:
    """Other networks that are offered with such GPUs."""
    fabric = source.data.get("cluster", {}).get("fabric") or {}
    now = (fabric.get("transport", machine.transport), f"{rate * 8 / 1e9:g}Gbps", str(count))
    for cloud in CLOUDS:
        asked = (cloud.transport, cloud.nic or now[1], cloud.nics or now[2])
        if asked == now or not re.search(cloud.gpu, machine.gpu.model) or int(asked[2]) > count:
            continue
        flags = (
            f"--{name} {value}"
            for name, value, usual in zip(FLAGS, asked, now, strict=True)
            if value != usual
        )
        yield Cause(
            f"the network is {cloud.name}: {' '.join(flags)}",
            (
                ("cluster.fabric", {"kind": "rail-optimized", **fabric, "transport": asked[0]}),
                ("cluster.nic", asked[1]),
                ("cluster.nics_per_node", int(asked[2])),
            ),
        )


def _inside(source: Source, machine: Machine) -> Iterator[Cause]:
    up = machine.scale_up
    overridden = source.data.get("cluster", {}).get("overrides") or []
    fitted = any(one.get("machine", {}).get("scale_up", {}).get("fitted") for one in overridden)
    if up is not None and (up.fitted or fitted):
        yield Cause("NVLink not in use", _machine(source, {"scale_up": {"fitted": False}}))
        fewer: dict[str, Any] = {}
        if up.links is not None and up.links > 1:
            fewer = {"links": up.links // 2}
            if up.links_each is not None:
                fewer["links_each"] = [links // 2 for links in up.links_each]
        elif up.peers and max(links for _, _, links in up.peers) > 1:
            fewer = {"peers": [[a, b, max(1, links // 2)] for a, b, links in up.peers]}
        if fewer:
            yield Cause("half of the NVLinks in use", _machine(source, {"scale_up": fewer}))
    env = _env(source)
    if env.get("NCCL_P2P_DISABLE") != "1":
        yield Cause("peer access off", _set(source, NCCL_P2P_DISABLE="1"))
    if machine.pcie.width > 4 and (up is None or not up.switches):
        for width in (8, 4):
            figures = {"pcie": {"width": width}}
            yield Cause(
                f"PCIe x{width} instead of x{machine.pcie.width}", _machine(source, figures)
            )


def _choices(source: Source, resolved: ResolvedCell) -> Iterator[Cause]:
    if resolved.planned(resolved.cell.scenario.workload.size_list()[0]) is None:
        return
    env, job = _env(source), resolved.jobs[0]
    if "NCCL_ALGO" not in env and resolved.cell.scenario.collective.collective == "all_reduce":
        for name in ("Ring", "Tree"):
            yield Cause(f"{name} forced", _set(source, NCCL_ALGO=name))
        if job.comm.nvls_channels:
            yield Cause("NVLS off", _set(source, NCCL_NVLS_ENABLE="0"))
    if "NCCL_PROTO" not in env:
        for name in ("LL", "Simple"):
            yield Cause(f"protocol {name} forced", _set(source, NCCL_PROTO=name))
    channels = job.comm.n_channels
    for count in (1, 2, 4, 8, 16):
        if count < channels:
            limits = _set(source, NCCL_MIN_NCHANNELS="1", NCCL_MAX_NCHANNELS=str(count))
            yield Cause(f"{count} of {channels} channels", limits)
    if "NCCL_BUFFSIZE" not in env:
        yield Cause("buffers of 1 MiB", _set(source, NCCL_BUFFSIZE=str(2**20)))


def _env(source: Source) -> dict[str, str]:
    found = (source.data.get("nccl") or {}).get("env") or {}
    return {str(name): str(value) for name, value in found.items()}


def _set(source: Source, **variables: str) -> tuple[tuple[str, Any], ...]:
    return (("nccl.env", _env(source) | variables),)


def _add(source: Source, one: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    before = source.data.get("cluster", {}).get("overrides") or []
    return (("cluster.overrides", [*before, one]),)


def _machine(source: Source, figures: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return _add(source, {"machine": figures})
