"""The open benchmark: the questions of an index of measured runs, and a simulator's predictions.

A question asks for the time of one collective of one size on a described cluster. The questions are
written without the measured times, so that any simulator can answer them. `benchmark_score.py`
compares the answers with the measured times, and docs/benchmark.md explains how to take part."""

import csv
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import yaml

from netsim.base.errors import InputError, NetsimError, suggest
from netsim.base.files import LARGEST_TABLE, csv_of, text_of
from netsim.base.values import dataclass, grouped
from netsim.measured.index import IndexEntry, dtype_of, joined_by, mapped
from netsim.results.row import Joined, Span

BENCHMARK = "netsim-collectives"
VERSION = 1
"""The version of the files and of the rules of the score. It changes with both."""

VERSION_COLUMN = "benchmark_version"
REQUIRED_COLUMNS = ("run", "size_bytes", "time_us")
INTERVAL_COLUMNS = ("time_low_us", "time_high_us")
MICROSECONDS = 1e6
YAML_SUFFIXES = (".yaml", ".yml")
QuestionKey = tuple[str, int]  # the name of a run and a size in bytes


@dataclass(frozen=True)
class BenchmarkQuestion:
    """A question of a run: how long one size takes. The measured time is kept for scoring only."""

    size_bytes: int
    dtype: str
    root: int  # -1 if the collective has no root
    is_in_place: bool
    measured_us: float


@dataclass(frozen=True)
class BenchmarkRun:
    """A run of the benchmark: the facts on its cluster that simulators may use, and its
    questions.
    """

    entry: IndexEntry
    collective: str
    joined: Joined
    has_switch_reduction: bool
    questions: tuple[BenchmarkQuestion, ...]
    unscored_sizes: frozenset[int] = frozenset()  # rows of the table without a measured time

    @property
    def name(self) -> str:
        """The name of the run, which rows of predictions repeat."""
        return self.entry.id

    @property
    def system(self) -> str:
        """The host, operator and NCCL build with which the run was measured."""
        return self.entry.system

    @property
    def nodes(self) -> int:
        """The number of its nodes, as the index counts them: an NVLink domain may be one."""
        return _count(self.entry.text("topology", "nodes"), 1) or 1

    def question_keys(self) -> Iterator[QuestionKey]:
        """The run and size of each question."""
        return ((self.name, question.size_bytes) for question in self.questions)


@dataclass(frozen=True)
class Benchmark:
    """The runs of a benchmark.

    `excluded` are other runs of the index by name, with the reason why they are not part of it;
    `unchosen` are the names of the runs that the user did not choose.
    """

    runs: tuple[BenchmarkRun, ...]
    excluded: Mapping[str, str]
    unchosen: frozenset[str] = frozenset()

    def question_count(self) -> int:
        """The number of questions of all runs."""
        return sum(len(run.questions) for run in self.runs)


def benchmark_of(entries: Sequence[IndexEntry], corpus: Sequence[IndexEntry] = ()) -> Benchmark:
    """Return the benchmark of the healthy runs among some entries.

    `corpus` is the complete index: predictions may also contain its other runs. A run with a
    problem is excluded, because its time does not depend on the simulator alone. A run whose table
    or machine cannot be read is excluded as well. Raises an InputError if no run is left.
    """
    runs: list[BenchmarkRun] = []
    excluded: dict[str, str] = {}
    for entry in entries:
        if not entry.healthy:
            excluded[entry.id] = f"the run has a problem (healthy: {entry.text('healthy')})"
            continue
        try:
            runs.append(_run_of(entry))
        except NetsimError as error:
            excluded[entry.id] = str(error)
    if not runs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in excluded.items())
        raise InputError(f"no run of the index can be part of the benchmark: {reasons}")
    unchosen = frozenset(entry.id for entry in corpus) - frozenset(entry.id for entry in entries)
    return Benchmark(tuple(runs), excluded, unchosen)


