"""Where in a scenario the arguments of a collective and of its algorithm are written."""

from netsim.collectives import CollectiveError
from netsim.errors import ScenarioError
from netsim.scenario.cells import Cell

_FIELDS = {"collective": "collective", "root": "root", "pairs": "pairs", "matrix": "matrix"}


def placed(cell: Cell, error: CollectiveError) -> ScenarioError:
    """The error with the place of the argument at fault."""
    path: tuple[str, ...] = ("workload", _FIELDS.get(error.field, "algorithm"))
    if error.field in cell.scenario.collective.parameters:
        path = ("workload", "parameters", error.field)
    message = error.message.removeprefix(f"{error.field}: ")
    return cell.source.error(path, message, hint=error.hint)
