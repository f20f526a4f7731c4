"""One training cell, from question to row: its tape and time, where the time and memory go."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from heapq import heappop, heappush
from itertools import chain
from pathlib import Path
from pickle import dumps

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError
from netsim.base.files import csv_of, write_text
from netsim.base.memo import Memo, Same
from netsim.base.startup import MODEL_VERSION, tell_share
from netsim.base.values import dataclass, grouped
from netsim.engines.engine import choose, simulate
from netsim.extent.engine_runs import Progress
from netsim.extent.invariants import sound_step
from netsim.extent.memory import available_memory
from netsim.extent.noise import NoiseDraws, disturbed
from netsim.nccl.facts import parse_version
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.results.row import Row, of_samples
from netsim.scenario.models import cluster_label, node_count
from netsim.scenario.training import Training
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import IN_ORDER
from netsim.topology.fault_times import in_time
from netsim.training.costs import Costs
from netsim.training.resolve import PARTS, ResolvedStep, memories, memory_of_gpus, model_flops
from netsim.workloads.lower import (
    SHARE_OF_COLLECTIVES,
    Coarse,
    Lowered,
    Realise,
    lower,
    nothing_to_do,
)
from netsim.workloads.memory import FULL, activation_bytes, full_activation_bytes
from netsim.workloads.passes import EXPERT, Part
from netsim.workloads.setting import Setting
from netsim.workloads.step import Pass, empty_tape, synchronised, training_step
from netsim.workloads.tape import COMPUTE, Deps, Tape, TapeEntry, emit

Times = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Spans:
    """A step that has run. By entry, begin and end are those of each row of its groups."""

    tape: Tape
    lowered: Lowered
    timeline: Timeline
    ranks: int
    first: Ints  # of the ranks that take as long, by rank

    @property
    def makespan(self) -> float:
        """The end of the step."""
        return self.timeline.makespan

    def begin(self, entry: int) -> Times:
        """When the last rank of each group had come; of kernels, when they began."""
        return self.timeline.start[self.lowered.begin[entry]]

    def end(self, entry: int) -> Times:
        """When each group was done."""
        return self.timeline.end[self.lowered.end[entry]]

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of entries there are, kernels first."""
        names = dict.fromkeys(entry.kind for entry in self.tape.entries)
        return (COMPUTE, *(name for name in names if name != COMPUTE))

    @cached_property
    def columns(self) -> tuple[Ints, Ints, Ints, Times, Times]:
        """Rank, kind, entry, begin and end of everything that representatives take part in."""
        parts = [self._parts(number, entry) for number, entry in enumerate(self.tape.entries)]
        columns = zip(*parts, strict=True)
        rank, kind, entry, begin, end = (np.concatenate(column) for column in columns)
        order = np.argsort(rank, kind="stable")
        return rank[order], kind[order], entry[order], begin[order], end[order]

    def of_rank(self, rank: int) -> tuple[Ints, Times, Times]:
        """The entries that a rank takes part in, in order, and when they begin and end for it."""
        ranks, _, entry, begin, end = self.columns
        part = slice(*np.searchsorted(ranks, self.first[rank] + np.arange(2)))
        return entry[part], begin[part], end[part]

    def _parts(self, number: int, entry: TapeEntry) -> tuple[Ints, Ints, Ints, Times, Times]:
        groups = entry.groups
        mine = self._known.of(Same(groups), lambda: np.argwhere(self.first[groups] == groups))
        group, place = mine.T
        kind = np.full(len(group), self.kinds.index(entry.kind), np.int32)
        begin, end = (times[group] for times in (self.begin(number), self.end(number)))
        return groups[group, place], kind, np.full(len(group), number, np.int32), begin, end

    _known: Memo = field(default_factory=Memo, repr=False)


# Where the time of every GPU goes: computing, communication that nothing hides, waiting.
# At every moment a GPU computes, or else a collective of its own is under way (exposed, by kind; of
# several kinds at once, the one that was there first), or else it waits: in a pipeline that is the
# bubble, and the wait for slower GPUs.


@dataclass(frozen=True)
class Breakdown:
    """Seconds by rank: computing, exposed and hidden by kind of communication, idle."""

    kinds: tuple[str, ...]
    computing: Times
    exposed: Times  # kind x rank
    hidden: Times  # kind x rank
    idle: Times
    exposed_by_entry: Times

    @property
    def overlap(self) -> float:
        """The part of all time with communication under way that computing hides."""
        hidden, exposed = float(self.hidden.sum()), float(self.exposed.sum())
        return hidden / (hidden + exposed) if hidden + exposed > 0 else 0.0


