"""Causes that would explain why a run is far from its simulation, each simulated.

Every cause changes one thing of the scenario: in the whole cluster, or in a single part of it.
Causes are ordered by how well the changed simulation fits the measured times. Causes whose times
agree at every size are listed together.
"""

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
from netsim.measured.logs import LogRun, MeasuredRow
from netsim.measured.single_parts import Cause, single_part_causes
from netsim.tasks.resolve import ResolvedCell
from netsim.topology.machine import Machine, ScaleUp
from netsim.yamlio.models import override
from netsim.yamlio.read import Source

SIZES = 6  # sizes of a run that are simulated for each cause
WORTH = 0.67  # a cause that leaves more than this fraction of the distance explains nothing
SLOW_HOST = (3.0, 6.0, 12.0, 24.0)  # factors on the usual time of a launch
FLAGS = ("transport", "nic", "nics-per-node")  # options of the command line
DEVIATES = 0.05  # |log ratio| of simulated over measured time above which a size needs a cause
# A cause explains a size if it leaves at most this fraction of the size's log ratio.
LEFT_BY_CAUSE = 0.33
SAME = 0.01  # two causes are listed together if their log times differ by less at every size


@dataclass(frozen=True)
class Explained:
    """How well a cause explains a run.

    Args:
        cause: title of the cause.
        error: median error with the cause, a fraction.
        before: median error without it.
        distance: mean |log ratio| of simulated over measured time with the cause; unlike in the
            median, every size counts.
        usual: mean |log ratio| without it.
        same: other causes with the same times at every size.
        nothing: whether the cause does not change the times.
        explained_sizes: sizes that deviate without the cause and agree with it.
        unexplained_sizes: sizes that deviate without the cause and still deviate with it.
        worse_sizes: sizes that agree without the cause and deviate with it.
    """

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
        """Whether the cause removes most of the distance between simulated and measured times."""
        return not self.nothing and self.distance < WORTH * self.usual

    @property
    def names(self) -> tuple[str, ...]:
        """The cause and all causes that have the same times."""
        return (self.cause, *self.same)


@dataclass(frozen=True)
class Tried:
    """The simulated times in seconds of a run's rows: `times` by cause, `usual` without any
    cause.
    """

    rows: tuple[MeasuredRow, ...]
    usual: Floats
    times: Mapping[str, Floats]


def explanations(source: Source, run: LogRun) -> list[Explained]:
    """Simulate all causes that are possible on a system; return how well each explains a run, the
    best first.

    Causes that change nothing come last.
    """
    return ranked(tried(source, run), run.collective)


def tried(source: Source, run: LogRun) -> Tried:
    """Simulate every cause at some sizes of a run, except for causes that this system cannot
    have.
    """
    rows = few(run.rows, SIZES)
    resolved = resolved_for(source, run)
    times: dict[str, Floats] = {}
    all_causes = list(causes(source, resolved))
    for done, cause in enumerate(all_causes):
        at(f"{run.file}, cause tried: {cause.title}", done, len(all_causes))
        changed = source
        for key, value in cause.changes:
            changed = override(changed, key, value, cause.name)
        with suppress(NetsimError):
            times[cause.title] = times_of(resolved_for(changed, run), rows, run.collective)
    return Tried(rows, times_of(resolved, rows, run.collective), times)


def ranked(simulated: Tried, collective: str) -> list[Explained]:
    """Return the causes sorted by the distance of their simulated times from the measured ones;
    causes with equal times are one.
    """
    measured = np.array([row.seconds(collective) for row in simulated.rows], dtype=float)
    logs = {name: np.log(times / measured) for name, times in simulated.times.items()}
    usual = np.log(simulated.usual / measured)
    groups: dict[str, list[str]] = {}
    for name, seconds in simulated.times.items():
        equal_cause = next(
            (first for first in groups if _is_same(simulated.times[first], seconds)), name
        )
        groups.setdefault(equal_cause, []).append(name)
    sizes = [row.size_bytes for row in simulated.rows]
    explained = [
        Explained(
            cause=first,
            error=error_figures(logs[first])[0],
            before=error_figures(usual)[0],
            distance=float(np.abs(logs[first]).mean()),
            usual=float(np.abs(usual).mean()),
            same=tuple(others),
            nothing=_is_same(simulated.times[first], simulated.usual),
            **_sizes_explained(sizes, usual, logs[first]),
        )
        for first, *others in groups.values()
    ]
    return sorted(explained, key=lambda cause: (cause.nothing, cause.distance))


def _sizes_explained(
    sizes: Sequence[int], usual: Floats, changed: Floats
) -> dict[str, tuple[int, ...]]:
    """Return the sizes that a cause explains, leaves unexplained and makes worse, by the field of
    `Explained`.

    `usual` and `changed` are the log ratios of simulated over measured time without and with the
    cause.
    """
    deviates = np.abs(usual) > DEVIATES
    agrees = np.abs(changed) <= np.maximum(DEVIATES, np.abs(usual) * LEFT_BY_CAUSE)
    size_array = np.array(sizes)
    return {
        "explained_sizes": tuple(size_array[deviates & agrees].tolist()),
        "unexplained_sizes": tuple(size_array[deviates & ~agrees].tolist()),
        "worse_sizes": tuple(size_array[~deviates & ~agrees].tolist()),
    }


