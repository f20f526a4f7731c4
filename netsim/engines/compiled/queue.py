"""A queue of few among many: a heap of those that have a level, and where in it everyone is.

It costs as much as there are in it, while an agenda costs as much as there are places. Of equal
levels the one with the lowest number comes first.
"""

from math import inf
from typing import Any

import numpy as np

from netsim.engines.compiled.jit import Inner

Queue = Any  # records: entry i of the heap, from 1 on, and the place in it of number i
ENTRY = np.dtype(
    [
        ("level", "f8"),
        ("who", "i4"),  # that of entry 0 counts the entries
        ("place", "i4"),  # 0 for who is not in the heap
    ],
    align=True,
)


def empty_queue(numbers: int) -> Queue:
    """A queue for so many numbers, with nobody in it."""
    queue = np.zeros(numbers + 2, ENTRY)
    queue["level"][1] = inf
    return queue


def longer(queue: Queue) -> Queue:
    """The same queue for four times the numbers, as much more as an agenda grows by."""
    wide = np.zeros(4 * len(queue), ENTRY)
    wide[: len(queue)] = queue
    return wide


@Inner
def level_of(queue: Queue, who: int) -> float:
    """The level of a number, infinite if it is not in the queue."""
    place = queue[who].place
    return float(queue[place].level) if place > 0 else inf


@Inner
def put_in(queue: Queue, who: int, level: float) -> None:
    """Give a number a level, a new one or another than before."""
    place = queue[who].place
    if place == 0:
        queue[0].who += 1
        _rise(queue, queue[0].who, who, level)
    elif level > queue[place].level:
        _sink(queue, place, who, level)
    else:
        _rise(queue, place, who, level)


@Inner
def take_out(queue: Queue, who: int) -> None:
    """Take a number out, if it is in the queue."""
    place = queue[who].place
    if place == 0:
        return
    queue[who].place = 0
    count = queue[0].who
    queue[0].who = count - 1
    if place < count:
        last, level = queue[count].who, queue[count].level
        if _before(queue, place, last, level):
            _sink(queue, place, last, level)
        else:
            _rise(queue, place, last, level)
    elif count == 1:
        queue[1].level = inf


@Inner
def _before(queue: Queue, place: int, who: int, level: float) -> bool:
    """Whether what stands at a place comes before a number with a level."""
    there = queue[place]
    return bool(there.level < level or (there.level == level and there.who < who))


@Inner
def _rise(queue: Queue, place: int, who: int, level: float) -> None:
    """Let a number into the heap at a place or above."""
    while place > 1 and not _before(queue, place >> 1, who, level):
        _move(queue, place >> 1, place)
        place >>= 1
    _set(queue, place, who, level)


@Inner
def _sink(queue: Queue, place: int, who: int, level: float) -> None:
    """Let a number into the heap at a place or below."""
    count = queue[0].who
    while 2 * place <= count:
        child = 2 * place
        if child < count and _before(queue, child + 1, queue[child].who, queue[child].level):
            child += 1
        if not _before(queue, child, who, level):
            break
        _move(queue, child, place)
        place = child
    _set(queue, place, who, level)


@Inner
def _move(queue: Queue, here: int, there: int) -> None:
    _set(queue, there, queue[here].who, queue[here].level)


@Inner
def _set(queue: Queue, place: int, who: int, level: float) -> None:
    queue[place].level, queue[place].who = level, who
    queue[who].place = place
