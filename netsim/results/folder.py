"""The folder of a run: a journal that survives anything, and the results written from it.

Every finished row goes to `journal.jsonl` and is synced to disk. `results.csv` is that journal in
the order of the cells, replaced as a whole, so that an interrupted and resumed run ends with the
same bytes as an uninterrupted one."""

import fcntl
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import IO, Any
from zlib import crc32

from netsim.base.errors import InputError, NetsimError, Tell, silent
from netsim.base.files import csv_of, half_written, made_folder, write_text
from netsim.base.values import dataclass
from netsim.results.row import Row, csv_text, details_text, row_from

MANIFEST = "run.json"
JOURNAL = "journal.jsonl"
RESULTS = "results.csv"
PARTIAL = "results-partial.csv"  # of a run that was killed
TIMINGS = "timings.csv"
BREAKDOWN = "breakdown.csv"
DISTRIBUTION = "distribution.csv"
INTERFERENCE = "interference.csv"
COSTS = "costs.csv"
# Everything that a run writes besides its journal and manifest.
OUTPUTS = (
    RESULTS, PARTIAL, TIMINGS, BREAKDOWN, "trace.csv", "trace.json*", "links*.csv", "busbw*.[ps]*g",
    "step_time*.[ps]*g", "timeline*.[ps]*g", "links*.[ps]*g", "comparison.csv", "bands.csv",
    COSTS, "explain*.*", "report.html", "breakdown*.[ps]*g", "collectives.csv", "memory.csv",
    "distribution.*", "interference.*", "chakra/*.et", "chakra/groups.json", "connections.cm",
    "flows.txt", "application.goal", "algorithm.xml", "plan.json", "pictures/*",
)  # fmt: skip

SYNC_EVERY = 0.2  # seconds; a process that is killed loses nothing even between
ROOM = "what was finished is kept; make room, then --resume continues"
MOST_NAMED = 10  # damaged lines

Key = tuple[str, int]  # cell, size

_SEAL = re.compile(rb', "crc": "([0-9a-f]{8})"\}\s*\Z')


def sealed(values: Mapping[str, Any]) -> str:
    """A mapping as a line with its checksum."""
    text = json.dumps(values, default=str)
    return f'{text[:-1]}, "crc": "{crc32(text.encode()):08x}"}}\n'


def unsealed(line: bytes) -> dict[str, Any]:
    """The mapping of a line; a ValueError says what is wrong with it."""
    found = _SEAL.search(line)
    if found is not None:
        line = line[: found.start()] + b"}"
        if crc32(line) != int(found[1], 16):
            raise ValueError("its checksum is that of another line")
    try:
        values = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from None
    except RecursionError:
        raise ValueError("brackets without end") from None
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(values, dict):
        raise ValueError("not a mapping")
    return values


def damaged(path: Path, number: int, error: Exception) -> str:
    """How a line that cannot be used is named."""
    return f"{path}:{number}: damaged: {error}"


def few_of(lines: Sequence[str]) -> Iterator[str]:
    """The first of many lines, and how many more there are."""
    yield from lines[:MOST_NAMED]
    if len(lines) > MOST_NAMED:
        yield f"... and {len(lines) - MOST_NAMED} more"


