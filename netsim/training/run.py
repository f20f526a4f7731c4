"""Simulate the training step of a cell, and say where its time and memory go.

The result becomes a row of results.csv and the files collectives.csv, memory.csv and
memory_over_time.csv.
"""

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
from netsim.workloads.parts import PassPart
from netsim.workloads.passes import EXPERT
from netsim.workloads.setting import Setting
from netsim.workloads.step import ChunkPass, empty_tape, synchronised, training_step
from netsim.workloads.tape import COMPUTE, Deps, Tape, TapeEntry, emit

Times = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Spans:
    """The entries of a simulated step with their start and finish times in seconds.

    An entry of the tape is a kernel or a collective; it runs once in each of its groups of ranks.
    """

    tape: Tape
    lowered: Lowered
    timeline: Timeline
    ranks: int
    first: Ints
    """By rank, its representative: the lowest rank that spends its time in the same way."""

    @property
    def makespan(self) -> float:
        """The finish time of the step in seconds."""
        return self.timeline.makespan

    def begin(self, entry: int) -> Times:
        """For each group of an entry: the time in seconds at which the last rank of the group
        joined the collective; for a kernel, at which it started.
        """
        return self.timeline.start[self.lowered.begin[entry]]

    def end(self, entry: int) -> Times:
        """For each group of an entry: the time in seconds at which it finished."""
        return self.timeline.end[self.lowered.end[entry]]

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of entries on the tape; "compute" is first."""
        names = dict.fromkeys(entry.kind for entry in self.tape.entries)
        return (COMPUTE, *(name for name in names if name != COMPUTE))

    @cached_property
    def columns(self) -> tuple[Ints, Ints, Ints, Times, Times]:
        """Five arrays with one item for each entry that a representative rank takes part in,
        ordered by rank: rank, number of the kind, number of the entry, begin and end in seconds.
        """
        parts = [self._parts(number, entry) for number, entry in enumerate(self.tape.entries)]
        columns = zip(*parts, strict=True)
        rank, kind, entry, begin, end = (np.concatenate(column) for column in columns)
        order = np.argsort(rank, kind="stable")
        return rank[order], kind[order], entry[order], begin[order], end[order]

    def of_rank(self, rank: int) -> tuple[Ints, Times, Times]:
        """The numbers of the entries that a rank takes part in, in order, with their begins and
        ends in seconds.
        """
        ranks, _, entry, begin, end = self.columns
        part = slice(*np.searchsorted(ranks, self.first[rank] + np.arange(2)))
        return entry[part], begin[part], end[part]

    def _parts(self, number: int, entry: TapeEntry) -> tuple[Ints, Ints, Ints, Times, Times]:
        """The lines of `columns` for one entry."""
        groups = entry.groups
        members_here = self._member_places.of(
            Same(groups), lambda: np.argwhere(self.first[groups] == groups)
        )
        group, place = members_here.T
        kind = np.full(len(group), self.kinds.index(entry.kind), np.int32)
        begin, end = (times[group] for times in (self.begin(number), self.end(number)))
        return groups[group, place], kind, np.full(len(group), number, np.int32), begin, end

    _member_places: Memo = field(default_factory=Memo, repr=False)


# How every GPU spends its time. At every moment a GPU either computes; or a collective that it
# takes part in runs while it does not compute (exposed communication, by kind; if collectives of
# several kinds run, the first kind in `kinds` counts); or it is idle. Idle time is the pipeline
# bubble and the wait for slower GPUs.


@dataclass(frozen=True)
class Breakdown:
    """How each rank spends the step, in seconds.

    - `computing`, `idle`: by rank.
    - `exposed`, `hidden`: communication without, and with, computing at the same time, as arrays
      [kind, rank].
    - `exposed_by_entry`: by entry of the tape, the sum over ranks of its exposed time.
    """

    kinds: tuple[str, ...]
    computing: Times
    exposed: Times  # kind x rank
    hidden: Times  # kind x rank
    idle: Times
    exposed_by_entry: Times

    @property
    def overlap(self) -> float:
        """The fraction of communication time that is hidden by computing."""
        hidden = float(self.hidden.sum())
        exposed = float(self.exposed.sum())
        return hidden / (hidden + exposed) if hidden + exposed > 0 else 0.0


def breakdown_of(spans: Spans) -> Breakdown:
    """The breakdown of a simulated step by rank."""
    kinds = tuple(kind for kind in spans.kinds if kind != COMPUTE)
    by_entry = np.zeros(len(spans.tape.entries))
    times_of_rank = []
    rank, kind, entry, begin, end = spans.columns
    representatives, class_of_rank, count = np.unique(
        spans.first, return_inverse=True, return_counts=True
    )
    edges = (np.searchsorted(rank, representatives, side) for side in ("left", "right"))
    for part, times in zip(map(slice, *edges), count.tolist(), strict=True):
        *spent, exposed_by_task = _of_rank(
            kind[part], begin[part], end[part], len(kinds) + 1, spans.makespan
        )
        times_of_rank.append(spent)
        np.add.at(by_entry, entry[part], exposed_by_task * times)
    computing, exposed, hidden, idle = (
        np.array(column)[class_of_rank].T.copy() for column in zip(*times_of_rank, strict=True)
    )
    return Breakdown(kinds, computing, exposed, hidden, idle, by_entry)


def launch_waits(spans: Spans) -> Times:
    """By rank, the seconds in which nothing runs because the host has not launched the next entry.

    They are part of the idle time of the breakdown: gaps that end at the moment at which an entry
    is launched.
    """
    launched_of_task = np.array([entry.launched for entry in spans.tape.entries])
    rank, _, entry, begin, end = spans.columns
    wait_of_representative = np.zeros(spans.ranks)
    for representative in np.unique(spans.first).tolist():
        part = slice(*np.searchsorted(rank, [representative, representative + 1]))
        launched = launched_of_task[entry[part]]
        # Among entries that begin together, the one that was launched last comes first.
        order = np.lexsort((-launched, begin[part]))
        starts = begin[part][order]
        busy_until = np.maximum.accumulate(end[part][order])
        gaps = starts - np.concatenate([[0.0], busy_until[:-1]])
        just_launched = launched[order] >= starts * (1 - 1e-12)
        wait_of_representative[representative] = gaps[(gaps > 0) & just_launched].sum()
    return wait_of_representative[spans.first]


def bound_of(breakdown: Breakdown) -> str:
    """What takes most of the time of all GPUs, with its percentage: `compute 61%`."""
    spent = {"compute": float(breakdown.computing.sum()), "waiting": float(breakdown.idle.sum())}
    for kind, seconds in zip(breakdown.kinds, breakdown.exposed.sum(axis=1), strict=True):
        spent[f"{kind} communication"] = float(seconds)
    total = sum(spent.values())
    name = max(spent, key=spent.__getitem__)
    return f"{name} {spent[name] / total:.0%}" if total > 0 else ""


def _of_rank(
    kind: NDArray[np.int32], begin: Times, end: Times, kinds: int, makespan: float
) -> tuple[float, Times, Times, float, Times]:
    """How one rank spends the step in seconds: (computing, exposed by kind, hidden by kind, idle,
    exposed by entry).

    Args:
        kind: kind of each entry, 0 for kernels.
        begin: start of each entry.
        end: finish time of each entry.
        kinds: number of kinds.
        makespan: finish time of the step.
    """
    # The begins and ends of entries divide the step into intervals in which nothing changes.
    edges = np.unique(np.concatenate([begin, end, [0.0, makespan]]))
    lengths = np.diff(edges)
    first_interval = np.searchsorted(edges, begin)
    end_interval = np.searchsorted(edges, end)
    count_change = np.zeros((kinds, len(edges)), np.int32)
    np.add.at(count_change, (kind, first_interval), 1)
    np.add.at(count_change, (kind, end_interval), -1)
    is_active: NDArray[np.bool_] = np.cumsum(count_change, axis=1)[:, :-1] > 0
    is_computing = is_active[0]
    is_communicating = is_active[1:]

    computing = float(lengths[is_computing].sum())
    hidden = (is_communicating & is_computing) @ lengths
    is_exposed = is_communicating & ~is_computing
    is_exposed &= np.cumsum(is_exposed, axis=0) == 1  # of several kinds, only the first counts
    exposed = (is_exposed * lengths).sum(axis=1)
    idle = float(lengths[~is_computing & ~is_communicating.any(axis=0)].sum())

    # Entries of one kind do not overlap, as a stream runs one at a time: so all exposed time
    # between the begin and the end of an entry belongs to it.
    time_without_kernels = np.where(is_computing, 0.0, lengths)
    before_edge = np.concatenate([[0.0], np.cumsum(time_without_kernels)])
    exposed_of_entry = before_edge[end_interval] - before_edge[first_interval]
    by_entry = np.where(kind > 0, exposed_of_entry, 0.0)
    return computing, exposed, hidden, idle, by_entry


ISLANDS = "dp sync"
COARSE = "collectives as flows of the rate that each reaches alone"


@dataclass(frozen=True)
class Rates:
    """The time of a step in seconds, and the rates that follow from it."""

    resolved: ResolvedStep
    seconds: float

    @property
    def mfu(self) -> float:
        """Model FLOPs per second as a fraction of the peak of all GPUs."""
        setting = self.resolved.setting
        peak = setting.peak_flops
        flops = model_flops(setting.model, setting.batch, setting.sequence)
        return flops / (self.seconds * peak) if self.seconds > 0 else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of the job; samples per second if there are no sequences."""
        setting = self.resolved.setting
        return setting.batch * setting.sequence / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Step(Rates):
    """A simulated training step.

    `engine` is empty if one rank of each stage was simulated for all. `sync` is the seconds that
    the exchange between islands adds to an average step if nothing hides it.
    """

    program: Program
    spans: Spans
    engine: str
    sync: float
    costs: Costs

    @cached_property
    def breakdown(self) -> Breakdown:
        """How each rank spends the step, with the exchange between islands as a kind of
        communication of its own.
        """
        breakdown = breakdown_of(self.spans)
        exposed_sync = self.seconds - self.spans.makespan
        if not self.sync:
            return breakdown
        exposed = np.vstack([breakdown.exposed, np.full(self.spans.ranks, exposed_sync)])
        hidden = np.vstack([breakdown.hidden, np.full(self.spans.ranks, self.sync - exposed_sync)])
        return replace(breakdown, kinds=(*breakdown.kinds, ISLANDS), exposed=exposed, hidden=hidden)

    @property
    def approximation(self) -> str:
        """What is approximate in the time of the step, as one line of text."""
        remarks = []
        if self.resolved.lowered is None:
            remarks.append(COARSE)
        if not self.engine:
            remarks.append(f"one rank of each stage simulated for all {self.spans.ranks}")
        if self.sync:
            every = self.resolved.setting.sync_every
            remarks.append(f"1/{every} of the exchange of islands after {every} steps")
        if self.resolved.recorded is not None:
            remarks += self.resolved.recorded.notes
        coarse_forms = chain.from_iterable(self.spans.lowered.coarse)
        approximations = {coarse_form.approximation for coarse_form in coarse_forms}
        return "; ".join([*remarks, *sorted(approximations - {""})])


