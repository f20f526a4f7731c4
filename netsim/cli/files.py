"""Files that people name on the command line: what they are, and whether they are sound."""

from pathlib import Path

from netsim.cli.topo.columns import plural
from netsim.cli.topo.foreign import is_foreign
from netsim.cli.topo.options import Options
from netsim.cli.topo.subject import Subject, find_subject
from netsim.errors import InputError
from netsim.runs import checked_cells, find_scenario, load_source, notes_of
from netsim.scenario.unused import unused_keys
from netsim.topology.load import load_machine

OF_CLUSTER = {"cluster", "name"}  # keys of a file that describes a cluster, and nothing to run


def check_file(path: Path) -> str:
    """Validate one file as whatever it is; the text says what was found."""
    if path.suffix and path.is_file() and is_foreign(path):
        return _described(find_subject(path.as_posix(), Options()))
    path = find_scenario(path.as_posix()).path
    source = load_source(path)
    if "cluster" in source.data and set(source.data) <= OF_CLUSTER:
        found = _described(find_subject(path.as_posix(), Options()))
        return f"{found} (no workload: for netsim topo, or to complete)"
    if "workload" in source.data or "cluster" in source.data:
        cells = checked_cells(source)
        sizes = sum(len(cell.scenario.workload.size_list()) for cell in cells)
        counted = f"{sizes} size{'s' * (sizes != 1)} in all"
        found = f"a scenario of {len(cells)} cell{'s' * (len(cells) > 1)}, {counted}"
        notes = [*notes_of(cells), *(f"warning: {text}" for text in unused_keys(cells))]
        return "\n".join([found, *notes])
    if "gpu" in source.data:
        machine = load_machine(path)
        return f"a machine with {machine.gpu.count} GPUs"
    raise InputError(
        f"{path}: neither a scenario (with cluster and workload) nor a machine (with gpu)"
    )


def _described(subject: Subject) -> str:
    """What a file without a workload holds."""
    gpus = plural(len(subject.topology), "GPU")
    if subject.cluster is None:
        return f"a graph with {gpus}"
    return f"a cluster of {plural(subject.hosts, 'host')} with {gpus}"