def _is_same(first_times: Floats, second_times: Floats) -> bool:
    """Whether two causes have the same times at every size, within `SAME`."""
    return float(np.abs(np.log(first_times / second_times)).max()) < SAME


def causes(source: Source, resolved: ResolvedCell) -> Iterator[Cause]:
    """Yield the causes that are possible on a system: its network, its hosts, and NCCL's
    choices."""
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
    """Yield causes in the network: missing NICs, NICs at lower rates, and other networks. `machine`
    is the machine of the hosts.
    """
    config = resolved.cell.scenario.cluster
    nics = machine.nics
    assert nics is not None
    count = nics.count if config.nics_per_node is None else config.nics_per_node
    rate = config.nic_rate or nics.rates[0]
    if count > 1:
        node = {"node": 0, "nics": list(range(1, count))}
        yield Cause("one NIC missing on one host", _add(source, node))
        yield Cause("one NIC missing on every host", (("cluster.nics_per_node", count - 1),))
        rates = [nics.rates[0] / 2, *nics.rates[1:]]
        texts = [f"{bytes_per_second * 8 / 1e9:g}Gbps" for bytes_per_second in rates]
        slow_nic = {"node": 0, "machine": {"nics": {"rate_each": texts}}}
        yield Cause("one NIC of one host at half its rate", _add(source, slow_nic))
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
    """Yield as causes the other networks that clouds offer with such GPUs.

    `count` is the number of NICs of a host in the scenario, `rate` the line rate of each in
    bytes/s.
    """
    fabric = source.data.get("cluster", {}).get("fabric") or {}
    now = (fabric.get("transport", machine.transport), f"{rate * 8 / 1e9:g}Gbps", str(count))
    for cloud in CLOUDS:
        offered = (cloud.transport, cloud.nic or now[1], cloud.nics or now[2])
        if offered == now or not re.search(cloud.gpu, machine.gpu.model) or int(offered[2]) > count:
            continue
        flags = (
            f"--{name} {value}"
            for name, value, usual in zip(FLAGS, offered, now, strict=True)
            if value != usual
        )
        yield Cause(
            f"the network is {cloud.name}: {' '.join(flags)}",
            (
                ("cluster.fabric", {"kind": "rail-optimized", **fabric, "transport": offered[0]}),
                ("cluster.nic", offered[1]),
                ("cluster.nics_per_node", int(offered[2])),
            ),
        )


def _inside(source: Source, machine: Machine) -> Iterator[Cause]:
    """Yield causes inside the hosts: NVLink, peer access and PCIe."""
    scale_up = machine.scale_up
    overrides = source.data.get("cluster", {}).get("overrides") or []
    fitted = any(
        override.get("machine", {}).get("scale_up", {}).get("fitted") for override in overrides
    )
    if scale_up is not None and (scale_up.fitted or fitted):
        yield Cause("NVLink not in use", _machine(source, {"scale_up": {"fitted": False}}))
        half_of_links = _half_of_links(scale_up)
        if half_of_links:
            changes = _machine(source, {"scale_up": half_of_links})
            yield Cause("half of the NVLinks in use", changes)
    env = _env(source)
    if env.get("NCCL_P2P_DISABLE") != "1":
        yield Cause("peer access off", _set(source, NCCL_P2P_DISABLE="1"))
    if machine.pcie.width > 4 and (scale_up is None or not scale_up.switches):
        for width in (8, 4):
            figures = {"pcie": {"width": width}}
            yield Cause(
                f"PCIe x{width} instead of x{machine.pcie.width}", _machine(source, figures)
            )


def _half_of_links(scale_up: ScaleUp) -> dict[str, Any]:
    """Return the changes of the key `scale_up` that leave half of the NVLinks; empty if every GPU
    has a single one.
    """
    if scale_up.links is not None and scale_up.links > 1:
        changed: dict[str, Any] = {"links": scale_up.links // 2}
        if scale_up.links_each is not None:
            changed["links_each"] = [links // 2 for links in scale_up.links_each]
        return changed
    if scale_up.peers and max(links for _, _, links in scale_up.peers) > 1:
        return {"peers": [[a, b, max(1, links // 2)] for a, b, links in scale_up.peers]}
    return {}


def _choices(source: Source, resolved: ResolvedCell) -> Iterator[Cause]:
    """Yield as causes other choices of NCCL: algorithm, protocol, channels and buffers."""
    if resolved.planned(resolved.cell.scenario.workload.size_list()[0]) is None:
        return
    env = _env(source)
    job = resolved.jobs[0]
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
    """Return the variables of NCCL that a scenario sets."""
    variables = (source.data.get("nccl") or {}).get("env") or {}
    return {str(name): str(value) for name, value in variables.items()}


def _set(source: Source, **variables: str) -> tuple[tuple[str, Any], ...]:
    """Return the change (key, value) of a scenario that sets further variables of NCCL."""
    return (("nccl.env", _env(source) | variables),)


def _add(source: Source, added: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the change (key, value) of a scenario that adds one entry to the overrides of its
    cluster.
    """
    before = source.data.get("cluster", {}).get("overrides") or []
    return (("cluster.overrides", [*before, added]),)


def _machine(source: Source, figures: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the change (key, value) of a scenario that overrides keys of the machine of every
    host.
    """
    return _add(source, {"machine": figures})
