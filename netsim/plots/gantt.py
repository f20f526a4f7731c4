"""The bars of a timeline, from trace.csv: who does what when, and on which lane of its band.

A row that moves data gives a bar to its sender and, later by the latency of the path, one to its
receiver. Bars that overlap on one lane share its height.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from netsim.plots.tables import TRACE, filled, read_long_table, with_numbers
from netsim.schedule import spelled_out

FULL, UPPER, LOWER = range(3)  # the part of a lane that a bar lies in
WHAT = (
    "send (to be reduced)", "send (copy)", "receive and reduce", "receive (copy)", "local copy",
    "compute", "launch",
)  # fmt: skip
SEND_SUM, SEND, RECEIVE_SUM, RECEIVE, LOCAL, COMPUTE, LAUNCH = WHAT
_MOVING = ("transfer", "multicast", "switch_reduce")
_OWN = {"local_copy": LOCAL, "compute": COMPUTE, "mark": LAUNCH}
_DELAYS = ("startup_us", "latency_us")
_MOST_LANES = 128  # of all bands together
MOST_RANKS = 64


@dataclass(frozen=True)
class Gantt:
    """Bars (rank, number of the lane, part, begin, end in µs, what, step, track, tracks), names of
    the lanes, and what of the run is left out.
    """

    bars: pd.DataFrame
    ranks: tuple[int, ...]
    lanes: tuple[str, ...]
    title: str
    left_out: str


def read_gantt(path: Path) -> Gantt:
    """The bars of a trace.csv."""
    table = read_long_table(
        path, TRACE, "the columns of trace.csv", only={*TRACE[1:], *_DELAYS, "op", "collective"}
    )
    table = filled(path, table, ("channel", "step", "start_us", "end_us"))
    table = with_numbers(path, table, _DELAYS)
    table, names = _with_lanes(table)
    bars = _bars(table)
    bars = bars[bars["end"] > bars["begin"]]
    ranks, lanes = np.unique(bars["rank"]).tolist(), np.unique(bars["lane"]).tolist()
    shown = ranks[:MOST_RANKS]
    kept = lanes[: max(_MOST_LANES // max(len(shown), 1), 1)]
    bars = bars[bars["rank"].isin(shown) & bars["lane"].isin(kept)]
    bars = bars.assign(lane=np.searchsorted(kept, bars["lane"]))
    titles = table["collective"].unique() if "collective" in table else ()
    return Gantt(
        bars=_with_tracks(bars),
        ranks=tuple(shown),
        lanes=tuple(names[lane] for lane in kept),
        title=", ".join(filter(None, titles)),
        left_out=_left_out((len(shown), len(ranks)), (len(kept), len(lanes))),
    )


def _with_lanes(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The table with the lane of every row, by number, and the names of these: compute streams,
    then launches, then channels by number.
    """
    told = ["kind", "stream", "channel"]
    group = table.groupby(told, observed=True, sort=False).ngroup().to_numpy()
    one_of_each = table[told].iloc[np.unique(group, return_index=True)[1]]
    lanes = [_lane(*row) for row in one_of_each.itertuples(index=False)]
    order = sorted(set(lanes))
    number = np.array([order.index(lane) for lane in lanes], int)
    return table.assign(lane=number[group]), [name for _, _, name in order]


def _lane(kind: str, stream: str, channel: float) -> tuple[int, int, str]:
    if kind == "compute":
        return 0, 0, stream or "compute"
    if kind == "mark":
        return 1, 0, "launch"
    return 2, int(channel), f"{stream} ch{int(channel)}".strip()


def _bars(table: pd.DataFrame) -> pd.DataFrame:
    kind = table["kind"]
    moving, own = table[kind.isin(_MOVING)], table[kind.isin(list(_OWN))]
    reduces = moving["op"].str.startswith("reduce") if "op" in moving else np.zeros(len(moving))
    parts = [
        _side(moving, "src", UPPER, np.where(reduces, SEND_SUM, SEND)),
        _side(moving, "dst", LOWER, np.where(reduces, RECEIVE_SUM, RECEIVE)),
        _side(own, "src", FULL, own["kind"].map(_OWN).to_numpy(object)),
    ]
    return pd.concat(parts, ignore_index=True)


def _side(
    table: pd.DataFrame, end: str, part: int, what: NDArray[np.str_] | NDArray[np.object_]
) -> pd.DataFrame:
    """The bars at one end of rows; those of a group are spelled out rank by rank."""
    begin, finish = table["start_us"], table["end_us"]
    if end == "dst":
        zero = pd.Series(0.0, table.index)
        wait = table.get("startup_us", zero).fillna(0.0)
        delay = table.get("latency_us", zero).fillna(0.0)
        begin, finish = (begin + wait).clip(upper=finish) + delay, finish + delay
    bars = pd.DataFrame(
        {
            "lane": table["lane"],
            "part": part,
            "begin": begin,
            "end": finish,
            "what": pd.Categorical(what, list(WHAT)),
            "step": table["step"].astype(int),
        }
    )
    ends = table[end].cat
    groups = [[int(rank) for rank in text.split(";")] for text in ends.categories]
    row, rank = spelled_out(groups, ends.codes.to_numpy())
    return bars.iloc[row].assign(rank=rank)


def _with_tracks(bars: pd.DataFrame) -> pd.DataFrame:
    """Give bars that overlap on one part of a lane different tracks of it."""
    bars = bars.sort_values(["begin", "end"], kind="stable").reset_index(drop=True)
    begin, end = bars["begin"].to_numpy(), bars["end"].to_numpy()
    track, tracks = np.zeros(len(bars), int), np.ones(len(bars), int)
    for own in bars.groupby(["rank", "lane", "part"], sort=False).indices.values():
        track[own] = _packed(begin[own], end[own])
        tracks[own] = track[own].max() + 1
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
