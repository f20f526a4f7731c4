"""Both engines agree on NCCL's own schedules, whose groups come and go in patterns of their own."""

import numpy as np
import pytest

from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled_engine
from netsim.engines.compiled.grouping import group_rows
from netsim.program.program import Program
from tests.cli.command import netsim
from tests.engines.agreement import watched

CASES = [
    ("dgx-h100", "all_reduce", 4, "64M"),
    ("dgx-h100", "all_reduce", 2, "2M"),
    ("dgx-a100", "all_gather", 1, "1M"),
]


@pytest.mark.parametrize(("machine", "collective", "nodes", "size"), CASES)
def test_every_row_of_nccl_schedules(
    capsys, monkeypatch, machine: str, collective: str, nodes: int, size: str
) -> None:
    seen = []

    def both(program: Program) -> None:
        expected, got = simpy.run(program), compiled_engine.run(program)
        np.testing.assert_allclose(got.start, expected.start, rtol=1e-9, atol=0)
        np.testing.assert_allclose(got.end, expected.end, rtol=1e-9, atol=0)
        seen.append(len(program))

    monkeypatch.setattr("netsim.extent.engine_runs.simulator", watched(both))
    arguments = [machine, collective, "--nodes", nodes, "--sizes", size, "--format", "csv"]
    outcome = netsim(capsys, "expect", *arguments)
    assert outcome.code == 0, outcome.err
    assert seen


def test_of_a_tree_only_nics_and_proxies_are_looked_at(capsys, monkeypatch) -> None:
    """Memory has room for all that a NIC brings, however many messages are on their way."""
    kinds: set[str] = set()
    drawn: set[str] = set()

    def seen(program: Program) -> None:
        links = program.links
        used = np.unique(program.paths.link[program.paths.active]).tolist()
        number = group_rows(program).number
        drawn.update(links.kind(link) for link in used)
        kinds.update(links.kind(link) for link in used if number[link] >= 0)

    monkeypatch.setattr("netsim.extent.engine_runs.simulator", watched(seen))
    forced = ["--algo", "Tree", "--env", "NCCL_PROTO=LL128", "--fabric", "rail-optimized"]
    arguments = ["dgx-h100", "all_reduce", "--nodes", 16, "--sizes", "4M", *forced]
    outcome = netsim(capsys, "expect", *arguments)
    assert outcome.code == 0, outcome.err
    assert drawn >= {"hbm", "sm", "nvlink", "nic", "proxy"}
    assert kinds <= {"nic", "proxy", "fabric"}
