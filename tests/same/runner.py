"""Answers questions with the netsim of a checkout; `tests.same` starts it as a process of its own.

    python -P runner.py CHECKOUT SECONDS [COVERAGE_FOLDER]

Reads one question a line from standard input and writes one answer a line to standard output, both
JSON. It is given commits of any time, so that it imports only what has been there in all of them:
`netsim.run` and `netsim.cli.main`. What else it would like to use stands in `_adapters` and is left
out where a commit does not have it: then cells of a sweep take longer, and finish times of ranks
are not compared.

An answer has `outcome` (rows, commands, error, timeout), `seconds` of processor time, and

- rows: each with all its columns; `finish`, by size the finish times of ranks in seconds;
- commands: the exit code, standard output and standard error of each, and the files that they
  wrote, without what depends on the hour, the machine or the folder;
- error: the class, the exit code and the message.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
import os
import re
import resource
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

SCENARIO = "question.yaml"
MOST_ROWS_FOR_FINISH = 20_000  # of a schedule; above it a second simulation takes too long
MOST_TEXT = 1_000_000  # characters of a file that an answer holds; of the rest a digest
SKIPPED_FILES = ("run.json", "timings.csv", "journal.jsonl")  # hours, versions, seconds
# Lines about progress, which commands print when they take long: a loaded machine has more of them.
PROGRESS = re.compile(r"^.*\(\d+ of \d+ done\).*\n?", re.MULTILINE)
PICTURES = (".png", ".pdf")
# In pages and drawings: what no reader sees as text, and tags. Matplotlib writes texts as comments.
UNREAD = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL)
TAGS = re.compile(r"<[^>]*>")
TEXTS_OF_DRAWINGS = re.compile(r"<!--(.*?)-->|<text\b[^>]*>(.*?)</text>", re.DOTALL)
# What depends on the machine or the hour: elapsed seconds, memory, versions, dates.
VOLATILE = re.compile(
    r"\d+(\.\d+)? s(?![a-z/])|\d+(\.\d+)? ?[MG]B(?!/)|netsim \d[\w.+-]*"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:[\d:.+Z-]*|(?<=</dt><dd>)\d+\.\d[\w.+-]*(?=</dd>)"
)
WARM_UP = """\
cluster: {graph: {kind: switch, gpus: 3, bandwidth: 10GB/s}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1KiB]}
"""

Answer = dict[str, Any]


class OutOfTime(BaseException):
    """A question took longer than it may; no `except Exception` of netsim catches it."""


class SameRunner:
    """Answers questions within a processor time each."""

    def __init__(self, checkout: Path, seconds: float) -> None:
        import netsim

        self.netsim: ModuleType = netsim
        self.checkout = checkout
        self.seconds = seconds
        # Found before any question: an error in it must not pass for equal errors of both.
        self.adapters = _adapters()
        if Path(str(netsim.__file__)).parents[1].resolve() != checkout.resolve():
            raise SystemExit(f"imported {netsim.__file__}, which is not of {checkout}")

    def warm_up(self) -> None:
        """Load the compiled engine, so that no question pays for compiling it."""
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            Path(SCENARIO).write_text(WARM_UP, encoding="utf-8")
            with contextlib.suppress(Exception):
                self.netsim.run(SCENARIO, engine="compiled")

    def answer(self, question: dict[str, Any]) -> Answer:
        """Return the answer to a question, whatever happens."""
        begin = _processor_seconds()
        # A question that cannot be interrupted, as compiled code cannot, ends the process.
        resource.setrlimit(resource.RLIMIT_CPU, (int(begin + 3 * self.seconds) + 5, -1))
        signal.setitimer(signal.ITIMER_PROF, self.seconds)
        try:
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                found = self._answer_in_folder(question)
        except OutOfTime:
            found = {"outcome": "timeout"}
        except (Exception, SystemExit) as error:
            found = error_answer(error, os.getcwd())
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        found["seconds"] = round(_processor_seconds() - begin, 3)
        found["number"] = question["number"]
        return found

    def _answer_in_folder(self, question: dict[str, Any]) -> Answer:
        for name, text in question["files"].items():
            Path(name).write_text(text, encoding="utf-8")
        folder = os.getcwd()
        try:
            if question["commands"]:
                return self._run_commands(question)
            return self._compute_rows(question)
        except (Exception, SystemExit) as error:
            return error_answer(error, folder)

    def _compute_rows(self, question: dict[str, Any]) -> Answer:
        adapters = self.adapters
        cell, engine = question["cell"], question["engine"]
        if adapters is None:
            rows = rows_of_cell(self.netsim.run(SCENARIO, engine=engine), cell)
            return {"outcome": "rows", "rows": [row_values(row) for row in rows], "finish": []}
        rows, finish_times = [], []
        for prepared, size in adapters.cells(SCENARIO, cell):
            row = adapters.answer(prepared, size, engine=engine)
            rows.append(row_values(row))
            is_small = row.rows is not None and row.rows <= MOST_ROWS_FOR_FINISH
            if is_small and adapters.finish is not None:
                finish_times.append(adapters.finish(prepared, size, engine))
        return {"outcome": "rows", "rows": rows, "finish": finish_times}

    def _run_commands(self, question: dict[str, Any]) -> Answer:
        folder = os.getcwd()
        told = [self._run_command(shlex.split(line)) for line in question["commands"]]
        return {"outcome": "commands", "commands": told, "files": self._written(question, folder)}

    def _run_command(self, words: list[str]) -> dict[str, Any]:
        from netsim.cli import main

        out, err = io.StringIO(), io.StringIO()
        code = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(words) or 0
            except SystemExit as end:
                code = int(end.code or 0)
        texts = [self._cleaned(stream.getvalue(), os.getcwd()) for stream in (out, err)]
        return {"code": code, "stdout": texts[0], "stderr": PROGRESS.sub("", texts[1])}

    def _written(self, question: dict[str, Any], folder: str) -> dict[str, str]:
        """The texts that commands wrote, by name; of pictures only what is text in them."""
        texts = {}
        for path in sorted(Path(folder).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if not path.is_file() or name in question["files"] or path.name in SKIPPED_FILES:
                continue
            if path.suffix in PICTURES:
                texts[name] = "(a picture)"
                continue
            content = path.read_bytes()
            if path.suffix == ".gz":
                content = gzip.decompress(content)
            text = self._cleaned(content.decode(errors="replace"), folder)
            texts[name] = _shortened(read_text(path.suffix, text))
        return texts

    def _cleaned(self, text: str, folder: str) -> str:
        for place in (os.path.realpath(folder), folder):
            text = text.replace(place, ".")
        for place in (str(self.checkout.resolve()), str(self.checkout)):
            text = text.replace(place, "(checkout)")
        return VOLATILE.sub("_", text)


def read_text(suffix: str, text: str) -> str:
    """Return what a reader of a page or a drawing sees as text; any other file as it is.

    >>> read_text(".html", "<p>Ring is <b>best</b>.</p><script>x()</script>")
    'Ring is best.'
    """
    if suffix == ".svg":
        parts = ("".join(match) for match in TEXTS_OF_DRAWINGS.findall(text))
        return "\n".join(TAGS.sub("", part).strip() for part in parts)
    if suffix == ".html":
        lines = TAGS.sub("", UNREAD.sub("", text)).splitlines()
        return "\n".join(line.strip() for line in lines if line.strip())
    return text


def _shortened(text: str) -> str:
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n(of all: {hashlib.sha256(text.encode()).hexdigest()})"


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def row_values(row: Any) -> dict[str, Any]:
    """Return the columns of a row as JSON can hold them; floats keep all their digits."""
    values = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return json.loads(json.dumps(values, default=_plain))  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    return dict(value) if hasattr(value, "keys") else str(value)


def rows_of_cell(rows: list[Any], cell: int | None) -> list[Any]:
    """Return the rows of one cell of a sweep by its number, or all rows."""
    if cell is None:
        return rows
    cells = list(dict.fromkeys(row.cell for row in rows))
    return [row for row in rows if row.cell == cells[cell]]


def error_answer(error: BaseException, folder: str) -> Answer:
    """Return the answer of a question that ended with an error."""
    message = VOLATILE.sub("_", str(error).replace(folder, "."))
    exit_code = getattr(error, "exit_code", None)
    return {
        "outcome": "error",
        "class": type(error).__name__,
        "exit_code": exit_code,
        "message": message,
    }


# **** Functions that not all commits have ****


@dataclasses.dataclass
class Adapters:
    """How cells are prepared and answered one by one, and how ranks' finish times are found."""

    cells: Callable[[str, int | None], Iterator[tuple[Any, int]]]
    answer: Callable[..., Any]
    finish: Callable[[Any, int, str], list[float]] | None


