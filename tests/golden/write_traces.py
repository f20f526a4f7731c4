"""Golden texts of traces: Chrome events, tables, GOAL, Kineto profiles read. Times have three
significant digits; runs on plain graphs do not depend on what execution costs."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from netsim.program.place import place
from netsim.topology.routing import switch
from netsim.trace.chrome import write_trace
from netsim.trace.goal import GoalText, read_goal, replayed
from netsim.trace.tables import write_links, write_links_over_time, write_rows
from netsim.training.recorded.chakra import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    TraceNode,
    nodes_of,
)
from netsim.training.recorded.kineto import read_profile, step_of, tape_of
from netsim.training.run import write_collectives, write_memory
from netsim.training.timeline import write_step_trace
from netsim.workloads.step import training_step
from tests.collectives.collective_cases import build_small, make
from tests.golden.layout import MOST_LINES, plain_value, schedule_lines, significant
from tests.golden.write_steps import task_text
from tests.trace.output_runs import chain_run, launched_run, mixed_run, ring_run
from tests.training.profiler import NAME, said, steps_of_data_parallelism
from tests.training.steps import SMALL, setting, step

Writer = Callable[[], list[str]]
RUNS = {"ring": ring_run, "launched": launched_run, "mixed": mixed_run, "chain": chain_run}
MODEL = (
    "{layers: 2, hidden: 512, heads: 8, kv_heads: 4, ffn: 1024, vocabulary: 1000, sequence: 256}"
)


def rounded(text: str) -> str:
    """Return a cell of a table; a number with a fraction gets three significant digits."""
    try:
        return significant(float(text)) if "." in text else text
    except ValueError:
        return text


def table_lines(text: str) -> list[str]:
    """Return a CSV table as aligned columns with rounded numbers."""
    rows = [[rounded(cell) for cell in row] for row in csv.reader(io.StringIO(text))]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)) for row in rows]


def event_text(event: dict[str, Any]) -> str:
    """Return one trace event: phase, process and thread, category, name, times, arguments."""
    begin = f"{event['ph']} {event.get('pid', '')}/{event.get('tid', '')}"
    times = [f"{key} {significant(float(event[key]))}" for key in ("ts", "dur") if key in event]
    more = [f"{key} {event[key]}" for key in ("id", "bp", "cat") if key in event]
    arguments = plain_value(event.get("args", {}))
    return f"{begin} {event['name']}: {', '.join([*times, *more])} | {arguments}"


def trace_lines(content: str) -> list[str]:
    """Return the events of a trace, one a line."""
    return [event_text(event) for event in json.loads(content)["traceEvents"]]


def cut(lines: list[str]) -> list[str]:
    """Return as many lines as a golden text may have, and say how many are left out."""
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[: MOST_LINES - 1], f"... {len(lines) - MOST_LINES + 1} more"]


def tables(name: str) -> list[str]:
    """Return trace.csv, links.csv and the load of links over time of a small run."""
    made, timeline, _ = RUNS[name]()
    lines = [f"Tables of the {name} run of tests/trace/output_runs.py: rows, links, load."]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        for writer in (write_rows, write_links, partial(write_links_over_time, links=4, bins=5)):
            writer(path, made, timeline)
            lines += ["", *table_lines(path.read_text(encoding="utf-8"))]
    return cut(lines)


def events(name: str) -> list[str]:
    """Return the Chrome trace of a small run."""
    made, timeline, _ = RUNS[name]()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        write_trace(path, made, timeline)
        content = path.read_text(encoding="utf-8")
    return cut(
        [
            f"Trace events of the {name} run of tests/trace/output_runs.py.",
            "",
            *trace_lines(content),
        ]
    )


def goal_written() -> list[str]:
    """Return small schedules as GOAL files."""
    lines = ["Schedules over 3 ranks as GOAL (LogGOPSim, ATLAHS)."]
    for name, algorithm in (
        ("all_reduce", "ring"),
        ("broadcast", "binomial"),
        ("alltoall", "bruck"),
    ):
        schedule = build_small(make(name, 3, 3), algorithm)
        text = GoalText(place(schedule, switch(3, 1e9, 1e-6))).text()
        lines += ["", f"{name}, {algorithm}:", *text.splitlines()]
    return cut(lines)


def goal_read() -> list[str]:
    """Return a GOAL file and the schedule that it becomes."""
    path = Path(__file__).parents[1] / "data" / "goal" / "small.goal"
    lines = ["A GOAL file and the schedule that it becomes.", ""]
    lines += path.read_text(encoding="utf-8").splitlines()
    return [*lines, "", *schedule_lines(replayed(read_goal(path), 8)[1].schedule)]


def kineto() -> list[str]:
    """Return what is read from a profile of torch.profiler: its calls, and the tasks of a step."""
    made = steps_of_data_parallelism(900, 500, 600)
    made.kernel(2100, 30, name=NAME, stream=20, **said("allgather", dtype="Float"))
    made.kernel(2200, 30, name=NAME, stream=7, **said("send", **{"Dst Rank": 6, "Rank": 3}))
    with TemporaryDirectory() as folder:
        profile = read_profile(made.write(Path(folder) / "t.json"))
    lines = ["A profile of torch.profiler as it is read: calls, then the tasks of each step."]
    lines += ["", *(plain_value(call) for call in profile.calls)]
    for number in (None, 3, 5):
        chosen, notes = step_of(profile, number)
        lines += ["", f"step {number}: {' '.join(notes)}"]
        for place_of, task in enumerate(tape_of(chosen).entries):
            seconds = f"  {significant(task.seconds * 1e6)} us" if task.seconds else ""
            lines.append(task_text(place_of, task) + seconds)
    return cut(lines)


def step_tables() -> list[str]:
    """Return the tables of collectives and memory of a training step (times of execution)."""
    done = step("  parallelism: {tp: 2, pp: 2, dp: 2}", model=MODEL, batch=8)
    lines = ["Tables of a training step: its collectives and its memory."]
    with TemporaryDirectory() as folder:
        for write in (write_collectives, write_memory):
            text = write(Path(folder), done).read_text(encoding="utf-8")
            lines += ["", *table_lines(text)]
    return cut(lines)


def step_events() -> list[str]:
    """Return the first events of the trace of a training step (times of execution)."""
    done = step("  parallelism: {dp: 2}", model=MODEL, batch=2, gpus=2)
    with TemporaryDirectory() as folder:
        path = write_step_trace(Path(folder) / "a.json.gz", done).path
        content = gzip.decompress(path.read_bytes()).decode()
    return cut(["Trace events of a training step, DDP over 2 GPUs.", "", *trace_lines(content)])


NODE_KINDS = {COMPUTE: "kernel", COLLECTIVE: "collective", SEND: "send", RECEIVE: "receive"}
WRITTEN_STEPS: dict[str, dict[str, Any]] = {
    "data": {"dp": 2, "data": "zero1"},
    "tensor": {"tp": 2, "dp": 2},
    "pipeline": {"pp": 2, "batch": 2, "micro": 1},
}


def node_text(node: TraceNode) -> str:
    """Return one node of a Chakra trace: what it does, what it waits for, its attributes."""
    waits = f" after {' '.join(f'#{number}' for number in node.after)}" if node.after else ""
    shown = {
        key: value.decode() if isinstance(value, bytes) else value
        for key, value in node.attributes.items()
        if key != "is_cpu_op"
    }
    attributes = f" | {plain_value(shown)}" if shown else ""
    duration = f" {node.micros} us" if node.micros else ""
    return f"#{node.number} {NODE_KINDS[node.kind]} {node.name}{duration}{waits}{attributes}"


def chakra(layout: dict[str, Any]) -> list[str]:
    """Return the Chakra traces of the first and the last rank of a step, and its groups."""
    made = setting(model=replace(SMALL, layers=1), **{"batch": 2, **layout})
    tape = training_step(made)
    last = max(int(entry.groups.max()) for entry in tape.entries)
    lines = [
        f"Chakra execution traces of a step of one layer, {plain_value(layout)}.",
        "One line a node: number, kind, name, duration, the nodes that it waits for, attributes.",
    ]
    groups: dict[tuple[int, ...], int] = {}
    for rank in (0, last):
        lines += ["", f"rank {rank}", *map(node_text, nodes_of(tape, rank, groups))]
    names = (f"group {number}: {' '.join(map(str, ranks))}" for ranks, number in groups.items())
    return [*lines, "", *names]


WRITERS: dict[str, Writer] = {
    **{f"traces/chakra-{name}": partial(chakra, layout) for name, layout in WRITTEN_STEPS.items()},
    **{f"traces/tables-{name}": partial(tables, name) for name in RUNS},
    **{f"traces/chrome-{name}": partial(events, name) for name in RUNS},
    "traces/goal-written": goal_written,
    "traces/goal-read": goal_read,
    "traces/kineto-read": kineto,
    "traces/step-tables": step_tables,
    "traces/step-chrome": step_events,
}
