"""What passed over the links of a Program during a run: amounts and average utilisation.

Amounts are in the unit of the resource: bytes on wires and memories, seconds on what gives one
second a second (SMs as compute, proxies, messages, launches). Knows Program and Timeline only.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.program import LinkTable, Program, Timeline
from netsim.values import dataclass

IN_SECONDS = frozenset({"sms", "proxy", "nic_msg", "host"})  # kinds that give seconds, not bytes


@dataclass(frozen=True, slots=True)
class LinkUse:
    """The links that carried anything, each with its amount and its average utilisation (0…1)."""

    link: NDArray[np.int64]
    amount: NDArray[np.float64]
    utilisation: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.link)

    def top(self, count: int) -> NDArray[np.int64]:
        """Positions of the most utilised links, the busiest first, equal ones in link order."""
        return np.argsort(-self.utilisation, kind="stable")[:count]


def link_amounts(program: Program, times: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """What all rows together draw on every link of the program, each so many times (once)."""
    paths = program.paths
    placed = program.path >= 0
    amount = program.schedule.amount[placed] * (1.0 if times is None else times[placed])
    by_path = np.bincount(program.path[placed], amount, minlength=len(paths))
    drawn = np.repeat(by_path, np.diff(paths.ptr)) * paths.weight
    amounts = np.zeros(len(program.links))
    np.add.at(amounts, paths.link, drawn)
    return amounts


def link_use(program: Program, timeline: Timeline) -> LinkUse:
    """Amount and utilisation, averaged over the makespan, of every link in use."""
    return use_of(program, link_amounts(program), timeline.makespan)


def use_of(program: Program, amounts: NDArray[np.float64], seconds: float) -> LinkUse:
    """The utilisation of links that carry such amounts in so many seconds."""
    link = np.flatnonzero(amounts > 0)
    room = capacity_room(program.links, link, np.array([0.0, seconds]))[:, 0]
    return LinkUse(link, amounts[link], utilisation_of(amounts[link], room))


def extended_use(long: Program, short: Program, times: float, seconds: float) -> LinkUse:
    """Amount and utilisation of what goes on in `seconds` for `times` as long as `long` does beyond
    `short`, and alike.
    """
    amounts = link_amounts(long)
    return use_of(long, amounts + times * (amounts - link_amounts(short)), seconds)


def busy_with_more(short: Program, longer: Program) -> float:
    """Seconds that the busiest link needs for what the longer program moves besides; 0 where links
    are not comparable, or change.
    """
    if short.links.changes or not same_links(short.links, longer.links):
        return 0.0
    added, room = link_amounts(longer) - link_amounts(short), short.links.capacity
    return float((added[room > 0] / room[room > 0]).max(initial=0.0))


def same_links(one: LinkTable, other: LinkTable) -> bool:
    """Whether links of two programs have the same numbers."""
    return (
        len(one) == len(other)
        and np.array_equal(one.capacity, other.capacity)
        and np.array_equal(_counts(one), _counts(other))
    )


def _counts(table: LinkTable) -> NDArray[np.int32]:
    return np.ones(len(table), np.int32) if table.count is None else table.count


def utilisation_of(amount: NDArray[np.float64], room: NDArray[np.float64]) -> NDArray[np.float64]:
    """Amount ÷ room; 0 where there is no room, or no end to it."""
    bounded = np.isfinite(room) & (room > 0)
    return np.divide(amount, room, out=np.zeros_like(amount), where=bounded)


def capacity_room(
    table: LinkTable, links: NDArray[np.int64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What each link could carry between consecutive edges, with its capacity changes."""
    widths = np.diff(edges)
    with np.errstate(invalid="ignore"):
        room = table.capacity[links][:, None] * widths
    room[:, widths <= 0] = 0.0
    changed = {link for _, link, _ in table.changes}
    for position, link in enumerate(links.tolist()):
        if link in changed:
            room[position] = _changing_room(table, link, edges)
    return room


def _changing_room(table: LinkTable, link: int, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    steps = [(0.0, float(table.capacity[link]))]
    steps += [(when, value) for when, where, value in table.changes if where == link]
    ends = [when for when, _ in steps[1:]] + [np.inf]
    room = np.zeros(len(edges) - 1)
    for (begin, capacity), end in zip(steps, ends, strict=True):
        overlap = np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin)
        inside = overlap > 0
        room[inside] += capacity * overlap[inside]
    return room