MIN_TASKS_TO_FORGET = 2_000_000
"""Entries x GPUs of a step from which the simulations of its collectives are freed first.

The rows of such a step need the memory.
"""

_LAST_STEP = Memo(1)  # the last step that was simulated, by cell, engine and contents of files


def simulate_step(
    resolved: ResolvedStep, *, engine: str = "auto", progress: Progress | None = None
) -> Step:
    """The simulated step of a cell. The last result is cached, as several outputs need the same
    step.
    """
    if progress is not None and engine == "simpy":
        return _simulated(resolved, engine, progress)
    recorded_part = resolved.recorded and (resolved.recorded.tape.entries, resolved.recorded.alone)
    key = (resolved.cell.id, engine, dumps((resolved.setting, resolved.lowered, recorded_part)))
    return _LAST_STEP.of(key, lambda: _simulated(resolved, engine, None))


def _simulated(resolved: ResolvedStep, engine: str, progress: Progress | None) -> Step:
    """The simulated step, in full, or by one rank of each stage if it is too large for that."""
    tape = resolved.tape()
    lowered = resolved.lowered
    size = resolved.setting.grid.size
    if resolved.large:
        reason = resolved.why_in_full
        if not reason:
            return _simulated_by_stages(resolved, tape)
        _check_memory(resolved, reason)
    if lowered is None:
        costs = resolved.costs
        has_many_rows = len(tape.entries) * size > MIN_TASKS_TO_FORGET
        when_realised = costs.forget_simulations if has_many_rows else nothing_to_do
        lowered = lower(tape, size, costs, when_realised)
    scenario = resolved.cell.scenario
    topology = resolved.topology
    if scenario.timed:
        topology = in_time(topology, scenario.retries)
    program = place(lowered.schedule, topology)
    chosen = choose(program, engine)
    timeline = simulate(program, chosen, progress=progress or _tell_rows)
    program = program.as_run(timeline)
    sound_step(program, timeline, f"{cluster_label(resolved.cell.scenario.cluster)}: a step")
    spans = Spans(tape, lowered, timeline, size, np.arange(size, dtype=np.int32))
    return _step(resolved, program, spans, chosen, resolved.costs)


