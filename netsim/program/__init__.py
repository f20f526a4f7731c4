"""Programs: schedules placed on topologies, ready to be simulated; and the Timeline of a run."""

from netsim.program.operations import Operations, operations
from netsim.program.place import place
from netsim.program.rows import LinkTable, Paths, Program, Timeline
from netsim.program.ways import PlacementError

__all__ = [
    "LinkTable",
    "Operations",
    "Paths",
    "PlacementError",
    "Program",
    "Timeline",
    "operations",
    "place",
]
