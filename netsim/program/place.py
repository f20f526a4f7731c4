"""place: a Schedule on a Topology becomes a Program.

Rows with the same route and weights share one path. What can never limit anything is marked, so
that engines skip it."""

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo
from netsim.base.values import dataclass
from netsim.program.program import LinkTable, Paths, Program
from netsim.program.ways import (
    SENDER,
    WINDOW,
    Distinct,
    PlacementError,
    Resources,
    Ways,
    active_entries,
    choices_of,
    distinct_ways,
    with_choices,
)
from netsim.schedule.schedule import MARK, Schedule
from netsim.topology.graph import LINK_KINDS, Topology

_CHUNK = 1 << 18  # rows treated at a time, to bound temporary memory
# What may saturate, besides wires, where channels are equal.
TIGHT = ("sm", "proxy", "nic_msg", WINDOW)
KEPT_SCHEDULES = 8  # of which a topology keeps the routes
MOST_WAYS = 1 << 16  # routes of a schedule that is kept


def place(
    schedule: Schedule,
    topology: Topology,
    gpus: Sequence[int] | None = None,
    *,
    processes: Sequence[int] | None = None,
) -> Program:
    """A schedule on a topology: every row gets its path over the links.

    Rank i runs on GPU `gpus[i]` of the topology (by default GPU i), in process `processes[i]` (by
    default each rank is a process). Raises a PlacementError (an InputError) if ranks do not fit.

    >>> from netsim import Collective, build
    >>> from netsim.engines.engine import simulate
    >>> from netsim.topology.routing import switch
    >>> schedule = build(Collective("all_reduce", ranks=4, count=10**6), "ring")
    >>> program = place(schedule, switch(4, bandwidth=50e9, latency=1e-6))
    >>> f"{simulate(program).makespan * 1e6:.0f} µs"  # 6 steps of 1 MB at 50 GB/s and 1 µs
    '126 µs'
    """
    device = _devices(schedule, topology, gpus)
    process = np.arange(schedule.ranks) if processes is None else np.asarray(processes)
    ways = Ways(schedule, topology, device, process.astype(np.int32))
    found = distinct_ways(schedule, topology)
    laid = _laid_or_kept(ways, found)
    _refuse_unbounded(schedule, found, laid.paths.ptr)
    path, paths = found.path, laid.paths
    if topology.switching == "store-and-forward":
        path, paths = _stored(schedule, path, laid)
    return Program(schedule, path, paths, laid.links, laid.gpus)


@dataclass(frozen=True, slots=True)
class _Laid:
    paths: Paths
    links: LinkTable
    gpus: tuple[str, ...]


def _laid_or_kept(ways: Ways, found: Distinct) -> _Laid:
    """The paths of distinct routes, kept from an earlier schedule if that had the same ones.

    Operations of many sizes have the same routes."""
    if len(found.klass) > MOST_WAYS:
        return _laid(ways, found)
    columns = (ways.device, ways.process, found.klass, found.src, found.dst)
    ends = (ways.schedule.groups, ways.schedule.fold, *(column.tobytes() for column in columns))
    kept_routes = ways.topology.memo.of("ways laid", lambda: Memo(KEPT_SCHEDULES))
    return kept_routes.of((found.classes, ends), lambda: _laid(ways, found))


def _laid(ways: Ways, found: Distinct) -> _Laid:
    topology, fold, resources = ways.topology, ways.schedule.fold, ways.resources
    every, of_way = with_choices(found, topology, ways.device)
    ptr, link, weight, latency = ways.paths(every)
    choices = None
    if len(of_way) > len(found.klass):
        choices = choices_of(of_way, len(found.klass), ptr, link)
    wires = topology.links  # of a half-duplex pair, the first one's capacity counts for both
    capacity = np.concatenate([wires.bandwidth[wires.resource], resources.capacity()])
    changes = tuple(sorted([*topology.changes, *resources.changes()]))
    room = capacity
    if fold is not None and fold.loose is not None:
        loose = np.append(fold.loose, [key[0] not in TIGHT for key in resources.keys])
        room = np.where(loose, np.inf, capacity)
    active = active_entries(link, room, changes)
    table = _link_table(ways, capacity, changes)
    if table.senders:
        active |= np.isin(link, [*table.senders])
    return _Laid(
        Paths(ptr, link, weight, active, latency, choices),
        table,
        tuple(str(topology.gpus[int(d)]) for d in ways.device),
    )