def _check_memory(resolved: ResolvedStep, reason: str) -> None:
    """Raise an InputError if the simulation of all ranks does not fit into the free memory;
    `reason` says why all ranks must be simulated.
    """
    needed_bytes = resolved.memory_needed(0)
    free_bytes = available_memory()
    if needed_bytes > free_bytes:
        message = (
            f"{resolved.setting.grid.size} ranks may need {needed_bytes / 1e9:.0f} GB, but "
            f"{free_bytes / 1e9:.0f} GB are free; each rank must be simulated, as {reason}"
        )
        raise InputError(message, hint="use fewer GPUs, or equal GPUs without disturbances")


def _tell_rows(done: int, rows: int, _: float) -> None:
    """Report the progress of a simulation in which `done` of `rows` rows have ended."""
    tell_share(SHARE_OF_COLLECTIVES + (1 - SHARE_OF_COLLECTIVES) * done / rows)


def _step(
    resolved: ResolvedStep, program: Program, spans: Spans, engine: str, costs: Costs
) -> Step:
    """The Step of a simulation, whose seconds include the exchange between islands."""
    seconds, sync = _with_sync(resolved, spans.makespan, engine or "auto")
    return Step(resolved, seconds, program, spans, engine, sync, costs)


def sync_seconds(resolved: ResolvedStep, engine: str) -> float:
    """The seconds of the exchange between islands, divided by the `sync_every` steps after which it
    happens.

    Nothing runs beside the exchange. 0 if there is one island.
    """
    setting = resolved.setting
    if setting.islands == 1:
        return 0.0
    lowered = lower(synchronised(setting), setting.grid.size, resolved.costs)
    program = place(lowered.schedule, resolved.topology)
    return simulate(program, choose(program, engine)).makespan / setting.sync_every


def _with_sync(resolved: ResolvedStep, step: float, engine: str = "auto") -> tuple[float, float]:
    """Return (seconds of a step with the exchange between islands, seconds of that exchange).

    `step` is the seconds of the step without the exchange. If `overlap_sync` is set, the exchange
    only adds the seconds by which it is longer than the step.
    """
    sync = sync_seconds(resolved, engine)
    exposed_sync = max(0.0, sync - step) if resolved.setting.overlap_sync else sync
    return step + exposed_sync, sync


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
# By axis, words that identify it in the name of a group. The first axis with a match counts: a
# group "expert_data_parallel" exchanges gradients (dp), a group "tensor_context" is of tp.
AXIS_WORDS = {
    "dp": ("dp", "data", "fsdp", "shard", "replicate", "default"),
    "tp": ("tp", "tensor"),
    "cp": ("cp", "context", "sequence"),
    "ep": ("ep", "expert", "experts", "moe"),
    "pp": ("pp", "pipeline", "stage"),
}


