"""Files that people name on the command line: scenarios and topologies, by path or by preset."""

from pathlib import Path

from netsim.errors import InputError
from netsim.presets import Preset, find_preset, is_path, preset_folder
from netsim.scenario.cells import Cell, expand
from netsim.simulate import prepare
from netsim.topology.load import load_machine
from netsim.yamlio.source import Source, read_source


def find_scenario(name: str) -> Preset:
    """The file of a scenario: a path, or the name of a preset with or without its folder.

    `scenarios/quickstart.yaml` finds the preset from any directory; a file that exists wins.
    """
    path = Path(name)
    if is_path(name) and not path.exists() and path.parent.name in ("", "scenarios"):
        preset = preset_folder("scenarios") / path.name
        if preset.is_file():
            return Preset(path.stem, preset)
    return find_preset("scenarios", name, "scenario")


def named(source: Source, path: Path) -> Source:
    """The source with the name of its file, where the scenario states none."""
    if source.data.get("name") is not None:
        return source
    return Source(source.name, {"name": path.stem, **source.data}, source.root, source.origins)


def check_file(path: Path) -> str:
    """Validate one file as whatever it is; the text says what was found."""
    source = read_source(path)
    if "workload" in source.data or "cluster" in source.data:
        cells = checked_cells(named(source, path))
        sizes = sum(len(cell.scenario.workload.size_list()) for cell in cells)
        return f"a scenario of {len(cells)} cell{'s' * (len(cells) > 1)}, {sizes} sizes in all"
    if "gpu" in source.data:
        machine = load_machine(path)
        return f"a machine with {machine.gpu.count} GPUs"
    raise InputError(
        f"{path}: neither a scenario (with cluster and workload) nor a machine (with gpu)"
    )


def checked_cells(source: Source) -> list[Cell]:
    """All cells of a scenario, each known to fit together."""
    cells = expand(source)
    for cell in cells:
        prepare(cell)
    return cells