def _run_of(entry: IndexEntry) -> BenchmarkRun:
    """Return an entry as a run of the benchmark. Raises a NetsimError if the entry or its table is
    wrong.
    """
    plan = mapped(entry)
    collective = plan.data["workload"]["collective"]
    questions: dict[int, BenchmarkQuestion] = {}
    for row in entry.rows():
        seconds = row.seconds(entry.collective)
        if seconds is None or row.size_bytes <= 0:
            continue
        if row.size_bytes in questions:
            raise entry.error(f"the table has two rows of {row.size_bytes} B, expected one", "file")
        questions[row.size_bytes] = BenchmarkQuestion(
            size_bytes=row.size_bytes,
            dtype=dtype_of(row.dtype),
            root=row.root,
            is_in_place=row.is_in_place(entry.collective),
            measured_us=seconds * MICROSECONDS,
        )
    if not questions:
        raise entry.error("no row of the table has a time", "file")
    fabric = plan.data["cluster"].get("fabric") or {}
    return BenchmarkRun(
        entry=entry,
        collective=collective,
        joined=joined_by(entry),
        has_switch_reduction=bool(fabric.get("sharp")),
        questions=tuple(questions[size] for size in sorted(questions)),
        unscored_sizes=_all_sizes(entry) - frozenset(questions),
    )


def _all_sizes(entry: IndexEntry) -> frozenset[int]:
    """Return the sizes of all rows of an entry's table, also of rows without a measured time."""
    return frozenset(row.size_bytes for row in replace(entry, is_question=True).rows())


# **** Questions ****


def run_facts(run: BenchmarkRun) -> dict[str, Any]:
    """Return what a simulator may know of a run, by the names of the columns of the questions.

    Remarks, sources and other prose of the index are left out: some of them quote results.
    """
    entry = run.entry
    return {
        "run": run.name,
        "system": run.system,
        "machine": entry.machine,
        "gpu": entry.text("gpu"),
        "gpu_links": run.joined.kind,
        "nodes": run.nodes,
        "gpus_per_node": _count(entry.text("topology", "gpus_per_node"), None),
        "ranks": entry.ranks,
        "gpu_peer_access": entry.text("topology", "p2p").casefold(),
        "transport": entry.transport,
        "nics_per_node": _count(entry.text("topology", "nics_per_node"), None),
        "nic_gbps": _number(entry.text("topology", "nic_gbps")),
        "switch_reduction": "true" if run.has_switch_reduction else "false",
        "nccl_version": entry.text("nccl"),
        "nccl_variables": _variables(entry),
        "launch": entry.text("launch") or "unknown",
        "command": entry.text("command"),
        "date": entry.text("date"),
        "collective": run.collective,
    }


def _count(text: str, default: int | None) -> int | None:
    """Return a number of the index (such as GPUs per node), or the default if the index does not
    state it.
    """
    return int(text) if text.isdecimal() and int(text) > 0 else default


def _number(text: str) -> float | None:
    """A rate of the index in Gb/s, or None if the index does not state it."""
    with suppress(ValueError):
        return float(text)
    return None


def _variables(entry: IndexEntry) -> dict[str, str]:
    """The environment variables that were set for a run."""
    variables = entry.values.get("env")
    names = variables if isinstance(variables, Mapping) else {}
    return {str(name): entry.text("env", name) for name in names}


def question_columns() -> tuple[str, ...]:
    """Return the columns of the questions in CSV, in order.

    The last three are empty: they are for the predicted times, so that a copy of the file with
    times in them is a file of predictions.
    """
    facts = (
        "run", "system", "machine", "gpu", "gpu_links", "nodes", "gpus_per_node", "ranks",
        "gpu_peer_access", "transport", "nics_per_node", "nic_gbps", "switch_reduction",
        "nccl_version", "nccl_variables", "launch", "command", "date", "collective",
    )  # fmt: skip
    of_size = ("dtype", "root", "in_place", "size_bytes")
    return (VERSION_COLUMN, *facts, *of_size, "time_us", *INTERVAL_COLUMNS)


def questions_csv(benchmark: Benchmark) -> str:
    """Return the questions as CSV, a line for each run and size."""
    columns = question_columns()
    lines: list[Iterable[object]] = [columns]
    for run in benchmark.runs:
        facts = run_facts(run)
        pairs = (f"{name}={shlex.quote(value)}" for name, value in facts["nccl_variables"].items())
        facts["nccl_variables"] = " ".join(pairs)
        facts[VERSION_COLUMN] = VERSION
        for question in run.questions:
            cells = {
                **facts,
                "dtype": question.dtype,
                "root": None if question.root < 0 else question.root,
                "in_place": "true" if question.is_in_place else "false",
                "size_bytes": question.size_bytes,
            }
            lines.append([cells.get(column) for column in columns])
    return csv_of(lines)


