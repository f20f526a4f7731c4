"""Programs: schedules placed on topologies, ready to be simulated; and the Timeline of a run."""

from netsim.lazy import promised
from netsim.program.operations import Operations, operations
from netsim.program.place import place
from netsim.program.rows import LinkTable, Paths, Program, Timeline
from netsim.program.ways import PlacementError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from netsim.program import beginnings, steps

__getattr__ = promised(__name__, "beginnings", "steps")

__all__ = [
    "LinkTable",
    "Operations",
    "Paths",
    "PlacementError",
    "Program",
    "Timeline",
    "beginnings",
    "operations",
    "place",
    "steps",
]
