"""The folder of a run: a journal that survives anything, and the results written from it.

Every finished row goes to `journal.jsonl` and is synced to disk. `results.csv` is that journal in
the order of the cells, replaced as a whole, so that an interrupted and resumed run ends with the
same bytes as an uninterrupted one.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import IO, Any

from netsim.base.errors import InputError
from netsim.base.files import half_written, write_text
from netsim.base.values import dataclass
from netsim.results.row import Row, csv_text, details_text, row_from

MANIFEST = "run.json"
JOURNAL = "journal.jsonl"
RESULTS = "results.csv"
TIMINGS = "timings.csv"
BREAKDOWN = "breakdown.csv"
# Everything that a run writes besides its journal and manifest.
OUTPUTS = (
    RESULTS, TIMINGS, BREAKDOWN, "trace.csv", "trace.json*", "links*.csv", "busbw*.[ps]*g",
    "step_time*.[ps]*g", "timeline*.[ps]*g", "links*.[ps]*g", "comparison.csv", "bands.csv",
    "costs.csv", "explain*.*", "report.html", "breakdown*.[ps]*g", "collectives.csv", "memory.csv",
    "chakra/*.et", "chakra/groups.json",
)  # fmt: skip

SYNC_EVERY = 0.2  # seconds; a process that is killed loses nothing even between

Key = tuple[str, int]  # cell, size


@dataclass
class Folder:
    """An open results folder; `finished` holds the rows it has, by cell and size asked."""

    path: Path
    journal: IO[str]
    finished: dict[Key, Row] = field(default_factory=dict)
    timings: dict[Key, dict[str, Any]] = field(default_factory=dict)
    failed: int = 0  # rows of the journal with errors, which are not taken up
    discarded: int = 0  # rows of a run that did not end, which nobody wanted to keep
    _synced: float = 0.0

    def record(self, key: Key, row: Row, timing: dict[str, Any]) -> None:
        """Keep one finished row, whatever happens next."""
        line = {"cell": key[0], "size": key[1], "row": asdict(row), "timing": timing}
        with self._told():
            append(self.journal.fileno(), (json.dumps(line) + "\n").encode())
        if time.monotonic() - self._synced >= SYNC_EVERY:
            self.sync()
        self.finished[key] = row
        self.timings[key] = timing

    def sync(self) -> None:
        """See that all that was recorded survives even a loss of power."""
        with self._told():
            os.fsync(self.journal.fileno())
        self._synced = time.monotonic()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What keeps the journal from growing is told once, and nothing of it is lost."""
        try:
            yield
        except OSError as error:
            raise InputError(
                f"{self.path / JOURNAL}: cannot be written: {error.strerror}",
                hint="what was finished is kept; make room, then --resume continues",
            ) from None

    def write_results(self, rows: Sequence[Row], axes: Sequence[str]) -> Path:
        """Write results.csv: finished rows, in the order of the cells."""
        self.sync()
        self._write_timings()
        if any(row.details for row in rows):
            write_text(self.path / BREAKDOWN, details_text(rows, axes))
        return write_text(self.path / RESULTS, csv_text(rows, axes))

    def _write_timings(self) -> None:
        """What differs from run to run, apart from the results: wall times and hosts."""
        columns = ("wall_s", "host", "worker")
        lines = [",".join(("cell", "size_bytes", *columns))]
        for (cell, size), timing in self.timings.items():
            lines.append(",".join([cell, str(size), *(str(timing.get(c, "")) for c in columns)]))
        write_text(self.path / TIMINGS, "\n".join(lines) + "\n")


@contextmanager
def open_folder(
    path: Path, scenario: str, *, resume: bool, about: Mapping[str, Any] | None = None
) -> Iterator[Folder]:
    """Open a folder for the results of a scenario, alone; `about` is kept in its manifest.

    What the same scenario left there is replaced, or with `resume` continued; a folder that holds
    anything else is refused.
    """
    _make(path)
    _refuse_others(path, scenario)
    with (path / JOURNAL).open("a+", encoding="utf-8") as journal:
        _lock(journal, path)
        for file in half_written(path):
            file.unlink(missing_ok=True)
        folder = Folder(path, journal)
        if resume:
            _read(folder)
        else:
            if not (path / RESULTS).exists():
                journal.seek(0)
                folder.discarded = sum(line.endswith("\n") for line in journal)
            journal.truncate(0)
            _remove_outputs(path)
        manifest = {"scenario": scenario, **(about or {})}
        write_text(path / MANIFEST, json.dumps(manifest, default=str) + "\n")
        yield folder


def append(file: int, line: bytes) -> None:
    """Add a line to a file as a whole; where there is no room for it, nothing of it stays."""
    good = os.fstat(file).st_size
    try:
        left = memoryview(line)
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        os.ftruncate(file, good)
        raise


def _remove_outputs(path: Path) -> None:
    """Take away what an earlier run wrote, so that files of two runs never lie side by side."""
    for pattern in OUTPUTS:
        for file in path.glob(pattern):
            file.unlink(missing_ok=True)


