"""The rules of trace events that viewers rely on, as one check over a whole trace."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def of_phase(trace: dict[str, Any], *phases: str) -> list[Event]:
    return [event for event in trace["traceEvents"] if event["ph"] in phases]


def nanos(value: float) -> int:
    whole = round(value * 1000)
    assert abs(value * 1000 - whole) < 1e-3, "times are whole nanoseconds"
    return whole


def check(trace: dict[str, Any]) -> None:
    names = of_phase(trace, "M")
    assert trace["traceEvents"][: len(names)] == names, "names come first"
    timed = trace["traceEvents"][len(names) :]
    assert [e["ts"] for e in timed] == sorted(e["ts"] for e in timed), "in order of time"
    _check_names(names, timed)
    _check_slices(of_phase(trace, "X"))
    _check_arrows(trace)


def _check_names(names: list[Event], timed: list[Event]) -> None:
    processes = {e["pid"] for e in names if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in names if e["name"] == "thread_name"}
    for event in timed:
        assert event["pid"] in processes
        if event["ph"] != "C":
            assert (event["pid"], event["tid"]) in threads
    for what in ("process", "thread"):
        named = [(e["pid"], e["tid"]) for e in names if e["name"] == f"{what}_name"]
        placed = [(e["pid"], e["tid"]) for e in names if e["name"] == f"{what}_sort_index"]
        assert named == placed
        assert len(set(named)) == len(named)


def _check_slices(slices: list[Event]) -> None:
    """On one thread, every slice ends before the next begins."""
    free: dict[tuple[int, int], int] = defaultdict(int)
    for event in slices:
        begin, duration = nanos(event["ts"]), nanos(event["dur"])
        thread = (event["pid"], event["tid"])
        assert duration > 0
        assert begin >= free[thread], f"{event['name']} overlaps the slice before it"
        free[thread] = begin + duration


def _check_arrows(trace: dict[str, Any]) -> None:
    """Every arrow begins once and ends once, later, each time within a slice."""
    starts = {e["id"]: e for e in of_phase(trace, "s")}
    ends = {e["id"]: e for e in of_phase(trace, "f")}
    assert len(starts) == len(of_phase(trace, "s"))
    assert len(ends) == len(of_phase(trace, "f"))
    assert set(starts) == set(ends)
    begins = {(e["pid"], e["tid"], e["ts"]) for e in of_phase(trace, "X")}
    for number, start in starts.items():
        end = ends[number]
        assert end["bp"] == "e"
        assert (end["name"], end["cat"]) == (start["name"], start["cat"])
        assert end["ts"] >= start["ts"]
        assert (start["pid"], start["tid"], start["ts"]) in begins
        assert (end["pid"], end["tid"], end["ts"]) in begins
