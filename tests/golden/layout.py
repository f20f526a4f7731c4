"""How golden texts spell schedules, programs and topologies: one line a transfer, link or task."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel

from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import (
    BUFFER_NAMES,
    COMPUTE,
    KIND_NAMES,
    MARK,
    OP_NAMES,
    Lag,
    Schedule,
    Style,
)
from netsim.topology.graph import LINK_KINDS, NODE_KINDS, Topology

MOST_LINES = 150  # of a golden text

SCHEDULE_LEGEND = """\
One line a transfer: number, step, ranks, elements at the source and at the destination (once, if
equal), bytes, what happens at the destination (copy: store; reduce: add; reduce_input: add the
destination's own input), and the transfers that must be complete before it starts:
#7 its data has arrived; ~#7 its sender is done (order on one channel); ^#7 its
receiver has answered.
A mark moves nothing: its rank is ready or done then."""


def significant(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits and no exponent below a million."""
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:g}" if abs(rounded) < 1e6 else f"{rounded:.{digits - 1}e}"


def microseconds(seconds: float) -> str:
    """Return a time in microseconds with three significant digits."""
    return f"{significant(seconds * 1e6)} us"


def rank_names(ranks: Sequence[int]) -> str:
    """Return `r3`, or `{r0 r1 r2}` for a group."""
    names = [f"r{rank}" for rank in ranks]
    return names[0] if len(names) == 1 else "{" + " ".join(names) + "}"


def element_range(buffer: int, offset: int, count: int) -> str:
    """Return the name of a buffer with the elements used: `out[4]` or `in[4:8]`."""
    if count == 0:
        return "nothing"
    if count == 1:
        return f"{BUFFER_NAMES[buffer]}[{offset}]"
    return f"{BUFFER_NAMES[buffer]}[{offset}:{offset + count}]"


def moved_data(schedule: Schedule, row: int) -> str:
    """Return which elements one transfer reads and where it stores them."""
    style, pieces = schedule.styles[schedule.style[row]], schedule.pieces
    piece = schedule.piece[row]
    count = int(pieces.count[piece])
    source = element_range(style.src_buffer, int(pieces.src_offset[piece]), count)
    target = element_range(style.dst_buffer, int(pieces.dst_offset[piece]), count)
    text = source if source == target else f"{source} => {target}"
    own_offset = int(pieces.own_offset[piece])
    if OP_NAMES[style.op] == "reduce_input" and own_offset != int(pieces.dst_offset[piece]):
        text += f" own in[{own_offset}]"
    return text


def dependency_text(row: int, lag: Lag) -> str:
    """Return one dependency: the earlier row, and which event of it is waited for."""
    return f"{('~', '', '^')[int(lag.arrival)]}#{row}"


def waiting_text(schedule: Schedule, row: int) -> str:
    """Return what a row waits for, or nothing for a row that starts at once."""
    dependencies = [dependency_text(*pair) for pair in schedule.dependencies(row)]
    return f"  after {' '.join(dependencies)}" if dependencies else ""


def style_tags(style: Style) -> str:
    """Return what else characterizes a row: its channel, way, stream and number of equal rows."""
    tags = [f"ch{style.channel}"] if style.channel else []
    tags += [f"way {style.route}"] if style.route else []
    tags += [f"stream {style.stream}"] if style.stream else []
    tags += [f"x{style.multiplicity}"] if style.multiplicity > 1 else []
    tags += [f"copies {style.copies}"] if style.copies > 1 else []
    return "".join(f"  {tag}" for tag in tags)


def row_text(schedule: Schedule, row: int) -> str:
    """Return the line of one row of a schedule."""
    style = schedule.styles[schedule.style[row]]
    sources, targets = schedule.members(row)
    begin = f"#{row:<3} step {int(schedule.step[row]):<2} "
    waits = style_tags(style) + waiting_text(schedule, row)
    if style.kind == MARK:
        return f"{begin} {rank_names(sources)} mark{waits}"
    if style.kind == COMPUTE:
        return f"{begin} {rank_names(sources)} computes{waits}"
    kind = KIND_NAMES[style.kind]
    action = OP_NAMES[style.op] if kind == "transfer" else kind
    if kind != "transfer" and style.op:
        action += f" {OP_NAMES[style.op]}"
    amount = f"{schedule.amount[row]:g} B"
    ends = f"{rank_names(sources)} -> {rank_names(targets)}"
    data = moved_data(schedule, row)
    return f"{begin} {ends:<8}  {data:<22}  {amount:>6}  {action}{waits}"


def schedule_lines(schedule: Schedule, rows: Iterable[int] | None = None) -> list[str]:
    """Return the lines of some rows of a schedule, by default of all."""
    chosen = range(len(schedule)) if rows is None else rows
    lines = [row_text(schedule, int(row)) for row in chosen]
    released = zip(schedule.release_row.tolist(), schedule.release_time.tolist(), strict=True)
    return lines + [f"#{row} not before {microseconds(time)}" for row, time in released]


def channel_rows(schedule: Schedule, channel: int) -> list[int]:
    """Return the numbers of the rows of one channel."""
    return np.flatnonzero(schedule.style_column("channel") == channel).tolist()


def path_text(program: Program, row: int) -> str:
    """Return the links and shared resources that a row of a program draws on."""
    path = int(program.path[row])
    if path < 0:
        return "nothing"
    span = slice(int(program.paths.ptr[path]), int(program.paths.ptr[path + 1]))
    links = program.paths.link[span].tolist()
    names = []
    for link, weight in zip(links, program.paths.weight[span].tolist(), strict=True):
        is_wire = program.links.kind(link) in LINK_KINDS
        part = f" x {significant(weight)}" if is_wire and weight != 1 else ""
        names.append(program.links.name(link) + part)
    return ", ".join(names) or "nothing"