def breakdown_of(spans: Spans) -> Breakdown:
    """Where the time of each rank goes."""
    kinds = tuple(kind for kind in spans.kinds if kind != COMPUTE)
    by_entry, found = np.zeros(len(spans.tape.entries)), []
    rank, kind, entry, begin, end = spans.columns
    told, like, count = np.unique(spans.first, return_inverse=True, return_counts=True)
    edges = (np.searchsorted(rank, told, side) for side in ("left", "right"))
    for part, times in zip(map(slice, *edges), count.tolist(), strict=True):
        *one, bare = _of_rank(kind[part], begin[part], end[part], len(kinds) + 1, spans.makespan)
        found.append(one)
        np.add.at(by_entry, entry[part], bare * times)
    columns = (np.array(column)[like].T.copy() for column in zip(*found, strict=True))
    computing, exposed, hidden, idle = columns
    return Breakdown(kinds, computing, exposed, hidden, idle, by_entry)


def launch_waits(spans: Spans) -> Times:
    """Seconds by rank in which nothing runs because the host has not launched what comes next.

    They are a part of the idle time of the breakdown: a gap between all that came before and an
    entry that begins at the very moment at which it is launched.
    """
    launched_of_task = np.array([entry.launched for entry in spans.tape.entries])
    rank, _, entry, begin, end = spans.columns
    of_told_rank = np.zeros(spans.ranks)
    for told in np.unique(spans.first).tolist():
        part = slice(*np.searchsorted(rank, [told, told + 1]))
        launched = launched_of_task[entry[part]]
        # Of entries that begin together, one that was only just launched comes first.
        order = np.lexsort((-launched, begin[part]))
        starts = begin[part][order]
        busy_until = np.maximum.accumulate(end[part][order])
        gaps = starts - np.concatenate([[0.0], busy_until[:-1]])
        just_launched = launched[order] >= starts * (1 - 1e-12)
        of_told_rank[told] = gaps[(gaps > 0) & just_launched].sum()
    return of_told_rank[spans.first]


def bound_of(breakdown: Breakdown) -> str:
    """What takes most of the time of all GPUs together, and which part of it."""
    spent = {"compute": float(breakdown.computing.sum()), "waiting": float(breakdown.idle.sum())}
    for kind, seconds in zip(breakdown.kinds, breakdown.exposed.sum(axis=1), strict=True):
        spent[f"{kind} communication"] = float(seconds)
    total = sum(spent.values())
    name = max(spent, key=lambda one: spent[one])
    return f"{name} {spent[name] / total:.0%}" if total > 0 else ""


def _of_rank(
    kind: NDArray[np.int32], begin: Times, end: Times, kinds: int, makespan: float
) -> tuple[float, Times, Times, float, Times]:
    """Seconds of computing, exposed and hidden by kind, idle; and exposed by entry."""
    edges = np.unique(np.concatenate([begin, end, [0.0, makespan]]))
    lengths = np.diff(edges)
    first, last = np.searchsorted(edges, begin), np.searchsorted(edges, end)
    count = np.zeros((kinds, len(edges)), np.int32)
    np.add.at(count, (kind, first), 1)
    np.add.at(count, (kind, last), -1)
    busy: NDArray[np.bool_] = np.cumsum(count, axis=1)[:, :-1] > 0
    free = ~busy[0]
    shown = busy[1:] & free
    shown &= np.cumsum(shown, axis=0) == 1  # of the kinds under way, the first of the list
    exposed, hidden = (shown * lengths).sum(axis=1), (busy[1:] & busy[0]) @ lengths
    idle = float(lengths[free & ~busy[1:].any(axis=0)].sum())
    # Of one kind, exposed time is that of the entry that is under way: streams run one at a time.
    bare = np.concatenate([[0.0], np.cumsum(np.where(free, lengths, 0.0))])
    by_entry = np.where(kind > 0, bare[last] - bare[first], 0.0)
    return float(lengths[busy[0]].sum()), exposed, hidden, idle, by_entry


ISLANDS = "dp sync"
COARSE = "collectives as flows of the rate that each reaches alone"


