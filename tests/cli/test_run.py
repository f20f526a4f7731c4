"""`netsim run` as people and scripts use it: tables, files, settings, interruption, resumption."""

import csv
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from netsim.base.errors import StalledError
from netsim.base.startup import __version__
from netsim.results.folder import open_folder
from netsim.results.row import COLUMNS, Row
from netsim.tasks.row import row_of_size
from tests.cli.command import netsim

SWEEP = """\
name: sweep
cluster:
  graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}
workload:
  collective: all_reduce
  algorithm: ring
  sizes: [64KiB, 1MiB, 16MiB]
sweep:
  cluster.graph.gpus: [2, 3, 4, 8]
  workload.algorithm: [ring, tree]
outputs: [csv]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text(SWEEP)


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_results_have_the_columns_that_scripts_rely_on(capsys) -> None:
    assert netsim(capsys, "run", "sweep.yaml", "-q").code == 0
    found = rows("reports/sweep/results.csv")
    axes = ["axis:cluster.graph.gpus", "axis:workload.algorithm"]
    assert list(found[0]) == [*COLUMNS, *axes]
    assert len(found) == 4 * 2 * 3
    first = found[0]
    assert (first["ranks"], first["algorithm"], first["size_bytes"]) == ("2", "ring", "65536")
    expected = 2 * (1e-6 + 65536 / 2 / 50e9)
    assert float(first["time_us"]) == pytest.approx(expected * 1e6, rel=1e-9)
    assert float(first["busbw_GBps"]) == pytest.approx(65536 / expected / 1e9, rel=1e-9)
    assert first["validated"] == "not validated"
    assert [row[axes[0]] for row in found[::6]] == ["2", "3", "4", "8"]


@pytest.mark.slow
def test_formats(capsys) -> None:
    common = ["run", "sweep.yaml", "-q", "--set", "sweep={}"]
    as_csv = netsim(capsys, *common, "--format", "csv")
    assert as_csv.out == Path("reports/sweep/results.csv").read_text()
    as_json = netsim(capsys, *common, "--format", "json")
    assert [row["size_bytes"] for row in json.loads(as_json.out)] == [65536, 2**20, 2**24]
    plain = netsim(capsys, *common, "--format", "nccl-tests").out
    data = [line.split() for line in plain.splitlines() if not line.startswith("#")]
    assert [len(line) for line in data] == [13, 13, 13]
    assert data[1][:5] == ["1048576", "262144", "float", "sum", "-1"]
    assert re.search(r"^# Avg bus bandwidth    : [0-9.]+ $", plain, re.MULTILINE)
    size, time_us, algbw = float(data[2][0]), float(data[2][5]), float(data[2][6])
    assert algbw == pytest.approx(size / time_us / 1e3, abs=0.01)


TRACED = ("-q", "--set", "outputs=[csv,trace]", "--set", "workload.sizes=[1MiB]")


def traced(folder: str) -> dict[str, str]:
    """What the trace and the breakdown of a folder say that they are of."""
    with gzip.open(f"{folder}/trace.json.gz", "rt") as file:
        told = json.load(file)["otherData"]
    assert {row["cell"] for row in rows(f"{folder}/breakdown.csv")} == {told["cell"]}
    return told


@pytest.mark.slow
def test_a_trace_is_of_the_best_cell_and_of_the_one_that_is_asked_for(capsys) -> None:
    assert netsim(capsys, "run", "sweep.yaml", *TRACED, "-o", "best").code == 0
    found = rows("best/results.csv")
    best = min(found, key=lambda row: float(row["time_us"]))
    assert traced("best")["cell"] == best["cell"]
    asked = netsim(capsys, "run", "sweep.yaml", *TRACED[1:], "--cell", "algorithm=tree,gpus=8")
    told = traced("reports/sweep")
    (chosen,) = (row for row in found if row["algorithm"] == "tree" and row["ranks"] == "8")
    assert told["cell"] == chosen["cell"]
    assert told["title"].startswith("all_reduce of 1 MiB on 8 GPUs, tree, ")
    assert told["title"].endswith("gpus 8, algorithm tree")
    said = f"trace and pictures show gpus 8, algorithm tree (cell {chosen['cell']}; --cell"
    assert said in asked.err
    netsim(capsys, "run", "sweep.yaml", *TRACED, "--cell", chosen["cell"][:9])
    assert traced("reports/sweep")["cell"] == chosen["cell"]


@pytest.mark.slow
def test_the_best_of_the_cells_that_are_asked_for(capsys) -> None:
    netsim(capsys, "run", "sweep.yaml", *TRACED, "--cell", "cluster.graph.gpus=8")
    mine = [row for row in rows("reports/sweep/results.csv") if row["ranks"] == "8"]
    assert traced("reports/sweep")["cell"] == min(mine, key=lambda r: float(r["time_us"]))["cell"]


@pytest.mark.full
def test_a_report_explains_the_cell_that_is_asked_for(capsys, pictures) -> None:
    more = ("-q", "--set", "outputs=[csv,report]", "--set", "workload.sizes=[1MiB]")
    assert netsim(capsys, "run", "sweep.yaml", *more, "--cell", "gpus=8,algorithm=tree").code == 0
    picture = Path("reports/sweep/pictures/timeline.svg").read_text()
    assert "critical path: all_reduce of 1 MiB on 8 GPUs, tree" in picture


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("gpus=5", "no cell has gpus 5, but 2, 3, 4, 8"),
        ("gpuz=4", "no axis gpuz (did you mean gpus?), axes: cluster.graph.gpus"),
        ("algorithm=Rinng", "no cell has algorithm Rinng (did you mean ring?), but ring, tree"),
        ("zz", "no id of a cell begins like this"),
        ("", "no id of a cell begins like this"),
    ],
)
def test_a_cell_that_is_none_is_one_line_before_anything_runs(capsys, cell, said) -> None:
    found = netsim(capsys, "run", "sweep.yaml", *TRACED, "--cell", cell)
    assert (found.code, found.out) == (2, "")
    (line,) = found.err.splitlines()
    assert line.startswith(f"--cell {cell}: {said}")
    assert not Path("reports").exists()


@pytest.mark.slow
def test_a_trace_with_noise_is_of_its_first_sample(capsys) -> None:
    noise = ("--set", "noise={launch: {exponential: {mean: 30us}}}", "--set", "sweep={}")
    quiet = netsim(capsys, "run", "sweep.yaml", *TRACED, "--set", "sweep={}", "-o", "quiet")
    one = netsim(capsys, "run", "sweep.yaml", *TRACED, *noise, "--set", "samples=1", "-o", "one")
    netsim(capsys, "run", "sweep.yaml", *TRACED, *noise, "--set", "samples=7", "-o", "seven")
    assert (quiet.code, one.code) == (0, 0)
    told = traced("seven")
    assert told["title"].endswith("; the first of 7 samples with noise")
    assert told["makespan_us"] == traced("one")["makespan_us"]
    (only,) = rows("one/results.csv")
    later = told["makespan_us"] - traced("quiet")["makespan_us"]
    assert later == pytest.approx(float(only["p50_us"]) - float(only["time_us"]))
    assert later > 10


def test_a_cell_is_asked_for_where_something_is_of_one(capsys) -> None:
    found = netsim(capsys, "run", "sweep.yaml", "-q", "--cell", "gpus=8")
    assert (found.code, found.out) == (2, "")
    assert found.err == (
        "--cell gpus=8: nothing is of one cell: outputs has neither trace nor report\n"
    )
    found = netsim(capsys, "run", "sweep.yaml", *TRACED, "--cell", "gpus=8", "--shard", "1/2")
    assert (found.code, "--shard writes results only" in found.err) == (2, True)


@pytest.mark.slow
def test_same_question_same_bytes_and_ids_that_ignore_names(capsys) -> None:
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "a")
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "b", "--engine", "simpy")
    assert Path("a/results.csv").read_bytes() == Path("b/results.csv").read_bytes()
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "c", "--set", "name=other")
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "d", "--seed", "7")
    ids = {folder: {row["cell"] for row in rows(f"{folder}/results.csv")} for folder in "acd"}
    assert ids["a"] == ids["c"]
    assert not ids["a"] & ids["d"]
    assert len(ids["a"]) == 8


@pytest.mark.slow
def test_a_journal_cut_anywhere_resumes_to_the_same_bytes(capsys) -> None:
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "whole")
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "cut")
    journal = Path("cut/journal.jsonl").read_bytes()
    for length in (0, 1, len(journal) // 3, len(journal) // 2, len(journal) - 1):
        Path("cut/journal.jsonl").write_bytes(journal[:length])
        Path("cut/results.csv").unlink()
        assert netsim(capsys, "run", "sweep.yaml", "-q", "-o", "cut", "--resume").code == 0
        assert Path("cut/results.csv").read_bytes() == Path("whole/results.csv").read_bytes()


def flipped(line: bytes) -> bytes:
    """A line with another digit in its middle."""
    place = next(n for n in range(len(line) // 2, len(line)) if line[n : n + 1].isdigit())
    return line[:place] + (b"1" if line[place : place + 1] != b"1" else b"2") + line[place + 1 :]


DAMAGED = {
    "its checksum is that of another line": flipped,
    "is not UTF-8": lambda line: line[:40] + b"\xff" + line[41:].partition(b', "crc"')[0] + b"}\n",
    "brackets without end": lambda line: b"[" * 100_000 + b"\n",
    "not a line of a journal": lambda line: b'{"what": 1}\n',
    "not JSON": lambda line: b"\0" * 40 + b"\n",
    "time_us: expected a number": lambda line: (
        re.sub(rb'"time_us": [0-9.]+', b'"time_us": "x"', line).partition(b', "crc"')[0] + b"}\n"
    ),
}


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("why", DAMAGED)
def test_a_damaged_line_of_a_journal_is_named_and_its_row_computed_again(capsys, why) -> None:
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "whole")
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out")
    path = Path("out/journal.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], DAMAGED[why](lines[1]), *lines[2:]]))
    merged = netsim(capsys, "merge", "out", "-o", "merged")
    assert merged.code == 2
    assert merged.err.startswith("out/journal.jsonl:2: damaged: ")
    done = netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out", "--resume")
    assert done.code == 0
    assert done.err.startswith("out/journal.jsonl:2: damaged: ")
    assert why in done.err
    assert done.err.endswith("; its row is computed again\n")
    assert path.read_bytes().count(b"\n") == len(lines) + 1
    assert Path("out/results.csv").read_bytes() == Path("whole/results.csv").read_bytes()


@pytest.mark.slow
def test_a_journal_without_checksums_is_read(capsys) -> None:
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out")
    path = Path("out/journal.jsonl")
    before = path.read_bytes()
    path.write_bytes(re.sub(rb', "crc": "[0-9a-f]{8}"', b"", before))
    assert path.read_bytes() != before
    rows = Path("out/results.csv").read_bytes()
    assert netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out", "--resume").err == ""
    assert path.read_bytes().count(b"\n") == before.count(b"\n")
    assert Path("out/results.csv").read_bytes() == rows


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, b"", b'{"scenario": "sw'])
def test_a_damaged_manifest_is_written_anew_if_the_journal_is_ours(capsys, content) -> None:
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out")
    rows = Path("out/results.csv").read_bytes()
    Path("out/run.json").write_bytes(content)
    assert "out/run.json:1: damaged: " in netsim(capsys, "report", "out").err
    done = netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out", "--resume")
    assert done.code == 0
    assert done.err.startswith("out/run.json:1: damaged: ")
    assert done.err.count("\n") == 1
    assert Path("out/results.csv").read_bytes() == rows
    Path("out/run.json").write_bytes(content)
    other = netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out", "--set", "name=other")
    assert (other.code, "holds the results of scenario" in other.err) == (2, True)


@pytest.mark.full
def test_rows_of_a_run_whose_working_directory_is_deleted_are_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    shutil.copy("sweep.yaml", tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = started("--jobs", "1", "-q")
    wait_for_rows(2)
    shutil.rmtree(tmp_path / "here")
    _, err = process.communicate(timeout=300)
    monkeypatch.chdir(tmp_path)
    assert process.returncode == 0, err
    assert b"out: was deleted during the run; the " in err
    assert [row["status"] for row in rows("out-kept/results.csv")] == ["ok"] * 9


@pytest.mark.slow
def test_a_report_of_a_run_that_finished_nothing_says_so(capsys) -> None:
    netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out")
    header = Path("out/results.csv").read_text().splitlines()[0]
    Path("out/journal.jsonl").write_bytes(b"")
    for prepare in (
        lambda: Path("out/results.csv").write_text(header + "\n"),
        Path("out/results.csv").unlink,
    ):
        prepare()
        for more in ((), ("--no-explain",)):
            done = netsim(capsys, "report", "out", *more)
            assert (done.code, done.err) == (2, "out: no row was finished (run it again)\n")
    assert not Path("out/report.html").exists()


@pytest.mark.full
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_folder_deleted_during_a_run_is_made_again_with_all_rows(jobs: int) -> None:
    process = started("--jobs", str(jobs), "-q")
    wait_for_rows(2)
    shutil.rmtree("out")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0
    assert b"out: was deleted during the run; the " in err
    assert [row["status"] for row in rows("out/results.csv")] == ["ok"] * 9
    assert {"journal.jsonl", "run.json"} <= {file.name for file in Path("out").iterdir()}


def test_a_folder_that_cannot_be_made_again_is_kept_elsewhere(capsys, monkeypatch) -> None:
    place = Path("in") / "out"
    with open_folder(place, "x", resume=False, tell=print) as folder:
        folder.record(("a", 1), Row(cell="a"), {})
        shutil.rmtree("in")
        Path("in").write_text("a file")
        folder.record(("b", 1), Row(cell="b"), {})
        written = folder.write_results([*folder.finished.values()], [])
    assert written == Path.cwd() / "out-kept" / "results.csv"
    assert [row["cell"] for row in rows(written)] == ["a", "b"]
    assert "2 rows so far are in" in capsys.readouterr().out


def started(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "netsim", "run", "sweep.yaml", "-o", "out", *arguments]
    # More ranks, so that there is time to interrupt.
    settings = ["--set", "sweep={cluster.graph.gpus: [14, 16, 18]}"]
    return subprocess.Popen(
        [*command, *settings, "--engine", "simpy"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"NETSIM_DEBUG": "1"},
    )


def finished(process: subprocess.Popen[bytes]) -> int:
    process.communicate(timeout=300)
    return process.returncode


def journal_bytes(folder: str) -> bytes:
    """The journal of a run that is under way, or has come to its end."""
    for place in (f"{folder}/.partial", folder):
        with suppress(FileNotFoundError):
            return Path(place, "journal.jsonl").read_bytes()
    return b""


def wait_for_rows(count: int) -> None:
    for _ in range(12_000):
        if journal_bytes("out").count(b"\n") >= count:
            return
        time.sleep(0.01)
    raise AssertionError("no rows within two minutes")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What such a run writes if nothing happens, found once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("undisturbed"))
        Path("sweep.yaml").write_text(SWEEP)
        assert finished(started()) == 0
        return Path("out/results.csv").read_bytes()


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_keeps_its_rows_and_resumes_to_the_same_bytes(how, undisturbed) -> None:
    process = started()
    wait_for_rows(2)
    process.send_signal(how)
    _, err = process.communicate(timeout=300)
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert err.decode().strip() == "interrupted; what was finished is kept"
        assert len(rows("out/.partial/results.csv")) >= 2
    assert finished(started("--resume")) == 0
    assert Path("out/results.csv").read_bytes() == undisturbed


@pytest.mark.slow
def test_two_runs_cannot_write_into_one_folder(capsys) -> None:
    process = started()
    try:
        wait_for_rows(1)
        outcome = netsim(capsys, "run", "sweep.yaml", "-o", "out", "-q")
        assert (outcome.code, outcome.err) == (2, "out: another run is writing here\n")
    finally:
        process.kill()
        process.communicate()


def test_a_cell_that_fails_is_a_row_and_does_not_stop_the_rest(capsys, monkeypatch) -> None:
    def fails_once(prepared, size, **options):
        if size == 2**20 and len(prepared.gpus) == 3:
            raise StalledError("the simulation cannot finish: ranks 0, 1")
        return row_of_size(prepared, size, **options)

    monkeypatch.setattr("netsim.tasks.answer.row_of_size", fails_once)
    outcome = netsim(capsys, "run", "sweep.yaml", "-q")
    message = "the simulation cannot finish: ranks 0, 1"
    assert outcome.code == 3
    assert outcome.err == f"{message}\n2 of 24 rows failed, see results.csv\n"
    found = rows("reports/sweep/results.csv")
    assert len(found) == 24
    failed = [row for row in found if row["status"] == "error"]
    assert {(row["error"], row["size_bytes"]) for row in failed} == {(message, "1048576")}


def test_a_dead_link_is_routed_around_where_there_is_another_way(capsys) -> None:
    Path("fault.yaml").write_text("""\
