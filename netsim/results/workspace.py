"""A results folder: whose it is, where a run writes, and how new results replace earlier ones.

A results folder `DIR` belongs to one verb and one scenario, and has these parts:

    DIR/run.json         the manifest of complete results, with the list of files that netsim wrote
    DIR/results.csv, …   complete results
    DIR/.partial/        a run that has not come to its end: its journal, its manifest, its outputs
    DIR/.complete/       a run that came to its end, while its files are moved to DIR

A run writes into `.partial` only. When all its files are there and synced, `.partial` is renamed to
`.complete`: one atomic step, before which the earlier results are valid and after which the new
ones are. Then the files that the earlier manifest lists are removed and the new ones are renamed
into DIR, the manifest last. A process that dies while it moves files leaves `.complete`, and
whichever verb opens the folder next finishes the move. Files that no manifest lists are not
touched, except the fixed names that an older version wrote, which listed nothing."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError, ScenarioError
from netsim.base.files import (
    LARGEST_TABLE,
    content_of,
    delete_abandoned,
    half_written,
    held,
    made_folder,
    sync_folder,
    write_text,
)
from netsim.base.values import dataclass
from netsim.results.journal import damaged, sealed, unsealed

MANIFEST = "run.json"
JOURNAL = "journal.jsonl"
RESULTS = "results.csv"
PARTIAL_FOLDER = ".partial"
COMPLETE_FOLDER = ".complete"
ADDED_FOLDER = ".added"  # what `report` and `plot` write, until it is all there
LOCK_FILE = ".lock"  # only where the file system cannot lock a folder
OWN_FOLDERS = (PARTIAL_FOLDER, COMPLETE_FOLDER, ADDED_FOLDER)
ELSEWHERE = "choose another folder with -o"

# Files that versions without a list in the manifest wrote. Only these exact names: pictures whose
# name depends on the sweep are left, as a file of the user's could have such a name.
FILES_OF_OLDER_VERSIONS = (
    JOURNAL, RESULTS, "results-partial.csv", "timings.csv", "breakdown.csv", "trace.csv",
    "trace.json", "trace.json.gz", "links.csv", "links_over_time.csv", "busbw.svg", "busbw.png",
    "step_time.svg", "step_time.png", "timeline.svg", "timeline.png", "links-heatmap.svg",
    "links-heatmap.png", "comparison.csv", "bands.csv", "costs.csv", "report.html",
    "breakdown.svg", "breakdown.png", "collectives.csv", "memory.csv", "distribution.csv",
    "distribution.svg", "distribution.png", "interference.csv", "interference.svg",
    "interference.png", "connections.cm", "flows.txt", "application.goal", "algorithm.xml",
    "plan.json", "best.yaml", "layouts.csv",
)  # fmt: skip


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a results folder; an InputError says why there is none."""
    path = folder / MANIFEST
    try:
        content = content_of(path, LARGEST_TABLE, is_binary=True)
    except ScenarioError as error:
        if path.exists():
            raise InputError(f"{path}: not written by netsim: {error.message}") from None
        hint = "expected a folder that netsim run has written"
        raise InputError(f"{folder}: holds no {MANIFEST}", hint=hint) from None
    try:
        manifest = unsealed(content)
    except ValueError as error:
        hint = "netsim run with --resume writes it anew and keeps the rows"
        raise InputError(damaged(path, 1, error), hint=hint) from None
    if not isinstance(manifest.get("scenario"), str):
        raise InputError(f"{path}: not written by netsim")
    return manifest


# Who owns a folder