@dataclass(frozen=True)
class Rates:
    """The time of a resolved step, and what follows from it."""

    resolved: ResolvedStep
    seconds: float

    @property
    def mfu(self) -> float:
        """Model FLOPs a second, as a fraction of the peak of all GPUs."""
        setting = self.resolved.setting
        peak = setting.peak_flops
        flops = model_flops(setting.model, setting.batch, setting.sequence)
        return flops / (self.seconds * peak) if self.seconds > 0 else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the whole job; samples, where there are no sequences."""
        setting = self.resolved.setting
        return setting.batch * setting.sequence / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Step(Rates):
    """A simulated training step; without an engine, by one rank of each stage."""

    program: Program
    spans: Spans
    engine: str
    sync: float
    costs: Costs

    @cached_property
    def breakdown(self) -> Breakdown:
        """Where the time goes."""
        found, bare = breakdown_of(self.spans), self.seconds - self.spans.makespan
        if not self.sync:
            return found
        exposed = np.vstack([found.exposed, np.full(self.spans.ranks, bare)])
        hidden = np.vstack([found.hidden, np.full(self.spans.ranks, self.sync - bare)])
        return replace(found, kinds=(*found.kinds, ISLANDS), exposed=exposed, hidden=hidden)

    @property
    def approximation(self) -> str:
        """What was done to have few rows."""
        found = {one.approximation for group in self.spans.lowered.coarse for one in group}
        recorded = self.resolved.recorded
        notes = () if recorded is None else recorded.notes
        every = self.resolved.setting.sync_every
        told = [COARSE] * (self.resolved.lowered is None)
        told += [f"one rank of each stage stands for all {self.spans.ranks}"] * (not self.engine)
        told += [f"1/{every} of the exchange of islands after {every} steps"] * bool(self.sync)
        return "; ".join([*told, *notes, *sorted(found - {""})])


MIN_TASKS_TO_FORGET = 2_000_000
"""Tasks of a step on all GPUs from which its rows need the memory of what its collectives took."""

_KEPT = Memo(1)  # the last, by cell, engine and what files held


def simulate_step(
    resolved: ResolvedStep, *, engine: str = "auto", progress: Progress | None = None
) -> Step:
    """Simulate the step of a cell; the last one is kept, for it is asked for again."""
    if progress is not None and engine == "simpy":
        return _simulated(resolved, engine, progress)
    told = resolved.recorded and (resolved.recorded.tape.entries, resolved.recorded.alone)
    asked = (resolved.cell.id, engine, dumps((resolved.setting, resolved.lowered, told)))
    return _KEPT.of(asked, lambda: _simulated(resolved, engine, None))


def _simulated(resolved: ResolvedStep, engine: str, progress: Progress | None) -> Step:
    tape, lowered = resolved.tape(), resolved.lowered
    if resolved.large:
        if not (why := resolved.why_in_full):
            return _told(resolved, tape)
        if (most := resolved.memory_needed(0)) > (room := available_memory()):
            needs = f"{resolved.setting.grid.size} ranks may need {most / 1e9:.0f} GB"
            told = f"{needs}, {room / 1e9:.0f} GB are free, and one does not stand for all: {why}"
            raise InputError(told, hint="fewer GPUs, or GPUs that are alike")
    if lowered is None:
        costs, size = resolved.costs, resolved.setting.grid.size
        has_many_rows = len(tape.entries) * size > MIN_TASKS_TO_FORGET
        when_realised = costs.forget_simulations if has_many_rows else nothing_to_do
        lowered = lower(tape, size, costs, when_realised)
    scenario, topology = resolved.cell.scenario, resolved.topology
    if scenario.timed:
        topology = in_time(topology, scenario.retries)
    program = place(lowered.schedule, topology)
    chosen = choose(program, engine)
    timeline = simulate(program, chosen, progress=progress or _tell_rows)
    program = program.as_run(timeline)
    sound_step(program, timeline, f"{cluster_label(resolved.cell.scenario.cluster)}: a step")
    size = resolved.setting.grid.size
    spans = Spans(tape, lowered, timeline, size, np.arange(size, dtype=np.int32))
    return _step(resolved, program, spans, chosen, resolved.costs)


def _tell_rows(done: int, rows: int, _: float) -> None:
    """Show how much of a step is done by the rows that were simulated."""
    tell_share(SHARE_OF_COLLECTIVES + (1 - SHARE_OF_COLLECTIVES) * done / rows)


def _step(
    resolved: ResolvedStep, program: Program, spans: Spans, engine: str, costs: Costs
) -> Step:
    seconds, sync = _with_sync(resolved, spans.makespan, engine or "auto")
    return Step(resolved, seconds, program, spans, engine, sync, costs)


def sync_seconds(resolved: ResolvedStep, engine: str) -> float:
    """The part of a step in what islands exchange each `sync_every` steps, with nothing beside."""
    setting = resolved.setting
    if setting.islands == 1:
        return 0.0
    lowered = lower(synchronised(setting), setting.grid.size, resolved.costs)
    program = place(lowered.schedule, resolved.topology)
    return simulate(program, choose(program, engine)).makespan / setting.sync_every


def _with_sync(resolved: ResolvedStep, step: float, engine: str = "auto") -> tuple[float, float]:
    """A step with the seconds that it waits for the exchange of islands, and those of all of it."""
    sync = sync_seconds(resolved, engine)
    return step + (max(0.0, sync - step) if resolved.setting.overlap_sync else sync), sync


KINDS = ("tp", "cp", "ep", "dp", "pp", "extra")
OF_MODEL = ("mfu_pct", "tokens_per_s", "memory_GB", "states_GB", "activations_GB")
NAMES = (
    "step_time_us",
    "computing_us",
    *(f"exposed_{kind}_us" for kind in KINDS),
    "idle_us",
    "hidden_us",
    "overlap_pct",
    "bubble_pct",
    *OF_MODEL,
)
WORD = re.compile(r"[a-z]+")
# In the order in which they count: an expert-data-parallel group exchanges gradients, one of tensor
# and context parallelism does what the first of both does.
MEANT = {
    "dp": ("dp", "data", "fsdp", "shard", "replicate", "default"),
    "tp": ("tp", "tensor"),
    "cp": ("cp", "context", "sequence"),
    "ep": ("ep", "expert", "experts", "moe"),
    "pp": ("pp", "pipeline", "stage"),
}


def details_of(step: Step) -> dict[str, float]:
    """Means over GPUs, in µs: computing, exposed communication by kind, idle; and what follows.
    `hidden_us` is communication that computing hides, `bubble_pct` idle time in % of computing."""
    found = step.breakdown
    exposed = dict.fromkeys(KINDS, 0.0)
    for kind, seconds in zip(found.kinds, found.exposed.mean(axis=1), strict=True):
        exposed[axis_of(kind)] += float(seconds)
    computing, idle = float(found.computing.mean()), float(found.idle.mean())
    told = {
        "step_time_us": step.seconds * 1e6,
        "computing_us": computing * 1e6,
        **{f"exposed_{kind}_us": seconds * 1e6 for kind, seconds in exposed.items()},
        "idle_us": idle * 1e6,
        "hidden_us": float(found.hidden.sum(axis=0).mean()) * 1e6,
        "overlap_pct": found.overlap * 100,
        "bubble_pct": idle / computing * 100 if computing > 0 else 0.0,
    }
    if step.resolved.recorded is not None:
        return told
    worst = max(memories(step.resolved.setting), key=lambda memory: memory.total)
    memory = (worst.total / 1e9, worst.states / 1e9, worst.activations / 1e9)
    known = (step.mfu * 100, step.tokens_per_second, *memory)
    details = told | dict(zip(OF_MODEL, known, strict=True))
    if not step.mfu:  # layers that have times only, without FLOPs
        del details["mfu_pct"]
    return details


def row_of_step(
    resolved: ResolvedStep, *, engine: str = "auto", progress: Progress | None = None
) -> Row:
    """The row of a resolved step, simulated."""
    step = simulate_step(resolved, engine=engine, progress=progress)
    return replace(step_row(step), details=details_of(step))


def axis_of(group: str) -> str:
    """The parallelism of a kind of communication; of a recorded group, by the words of its name.
    What a trace calls the default group is taken as data parallel: DDP and FSDP use no other."""
    words = WORD.findall(group.lower())
    for axis, meant in MEANT.items():
        if any(word in meant for word in words):
            return axis
    return "extra"


def step_row(step: Step) -> Row:
    """The line of results.csv; what a step has beside its time is in its other files."""
    given, samples, resolved = step.resolved.cell.scenario.disturbances, np.zeros(0), step.resolved
    if given is not None:
        longer = disturbed(step.program, NoiseDraws(*given), step.engine) - step.spans.makespan
        samples = 1e6 * (step.seconds + longer)
    scenario, work = resolved.cell.scenario, resolved.work
    return Row(
        scenario=scenario.name or "",
        cell=resolved.cell.id,
        topology=cluster_label(scenario.cluster),
        nodes=node_count(scenario.cluster),
        gpus_per_node=resolved.gpus_per_node,
        ranks=resolved.setting.grid.size,
        workload=f"training {work.label}",
        dtype=work.dtype if isinstance(work, Training) else "",
        launch=scenario.launch_costs().style,
        nccl_version=parse_version(scenario.nccl.version).in_tables,
        step_time_us=step.seconds * 1e6,
        validated="not validated",
        seed=scenario.seed,
        model_version=MODEL_VERSION,
        axes=resolved.cell.axes,
        bound_by=bound_of(step.breakdown),
        approximation=step.approximation,
        rows=len(step.program),
        engine=step.engine,
        **of_samples(samples),
    )


# Memory over the step: what a GPU of each pipeline stage holds at every moment.
# Weights, gradients, optimizer states and buffers are there all the time. Activations of a layer
# are kept from the beginning of its forward pass to the end of what its backward pass needs them
# for.

MEMORY_OVER_TIME = "memory_over_time.csv"
COLUMNS = ("stage", "rank", "time_us", "bytes", "activations_bytes", "gpu_bytes")
MOST_MOMENTS = 2_000  # of a stage; of more, those between are left out where less is held
Layers = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Held:
    """What one GPU of a stage holds over time: bytes, those of activations, and its room."""

    stage: int
    rank: int
    seconds: Times
    activations: Times
    constant: float
    room: float

    @property
    def peak(self) -> float:
        """The most activations that are kept at one time."""
        return float(self.activations.max(initial=0.0))


def held_over_time(step: Step) -> list[Held]:
    """The memory of a rank of every stage: the first of those with the smallest GPU memory."""
    setting = step.resolved.setting
    gpu_memory = memory_of_gpus(step.resolved.cluster)
    layers = _bytes_of_layers(setting)
    held_by_stage = []
    for stage, memory in enumerate(memories(setting)):
        ranks = setting.grid.stage(stage)
        rank = int(ranks[gpu_memory[ranks].argmin()])
        when, change = _changes(step, rank, layers)
        constant = memory.total - memory.activations
        room = float(gpu_memory[rank])
        held_by_stage.append(Held(stage, rank, when, np.cumsum(change), constant, room))
    return held_by_stage


def _bytes_of_layers(setting: Setting) -> Layers:
    layers = [layer for stage in setting.stages() for chunk in stage for layer in chunk]
    found = {}
    for layer in layers:
        kept = activation_bytes(setting, layer)
        again = full_activation_bytes(setting, layer) if FULL & {*setting.recompute} else kept
        found[layer.name] = (kept, max(0.0, again - kept))
    return found


def _changes(step: Step, rank: int, layers: Layers) -> tuple[Times, Times]:
    spans: dict[tuple[str, int], dict[str, tuple[float, float]]] = {}
    columns = (column.tolist() for column in step.spans.of_rank(rank))
    for number, begin, end in zip(*columns, strict=True):
        entry = step.spans.tape.entries[number]
        if entry.layer not in layers or entry.collective:
            continue
        phases = spans.setdefault((entry.layer, entry.micro_batch), {})
        first, last = phases.get(entry.phase, (begin, end))
        phases[entry.phase] = (min(first, begin), max(last, end))
    events: list[tuple[float, float]] = [(0.0, 0.0), (step.seconds, 0.0)]
    for (layer, _), phases in spans.items():
        kept, again = layers[layer]
        events += [(phases["forward"][0], kept), (max(end for _, end in phases.values()), -kept)]
        if again and "backward" in phases:
            events += [(phases["backward"][0], again), (phases["backward"][1], -again)]
    events.sort()  # at one moment, what is given up comes first
    when, change = np.array(events).T
    return when, change


def write_memory_over_time(path: Path, step: Step) -> Path:
    """memory_over_time.csv: from each moment on, what a GPU of each stage holds."""
    lines = []
    for held in held_over_time(step):
        kept = held.activations
        when = np.column_stack([held.seconds * 1e6, held.constant + kept, kept])[_shown(kept)]
        lines += [(held.stage, held.rank, *one, held.room) for one in when.tolist()]
    return _write(path / MEMORY_OVER_TIME, COLUMNS, lines)


def _shown(activations: Times) -> NDArray[np.intp]:
    """Moments that tell the course: of many, the most and the least of every stretch."""
    if len(activations) <= MOST_MOMENTS:
        return np.arange(len(activations))
    stretches = np.array_split(np.arange(len(activations)), MOST_MOMENTS // 2)
    most = [part[activations[part].argmax()] for part in stretches]
    least = [part[activations[part].argmin()] for part in stretches]
    return np.unique([0, *most, *least, len(activations) - 1])


PASSES = {"forward": "F", "backward": "B", "weights": "W"}


def entry_title(entry: TapeEntry, rank: int, members: tuple[int, ...], *, several: bool) -> str:
    """A slice: `layer 3 norm+mlp (mb 0)`, `all_gather layer 3 weights`, `send activations`.
    `several`: there is more than one micro-batch."""
    words = [entry.layer] if entry.layer and not entry.name.startswith(entry.layer) else []
    words.append(entry.name)
    if entry.collective == "p2p":
        words = ["send" if rank == members[0] else "recv", *words]
    elif entry.collective and entry.collective != entry.name:
        words = [entry.collective, *words]
    title = " ".join(words)
    return f"{title} (mb {entry.micro_batch})" if several and entry.micro_batch >= 0 else title


def pass_title(entry: TapeEntry) -> str:
    """The pass that a kernel belongs to: `F mb 2`, `B mb 0 chunk 1`, `step`."""
    if entry.micro_batch < 0 or entry.phase not in PASSES:
        return entry.phase
    chunk = f" chunk {entry.chunk}" if entry.chunk >= 0 else ""
    return f"{PASSES[entry.phase]} mb {entry.micro_batch}{chunk}"


def stream_title(stream: str, stage: int | None) -> str:
    """A stream as a rank of a stage sees it: `compute`, `NCCL tp`, `NCCL pp recv from stage 0`."""
    if stream == COMPUTE:
        return stream
    kind, _, way = stream.partition(" ")
    source, arrow, target = way.partition(">")
    if not arrow:
        return f"NCCL {stream}"
    ends = f"send to stage {target}" if source == str(stage) else f"recv from stage {source}"
    return f"NCCL {kind} {ends}"


def family(name: str) -> str:
    """A name without its number: `bucket 3` is one of the buckets."""
    return " ".join(word for word in name.split() if not word.isdigit())


COLLECTIVES = "collectives.csv"
MEMORY = "memory.csv"
COLLECTIVE_COLUMNS = (
    "kind", "name", "phase", "collective", "ranks", "groups", "nodes", "calls", "size_bytes",
    "dtype", "algorithm", "protocol", "channels", "time_us", "alone_us", "total_us", "exposed_us",
    "sent_bytes", "measured_us",
)  # fmt: skip
WHOLE = ("sendrecv", "p2p", "broadcast", "reduce")


def sent_bytes(collective: str, nbytes: int, ranks: int) -> float:
    """Bytes that a rank sends (the closed form of each collective), from its size."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks * nbytes
    return float(nbytes) if collective in WHOLE else (ranks - 1) / ranks * nbytes


