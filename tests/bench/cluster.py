"""A Dask cluster on loopback: a scheduler and two workers as processes, to be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WAIT = 120  # seconds, on a busy machine


class Cluster:
    """A scheduler and its workers; `address` is where it listens."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder, self.count = folder, workers
        self._begin()

    def _begin(self) -> None:
        file = self.folder / f"scheduler-{time.monotonic_ns()}.json"
        self.scheduler = self._start(
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            file,
        )
        deadline = time.monotonic() + WAIT
        while not (file.exists() and file.read_text().strip().endswith("}")):
            if time.monotonic() > deadline or self.scheduler.poll() is not None:
                raise TimeoutError("the scheduler does not start (pip install '.[dask]')")
            time.sleep(0.05)
        self.address: str = json.loads(file.read_text())["address"]
        self.workers = [self.worker() for _ in range(self.count)]

    def worker(self) -> subprocess.Popen[bytes]:
        """Start one more worker."""
        return self._start(
            "worker", self.address, "--nthreads", "1", "--no-dashboard", "--no-nanny"
        )

    def replace_worker(self, number: int) -> None:
        """Kill a worker; another one comes."""
        _kill(self.workers[number])
        self.workers[number] = self.worker()

    def replace_scheduler(self) -> None:
        """Kill the scheduler and what is left of its workers; a new cluster comes."""
        self.stop()
        self._begin()

    def stop(self) -> None:
        """End all processes."""
        for process in (self.scheduler, *self.workers):
            _kill(process)

    def _start(self, *arguments: object) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).parents[2])
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": root},
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