def check_owner(folder: Path, earlier: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise an InputError unless results with the manifest `wanted` may replace `earlier` ones.

    They may if verb, scenario name and shard (part k of n of a sweep) are equal, and the scenario
    is the same file or has the same text and the same cells. A verb, path or digest that an older
    manifest lacks is not compared."""
    earlier_verb = str(earlier.get("verb") or wanted.get("verb"))
    if earlier_verb != wanted.get("verb"):
        raise InputError(f"{folder}: holds the results of netsim {earlier_verb}", hint=ELSEWHERE)
    if earlier.get("scenario") != wanted.get("scenario"):
        name = earlier.get("scenario")
        raise InputError(f"{folder}: holds the results of scenario {name!r}", hint=ELSEWHERE)
    if not _is_same_scenario(earlier, wanted):
        message = f"{folder}: holds the results of {_origin(earlier)}, not of {_origin(wanted)}"
        raise InputError(message, hint=ELSEWHERE)
    if earlier.get("shard") != wanted.get("shard"):
        message = f"{folder}: holds {_part(earlier)}, not {_part(wanted)}"
        raise InputError(message, hint=ELSEWHERE)


def _is_same_scenario(earlier: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether two manifests are of the same scenario file, or of equal text and cells."""
    if "sha256" not in earlier or "sha256" not in wanted:
        return True  # a manifest without a digest only has a name
    if earlier.get("path") and earlier.get("path") == wanted.get("path"):
        return True  # the same file, which may have been edited
    if earlier["sha256"] != wanted["sha256"]:
        # Older manifests have the file as it was written on the command line.
        return "path" not in earlier and earlier.get("file") == wanted.get("file")
    return "path" not in earlier or _cell_names(earlier) == _cell_names(wanted)


def _cell_names(manifest: Mapping[str, Any]) -> list[Any]:
    """The ids of all cells: other machine files beside an equal text make other cells."""
    return [point.get("cell") for point in manifest.get("points", ())]


def _origin(manifest: Mapping[str, Any]) -> str:
    """The scenario file of a manifest, or the name of the scenario."""
    return str(manifest.get("path") or manifest.get("file") or manifest.get("scenario"))


def _part(manifest: Mapping[str, Any]) -> str:
    """The part of a sweep that a manifest describes, in words."""
    shard = manifest.get("shard")
    return f"part {shard[0]} of {shard[1]}" if shard else "all parts of a sweep"


# Opening


@dataclass
class Workspace:
    """The place in which one process writes new results of a folder; `place` is
    `folder`/.partial."""

    folder: Path
    place: Path
    lock: int  # a file descriptor

    def close(self) -> None:
        """Release the lock, so that other processes can write into the folder."""
        os.close(self.lock)

    def has_earlier_results(self) -> bool:
        """Whether the folder has complete results, which a new run would replace."""
        return (self.folder / RESULTS).is_file()


def lock_folder(folder: Path) -> int:
    """Lock a folder and return the descriptor; an InputError if another process holds the lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder)
        return descriptor
    except OSError:  # network file systems lock files that are open for writing only
        os.close(descriptor)
    except InputError:
        os.close(descriptor)
        raise
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(descriptor, folder)
    except OSError as error:
        os.close(descriptor)
        raise InputError(f"{folder}: cannot be locked: {error.strerror}") from None
    except InputError:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, folder: Path) -> None:
    """Lock an open folder; an InputError if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{folder}: another run is writing here") from None


def check_place(folder: Path) -> None:
    """Raise an InputError if results cannot be written to a folder; nothing is made or changed."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: expected a folder for results, got a file")
    above = folder
    while not above.exists() and above != above.parent:
        if above.is_symlink():
            raise InputError(f"{above}: a link that leads nowhere", hint=ELSEWHERE)
        above = above.parent
    if not above.is_dir():
        raise InputError(f"{folder}: cannot be made: {above} is not a folder", hint=ELSEWHERE)
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot be written to", hint=ELSEWHERE)


def open_workspace(folder: Path) -> Workspace:
    """Lock a folder, which is made if it is missing, and finish the move of a process that was
    killed.

    Whether the results belong to this scenario is checked elsewhere: see `check_owner`.
    """
    check_place(folder)
    lock = lock_folder(made_folder(folder))
    try:
        _finish_move(folder)
        delete_abandoned(folder)
        _remove_added(folder / ADDED_FOLDER)
        place = folder / PARTIAL_FOLDER
        _check_own_folder(place)
    except BaseException:
        os.close(lock)
        raise
    return Workspace(folder, place, lock)


def _check_own_folder(place: Path) -> None:
    """Raise an InputError if something else has the name of one of netsim's folders."""
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise InputError(f"{place}: is not a folder that netsim made", hint=ELSEWHERE)
    if not place.is_dir():
        return
    names = {entry.name for entry in place.iterdir()} - {file.name for file in half_written(place)}
    if names and not names & {JOURNAL, MANIFEST}:
        raise InputError(f"{place}: holds files that netsim did not write", hint=ELSEWHERE)


def foreign_files(folder: Path) -> list[Path]:
    """The entries of a folder without a manifest that no run of netsim can have written."""
    own_files = {folder / name for name in (*OWN_FOLDERS, JOURNAL, LOCK_FILE)}
    own_files.update(half_written(folder, ".*.half"))
    return [entry for entry in folder.iterdir() if entry not in own_files]


def clear_partial(place: Path, *, but: Sequence[str] = ()) -> None:
    """Remove what an unfinished run left in its `.partial`, except for the names in `but`."""
    if not place.is_dir():
        return
    for entry in place.iterdir():
        if entry.name in but:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)


# Replacing earlier results


