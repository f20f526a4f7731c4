"""Sweeps whose workers Slurm starts: a made-up sbatch runs every job script as a local process."""

import os
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.command import netsim
from tests.sweep.test_sweep_workers import SWEEP, WAIT, journal, start, wait_for

pytest.importorskip("distributed")
pytest.importorskip("dask_jobqueue")

# A job is a session of its own; its number is that of its first process.
SBATCH = """\
#!/bin/sh
for script; do :; done
cp "$script" jobs/script.$$
setsid sh jobs/script.$$ >jobs/out.$$ 2>&1 </dev/null &
touch jobs/job.$!
echo "Submitted batch job $!"
"""
SCANCEL = """\
#!/bin/sh
for job; do kill -- "-$job" 2>/dev/null; done
exit 0
"""
QUEUE = """\
jobqueue:
  slurm: {cores: 1, memory: 1GB, processes: 1, interface: lo, walltime: "00:20:00"}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path / "dask"))
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", root)
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        Path(name).write_text(text)
        Path(name).chmod(stat.S_IRWXU)
    for folder in ("jobs", "dask"):
        Path(folder).mkdir()
    Path("dask/jobqueue.yaml").write_text(QUEUE)
    Path("sweep.yaml").write_text(SWEEP)
    yield
    for job in jobs():
        end(job)


def jobs() -> list[int]:
    return [int(file.suffix[1:]) for file in Path("jobs").glob("job.*")]


def end(job: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(job, signal.SIGKILL)


def test_slurm_starts_workers_and_replaces_a_job_that_ends(capsys) -> None:
    assert netsim(capsys, "run", "sweep.yaml", "-o", "whole", "-q").code == 0
    process = start("--dask", "slurm", "--jobs", 1)
    wait_for(1)
    assert len(jobs()) == 1
    end(jobs()[0])
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 0, err
    assert Path("out/results.csv").read_bytes() == Path("whole/results.csv").read_bytes()
    script = next(Path("jobs").glob("script.*")).read_text()
    assert "#SBATCH" in script
    deadline = time.monotonic() + WAIT
    while any(Path(f"/proc/{job}").exists() for job in jobs()):  # they end with the sweep
        assert time.monotonic() < deadline, "jobs are left behind"
        time.sleep(0.1)
    assert len(journal()) == 30


def test_a_slurm_that_refuses_is_one_message() -> None:
    Path("dask/jobqueue.yaml").write_text("jobqueue:\n  slurm: {cores: 1}\n")
    process = start("--dask", "slurm")
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 2
    assert err.startswith(b"--dask slurm: ")
    assert b"jobqueue.yaml" in err
    assert err.count(b"\n") == 1