def check_writable(flag: str, path: Path) -> None:
    """Refuse a file that could not be written, before anything is simulated for it."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InputError(f"{flag} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise InputError(f"{flag} {path}: this is a folder, expected a file to write")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"{flag} {path}: no permission to write it")


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"{path}: expected a folder for results, got a file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be made: {error.strerror}") from None
    if not os.access(path, os.W_OK):
        raise InputError(f"{path}: cannot be written to", hint="choose another folder with -o")


def _refuse_others(path: Path, scenario: str) -> None:
    hint = "choose another folder with -o"
    try:
        owner = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["scenario"]
    except FileNotFoundError:
        ours = {path / JOURNAL, *half_written(path)}
        if any(entry not in ours for entry in path.iterdir()):
            raise InputError(f"{path}: holds files that are no results", hint=hint) from None
        return
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path / MANIFEST}: not written by netsim", hint=hint) from None
    if owner != scenario:
        raise InputError(f"{path}: holds the results of scenario {owner!r}", hint=hint)


def _lock(journal: IO[str], path: Path) -> None:
    try:
        fcntl.flock(journal.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(f"{path}: another run is writing here") from None


def _read(folder: Folder) -> None:
    """Take up the rows of the journal that did not fail; a last line that was cut off is dropped,
    on disk too.
    """
    good = read_journal(folder)
    folder.journal.seek(good)
    folder.journal.truncate(good)
    for key in [key for key, row in folder.finished.items() if row.status != "ok"]:
        del folder.finished[key], folder.timings[key]
        folder.failed += 1


def read_journal(folder: Folder) -> int:
    """Take up the rows of the journal; where the last whole line ends."""
    journal, good = folder.journal, 0
    journal.seek(0)
    for number, line in enumerate(iter(journal.readline, ""), 1):
        if not line.endswith("\n"):
            break
        try:
            entry = json.loads(line)
            key, row = (entry["cell"], entry["size"]), row_from(entry["row"])
            folder.timings[key] = dict(entry["timing"])
            folder.finished[key] = row
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{folder.path / JOURNAL}:{number}: not a line of a journal",
                hint="run without --resume",
            ) from None
        good = journal.tell()
    return good


ALIKE = ("scenario", "axes", "points", "engine")  # what all parts of one sweep have in common


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a results folder says about itself."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = "expected a folder that netsim run has written"
        raise InputError(f"{folder}: holds no {MANIFEST}", hint=hint) from None
    except (OSError, ValueError):
        raise InputError(f"{folder / MANIFEST}: not written by netsim") from None
    if not isinstance(found, dict) or "scenario" not in found:
        raise InputError(f"{folder / MANIFEST}: not written by netsim")
    return found


def merge_into(target: Folder, parts: Sequence[Path], manifest: Mapping[str, Any]) -> int:
    """Take up the rows of all parts; the number of rows that the whole has."""
    places: dict[int, Path] = {}
    for part in parts:
        own = read_manifest(part)
        _check_alike(part, own, parts[0], manifest)
        _check_place(part, own.get("shard"), read_manifest(parts[0]).get("shard"), places)
        found = _rows_of(part)
        for key, row in found.finished.items():
            if key not in target.finished:
                target.record(key, row, found.timings[key])
    missing = [
        (point["cell"], size)
        for point in manifest["points"]
        for size in point.get("sizes", ())
        if (point["cell"], size) not in target.finished
    ]
    if missing:
        raise InputError(
            f"{len(missing)} rows are in none of the parts, the first of cell {missing[0][0]} at "
            f"{missing[0][1]} B",
            hint="run the missing parts, or those that were interrupted with --resume",
        )
    return sum(len(point.get("sizes", "1")) for point in manifest["points"])


def rows_in_order(
    finished: Mapping[tuple[str, int], Row], manifest: Mapping[str, Any]
) -> list[Row]:
    """The rows of a folder in the order of its cells, those that are there."""
    rows = []
    for point in manifest["points"]:
        if "error" in point:
            rows.append(
                Row(scenario=manifest["scenario"], cell=point["cell"], status="invalid",
                    model_version=str(manifest["versions"]["model"]), error=point["error"],
                    axes=point["axes"])
            )  # fmt: skip
            continue
        for size in point["sizes"]:
            row = finished.get((point["cell"], size))
            if row is not None:
                rows.append(replace(row, scenario=manifest["scenario"], axes=point["axes"]))
    return rows


def _check_alike(
    part: Path, own: Mapping[str, Any], first: Path, manifest: Mapping[str, Any]
) -> None:
    for name in ALIKE:
        if own.get(name) != manifest.get(name):
            what = {"scenario": "another scenario", "points": "other cells", "axes": "other axes",
                    "engine": "another engine"}[name]  # fmt: skip
            raise InputError(f"{part}: holds {what} than {first}")
    texts = [
        f"netsim {found.get('netsim')} (model {found.get('model')})"
        for found in (own.get("versions", {}), manifest.get("versions", {}))
    ]
    if texts[0] != texts[1]:
        raise InputError(f"{part}: was computed by {texts[0]}, {first} by {texts[1]}")


def _check_place(
    part: Path, shard: list[int] | None, first: list[int] | None, places: dict[int, Path]
) -> None:
    """Refuse a part that is there already, or one of another number of parts."""
    number, count = shard or (0, 0)
    if number in places:
        what = f"part {number} of {count}" if shard else "the whole"
        raise InputError(f"{part}: is {what}, as {places[number]} is", hint="name each part once")
    if first and shard and count != first[1]:
        raise InputError(f"{part}: is one of {count} parts, {places[first[0]]} one of {first[1]}")
    places[number] = part


def _rows_of(part: Path) -> Folder:
    try:
        with (part / JOURNAL).open("r", encoding="utf-8") as journal:
            folder = Folder(part, journal)
            read_journal(folder)
            return folder
    except FileNotFoundError:
        raise InputError(f"{part}: holds no {JOURNAL}") from None