def write_collectives(path: Path, step: Step) -> Path:
    """Write a line for each class of equal calls: where, how often, bytes, times of a call.

    `time_us` is the mean beside everything else, `alone_us` that without it; `total_us` and
    `exposed_us` are sums over the calls of one rank, the mean of ranks that take part."""
    lines, hosts = list[Sequence[object]](), step.resolved.cluster.gpu_host
    for numbers, calls, times, exposed in alike_calls(step, _key):
        entries = [step.spans.tape.entries[number] for number in numbers]
        entry, coarse = entries[0], step.spans.lowered.coarse[numbers[0]][0]
        groups, ranks = entry.groups.shape
        mean, told = float(np.mean(times)), [one.measured for one in entries]
        line = (
            entry.kind,
            family(entry.name),
            entry.phase,
            entry.collective,
            ranks,
            groups,
            len(np.unique(hosts[entry.groups[0]])),
            f"{calls:g}",
            entry.nbytes,
            entry.dtype,
            coarse.algorithm,
            coarse.protocol,
            coarse.channels,
            mean * 1e6,
            coarse.seconds * 1e6,
            mean * calls * 1e6,
            exposed * 1e6,
            sent_bytes(entry.collective, entry.nbytes, ranks),
            float(np.mean(told)) * 1e6 if any(told) else "",
        )
        lines.append(line)
    return _write(path / COLLECTIVES, COLLECTIVE_COLUMNS, lines)


