"""A training step as a timeline: what each kind of rank computes, and its streams of NCCL's below.

It is drawn from the trace alone. Ranks that do the same are drawn once.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from netsim.plots.style import (
    AMBER,
    BLACK,
    BLUE,
    FORMATS,
    GREEN,
    ORANGE,
    PALE,
    PINK,
    SKY,
    YELLOW,
    drawing,
    new_figure,
    save,
    time_unit,
    tint,
)

COLOURS: dict[str, str | tuple[float, float, float]] = {
    "forward": tint(GREEN, 0.4),
    "backward": tint(GREEN, 0.9),
    "weight gradients": tint(YELLOW, 0.9),
    "optimizer and other": "#8c8c8c",
    "tensor parallel": BLUE,
    "context parallel": SKY,
    "experts": PINK,
    "data parallel": ORANGE,
    "pipeline": AMBER,
    "other collectives": BLACK,
    "waiting for the last rank": PALE,
}
PHASES = {"forward": "forward", "backward": "backward", "weights": "weight gradients"}
KINDS = {
    "tp": "tensor parallel", "cp": "context parallel", "ep": "experts", "dp": "data parallel",
    "pp": "pipeline",
}  # fmt: skip
SHORT = {"all_gather": "AG", "reduce_scatter": "RS", "all_reduce": "AR", "alltoall": "A2A"}
MOST_RANKS, MOST_LANES = 8, 36
SAME = 100  # of the step: times that differ by less than such a part are the same
_WIDTH, _LANE, _GAP, _THIN = 11.0, 0.24, 0.5, 0.0012
_MOST_SHAPES = 5_000
_FEW = 400  # bars of a lane that are drawn wide enough to be seen each
_EDGES = 1_500  # shapes that are told apart by a white line


@dataclass
class _Rank:
    """The lanes of one rank by name, each a list of (begin, end, what).

    `labels` are names of passes and calls with their place and lane.
    """

    name: str
    lanes: dict[str, list[tuple[float, float, str]]] = field(default_factory=dict)
    labels: list[tuple[float, float, str, str]] = field(default_factory=list)

    def alike(self, grain: float) -> tuple[object, ...]:
        """What ranks that do the same have in common; times count in so many microseconds."""
        spans = [
            (name, len(bars), round(sum(end - begin for begin, end, _ in bars) / grain))
            for name, bars in self.lanes.items()
        ]
        first = min((bars[0][0] for bars in self.lanes.values() if bars), default=0.0)
        return (round(first / grain), *spans)

    @property
    def end(self) -> float:
        """When its last slice ends."""
        return max(end for bars in self.lanes.values() for _, end, _ in bars)


def plot_step(trace: Path, out_dir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw the trace of a step; nothing if it is the trace of something else."""
    ranks = _distinct(_ranks(json.loads(gzip.decompress(trace.read_bytes()))))
    if not ranks:
        return []
    with drawing():
        return save(step_figure(ranks), out_dir / "timeline", formats)


def step_figure(ranks: Sequence[_Rank]) -> Figure:
    """A band for every rank: kernels above, a lane for each stream of NCCL's below."""
    lanes = [(rank, name) for rank in ranks for name in rank.lanes]
    last = max(rank.end for rank in ranks)
    unit, factor = time_unit(last)
    figure = new_figure(_WIDTH, 1.3 + _LANE * (len(lanes) + _GAP * len(ranks)))
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(w_pad=0.15)  # names of lanes reach further than it reckons
    axes = figure.subplots()
    top, boxes, colours, ticks = 0.0, list[np.ndarray](), list[Any](), list[tuple[float, str]]()
    for rank in ranks:
        axes.text(0, top - 0.08, rank.name, fontsize=8.5, va="bottom", color="#333333")
        for name, bars in rank.lanes.items():
            ticks.append((top + 0.5, _short(name)))
            least = _THIN * last if len(bars) < _FEW else 0.0  # many bars show how full a lane is
            for begin, end, what in bars:
                right = max(end, begin + least) / factor
                boxes.append(_box(begin / factor, right, top + 0.06, top + 0.94))
                colours.append(COLOURS[what])
            top += 1.0
        _label(axes, rank, top - len(rank.lanes), factor, last)
        top += _GAP + 0.3
    axes.add_collection(
        PolyCollection(
            boxes, facecolors=colours, linewidths=0, rasterized=len(boxes) > _MOST_SHAPES
        )
    )
    axes.set_xlim(0, last / factor)
    axes.set_ylim(top - _GAP, -0.7)
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"time ({unit})")
    seen = {what for rank, name in lanes for *_, what in rank.lanes[name]}
    handles = [Patch(color=colour, label=what) for what, colour in COLOURS.items() if what in seen]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)))
    return figure


