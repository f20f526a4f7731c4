"""netsim: a discrete-event simulator of collectives on GPU clusters.

    import netsim
    rows = netsim.run("quickstart", ["workload.sizes=64MiB"])
    rows[0].busbw_GBps

The names below are the public interface; they are imported when they are first used.
"""

from importlib import import_module

from netsim.lazy import promised
from netsim.version import __version__

TYPE_CHECKING = False  # for type checkers; importing typing takes as long as all else here

if TYPE_CHECKING:
    from netsim.collectives import (
        ALGORITHMS,
        Collective,
        build,
        check_races,
        collective_of,
        verify,
        volumes,
    )
    from netsim.errors import InputError, NetsimError, ScenarioError, StalledError
    from netsim.program import Program, Timeline, place
    from netsim.results import Row
    from netsim.runs import run
    from netsim.schedule import Builder, Lag, Launch, Schedule, Style, Use, repeat
    from netsim.topology import Topology
    from netsim.topology.build import build_topology
    from netsim.topology.load import load_machine

_HOMES = {
    "netsim.collectives": (
        "ALGORITHMS",
        "Collective",
        "build",
        "check_races",
        "collective_of",
        "verify",
        "volumes",
    ),
    "netsim.errors": ("InputError", "NetsimError", "ScenarioError", "StalledError"),
    "netsim.program": ("Program", "Timeline", "place"),
    "netsim.results": ("Row",),
    "netsim.runs": ("run",),
    "netsim.schedule": ("Builder", "Lag", "Launch", "Schedule", "Style", "Use", "repeat"),
    "netsim.topology": ("Topology",),
    "netsim.topology.build": ("build_topology",),
    "netsim.topology.load": ("load_machine",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ALGORITHMS",
    "Builder",
    "Collective",
    "InputError",
    "Lag",
    "Launch",
    "NetsimError",
    "Program",
    "Row",
    "ScenarioError",
    "Schedule",
    "StalledError",
    "Style",
    "Timeline",
    "Topology",
    "Use",
    "__version__",
    "build",
    "build_topology",
    "check_races",
    "collective_of",
    "load_machine",
    "place",
    "repeat",
    "run",
    "verify",
    "volumes",
]


_promise = promised(__name__, "departures", "lockstep", "relayed", "rings")


def __getattr__(name: str) -> object:
    return getattr(import_module(_HOME[name]), name) if name in _HOME else _promise(name)


def __dir__() -> list[str]:
    return sorted(__all__)
