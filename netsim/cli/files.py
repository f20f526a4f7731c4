"""Files that people name on the command line: what they are, and whether they are sound."""

from pathlib import Path

from netsim.errors import InputError
from netsim.runs import checked_cells, find_scenario, load_source
from netsim.topology.load import load_machine


def check_file(path: Path) -> str:
    """Validate one file as whatever it is; the text says what was found."""
    path = find_scenario(path.as_posix()).path
    source = load_source(path)
    if "workload" in source.data or "cluster" in source.data:
        cells = checked_cells(source)
        sizes = sum(len(cell.scenario.workload.size_list()) for cell in cells)
        return f"a scenario of {len(cells)} cell{'s' * (len(cells) > 1)}, {sizes} sizes in all"
    if "gpu" in source.data:
        machine = load_machine(path)
        return f"a machine with {machine.gpu.count} GPUs"
    raise InputError(
        f"{path}: neither a scenario (with cluster and workload) nor a machine (with gpu)"
    )