def _short(lane: str) -> str:
    """`NCCL pp recv from stage 0` has little room at the side."""
    return lane.removeprefix("NCCL ").replace("from stage ", "from ").replace("to stage ", "to ")


def _box(left: float, right: float, top: float, bottom: float) -> np.ndarray:
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)])


def _label(axes: Axes, rank: _Rank, top: float, factor: float, last: float) -> None:
    """The micro-batch on every pass, and what every call does, where there is room."""
    room, places = _WIDTH * 0.85 * 72 / last, {name: k for k, name in enumerate(rank.lanes)}
    for begin, end, lane, text in rank.labels:
        if text and (end - begin) * room > 6 * len(text):
            middle, place = (begin + end) / 2 / factor, top + places[lane] + 0.5
            axes.text(middle, place, text, fontsize=6.5, ha="center", va="center", color="#111111")


def _ranks(data: Mapping[str, Any]) -> list[_Rank]:
    """Every rank of a trace with its lanes; threads in the order of their numbers."""
    names = dict(_names(data, "thread_name"))
    found = {pid: _Rank(name) for (pid, tid), name in _names(data, "process_name") if tid == 0}
    events = [event for event in data["traceEvents"] if event.get("ph") == "X"]
    for (pid, _), name in sorted(names.items()):
        if pid in found and name != "passes":
            found[pid].lanes[name] = []
    for event in events:
        pid, lane = event["pid"], names.get((event["pid"], event["tid"]), "")
        bar = (event["ts"], event["ts"] + event["dur"])
        if event["cat"] == "gpu_user_annotation":
            number = event["name"].split()[2] if event["name"][1:5] == " mb " else ""
            found[pid].labels.append((*bar, "compute", number))
        elif event["cat"] == "wait":
            found[pid].lanes[lane].append((*bar, "waiting for the last rank"))
        else:
            found[pid].lanes[lane].append((*bar, _what(event, lane)))
            found[pid].labels.append((*bar, lane, SHORT.get(event["name"].split()[0], "")))
    return [rank for rank in found.values() if any(rank.lanes.values())]


def _names(data: Mapping[str, Any], kind: str) -> Iterator[tuple[tuple[int, int], str]]:
    for event in data["traceEvents"]:
        if event.get("ph") == "M" and event["name"] == kind:
            yield (event["pid"], event["tid"]), event["args"]["name"]


def _what(event: Mapping[str, Any], lane: str) -> str:
    if lane == "compute":
        return PHASES.get(event["args"].get("phase", ""), "optimizer and other")
    return KINDS.get(lane.removeprefix("NCCL ").split()[0], "other collectives")


def _distinct(ranks: Sequence[_Rank]) -> list[_Rank]:
    """One of all ranks that are alike, named with how many they are."""
    groups: dict[object, list[_Rank]] = {}
    grain = max((rank.end for rank in ranks), default=0.0) / SAME
    for rank in ranks:
        groups.setdefault(rank.alike(grain), []).append(rank)
    chosen = []
    for some in groups.values():
        more = f", and {len(some) - 1} more alike" if len(some) > 1 else ""
        some[0].name += more
        chosen.append(some[0])
    lanes, kept = 0, list[_Rank]()
    for rank in chosen[:MOST_RANKS]:
        lanes += len(rank.lanes)
        if kept and lanes > MOST_LANES:
            break
        kept.append(rank)
    return kept
