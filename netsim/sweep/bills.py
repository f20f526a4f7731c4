"""What the cells of a sweep cost: costs.csv, a line a cell."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from netsim import costs
from netsim.files import write_text
from netsim.scenario.cells import Cell
from netsim.topology.build import build_cluster
from netsim.topology.config import ClusterConfig

if TYPE_CHECKING:
    from netsim.topology.cluster import Cluster
    from netsim.topology.hosts import Group

COSTS = "costs.csv"
COLUMNS = ("switches", "cables", "nics", "gpus", "cost_usd", "power_w")


def bill(cell: Cell) -> "costs.Bill | None":
    """The bill of a cell, by the prices that its scenario names; None of a plain graph."""
    config, name = cell.scenario.cluster, cell.scenario.prices
    if name is None or config.graph is not None:
        return None
    models = [
        group.loaded.machine.gpu.model
        for group in config.members
        for _ in range(group.nodes * _gpus_of(group))
    ]
    return costs.bill_of(_healthy(cell.cluster, config), models, costs.load_prices(name))


_MADE: "OrderedDict[str, Cluster]" = OrderedDict()
_MOST_MADE = 32


def _healthy(key: str, config: ClusterConfig) -> "Cluster":
    """The cluster as it was bought, whatever has failed since; `key` stands for its section."""
    if not key or key not in _MADE:
        made = build_cluster(config.model_copy(update={"faults": ()}))
        if not key:
            return made
        _MADE[key] = made
    while len(_MADE) > _MOST_MADE:
        _MADE.popitem(last=False)
    return _MADE[key]


def _gpus_of(group: "Group") -> int:
    """GPUs of a host that are in use."""
    if group.gpus is not None:
        return len(group.gpus)
    return group.gpus_per_node or group.loaded.machine.gpu.count


def check_prices(cells: Sequence[Cell]) -> None:
    """Read the prices that cells name; what is wrong with them is raised."""
    for name in {cell.scenario.prices for cell in cells} - {None}:
        costs.load_prices(str(name))


def write_costs(cells: Sequence[Cell], folder: Path) -> list[str]:
    """Write what every cell costs, if prices are wanted."""
    if all(cell.scenario.prices is None for cell in cells):
        return []
    lines = [",".join(("cell", *COLUMNS))]
    for cell in {cell.id: cell for cell in cells}.values():
        found = bill(cell)
        if found is not None:
            lines.append(",".join([cell.id, *(repr(getattr(found, c)) for c in COLUMNS)]))
    return [str(write_text(folder / COSTS, "\n".join(lines) + "\n"))]
