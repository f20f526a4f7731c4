"""With whom the rows of the critical path shared the links that slowed them."""

from dataclasses import dataclass

import numpy as np

from netsim.explain.parts import Split
from netsim.explain.rates import Loads
from netsim.program import Program

_MOST = 400  # rows looked at: those that lost most
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Sharer:
    """Who took how many seconds of the critical path, on which link."""

    link: str
    who: str
    seconds: float


def sharers(program: Program, split: Split, loads: Loads) -> list[Sharer]:
    """The seconds lost by sharing, by link and by who moved data there at the time."""
    slowed = [s for s in split.segments if s.seconds.get("sharing", 0.0) > 0 and s.link >= 0]
    slowed.sort(key=lambda s: -s.seconds["sharing"])
    found: dict[tuple[str, str], float] = {}
    for segment in slowed[:_MOST]:
        rows, drawn = loads.users(segment.link)
        begin, end = loads.flow(rows)
        mine, lasting = loads.flow(np.array([segment.row]))[0][0], np.maximum(end - begin, 1e-300)
        overlap = np.minimum(end, segment.end) - np.maximum(begin, mine)
        took = np.where((overlap > 0) & (rows != segment.row), drawn * overlap / lasting, 0.0)
        if not took.sum() > 0:
            continue
        who = _labels(program, segment.row, rows)
        part = segment.seconds["sharing"] / took.sum()
        for name in dict.fromkeys(who):
            chosen = np.array([one == name for one in who])
            key = (program.links.name(segment.link), name)
            found[key] = found.get(key, 0.0) + float(part * took[chosen].sum())
    listed = [Sharer(link, who, seconds) for (link, who), seconds in found.items() if seconds > 0]
    return sorted(listed, key=lambda one: (-one.seconds, one.link, one.who))


def _labels(
    program: Program, row: int, others: "np.ndarray[tuple[int], np.dtype[np.int64]]"
) -> list[str]:
    """In words, what each of the other rows is to a row."""
    ends = hop_label(program, row)
    labels, known = [], dict[tuple[int, int, int], str]()
    schedule = program.schedule
    columns = (schedule.style[others], schedule.src[others], schedule.dst[others])
    for other, style, src, dst in zip(others.tolist(), *(c.tolist() for c in columns), strict=True):
        key = (schedule.styles[style].kind, src, dst)
        if key not in known:
            hop = hop_label(program, other)
            known[key] = f"other channels of {hop}" if hop == ends else hop
        labels.append(known[key])
    return labels


def hop_label(program: Program, row: int) -> str:
    """Where a row moves data: `node0.gpu1 -> node0.gpu2`, or where it works."""
    sources, targets = program.schedule.members(row)
    if sources == targets:
        return _named(program, sources)
    return f"{_named(program, sources)} -> {_named(program, targets)}"


def _named(program: Program, ranks: tuple[int, ...]) -> str:
    if len(ranks) > _NAMED:
        return f"{len(ranks)} GPUs"
    return ", ".join(program.gpus[rank] for rank in ranks)
