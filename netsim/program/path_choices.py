"""Which paths messages choose from when they start (adaptive routing)."""

import numpy as np
from numpy.typing import NDArray

from netsim.program.distinct_routes import DistinctRoutes, with_queue_pair
from netsim.program.program import Choices
from netsim.schedule.schedule import TRANSFER
from netsim.topology.graph import Topology

# The most paths that messages choose from, of all routes together, which bounds memory; each route
# has at least two in any case.
_MOST_PATHS = 1 << 20


def add_alternatives(
    routes: DistinctRoutes, topology: Topology, device: NDArray[np.int32]
) -> tuple[DistinctRoutes, NDArray[np.int32]]:
    """Return the routes followed by their alternatives, and by route the number of the original.

    The router offers up to `router.choices` paths for each route (by queue pairs). A path that
    crosses the same links as an earlier one of its route is left out. `device` is by rank its GPU.
    """
    route_count = len(routes)
    numbers = np.arange(route_count, dtype=np.int32)
    most_per_route = max(2, _MOST_PATHS // max(1, route_count))
    alternatives = min(topology.router.choices, most_per_route)
    if alternatives < 2:
        return routes, numbers
    is_new = _new_alternatives(routes, topology, device, alternatives)
    owner, alternative = np.nonzero(is_new[1:].T)
    alternative += 1
    class_count = len(routes.classes)
    classes = tuple(
        with_queue_pair(route_class, number)
        for number in range(1, alternatives)
        for route_class in routes.classes
    )
    class_number = routes.class_number[owner] + alternative * class_count
    extended = DistinctRoutes(
        of_row=routes.of_row,
        classes=(*routes.classes, *classes),
        class_number=np.append(routes.class_number, class_number).astype(np.int32),
        src=np.append(routes.src, routes.src[owner]),
        dst=np.append(routes.dst, routes.dst[owner]),
    )
    return extended, np.append(numbers, owner).astype(np.int32)


def _new_alternatives(
    routes: DistinctRoutes, topology: Topology, device: NDArray[np.int32], alternatives: int
) -> NDArray[np.bool_]:
    """Return as [alternative, route] whether this path differs from the route's earlier ones.

    It differs if it crosses other links. Two sets of links are compared by the sum of a random
    number for each link. `alternatives` is the number of paths of a route.
    """
    random_numbers = np.random.default_rng(0).integers(1 << 62, size=len(topology.links))
    link_sums = np.zeros((alternatives, len(routes)), np.int64)
    is_new = np.zeros((alternatives, len(routes)), bool)
    for alternative in range(alternatives):
        for class_number, route_class in enumerate(routes.classes):
            if route_class.kind != TRANSFER:
                continue
            selected = np.flatnonzero(routes.class_number == class_number)
            crossed = topology.routes(
                device[routes.src[selected]],
                device[routes.dst[selected]],
                np.full(len(selected), route_class.channel, np.int32),
                with_queue_pair(route_class, alternative).route,
            )
            total = np.append(0, np.cumsum(random_numbers[crossed.link]))
            link_sums[alternative, selected] = total[crossed.ptr[1:]] - total[crossed.ptr[:-1]]
        is_new[alternative] = (link_sums[alternative] != link_sums[:alternative]).all(axis=0)
    return is_new


def choices_of(
    route_of_path: NDArray[np.int32],
    route_count: int,
    ptr: NDArray[np.int64],
    link: NDArray[np.int32],
) -> Choices:
    """Return the table by which messages choose paths.

    - `route_of_path`: by path, the number of its route. Path number r is the first path of route r.
    - `route_count`: the number of routes.
    - `ptr`, `link`: path p crosses the links `link[ptr[p]:ptr[p + 1]]`.

    Messages compare paths by the links that not all paths of the route share.
    """
    path_count = np.bincount(route_of_path, minlength=route_count)
    link_count = int(link.max(initial=0)) + 1
    key = np.repeat(route_of_path, np.diff(ptr)).astype(np.int64) * link_count + link
    distinct, place, times = np.unique(key, return_inverse=True, return_counts=True)
    is_apart = (times < path_count[distinct // link_count])[place]
    is_compared = np.zeros(link_count, bool)
    is_compared[link[is_apart]] = True
    has_slot = is_compared[link]
    slot_of_link = np.cumsum(is_compared) - 1
    return Choices(
        route=route_of_path,
        more=route_count + np.append(0, np.cumsum(path_count - 1)),
        ptr=np.append(0, np.cumsum(has_slot))[ptr],
        slot=slot_of_link[link[has_slot]].astype(np.int32),
        apart=is_apart[has_slot],
        link=np.flatnonzero(is_compared),
    )
