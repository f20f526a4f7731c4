"""Links of a run as counter tracks: how much passes each of them, over time."""

from typing import Any

import numpy as np

from netsim.metrics import IN_SECONDS, LinkLoad, link_use, load_over_time
from netsim.program import Program, Timeline
from netsim.trace.slices import nanoseconds

FIRST_PROCESS = 1_000_000  # process numbers of link kinds begin here, those below are ranks
Event = dict[str, Any]


def busiest_load(
    program: Program, timeline: Timeline, links: int, bins: int, exact: int = 0
) -> LinkLoad:
    """The load over time of the most utilised links, in link order."""
    use = link_use(program, timeline)
    return load_over_time(program, timeline, np.sort(use.link[use.top(links)]), bins, exact)


def link_counters(
    program: Program, timeline: Timeline, links: int, bins: int
) -> tuple[list[Event], list[Event]]:
    """Names and counters of the most utilised links."""
    return counter_events(program, busiest_load(program, timeline, links, bins))


def counter_events(program: Program, load: LinkLoad) -> tuple[list[Event], list[Event]]:
    """Names of the processes that hold the counters, and the counters: one process a link kind."""
    kinds = [program.links.kind(link) for link in load.link.tolist()]
    process = {kind: FIRST_PROCESS + i for i, kind in enumerate(dict.fromkeys(kinds))}
    names = [
        event for kind, pid in process.items() for event in process_names(pid, f"links: {kind}")
    ]
    times = (nanoseconds(load.edges) / 1000).tolist()
    events = []
    for i, kind in enumerate(kinds):
        unit, values = "GB/s", load.rate[i] / 1e9
        if kind in IN_SECONDS:
            unit, values = "%", load.utilisation[i] * 100
        counter = {
            "ph": "C",
            "pid": process[kind],
            "tid": 0,
            "name": program.links.name(int(load.link[i])),
        }
        steps = _steps(times, [float(f"{value:.6g}") for value in values.tolist()])
        events += [{**counter, "ts": ts, "args": {unit: value}} for ts, value in steps]
    return names, events


def process_names(pid: int, name: str) -> list[Event]:
    """The events that name a process and put it in its place."""
    return [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}},
        {
            "ph": "M",
            "pid": pid,
            "tid": 0,
            "name": "process_sort_index",
            "args": {"sort_index": pid},
        },
    ]


def _steps(times: list[float], values: list[float]) -> list[tuple[float, float]]:
    """Times at which the value changes, and a last 0 at the end."""
    steps, before = [], None
    for ts, value in zip(times, [*values, 0.0], strict=True):
        if value != before:
            steps.append((ts, value))
        before = value
    return steps
