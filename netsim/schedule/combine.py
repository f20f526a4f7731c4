"""Several schedules side by side: other communicators, other jobs, on ranks of a larger world."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.schedule.rows import MULTICAST, SWITCH_REDUCE, Lag, Pieces, Schedule, Style


def combine(schedules: Sequence[Schedule], ranks: Sequence[Sequence[int]], world: int) -> Schedule:
    """All rows of all schedules, nothing of one waiting for another.

    Rank i of `schedules[k]` becomes rank `ranks[k][i]` of `world`. Rows keep their order, schedule
    after schedule.
    """
    if any(one.fold is not None for one in schedules):
        raise ValueError("schedules: expected them in full, got one that is folded")
    tables = _Tables(world)
    parts = [
        tables.add(one, np.asarray(who, np.int32))
        for one, who in zip(schedules, ranks, strict=True)
    ]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    lengths = np.cumsum([0, *(len(one.dep_row) for one in schedules)])
    pointers = [one.dep_ptr[:-1] + first for one, first in zip(schedules, lengths, strict=False)]
    ptr = np.concatenate([*pointers, lengths[-1:]]).astype(np.int32)
    names = [name for one in schedules for name in one.collectives]
    pieces = (
        np.concatenate([getattr(one.pieces, c) for one in schedules]) for c in Pieces.__slots__
    )
    return Schedule(
        ranks=world,
        styles=tuple(tables.styles),
        pieces=Pieces(*pieces),
        lags=tuple(tables.lags),
        groups=tuple(tables.groups),
        dep_ptr=ptr,
        release_time=np.concatenate([one.release_time for one in schedules]),
        collectives=tuple(names),
        fold=None,
        **columns,
    )


class _Tables:
    """The shared tables as they grow, and the columns of each schedule in their numbers."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.styles: dict[Style, int] = {}
        self.lags: dict[Lag, int] = {}
        self.groups: dict[tuple[int, ...], int] = {}
        self.rows = self.pieces = self.collectives = 0

    def add(self, one: Schedule, who: NDArray[np.int32]) -> dict[str, NDArray[np.generic]]:
        if len(who) != one.ranks or len(different(who)) < len(who) or who.max() >= self.world:
            raise ValueError(f"expected {one.ranks} different ranks below {self.world}, got {who}")
        styles = [replace(s, collective=s.collective + self.collectives) for s in one.styles]
        style = np.array([self.styles.setdefault(s, len(self.styles)) for s in styles], np.int32)
        lag = np.array([self.lags.setdefault(x, len(self.lags)) for x in one.lags], np.int16)
        members = [tuple(int(who[rank]) for rank in group) for group in one.groups]
        group = np.array([self.groups.setdefault(g, len(self.groups)) for g in members], np.int32)
        kinds = one.kind
        columns: dict[str, NDArray[np.generic]] = {
            "style": style[one.style],
            "src": _ends(one.src, who, group, kinds == SWITCH_REDUCE),
            "dst": _ends(one.dst, who, group, kinds == MULTICAST),
            "piece": one.piece + np.int32(self.pieces),
            "step": one.step,
            "dep_row": one.dep_row + np.int32(self.rows),
            "dep_lag": lag[one.dep_lag],
            "release_row": one.release_row + np.int32(self.rows),
        }
        self.rows += len(one)
        self.pieces += len(one.pieces.count)
        self.collectives += len(one.collectives)
        return columns


def _ends(
    column: NDArray[np.int32],
    who: NDArray[np.int32],
    group: NDArray[np.int32],
    grouped: NDArray[np.bool_],
) -> NDArray[np.int32]:
    result = who[np.where(grouped, 0, column)]
    if grouped.any():
        result[grouped] = group[column[grouped]]
    return result