def questions_yaml(benchmark: Benchmark) -> str:
    """Return the questions as YAML: a mapping for each run, with the list of its sizes.

    A run with several data types, roots or buffer placements (in or out of place) has a mapping for
    each combination.
    """
    runs = []
    for run in benchmark.runs:
        facts = {name: value for name, value in run_facts(run).items() if value not in (None, "")}
        facts["switch_reduction"] = run.has_switch_reduction
        calls = grouped(run.questions, _call_of_question)
        for (dtype, root, is_in_place), questions in calls.items():
            of_call: dict[str, Any] = {**facts, "dtype": dtype}
            if root >= 0:
                of_call["root"] = root
            of_call["in_place"] = is_in_place
            of_call["sizes_bytes"] = [question.size_bytes for question in questions]
            runs.append(of_call)
    values = {"benchmark": BENCHMARK, VERSION_COLUMN: VERSION, "runs": runs}
    return yaml.safe_dump(values, sort_keys=False, width=100, default_flow_style=None)


def _call_of_question(question: BenchmarkQuestion) -> tuple[str, int, bool]:
    """Return a question without its size: data type, root, and whether buffers are in place."""
    return question.dtype, question.root, question.is_in_place


def questions_text(benchmark: Benchmark, path: Path) -> str:
    """Return the questions in the format that the suffix of `path` names: YAML, else CSV."""
    if path.suffix.casefold() in YAML_SUFFIXES:
        return questions_yaml(benchmark)
    return questions_csv(benchmark)


# **** Predictions ****


@dataclass(frozen=True)
class Prediction:
    """A predicted time in microseconds, and the interval that should hold 80 % of the measured
    times."""

    time_us: float
    interval: Span | None = None


@dataclass(frozen=True)
class Predictions:
    """The predicted times by question.

    Also counts rows that answer no question: rows of excluded runs, or of sizes without a measured
    time.
    """

    name: str
    times: Mapping[QuestionKey, Prediction]
    ignored_count: int = 0


def read_predictions(path: Path, benchmark: Benchmark) -> Predictions:
    """Read the predictions of a CSV file.

    A row without a time is a question that is not answered. Columns that are not needed are
    ignored. Raises an InputError with the line of the first row that is wrong.
    """
    return parse_predictions(text_of(path, LARGEST_TABLE), path.as_posix(), benchmark)


def parse_predictions(text: str, name: str, benchmark: Benchmark) -> Predictions:
    """Return the predictions in a CSV text; `name` is the name of the file in errors."""
    table = csv.DictReader(text.splitlines(), strict=True)
    times: dict[QuestionKey, Prediction] = {}
    lines: dict[QuestionKey, int] = {}
    ignored_count = 0
    runs = {run.name: run for run in benchmark.runs}
    try:
        _check_header(table.fieldnames or (), name)
        for cells in table:
            row = _PredictionRow(cells, f"{name}:{table.line_num}")
            key = row.key()
            if key in lines:
                raise row.error(
                    f"run {key[0]} at {key[1]} B is answered again, first in line {lines[key]}",
                    "keep one row for each run and size",
                )
            lines[key] = table.line_num
            row.check_version()
            if not row.is_question_of(runs, {*benchmark.excluded, *benchmark.unchosen}):
                ignored_count += 1
                continue
            prediction = row.prediction()
            if prediction is not None:
                times[key] = prediction
    except csv.Error as error:
        line = table.line_num + 1  # the line that failed is not counted yet
        raise InputError(f"{name}:{line}: this is no CSV: {error}") from None
    return Predictions(name, times, ignored_count)


def _check_header(columns: Sequence[str], name: str) -> None:
    """Raise an error if a file lacks a column or has one twice; `name` is the name of the file."""
    for column in REQUIRED_COLUMNS:
        if column not in columns:
            raise InputError(
                f"{name}:1: {column}: no such column; a file of predictions needs "
                f"{', '.join(REQUIRED_COLUMNS)}",
                hint="netsim accuracy --questions FILE.csv writes a file to fill in",
            )
    for column in (*REQUIRED_COLUMNS, *INTERVAL_COLUMNS, VERSION_COLUMN):
        if columns.count(column) > 1:
            raise InputError(f"{name}:1: {column}: there are two such columns, expected one")


