"""Sweeps on a Dask cluster: a scheduler and workers as processes, over loopback."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netsim.errors import InputError
from netsim.sweep.orders import Order, fulfil
from tests.cli.command import netsim
from tests.cli.test_sweep_workers import SWEEP, WAIT, journal, start, wait_for

pytest.importorskip("distributed")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text(SWEEP)


class Cluster:
    """A scheduler and its workers."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        file = Path("scheduler.json")
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                    "--scheduler-file", file)  # fmt: skip
        deadline = time.monotonic() + WAIT
        while not file.exists() or not file.read_text().strip():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        text = file.read_text()
        self.address = text.partition('"address": "')[2].partition('"')[0]
        self.workers = [self.worker(), self.worker()]

    def worker(self) -> subprocess.Popen[bytes]:
        return self._start("worker", self.address, "--nthreads", "1", "--no-dashboard",
                           "--no-nanny")  # fmt: skip

    def _start(self, *arguments: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.stop()


def test_a_dask_cluster_writes_the_same_bytes_even_when_a_worker_dies(capsys, cluster) -> None:
    assert netsim(capsys, "run", "sweep.yaml", "-o", "whole", "-q").code == 0
    process = start("--dask", cluster.address)
    wait_for(1)
    cluster.workers[0].send_signal(signal.SIGKILL)
    cluster.worker()
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 0, err
    assert Path("out/results.csv").read_bytes() == Path("whole/results.csv").read_bytes()


def test_a_scheduler_that_goes_away_leaves_what_was_finished(capsys, cluster) -> None:
    process = start("--dask", cluster.address, "--set", "sweep.cluster.graph.gpus=[24, 28, 32, 36]",
                    "--engine", "simpy")  # fmt: skip
    wait_for(1)
    cluster.stop()
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 2
    assert b"the scheduler is gone" in err
    assert b"Traceback" not in err
    assert journal()


def test_a_worker_refuses_other_versions_and_other_files() -> None:
    order = Order("0" * 16, "x.yaml", {"cluster": {}, "workload": {}}, {}, (8,), "simpy", "0 (old)")
    with pytest.raises(InputError, match=r"runs netsim .*, the sweep 0 \(old\)"):
        fulfil(order)
    data = {
        "cluster": {"graph": {"kind": "switch", "gpus": 2, "bandwidth": "1GB/s"}},
        "workload": {"collective": "all_reduce", "algorithm": "ring", "sizes": [8]},
    }
    with pytest.raises(InputError, match="finds other machine or topology files"):
        fulfil(Order("0" * 16, "x.yaml", data, {}, (8,), "simpy"))
    with pytest.raises(InputError, match="cluster"):
        fulfil(
            Order("0" * 16, "x.yaml", {"cluster": {"machine": "__import__('os')"}}, {}, (8,), "a")
        )