def _adapters() -> Adapters | None:
    """Functions of the commit; None where it has them no more, or not yet.

    A commit that replaces one of them adds its own here, below the others, so that older commits
    can still be asked.
    """
    functions = _functions_of_tasks() or _functions_of_cells()
    if functions is None:
        return None
    answer, checked_cells, load_source, resolve_any, resolved_class, simulate_one = functions

    def cells(scenario: str, number: int | None) -> Iterator[tuple[Any, int]]:
        found = checked_cells(load_source(Path(scenario)))
        chosen = found if number is None else [found[number]]
        for cell in chosen:
            resolved = resolve_any(cell)
            for size in cell.scenario.workload.size_list():
                yield resolved, size

    def finish(resolved: Any, size: int, engine: str) -> list[float]:
        if not isinstance(resolved, resolved_class):
            return []
        timing = simulate_one(resolved, size, engine=engine)
        schedule = timing.program.schedule
        last: dict[int, float] = {}
        ends = timing.timeline.end.tolist()
        for place in (schedule.src.tolist(), schedule.dst.tolist()):
            for rank, end in zip(place, ends, strict=True):
                last[rank] = max(end, last.get(rank, 0.0))
        return [last[rank] for rank in sorted(last)]

    return Adapters(cells, answer, finish)


def _functions_of_tasks() -> tuple[Any, ...] | None:
    """The functions of commits that have `netsim/tasks/`."""
    try:
        from netsim.tasks.answer import answer, checked_cells, load_source, resolve_any
        from netsim.tasks.outcome import simulate_one
        from netsim.tasks.resolve import ResolvedCell
    except ImportError:
        return None
    return answer, checked_cells, load_source, resolve_any, ResolvedCell, simulate_one


