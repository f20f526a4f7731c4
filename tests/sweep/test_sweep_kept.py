"""What a sweep keeps when something goes wrong: failed rows, full disks, two sweeps at once."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from netsim.base.errors import NetsimError
from netsim.results.folder import open_folder
from netsim.results.row import Row
from netsim.results.workspace import MANIFEST
from netsim.sweep import run
from netsim.tasks.answer import answer
from tests.bench import kills
from tests.cli.command import netsim

SWEEP = """\
name: kept
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [64KiB, 1MiB]}
sweep: {cluster.graph.gpus: [2, 4, 6, 8]}
outputs: [csv]
"""
ALIKE = ("results.csv", MANIFEST)
NOBODY = 2**22 + 1  # no process has such a number


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text(SWEEP)


@pytest.fixture
def whole(capsys) -> dict[str, bytes]:
    assert netsim(capsys, "run", "sweep.yaml", "-o", "whole", "-q").code == 0
    return {name: (Path("whole") / name).read_bytes() for name in ALIKE}


def left() -> dict[str, bytes]:
    return {name: (Path("out") / name).read_bytes() for name in ALIKE}


@pytest.mark.slow
def test_rows_that_failed_are_tried_again(capsys, monkeypatch, whole) -> None:
    usual = answer

    def failing(resolved: Any, size: int, **options: Any) -> Row:
        if size == 2**20 and len(resolved.topology) > 4:
            raise NetsimError("no room")
        return usual(resolved, size, **options)

    monkeypatch.setattr(run, "answer", failing)
    done = netsim(capsys, "run", "sweep.yaml", "-o", "out", "-q")
    assert (done.code, done.err) == (2, "no room\n2 of 8 rows failed, see results.csv\n")
    again = netsim(capsys, "run", "sweep.yaml", "-o", "out", "-q", "--resume")
    assert (again.code, again.err.splitlines()[0]) == (2, "2 rows that failed are tried again")
    monkeypatch.setattr(run, "answer", usual)
    last = netsim(capsys, "run", "sweep.yaml", "-o", "out", "-q", "--resume")
    assert (last.code, last.err) == (0, "2 rows that failed are tried again\n")
    assert left() == whole


# From bytes that not even the manifest fits into, to all but the last rows.
@pytest.mark.full
@pytest.mark.parametrize("most", [100, 2500, 5000])
def test_a_full_disk_is_one_message_and_loses_nothing(capsys, whole, most: int) -> None:
    limited = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from netsim.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", limited, "run", "sweep.yaml", "-o", "out", "-q"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "cannot be written: File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    unfinished = Path("out/.partial/journal.jsonl")  # gone if not even one row was written
    kept = unfinished.read_text() if unfinished.exists() else ""
    assert not kept or kept.endswith("\n")
    again = netsim(capsys, "run", "sweep.yaml", "-o", "out", "-q", "--resume")
    assert (again.code, again.err) == (0, "")
    assert Path("out/journal.jsonl").read_text().startswith(kept)
    assert left() == whole


@pytest.mark.slow
def test_two_sweeps_in_one_folder_are_refused(capsys) -> None:
    with open_folder(Path("out"), "kept", resume=False):
        done = netsim(capsys, "run", "sweep.yaml", "-o", "out", "-q", "--resume")
        assert (done.code, done.err) == (2, "out: another run is writing here\n")
    assert netsim(capsys, "run", "sweep.yaml", "-o", "out", "-q", "--resume").code == 0


@pytest.mark.slow
def test_results_of_something_else_are_refused(capsys, whole) -> None:
    other = netsim(capsys, "run", "sweep.yaml", "-o", "whole", "-q", "--set", "name=other")
    assert other.err == (
        "whole: holds the results of scenario 'kept' (choose another folder with -o)\n"
    )
    Path("mine").mkdir()
    Path("mine/results.csv").write_text("a,b\n1,2\n")
    mine = netsim(capsys, "run", "sweep.yaml", "-o", "mine", "-q")
    assert mine.err == "mine: holds files that are no results (choose another folder with -o)\n"
    assert Path("mine/results.csv").read_text() == "a,b\n1,2\n"
    assert Path("whole/results.csv").read_bytes() == whole["results.csv"]


@pytest.mark.slow
def test_what_a_killed_run_had_half_written_goes_away(capsys, whole) -> None:
    Path("out").mkdir()  # killed before it had so much as a manifest
    for name in ("journal.jsonl", f".{MANIFEST}.{NOBODY}.half", f".results.csv.{NOBODY}.half"):
        (Path("out") / name).write_text("")
    assert netsim(capsys, "run", "sweep.yaml", "-o", "out", "-q", "--resume").code == 0
    assert {file.name for file in Path("out").iterdir()} == {
        file.name for file in Path("whole").iterdir()
    }
    assert left() == whole


@pytest.mark.slow
def test_a_sweep_that_is_killed_halfway_ends_with_the_same_bytes(tmp_path, monkeypatch) -> None:
    few = kills.SCENARIO.replace("8, 10, 12, 14, 16, 18, 20, 22", "8, 10, 12")
    monkeypatch.setattr(kills, "SCENARIO", few)
    seed = 314  # kills it, with workers, after half the time that it takes without them
    assert kills.rounds(["jobs"], 1, seed, tmp_path) == 0