def replace_results(workspace: Workspace, manifest: Mapping[str, Any]) -> None:
    """Replace the earlier results of the folder by all files of the workspace.

    `manifest` is written as run.json, with the list of files. Files that `report` or `plot` added
    to the earlier results stay only if results.csv does not change, since they show its rows. An
    InputError names a file of the user that has the name of a new one; then nothing is changed.
    """
    folder = workspace.folder
    place = workspace.place
    earlier = _manifest_or_nothing(folder)
    files = _files_below(place)
    added: list[str] = []
    if _has_same_content(folder / RESULTS, place / RESULTS):
        added = [name for name in _names(earlier, "added") if name not in files]
    _refuse_to_overwrite(folder, files, earlier)
    new_manifest = {**manifest, "files": files, "added": added}
    write_text(place / MANIFEST, sealed(new_manifest))
    _sync_all(place, files)
    with held():  # an interrupt waits until all files are in place
        complete = folder / COMPLETE_FOLDER
        try:
            place.rename(complete)
        except OSError as error:
            raise InputError(f"{complete}: cannot be made: {error.strerror}") from None
        sync_folder(folder)
        _finish_move(folder)


def _finish_move(folder: Path) -> None:
    """Move the files of `.complete`, if it exists, to their places; this may be repeated."""
    complete = folder / COMPLETE_FOLDER
    if complete.is_symlink() or not complete.is_dir():
        return
    if (complete / MANIFEST).is_file():
        manifest = read_manifest(complete)
        files = _names(manifest, "files")
        stays = {*files, *_names(manifest, "added")}
        earlier = _manifest_or_nothing(folder)
        for name in _listed(earlier):
            if name not in stays:
                _remove(folder, name)
        for name in files:
            if (complete / name).is_file():
                _move(complete / name, folder / name)
        sync_folder(folder)
        _move(complete / MANIFEST, folder / MANIFEST)
        sync_folder(folder)
    _remove_empty(complete)
    sync_folder(folder)


def _move(file: Path, target: Path) -> None:
    """Rename a file; where `target` lies on another device (a linked folder), copy it there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        file.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise InputError(f"{target}: cannot be written: {error.strerror}") from None
        shutil.copyfile(file, target)
        file.unlink()


def _remove(folder: Path, name: str) -> None:
    """Delete a file that netsim wrote, and the folders that are empty without it."""
    path = folder / name
    with suppress(OSError):
        path.unlink()
    for above in path.parents:
        if above == folder or folder not in above.parents:
            return
        try:
            above.rmdir()
        except OSError:  # it holds something else
            return


def _remove_empty(folder: Path) -> None:
    """Delete a folder if it holds nothing but empty folders."""
    for above, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(above)


def _files_below(place: Path) -> list[str]:
    """The names of all files of a workspace, without its manifest and unfinished files."""
    half = set(half_written(place))
    names = [
        file.relative_to(place).as_posix()
        for file in place.rglob("*")
        if file.is_file() and file not in half
    ]
    return sorted(name for name in names if name != MANIFEST)


def _manifest_or_nothing(folder: Path) -> dict[str, Any]:
    """The manifest of a folder; an empty one if it is missing or cannot be read."""
    try:
        return read_manifest(folder)
    except InputError:
        return {}


def _names(manifest: Mapping[str, Any], key: str) -> list[str]:
    """A list of files in a manifest, without any that would lie outside of the folder."""
    listed = manifest.get(key)
    if not isinstance(listed, list):
        return []
    names = [name for name in listed if isinstance(name, str)]
    return [
        name
        for name in names
        if name and not Path(name).is_absolute() and ".." not in Path(name).parts
    ]


def _listed(manifest: Mapping[str, Any]) -> list[str]:
    """The files that netsim wrote into a folder, by its manifest.

    A manifest of an older version has no list: then the fixed names that such a version wrote.
    Without a manifest only the journal of a run that was killed early is known to be netsim's."""
    if not manifest:
        return [JOURNAL]
    if "files" in manifest:
        return [*_names(manifest, "files"), *_names(manifest, "added")]
    return [*FILES_OF_OLDER_VERSIONS, *_names(manifest, "added")]


def _refuse_to_overwrite(
    folder: Path, files: Sequence[str], earlier: Mapping[str, Any], hint: str = ""
) -> None:
    """Raise an InputError if a new file has the name of a file that netsim did not write."""
    hint = hint or f"move it away, then --resume continues; the results are in {PARTIAL_FOLDER}"
    if "files" not in earlier and (folder / MANIFEST).exists():
        return  # damaged, or of an older version, which wrote pictures that nobody listed
    ours = set(_listed(earlier))
    for name in files:
        target = folder / name
        if target.is_dir() or (name not in ours and os.path.lexists(target)):
            raise InputError(f"{target}: was not written by netsim, and is in the way", hint=hint)
        for above in Path(name).parents:
            if (folder / above).exists() and not (folder / above).is_dir():
                message = f"{folder / above}: was not written by netsim, and is in the way"
                raise InputError(message, hint=hint)


