"""A results folder belongs to one scenario and verb, and is replaced as a whole or not at all."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from netsim.base.errors import InputError
from netsim.results import workspace
from netsim.results.folder import open_folder, rows_of
from netsim.results.row import Row
from netsim.results.workspace import (
    COMPLETE_FOLDER,
    MANIFEST,
    PARTIAL_FOLDER,
    OutputFolder,
    adding_to,
    lock_and_finish,
    place_of_results,
    read_manifest,
)

OLD = {"old.svg": "old", "pictures/a.svg": "old"}
NEW = {"new.svg": "new", "pictures/a.svg": "new", "pictures/b.svg": "new"}


def about(
    path: str = "/s.yaml", text: str = "a", cells: tuple[str, ...] = ("c",)
) -> dict[str, Any]:
    points = [{"cell": cell, "sizes": [8], "axes": {}} for cell in cells]
    return {"file": path, "path": path, "sha256": text, "points": points}


def run(folder: Path, time_us: float, files: dict[str, str], **options: Any) -> None:
    """Leave results of one row, and files beside them."""
    given = {"resume": False, "about": about(), **options}
    with open_folder(folder, "s", **given) as results:
        results.record(("c", 8), Row(scenario="s", cell="c", time_us=time_us), {})
        results.write_results([*results.finished.values()], [])
        for name, text in files.items():
            file = results.place / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)


def interrupt(folder: Path, manifest: dict[str, Any]) -> None:
    """Begin a run of one row (2 us), and interrupt it after that."""

    def begin() -> None:
        with open_folder(folder, "s", resume=False, about=manifest) as results:
            results.record(("c", 8), Row(cell="c", time_us=2.0), {})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_a_rerun_removes_the_files_of_the_earlier_run_and_no_other(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out, 1.0, OLD)
    mine = ("pictures/notes.txt", "links-of-mine.csv", "explain-my.md", "pictures/sub/busbw.svg")
    for name in mine:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("mine")
    run(out, 2.0, NEW)
    left = contents(out)
    assert {name: left.pop(name) for name in mine} == dict.fromkeys(mine, b"mine")
    own = {"results.csv", "journal.jsonl", "timings.csv", MANIFEST}
    assert left.keys() == own | NEW.keys()
    assert {name: left[name].decode() for name in NEW} == NEW
    assert set(read_manifest(out)["files"]) == (own | NEW.keys()) - {MANIFEST}


def test_a_file_of_the_user_that_is_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out, 1.0, {})
    before = contents(out)
    (out / "new.svg").write_text("mine")
    with pytest.raises(InputError, match=r"new\.svg: was not written by netsim"):
        run(out, 2.0, NEW)
    assert {name: (out / name).read_bytes() for name in before} == before
    assert (out / "new.svg").read_text() == "mine"
    (out / "new.svg").unlink()
    run(out, 3.0, NEW, resume=True)  # the row of the second run is still there
    assert rows_of(out, print).finished[("c", 8)].time_us == 3.0
    assert not (out / PARTIAL_FOLDER).exists()


@pytest.mark.parametrize("name", ["results.csv", "pictures"])
def test_a_folder_or_file_in_the_way_stops_the_replacement(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    run(out, 1.0, {})
    if name == "pictures":
        (out / name).write_text("a file")
    else:
        (out / name).unlink()
        (out / name).mkdir()
    with pytest.raises(InputError, match="was not written by netsim, and is in the way"):
        run(out, 2.0, NEW)
    assert rows_of(out, print).finished[("c", 8)].time_us == 1.0
    assert rows_of(out / PARTIAL_FOLDER, print).finished[("c", 8)].time_us == 2.0


def test_an_interrupted_rerun_leaves_the_results_and_keeps_its_rows(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out, 1.0, OLD)
    before = contents(out)
    interrupt(out, about())
    after = contents(out)
    assert {name: after[name] for name in before} == before
    with open_folder(out, "s", resume=True, about=about()) as results:
        assert results.finished[("c", 8)].time_us == 2.0
    told: list[int] = []
    with open_folder(out, "s", resume=False, about=about()) as results:
        told.append(results.discarded)
        assert not results.finished
    assert told == [1]
    assert contents(out) == before


def killed_at(call: int, work: Callable[[], None]) -> bool:
    """Do some work in a process that ends, as by SIGKILL, before the call of that number that
    changes a folder. Returns whether it came to its end before."""
    child = os.fork()
    if child == 0:
        left = [call]

        def counted(change: Callable[..., Any]) -> Callable[..., Any]:
            def changed(*given: Any, **options: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)
                return change(*given, **options)

            return changed

        for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
            setattr(os, name, counted(getattr(os, name)))
            setattr(Path, name, counted(getattr(Path, name)))
        with suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9)
    return code == 0


@pytest.mark.slow
def test_a_kill_at_any_instant_leaves_the_old_or_the_new_results(tmp_path: Path) -> None:
    old, new, out = tmp_path / "old", tmp_path / "new", tmp_path / "out"
    run(old, 1.0, OLD)
    shutil.copytree(old, new)
    run(new, 2.0, NEW)
    whole = [contents(old), contents(new)]
    results = [files["results.csv"] for files in whole]
    seen: set[int] = set()
    for call in range(200):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(old, out)
        is_over = killed_at(call, lambda: run(out, 2.0, NEW))
        assert (out / "results.csv").read_bytes() in results
        os.close(lock_and_finish(out))  # as whatever verb opens the folder next
        found = contents(out)
        unfinished = {name for name in found if name.startswith(PARTIAL_FOLDER)}
        found = {name: content for name, content in found.items() if name not in unfinished}
        assert found in whole
        seen.add(whole.index(found))
        if unfinished and f"{PARTIAL_FOLDER}/results.csv" in unfinished:
            rows = rows_of(out / PARTIAL_FOLDER, print).finished
            assert [row.time_us for row in rows.values()] == [2.0]
        assert not (out / COMPLETE_FOLDER).exists()
        if is_over:
            break
    assert is_over
    assert call > 15
    assert seen == {0, 1}


def test_a_folder_belongs_to_a_scenario_by_its_path_and_content(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out, 1.0, {}, about=about("/a/s.yaml", "one"))
    before = contents(out)
    for other, message in (
        (about("/b/s.yaml", "two"), "results of /a/s.yaml, not of /b/s.yaml"),
        (about("/b/s.yaml", "one", ("d",)), "results of /a/s.yaml, not of /b/s.yaml"),
        (about("", "two"), "results of /a/s.yaml"),
        (about("/a/s.yaml", "one") | {"shard": [1, 2]}, "all parts of a sweep, not part 1 of 2"),
    ):
        for resume in (False, True):
            with pytest.raises(InputError, match=message):
                run(out, 2.0, {}, about=other, resume=resume)
            assert contents(out) == before
    for verb in ("optimize", "merge"):
        with pytest.raises(InputError, match="out: holds the results of netsim run"):
            run(out, 2.0, {}, about=about("/a/s.yaml", "one"), verb=verb)
        assert contents(out) == before
    run(out, 2.0, {}, about=about("/a/s.yaml", "edited"))
    run(out, 3.0, {}, about=about("/copied/s.yaml", "edited"))
    assert rows_of(out, print).finished[("c", 8)].time_us == 3.0


def test_an_unfinished_run_of_another_scenario_is_not_dropped(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupt(out, about("/a.yaml", "a"))
    with pytest.raises(InputError, match=r"holds the results of /a\.yaml"):
        run(out, 1.0, {}, about=about("/b.yaml", "b"))
    (out / "notes.txt").write_text("mine")
    run(out, 1.0, {}, about=about("/a.yaml", "a"), resume=True)
    assert (out / "notes.txt").read_text() == "mine"


def test_an_older_folder_is_replaced_without_touching_what_may_be_of_the_user(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    run(out, 1.0, {"busbw.svg": "old", "links-of-mine.csv": "mine"})
    manifest = read_manifest(out)
    older = '{"scenario": "s", "file": "/s.yaml", "sha256": "a"}\n'
    (out / MANIFEST).write_text(older)
    assert "files" in manifest
    run(out, 2.0, {"new.svg": "new"})
    names = {file.name for file in out.iterdir()}
    assert names == {
        "results.csv",
        "timings.csv",
        "journal.jsonl",
        MANIFEST,
        "new.svg",
        "links-of-mine.csv",
    }


def test_a_report_goes_with_the_results_that_it_speaks_of(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out, 1.0, {})
    with adding_to(out) as place:
        (place / "report.html").write_text("one")
    assert read_manifest(out)["added"] == ["report.html"]
    run(out, 1.0, {})  # the same rows
    assert (out / "report.html").read_text() == "one"
    run(out, 2.0, {})
    assert not (out / "report.html").exists()
    (out / "report.html").write_text("mine")
    with pytest.raises(InputError, match="was not written by netsim"), adding_to(out) as place:
        (place / "report.html").write_text("two")
    assert (out / "report.html").read_text() == "mine"
    assert not (out / ".added").exists()


def test_what_a_killed_report_left_goes_with_the_next_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out, 1.0, {})
    before = contents(out)
    (out / ".added" / "pictures").mkdir(parents=True)
    (out / ".added" / "pictures" / "a.svg").write_text("half of a report")
    run(out, 1.0, {})
    assert contents(out).keys() == before.keys()
    assert not (out / ".added").exists()


def test_the_results_of_an_unfinished_run_are_in_its_partial_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupt(out, about())
    assert place_of_results(out) == out / PARTIAL_FOLDER
    with adding_to(out) as place:
        (place / "report.html").write_text("of a part")
    assert (out / PARTIAL_FOLDER / "report.html").exists()
    run(out, 1.0, {}, resume=True)
    assert place_of_results(out) == out
    assert "report.html" not in contents(out)


def test_a_folder_of_another_verb_or_of_other_inputs_is_not_written(tmp_path: Path) -> None:
    logs = [str(tmp_path / name) for name in ("a.log", "b.log")]
    for log in logs:
        Path(log).write_text("a log")
    out = OutputFolder(tmp_path / "out", "compare", (logs[0],))

    def write(text: str) -> Callable[[Path], list[Path]]:
        def written(place: Path) -> list[Path]:
            (place / "results.csv").write_text(text)
            return [place / "results.csv"]

        return written

    assert out.write(write("one")) == [out.path / "results.csv"]
    out.write(write("two"))
    assert (out.path / "results.csv").read_text() == "two"
    for other, message in (
        (OutputFolder(out.path, "compare", (logs[1],)), "not of"),
        (OutputFolder(out.path, "explain", (logs[0],)), "results of netsim compare"),
    ):
        with pytest.raises(InputError, match=message):
            other.write(write("three"))
        assert (out.path / "results.csv").read_text() == "two"
    with pytest.raises(InputError, match="holds files that are no results"):
        OutputFolder(tmp_path, "compare", (logs[0],)).write(write("three"))


def test_only_a_journal_counts_as_netsims_in_a_folder_without_a_manifest() -> None:
    """A user's plan.json in a folder of an interrupted first run used to be removed."""
    assert workspace._listed({}) == ["journal.jsonl"]
    assert "results.csv" in workspace._listed({"scenario": "of an older version"})
