"""Ctrl-C stops compiled code wherever it is, also in one solution for many flows."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Flows on 20 links each, with as many rates: the first has not ended for a minute, or for many.
CROWD = """
import sys
import numpy as np
from netsim.engines.engine import simulate
from netsim.program.program import LinkTable, Paths, Program
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Style

flows, links, each = int(sys.argv[1]), 2000, 20
random = np.random.default_rng(1)
builder = Builder(2)
builder.rows(Style(), 0, 1, builder.work(random.uniform(1, 2, flows)))
link = (random.integers(0, links, (flows, 1)) + np.arange(each) * 97) % links
weight, active = random.uniform(1, 2, flows * each), np.ones(flows * each, bool)
ptr = np.arange(0, (flows + 1) * each, each)
paths = Paths(ptr, link.ravel().astype(np.int32), weight, active, np.zeros(flows))
table = LinkTable(str, str, random.uniform(1, 2, links), np.zeros(links))
path = np.arange(flows, dtype=np.int32)
program = Program(builder.finish(), path, paths, table, ("a", "b"))
try:
    simulate(program, "compiled", progress=lambda *now: print(*now, flush=True))
except KeyboardInterrupt:
    print("stopped", flush=True)
"""

SCENARIO = """
cluster: {graph: {kind: switch, gpus: 320, bandwidth: 50 GB/s, latency: 1 us}}
workload: {collective: all_reduce, algorithm: ring, sizes: {from: 1MiB, to: 8GiB, factor: 2}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("flows", [20_000, 200_000])
def test_machine_code_gives_up_in_the_middle(flows: int) -> None:
    """The larger crowd is still in its first instant."""
    command = [sys.executable, "-c", CROWD, str(flows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[1] == str(flows)  # it is under way
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    assert out.splitlines()[-1] == "stopped"


@pytest.mark.slow
def test_a_run_on_the_compiled_engine_keeps_what_is_finished(tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text(SCENARIO)
    command = [sys.executable, "-m", "netsim", "run", "many.yaml", "-o", "out", "-q"]
    command += ["--engine", "compiled"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        while process.stdout.readline().split()[:1] != [b"1048576"]:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.decode().strip() == "interrupted; what was finished is kept"
    assert 2 <= len((tmp_path / "out/.partial/results.csv").read_text().splitlines()) < 15