cluster:
  machine: dgx-h100
  faults: [{link: node0.gpu3->node0.nvswitch0, bandwidth: 50%}]
workload: {collective: all_reduce, algorithm: ring, sizes: [64MiB]}
sweep:
  cluster.faults.0.bandwidth: [0%, 50%, 100%]
outputs: [csv]
""")
    assert netsim(capsys, "run", "fault.yaml", "-q").code == 0
    dead, half, whole = (float(row["time_us"]) for row in rows("reports/fault/results.csv"))
    assert dead > half > 1.2 * whole


@pytest.mark.slow
def test_outputs(capsys) -> None:
    settings = ["--set", "sweep={}", "--set", "outputs=[csv, plots, trace]"]
    outcome = netsim(capsys, "run", "sweep.yaml", *settings)
    assert outcome.code == 0
    for name in re.findall(r"^wrote (\S+)", outcome.err, re.MULTILINE):
        assert Path(name).stat().st_size > 0
    folder = Path("reports/sweep")
    assert {p.name for p in folder.iterdir()} >= {
        "results.csv",
        "journal.jsonl",
        "timings.csv",
        "trace.json.gz",
        "trace.csv",
        "links.csv",
        "links_over_time.csv",
        "breakdown.csv",
        "busbw.svg",
        "busbw.png",
        "timeline.svg",
        "timeline.png",
        "links-heatmap.svg",
    }
    trace = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))
    assert {event["ph"] for event in trace["traceEvents"]} >= {"X", "s", "f", "C", "M"}
    before = (folder / "busbw.svg").read_bytes()
    (folder / "busbw.svg").unlink()
    assert netsim(capsys, "plot", folder).code == 0
    assert (folder / "busbw.svg").exists()
    del before


def test_splits_run_side_by_side(capsys) -> None:
    text = SWEEP.replace("gpus: 4", "gpus: 8").replace(
        "  algorithm: ring", "  algorithm: ring\n  split: MOD 2"
    )
    Path("sweep.yaml").write_text(text.split("sweep:")[0] + "outputs: [csv]\n")
    assert netsim(capsys, "run", "sweep.yaml", "-q").code == 0
    found = rows("reports/sweep/results.csv")
    assert {row["ranks"] for row in found} == {"4"}
    expected = 6 * (1e-6 + 65536 / 4 / 50e9)
    assert float(found[0]["time_us"]) == pytest.approx(expected * 1e6, rel=1e-9)


def test_a_communicator_of_chosen_gpus_in_a_chosen_order(capsys) -> None:
    text = """\