def _stored(
    schedule: Schedule, path: NDArray[np.int32], laid: _Laid
) -> tuple[NDArray[np.int32], Paths]:
    """Paths for store-and-forward: a message takes its time on each link, one after the other.

    Each distinct pair of path and amount gets a path of its own, with a longer latency: the time of
    the amount on all links but the slowest. A message waits for others as on a single link."""
    paths, moving = laid.paths, np.flatnonzero(path >= 0)
    owner = np.repeat(np.arange(len(paths)), np.diff(paths.ptr))
    seconds_per_byte = paths.weight / laid.links.capacity[paths.link]
    slowest = np.zeros(len(paths))
    np.maximum.at(slowest, owner, seconds_per_byte)
    beyond = np.bincount(owner, seconds_per_byte, len(paths)) - slowest
    both = np.stack([path[moving], schedule.amount[moving]])
    (old, amount), place = np.unique(both, axis=1, return_inverse=True)
    old = old.astype(np.int64)
    size = np.diff(paths.ptr)[old]
    ptr = np.append(0, np.cumsum(size))
    entries = np.arange(ptr[-1]) + np.repeat(paths.ptr[old] - ptr[:-1], size)
    new = np.full(len(path), -1, np.int32)
    new[moving] = place.ravel()
    latency = paths.latency[old] + amount * beyond[old]
    link, weight, active = paths.link[entries], paths.weight[entries], paths.active[entries]
    return new, Paths(ptr, link, weight, active, latency)


def _devices(
    schedule: Schedule, topology: Topology, gpus: Sequence[int] | None
) -> NDArray[np.int32]:
    device = np.arange(schedule.ranks) if gpus is None else np.asarray(gpus)
    if len(device) != schedule.ranks:
        raise PlacementError(f"{schedule.ranks} ranks need as many GPUs, got {len(device)}")
    if len(set(device.tolist())) < len(device):
        raise PlacementError("two ranks cannot share a GPU")
    if device.min() < 0 or device.max() >= len(topology):
        raise PlacementError(
            f"{topology.name} has {len(topology)} GPUs, but rank {int(device.argmax())} is "
            f"placed on GPU {int(device.max())}"
        )
    return device.astype(np.int32)


def _refuse_unbounded(schedule: Schedule, found: Distinct, ptr: NDArray[np.int64]) -> None:
    """Refuse a row with bytes but neither a link nor a cap, which would end at once."""
    bare = np.append(np.diff(ptr) == 0, True)
    # Only marks have no path at all; where all paths have links, only they have to be looked at.
    kinds = {style.kind for style in schedule.styles} if bare[:-1].any() else {MARK}
    suspect = np.array([s.kind in kinds and s.cap == inf for s in schedule.styles], bool)
    for first in range(0, len(schedule), _CHUNK):
        rows = first + np.flatnonzero(suspect[schedule.style[first : first + _CHUNK]])
        rows = rows[bare[found.path[rows]]]
        amount = schedule.pieces.amount[schedule.piece[rows]]
        if (amount > 0).any():
            wrong = int(np.argmax(amount > 0))
            raise PlacementError(
                f"{schedule.describe(int(rows[wrong]))} moves {amount[wrong]:g} bytes over "
                "no link and has no cap of its own"
            )


# Names and kinds of links are functions of plain values, and no closures, so that a Program can be
# pickled: it may go to another process.


@dataclass(frozen=True)
class _LinkNames:
    """The name of a link by its number: of a wire of the topology, or of a resource behind them."""

    topology: Topology
    resources: Resources

    def __call__(self, number: int) -> str:
        """Return the name of a link."""
        if number < len(self.topology.links):
            return self.topology.link_name(number)
        return self.resources.name(number)


@dataclass(frozen=True)
class _LinkKinds:
    """The kind of a link by its number, as `_LinkNames` has its name."""

    topology: Topology
    resources: Resources

    def __call__(self, number: int) -> str:
        """Return the kind of a link."""
        if number < len(self.topology.links):
            return LINK_KINDS[int(self.topology.links.kind[number])]
        return self.resources.kind(number)


def _link_table(
    ways: Ways, capacity: NDArray[np.float64], changes: tuple[tuple[float, int, float], ...]
) -> LinkTable:
    topology, resources, fold = ways.topology, ways.resources, ways.schedule.fold
    wires = len(topology.links)

    name, kind = _LinkNames(topology, resources), _LinkKinds(topology, resources)
    count = None
    if fold is not None:
        count = np.concatenate([fold.wires.count, resources.counts(fold, ways.device)])
    latency = np.concatenate([topology.links.latency, np.zeros(len(capacity) - wires)])
    keys = enumerate(resources.keys, wires)
    senders = {number: at for number, (name, _, at) in keys if name == SENDER}
    incast = topology.router.incast
    return LinkTable(name, kind, capacity, latency, changes, count, incast, senders, resources.keys)