def alike_calls(
    step: Step, key: Callable[[TapeEntry], object]
) -> Iterator[tuple[list[int], float, Times, float]]:
    """Classes of equal calls: entries, number on a rank, seconds of each, exposed seconds."""
    spans, entries = step.spans, step.spans.tape.entries
    calls = (number for number, entry in enumerate(entries) if entry.collective)
    for some in grouped(calls, lambda number: key(entries[number])).values():
        where = {Same(entries[n].groups): entries[n].groups for n in some}
        members = len(np.unique(np.concatenate([one.ravel() for one in where.values()])))
        times = np.concatenate([spans.end(n) - spans.begin(n) for n in some])
        exposed = float(step.breakdown.exposed_by_entry[some].sum()) / members
        yield some, sum(entries[n].groups.size for n in some) / members, times, exposed


def _key(entry: TapeEntry) -> tuple[object, ...]:
    return (
        entry.kind,
        family(entry.name),
        entry.phase,
        entry.collective,
        entry.groups.shape[1],
        entry.nbytes,
        entry.dtype,
    )


def write_memory(path: Path, step: Step) -> Path:
    """A line for the GPUs of every pipeline stage, in bytes."""
    lines = [
        (stage, *(getattr(one, name) for name in PARTS), one.total)
        for stage, one in enumerate(memories(step.resolved.setting))
    ]
    columns = ("stage", *(f"{name}_bytes" for name in PARTS), "total_bytes")
    return _write(path / MEMORY, columns, lines)


