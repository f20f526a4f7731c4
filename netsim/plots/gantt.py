"""The bars of a timeline, from trace.csv: who does what when, and on which lane of its band.

A row that moves data gives a bar to its sender and, later by the latency of the path, one to its
receiver. Bars that overlap on one lane share its height.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import pandas as pd

from netsim.plots.tables import TRACE, filled, read_table, with_numbers

FULL, UPPER, LOWER = range(3)  # the part of a lane that a bar lies in
SEND_SUM, SEND, RECEIVE_SUM, RECEIVE, LOCAL, COMPUTE, LAUNCH = (
    "send (to be reduced)", "send (copy)", "receive and reduce", "receive (copy)", "local copy",
    "compute", "launch",
)  # fmt: skip
_MOST_LANES = 128  # of all bands together
MOST_RANKS = 64


@dataclass(frozen=True)
class Gantt:
    """Bars (rank, lane, part, begin, end in µs, what, step, track, tracks), names of the lanes, and
    what of the run is left out.
    """

    bars: pd.DataFrame
    ranks: tuple[int, ...]
    lanes: tuple[str, ...]
    title: str
    left_out: str


def read_gantt(path: Path) -> Gantt:
    """The bars of a trace.csv."""
    table = read_table(path, TRACE, "the columns of trace.csv")
    table = filled(path, table, ("channel", "step", "start_us", "end_us"))
    table = with_numbers(path, table, ("startup_us", "latency_us"))
    bars = _bars(table)
    bars = bars[bars["end"] > bars["begin"]]
    ranks, lanes = sorted(set(bars["rank"])), sorted(set(bars["lane"]))
    shown = ranks[:MOST_RANKS]
    kept = lanes[: max(_MOST_LANES // max(len(shown), 1), 1)]
    bars = bars[bars["rank"].isin(shown) & bars["lane"].isin(kept)]
    bars = bars.assign(lane=[name for _, _, name in bars["lane"]])
    return Gantt(
        bars=_with_tracks(bars),
        ranks=tuple(shown),
        lanes=tuple(name for _, _, name in kept),
        title=", ".join(dict.fromkeys(filter(None, table.get("collective", [])))),
        left_out=_left_out((len(shown), len(ranks)), (len(kept), len(lanes))),
    )


def _bars(table: pd.DataFrame) -> pd.DataFrame:
    kind = table["kind"]
    moving = table[kind.isin(["transfer", "multicast", "switch_reduce"])]
    own = table[kind.isin(["local_copy", "compute", "mark"])]
    parts = [_side(moving, "src"), _side(moving, "dst"), _side(own, "src")]
    return pd.concat(parts, ignore_index=True)


def _side(table: pd.DataFrame, end: str) -> pd.DataFrame:
    """The bars at one end of rows; those of a group are spelled out rank by rank."""
    zero = pd.Series(0.0, table.index)
    wait = table.get("startup_us", zero).fillna(0.0)
    delay = table.get("latency_us", zero).fillna(0.0)
    begin, finish = table["start_us"], table["end_us"]
    if end == "dst":
        begin, finish = (begin + wait).clip(upper=finish) + delay, finish + delay
    lanes = zip(table["kind"], table["stream"], table["channel"], strict=True)
    reduces = table.get("op", pd.Series("", table.index)).astype(str).str.startswith("reduce")
    bars = pd.DataFrame(
        {
            "rank": table[end].str.split(";"),
            "lane": [_lane(*row) for row in lanes],
            "part": UPPER if end == "src" else LOWER,
            "begin": begin,
            "end": finish,
            "what": _what(table["kind"], reduces, end),
            "step": table["step"].astype(int),
        }
    )
    bars.loc[table["kind"].isin(["local_copy", "compute", "mark"]), "part"] = FULL
    bars = bars.explode("rank")
    return bars.assign(rank=pd.to_numeric(bars["rank"]).astype(int))


def _lane(kind: str, stream: str, channel: float) -> tuple[int, int, str]:
    """A lane, so that they sort: compute streams, then channels by number."""
    if kind == "compute":
        return 0, 0, stream or "compute"
    if kind == "mark":
        return 1, 0, "launch"
    return 2, int(channel), f"{stream} ch{int(channel)}".strip()


def _what(kind: pd.Series, reduces: pd.Series, end: str) -> np.ndarray:
    moved = (SEND_SUM, SEND) if end == "src" else (RECEIVE_SUM, RECEIVE)
    known = {"local_copy": LOCAL, "compute": COMPUTE, "mark": LAUNCH}
    return np.where(kind.isin(list(known)), kind.map(known), np.where(reduces, *moved))


def _with_tracks(bars: pd.DataFrame) -> pd.DataFrame:
    """Give bars that overlap on one part of a lane different tracks of it."""
    bars = bars.sort_values(["begin", "end"], kind="stable").reset_index(drop=True)
    track, tracks = np.zeros(len(bars), int), np.ones(len(bars), int)
    for _, group in bars.groupby(["rank", "lane", "part"], sort=False):
        own = _packed(group["begin"].to_numpy(), group["end"].to_numpy())
        track[group.index], tracks[group.index] = own, own.max() + 1
    return bars.assign(track=track, tracks=tracks)


def _packed(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The lowest free track for every bar, in order of begin."""
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    tracks = np.zeros(len(begin), int)
    slack = 1e-9 * float(end.max(initial=0.0))
    for i, (first, last) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= first + slack:
            heappush(free, heappop(busy)[1])
        tracks[i] = heappop(free) if free else len(busy)
        heappush(busy, (last, int(tracks[i])))
    return tracks


def _left_out(ranks: tuple[int, int], lanes: tuple[int, int]) -> str:
    parts = [
        f"{shown} of {total} {what}"
        for (shown, total), what in ((ranks, "ranks"), (lanes, "lanes"))
        if shown < total
    ]
    return ", ".join(parts)
