"""Both engines agree on NCCL's own schedules, whose groups come and go in patterns of their own."""

import numpy as np
import pytest

from netsim.engines import compiled, simpy
from netsim.program import Program, Timeline
from tests.cli.command import netsim

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

    def both(program: Program, engine: str = "auto", **options: object) -> Timeline:
        del engine, options
        expected, got = simpy.run(program), compiled.run(program)
        np.testing.assert_allclose(got.start, expected.start, rtol=1e-9, atol=0)
        np.testing.assert_allclose(got.end, expected.end, rtol=1e-9, atol=0)
        seen.append(len(program))
        return expected

    monkeypatch.setattr("netsim.timing.simulate", both)
    arguments = [machine, collective, "--nodes", nodes, "--sizes", size, "--format", "csv"]
    outcome = netsim(capsys, "expect", *arguments)
    assert outcome.code == 0, outcome.err
    assert seen
