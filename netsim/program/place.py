"""Place a Schedule on a Topology: `place` returns a Program.

Rows with the same route and weights share one path. Path entries that can never limit a row are
marked, so that engines skip them.
"""

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo
from netsim.base.values import dataclass
from netsim.program.distinct_routes import DistinctRoutes, find_distinct_routes
from netsim.program.path_choices import add_alternatives, choices_of
from netsim.program.path_entries import active_entries
from netsim.program.program import LinkTable, Paths, PlacementError, Program
from netsim.program.resource_numbers import SENDER, WINDOW, Resources
from netsim.program.route_paths import PathBuilder
from netsim.schedule.schedule import MARK, Schedule
from netsim.topology.graph import LINK_KINDS, Topology

_ROWS_AT_A_TIME = 1 << 18  # bounds temporary memory
# If `Fold.loose` is stated, only these resources may saturate, besides the wires that are not
# loose.
TIGHT = ("sm", "proxy", "nic_msg", WINDOW)
CACHED_SCHEDULES = 8  # a topology caches the paths of this number of schedules,
MOST_CACHED_ROUTES = 1 << 16  # each with at most this number of distinct routes


def place(
    schedule: Schedule,
    topology: Topology,
    gpus: Sequence[int] | None = None,
    *,
    processes: Sequence[int] | None = None,
) -> Program:
    """Return the program of a schedule on a topology: every row has a path over the links.

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
    builder = PathBuilder(schedule, topology, device, process.astype(np.int32))
    routes = find_distinct_routes(schedule, topology)
    placed = _placed_or_cached(builder, routes)
    _refuse_unbounded(schedule, routes, placed.paths.ptr)
    path = routes.of_row
    paths = placed.paths
    if topology.switching == "store-and-forward":
        path, paths = _store_and_forward_paths(schedule, path, placed)
    return Program(schedule, path, paths, placed.links, placed.gpus)


@dataclass(frozen=True, slots=True)
class _PlacedRoutes:
    """What all schedules with the same routes share when they are placed on a topology.

    - `paths`: the paths of the distinct routes; path number r is that of route r.
    - `links`: all wires and resources.
    - `gpus`: by rank, the name of its GPU.
    """

    paths: Paths
    links: LinkTable
    gpus: tuple[str, ...]


def _placed_or_cached(builder: PathBuilder, routes: DistinctRoutes) -> _PlacedRoutes:
    """Return the paths of distinct routes, from the topology's cache if it has them.

    Operations of different sizes often have the same routes.
    """
    if len(routes) > MOST_CACHED_ROUTES:
        return _place_routes(builder, routes)
    schedule = builder.schedule
    columns = (builder.device, builder.process, routes.class_number, routes.src, routes.dst)
    column_bytes = tuple(column.tobytes() for column in columns)
    key = (routes.classes, schedule.groups, schedule.fold, *column_bytes)
    cache = builder.topology.memo.of("paths of routes", lambda: Memo(CACHED_SCHEDULES))
    return cache.of(key, lambda: _place_routes(builder, routes))


def _place_routes(builder: PathBuilder, routes: DistinctRoutes) -> _PlacedRoutes:
    """Return the paths of distinct routes; with adaptive routing also those of alternatives."""
    topology = builder.topology
    resources = builder.resources
    fold = builder.schedule.fold
    all_routes, route_of_path = add_alternatives(routes, topology, builder.device)
    ptr, link, weight, latency = builder.paths(all_routes)
    choices = None
    if len(route_of_path) > len(routes):
        choices = choices_of(route_of_path, len(routes), ptr, link)
    wires = topology.links  # a half-duplex pair has the capacity of its first direction
    capacity = np.concatenate([wires.bandwidth[wires.resource], resources.capacity()])
    changes = tuple(sorted([*topology.changes, *resources.changes()]))
    room = capacity
    if fold is not None and fold.loose is not None:
        loose = np.append(fold.loose, [key[0] not in TIGHT for key in resources.keys])
        room = np.where(loose, np.inf, capacity)
    active = active_entries(link, room, changes)
    table = _link_table(builder, capacity, changes)
    if table.senders:
        active |= np.isin(link, [*table.senders])
    return _PlacedRoutes(
        Paths(ptr, link, weight, active, latency, choices),
        table,
        tuple(str(topology.gpus[int(d)]) for d in builder.device),
    )


def _store_and_forward_paths(
    schedule: Schedule, path: NDArray[np.int32], placed: _PlacedRoutes
) -> tuple[NDArray[np.int32], Paths]:
    """Return the path of every row, and all paths, for store-and-forward switching.

    A message crosses its links one after the other, each in (bytes / capacity) seconds. So every
    distinct pair of a path and an amount gets a path of its own, whose latency contains the time on
    all links but the slowest. On the slowest link the message moves, and waits for others, as
    usual.

    - `path`: the path of every row before; `placed` has these paths.
    """
    paths = placed.paths
    moving = np.flatnonzero(path >= 0)
    owner = np.repeat(np.arange(len(paths)), np.diff(paths.ptr))
    seconds_per_byte = paths.weight / placed.links.capacity[paths.link]
    slowest = np.zeros(len(paths))
    np.maximum.at(slowest, owner, seconds_per_byte)
    beyond = np.bincount(owner, seconds_per_byte, len(paths)) - slowest
    pairs = np.stack([path[moving], schedule.amount[moving]])
    (old_path, amount), place = np.unique(pairs, axis=1, return_inverse=True)
    old_path = old_path.astype(np.int64)
    size = np.diff(paths.ptr)[old_path]
    ptr = np.append(0, np.cumsum(size))
    entries = np.arange(ptr[-1]) + np.repeat(paths.ptr[old_path] - ptr[:-1], size)
    new_path = np.full(len(path), -1, np.int32)
    new_path[moving] = place.ravel()
    new_paths = Paths(
        ptr=ptr,
        link=paths.link[entries],
        weight=paths.weight[entries],
        active=paths.active[entries],
        latency=paths.latency[old_path] + amount * beyond[old_path],
    )
    return new_path, new_paths


def _devices(
    schedule: Schedule, topology: Topology, gpus: Sequence[int] | None
) -> NDArray[np.int32]:
    """Return the GPU of every rank; refuse GPUs that the topology does not have, or one twice."""
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


def _refuse_unbounded(schedule: Schedule, routes: DistinctRoutes, ptr: NDArray[np.int64]) -> None:
    """Raise a PlacementError for a row with bytes that neither a link nor a cap limits.

    Such a row would end when it begins. `ptr` are the pointers of all paths.
    """
    has_no_link = np.append(np.diff(ptr) == 0, True)  # the last one is that of marks (path -1)
    # If all paths have links, only marks, which have no path, need to be checked.
    kinds = {style.kind for style in schedule.styles} if has_no_link[:-1].any() else {MARK}
    is_suspect = np.array([s.kind in kinds and s.cap == inf for s in schedule.styles], bool)
    for first in range(0, len(schedule), _ROWS_AT_A_TIME):
        styles = schedule.style[first : first + _ROWS_AT_A_TIME]
        rows = first + np.flatnonzero(is_suspect[styles])
        rows = rows[has_no_link[routes.of_row[rows]]]
        amount = schedule.pieces.amount[schedule.piece[rows]]
        if (amount > 0).any():
            refused = int(np.argmax(amount > 0))
            raise PlacementError(
                f"{schedule.describe(int(rows[refused]))} moves {amount[refused]:g} bytes over "
                "no link and has no cap of its own"
            )


# Names and kinds of links are callable objects instead of closures, so that a Program can be
# pickled and sent to another process.


@dataclass(frozen=True)
class _LinkNames:
    """A function that returns the name of a link by its number; wires come before resources."""

    topology: Topology
    resources: Resources

    def __call__(self, number: int) -> str:
        """Return the name of a link."""
        if number < len(self.topology.links):
            return self.topology.link_name(number)
        return self.resources.name(number)


@dataclass(frozen=True)
class _LinkKinds:
    """A function that returns the kind of a link by its number; wires come before resources."""

    topology: Topology
    resources: Resources

    def __call__(self, number: int) -> str:
        """Return the kind of a link."""
        if number < len(self.topology.links):
            return LINK_KINDS[int(self.topology.links.kind[number])]
        return self.resources.kind(number)


def _link_table(
    builder: PathBuilder,
    capacity: NDArray[np.float64],
    changes: tuple[tuple[float, int, float], ...],
) -> LinkTable:
    """Return the table of all wires and resources.

    - `capacity`: by link, wires first, then resources.
    - `changes`: (time in seconds, link, capacity from then on), in order of time.
    """
    topology = builder.topology
    resources = builder.resources
    fold = builder.schedule.fold
    wire_count = len(topology.links)
    count = None
    if fold is not None:
        count = np.concatenate([fold.wires.count, resources.counts(fold, builder.device)])
    latency = np.concatenate([topology.links.latency, np.zeros(len(capacity) - wire_count)])
    senders = {
        number: link
        for number, (resource, _, link) in enumerate(resources.keys, wire_count)
        if resource == SENDER
    }
    return LinkTable(
        name=_LinkNames(topology, resources),
        kind=_LinkKinds(topology, resources),
        capacity=capacity,
        latency=latency,
        changes=changes,
        count=count,
        incast=topology.router.incast,
        senders=senders,
        resources=resources.keys,
    )