def _write(path: Path, columns: Sequence[str], lines: Iterable[Sequence[object]]) -> Path:
    return write_text(path, csv_of([columns, *lines]))


# A step simulated by one rank of each pipeline stage, if all ranks of a stage are equal: a column
# for each stage, in which kernels and collectives take their time alone. Kernels lose the SMs that
# collectives beside them hold; collectives that load a kind of links more than fully share it.
# Passes beside which nothing happens are run once and stand as one entry.

LEAST = 0.02  # of a kernel's rate, however many SMs collectives hold
LAUNCH = -2  # in the place of a version: the host has launched an entry
LARGE = 8 << 20  # bytes of collectives, from which on their time is a line between powers of two
MOST_IN_FULL = 300_000  # rows of a ring; of longer ones a few hosts are run
MOST_SHARED = 4096  # GPUs; of larger clusters, which take up to 2 GB, only one is kept
SHARED_COSTS = Memo(8)  # by the clusters whose collectives are kept for other steps
Cost = tuple[float, float, tuple[tuple[str, float], ...]]


def folded_step(resolved: ResolvedStep) -> Rates:
    """The step of a resolved cell, if all ranks of a stage are equal."""
    fold = _Fold(resolved)
    seconds = fold.run(training_step(resolved.setting, fold.pass_seconds))
    return Rates(resolved, _with_sync(resolved, seconds)[0])


