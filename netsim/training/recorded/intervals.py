"""Which intervals of a thread hold each of some moments, from the outermost to the innermost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """What went on for a while: begin and end, the thread, and what it is called."""

    begin: float
    end: float
    thread: object
    name: str = ""
    number: int = -1


def holding(
    intervals: Sequence[Interval], moments: Sequence[tuple[float, object]]
) -> Iterator[tuple[int, tuple[Interval, ...]]]:
    """The number of every moment (time, thread) with the intervals of its thread around it."""
    by_thread: dict[object, list[Interval]] = {}
    for one in intervals:
        by_thread.setdefault(one.thread, []).append(one)
    for some in by_thread.values():
        some.sort(key=lambda one: (one.begin, -one.end))
    order = sorted(range(len(moments)), key=lambda number: moments[number][0])
    places = dict.fromkeys(by_thread, 0)
    open_: dict[object, list[Interval]] = {thread: [] for thread in by_thread}
    for number in order:
        when, thread = moments[number]
        if thread not in by_thread:
            yield number, ()
            continue
        some, place, stack = by_thread[thread], places[thread], open_[thread]
        while place < len(some) and some[place].begin <= when:
            while stack and stack[-1].end <= some[place].begin:
                stack.pop()
            stack.append(some[place])
            place += 1
        places[thread] = place
        while stack and stack[-1].end < when:
            stack.pop()
        yield number, tuple(one for one in stack if one.end >= when)