def details_of(step: Step) -> dict[str, float]:
    """By name of a column, mean times over GPUs in microseconds, and figures that follow from them.

    `hidden_us` is communication at the same time as computing, `bubble_pct` is idle time in percent
    of computing time.
    """
    breakdown = step.breakdown
    exposed = dict.fromkeys(KINDS, 0.0)
    for kind, seconds in zip(breakdown.kinds, breakdown.exposed.mean(axis=1), strict=True):
        exposed[axis_of(kind)] += float(seconds)
    computing = float(breakdown.computing.mean())
    idle = float(breakdown.idle.mean())
    details = {
        "step_time_us": step.seconds * 1e6,
        "computing_us": computing * 1e6,
        **{f"exposed_{kind}_us": seconds * 1e6 for kind, seconds in exposed.items()},
        "idle_us": idle * 1e6,
        "hidden_us": float(breakdown.hidden.sum(axis=0).mean()) * 1e6,
        "overlap_pct": breakdown.overlap * 100,
        "bubble_pct": idle / computing * 100 if computing > 0 else 0.0,
    }
    if step.resolved.recorded is not None:
        return details
    worst = max(memories(step.resolved.setting), key=lambda memory: memory.total)
    memory = (worst.total / 1e9, worst.states / 1e9, worst.activations / 1e9)
    model_details = (step.mfu * 100, step.tokens_per_second, *memory)
    details = details | dict(zip(OF_MODEL, model_details, strict=True))
    if not step.mfu:  # layers that have times only, without FLOPs
        del details["mfu_pct"]
    return details


def row_of_step(
    resolved: ResolvedStep, *, engine: str = "auto", progress: Progress | None = None
) -> Row:
    """The row of results.csv for a resolved step, with its details, after simulating it."""
    step = simulate_step(resolved, engine=engine, progress=progress)
    return replace(step_row(step), details=details_of(step))


def axis_of(group: str) -> str:
    """The axis of parallelism of a kind of communication, or of a recorded group by its name;
    "extra" if there is none.

    The default group of a trace counts as data parallel: DDP and FSDP use no other.
    """
    words = WORD.findall(group.lower())
    for axis, meant in AXIS_WORDS.items():
        if any(word in meant for word in words):
            return axis
    return "extra"


def step_row(step: Step) -> Row:
    """The row of results.csv for a simulated step, without its details."""
    disturbances = step.resolved.cell.scenario.disturbances
    samples = np.zeros(0)
    resolved = step.resolved
    if disturbances is not None:
        longer = (
            disturbed(step.program, NoiseDraws(*disturbances), step.engine) - step.spans.makespan
        )
        samples = 1e6 * (step.seconds + longer)
    scenario = resolved.cell.scenario
    work = resolved.work
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


# Memory over the step: the bytes that a GPU of each pipeline stage holds at every moment.
# Weights, gradients, optimizer states and buffers are held all the time, the activations of a layer
# from the start of its forward pass to the end of its backward pass.

MEMORY_OVER_TIME = "memory_over_time.csv"
COLUMNS = ("stage", "rank", "time_us", "bytes", "activations_bytes", "gpu_bytes")
MOST_MOMENTS = 2_000  # lines of a stage; of more moments, only extremes are written
Layers = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class MemoryOverTime:
    """The memory of one GPU of a stage over time, in bytes.

    Args:
        seconds: moments at which the activations change.
        activations: bytes of activations from each moment on.
        constant: bytes of everything else.
        room: memory of the GPU.
    """

    stage: int
    rank: int
    seconds: Times
    activations: Times
    constant: float
    room: float

    @property
    def peak(self) -> float:
        """The largest number of bytes of activations at one time."""
        return float(self.activations.max(initial=0.0))


def held_over_time(step: Step) -> list[MemoryOverTime]:
    """The memory over time of one rank of every stage, the one with the smallest GPU memory."""
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
        held_by_stage.append(MemoryOverTime(stage, rank, when, np.cumsum(change), constant, room))
    return held_by_stage


def _bytes_of_layers(setting: Setting) -> Layers:
    """By layer, (bytes of activations that are stored, additional bytes while it is recomputed)."""
    layers = [layer for stage in setting.stages() for chunk in stage for layer in chunk]
    bytes_of_layer = {}
    for layer in layers:
        stored_bytes = activation_bytes(setting, layer)
        recomputed_bytes = (
            full_activation_bytes(setting, layer) if FULL & {*setting.recompute} else stored_bytes
        )
        bytes_of_layer[layer.name] = (stored_bytes, max(0.0, recomputed_bytes - stored_bytes))
    return bytes_of_layer


def _changes(step: Step, rank: int, layers: Layers) -> tuple[Times, Times]:
    """The moments in seconds at which a rank stores or frees activations, and the change in bytes
    at each.

    `layers` is the result of `_bytes_of_layers`.
    """
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
        stored, recomputed = layers[layer]
        events += [
            (phases["forward"][0], stored),
            (max(end for _, end in phases.values()), -stored),
        ]
        if recomputed and "backward" in phases:
            events += [(phases["backward"][0], recomputed), (phases["backward"][1], -recomputed)]
    events.sort()  # at one moment, memory is freed (negative) before it is taken
    when, change = np.array(events).T
    return when, change


def write_memory_over_time(path: Path, step: Step) -> Path:
    """Write memory_over_time.csv: the memory of a GPU of each stage from each moment on."""
    lines = []
    for held in held_over_time(step):
        activations = held.activations
        when = np.column_stack([held.seconds * 1e6, held.constant + activations, activations])[
            _moments_to_write(activations)
        ]
        lines += [(held.stage, held.rank, *one, held.room) for one in when.tolist()]
    return _write(path / MEMORY_OVER_TIME, COLUMNS, lines)


def _moments_to_write(activations: Times) -> NDArray[np.intp]:
    """The positions of the moments to write: all, or the maximum and minimum of each of many
    stretches.
    """
    if len(activations) <= MOST_MOMENTS:
        return np.arange(len(activations))
    stretches = np.array_split(np.arange(len(activations)), MOST_MOMENTS // 2)
    most = [part[activations[part].argmax()] for part in stretches]
    least = [part[activations[part].argmin()] for part in stretches]
    return np.unique([0, *most, *least, len(activations) - 1])


PASSES = {"forward": "F", "backward": "B", "weights": "W"}


def entry_title(entry: TapeEntry, rank: int, members: tuple[int, ...], *, several: bool) -> str:
    """Return the title of an entry in a timeline: `layer 3 norm+mlp (mb 0)`, `send activations`.

    Args:
        rank: rank in whose timeline it is shown.
        members: ranks of its group.
        several: whether the step has more than one micro-batch.
    """
    words = [entry.layer] if entry.layer and not entry.name.startswith(entry.layer) else []
    words.append(entry.name)
    if entry.collective == "p2p":
        words = ["send" if rank == members[0] else "recv", *words]
    elif entry.collective and entry.collective != entry.name:
        words = [entry.collective, *words]
    title = " ".join(words)
    return f"{title} (mb {entry.micro_batch})" if several and entry.micro_batch >= 0 else title


def pass_title(entry: TapeEntry) -> str:
    """Return the title of the pass that a kernel belongs to: `F mb 2`, `B mb 0 chunk 1`, `step`."""
    if entry.micro_batch < 0 or entry.phase not in PASSES:
        return entry.phase
    chunk = f" chunk {entry.chunk}" if entry.chunk >= 0 else ""
    return f"{PASSES[entry.phase]} mb {entry.micro_batch}{chunk}"


def stream_title(stream: str, stage: int | None) -> str:
    """Return the title of a stream in the timeline of a stage: `compute`, `NCCL pp recv from stage
    0`.
    """
    if stream == COMPUTE:
        return stream
    kind, _, way = stream.partition(" ")
    source, arrow, target = way.partition(">")
    if not arrow:
        return f"NCCL {stream}"
    ends = f"send to stage {target}" if source == str(stage) else f"recv from stage {source}"
    return f"NCCL {kind} {ends}"


def family(name: str) -> str:
    """A name without its numbers: `bucket` for `bucket 3`."""
    return " ".join(word for word in name.split() if not word.isdigit())


COLLECTIVES = "collectives.csv"
MEMORY = "memory.csv"
COLLECTIVE_COLUMNS = (
    "kind", "name", "phase", "collective", "ranks", "groups", "nodes", "calls", "size_bytes",
    "dtype", "algorithm", "protocol", "channels", "time_us", "alone_us", "total_us", "exposed_us",
    "sent_bytes", "measured_us",
)  # fmt: skip
FULL_SIZE_COLLECTIVES = ("sendrecv", "p2p", "broadcast", "reduce")


def sent_bytes(collective: str, nbytes: int, ranks: int) -> float:
    """The bytes that a rank sends in a collective of size `nbytes`, by a closed form."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks * nbytes
    return float(nbytes) if collective in FULL_SIZE_COLLECTIVES else (ranks - 1) / ranks * nbytes


def write_collectives(path: Path, step: Step) -> Path:
    """Write collectives.csv, a line for each class of equal calls.

    `time_us` is the mean time of a call beside everything else, `alone_us` that of a call with
    nothing beside it. `total_us` and `exposed_us` are sums over the calls of one rank, as means
    over the ranks that take part.
    """
    lines = list[Sequence[object]]()
    hosts = step.resolved.cluster.gpu_host
    for numbers, calls, times, exposed in classes_of_calls(step, _key):
        entries = [step.spans.tape.entries[number] for number in numbers]
        entry = entries[0]
        coarse = step.spans.lowered.coarse[numbers[0]][0]
        groups, ranks = entry.groups.shape
        mean = float(np.mean(times))
        measured_times = [one.measured for one in entries]
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
            float(np.mean(measured_times)) * 1e6 if any(measured_times) else "",
        )
        lines.append(line)
    return _write(path / COLLECTIVES, COLLECTIVE_COLUMNS, lines)


def classes_of_calls(
    step: Step, key: Callable[[TapeEntry], object]
) -> Iterator[tuple[list[int], float, Times, float]]:
    """Yield the classes of collective calls with equal keys.

    Each is (numbers of the entries, calls of each rank, seconds of each call, exposed seconds of
    each rank).
    """
    spans, entries = step.spans, step.spans.tape.entries
    calls = (number for number, entry in enumerate(entries) if entry.collective)
    for numbers in grouped(calls, lambda number: key(entries[number])).values():
        distinct_groups = {Same(entries[n].groups): entries[n].groups for n in numbers}
        members = len(np.unique(np.concatenate([one.ravel() for one in distinct_groups.values()])))
        times = np.concatenate([spans.end(n) - spans.begin(n) for n in numbers])
        exposed = float(step.breakdown.exposed_by_entry[numbers].sum()) / members
        yield numbers, sum(entries[n].groups.size for n in numbers) / members, times, exposed


def _key(entry: TapeEntry) -> tuple[object, ...]:
    """The fields that calls in one line of collectives.csv have in common."""
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
    """Write memory.csv: the memory in bytes of a GPU of every pipeline stage."""
    lines = [
        (stage, *(getattr(memory, name) for name in PARTS), memory.total)
        for stage, memory in enumerate(memories(step.resolved.setting))
    ]
    columns = ("stage", *(f"{name}_bytes" for name in PARTS), "total_bytes")
    return _write(path / MEMORY, columns, lines)


def _write(path: Path, columns: Sequence[str], lines: Iterable[Sequence[object]]) -> Path:
    return write_text(path, csv_of([columns, *lines]))


# **** One rank of each pipeline stage **** Simulation of a step by one rank of each pipeline stage,
# if all ranks of a stage are equal. Each stage is a column. Entries of the tape run in the columns
# of their ranks and take their standalone time, with two exceptions: kernels lose the SMs of
# collectives that run beside them, and collectives which together load a kind of links by more than
# 100 % share it. A pass without exchanges of data parallelism is simulated once and becomes one
# entry (`pass_seconds`).

MIN_KERNEL_RATE = 0.02  # fraction of its rate that a kernel keeps if collectives hold all SMs
LAUNCH = -2  # in the queue, in place of a version: the host launches the entry now
INTERPOLATED_FROM_BYTES = 8 << 20
"""Collectives of more bytes are simulated at powers of two, with times interpolated linearly."""
MAX_RING_ROWS = 300_000  # of a ring with more rows only some hosts are simulated
MAX_SHARED_GPUS = 4096  # costs of larger clusters take up to 2 GB; only one of them is kept
SHARED_COSTS = Memo(8)  # costs of collectives by cluster and settings of NCCL, for several steps
Cost = tuple[float, float, tuple[tuple[str, float], ...]]


def folded_step(resolved: ResolvedStep) -> Rates:
    """The time and rates of a step, simulated by one rank of each stage; all ranks of a stage must
    be equal.
    """
    costs = _StageCosts(resolved)
    seconds = costs.run(training_step(resolved.setting, costs.pass_seconds))
    return Rates(resolved, _with_sync(resolved, seconds)[0])


def _simulated_by_stages(resolved: ResolvedStep, tape: Tape) -> Step:
    """The step of a tape, simulated by one rank of each stage, with the times of all its
    entries.
    """
    costs = _StageCosts(resolved)
    grid = resolved.setting.grid
    run = _StageRun(costs, tape.entries)
    run.finished()
    lowered = costs.as_schedule(tape, run.awaited)
    timeline = Timeline(np.array(run.begin), np.array(run.end))
    stage_count = grid.degrees["pp"]
    first_ranks = np.array([grid.stage(stage)[0] for stage in range(stage_count)], np.int32)
    program = place(lowered.schedule, resolved.topology)
    spans = Spans(tape, lowered, timeline, grid.size, first_ranks[grid.stages])
    return _step(resolved, program, spans, "", costs.costs)


def seconds_by_stages(resolved: ResolvedStep, tape: Tape, realise: Realise) -> float:
    """The seconds of a tape simulated by one rank of each stage, with the costs `realise` of
    collectives.
    """
    return _StageRun(_StageCosts(resolved, realise), tape.entries).finished()


@dataclass
class _StageCosts:
    """The costs of the entries of a step that is simulated by one rank of each pipeline stage.

    - `realise`: returns the coarse form of an entry's collective in one group; None: the costs of
      the resolved step do.
    - `pass_times`: seconds of passes that were simulated already.
    - `loads`: a cache of the coarse forms of entries.
    """

    resolved: ResolvedStep
    realise: Realise | None = None  # in the place of its costs
    pass_times: dict[object, float] = field(default_factory=dict)
    loads: Memo = field(default_factory=Memo)

    @cached_property
    def costs(self) -> Costs:
        """The costs of collectives with the step's settings of NCCL; steps on equal clusters share
        them.
        """
        scenario = self.resolved.cell.scenario
        step_costs = self.resolved.costs
        key = (
            scenario.cluster.model_dump_json(),
            scenario.nccl.model_dump_json(),
            step_costs.launch,
        )
        budget = step_costs.budget.with_thresholds(max_ring_rows=MAX_RING_ROWS)
        if len(step_costs.cluster.topology) > MAX_SHARED_GPUS:
            SHARED_COSTS.keep_only(key)
        return SHARED_COSTS.of(key, lambda: replace(step_costs, budget=budget))

    def pass_seconds(self, step_pass: ChunkPass) -> float:
        """The seconds of one pass by itself, with its collectives of tp, cp and ep."""
        key = (step_pass.kind, *map(Same, step_pass.parts))
        if key not in self.pass_times:
            overlaps = self.resolved.setting.expert_overlap
            tape = self._tape(step_pass, lambda part: not (overlaps and part.axis == EXPERT))
            self.pass_times[key] = self.run(tape)
            if overlaps:  # as long as its exchanges, or the rest of it with the SMs that are left
                costs = [
                    self.cost(t) for t in self._tape(step_pass, lambda p: p.axis == EXPERT).entries
                ]
                held = min(self.pass_times[key], sum(sms * seconds for seconds, sms, _ in costs))
                exchanged = sum(seconds for seconds, *_ in costs)
                self.pass_times[key] = max(self.pass_times[key] + held, exchanged)
        return self.pass_times[key]

    def _tape(self, step_pass: ChunkPass, is_included: Callable[[PassPart], bool]) -> Tape:
        """A tape of those parts of a pass for which `is_included` is true."""
        after: Deps = ()
        tape = empty_tape(self.resolved.setting)
        for parts in step_pass.parts:
            parts_here = tuple(filter(is_included, parts))
            after = emit(tape, step_pass.at, parts_here, after, self.resolved.setting.stored).ends
        return tape

    def run(self, tape: Tape) -> float:
        """The finish time in seconds of the last entry of a tape."""
        return _StageRun(self, tape.entries).finished()

    def cost(self, entry: TapeEntry) -> Cost:
        """The standalone seconds of an entry, the fraction of SMs that it holds, and its load (0 to
        1) by kind of links.
        """
        if not entry.collective:
            return entry.seconds, 0.0, ()
        coarse = self.coarse_form(entry)
        return coarse.seconds, coarse.channels / self.resolved.setting.roofline.sms, coarse.loads

    def coarse_form(self, entry: TapeEntry) -> Coarse:
        """The coarse form of an entry in the group in which it takes longest."""
        key = (Same(entry.groups), entry.collective, entry.nbytes, entry.dtype, entry.kind)
        return self.loads.of(key, lambda: self._interpolated(entry))

    def _interpolated(self, entry: TapeEntry) -> Coarse:
        """The coarse form of an entry. The time of a large one is interpolated between sizes that
        are powers of two.
        """
        if entry.nbytes <= INTERPOLATED_FROM_BYTES:
            return self._slowest_coarse(entry)
        low = 1 << (entry.nbytes.bit_length() - 1)
        lower, upper = (
            self._slowest_coarse(replace(entry, nbytes=size)) for size in (low, 2 * low)
        )
        part = entry.nbytes / low - 1
        return replace(lower, seconds=lower.seconds + part * (upper.seconds - lower.seconds))

    def _slowest_coarse(self, entry: TapeEntry) -> Coarse:
        """The coarse form of an entry in the group in which it takes longest; groups on the same
        kinds of GPU are equal.
        """
        realise = self.realise or self.costs
        groups = self._groups_of_kinds(entry)
        coarse_forms = (realise(entry, group) for group in groups)
        return max(coarse_forms, key=lambda coarse_form: coarse_form.seconds)

    def _groups_of_kinds(self, entry: TapeEntry) -> list[tuple[int, ...]]:
        """For each distinct sequence of kinds of GPU among an entry's groups, one of the groups."""
        gpu_kinds = self.resolved.setting.gpu_kinds
        if gpu_kinds is None:
            return [tuple(entry.groups[0].tolist())]
        kinds = np.array(gpu_kinds.of_rank, np.int32)[entry.groups]
        _, first = np.unique(kinds, axis=0, return_index=True)
        return [tuple(entry.groups[number].tolist()) for number in sorted(first.tolist())]

    def as_schedule(self, tape: Tape, awaited: Sequence[Sequence[int]]) -> Lowered:
        """Return a schedule with one mark for each entry of the tape, on the first rank of its
        first group. `awaited` has, for each entry, the numbers of the entries that it waits for.
        """
        entries = tape.entries
        builder = Builder(self.resolved.setting.grid.size)
        dependencies = np.cumsum([0, *map(len, awaited)]), [*chain(*awaited)], IN_ORDER
        rows = builder.marks([entry.groups[0, 0] for entry in entries], joins=dependencies)
        row = [np.broadcast_to(rows[n], len(entry.groups)) for n, entry in enumerate(entries)]
        coarse = [(self.coarse_form(entry),) if entry.collective else () for entry in entries]
        classes = [np.broadcast_to(np.int32(0), len(entry.groups)) for entry in entries]
        return Lowered(builder.finish(), (*row,), (*row,), (*coarse,), (*classes,))

    def columns(self, entry: TapeEntry) -> tuple[int, ...]:
        """The pipeline stages that an entry runs in."""
        stages = self.resolved.setting.grid.stages
        return tuple(sorted({stages[rank] for rank in entry.groups[0].tolist()}))


class _StageRun:
    """A discrete-event simulation of entries in the columns of pipeline stages.

    An entry runs at `rate` times its normal speed. When entries start or finish in a column, the
    rates of all entries there may change: each gets a new finish time and a new version, and events
    of older versions are ignored.

    Lists have one item for each entry, by its number:

    - `columns`: the pipeline stages that it runs in.
    - `work_left`: seconds of work that are left at normal speed, at the time `updated_at`.
    - `sms`: the fraction of the SMs that it occupies.
    - `loads`: the fractions of shared links that it uses, by kind of link.
    - `wait_count`: how many entries it still waits for, of those in `awaited`.
    - `dependents`: the entries that wait for it.
    - `version`: how often its finish time has changed.
    - `moving`: the fraction of its time that it only moves bytes, which needs few SMs.
    - `launched`: the earliest time at which the host has launched it.

    `queue` has the events as (time, entry, version); `active` has the running entries by column.
    """

    def __init__(self, costs: _StageCosts, entries: Sequence[TapeEntry]) -> None:
        self.now = 0.0
        self.queue = list[tuple[float, int, int]]()
        count = len(entries)
        self.columns = []
        self.work_left = []
        self.sms = []
        self.loads = list[dict[str, float]]()
        self.wait_count = [0] * count
        self.dependents = [list[int]() for _ in entries]
        self.rate = [1.0] * count
        self.updated_at = [0.0] * count
        self.version = [0] * count
        self.begin = [0.0] * count
        self.end = [0.0] * count
        self.awaited = list[list[int]]()
        self.active: dict[int, list[int]] = {}
        last_of_stream: dict[tuple[int, str], int] = {}
        stages_of_groups = Memo()
        for number, entry in enumerate(entries):
            columns = stages_of_groups.of(Same(entry.groups), partial(costs.columns, entry))
            seconds, sms, loads = costs.cost(entry)
            self.columns.append(columns)
            self.work_left.append(seconds)
            self.sms.append(sms)
            self.loads.append(dict(loads))
            awaited = set(entry.after)
            for column in columns:
                if (column, entry.stream) in last_of_stream:
                    awaited.add(last_of_stream[column, entry.stream])
                last_of_stream[column, entry.stream] = number
            self.awaited.append(sorted(awaited))
            for awaited_entry in awaited:
                self.dependents[awaited_entry].append(number)
            self.wait_count[number] = len(awaited)
        self.is_kernel = [entry.kind == COMPUTE for entry in entries]
        self.moving = [entry.moving / entry.seconds if entry.seconds else 0.0 for entry in entries]
        self.launched = [entry.launched for entry in entries]

    def finished(self) -> float:
        """Run all entries; return the finish time in seconds of the last one."""
        self._start([n for n, waits in enumerate(self.wait_count) if not waits])
        while self.queue:
            when, number, version = heappop(self.queue)
            if version == LAUNCH:
                self.now = when
                self._start([number])
            elif version == self.version[number]:
                self.now = when
                self._finish(number)
        return self.now

    def _start(self, numbers: Sequence[int], left_columns: Sequence[int] = ()) -> None:
        """Start entries, or schedule the start of those that the host has not launched yet.

        `left_columns` are columns in which an entry has just finished.
        """
        changed_columns = set(left_columns)
        for number in (not_launched := [one for one in numbers if self.launched[one] > self.now]):
            heappush(self.queue, (self.launched[number], number, LAUNCH))
        numbers = [one for one in numbers if one not in not_launched] if not_launched else numbers
        for number in numbers:
            self.begin[number] = self.updated_at[number] = self.now
            for column in self.columns[number]:
                self.active.setdefault(column, []).append(number)
                changed_columns.add(column)
        self._update_rates(changed_columns, numbers)

    def _finish(self, number: int) -> None:
        """Finish an entry, and start the entries that waited for it last."""
        ready = []
        for dependent in self.dependents[number]:
            self.wait_count[dependent] -= 1
            if not self.wait_count[dependent]:
                ready.append(dependent)
        for column in self.columns[number]:
            self.active[column].remove(number)
        self.version[number], self.end[number] = -1, self.now
        self._start(ready, self.columns[number])

    def _update_rates(self, columns: set[int], started: Sequence[int]) -> None:
        """Recompute the rates and finish times of all entries in some columns, of which `started`
        start now.
        """
        concerned = {number for column in columns for number in self.active.get(column, ())}
        started_now = set(started)
        for number in concerned:
            rate = self._rate(number)
            if number not in started_now:
                if rate == self.rate[number]:
                    continue
                self.work_left[number] -= (self.now - self.updated_at[number]) * self.rate[number]
                self.updated_at[number] = self.now
            self.rate[number] = rate
            self.version[number] += 1
            end = self.now + max(0.0, self.work_left[number]) / rate
            heappush(self.queue, (end, number, self.version[number]))

    def _rate(self, number: int) -> float:
        """The speed of an entry relative to running alone: kernels lose the SMs of collectives,
        collectives share overloaded links.
        """
        if self.is_kernel[number]:
            (column,) = self.columns[number]
            free_fraction = max(
                MIN_KERNEL_RATE, 1.0 - sum(self.sms[one] for one in self.active[column])
            )
            return free_fraction / (1.0 - self.moving[number] * (1.0 - free_fraction))
        rate = 1.0
        for column in self.columns[number]:
            for kind, load in self.loads[number].items():
                total = sum(self.loads[one].get(kind, 0.0) for one in self.active[column])
                if load and total > 1.0:
                    rate = min(rate, 1.0 / total)
        return rate
