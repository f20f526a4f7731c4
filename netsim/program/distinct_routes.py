"""The distinct routes that the rows of a schedule take: a class, a source and a destination each.

Millions of rows usually take a few thousand distinct routes, so that everything that is expensive
(routing, resources, latencies) is done once for each of these.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass, grouped
from netsim.schedule.schedule import COMPUTE, LOCAL_COPY, MARK, TRANSFER, Schedule, Style, Use
from netsim.topology.graph import Topology

# Routes are numbered by a table with a cell for each (class, source, destination), or by sorting
# the keys of all rows. A table with more cells than `_MOST_CELLS` would take too much memory. One
# with more than `_CELLS_PER_ROW` cells for each row takes longer than sorting, unless it has no
# more than `_FEW_CELLS`.
_MOST_CELLS = 1 << 25
_CELLS_PER_ROW = 64
_FEW_CELLS = 1 << 16
_ROWS_AT_A_TIME = 1 << 18  # few enough for the processor's caches

Keys = NDArray[np.int64] | NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RouteClass:
    """What the routes of equal styles have in common, apart from source and destination.

    - `kind`: the kind of the style: TRANSFER, COMPUTE, ...
    - `wire`: bytes on the wire for each byte of data.
    - `multiplicity`: the number of equal channels that one row represents.
    - `uses`: the resources other than wires that rows draw on.
    - `route`: options of the route, as `parse_route_options` reads them.
    - `channel`: the channel, or 0 if the route does not depend on it.
    - `copies`: the number of equal rows that one row represents.
    """

    kind: int
    wire: float
    multiplicity: int
    uses: tuple[Use, ...]
    route: str
    channel: int
    copies: int = 1


@dataclass(frozen=True, slots=True)
class DistinctRoutes:
    """The distinct routes of a schedule.

    - `of_row`: the number of every row's route; -1 for marks, which take none.
    - `classes`: the distinct route classes.
    - `class_number`: the number of every route's class.
    - `src`, `dst`: the endpoints of every route, each a rank or a group of ranks.
    """

    of_row: NDArray[np.int32]
    classes: tuple[RouteClass, ...]
    class_number: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.class_number)


def find_distinct_routes(schedule: Schedule, topology: Topology) -> DistinctRoutes:
    """Return the distinct routes that the rows of a schedule take on a topology."""
    numbers: dict[RouteClass, int] = {}
    router = topology.router
    class_of_style = np.full(len(schedule.styles), -1, np.int64)
    for place, style in enumerate(schedule.styles):
        if style.kind != MARK:
            route_class = _route_class(style, per_channel=router.per_channel)
            class_of_style[place] = numbers.setdefault(route_class, len(numbers))
    classes = tuple(numbers)
    queue_pair = None
    if router.queue_pairs_in_turn > 1:  # every queue pair has a class
        queue_pair = _queue_pairs(schedule, router.queue_pairs_in_turn)
        class_of_style = np.where(
            class_of_style < 0, -1, class_of_style * router.queue_pairs_in_turn
        )
        classes = tuple(
            with_queue_pair(route_class, number)
            for route_class in classes
            for number in range(router.queue_pairs_in_turn)
        )
    width = max(schedule.ranks, len(schedule.groups))
    cell_count = len(classes) * width * width
    fits_int32 = cell_count <= _MOST_CELLS
    keys = _RowKeys(
        schedule,
        class_of_style.astype(np.int32) if fits_int32 else class_of_style,
        width,
        queue_pair,
    )
    most_cells = min(_MOST_CELLS, max(_FEW_CELLS, _CELLS_PER_ROW * len(schedule)))
    if cell_count <= most_cells:
        of_row, route_keys = _number_by_table(keys, cell_count)
    else:
        of_row, route_keys = _number_by_sorting(keys)
    return DistinctRoutes(of_row, classes, *_split_keys(route_keys, width))


def with_queue_pair(route_class: RouteClass, number: int) -> RouteClass:
    """Return the route class for queue pair `number` of a connection.

    Classes other than those of transfers have no queue pairs and are returned as they are.
    """
    if route_class.kind != TRANSFER:
        return route_class
    return replace(route_class, route=f"{route_class.route}@{number}")


def connections_on_links(
    schedule: Schedule, topology: Topology, device: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return the number of connections that cross each link of a topology.

    A connection is a pair of ranks of which one sends to the other on a channel. If its bytes are
    divided among several routes, it counts on a link as the fraction that crosses it. `device` is
    by rank its GPU.
    """
    routes = find_distinct_routes(schedule, topology)
    ranks = schedule.ranks
    transfer_classes = (
        number for number, route_class in enumerate(routes.classes) if route_class.kind == TRANSFER
    )
    by_route = grouped(
        transfer_classes,
        lambda number: (routes.classes[number].route, routes.classes[number].channel),
    )
    requests = []
    for (route, channel), class_numbers in by_route.items():
        selected = np.isin(routes.class_number, class_numbers)
        pair = different(routes.src[selected].astype(np.int64) * ranks + routes.dst[selected])
        channels = np.full(len(pair), channel, np.int32)
        requests.append((device[pair // ranks], device[pair % ranks], channels, route))
    connection_count = np.zeros(len(topology.links))
    crossed = topology.routes_of_messages(requests)
    np.add.at(connection_count, crossed.link, crossed.fraction)
    return connection_count


def _route_class(style: Style, *, per_channel: bool) -> RouteClass:
    """Return the class of the routes of a style.

    `per_channel`: whether routes depend on the channel. Uses that the style does not state are
    added: of SMs by computing, and of memory by a local copy, which reads and writes each byte (2),
    or also reads a second operand if it reduces (3).
    """
    uses = style.uses
    if style.kind == COMPUTE and not any(use.resource == "sms" for use in uses):
        uses = (*uses, Use("sms", "src", 1.0))
    if style.kind == LOCAL_COPY and not any(use.resource == "hbm" for use in uses):
        uses = (*uses, Use("hbm", "src", 2.0 if style.op == 0 else 3.0))
    channel = style.channel if per_channel else 0
    return RouteClass(
        kind=style.kind,
        wire=style.wire,
        multiplicity=style.multiplicity,
        uses=uses,
        route=style.route,
        channel=channel,
        copies=style.copies,
    )


def _queue_pairs(schedule: Schedule, queue_pairs: int) -> NDArray[np.int32]:
    """Return the queue pair of every row, 0 if it is no transfer.

    The transfers of a connection (source, destination and channel) use its queue pairs in turn: the
    k-th transfer uses queue pair k % `queue_pairs`.
    """
    styles = schedule.styles
    channel_of_style = np.array([s.channel if s.kind == TRANSFER else -1 for s in styles])
    channel = channel_of_style[schedule.style]
    connection = (channel * schedule.ranks + schedule.src) * schedule.ranks + schedule.dst
    order = np.argsort(connection, kind="stable")
    place = np.empty(len(connection), np.int64)
    place[order] = np.arange(len(connection))
    first_place = np.searchsorted(connection[order], connection)
    in_turn = (place - first_place) % queue_pairs
    return np.where(channel < 0, 0, in_turn).astype(np.int32)


@dataclass(frozen=True, slots=True)
class _RowKeys:
    """A key for the route of every row: (class · width + source) · width + destination.

    Keys have the type of `class_of_style`. They are calculated for some rows at a time.
    """

    schedule: Schedule
    class_of_style: Keys
    width: int
    queue_pair: NDArray[np.int32] | None = None

    def chunk(self, first: int) -> Keys:
        """Return the keys of the rows from `first` on, `_ROWS_AT_A_TIME` of them; -1 for marks."""
        rows = slice(first, first + _ROWS_AT_A_TIME)
        class_number = self.class_of_style[self.schedule.style[rows]]
        key = class_number
        if self.queue_pair is not None:
            key = class_number + self.queue_pair[rows]
        key = key * self.width
        key += self.schedule.src[rows]
        key *= self.width
        key += self.schedule.dst[rows]
        key[class_number < 0] = -1
        return key


def _number_by_table(
    keys: _RowKeys, cell_count: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the number of every row's route, and the key of every route.

    It uses a table with a cell for each possible key (`cell_count` of them).
    """
    row_count = len(keys.schedule)
    number = np.full(cell_count + 1, -1, np.int32)  # the last cell, at index -1, is that of marks
    of_row = np.empty(row_count, np.int32)  # holds the keys until they have numbers
    for first in range(0, row_count, _ROWS_AT_A_TIME):
        key = keys.chunk(first)
        number[key] = 0
        of_row[first : first + _ROWS_AT_A_TIME] = key
    number[-1] = -1
    route_keys = np.flatnonzero(number == 0)
    number[route_keys] = np.arange(len(route_keys), dtype=np.int32)
    for first in range(0, row_count, _ROWS_AT_A_TIME):
        rows = slice(first, first + _ROWS_AT_A_TIME)
        of_row[rows] = number[of_row[rows]]
    return of_row, route_keys


def _number_by_sorting(keys: _RowKeys) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the number of every row's route, and the key of every route.

    It sorts the keys of all rows.
    """
    row_count = len(keys.schedule)
    chunks = [different(keys.chunk(first)) for first in range(0, row_count, _ROWS_AT_A_TIME)]
    route_keys = different(np.concatenate([np.zeros(0, np.int64), *chunks]))
    route_keys = route_keys[route_keys >= 0]
    of_row = np.empty(row_count, np.int32)
    for first in range(0, row_count, _ROWS_AT_A_TIME):
        key = keys.chunk(first)
        number = np.where(key < 0, -1, np.searchsorted(route_keys, key))
        of_row[first : first + _ROWS_AT_A_TIME] = number
    return of_row, route_keys


def _split_keys(route_keys: NDArray[np.int64], width: int) -> tuple[NDArray[np.int32], ...]:
    """Return three columns by key: its class, source and destination (see `_RowKeys`).

    Products replace remainders, which take longer: there may be very many routes.
    """
    pair = route_keys // width
    dst = (route_keys - pair * width).astype(np.int32)
    class_number = (pair // width).astype(np.int32)
    pair -= class_number.astype(np.int64) * width
    return class_number, pair.astype(np.int32), dst
