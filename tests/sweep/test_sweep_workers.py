"""Sweeps over several processes, a Dask cluster and parts: the same bytes, whatever dies."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout, suppress
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest

from netsim.base.startup import __version__
from netsim.cli import main
from tests.bench.victims import below
from tests.cli.command import netsim

DASK = find_spec("distributed") is not None

SWEEP = """\
name: sweep
cluster:
  graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}
workload: {collective: all_reduce, algorithm: ring, sizes: [64KiB, 1MiB, 16MiB]}
sweep:
  cluster.graph.gpus: [8, 10, 12, 14, 16]
  workload.algorithm: [ring, tree]
outputs: [csv]
"""
WAIT = 120  # seconds, on a busy machine


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text(SWEEP)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the sweep writes if nothing happens, found once."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "sweep.yaml").write_text(SWEEP)
    with redirect_stdout(StringIO()), pytest.raises(SystemExit) as end:
        main(["run", str(folder / "sweep.yaml"), "-o", str(folder / "out"), "-q"])
    assert end.value.code == 0
    return (folder / "out" / "results.csv").read_bytes()


def start(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "netsim", "run", "sweep.yaml", "-q", "-o", "out"]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def journal() -> list[str]:
    for place in ("out/.partial", "out"):  # under way, or at its end
        with suppress(FileNotFoundError):
            return Path(place, "journal.jsonl").read_text().splitlines()
    return []


def wait_for(rows: int) -> None:
    deadline = time.monotonic() + WAIT
    while len(journal()) < rows:
        assert time.monotonic() < deadline, "no rows"
        time.sleep(0.01)


@pytest.mark.full
def test_two_processes_write_the_same_bytes(capsys, whole: bytes) -> None:
    assert netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out", "--jobs", 2).code == 0
    assert Path("out/results.csv").read_bytes() == whole


@pytest.mark.full
def test_what_takes_long_is_shared_out_where_nobody_said_how(
    capsys, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netsim.sweep.run.LONG", 0.0)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/netsim"])
    workers = []
    for processors, given in (({0, 1}, ()), ({0, 1}, ("--jobs", 1)), ({0}, ()), ({0, 1}, ())):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=processors: n, raising=False)
        assert netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out", *given).code == 0
        assert Path("out/results.csv").read_bytes() == whole
        with Path("out/timings.csv").open() as file:
            workers.append([int(row["worker"]) for row in csv.DictReader(file)])
        if len(workers) == 3:  # helpers of a script would run it anew
            monkeypatch.setattr(sys, "argv", ["/home/me/netsim/mine.py"])
    assert [each.count(os.getpid()) for each in workers] == [1, *[len(workers[0])] * 3]


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(capsys) -> None:
    slow = ("--engine", "simpy")
    assert netsim(capsys, "run", "sweep.yaml", "-o", "whole", "-q", *slow).code == 0
    whole = Path("whole/results.csv").read_bytes()
    process = start(
        "--jobs", 2, "--engine", "simpy", "--set", "workload.sizes=[64KiB, 1MiB, 16MiB]"
    )
    wait_for(1)
    os.kill(worker_of(journal()[-1]), signal.SIGKILL)
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 0, err
    assert Path("out/results.csv").read_bytes() == whole


@pytest.mark.full
@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
def test_the_end_that_a_batch_queue_asks_for_keeps_what_is_finished(whole: bytes, ctrl_c) -> None:
    """Also in a shell's background, where Ctrl-C is ignored."""
    before = signal.signal(signal.SIGINT, ctrl_c)
    process = start("--jobs", 2)
    signal.signal(signal.SIGINT, before)
    wait_for(2)
    process.terminate()
    _, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (130, b"interrupted; what was finished is kept\n")
    assert len(Path("out/.partial/results.csv").read_text().splitlines()) > 2
    assert start("--resume").communicate(timeout=WAIT)[1] == b""
    assert Path("out/results.csv").read_bytes() == whole


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("after", [0.0, 0.4, 1.2])
def test_ctrl_c_while_workers_start_is_told_once(after: float) -> None:
    """A terminal interrupts all processes, and somebody presses it twice."""
    many = ", ".join(map(str, range(8, 72)))  # so that it is not over by then
    Path("sweep.yaml").write_text(SWEEP.replace("8, 10, 12, 14, 16", many))
    process = start("--jobs", 3)
    deadline = time.monotonic() + WAIT
    while not any(Path("out").rglob("journal.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(after)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (130, b"interrupted; what was finished is kept\n")


@pytest.mark.full
def test_what_workers_are_forked_from_is_replaced(whole: bytes) -> None:
    process = start("--jobs", 2)
    wait_for(1)
    (server,) = {parent(pid) for line in journal() for pid in [worker_of(line)]} - {process.pid}
    os.kill(server, signal.SIGKILL)
    _, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (0, b"")
    assert Path("out/results.csv").read_bytes() == whole


def worker_of(line: str) -> int:
    return int(json.loads(line)["timing"]["worker"])


def parent(pid: int) -> int:
    return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_workers_end_when_their_sweep_is_killed() -> None:
    process = start(
        "--jobs", 2, "--engine", "simpy", "--set", "sweep.cluster.graph.gpus=[24, 26, 28]"
    )
    wait_for(1)
    workers = below(process.pid)
    assert workers
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() and not ended(pid) for pid in workers):
        assert time.monotonic() < deadline, "workers outlive their sweep"
        time.sleep(0.1)


def ended(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.full
def test_parts_put_together_are_the_whole(capsys, whole: bytes) -> None:
    for part in (1, 2, 3):
        assert netsim(capsys, "run", "sweep.yaml", "-q", "--shard", f"{part}/3").code == 0
    parts = [f"reports/sweep-{part}of3" for part in (1, 2, 3)]
    done = netsim(capsys, "merge", *parts)
    assert (done.code, done.out) == (0, "reports/sweep/results.csv: 30 rows of 3 parts\n")
    assert Path("reports/sweep/results.csv").read_bytes() == whole
    missing = netsim(capsys, "merge", *parts[:2], "-o", "few")
    assert missing.code == 2
    with Path(parts[2], "results.csv").open() as third:
        first = next(csv.DictReader(third))
    where = f"the first of cell {first['cell']} at {first['size_bytes']} B"
    assert f"9 rows are in none of the parts, {where}" in missing.err


@pytest.mark.full
def test_parts_of_other_sweeps_do_not_go_together(capsys) -> None:
    netsim(capsys, "run", "sweep.yaml", "-q", "--shard", "1/2", "-o", "a")
    netsim(
        capsys,
        "run",
        "sweep.yaml",
        "-q",
        "--shard",
        "2/2",
        "-o",
        "b",
        "--set",
        "workload.sizes=[1KiB]",
    )
    done = netsim(capsys, "merge", "a", "b", "-o", "c")
    assert (done.code, done.err) == (2, "b: holds other cells than a\n")
    twice = netsim(capsys, "merge", "a", "a", "-o", "c")
    assert (twice.code, twice.err) == (2, "a: is part 1 of 2, as a is (name each part once)\n")
    netsim(capsys, "run", "sweep.yaml", "-q", "--shard", "2/3", "-o", "d")
    assert netsim(capsys, "merge", "a", "d", "-o", "c").err == "d: is one of 3 parts, a one of 2\n"
    text = Path("d/run.json").read_text().replace(f'"{__version__}"', '"0.0.1"')
    Path("d/run.json").write_text(text.partition(', "crc"')[0] + "}\n")  # as older ones are
    older = netsim(capsys, "merge", "a", "d", "-o", "c")
    assert older.err.startswith("d: was computed by netsim 0.0.1 (model ")
    assert netsim(capsys, "merge", "a", "-o", "a").err.startswith("a: is one of the parts")
    assert "holds no run.json" in netsim(capsys, "merge", ".", "-o", "c").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shard", "3/2"], "--shard: expected i/n such as 1/8"),
        (["--shard", "11/11"], "this part has no cells"),
        (["--jobs", "0"], "--jobs: expected 1 to"),
        (["--dask", "tcp://127.0.0.1:1"], "--dask tcp://127.0.0.1:1: " if DASK else "netsim[dask]"),
    ],
)
def test_mistakes_about_workers_get_one_message(capsys, monkeypatch, arguments, message) -> None:
    monkeypatch.setattr("netsim.sweep.cluster.PATIENCE", 2.0)
    done = netsim(capsys, "run", "sweep.yaml", "-q", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