def _told(resolved: ResolvedStep, tape: Tape) -> Step:
    """A step simulated by one rank of each stage, with the times of all its entries."""
    fold, grid = _Fold(resolved), resolved.setting.grid
    run = _Run(fold, tape.entries)
    run.finished()
    lowered, times = fold.listed(tape, run.before), Timeline(np.array(run.begin), np.array(run.end))
    heads = np.array([grid.stage(k)[0] for k in range(grid.degrees["pp"])], np.int32)
    program = place(lowered.schedule, resolved.topology)
    spans = Spans(tape, lowered, times, grid.size, heads[grid.stages])
    return _step(resolved, program, spans, "", fold.costs)


def told_seconds(resolved: ResolvedStep, tape: Tape, realise: Realise) -> float:
    """How long it takes with collectives that are others."""
    return _Run(_Fold(resolved, realise), tape.entries).finished()


@dataclass
class _Fold:
    """What entries of a step cost in their columns, and the passes that are known."""

    resolved: ResolvedStep
    realise: Realise | None = None  # in the place of its costs
    known: dict[object, float] = field(default_factory=dict)
    loads: Memo = field(default_factory=Memo)

    @cached_property
    def costs(self) -> Costs:
        """The costs of collectives as NCCL runs them here; steps on equal clusters share them."""
        scenario, own = self.resolved.cell.scenario, self.resolved.costs
        asked = (scenario.cluster.model_dump_json(), scenario.nccl.model_dump_json(), own.launch)
        budget = own.budget.with_thresholds(max_ring_rows=MOST_IN_FULL)
        if len(own.cluster.topology) > MOST_SHARED:
            SHARED_COSTS.keep_only(asked)
        return SHARED_COSTS.of(asked, lambda: replace(own, budget=budget))

    def pass_seconds(self, one: Pass) -> float:
        """How long a pass takes by itself, its collectives of tp, cp and ep included."""
        key = (one.kind, *map(Same, one.parts))
        if key not in self.known:
            beside = self.resolved.setting.expert_overlap
            tape = self._tape(one, lambda part: not (beside and part.axis == EXPERT))
            self.known[key] = self.run(tape)
            if beside:  # as long as its exchanges, or the rest of it with the SMs that are left
                costs = [self.cost(t) for t in self._tape(one, lambda p: p.axis == EXPERT).entries]
                held = min(self.known[key], sum(sms * seconds for seconds, sms, _ in costs))
                exchanged = sum(seconds for seconds, *_ in costs)
                self.known[key] = max(self.known[key] + held, exchanged)
        return self.known[key]

    def _tape(self, one: Pass, kept: Callable[[Part], bool]) -> Tape:
        after: Deps = ()
        tape = empty_tape(self.resolved.setting)
        for parts in one.parts:
            some = tuple(filter(kept, parts))
            after = emit(tape, one.at, some, after, self.resolved.setting.stored).ends
        return tape

    def run(self, tape: Tape) -> float:
        """The end of the last entry."""
        return _Run(self, tape.entries).finished()

    def cost(self, entry: TapeEntry) -> Cost:
        """Seconds alone, the part of the SMs that it holds, what it loads of kinds of links."""
        if not entry.collective:
            return entry.seconds, 0.0, ()
        coarse = self.coarse(entry)
        return coarse.seconds, coarse.channels / self.resolved.setting.roofline.sms, coarse.loads

    def coarse(self, entry: TapeEntry) -> Coarse:
        """What a collective is made of in the group in which it takes longest."""
        asked = (Same(entry.groups), entry.collective, entry.nbytes, entry.dtype, entry.kind)
        return self.loads.of(asked, lambda: self._between(entry))

    def _between(self, entry: TapeEntry) -> Coarse:
        if entry.nbytes <= LARGE:
            return self._asked(entry)
        low = 1 << (entry.nbytes.bit_length() - 1)
        lower, upper = (self._asked(replace(entry, nbytes=size)) for size in (low, 2 * low))
        part = entry.nbytes / low - 1
        return replace(lower, seconds=lower.seconds + part * (upper.seconds - lower.seconds))

    def _asked(self, entry: TapeEntry) -> Coarse:
        """The slowest of its groups: those of one kind of GPU are equal, so one is simulated."""
        realise = self.realise or self.costs
        groups = self._groups_of_kinds(entry)
        return max((realise(entry, group) for group in groups), key=lambda one: one.seconds)

    def _groups_of_kinds(self, entry: TapeEntry) -> list[tuple[int, ...]]:
        """One group for each pattern of kinds of GPU that the groups of an entry have."""
        gpu_kinds = self.resolved.setting.gpu_kinds
        if gpu_kinds is None:
            return [tuple(entry.groups[0].tolist())]
        kinds = np.array(gpu_kinds.of_rank, np.int32)[entry.groups]
        _, first = np.unique(kinds, axis=0, return_index=True)
        return [tuple(entry.groups[number].tolist()) for number in sorted(first.tolist())]

    def listed(self, tape: Tape, before: Sequence[Sequence[int]]) -> Lowered:
        """A row for each entry, on the first of its ranks, which waits for all that it does."""
        entries, builder = tape.entries, Builder(self.resolved.setting.grid.size)
        joins = np.cumsum([0, *map(len, before)]), [*chain(*before)], IN_ORDER
        rows = builder.marks([entry.groups[0, 0] for entry in entries], joins=joins)
        row = [np.broadcast_to(rows[n], len(entry.groups)) for n, entry in enumerate(entries)]
        coarse = [(self.coarse(entry),) if entry.collective else () for entry in entries]
        classes = [np.broadcast_to(np.int32(0), len(entry.groups)) for entry in entries]
        return Lowered(builder.finish(), (*row,), (*row,), (*coarse,), (*classes,))

    def columns(self, entry: TapeEntry) -> tuple[int, ...]:
        """The stages that an entry runs in."""
        stages = self.resolved.setting.grid.stages
        return tuple(sorted({stages[rank] for rank in entry.groups[0].tolist()}))


