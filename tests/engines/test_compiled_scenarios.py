"""Both engines agree on every row of every scenario that comes with netsim, at some sizes."""

from pathlib import Path

import pytest

from netsim.engines import compiled
from netsim.program import Program, Timeline
from netsim.runs import checked_cells, load_source
from netsim.simulate import prepare, simulate_size
from tests.engines.agreement import assert_agreement

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
MOST = 5_000  # rows, to keep the plain engine's time short


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_every_row_of_a_shipped_scenario(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    compared = []

    def both(program: Program, engine: str = "auto", **options: object) -> Timeline:
        del engine, options
        if len(program) <= MOST:
            assert_agreement(program)
            compared.append(len(program))
        return compiled.run(program)

    monkeypatch.setattr("netsim.timing.simulate", both)
    for cell in checked_cells(load_source(file, [])):
        prepared = prepare(cell)
        for size in cell.scenario.workload.size_list()[::4]:
            simulate_size(prepared, size)
    assert compared
