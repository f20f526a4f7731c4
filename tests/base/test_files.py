"""Files are written whole or not at all, by whatever writes them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from netsim.base.errors import InputError
from netsim.base.files import csv_cell, csv_of, csv_value, half_written, replacing, write_text
from tests.cli.command import netsim

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_file_takes_the_place_of_the_old_one_when_it_is_whole(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.csv", "old")
    with replacing(path) as stream:
        stream.write(b"ne")
        stream.flush()
        assert path.read_text() == "old"
        assert half_written(tmp_path) == [tmp_path / f".a.csv.{os.getpid()}.half"]
        stream.write(b"w")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_old_file_stays_when_writing_ends_early(error: type, tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.csv", "old")

    def write() -> None:
        with replacing(path) as stream:
            stream.write(b"new")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.csv"]


def test_a_link_stays_one_and_a_device_takes_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    link = tmp_path / "a.csv"
    link.symlink_to(tmp_path / "to" / "b.csv")
    for text in ("old", "new"):
        write_text(link, text)
        assert (link.is_symlink(), (tmp_path / "to" / "b.csv").read_text()) == (True, text)
    assert (names(tmp_path), names(tmp_path / "to")) == (["a.csv", "to"], ["b.csv"])
    ours, theirs = os.openpty()
    write_text(Path(os.ttyname(theirs)), "told\n")
    assert os.read(ours, 99).split() == [b"told"]
    assert Path(os.ttyname(theirs)).is_char_device()


def test_what_a_killed_process_had_begun_of_a_file_goes_when_it_is_written(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    alive, other = f".a.csv.{os.getppid()}.half", f".b.csv.{gone.pid}.half"
    for name in (alive, other, f".a.csv.{gone.pid}.half", f".a.csv.{'9' * 30}.half"):
        (tmp_path / name).write_text("")
    write_text(tmp_path / "a.csv", "new")
    assert names(tmp_path) == sorted([alive, other, f".a.csv.{'9' * 30}.half", "a.csv"])


def test_a_place_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none/a\.csv: cannot be written: No such file"):
        write_text(tmp_path / "none/a.csv", "new")


def limited(most: int, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that cannot write files of more than so many bytes."""
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from netsim.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
    )


SCENARIO = """\
name: room
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [64KiB, 1MiB]}
"""


@pytest.mark.full
@pytest.mark.usefixtures("pictures")
def test_without_room_pictures_traces_and_reports_stay_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "room.yaml").write_text(SCENARIO + "outputs: [csv, plots, trace, report]\n")
    monkeypatch.chdir(tmp_path)
    assert netsim(capsys, "run", "room.yaml", "-q", "-o", "out").code == 0
    out = tmp_path / "out"
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert {"trace.json.gz", "trace.csv", "links.csv", "busbw.png", "busbw.svg", "report.html"} <= {
        path.name for path in before
    }
    for verb in ("report", "plot"):
        done = limited(4000, tmp_path, verb, "out")
        assert done.returncode == 2, verb
        told = done.stderr.splitlines()
        assert all(line.endswith("cannot be written: File too large") for line in told)
        assert 1 <= len(told) <= 2  # the drawing of the topology, and the first picture
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_trace_that_has_no_room_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "room.yaml").write_text(SCENARIO + "outputs: [csv, trace]\n")
    done = limited(2700, tmp_path, "run", "room.yaml", "-q", "-o", "out")
    assert done.returncode == 2
    assert done.stderr == "out/trace.csv: cannot be written: File too large\n"
    assert "trace.csv" not in names(tmp_path / "out")
    assert not half_written(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(A1)",
        "'=1",
        "''@x",
        "\t=1",
        "'x",
        "plain",
        "-",
        "=",
        "a=b",
        "-5",
        "+1e-3",
        "1",
        "-inf",
        "nan",
        "it's",
        "",
    ],
)
def test_no_spreadsheet_runs_a_cell_and_it_is_read_back(text: str) -> None:
    cell = csv_cell(text)
    assert csv_value(cell) == text
    number = re.fullmatch(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?|-inf", text)
    assert number or not re.match(r"[=+\-@\t]", cell)
    assert not number or cell == text


def test_lines_of_csv_read_back() -> None:
    text = csv_of([("a", "=b"), (0.1, None), ("-x", True), ("q\n=1", -3)])
    assert text == "a,'=b\n0.1,\n'-x,True\n\"q\n=1\",-3\n"


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    assert csv_cell(np.float64(7.25)) == csv_cell(7.25) == "7.25"
