"""Programs: schedules placed on topologies, ready to be simulated; and the Timeline of a run."""

from netsim.program.place import place
from netsim.program.rows import LinkTable, Paths, Program, Timeline
from netsim.program.ways import PlacementError

__all__ = ["LinkTable", "Paths", "PlacementError", "Program", "Timeline", "place"]
