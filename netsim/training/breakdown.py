"""Where the time of every GPU goes: computing, communication that nothing hides, waiting.

At every moment a GPU computes, or else a collective of its own is under way (exposed, by kind; of
several kinds at once, the one that was there first), or else it waits: in a pipeline that is the
bubble, and the wait for slower GPUs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.training.spans import Spans
from netsim.workloads.tape import COMPUTE

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Breakdown:
    """Seconds by rank: computing, exposed and hidden by kind of communication, idle."""

    kinds: tuple[str, ...]
    computing: Times
    exposed: Times  # kind x rank
    hidden: Times  # kind x rank
    idle: Times
    exposed_by_task: Times

    @property
    def exposed_total(self) -> Times:
        """Exposed communication of every rank."""
        total: Times = self.exposed.sum(axis=0)
        return total

    @property
    def overlap(self) -> float:
        """The part of all time with communication under way that computing hides."""
        hidden, exposed = float(self.hidden.sum()), float(self.exposed.sum())
        return hidden / (hidden + exposed) if hidden + exposed > 0 else 0.0


def breakdown_of(spans: Spans) -> Breakdown:
    """Where the time of each rank goes."""
    kinds = tuple(kind for kind in spans.kinds if kind != COMPUTE)
    shape = (len(kinds), spans.ranks)
    exposed, hidden = np.zeros(shape), np.zeros(shape)
    computing, idle = np.zeros(spans.ranks), np.zeros(spans.ranks)
    by_task = np.zeros(len(spans.tape.tasks))
    rank, kind, task, begin, end = spans.columns
    edges = np.searchsorted(rank, np.arange(spans.ranks + 1))
    for number in range(spans.ranks):
        part = slice(int(edges[number]), int(edges[number + 1]))
        one = _of_rank(kind[part], begin[part], end[part], len(kinds) + 1, spans.makespan)
        computing[number], idle[number] = one.computing, one.idle
        exposed[:, number], hidden[:, number] = one.exposed, one.hidden
        np.add.at(by_task, task[part], one.by_task)
    return Breakdown(kinds, computing, exposed, hidden, idle, by_task)


def bound_of(breakdown: Breakdown) -> str:
    """What takes most of the time of all GPUs together, and which part of it."""
    spent = {"compute": float(breakdown.computing.sum()), "waiting": float(breakdown.idle.sum())}
    for kind, seconds in zip(breakdown.kinds, breakdown.exposed.sum(axis=1), strict=True):
        spent[f"{kind} communication"] = float(seconds)
    total = sum(spent.values())
    name = max(spent, key=lambda one: spent[one])
    return f"{name} {spent[name] / total:.0%}" if total > 0 else ""


@dataclass(frozen=True)
class _OfRank:
    computing: float
    exposed: Times
    hidden: Times
    idle: float
    by_task: Times


def _of_rank(
    kind: NDArray[np.int32], begin: Times, end: Times, kinds: int, makespan: float
) -> _OfRank:
    """One rank: sweep over the moments at which anything begins or ends."""
    edges = np.unique(np.concatenate([begin, end, [0.0, makespan]]))
    lengths = np.diff(edges)
    first, last = np.searchsorted(edges, begin), np.searchsorted(edges, end)
    count = np.zeros((kinds, len(edges)), np.int32)
    np.add.at(count, (kind, first), 1)
    np.add.at(count, (kind, last), -1)
    busy: NDArray[np.bool_] = np.cumsum(count, axis=1)[:, :-1] > 0
    free = ~busy[0]
    shown = _foremost(busy[1:], free)
    exposed, hidden = (shown * lengths).sum(axis=1), (busy[1:] & busy[0]) @ lengths
    idle = float(lengths[free & ~busy[1:].any(axis=0)].sum())
    # Of one kind, exposed time is that of the task that is under way: streams run one at a time.
    bare = np.concatenate([[0.0], np.cumsum(np.where(free, lengths, 0.0))])
    by_task = np.where(kind > 0, bare[last] - bare[first], 0.0)
    return _OfRank(float(lengths[busy[0]].sum()), exposed, hidden, idle, by_task)


def _foremost(busy: NDArray[np.bool_], free: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of the kinds under way while the GPU is free, one for each moment: the first of the list."""
    shown = busy & free
    first: NDArray[np.bool_] = shown & (np.cumsum(shown, axis=0) == 1)
    return first
