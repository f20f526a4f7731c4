"""netsim: a discrete-event simulator of collectives on GPU clusters.

    import netsim
    rows = netsim.run("quickstart", ["workload.sizes=64MiB"])
    rows[0].busbw_GBps

The names below are the public interface; they are imported when they are first used."""

from importlib import import_module

from netsim.base.startup import __version__

TYPE_CHECKING = False  # for type checkers; importing typing takes as long as all else here

if TYPE_CHECKING:
    from netsim.base.errors import (
        InputError,
        InvariantError,
        NetsimError,
        ScenarioError,
        StalledError,
    )
    from netsim.collectives.collective import Collective, collective_of, volumes
    from netsim.collectives.table import ALGORITHMS, algorithm, build
    from netsim.collectives.verify import check_races, verify
    from netsim.program.place import place
    from netsim.program.program import Program, Timeline
    from netsim.report.rows import Rows, run
    from netsim.results.row import Row
    from netsim.schedule.builder import Builder
    from netsim.schedule.repeat import Launch, repeat
    from netsim.schedule.schedule import Lag, Schedule, Style, Use, combine
    from netsim.topology.cluster import build_topology
    from netsim.topology.graph import Topology
    from netsim.topology.load import load_machine

_HOMES = {
    "netsim.base.errors": (
        "InputError",
        "InvariantError",
        "NetsimError",
        "ScenarioError",
        "StalledError",
    ),
    "netsim.collectives.collective": ("Collective", "collective_of", "volumes"),
    "netsim.collectives.table": ("ALGORITHMS", "algorithm", "build"),
    "netsim.collectives.verify": ("check_races", "verify"),
    "netsim.program.place": ("place",),
    "netsim.program.program": ("Program", "Timeline"),
    "netsim.report.rows": ("Rows", "run"),
    "netsim.results.row": ("Row",),
    "netsim.schedule.builder": ("Builder",),
    "netsim.schedule.repeat": ("Launch", "repeat"),
    "netsim.schedule.schedule": ("Lag", "Schedule", "Style", "Use", "combine"),
    "netsim.topology.cluster": ("build_topology",),
    "netsim.topology.graph": ("Topology",),
    "netsim.topology.load": ("load_machine",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ALGORITHMS", "Builder", "Collective", "InputError", "InvariantError", "Lag", "Launch",
    "NetsimError", "Program", "Row", "Rows", "ScenarioError", "Schedule", "StalledError", "Style",
    "Timeline", "Topology", "Use", "__version__", "algorithm", "build", "build_topology",
    "check_races", "collective_of", "combine", "load_machine", "place", "repeat", "run", "verify",
    "volumes",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
