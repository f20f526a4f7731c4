"""The results of a run in its folder: results.csv, and a journal from which a run can be resumed.

Every finished row is written to `.partial/journal.jsonl` and synced to disk. `results.csv` has the
rows of the journal in the order of the cells. When a run is complete, its files replace those of
the earlier run (`results/workspace.py`). So an interrupted run does not change complete results,
and a run that is resumed ends with the same bytes as one that was never interrupted.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError, NetsimError, Tell, silent
from netsim.base.files import csv_of, made_folder, write_bytes, write_text
from netsim.base.values import dataclass
from netsim.results.journal import JOURNAL_HINT, Journal, few_of, line_count, sealed, unsealed
from netsim.results.row import Row, csv_text, details_text, row_from
from netsim.results.workspace import (
    ELSEWHERE,
    JOURNAL,
    MANIFEST,
    RESULTS,
    Workspace,
    check_owner,
    clear_partial,
    foreign_files,
    open_workspace,
    place_of_results,
    read_manifest,
    replace_results,
)

PARTIAL = "results-partial.csv"  # of a run that was killed
TIMINGS = "timings.csv"
BREAKDOWN = "breakdown.csv"
DISTRIBUTION = "distribution.csv"
INTERFERENCE = "interference.csv"
COSTS = "costs.csv"

SYNC_EVERY = 0.2  # seconds between syncs to disk; rows in between survive the end of the process

Key = tuple[str, int]  # cell, size


@dataclass
class Folder:
    """The results of an open folder. `finished` holds the rows that exist already, by (id of the
    cell, requested size in bytes).

    `path` is the folder. Files are written into `place`, its subfolder `.partial`, until all of
    them are complete. A Folder that only reads (`rows_of`) has no workspace.
    """

    path: Path
    place: Path
    journal: Journal
    workspace: Workspace | None = None
    finished: dict[Key, Row] = field(default_factory=dict)
    timings: dict[Key, dict[str, Any]] = field(default_factory=dict)
    failed: int = 0  # rows of the journal with errors, which are not taken up
    discarded: int = 0  # rows of an unfinished run that is not resumed
    manifest: dict[str, Any] = field(default_factory=dict)
    tell: Tell = silent
    is_withheld: bool = False  # the earlier results stay, and the new ones in `place`
    has_results: bool = False
    _synced: float = 0.0

    def record(self, key: Key, row: Row, timing: dict[str, Any]) -> None:
        """Append one finished row to the journal at once.

        `key` is (id of the cell, requested size in bytes), `timing` has the values that differ from
        run to run, such as the wall time.
        """
        self.finished[key] = row
        self.timings[key] = timing
        if self.journal.is_gone():
            self._begin_again()
            return
        self.journal.append(self._line(key))
        if time.monotonic() - self._synced >= SYNC_EVERY:
            self.sync()

    def _line(self, key: Key) -> dict[str, Any]:
        """The line of the journal for a finished row."""
        row = asdict(self.finished[key])
        return {"cell": key[0], "size": key[1], "row": row, "timing": self.timings[key]}

    def sync(self) -> None:
        """Write everything that was recorded to disk, so that it survives a loss of power."""
        self.journal.sync()
        self._synced = time.monotonic()

    def final_name(self, text: str) -> str:
        """A message about files in `place`, with the names that they will have in `path`."""
        return text.replace(f"{self.place}/", f"{self.path}/")

    def replaces_sound_results(self) -> bool:
        """Whether the folder has complete results in which no row failed. Results without a
        readable journal count as such.
        """
        file = self.path / RESULTS
        if not file.is_file():
            return False
        try:
            done = rows_of(self.path, silent).finished
        except InputError:
            return True  # results without a journal: nobody knows
        return all(row.status == "ok" for row in done.values())

    def _begin_again(self) -> None:
        """Write everything in memory into the folder again, or into another folder that can be
        written."""
        name = self.path.name or "results"
        places = [self.path]
        with suppress(OSError):  # the working directory may be gone, too
            places.append(_free_name(Path.cwd() / f"{name}-kept"))
        places.append(_free_name(Path(tempfile.gettempdir()) / f"{name}-kept"))
        lost = self.path
        old_journal = self.journal
        old_workspace = self.workspace
        for folder in places:
            with suppress(OSError, NetsimError):
                self._write_again(folder)
                old_journal.close()
                if old_workspace is not None:
                    old_workspace.close()
                self.tell(
                    f"{lost}: was deleted during the run; the {len(self.finished)} rows so "
                    f"far are in {folder}, as will be the others"
                )
                return
        raise InputError(f"{lost}: was deleted during the run, and cannot be made again")

    def _write_again(self, folder: Path) -> None:
        """Open a folder that is empty, and write the journal and the manifest there."""
        if folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder}: holds other files")
        workspace = open_workspace(folder)
        try:
            made_folder(workspace.place)
            journal = Journal.open(workspace.place / JOURNAL)
            for key in self.finished:
                journal.append(self._line(key))
            write_text(workspace.place / MANIFEST, sealed(self.manifest))
        except BaseException:
            workspace.close()
            raise
        self.path = folder
        self.place = workspace.place
        self.journal = journal
        self.workspace = workspace

    @contextmanager
    def ended_by(self, write: Callable[[], object]) -> Iterator[None]:
        """Call `write` at the end of the `with` block, also if the block raises an error. That
        error is then raised, even if `write` fails, too.
        """
        try:
            yield
        except BaseException:
            with suppress(NetsimError):
                write()
            raise
        write()

    def write_results(self, rows: Sequence[Row], axes: Sequence[str]) -> Path:
        """Write results.csv and the tables beside it; return where results.csv will be.

        The rows are in the order of the cells. The files stay in `place` until the run ends."""
        if self.journal.is_gone():
            self._begin_again()
        self.sync()
        try:
            self._write_timings()
            beside = {"details": BREAKDOWN, "quantiles": DISTRIBUTION, "neighbours": INTERFERENCE}
            for of, name in beside.items():
                if any(getattr(row, of) for row in rows):
                    write_text(self.place / name, details_text(rows, axes, of))
            write_text(self.place / RESULTS, csv_text(rows, axes))
        except InputError as error:
            raise InputError(error.message, hint=JOURNAL_HINT) from None
        self.has_results = True
        return self.path / RESULTS

    def _write_timings(self) -> None:
        """Write the values that differ from run to run: wall times and hosts."""
        columns = ("wall_s", "host", "worker")
        rows = [(*key, *map(timing.get, columns)) for key, timing in self.timings.items()]
        write_text(self.place / TIMINGS, csv_of([("cell", "size_bytes", *columns), *rows]))

    def replace_earlier(self) -> None:
        """Replace the earlier results by the new ones."""
        assert self.workspace is not None
        self.sync()
        replace_results(self.workspace, self.manifest)


def _free_name(folder: Path) -> Path:
    """A folder with this name, or with a number after it, that does not exist."""
    names = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return folder if not folder.exists() else next(name for name in names if not name.exists())


@contextmanager
def open_folder(
    path: Path,
    scenario: str,
    *,
    resume: bool,
    about: Mapping[str, Any] | None = None,
    verb: str = "run",
    tell: Tell = silent,
) -> Iterator[Folder]:
    """Open a folder for new results of a scenario and lock it; `about` is stored in its manifest.

    With `resume`, the rows of an unfinished run, or else of the complete results, are taken up. A
    folder of another scenario or verb, or with only other files, is an error. When the `with` block
    ends without an error and results were written, they replace the earlier ones, unless the block
    has set `is_withheld`. `tell` receives messages on damaged or deleted files.
    """
    workspace = open_workspace(path)
    manifest = {"scenario": scenario, "verb": verb, **(about or {})}
    folder: Folder | None = None
    try:
        _check_owners(path, workspace.place, manifest, tell, resume=resume)
        folder = _begin(workspace, manifest, tell, resume=resume)
        yield folder
        if folder.has_results and not folder.is_withheld:
            folder.replace_earlier()
    finally:
        if folder is not None:
            folder.journal.close()
            workspace = folder.workspace or workspace
            if not folder.finished:
                _remove_unused(workspace)
        workspace.close()


def _check_owners(
    path: Path, partial: Path, wanted: Mapping[str, Any], tell: Tell, *, resume: bool
) -> None:
    """Raise an InputError if the folder, or the unfinished run in it, belongs to another scenario.

    `path` is the folder, `partial` its subfolder of the unfinished run, `wanted` the manifest of
    the new run. `tell` receives messages on damaged manifests.
    """
    has_own = (path / MANIFEST).exists()
    for folder in (path, partial):
        if (folder / MANIFEST).exists():
            _check_owner_of(folder, path, wanted, tell, resume=resume)
        elif (folder / JOURNAL).exists():
            owner = _owner_of_journal(folder)
            if owner is not None:
                check_owner(path, {"scenario": owner}, wanted)
    if not has_own and foreign_files(path):
        # The folder may be that of an unfinished first run, to which somebody has added a file.
        has_own = (partial / MANIFEST).exists()
    if not has_own and foreign_files(path):
        raise InputError(f"{path}: holds files that are no results", hint=ELSEWHERE)


def _check_owner_of(
    folder: Path, path: Path, wanted: Mapping[str, Any], tell: Tell, *, resume: bool
) -> None:
    """Raise an InputError if the manifest in `folder` belongs to another scenario than the manifest
    `wanted`.

    A damaged manifest is accepted, with a message to `tell`, if the journal beside it is of the
    wanted scenario. `path` is the results folder, for messages.
    """
    try:
        earlier = read_manifest(folder)
    except InputError as error:
        owner = _owner_of_journal(folder)
        if owner is None:
            raise InputError(error.message, hint=ELSEWHERE) from None
        check_owner(path, {"scenario": owner}, wanted)
        tell(f"{error.message}; it is written anew{'' if resume else ', as are the results'}")
        return
    check_owner(path, earlier, wanted)


def _begin(workspace: Workspace, manifest: dict[str, Any], tell: Tell, *, resume: bool) -> Folder:
    """Make `.partial` with an empty journal, or with the journal that is continued."""
    folder = workspace.folder
    place = workspace.place
    discarded = 0
    journal_file = place / JOURNAL
    if resume:
        clear_partial(place, but=(JOURNAL, MANIFEST))
        if not journal_file.exists() and (folder / JOURNAL).is_file():
            made_folder(place)
            journal_file = folder / JOURNAL
            write_bytes(place / JOURNAL, journal_file.read_bytes())
    else:
        unfinished = place if (place / JOURNAL).exists() else folder
        if unfinished == place or not (folder / RESULTS).exists():
            discarded = line_count(unfinished / JOURNAL)
        clear_partial(place)
    made_folder(place)
    opened = Folder(
        path=folder,
        place=place,
        journal=Journal.open(place / JOURNAL, shown_path=journal_file),
        workspace=workspace,
        manifest=manifest,
        tell=tell,
    )
    opened.discarded = discarded
    try:
        if resume:
            _read(opened)
        write_text(place / MANIFEST, sealed(manifest))
    except BaseException:
        opened.journal.close()
        raise
    return opened


def _remove_unused(workspace: Workspace) -> None:
    """Delete the `.partial` of a run that ended before it had a row, and the folder made for it."""
    clear_partial(workspace.place)
    with suppress(OSError):
        workspace.place.rmdir()
        workspace.folder.rmdir()  # fails where there is anything else in it


def _owner_of_journal(path: Path) -> str | None:
    """The scenario whose results a folder has, by the first valid line of its journal."""
    with suppress(OSError), Journal.open_to_read(path / JOURNAL) as journal:
        for line in journal.lines():
            with suppress(ValueError, KeyError, TypeError):
                return str(unsealed(line)["row"]["scenario"])
    return None


def _read(folder: Folder) -> None:
    """Read the rows of the journal that did not fail; a last line that was cut off is removed
    from the file."""
    read_journal(folder)
    folder.journal.remove_unfinished_line()
    for text in few_of([f"{text}; its row is computed again" for text in folder.journal.damage]):
        folder.tell(text)
    for key in [key for key, row in folder.finished.items() if row.status != "ok"]:
        del folder.finished[key], folder.timings[key]
        folder.failed += 1


def read_journal(folder: Folder) -> None:
    """Read the rows and timings of the journal, without damaged lines."""

    def take(values: dict[str, Any]) -> None:
        cell = values["cell"]
        size = values["size"]
        row = row_from(values["row"])
        timing = dict(values["timing"])
        if not isinstance(cell, str) or type(size) is not int:
            raise TypeError("expected a cell's id and a size")
        folder.finished[cell, size] = row
        folder.timings[cell, size] = timing

    folder.journal.read(take)


# What all parts of one sweep have in common, and how a part that differs is described.
SHARED_KEYS = {
    "scenario": "another scenario",
    "points": "other cells",
    "axes": "other axes",
    "engine": "another engine",
}


@dataclass
class MergedRows:
    """The rows of all parts of a sweep, by cell and size asked, and their wall times."""

    finished: dict[Key, Row] = field(default_factory=dict)
    timings: dict[Key, dict[str, Any]] = field(default_factory=dict)


def merged_rows(parts: Sequence[Path], manifest: Mapping[str, Any], tell: Tell) -> MergedRows:
    """Return the rows of all parts of the sweep that `manifest` describes; nothing is written.
    `parts` are their folders; `tell` receives messages on damaged lines.

    An InputError names a part of another sweep, a part that is listed twice, or the first row that
    no part has.
    """
    merged = MergedRows()
    places: dict[int, Path] = {}
    first_shard = read_manifest(place_of_results(parts[0])).get("shard")
    for part in parts:
        place = place_of_results(part)
        part_manifest = read_manifest(place)
        _check_same_sweep(part, part_manifest, parts[0], manifest)
        _check_shard(part, part_manifest.get("shard"), first_shard, places)
        part_rows = rows_of(place, tell)
        for key, row in part_rows.finished.items():
            if key not in merged.finished:
                merged.finished[key] = row
                merged.timings[key] = part_rows.timings[key]
    missing = [
        (point["cell"], size)
        for point in manifest["points"]
        for size in point.get("sizes", ())
        if (point["cell"], size) not in merged.finished
    ]
    if missing:
        cell, size = missing[0]
        raise InputError(
            f"{len(missing)} rows are in none of the parts, the first of cell {cell} at {size} B",
            hint="run the missing parts, or those that were interrupted with --resume",
        )
    return merged


def merge_costs(parts: Sequence[Path], manifest: Mapping[str, Any], folder: Path) -> list[str]:
    """Write the costs of the cells of all parts of a sweep, in the order of the complete sweep.

    Nothing is written if the parts have no costs.
    """
    header = ""
    lines: dict[str, str] = {}
    for part in parts:
        costs = place_of_results(part) / COSTS
        if not costs.is_file():
            continue
        header, *rows = costs.read_text(encoding="utf-8").splitlines(keepends=True)
        lines |= {row.partition(",")[0]: row for row in rows}
    if not lines:
        return []
    cells = dict.fromkeys(point["cell"] for point in manifest["points"])
    ordered = [lines[cell] for cell in cells if cell in lines]
    return [str(write_text(folder / COSTS, "".join([header, *ordered])))]


def rows_in_order(finished: Mapping[Key, Row], manifest: Mapping[str, Any]) -> list[Row]:
    """The rows that a folder has, in the order of its cells."""
    rows = []
    for point in manifest["points"]:
        if "error" in point:
            rows.append(
                Row(
                    scenario=manifest["scenario"],
                    cell=point["cell"],
                    status="invalid",
                    model_version=str(manifest["versions"]["model"]),
                    error=point["error"],
                    axes=point["axes"],
                )
            )
            continue
        for size in point["sizes"]:
            row = finished.get((point["cell"], size))
            if row is not None:
                common = {"scenario": manifest["scenario"], "axes": point["axes"]}
                rows.append(replace(row, **common, size_asked=size or None))
    return rows


def _check_same_sweep(
    part: Path, part_manifest: Mapping[str, Any], first: Path, manifest: Mapping[str, Any]
) -> None:
    """Raise an InputError if the folder `part` is of another sweep than `manifest`, or was computed
    by another version of netsim.

    `part_manifest` is the manifest of `part`; `first` is the folder that `manifest` is from, for
    messages.
    """
    for name, difference in SHARED_KEYS.items():
        if part_manifest.get(name) != manifest.get(name):
            raise InputError(f"{part}: holds {difference} than {first}")
    part_version = _version_text(part_manifest)
    first_version = _version_text(manifest)
    if part_version != first_version:
        raise InputError(f"{part}: was computed by {part_version}, {first} by {first_version}")


def _version_text(manifest: Mapping[str, Any]) -> str:
    """The version of netsim that wrote a folder, in words."""
    versions = manifest.get("versions", {})
    return f"netsim {versions.get('netsim')} (model {versions.get('model')})"


def _check_shard(
    part: Path, shard: list[int] | None, first: list[int] | None, places: dict[int, Path]
) -> None:
    """Note in `places` (folder by number of the part) that the folder `part` holds part `shard` =
    [number, number of parts] of a sweep.

    `first` is the same pair of the first folder. Raises an InputError if a part is present twice,
    or if the two sweeps were divided into different numbers of parts.
    """
    number, parts = shard or (0, 0)
    if number in places:
        part_text = f"part {number} of {parts}" if shard else "the whole"
        raise InputError(
            f"{part}: is {part_text}, as {places[number]} is", hint="name each part once"
        )
    if first and shard and parts != first[1]:
        raise InputError(f"{part}: is one of {parts} parts, {places[first[0]]} one of {first[1]}")
    places[number] = part


def rows_of(place: Path, tell: Tell) -> Folder:
    """The rows in the journal of a folder; `tell` receives messages on damaged lines."""
    try:
        with Journal.open_to_read(place / JOURNAL) as journal:
            folder = Folder(place, place, journal)
            read_journal(folder)
    except FileNotFoundError:
        raise InputError(f"{place}: holds no {JOURNAL}") from None
    except OSError as error:
        raise InputError(f"{place / JOURNAL}: cannot be read: {error.strerror}") from None
    for text in few_of(folder.journal.damage):
        tell(text)
    return folder
