"""What is said of folders: in the place of a scenario, after a sweep, of unfinished runs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from netsim.base.errors import StalledError
from tests.cli.command import netsim

ROOT = str(Path(__file__).parents[2])
SCENARIO = """\
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1KiB]}
sweep: {cluster.graph.gpus: [2, 4]}
outputs: [csv]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)


def test_a_folder_in_the_place_of_a_scenario_says_what_to_run(capsys, tmp_path: Path) -> None:
    assert netsim(capsys, "run", "s.yaml", "-o", "out", "-q").code == 0
    done = netsim(capsys, "run", "out")
    assert done.code == 2
    assert f"(netsim run {tmp_path}/s.yaml -o out runs its scenario again" in done.err
    Path("one").mkdir()
    Path("one/x.yaml").write_text(SCENARIO)
    assert "(did you mean one/x.yaml?)" in netsim(capsys, "run", "one").err
    Path("one/y.yaml").write_text(SCENARIO)
    assert "(it has one/x.yaml, one/y.yaml)" in netsim(capsys, "run", "one").err
    Path("none").mkdir()
    assert netsim(capsys, "run", "none").code == 2


def test_a_sweep_says_in_one_line_what_it_wrote(capsys) -> None:
    Path("s.yaml").write_text(SCENARIO.replace("[csv]", "[csv, trace]"))
    done = netsim(capsys, "run", "s.yaml", "-o", "out")
    lines = [line for line in done.err.splitlines() if line.startswith("wrote ")]
    count = sum(path.is_file() for path in Path("out").rglob("*")) - 2  # run.json, the journal
    assert lines == [f"wrote {count} files to out: results.csv and others"]


def test_a_short_name_suggests_what_it_stands_for(capsys) -> None:
    done = netsim(capsys, "expect", "dgx-h100", "all_reduce", "--transport", "ib")
    assert done.code == 2
    assert "(did you mean infiniband?)" in done.err


def test_more_nics_than_a_machine_has_are_pointed_out(capsys) -> None:
    common = ("expect", "dgx-h100", "all_reduce", "--nodes", "2", "--sizes", "8", "--nics-per-node")
    assert "more than the 8 NICs of a dgx-h100" in netsim(capsys, *common, "9").err
    assert "warning" not in netsim(capsys, *common, "8").err


@pytest.mark.slow
def test_options_of_a_report_that_explains_nothing_say_so(capsys) -> None:
    assert netsim(capsys, "run", "s.yaml", "-o", "out", "-q").code == 0
    done = netsim(capsys, "report", "out", "--no-explain", "--trust")
    assert done.code == 0
    assert "--trust has no effect with --no-explain" in done.err


@pytest.mark.slow
def test_a_report_of_a_resumed_run_is_not_that_of_the_rows_before(capsys) -> None:
    assert netsim(capsys, "run", "s.yaml", "-o", "out", "-q").code == 0
    assert netsim(capsys, "report", "out", "--no-explain").code == 0
    Path("s.yaml").write_text(SCENARIO.replace("[2, 4]", "[2, 4, 6, 8]"))
    assert netsim(capsys, "run", "s.yaml", "-o", "out", "-q", "--resume").code == 0
    assert not Path("out/report.html").exists()
    assert not Path("out/pictures").exists()
    assert len(Path("out/results.csv").read_text().splitlines()) == 1 + 4


@pytest.mark.full
def test_a_killed_rerun_keeps_the_results_and_its_own_rows(capsys) -> None:
    long = SCENARIO.replace("[2, 4]", "[2, 4, 40, 42, 44]").replace("1KiB", "1KiB, 16MiB")
    Path("s.yaml").write_text(long)
    assert netsim(capsys, "run", "s.yaml", "-o", "out", "-q", "--engine", "simpy").code == 0
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    command = [sys.executable, "-m", "netsim", "run", "s.yaml", "-o", "out", "-q", "--jobs", "1"]
    process = subprocess.Popen(
        [*command, "--engine", "simpy"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    journal = Path("out/.partial/journal.jsonl")
    while process.poll() is None and not (journal.is_file() and journal.stat().st_size):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if process.returncode == 0:
        pytest.skip("it was over too soon")
    assert {path: path.read_bytes() for path in before} == before
    assert journal.read_bytes().count(b"\n") >= 1
    report = netsim(capsys, "report", "out", "--no-explain")
    assert "out: a later run did not end and is not reported" in report.err
    kept = journal.read_bytes().splitlines()[0]
    more = ("--resume", "--engine", "simpy")
    assert netsim(capsys, "run", "s.yaml", "-o", "out", "-q", *more).code == 0
    assert kept in Path("out/journal.jsonl").read_bytes()
    assert Path("out/results.csv").read_bytes() == before[Path("out/results.csv")]
    assert not Path("out/.partial").exists()


@pytest.mark.slow
def test_failed_rows_do_not_replace_rows_that_are_sound(capsys, monkeypatch) -> None:
    assert netsim(capsys, "run", "s.yaml", "-o", "out", "-q").code == 0
    before = Path("out/results.csv").read_bytes()

    def fail(*given: object, **options: object) -> None:
        raise StalledError("the simulation cannot finish")

    with monkeypatch.context() as patch:
        patch.setattr("netsim.tasks.answer.row_of_size", fail)
        done = netsim(capsys, "run", "s.yaml", "-o", "out")
    assert done.code == 3
    assert "out keeps its earlier results; the new ones are in out/.partial" in done.err
    assert Path("out/results.csv").read_bytes() == before
    again = netsim(capsys, "run", "s.yaml", "-o", "out", "-q", "--resume")
    assert (again.code, again.err) == (0, "2 rows that failed are tried again\n")
    assert Path("out/results.csv").read_bytes() == before


def test_a_search_of_which_every_cell_fails_keeps_the_earlier_answer(capsys, monkeypatch) -> None:
    assert netsim(capsys, "optimize", "s.yaml", "-o", "out", "-q").code == 0
    before = {path: path.read_bytes() for path in Path("out").iterdir()}

    def fail(*given: object, **options: object) -> None:
        raise StalledError("the simulation cannot finish")

    monkeypatch.setattr("netsim.tasks.answer.row_of_size", fail)
    done = netsim(capsys, "optimize", "s.yaml", "-o", "out", "-q")
    assert done.code == 2
    assert "(see out/.partial/results.csv)" in done.err
    assert {path: path.read_bytes() for path in before} == before