cluster: {graph: {kind: ring, gpus: 8, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: sendrecv, algorithm: ring, sizes: [1MB], ranks: %s}
outputs: [csv]
"""
    times = []
    for ranks in ("[0, 1, 2, 3, 4, 5, 6, 7]", "[0, 2, 4, 6, 1, 3, 5, 7]"):
        Path("x.yaml").write_text(text % ranks)
        assert netsim(capsys, "run", "x.yaml", "-q", "-o", f"out{len(times)}").code == 0
        times.append(float(rows(f"out{len(times)}/results.csv")[0]["time_us"]))
    assert times[0] == pytest.approx(1e6 / 50e9 * 1e6 + 1)
    assert times[1] > 1.9 * times[0]


def test_other_verbs_answer(capsys) -> None:
    schema = json.loads(netsim(capsys, "schema").out)
    assert set(schema["properties"]) >= {"cluster", "workload", "sweep"}
    assert json.loads(netsim(capsys, "schema", "machine").out)["properties"]["gpu"]
    assert "Python" in netsim(capsys, "doctor").out
    assert "dgx-h100" in netsim(capsys, "topo", "list").out
    shown = netsim(capsys, "topo", "show", "dgx-h100").out
    assert re.search(r"^GPU3 +NVL +NVL +NVL +X", shown, re.MULTILINE)
    checked = netsim(capsys, "check", "sweep.yaml")
    assert checked.out == "sweep.yaml: a scenario of 8 cells, 24 sizes in all\n"
    assert netsim(capsys, "--version").out == f"{__version__}\n"


def test_explain_state_of_the_ring_of_five(capsys) -> None:
    outcome = netsim(capsys, "explain", "ring-of-five", "--state", "-o", "pictures")
    assert outcome.code == 0
    # Half way, every GPU has one complete chunk; at the end, all.
    half, end = outcome.out.split("after step 3")[1].split("after step 4")[0], outcome.out
    for rank, chunk in enumerate("bcdea"):
        line = next(x for x in half.splitlines() if x.startswith(f"rank {rank}"))
        whole = "+".join(f"{chunk}{k}" for k in range(5)) + "*"
        assert line.count("*") == 1
        assert whole in line
    last = end.split("after step 7")[1]
    assert last.count("*") == 25
    assert Path("pictures/state.svg").exists()
    assert netsim(capsys, "explain", "ring-of-five", "--state", "--size", "1Q").code == 2


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), [("größe λ", "größe-λ"), ("_☃", "scenario")])
def test_a_file_may_have_any_name(capsys, file: str, name: str) -> None:
    Path(f"{file}.yaml").write_text(SWEEP.replace("name: sweep\n", ""))
    assert netsim(capsys, "run", f"{file}.yaml", "-q").code == 0
    assert {row["scenario"] for row in rows(f"reports/{name}/results.csv")} == {name}
