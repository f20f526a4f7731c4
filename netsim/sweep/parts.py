"""How much time each part of a cluster costs when it is dead, for `sweep: {faults: each nic}`.

Nobody chooses a fault, so such a sweep has no best cell: each part is compared with the healthy
cluster, with all other settings equal.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from typing import Any

from netsim.base.units import format_time
from netsim.base.values import dataclass
from netsim.results.row import EQUAL, Row
from netsim.scenario.cells import Expansion, Invalid
from netsim.scenario.each_part import HEALTHY

MOST_NAMES = 3  # of several parts with the same cost, or that cannot be lost, this many are named


@dataclass(frozen=True)
class PartTime:
    """The time of one cell in µs: `part` is the dead part (or HEALTHY), `setting` the values of the
    other axes.
    """

    part: str
    setting: tuple[str, ...]
    time_us: float


@dataclass(frozen=True)
class PartCost:
    """The cost of a dead part.

    - `part`: its name.
    - `ratio`: the time of the job with the part dead over its time on the healthy cluster; over
      several settings, the geometric mean.
    - `time_us`: the time with the part dead, in µs; of the last setting if there are several.
    """

    part: str
    ratio: float
    time_us: float


@dataclass(frozen=True)
class PartCosts:
    """The costs of all parts.

    - `healthy_us`: the time on the healthy cluster in the first setting, in µs.
    - `costs`: the costs of parts, the most costly first.
    - `lost`: by part without which the job cannot run, the reason.
    - `setting_count`: number of settings (values of the other axes).
    """

    healthy_us: float
    costs: tuple[PartCost, ...]
    lost: Mapping[str, str]
    setting_count: int


def part_costs(times: Iterable[PartTime], lost: Mapping[str, str]) -> PartCosts:
    """The costs of the parts from the times of cells. Settings without a time of the healthy
    cluster are ignored.

    `lost`: by part without which the job cannot run, the reason.
    """
    every = list(times)
    healthy = {
        cell_time.setting: cell_time.time_us for cell_time in every if cell_time.part == HEALTHY
    }
    ratios: dict[str, list[float]] = {}
    last: dict[str, float] = {}
    for cell_time in every:
        if cell_time.part != HEALTHY and cell_time.setting in healthy:
            ratios.setdefault(cell_time.part, []).append(
                cell_time.time_us / healthy[cell_time.setting]
            )
            last[cell_time.part] = cell_time.time_us
    costs = [
        PartCost(part, exp(sum(map(log, some)) / len(some)), last[part])
        for part, some in ratios.items()
    ]
    costs.sort(key=lambda cost: -cost.ratio)
    healthy_us = next(iter(healthy.values()), 0.0)
    return PartCosts(healthy_us, tuple(costs), lost, len(healthy))


def costs_of(expansion: Expansion, rows: Sequence[Row], axis: str) -> PartCosts:
    """The costs of the parts on an axis of a sweep, at the largest size for which the healthy
    cluster has a time.
    """
    good = [row for row in rows if row.status == "ok" and (row.time_us or row.step_time_us)]
    largest = max(
        (row.requested_size for row in good if _part_of(row.axes, axis) == HEALTHY), default=0
    )
    times = [
        PartTime(
            _part_of(row.axes, axis),
            tuple(f"{name} {value}" for name, value in row.axes.items() if name != axis),
            row.time_us or row.step_time_us or 0.0,
        )
        for row in good
        if row.requested_size == largest
    ]
    ended = {_part_of(row.axes, axis): first_line(row.error) for row in rows if row.status != "ok"}
    unable = {
        _part_of(point.axes, axis): point.error.errors[0].message
        for point in expansion.points
        if isinstance(point, Invalid)
    }
    lost = {part: why for part, why in {**unable, **ended}.items() if part != HEALTHY}
    return part_costs(times, lost)


def _part_of(axes: Mapping[str, Any], axis: str) -> str:
    """The dead part of a cell, which is its value on the axis of parts."""
    return str(axes.get(axis))


def first_line(text: str) -> str:
    """The first line of a message; "" for an empty one."""
    lines = text.splitlines()
    return lines[0] if lines else ""


def sentences(costs: PartCosts, at: str = "") -> list[str]:
    """Up to two sentences for the user: which parts cost most and least time, and which ones the
    job cannot do without.

    `at` is text that is added, such as " at 64 MiB".
    """
    lines = []
    if costs.costs:
        several = costs.setting_count > 1
        where = f"on average over {costs.setting_count} cells" if several else _healthy(costs)
        lines.append(f"compared with the healthy cluster{at} ({where}), {_range(costs.costs)}")
    if costs.lost:
        total = len(costs.costs) + len(costs.lost)
        count = f"{len(costs.lost)} of {total}"
        reason = next(iter(costs.lost.values()))
        names = names_of(list(costs.lost))
        lines.append(f"it cannot run with one of these at fault ({count}): {names}: {reason}")
    return lines


def _healthy(costs: PartCosts) -> str:
    """The time of the healthy cluster as text."""
    return format_time(costs.healthy_us / 1e6)


def _range(costs: Sequence[PartCost]) -> str:
    """A clause that names the parts which cost most and those which cost least, or all parts if
    they cost the same.
    """
    most = costs[0]
    least = costs[-1]
    if most.ratio / least.ratio - 1 <= EQUAL:
        if len(costs) == 1:
            return f"{most.part} costs {percent(most.ratio)}"
        return f"each of the {len(costs)} parts costs {percent(most.ratio)}"
    as_much = [cost.part for cost in costs if most.ratio / cost.ratio - 1 <= EQUAL]
    as_little = [cost.part for cost in costs if cost.ratio / least.ratio - 1 <= EQUAL]
    return (
        f"most costs {names_of(as_much)} ({percent(most.ratio)}), "
        f"least {names_of(as_little)} ({percent(least.ratio)})"
    )


def percent(ratio: float) -> str:
    """The increase of a time as text: `22 % more time` for the ratio 1.22, or `nothing`."""
    if abs(ratio - 1) <= EQUAL:
        return "nothing"
    return f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'} time".replace("%", " %", 1)


def names_of(names: Sequence[str]) -> str:
    """The first names, and the number of those left out: `leaf0, leaf1, leaf2 and 5 more`."""
    more = len(names) - MOST_NAMES
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown
