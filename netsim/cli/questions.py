"""The question that a verb asks: a scenario, or one made of a topology, a collective and options.

Errors about an option name the option; those about a topology file its line."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from netsim.base.errors import InputError, LostError, NetsimError, NoRoomError
from netsim.base.files import SUFFIXES, Preset, find_preset, is_path
from netsim.base.startup import STAGE, at, engine_progress, on
from netsim.base.units import format_size, parse_cli_sizes
from netsim.base.values import dataclass
from netsim.base.worker_pool import Job
from netsim.cli.options import Engine
from netsim.cli.output import parsed
from netsim.cli.shown import MANY_SIZES
from netsim.engines.engine import at_hand
from netsim.extent.memory import EXACT_UP_TO, available_memory
from netsim.nccl import environment
from netsim.results.row import Row
from netsim.scenario.cells import Cell, expand
from netsim.tasks import answer
from netsim.tasks.answer import AnyResolved, find_scenario, load_source, notes_of, resolve_any
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.row import question_row
from netsim.topology.config import loaded
from netsim.topology.load import FOLDER
from netsim.topology.machine import Machine
from netsim.yamlio.models import apply_overrides, override
from netsim.yamlio.read import Source, read_source

FLAGS = {
    "nodes": "cluster.nodes", "gpus_per_node": "cluster.gpus_per_node", "nic": "cluster.nic",
    "nics_per_node": "cluster.nics_per_node", "algo": "workload.algorithm",
    "proto": "workload.protocol", "dtype": "workload.dtype", "launch": "launch",
    "host": "host",
    "nccl": "nccl.version", "tuner": "nccl.tuner", "graph": "nccl.graph", "exact": "exact",
    "noise": "noise", "samples": "samples",
}  # fmt: skip
OF_FILES = ("gpu", "nics")  # options that complete a file of another program
OTHERS = ("fabric", "transport", "env", *OF_FILES)  # options that do not set one key of a scenario
FOREIGN = (".xml", ".json", ".txt")


class NotedSource(NamedTuple):
    """The scenario, and messages for the user about how it was read."""

    source: Source
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class QuestionOptions:
    """The options of the cluster, of NCCL and of the collective, as the user has written them.

    Fields have the names of the flags (`netsim/cli/options.py`). An option that was not given, or
    that the verb does not have, is None.
    """

    nodes: int | None = None
    gpus_per_node: int | None = None
    sizes: str = "8:8G:2"
    fabric: str | None = None
    nic: str | None = None
    nics_per_node: int | None = None
    gpu: str | None = None
    nics: str | None = None
    transport: str | None = None
    algo: str | None = None
    proto: str | None = None
    dtype: str | None = None
    launch: str | None = None
    host: str | None = None
    nccl: str | None = None
    tuner: str | None = None
    graph: str | None = None
    exact: bool | None = None
    noise: str | None = None
    samples: int | None = None
    env: list[str] | None = None
    nccl_env: bool = False
    settings: list[str] | None = None

    @property
    def flags(self) -> dict[str, Any]:
        """The options that were given and that each set one key of a scenario: values by name."""
        values = {name: getattr(self, name) for name in FLAGS}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def named(self) -> list[str]:
        """The options that were given and have no meaning without a topology."""
        return [*self.flags, *(name for name in OTHERS if getattr(self, name))]


def source_of_question(topology: str, collective: str, options: QuestionOptions) -> NotedSource:
    """Return the scenario that simulates `collective` on the cluster of `topology`, with all
    options applied, and notes for the user.

    Raises an InputError for contradicting options, and for a sweep.
    """
    source, notes = _cluster(topology, options)
    origins = dict(source.origins)
    work = {"collective": collective, "sizes": parsed(parse_cli_sizes, "--sizes", options.sizes)}
    origins[("workload",)] = f"{topology} {collective}"
    origins[("workload", "sizes")] = f"--sizes {options.sizes}"
    data: dict[str, Any] = {**source.data, "workload": work}
    variables, warnings = _variables(options)
    if variables:
        data["nccl"] = {"env": {name: value for name, value, _ in variables}}
        origins.update({("nccl", "env", name): origin for name, _, origin in variables})
    source = replace(source, data=data, origins=origins)
    for name, value in options.flags.items():
        for said in options.settings or ():
            if said.partition("=")[0].strip() == FLAGS[name]:
                raise InputError(f"--set {said}: {flag_of(name)} {value} says something else")
        source = override(source, FLAGS[name], value, f"{flag_of(name)} {value}")
    source = apply_overrides(_with_fabric(source, options), options.settings or ())
    if "sweep" in source.data:
        raise InputError("expect answers one question; a sweep is for netsim run")
    return NotedSource(source, (*notes, *warnings))


GRAPHS = ("tpu-v4", "tpu-v5p")  # scenarios whose clusters are taken for machines


def flag_of(name: str) -> str:
    """Return the flag of an option: `--gpus-per-node` for `gpus_per_node`."""
    return f"--{name.replace('_', '-')}"


def _cluster(name: str, options: QuestionOptions) -> NotedSource:
    """Return a scenario with only the section `cluster`, and notes for the user. `name` is a
    machine, a scenario, or a file of another program.
    """
    path = Path(name)
    if path.is_file() or is_path(name) or path.suffix in FOREIGN:
        if path.suffix not in SUFFIXES:
            return _foreign(path, options)
        preset = Preset(path.stem, path)
    else:
        graph = name in GRAPHS and not Path(FOLDER, f"{name}.yaml").is_file()
        preset = find_preset("scenarios" if graph else FOLDER, name, "machine")
    notes = (preset.note,) if preset.note else ()
    source = read_source(preset.path)
    if options.gpu is not None or options.nics is not None:
        from netsim.cli.topo_subject import refuse_file_options

        refuse_file_options(name, options.gpu, options.nics)
    if "cluster" in source.data:
        return NotedSource(replace(source, data={"cluster": source.data["cluster"]}), notes)
    if "gpu" in source.data:
        place = name if preset.path.stem == name else str(preset.path)
        return NotedSource(Source(name, {"cluster": {"machine": place}}), notes)
    raise InputError(f"{preset.path}: neither a machine (with gpu) nor a scenario (with cluster)")


def _foreign(path: Path, options: QuestionOptions) -> NotedSource:
    """Return a scenario whose cluster is the machine in a file of another program, completed by the
    options --gpu, --nic and --nics, and notes for the user.
    """
    from netsim.cli.topo_subject import foreign  # with readers of XML and of JSON

    imported = foreign(path, gpu=options.gpu, nic=options.nic, nics=options.nics)
    if not isinstance(imported.content, Machine):
        raise InputError(f"{path}: a network without machines, which NCCL's rules cannot read")
    return NotedSource(
        Source(path.as_posix(), {"cluster": {"machine": imported.content}}), imported.notes
    )


def _with_fabric(source: Source, options: QuestionOptions) -> Source:
    """Return the scenario with the kind of fabric and the transport that the options name;
    unchanged if they name none.
    """
    section = source.data.get("cluster")
    fabric = section.get("fabric") if isinstance(section, dict) else None
    fabric_keys = dict(fabric) if isinstance(fabric, dict) else {}
    if options.fabric is not None and fabric_keys.get("kind") != options.fabric:
        fabric_keys = {"kind": options.fabric}
        source = override(source, "cluster.fabric", fabric_keys, f"--fabric {options.fabric}")
    if options.transport is None:
        return source
    if not fabric_keys:
        fabric_keys = {"kind": _usual_fabric(section or {})}
        source = override(source, "cluster.fabric", fabric_keys, "the usual fabric")
    origin = f"--transport {options.transport}"
    return override(source, "cluster.fabric.transport", options.transport, origin)


def _usual_fabric(section: dict[str, Any]) -> str:
    """Return the kind of fabric that a cluster section has if it names none: "rail-optimized" if
    hosts have several NICs, else "single-switch".
    """
    try:
        nics = loaded(section["machine"]).machine.nics
    except (KeyError, NetsimError):
        return "rail-optimized"
    count = section.get("nics_per_node")
    several = nics is not None and (count if isinstance(count, int) else nics.count) > 1
    return "rail-optimized" if several else "single-switch"


def _variables(options: QuestionOptions) -> tuple[list[tuple[str, str, str]], tuple[str, ...]]:
    """Return NCCL's variables as (name, value, where it was set), and warnings for the user.

    They are those of `--env`, and with `--nccl-env` those in the environment of this process.
    Unknown variables of the environment are named in the warnings.
    """
    stated: dict[str, tuple[str, str, str]] = {}
    warnings: tuple[str, ...] = ()
    if options.nccl_env:
        recognized, unknown = environment.known_and_unknown(os.environ)
        stated = {name: (name, value, f"${name}") for name, value in recognized.items()}
        warnings = tuple(f"warning: {text}" for text in unknown)
    for text in options.env or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--env {text}: expected NAME=VALUE such as NCCL_ALGO=Ring")
        stated[name.strip()] = (name.strip(), value, f"--env {text}")
    return list(stated.values()), warnings


def questioned(
    subject: str, collective: str | None, options: QuestionOptions
) -> tuple[AnyResolved, list[str]]:
    """Return the resolved cell that a command asks about, and notes for the user.

    `subject` is the name of a topology if a `collective` is given, else that of a scenario.
    """
    on(subject)
    if collective is not None:
        source, notes = source_of_question(subject, collective, options)
        return resolve(expand(source)[0]), list(notes)
    cell, cell_notes = cell_of(subject, options)
    return resolve_any(cell), cell_notes


def cell_of(subject: str, options: QuestionOptions) -> tuple[Cell, list[str]]:
    """Return the first cell of the scenario `subject`, and notes for the user. Raises an InputError
    for options that only go with a topology.
    """
    if options.named:
        message = f"{flag_of(options.named[0])}: goes with TOPOLOGY COLLECTIVE, not with a scenario"
        raise InputError(message, hint="use --set KEY=VALUE, or name a collective")
    preset = find_scenario(subject)
    cells = expand(load_source(preset.path, options.settings or ()))
    notes = [note for note in (preset.note, *notes_of(cells)) if note]
    if len(cells) > 1:
        where = ", ".join(f"{axis}={value}" for axis, value in cells[0].axes.items())
        notes.append(f"the first of {len(cells)} cells: {where} (--set chooses another)")
    return cells[0], notes


LONG = 0.7  # processor seconds from which another process helps
LOCK_TIMEOUT = 1.0  # seconds; a process has the lock for microseconds


def simulated(resolved: ResolvedCell, engine: Engine, failures: list[NetsimError]) -> Iterator[Row]:
    """Yield the row of every size of a cell, in order. A size that fails gives a row with its
    error, which is also added to `failures`.

    If this takes long, a second process helps: each of the two simulates the largest size that
    neither has begun.
    """
    sizes = resolved.cell.scenario.collective.size_list()
    engine_here = at_hand(engine, many=len(sizes) >= MANY_SIZES)
    usual = partial(answer.answer, resolved, engine=engine_here, progress=engine_progress())
    row_of = partial(_survived, resolved, usual)
    is_shared = False
    finished: dict[int, Row] = {}
    begun = process_time()
    for number, size in enumerate(sizes):
        at(format_size(size), number, len(sizes))
        try:
            yield row_of(size) if size not in finished else finished[size]
        except (NetsimError, MemoryError) as caught:
            error = caught if isinstance(caught, NetsimError) else NoRoomError("out of memory")
            failures.append(error)
            yield replace(question_row(resolved, size), status="error", error=str(error))
        if not is_shared and process_time() - begun > LONG:
            left = sorted(sizes[number + 1 :], key=lambda n: (-resolved.memory_needed(n), -n))
            if _may_help(resolved, left):
                is_shared = True
                finished = _shared_rows(left, row_of)


def _survived(resolved: ResolvedCell, row_of: Callable[[int], Row], size: int) -> Row:
    """Return the row of a size in bytes; `row_of(size)` simulates it.

    If the simulation may need more memory than is free, it runs in a child process. If the system
    kills that process, this one survives and raises a LostError.
    """
    if len(resolved.topology) <= EXACT_UP_TO:
        return row_of(size)
    most = resolved.memory_needed(size)
    free = available_memory()
    if most <= free:
        return row_of(size)
    from netsim.base.processes import Processes

    job = Job(size, format_size(size))
    with Processes(1, _one_row, begun=(row_of,), attempts=1, is_forked=True) as workers:
        STAGE.others = workers.memory
        ((_, outcome),) = workers.results([job])
    if isinstance(outcome, LostError):
        why = f"it may need up to {most / 1e9:.2g} GB of memory, {free / 1e9:.2g} GB were free"
        raise LostError(f"{outcome}; {why}")
    row: Row = outcome
    return row


def _one_row(size: int, row_of: Callable[[int], Row]) -> Iterator[Row]:
    """Yield the row of a size: the function that a process calls."""
    yield row_of(size)


def _may_help(resolved: ResolvedCell, sizes: Sequence[int]) -> bool:
    """Return whether a second process may simulate some of `sizes` (bytes, the largest first):
    there are two or more sizes, a second processor core, and memory for the first two sizes at the
    same time.
    """
    if len(sizes) < 2 or len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2:
        return False
    return sum(map(resolved.memory_needed, sizes[:2])) <= available_memory()


def _shared_rows(sizes: Sequence[int], row_of: Callable[[int], Row]) -> dict[int, Row]:
    """The rows of sizes, by size, which this process and a fork of it divide among them.

    Sizes that fail, and those that the other process had if it was killed, are left out."""
    from multiprocessing import get_context

    from netsim.base.processes import Processes

    next_place = get_context("fork").Value("i", 0)
    rows_of = partial(_rows_begun_first, sizes, row_of, next_place)
    with Processes(1, rows_of, attempts=1, is_forked=True) as workers:
        STAGE.others = workers.memory
        workers.submit(Job(None, "other sizes"))
        (rows,) = rows_of(None)
        for _, outcome in workers.results([]):
            if not isinstance(outcome, LostError):
                rows.update(outcome)
    return rows


def _rows_begun_first(
    sizes: Sequence[int], row_of: Callable[[int], Row], next_place: Any, request: None
) -> Iterator[dict[int, Row]]:
    """Yield the rows of those sizes that this process is the first to begin.

    `next_place`, in memory that both processes share, is the place of the next size to begin."""
    rows: dict[int, Row] = {}
    while True:
        # If the other process was killed while it had the lock, this one goes on without it.
        has_lock = next_place.get_lock().acquire(timeout=LOCK_TIMEOUT)
        number = next_place.value
        next_place.value = number + 1
        if has_lock:
            next_place.get_lock().release()
        if number >= len(sizes):
            break
        size = sizes[number]
        at(format_size(size), number, len(sizes))
        with suppress(NetsimError):
            rows[size] = row_of(size)
    yield rows