def traffic_lines(program: Program, kinds: Sequence[str]) -> list[str]:
    """Return a line for each link of the given kinds: rows, connections and bytes that cross it."""
    rows_of: dict[int, list[int]] = {}
    for row in range(len(program)):
        path = int(program.path[row])
        if path >= 0:
            span = slice(int(program.paths.ptr[path]), int(program.paths.ptr[path + 1]))
            for link in program.paths.link[span].tolist():
                rows_of.setdefault(link, []).append(row)
    lines = []
    schedule = program.schedule
    for link, rows in sorted(rows_of.items()):
        if program.links.kind(link) in kinds:
            pairs = {schedule.members(row) for row in rows}
            ends = sorted(f"{rank_names(a)}->{rank_names(b)}" for a, b in pairs)
            count = sum(
                schedule.styles[schedule.style[row]].multiplicity
                * schedule.styles[schedule.style[row]].copies
                for row in rows
            )
            lines.append(f"{program.links.name(link):<34} {count:>4} transfers  {' '.join(ends)}")
    return lines


def route_lines(topology: Topology, pairs: Sequence[tuple[int, int]], way: str = "") -> list[str]:
    """Return the links of the routes between pairs of GPUs, for channels 0 and 1."""
    lines = []
    for source, target in pairs:
        earlier = ""
        for channel in (0, 1):
            ends = (np.array([end], np.int32) for end in (source, target, channel))
            routes = topology.routes(*ends, way)
            fractions = zip(routes.link.tolist(), routes.fraction.tolist(), strict=True)
            text = ", ".join(
                topology.link_name(link) + ("" if part == 1 else f" x {significant(part)}")
                for link, part in fractions
            )
            if text != earlier:
                lines.append(f"gpu {source} -> gpu {target}, channel {channel}: {text}")
            earlier = text
    return lines


def topology_lines(topology: Topology, node_kinds: Sequence[str] = NODE_KINDS) -> list[str]:
    """Return the nodes by kind and the links between them with bandwidth and latency.

    Both directions of a cable are one name with `<->` where they are equal. Only nodes of the
    given kinds are listed, and links between those.
    """
    lines = []
    kinds = topology.node_kinds.tolist()
    for number, kind in enumerate(NODE_KINDS):
        names = [str(n) for n, k in zip(topology.nodes, kinds, strict=True) if k == number]
        if names and kind in node_kinds:
            lines += [f"{kind} ({len(names)}):", *wrapped(names)]
    links = topology.links
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    seen: set[int] = set()
    ends = {
        (int(t), int(h), int(lane)): number
        for number, (t, h, lane) in enumerate(
            zip(links.tail, links.head, topology.parallel_numbers, strict=True)
        )
    }
    for number in range(len(links)):
        ends_shown = (
            NODE_KINDS[kinds[int(end)]] in node_kinds
            for end in (links.tail[number], links.head[number])
        )
        if number in seen or not all(ends_shown):
            continue
        tail, head, lane = (
            int(links.tail[number]),
            int(links.head[number]),
            topology.parallel_numbers[number],
        )
        back = ends.get((head, tail, int(lane)))
        equal = back is not None and all(
            column[number] == column[back] for column in (links.bandwidth, links.latency)
        )
        arrow = "->"
        if equal and back is not None:
            seen.add(back)
            arrow = "<->"
        duplex = "full duplex"
        if equal and back is not None and links.resource[number] == links.resource[back]:
            duplex = "half duplex"
        bandwidth = f"{significant(float(links.bandwidth[number]) / 1e9, 4)} GB/s"
        latency = microseconds(float(links.latency[number]))
        key = (LINK_KINDS[links.kind[number]], bandwidth, latency, duplex)
        name = f"{topology.nodes[tail]}{arrow}{topology.nodes[head]}" + (f"#{lane}" if lane else "")
        groups.setdefault(key, []).append(name)
    for (kind, bandwidth, latency, duplex), names in groups.items():
        lines.append(f"{kind} {bandwidth}, {latency}, {duplex}:")
        lines += wrapped(names)
    for name, values in topology.capacities.items():
        several = sorted({significant(float(value), 4) for value in np.asarray(values)})
        lines.append(f"capacity of {name}: {' '.join(several)}")
    return lines


def wrapped(words: Sequence[str], width: int = 96) -> list[str]:
    """Return words in indented lines no longer than `width`."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += f"  {word}"
    return lines


def timed_lines(program: Program, timeline: Timeline) -> list[str]:
    """Return the start and the end of every row of a simulated program."""
    lines = []
    for row in range(len(program)):
        span = f"{microseconds(timeline.start[row])} .. {microseconds(timeline.end[row])}"
        lines.append(f"{span:<24} {row_text(program.schedule, row)}")
    return lines


def plain_value(value: Any) -> str:
    """Return a value of plain classes as text: `name: value; name: value`, without defaults' noise.

    Floats have four significant digits; fields that are empty or None are left out.
    """
    if isinstance(value, float | np.floating):
        return significant(float(value), 4)
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_defaults=True)
    elif is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value) if field.repr}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        parts = [f"{key}: {inner_value(part)}" for key, part in value.items() if not is_empty(part)]
        return "; ".join(parts)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(inner_value, value))
    return str(value)


def inner_value(value: Any) -> str:
    """Return a value within another one, in brackets if it has several parts."""
    text = plain_value(value)
    has_parts = isinstance(value, Mapping | list | tuple | BaseModel) or is_dataclass(value)
    return f"({text.replace('; ', ', ')})" if has_parts and " " in text else text


def is_empty(value: Any) -> bool:
    """Return whether a field says nothing: None, an empty text or an empty collection."""
    return value is None or (isinstance(value, str | tuple | list | dict) and not value)