@dataclass
class Folder:
    """An open results folder; `finished` holds the rows it has, by cell and size asked."""

    path: Path
    journal: IO[bytes]
    finished: dict[Key, Row] = field(default_factory=dict)
    timings: dict[Key, dict[str, Any]] = field(default_factory=dict)
    failed: int = 0  # rows of the journal with errors, which are not taken up
    discarded: int = 0  # rows of a run that did not end, which nobody wanted to keep
    damaged: list[str] = field(default_factory=list)  # lines of the journal that cannot be used
    manifest: str = ""
    tell: Tell = silent
    _synced: float = 0.0

    def record(self, key: Key, row: Row, timing: dict[str, Any]) -> None:
        """Keep one finished row, whatever happens next."""
        self.finished[key] = row
        self.timings[key] = timing
        if self._is_gone():
            self._begin_again()
            return
        with self._told():
            append(self.journal.fileno(), self._line(key))
        if time.monotonic() - self._synced >= SYNC_EVERY:
            self.sync()

    def _line(self, key: Key) -> bytes:
        values = {"cell": key[0], "size": key[1], "row": asdict(self.finished[key])}
        return sealed({**values, "timing": self.timings[key]}).encode()

    def sync(self) -> None:
        """See that all that was recorded survives even a loss of power."""
        with self._told():
            os.fsync(self.journal.fileno())
        self._synced = time.monotonic()

    def _is_gone(self) -> bool:
        try:
            return not os.path.samestat(
                os.stat(self.path / JOURNAL), os.fstat(self.journal.fileno())
            )
        except OSError:
            return True

    def _begin_again(self) -> None:
        """Write all that is in memory into the folder anew, or where it can be written."""
        name = self.path.name or "results"
        places = [self.path, Path(tempfile.gettempdir()) / f"{name}-kept"]
        with suppress(OSError):  # the working directory may be gone, too
            places.insert(1, Path.cwd() / f"{name}-kept")
        for place in dict.fromkeys(places):
            with suppress(OSError, NetsimError):
                journal = self._written_again(place)
                self.journal.close()
                self.tell(
                    f"{self.path}: was deleted during the run; the {len(self.finished)} rows so "
                    f"far are in {place}, as will be the others"
                )
                self.journal, self.path = journal, place
                return
        raise InputError(f"{self.path}: was deleted during the run, and cannot be made again")

    def _written_again(self, place: Path) -> IO[bytes]:
        place.mkdir(parents=True, exist_ok=True)
        journal = (place / JOURNAL).open("ab+")
        try:
            _lock(journal, place)
            journal.truncate(0)
            for key in self.finished:
                append(journal.fileno(), self._line(key))
            write_text(place / MANIFEST, self.manifest)
        except BaseException:
            journal.close()
            raise
        return journal

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What keeps the journal from growing is told once, and nothing of it is lost."""
        try:
            yield
        except OSError as error:
            place = self.path / JOURNAL
            raise InputError(f"{place}: cannot be written: {error.strerror}", hint=ROOM) from None

    @contextmanager
    def ended_by(self, write: Callable[[], object]) -> Iterator[None]:
        """`write` what is there at the end; if the block fails, that is what is told."""
        try:
            yield
        except BaseException:
            with suppress(NetsimError):
                write()
            raise
        write()

    def write_results(self, rows: Sequence[Row], axes: Sequence[str]) -> Path:
        """Write results.csv: finished rows, in the order of the cells."""
        if self._is_gone():
            self._begin_again()
        self.sync()
        try:
            self._write_timings()
            beside = {"details": BREAKDOWN, "quantiles": DISTRIBUTION, "neighbours": INTERFERENCE}
            for of, name in beside.items():
                if any(getattr(row, of) for row in rows):
                    write_text(self.path / name, details_text(rows, axes, of))
            file, text = self.path / RESULTS, csv_text(rows, axes)
            if file.is_file() and file.read_bytes() != text.encode():  # a run that went on
                (self.path / "report.html").unlink(missing_ok=True)
            return write_text(file, text)
        except InputError as error:
            raise InputError(error.message, hint=ROOM) from None

    def _write_timings(self) -> None:
        """What differs from run to run, apart from the results: wall times and hosts."""
        columns = ("wall_s", "host", "worker")
        rows = [(*key, *map(timing.get, columns)) for key, timing in self.timings.items()]
        write_text(self.path / TIMINGS, csv_of([("cell", "size_bytes", *columns), *rows]))


@contextmanager
def open_folder(
    path: Path, scenario: str, *, resume: bool, about: Mapping[str, Any] | None = None,
    tell: Tell = silent,
) -> Iterator[Folder]:  # fmt: skip
    """Open a folder for the results of a scenario, alone; `about` is kept in its manifest. What the
    same scenario left there is replaced, or with `resume` continued; a folder that holds anything
    else is refused. `tell` hears what is damaged or deleted."""
    _make(path)
    _refuse_others(path, scenario, resume, tell)
    folder = Folder(path, (path / JOURNAL).open("ab+"), tell=tell)
    try:
        _lock(folder.journal, path)
        for file in half_written(path):
            file.unlink(missing_ok=True)
        if resume:
            _read(folder)
        else:
            if not (path / RESULTS).exists():
                folder.journal.seek(0)
                folder.discarded = sum(line.endswith(b"\n") for line in folder.journal)
            folder.journal.truncate(0)
            for file in (file for pattern in OUTPUTS for file in path.glob(pattern)):
                file.unlink(missing_ok=True)  # files of two runs never lie side by side
        folder.manifest = sealed({"scenario": scenario, **(about or {})})
        write_text(path / MANIFEST, folder.manifest)
        yield folder
    finally:
        folder.journal.close()


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


def _make(path: Path) -> None:
    if path.is_file():
        raise InputError(f"{path}: expected a folder for results, got a file")
    if not os.access(made_folder(path), os.W_OK):
        raise InputError(f"{path}: cannot be written to", hint="choose another folder with -o")


def _refuse_others(path: Path, scenario: str, resume: bool, tell: Tell) -> None:
    hint = "choose another folder with -o"
    if not (path / MANIFEST).exists():
        ours = {path / JOURNAL, *half_written(path)}
        if any(entry not in ours for entry in path.iterdir()):
            raise InputError(f"{path}: holds files that are no results", hint=hint)
        return
    try:
        owner = read_manifest(path)["scenario"]
    except InputError as error:
        owner = _owner_of_journal(path)
        if owner is None:
            raise InputError(error.message, hint=hint) from None
        if owner == scenario:
            tell(f"{error.message}; it is written anew{'' if resume else ', as are the results'}")
    if owner != scenario:
        raise InputError(f"{path}: holds the results of scenario {owner!r}", hint=hint)


def _owner_of_journal(path: Path) -> str | None:
    """Whose results a folder holds by the first sound line of its journal."""
    with suppress(OSError), (path / JOURNAL).open("rb") as journal:
        for line in journal:
            with suppress(ValueError, KeyError, TypeError):
                return str(unsealed(line)["row"]["scenario"])
    return None


def _lock(journal: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(journal.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(f"{path}: another run is writing here") from None


def _read(folder: Folder) -> None:
    """Take up the journal's rows that did not fail; a last line cut off is dropped, on disk too."""
    good = read_journal(folder)
    folder.journal.truncate(good)
    for text in few_of([f"{text}; its row is computed again" for text in folder.damaged]):
        folder.tell(text)
    for key in [key for key, row in folder.finished.items() if row.status != "ok"]:
        del folder.finished[key], folder.timings[key]
        folder.failed += 1


