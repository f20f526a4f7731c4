"""The question that a verb asks: a scenario, or one made of a topology, a collective and options.

Errors about an option name the option; those about a topology file its line."""

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time
from traceback import format_exc
from typing import Any, NamedTuple

import numpy as np

from netsim.base.errors import InputError, LostError, NetsimError, NoRoomError
from netsim.base.files import SIGNALS, SUFFIXES, Preset, find_preset, is_path
from netsim.base.startup import STAGE, at, engine_progress, on, resident
from netsim.base.units import format_size, parse_cli_sizes
from netsim.base.values import dataclass
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


LONG = 0.7  # processor seconds from which on another core helps


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
    helper: _Helper | None = None
    finished: dict[int, Row] = {}
    begun = process_time()
    try:
        for number, size in enumerate(sizes):
            at(format_size(size), number, len(sizes))
            try:
                yield row_of(size) if size not in finished else finished[size]
            except (NetsimError, MemoryError) as caught:
                error = caught if isinstance(caught, NetsimError) else NoRoomError("out of memory")
                failures.append(error)
                yield replace(question_row(resolved, size), status="error", error=str(error))
            if helper is None and process_time() - begun > LONG:
                left = sorted(sizes[number + 1 :], key=lambda n: (-resolved.memory_needed(n), -n))
                if _may_help(resolved, left):
                    helper = _Helper(left, row_of)
                    finished = helper.rows()
    finally:
        if helper is not None:
            helper.end()


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
    child, rows = _forked(partial(_row_or_error, row_of, size))
    try:
        with open(rows, "rb") as file:
            outcome: Row | Exception = pickle.load(file)
    except (EOFError, pickle.UnpicklingError):
        why = f"it may need up to {most / 1e9:.2g} GB of memory, {free / 1e9:.2g} GB were free"
        message = f"{format_size(size)}: the process that worked at it was ended; {why}"
        raise LostError(message) from None
    finally:
        _let_go(child)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _row_or_error(row_of: Callable[[int], Row], size: int) -> Row | Exception:
    """Return the row of a size in bytes, or the error that its simulation raises."""
    try:
        return row_of(size)
    except NetsimError as error:
        return error
    except Exception as error:  # the process that asked raises it
        error.add_note(format_exc())
        return error


def _forked(question: Callable[[], object]) -> tuple[int, int]:
    """Start a child process that pickles the result of `question()` into a pipe and ends.

    Returns (id of the process, file descriptor to read the pipe from).
    """
    rows, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # The display of progress in the parent may hold the locks of its streams.
            sys.stdout = sys.__stdout__
            sys.stderr = sys.__stderr__
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            result = question()
            with open(tell, "wb") as file:
                pickle.dump(result, file)
        finally:
            os._exit(0)
    os.close(tell)
    STAGE.others = partial(resident, child)
    return child, rows


def _let_go(process: int) -> None:
    """End a process, whatever it is doing."""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def _may_help(resolved: ResolvedCell, sizes: Sequence[int]) -> bool:
    """Return whether a second process may simulate some of `sizes` (bytes, the largest first):
    there are two or more sizes, a second processor core, and memory for the first two sizes at the
    same time.
    """
    if len(sizes) < 2 or len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2:
        return False
    return sum(map(resolved.memory_needed, sizes[:2])) <= available_memory()


class _Helper:
    """A second process that simulates some of the sizes, while this process simulates others. Sizes
    that fail get no row.
    """

    def __init__(self, sizes: Sequence[int], row_of: Callable[[int], Row]) -> None:
        self._sizes = sizes
        self._row_of = row_of
        self._left, begin = os.pipe()  # the places of those that nobody has begun
        os.write(begin, np.arange(len(sizes), dtype=np.uint16).tobytes())
        os.close(begin)
        self._process, self._rows = _forked(self._own_rows)

    def rows(self) -> dict[int, Row]:
        """Simulate sizes until none is left; return the rows of this and of the second process, by
        size in bytes.
        """
        rows = self._own_rows()
        with open(self._rows, "rb") as file, suppress(EOFError, pickle.UnpicklingError):
            rows.update(pickle.load(file))
        return rows

    def _own_rows(self) -> dict[int, Row]:
        """Simulate the next size that neither process has begun, until none is left; return these
        rows by size in bytes. Both processes call this.
        """
        rows = dict[int, Row]()
        while place := os.read(self._left, 2):
            number = int.from_bytes(place, sys.byteorder)
            at(format_size(self._sizes[number]), number, len(self._sizes))
            with suppress(NetsimError):
                rows[self._sizes[number]] = self._row_of(self._sizes[number])
        return rows

    def end(self) -> None:
        """End the second process."""
        _let_go(self._process)
