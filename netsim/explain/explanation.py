"""Explain why a run (a simulated operation or step) takes as long as it does, and write the
explanation as plain values.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.explain.path import OWN_RATE, Sharer, Split, hop_label, sharers, slacks, split_path
from netsim.explain.what_if import MOST_ROWS, Case, ParameterAnswer, link_kinds, what_if
from netsim.metrics.bound import bound_by, link_label
from netsim.metrics.links import GpuTime, Loads, gpu_time, link_use, load_over_time, senders
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import KIND_NAMES

TOP_LINKS = 20
BINS = 1000
FINEST = 2000  # gaps shorter than the run's time divided by this are not shown
FULL = 0.99  # the utilization from which a link counts as full


@dataclass(frozen=True, slots=True)
class LinkTime:
    """A link, the seconds in which it was used at capacity, and its average utilization (0 to
    1).
    """

    name: str
    label: str
    full: float
    utilisation: float


@dataclass(frozen=True)
class Explanation:
    """The causes of a run's time, its busiest links, the effect of parameters, and the slack of
    rows.

    `slack` is the seconds by which each row could be later without making the run longer; `gpus`
    says how every GPU spends the run.
    """

    case: Case
    timeline: Timeline
    bound: str
    split: Split
    sharers: tuple[Sharer, ...]
    links: tuple[LinkTime, ...]
    answers: tuple[ParameterAnswer, ...]
    slack: NDArray[np.float64]
    gpus: GpuTime

    def slack_by_kind(self) -> dict[str, float]:
        """By kind of link, the least slack in seconds of the rows that use such links."""
        program = self.case.program
        kinds = link_kinds(program)
        paths = program.paths
        least = np.full(len(paths), np.inf)
        placed = program.path >= 0
        np.minimum.at(least, program.path[placed], self.slack[placed])
        owner = np.repeat(np.arange(len(paths)), np.diff(paths.ptr))
        names = dict.fromkeys(kinds[paths.link].tolist())
        return {name: float(least[owner[kinds[paths.link] == name]].min()) for name in names}

    def slack_by_gpu(self) -> NDArray[np.float64]:
        """By rank, the least slack in seconds of the rows that its GPU sends or works on."""
        program = self.case.program
        schedule = program.schedule
        least = np.full(schedule.ranks, self.timeline.makespan)
        row, rank = senders(schedule, np.arange(len(program)))
        np.minimum.at(least, rank, self.slack[row])
        return least


def explain(
    case: Case, timeline: Timeline, *, engine: str = "auto", most_rows: int = MOST_ROWS
) -> Explanation:
    """Explain a run, given its program (`case`) and timeline; at most `most_rows` rows are
    simulated again to confirm the effect of parameters.
    """
    program = case.program
    loads = Loads(program, timeline)
    split = split_path(program, timeline, launch=case.launch, loads=loads)
    return Explanation(
        case=case,
        timeline=timeline,
        bound=bound_by(program, timeline),
        split=split,
        sharers=tuple(sharers(program, split, loads)),
        links=tuple(_links(program, timeline)),
        answers=tuple(what_if(case, split, engine=engine, most_rows=most_rows)),
        slack=slacks(program, timeline),
        gpus=gpu_time(program, timeline),
    )


def _links(program: Program, timeline: Timeline) -> list[LinkTime]:
    """Return the links that were used at capacity for the longest time."""
    use = link_use(program, timeline)
    top = use.top(TOP_LINKS * 4)
    load = load_over_time(program, timeline, use.link[top], BINS)
    full = load.seconds_at_capacity(FULL)
    links = [
        LinkTime(
            program.links.name(int(link)),
            link_label(program.links, int(link))[0],
            float(seconds),
            float(part),
        )
        for link, seconds, part in zip(use.link[top], full, use.utilisation[top], strict=True)
    ]
    links.sort(
        key=lambda link: (-round(link.full / max(timeline.makespan, 1e-300), 3), -link.utilisation)
    )
    return links[:TOP_LINKS]


def as_values(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as plain values for JSON and pictures; times in µs."""
    program = explanation.case.program
    of_gpus = explanation.gpus
    columns = np.array([of_gpus.communicating, of_gpus.computing, of_gpus.waiting]) * 1e6
    return {
        "time_us": explanation.split.total * 1e6,
        "bound_by": explanation.bound,
        "causes_us": {cause: spent * 1e6 for cause, spent in explanation.split.seconds.items()},
        "path": [_segment(program, segment) for segment in explanation.split.segments],
        "shared_with": [
            {"link": sharer.link, "who": sharer.hop, "us": sharer.seconds * 1e6}
            for sharer in explanation.sharers
        ],
        "links": [
            {
                "link": link.name,
                "class": link.label,
                "full_us": link.full * 1e6,
                "utilisation": link.utilisation,
            }
            for link in explanation.links
        ],
        "parameters": [_answer(answer, explanation.split.total) for answer in explanation.answers],
        "confirmed": sum(answer.ideal is not None for answer in explanation.answers),
        "slack_us": {
            "by_kind": {
                kind: seconds * 1e6 for kind, seconds in explanation.slack_by_kind().items()
            },
            "by_gpu": dict(
                zip(program.gpus, (explanation.slack_by_gpu() * 1e6).tolist(), strict=True)
            ),
        },
        "gpus": [
            {
                "gpu": name,
                "communicating_us": communicating,
                "computing_us": computing,
                "waiting_us": waiting,
            }
            for name, communicating, computing, waiting in zip(
                program.gpus, *columns.tolist(), strict=True
            )
        ],
        "lanes": _lanes(explanation),
    }