class _Run:
    def __init__(self, fold: _Fold, entries: Sequence[TapeEntry]) -> None:
        self.now, self.queue = 0.0, list[tuple[float, int, int]]()
        count = len(entries)
        self.columns, self.left, self.sms, self.loads = [], [], [], list[dict[str, float]]()
        self.waits, self.then = [0] * count, [list[int]() for _ in entries]
        self.rate, self.since, self.version = [1.0] * count, [0.0] * count, [0] * count
        self.begin, self.end, self.before = [0.0] * count, [0.0] * count, list[list[int]]()
        self.active: dict[int, list[int]] = {}
        last: dict[tuple[int, str], int] = {}
        where = Memo()
        for number, entry in enumerate(entries):
            columns = where.of(Same(entry.groups), partial(fold.columns, entry))
            seconds, sms, loads = fold.cost(entry)
            self.columns.append(columns)
            self.left.append(seconds)
            self.sms.append(sms)
            self.loads.append(dict(loads))
            before = set(entry.after)
            for column in columns:
                if (column, entry.stream) in last:
                    before.add(last[column, entry.stream])
                last[column, entry.stream] = number
            self.before.append(sorted(before))
            for one in before:
                self.then[one].append(number)
            self.waits[number] = len(before)
        self.kernel = [entry.kind == COMPUTE for entry in entries]
        self.moving = [entry.moving / entry.seconds if entry.seconds else 0.0 for entry in entries]
        self.launched = [entry.launched for entry in entries]

    def finished(self) -> float:
        """Run all entries; the end of the last."""
        self._start([n for n, waits in enumerate(self.waits) if not waits])
        while self.queue:
            when, number, version = heappop(self.queue)
            if version == LAUNCH:
                self.now = when
                self._start([number])
            elif version == self.version[number]:
                self.now = when
                self._finish(number)
        return self.now

    def _start(self, numbers: Sequence[int], left: Sequence[int] = ()) -> None:
        """Begin with some entries, in columns of which some may have been `left` just now."""
        touched = set(left)
        for number in (late := [one for one in numbers if self.launched[one] > self.now]):
            heappush(self.queue, (self.launched[number], number, LAUNCH))
        numbers = [one for one in numbers if one not in late] if late else numbers
        for number in numbers:
            self.begin[number] = self.since[number] = self.now
            for column in self.columns[number]:
                self.active.setdefault(column, []).append(number)
                touched.add(column)
        self._shared(touched, numbers)

    def _finish(self, number: int) -> None:
        ready = []
        for one in self.then[number]:
            self.waits[one] -= 1
            if not self.waits[one]:
                ready.append(one)
        for column in self.columns[number]:
            self.active[column].remove(number)
        self.version[number], self.end[number] = -1, self.now
        self._start(ready, self.columns[number])

    def _shared(self, columns: set[int], fresh: Sequence[int]) -> None:
        concerned = {number for column in columns for number in self.active.get(column, ())}
        new = set(fresh)
        for number in concerned:
            rate = self._rate(number)
            if number not in new:
                if rate == self.rate[number]:
                    continue
                self.left[number] -= (self.now - self.since[number]) * self.rate[number]
                self.since[number] = self.now
            self.rate[number] = rate
            self.version[number] += 1
            end = self.now + max(0.0, self.left[number]) / rate
            heappush(self.queue, (end, number, self.version[number]))

    def _rate(self, number: int) -> float:
        if self.kernel[number]:
            (column,) = self.columns[number]
            left = max(LEAST, 1.0 - sum(self.sms[one] for one in self.active[column]))
            return left / (1.0 - self.moving[number] * (1.0 - left))
        rate = 1.0
        for column in self.columns[number]:
            for kind, load in self.loads[number].items():
                total = sum(self.loads[one].get(kind, 0.0) for one in self.active[column])
                if load and total > 1.0:
                    rate = min(rate, 1.0 / total)
        return rate
