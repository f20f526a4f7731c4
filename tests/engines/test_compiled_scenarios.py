"""Both engines agree on every row of every scenario that comes with netsim, at some sizes."""

from pathlib import Path

import pytest

from netsim.program.program import Program
from netsim.scenario.training import Training
from netsim.tasks.answer import checked_cells, load_source
from netsim.tasks.resolve import resolve
from tests.engines.agreement import assert_agreement, watched
from tests.extent.cells import simulate_size

SCENARIOS = [  # both engines: tests/tasks/test_jobs.py, as one program, and test_sites.py
    file
    for file in sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
    if file.stem not in ("two-jobs", "two-sites")
]
SMALL = 64 << 10  # bytes, in which also large machines take few rows
SMALLER = {
    "fabrics-1024": ["cluster.nodes=4"],
    "noise-and-scale": ["samples=20"],
    "tpu-v5p": ["cluster.graph.dims=[4, 4, 2]", "cluster.graph.cube=2"],
}  # of what takes minutes to plan, or the plain engine seconds
MOST = 3_000  # rows, to keep the plain engine's time short
MOST_CELLS = 6  # of a scenario, from its first to about its last
TIMES = 2  # that a program is compared, which begins at other times each time,
TOGETHER = 1_500  # unless those before had so many rows


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_every_row_of_a_shipped_scenario(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    compared, left_out = [], []

    def both(program: Program) -> None:
        times = compared.count(len(program))
        if len(program) <= MOST and times < TIMES and times * len(program) < TOGETHER:
            assert_agreement(program)
        (compared if len(program) <= MOST else left_out).append(len(program))

    monkeypatch.setattr("netsim.extent.engine_runs.simulator", watched(both))
    cells = checked_cells(load_source(file, SMALLER.get(file.stem, [])))
    for cell in cells[:: len(cells) // MOST_CELLS + 1]:
        if isinstance(cell.scenario.workload, Training):
            pytest.skip("a step has more rows than the plain engine takes in a test")
        resolved = resolve(cell)
        for size in {cell.scenario.workload.size_list()[0], SMALL}:
            simulate_size(resolved, size)
    assert compared or min(left_out) > MOST