def _segment(program: Program, segment: Any) -> dict[str, Any]:
    """A segment (a row of the critical path) as a dictionary of plain values; times in µs."""
    schedule = program.schedule
    style = schedule.styles[int(schedule.style[segment.row])]
    sources, targets = schedule.members(segment.row)
    limited = "own rate" if segment.link == OWN_RATE else ""
    if segment.link >= 0:
        limited = program.links.name(segment.link)
    return {
        "row": segment.row,
        "kind": KIND_NAMES[style.kind],
        "hop": hop_label(program, segment.row),
        "from_rank": sources[0],
        "to_rank": targets[0],
        "channel": style.channel,
        "step": int(schedule.step[segment.row]),
        "bytes": float(schedule.amount[segment.row]),
        "begin_us": segment.begin * 1e6,
        "end_us": segment.end * 1e6,
        "limited_by": limited,
        **{f"{cause}_us": spent * 1e6 for cause, spent in segment.seconds.items()},
    }


def _answer(answer: ParameterAnswer, now: float) -> dict[str, Any]:
    """Return the effect of a parameter as plain values; `now` is the time of the run in seconds."""
    parameter = answer.parameter
    slope = answer.slope()

    def us(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * 1e6

    unit = f"us per {parameter.unit}" if parameter.unit and parameter.value else ""
    native = parameter.value if unit else None
    return {
        "parameter": parameter.key,
        "label": parameter.label,
        "value": parameter.value,
        "unit": parameter.unit,
        "on_path_us": answer.on_path * 1e6,
        "per_percent_us": answer.expected() * 1e4,
        "per_percent_simulated_us": us(None if slope is None else slope / 100),
        "per_unit": None if native is None else answer.expected() * 1e6 / native,
        "per_unit_simulated": None if native is None or slope is None else slope * 1e6 / native,
        "per_unit_of": unit,
        "better_1pct_us": us(answer.better),
        "worse_1pct_us": us(answer.worse),
        "better_10pct_us": us(answer.swing[0] if answer.swing else None),
        "worse_10pct_us": us(answer.swing[1] if answer.swing else None),
        "infinitely_fast_us": us(answer.ideal),
        "anomalous": answer.anomalous(now),
    }


def _lanes(explanation: Explanation) -> list[list[float]]:
    """Entries [rank, begin, end], one for each period in which a rank moves data or computes
    without a pause; times in µs.
    """
    program = explanation.case.program
    timeline = explanation.timeline
    rows = np.flatnonzero((program.schedule.amount > 0) & (timeline.end > timeline.start))
    which, ranks = senders(program.schedule, rows)
    begin = timeline.start[which] * 1e6
    end = timeline.end[which] * 1e6
    near = timeline.makespan * 1e6 / FINEST
    lanes: list[list[float]] = []
    for place in np.lexsort((begin, ranks)).tolist():
        rank = int(ranks[place])
        first = float(begin[place])
        last = float(end[place])
        if lanes and lanes[-1][0] == rank and first <= lanes[-1][2] + near:
            lanes[-1][2] = max(lanes[-1][2], last)
        else:
            lanes.append([rank, first, last])
    return lanes
