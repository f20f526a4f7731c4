"""Rows of a run as slices: sends with arrows to their receives, copies, compute and launches."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from netsim.program import Program, Timeline
from netsim.schedule import COMPUTE, LOCAL_COPY, MARK, OP_NAMES, Style
from netsim.trace.columns import spelled, whole
from netsim.trace.names import Names
from netsim.trace.selection import Selection
from netsim.trace.slices import (
    CHANNELS,
    COMPUTES,
    LAUNCH,
    LOCAL,
    RECEIVE,
    SEND,
    Slice,
    Track,
    as_json,
    spans,
)

_CATEGORIES = {MARK: "launch", COMPUTE: "kernel", LOCAL_COPY: "gpu_memcpy"}  # of what stays
_Bar = tuple[int, int, str, str]  # begin, end, name and arguments


def row_slices(
    program: Program, timeline: Timeline, names: Names, selection: Selection
) -> list[Slice]:
    """The slices of all rows shown; what takes no time and moves nothing is left out."""
    schedule, rows = program.schedule, selection.rows
    kind = np.array([style.kind for style in schedule.styles], int)[schedule.style[rows]]
    nothing = (kind == MARK) | (schedule.pieces.amount[schedule.piece[rows]] == 0)
    seen = (timeline.end[rows] > timeline.start[rows]) | ~nothing
    stays = np.isin(kind, list(_CATEGORIES))
    own = _Shown(program, timeline, names, rows[seen & stays])
    moved = _Shown(program, timeline, names, rows[seen & ~stays])
    return [*own.local(), *moved.sent()]


@dataclass(frozen=True, slots=True)
class _Shown:
    """Some of the rows shown; what is said of them is spelled out column by column."""

    program: Program
    timeline: Timeline
    names: Names
    rows: NDArray[np.int64]

    def local(self) -> Iterator[Slice]:
        """A slice for each of the rows, which stay on their ranks."""
        schedule = self.program.schedule
        track = [_local_track(style) for style in schedule.styles]
        category = [_CATEGORIES.get(style.kind, "") for style in schedule.styles]
        args = self._args(
            step=self._steps(), stream=self._of_style(lambda style: as_json(style.stream))
        )
        bars = self._bars(self._column("start"), self._column("end"), args)
        style, rank = schedule.style[self.rows].tolist(), schedule.src[self.rows].tolist()
        for one, where, (begin, end, name, about) in zip(style, rank, bars, strict=True):
            yield Slice(begin, where, track[one], end, name, category[one], about)

    def sent(self) -> Iterator[Slice]:
        """A slice for each sender and, later by the latency of the path, for each receiver."""
        schedule, arrows = self.program.schedule, count(1)
        tracks = [(CHANNELS, style.stream, style.channel) for style in schedule.styles]
        ends = [((*track, SEND), (*track, RECEIVE)) for track in tracks]
        style = schedule.style[self.rows].tolist()
        for row, one, sent, got in zip(
            self.rows.tolist(), style, self._sending(), self._receiving(), strict=True
        ):
            sources, targets = schedule.members(row)
            pairs = [(a, b, next(arrows)) for a in sources for b in targets if a != b]
            sending, receiving = ends[one]
            begin, end, name, args = sent
            for rank in sources:
                leaving = tuple([number for a, _, number in pairs if a == rank])
                yield Slice(begin, rank, sending, end, name, "send", args, leaving)
            begin, end, name, args = got
            for rank in targets:
                reaching = tuple([number for _, b, number in pairs if b == rank])
                yield Slice(begin, rank, receiving, end, name, "recv", args, (), reaching)

    def _sending(self) -> Iterator[_Bar]:
        schedule = self.program.schedule
        start, end = self._column("start"), self._column("end")
        flowing = end - self._flowing_from()
        nbytes = schedule.pieces.amount[schedule.piece[self.rows]]
        rate = np.divide(nbytes, flowing, out=np.zeros_like(nbytes), where=flowing > 0) / 1e9
        path = self.program.path[self.rows]
        args = self._args(
            bytes=spelled(nbytes, whole),
            **{"GB/s": spelled(rate, _four_digits)},
            op=self._of_style(lambda style: as_json(OP_NAMES[style.op])),
            channel=self._of_style(lambda style: str(style.channel)),
            step=self._steps(),
            path=spelled(path, lambda number: as_json(self.names.path(number))),
        )
        return self._bars(start, end, args)

    def _receiving(self) -> Iterator[_Bar]:
        delay = self.program.path_latency[self.program.path[self.rows]]
        begin, end = self._flowing_from() + delay, self._column("end") + delay
        return self._bars(begin, end, self._args(), receiving=True)

    def _bars(
        self,
        begin: NDArray[np.float64],
        end: NDArray[np.float64],
        args: Iterable[str],
        *,
        receiving: bool = False,
    ) -> Iterator[_Bar]:
        first, last = spans(begin, end)
        names = self.names.rows(self.rows, receiving=receiving)
        return zip(first.tolist(), last.tolist(), names, args, strict=True)

    def _args(self, **columns: list[str]) -> Iterator[str]:
        """The number of every row, and these, as JSON."""
        keys = "".join(f',"{key}":%s' for key in columns)
        form = f'{{"row":%s{keys}}}'
        return map(form.__mod__, zip(self.rows.tolist(), *columns.values(), strict=True))

    def _of_style(self, spell: Callable[[Style], str]) -> list[str]:
        schedule = self.program.schedule
        return spelled(schedule.style[self.rows], lambda number: spell(schedule.styles[number]))

    def _steps(self) -> list[str]:
        return spelled(self.program.schedule.step[self.rows], str)

    def _flowing_from(self) -> NDArray[np.float64]:
        """When the bytes begin to move, after the start-up of their row."""
        wait = self.program.style_values("latency")[self.program.schedule.style[self.rows]]
        begin: NDArray[np.float64] = np.minimum(self._column("start") + wait, self._column("end"))
        return begin

    def _column(self, name: str) -> NDArray[np.float64]:
        column: NDArray[np.float64] = getattr(self.timeline, name)[self.rows]
        return column


def _local_track(style: Style) -> Track:
    if style.kind == MARK:
        return LAUNCH, style.stream or "marks", 0, 0
    if style.kind == COMPUTE:
        return COMPUTES, style.stream, 0, 0
    return CHANNELS, style.stream, style.channel, LOCAL


def _four_digits(rate: float) -> str:
    return repr(float(np.format_float_positional(rate, 4, fractional=False)))
