"""Every file that ships loads and runs its smallest cell."""

from pathlib import Path

import pytest

from netsim.scenario.models import node_count
from netsim.tasks.answer import answer, checked_cells, load_source, resolve_any
from netsim.topology.load import load_machine

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
# Fewer micro-batches, hosts and samples of the largest, which take minutes.
SMALLER = {
    "layouts-70b": ["workload.batch=32"],
    "fabrics-1024": ["cluster.nodes=8"],
    "noise-and-scale": ["samples=50"],
}
FEW = 4  # cells of the fewest hosts, of which that of the fewest GPUs is run
MACHINES = sorted((ROOT / "topologies").glob("*.yaml"))


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_smallest_cell_of_a_scenario_runs(path: Path) -> None:
    cells = checked_cells(load_source(path, SMALLER.get(path.stem, ())))
    fewest = min(node_count(cell.scenario.cluster) for cell in cells)
    few = [cell for cell in cells if node_count(cell.scenario.cluster) == fewest]
    resolved = min((resolve_any(cell) for cell in few[:FEW]), key=lambda p: len(p.gpus))
    sizes = resolved.cell.scenario.workload.size_list()
    row = answer(resolved, min(sizes))
    assert row.status == "ok"
    assert (row.time_us or row.step_time_us or 0) > 0


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_begins_with_its_question(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith("?")


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_a_machine_loads(path: Path) -> None:
    assert load_machine(path).gpu.count >= 1