def _has_same_content(file: Path, second: Path) -> bool:
    """Whether two files have the same bytes; False if one cannot be read."""
    try:
        return file.read_bytes() == second.read_bytes()
    except OSError:
        return False


def _sync_all(place: Path, files: Sequence[str]) -> None:
    """Write files and their names to disk, so that they survive a loss of power."""
    for name in (*files, MANIFEST):
        with suppress(OSError), (place / name).open("rb") as file:
            os.fsync(file.fileno())
    for folder in {(place / name).parent for name in (*files, MANIFEST)}:
        sync_folder(folder)


@dataclass(frozen=True)
class OutputFolder:
    """A folder that a verb without a journal writes at once: `compare`, `explain`, `plot`.

    `inputs` are the files from which the results follow; results of other inputs are not replaced.
    """

    path: Path
    verb: str
    inputs: tuple[str, ...]

    @property
    def manifest(self) -> dict[str, Any]:
        """The contents of the folder's run.json, apart from the list of files."""
        names = [os.path.realpath(name) if os.path.exists(name) else name for name in self.inputs]
        text = ", ".join(names)
        return {"scenario": "", "verb": self.verb, "path": text, "sha256": text}

    def check(self) -> None:
        """Raise an InputError if the folder cannot be written, or has results of another verb or
        input."""
        check_place(self.path)
        if not self.path.is_dir():
            return
        for place in (self.path, self.path / PARTIAL_FOLDER):
            if (place / MANIFEST).exists():
                check_owner(self.path, read_manifest(place), self.manifest)
                return
        if foreign_files(self.path):
            raise InputError(f"{self.path}: holds files that are no results", hint=ELSEWHERE)

    def has_results(self) -> bool:
        """Whether there are complete results, which new ones would replace."""
        return (self.path / MANIFEST).exists()

    def write(self, write: Callable[[Path], Iterable[Path]]) -> list[Path]:
        """Call `write` with a place for all files, and replace the earlier results when it ends.

        Returns the files by their final names."""
        self.check()
        workspace = open_workspace(self.path)
        try:
            clear_partial(workspace.place)
            made_folder(workspace.place)
            files = list(write(workspace.place))
            replace_results(workspace, self.manifest)
        finally:
            clear_partial(workspace.place)
            with suppress(OSError):
                workspace.place.rmdir()
            workspace.close()
        return [self.path / file.relative_to(workspace.place) for file in files]


# Reading, and adding to results


def place_of_results(folder: Path) -> Path:
    """The folder with the results: the folder itself, or its `.partial` if no run is complete."""
    if (folder / COMPLETE_FOLDER / MANIFEST).is_file():
        os.close(lock_and_finish(folder))
    partial = folder / PARTIAL_FOLDER
    if not (folder / MANIFEST).exists() and (partial / MANIFEST).exists():
        return partial
    return folder


def lock_and_finish(folder: Path) -> int:
    """Lock a folder and finish the move of a process that was killed; return the descriptor of
    the lock."""
    lock = lock_folder(folder)
    try:
        _finish_move(folder)
    except BaseException:
        os.close(lock)
        raise
    return lock


@contextmanager
def adding_to(folder: Path) -> Iterator[Path]:
    """Yield a place for files that are added to results (a report, pictures); move them at the end.

    They replace such files of earlier times. They are listed in the manifest, so that they are
    deleted when the results are replaced. If no run is complete, they are added to its `.partial`.
    If the `with` block fails, nothing is added.
    """
    lock = lock_and_finish(folder)
    folder = place_of_results(folder)
    place = folder / ADDED_FOLDER
    try:
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise InputError(f"{place}: is not a folder that netsim made")
        clear_partial(place)
        made_folder(place)
        try:
            yield place
            _add(folder, place)
        finally:
            _remove_added(place)
    finally:
        os.close(lock)


def _remove_added(place: Path) -> None:
    """Delete the unfinished files of a report or a plot."""
    if place.is_symlink() or not place.is_dir():
        return
    clear_partial(place)
    with suppress(OSError):
        place.rmdir()


def _add(folder: Path, place: Path) -> None:
    """Move all files below `place` into the results `folder`. Before that, list them in the
    manifest of the folder as added. Refuses to overwrite files that netsim did not write.
    """
    manifest = _manifest_or_nothing(folder)
    files = _files_below(place)
    _refuse_to_overwrite(folder, files, manifest, "move it away, and try again")
    if manifest and folder.name != PARTIAL_FOLDER:
        ours = _names(manifest, "files")
        added = sorted({*_names(manifest, "added"), *(name for name in files if name not in ours)})
        if added != manifest.get("added"):
            write_text(folder / MANIFEST, sealed({**manifest, "added": added}))
    with held():
        for name in files:
            _move(place / name, folder / name)
        sync_folder(folder)
