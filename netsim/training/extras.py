"""The small collectives of a step, from what the scenario says of them."""

from netsim.scenario.training import Training
from netsim.workloads.extras import AXES_OF, preset
from netsim.workloads.grid import Grid
from netsim.workloads.model import Model
from netsim.workloads.setting import Extra


def extras_of(work: Training, model: Model, grid: Grid) -> tuple[Extra, ...]:
    """Presets by name, and those that are written out; what is given replaces the preset's."""
    found = []
    for number, given in enumerate(work.extras):
        known = None
        if given.preset is not None:
            held = model.parameters // (grid.degrees["tp"] * grid.degrees["pp"])
            known = preset(given.preset, held, work.micro_batch)
        usual = known or Extra(f"extra {number}", "all_reduce", AXES_OF["all"], 4, "step")
        found.append(
            Extra(
                usual.name,
                given.collective or usual.collective,
                AXES_OF[given.group] if given.group else usual.axes,
                given.bytes or usual.nbytes,
                given.when or usual.when,
                usual.dtype,
            )
        )
    return tuple(found)