class _PredictionRow:
    """A row of a file of predictions, with its position for errors."""

    def __init__(self, cells: Mapping[str | None, Any], place: str) -> None:
        self.place = place
        if None in cells:
            raise self.error("more cells than the header has columns", "quote texts with commas")
        self.cells = {str(name): (value or "").strip() for name, value in cells.items()}

    def error(self, message: str, hint: str = "") -> InputError:
        """Return (not raise) an error about this row."""
        return InputError(f"{self.place}: {message}", hint=hint)

    def key(self) -> QuestionKey:
        """The run and size of the question that the row answers."""
        name = self.cells["run"]
        size = self.cells["size_bytes"]
        if not name:
            raise self.error("run: expected the name of a run, got nothing")
        if not (size.isascii() and size.isdecimal()):
            raise self.error(f"size_bytes: expected a whole number of bytes, got {size!r}")
        return name, int(size)

    def check_version(self) -> None:
        """Raise an error if the row answers another version of the benchmark."""
        version = self.cells.get(VERSION_COLUMN, "")
        if version not in ("", str(VERSION)):
            raise self.error(
                f"{VERSION_COLUMN}: this netsim scores version {VERSION}, got {version!r}",
                "write the questions again with --questions and answer those",
            )

    def is_question_of(
        self, runs: Mapping[str, BenchmarkRun], unscored_runs: Collection[str]
    ) -> bool:
        """Return whether the benchmark scores the run and size of this row.

        False if the run is one of `unscored_runs`, or the size one of the unscored sizes of its run
        in `runs`. An InputError is raised for a run or a size that neither of them has.
        """
        name, size = self.key()
        if name in unscored_runs:
            return False
        if name not in runs:
            near = suggest(name, [*runs, *unscored_runs])
            raise self.error(
                f"run: the benchmark has no run {name!r}{near}",
                "netsim accuracy --questions FILE lists the runs",
            )
        sizes = [question.size_bytes for question in runs[name].questions]
        if size in sizes:
            return True
        if size in runs[name].unscored_sizes:
            return False
        nearest = min(sizes, key=lambda asked_size: abs(asked_size - size))
        raise self.error(
            f"size_bytes: run {name} has {len(sizes)} sizes from {sizes[0]} to {sizes[-1]} B, "
            f"but not {size}",
            f"the nearest one is {nearest}",
        )

    def prediction(self) -> Prediction | None:
        """Return the predicted time of the row; None if it has none."""
        if not self.cells["time_us"]:
            return None
        time_us = self._microseconds("time_us")
        if not any(self.cells.get(column) for column in INTERVAL_COLUMNS):
            return Prediction(time_us)
        low, high = (self._microseconds(column) for column in INTERVAL_COLUMNS)
        if low > high:
            raise self.error(
                f"time_low_us: expected at most time_high_us ({high:g}), got {low:g}",
                "swap both, or leave both empty",
            )
        return Prediction(time_us, (low, high))

    def _microseconds(self, column: str) -> float:
        """Return the value of a column in microseconds; refuse all but finite numbers above 0."""
        text = self.cells.get(column, "")
        with suppress(ValueError):
            if 0 < (value := float(text)) < inf:
                return value
        raise self.error(
            f"{column}: expected microseconds above 0, got {text or 'nothing'}",
            "leave all times of a row empty if there is no prediction",
        )


def predictions_csv(benchmark: Benchmark, times: Mapping[QuestionKey, Prediction]) -> str:
    """Return predictions as CSV, one line for each question; questions without a prediction have no
    time.
    """
    lines: list[Iterable[object]] = [(VERSION_COLUMN, *REQUIRED_COLUMNS, *INTERVAL_COLUMNS)]
    for run in benchmark.runs:
        for key in run.question_keys():
            prediction = times.get(key)
            time = "" if prediction is None else f"{prediction.time_us:.6g}"
            span = prediction.interval if prediction is not None else None
            ends = [f"{end:.6g}" for end in span] if span is not None else ["", ""]
            lines.append((VERSION, *key, time, *ends))
    return csv_of(lines)