def read_journal(folder: Folder) -> int:
    """Take up the rows of the journal, but for damaged lines; where the last whole line ends."""
    good = 0
    folder.journal.seek(0)
    for number, line in enumerate(folder.journal, 1):
        if not line.endswith(b"\n"):
            break
        try:
            key, row, timing = _entry(line)
            folder.finished[key], folder.timings[key] = row, timing
        except ValueError as error:
            folder.damaged.append(damaged(folder.path / JOURNAL, number, error))
        good += len(line)
    return good


def _entry(line: bytes) -> tuple[Key, Row, dict[str, Any]]:
    """Cell and size, row and timing of a line; a ValueError says what is wrong with it."""
    values = unsealed(line)
    try:
        cell, size = values["cell"], values["size"]
        row, timing = row_from(values["row"]), dict(values["timing"])
    except InputError as error:
        raise ValueError(error.message) from None
    except (KeyError, TypeError, ValueError):
        raise ValueError("not a line of a journal") from None
    if not isinstance(cell, str) or type(size) is not int:
        raise ValueError("not a line of a journal")
    return (cell, size), row, timing


ALIKE = ("scenario", "axes", "points", "engine")  # what all parts of one sweep have in common


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a results folder says about itself."""
    path = folder / MANIFEST
    try:
        found = unsealed(path.read_bytes())
    except FileNotFoundError:
        hint = "expected a folder that netsim run has written"
        raise InputError(f"{folder}: holds no {MANIFEST}", hint=hint) from None
    except ValueError as error:
        hint = "netsim run with --resume writes it anew and keeps the rows"
        raise InputError(damaged(path, 1, error), hint=hint) from None
    except OSError:
        raise InputError(f"{path}: not written by netsim") from None
    if not isinstance(found.get("scenario"), str):
        raise InputError(f"{path}: not written by netsim")
    return found


def merge_into(target: Folder, parts: Sequence[Path], manifest: Mapping[str, Any]) -> int:
    """Take up the rows of all parts; the number of rows that the whole has."""
    places: dict[int, Path] = {}
    for part in parts:
        own = read_manifest(part)
        _check_alike(part, own, parts[0], manifest)
        _check_place(part, own.get("shard"), read_manifest(parts[0]).get("shard"), places)
        found = rows_of(part, target.tell)
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


def merge_costs(parts: Sequence[Path], manifest: Mapping[str, Any], folder: Path) -> list[str]:
    """Write the costs of the cells of all parts of a sweep, in the order of a run of the whole.
    Nothing is written where the parts have none."""
    header = ""
    lines: dict[str, str] = {}
    for part in parts:
        if not (part / COSTS).is_file():
            continue
        header, *rows = (part / COSTS).read_text(encoding="utf-8").splitlines(keepends=True)
        lines |= {row.partition(",")[0]: row for row in rows}
    if not lines:
        return []
    cells = dict.fromkeys(point["cell"] for point in manifest["points"])
    ordered = [lines[cell] for cell in cells if cell in lines]
    return [str(write_text(folder / COSTS, "".join([header, *ordered])))]


def rows_in_order(finished: Mapping[Key, Row], manifest: Mapping[str, Any]) -> list[Row]:
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
                own = {"scenario": manifest["scenario"], "axes": point["axes"]}
                rows.append(replace(row, **own, size_asked=size or None))
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
    number, count = shard or (0, 0)
    if number in places:
        what = f"part {number} of {count}" if shard else "the whole"
        raise InputError(f"{part}: is {what}, as {places[number]} is", hint="name each part once")
    if first and shard and count != first[1]:
        raise InputError(f"{part}: is one of {count} parts, {places[first[0]]} one of {first[1]}")
    places[number] = part


def rows_of(part: Path, tell: Tell) -> Folder:
    """What the journal of a folder holds; `tell` hears of lines that are damaged."""
    try:
        with (part / JOURNAL).open("rb") as journal:
            folder = Folder(part, journal)
            read_journal(folder)
            for text in few_of(folder.damaged):
                tell(text)
            return folder
    except FileNotFoundError:
        raise InputError(f"{part}: holds no {JOURNAL}") from None
