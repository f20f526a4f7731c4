"""Workers that are killed under every verb that has some: what they were at is named, the rest is
printed, and the exit code is 1.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.bench.victims import workers
from tests.cli.command import netsim
from tests.measured.test_accuracy import index

WAIT = 120
SCENARIO = """\
name: hurt
cluster: {machine: a100-x4, nodes: 2}
workload: {collective: all_reduce, sizes: [1KiB, 1MiB]}
sweep: {cluster.nodes: [2, 3, 4]}
outputs: [csv]
"""

HOSTS = "{machine: a100-x4, nodes: 2, gpus_per_node: 4}"
ROWS = "8,2,float,sum,-1,30,,,29,,\n1048576,262144,float,sum,-1,60,,,59,,\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hurt.yaml").write_text(SCENARIO)


def hurt(*arguments: object, kill: int) -> tuple[int, str, str]:
    """Exit code, output and errors of a command of which so many workers are killed as soon
    as they are there.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "netsim", *map(str, arguments)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    killed: set[int] = set()
    deadline = time.monotonic() + WAIT
    while process.poll() is None and len(killed) < kill and time.monotonic() < deadline:
        for pid in set(workers(process.pid)) - killed:
            with suppress(OSError):
                if pid != process.pid and is_worker(pid):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
        time.sleep(0.005)
    out, err = process.communicate(timeout=WAIT)
    assert killed
    assert "Traceback" not in err
    assert "a bug in netsim" not in err
    return process.returncode, out, err


def is_worker(pid: int) -> bool:
    """Whether a process was forked to work: what forks it is its parent, and has our command."""
    status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    mine, parents = (Path(f"/proc/{one}/cmdline").read_bytes() for one in (pid, status[1]))
    return mine == parents and b"forkserver" in mine


@pytest.mark.slow
def test_run_names_lost_cells_and_resumes_with_the_others() -> None:
    code, out, err = hurt("run", "hurt.yaml", "-q", "-o", "out", "--jobs", 2, kill=1000)
    assert code == 1, err
    assert "cell nodes 2: its worker was killed (SIGKILL" in err
    assert "6 of 6 rows failed, see results.csv" in err
    assert len(Path("out/results.csv").read_text().splitlines()) == 7
    code, out, err = hurt("run", "hurt.yaml", "-q", "-o", "out", "--jobs", 2, "--resume", kill=1)
    assert code == 0, err
    assert out.count("float") == 6
    assert Path("out/results.csv").read_text().count(",ok,") == 6


@pytest.mark.full
def test_optimize_tells_what_was_lost() -> None:
    code, _, err = hurt("optimize", "hurt.yaml", "-q", "-o", "out", "--jobs", 2, kill=2)
    assert "its worker was killed" in err
    assert code in (0, 1), err
    assert Path("out/best.yaml").exists()


@pytest.mark.full
def test_optimize_that_lost_everything_is_no_error_of_the_input() -> None:
    code, _, err = hurt("optimize", "hurt.yaml", "-q", "-o", "out", "--jobs", 2, kill=1000)
    assert code == 1, err
    assert "every cell was lost or failed, the first: cell nodes 2: " in err
    assert "SIGKILL" in err


@pytest.mark.full
@pytest.mark.parametrize("kill", [1, 1000])
def test_accuracy_prints_the_others_and_resumes(capsys, kill: int) -> None:
    index(Path(), *({"id": f"run{n}", "topology": HOSTS} for n in (1, 2)), rows=ROWS)
    code, out, err = hurt("accuracy", "index.yaml", "-q", "--jobs", 2, kill=kill)
    assert "its worker was killed" in err
    if kill == 1:
        assert code == 0, err
        assert out.count("  run") == 2
        assert not list(Path("reports").glob("*"))
        return
    assert code == 1, err
    assert err.count("not simulated: run") == 2
    done = netsim(capsys, "accuracy", "index.yaml", "--resume", "--jobs", 1)
    assert (done.code, done.out.count("  run")) == (0, 2), done.err


@pytest.mark.full
def test_report_is_written_without_what_was_lost(capsys) -> None:
    assert netsim(capsys, "run", "hurt.yaml", "-q", "-o", "out").code == 0
    code, _, err = hurt("report", "out", "--jobs", 2, kill=1000)
    assert code == 1, err
    assert "not explained: the best: its worker was killed" in err
    assert Path("out/report.html").exists()
    code, _, err = hurt("report", "out", "--jobs", 2, kill=1)
    assert code == 0, err


@pytest.mark.full
def test_calibrate_leaves_out_what_was_lost(capsys) -> None:
    done = netsim(
        capsys,
        "expect",
        "a100-x4",
        "all_reduce",
        "--nodes",
        4,
        "--sizes",
        "1K:64M:8",
        "--format",
        "nccl-tests",
    )
    Path("x.log").write_text(done.out)
    options = ("--topology", "a100-x4", "--nodes", 4, "--jobs", 2)
    code, out, err = hurt("calibrate", "x.log", *options, kill=1)
    assert "x.log at " in err
    assert code == 0, err
    assert "# fitted" in out
    code, _, err = hurt("calibrate", "x.log", *options, kill=1000)
    assert code == 1, err
    assert "its worker was killed" in err
