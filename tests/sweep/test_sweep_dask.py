"""Sweeps on a Dask cluster: a scheduler and workers as processes, over loopback."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from netsim.base.errors import InputError
from netsim.sweep.cluster import DaskPool, all_answers
from netsim.sweep.run import VERSION, Order, fulfil
from tests.bench.cluster import Cluster
from tests.cli.command import netsim
from tests.sweep.test_sweep_workers import SWEEP, WAIT, journal, start, wait_for

pytest.importorskip("distributed")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text(SWEEP)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster(Path.cwd())
    yield found
    found.stop()


def test_a_dask_cluster_writes_the_same_bytes_even_when_a_worker_dies(capsys, cluster) -> None:
    assert netsim(capsys, "run", "sweep.yaml", "-o", "whole", "-q").code == 0
    process = start("--dask", cluster.address)
    wait_for(1)
    cluster.replace_worker(0)
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 0, err
    assert Path("out/results.csv").read_bytes() == Path("whole/results.csv").read_bytes()


def test_a_scheduler_that_goes_away_leaves_what_was_finished(capsys, cluster) -> None:
    process = start(
        "--dask",
        cluster.address,
        "--set",
        "sweep.cluster.graph.gpus=[24, 28, 32, 36]",
        "--engine",
        "simpy",
    )
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
        all_answers(fulfil, order)
    data = {
        "cluster": {"graph": {"kind": "switch", "gpus": 2, "bandwidth": "1GB/s"}},
        "workload": {"collective": "all_reduce", "algorithm": "ring", "sizes": [8]},
    }
    with pytest.raises(InputError, match="finds other machine or topology files"):
        all_answers(fulfil, Order("0" * 16, "x.yaml", data, {}, (8,), "simpy"))
    with pytest.raises(InputError, match="cluster"):
        all_answers(
            fulfil,
            Order("0" * 16, "x.yaml", {"cluster": {"machine": "__import__('os')"}}, {}, (8,), "a"),
        )


def test_a_scheduler_that_says_nothing_is_one_message(capsys, monkeypatch) -> None:
    monkeypatch.setattr("netsim.sweep.cluster.PATIENCE", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = netsim(capsys, "run", "sweep.yaml", "-q", "--dask", address)
    assert done.code == 2
    assert done.err.startswith(f"--dask {address}: the scheduler does not answer")
    assert done.err.count("\n") == 1


def test_a_scheduler_without_workers_is_told_and_waited_for(capsys, monkeypatch) -> None:
    """The cluster gets its first worker when netsim says that there is none."""
    monkeypatch.setattr("netsim.sweep.cluster.PATIENCE", 3.0)
    empty = Cluster(Path.cwd(), workers=0)
    usual = DaskPool._tell_if_alone

    def tell(workers: DaskPool) -> None:
        usual(workers)
        empty.workers.append(empty.worker())

    monkeypatch.setattr(DaskPool, "_tell_if_alone", tell)
    try:
        done = netsim(capsys, "run", "sweep.yaml", "-q", "-o", "out", "--dask", empty.address)
    finally:
        empty.stop()
    assert done.code == 0, done.err
    said = f"--dask {empty.address}: no worker has come yet; start one: dask worker {empty.address}"
    assert done.err.count(said) == 1


def test_another_version_of_netsim_is_refused(capsys, monkeypatch, cluster) -> None:
    monkeypatch.setattr("netsim.sweep.cluster.VERSION", "9.9 (model 9)")
    done = netsim(capsys, "run", "sweep.yaml", "-q", "--dask", cluster.address)
    assert done.code == 2
    assert f"--dask {cluster.address}: the scheduler has {VERSION}, not netsim 9.9" in done.err
    assert done.err.count("\n") == 1