def _functions_of_cells() -> tuple[Any, ...] | None:
    """The functions of earlier commits, which have `netsim/cell/`."""
    try:
        from netsim.cell.answer import (  # type: ignore[import-not-found]
            answer,
            checked_cells,
            load_source,
            prepare_any,
        )
        from netsim.cell.prepare import Prepared  # type: ignore[import-not-found]
        from netsim.cell.simulate import simulate_one  # type: ignore[import-not-found]
    except ImportError:
        return None
    return answer, checked_cells, load_source, prepare_any, Prepared, simulate_one


# **** Lines that questions run ****


@contextlib.contextmanager
def _covered(checkout: Path, folder: str) -> Iterator[Callable[[int], None]]:
    """Measure which lines each question runs; yields what is called with its number before it."""
    if not folder:
        yield lambda number: None
        return
    from coverage import Coverage

    data_file = Path(folder) / f"{os.getpid()}.coverage"
    measured = Coverage(data_file=str(data_file), source=[str(checkout / "netsim")])
    measured.start()
    yield lambda number: measured.switch_context(str(number))
    measured.stop()
    measured.save()


def _stop_question(*_: object) -> None:
    raise OutOfTime


def main(arguments: list[str]) -> int:
    """Answer questions until standard input ends."""
    checkout, seconds = Path(arguments[0]), float(arguments[1])
    coverage_folder = arguments[2] if len(arguments) > 2 else ""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # whatever netsim prints goes nowhere near the answers
    signal.signal(signal.SIGPROF, _stop_question)
    with _covered(checkout, coverage_folder) as begin:
        runner = SameRunner(checkout, seconds)
        runner.warm_up()
        print(json.dumps({"ready": True}), file=answers)
        for line in sys.stdin:
            question = json.loads(line)
            begin(question["number"])
            print(json.dumps(runner.answer(question)), file=answers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
