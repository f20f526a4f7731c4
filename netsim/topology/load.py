"""Machines by name or path: what a file says becomes a Machine, and where it came from is told."""

from functools import lru_cache
from pathlib import Path

from netsim.presets import find_preset
from netsim.topology.machine import Machine
from netsim.values import dataclass
from netsim.yamlio.source import Source, read_source
from netsim.yamlio.validate import validate

FOLDER = "topologies"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A machine with its name, its file, and what the user should be told (or nothing)."""

    name: str
    machine: Machine
    path: Path | None = None
    note: str = ""


def load_machine(which: str | Path | Source) -> Machine:
    """The machine of a name, a path or a source; unknown names are refused with the list."""
    return find_machine(which).machine


def find_machine(which: str | Path | Source) -> Loaded:
    """As `load_machine`, with the file and whether it hides a preset of the same name."""
    if isinstance(which, Source):
        return Loaded(Path(which.name).stem, validate(Machine, which))
    found = find_preset(FOLDER, str(which), "machine")
    try:
        stamp = found.path.stat().st_mtime_ns
    except OSError:
        stamp = 0
    return Loaded(found.name, _read(found.path, stamp), found.path, found.note)


@lru_cache(maxsize=64)
def _read(path: Path, stamp: int) -> Machine:
    """The machine of a file as it was at a time; the cache is only for speed."""
    del stamp
    return validate(Machine, read_source(path))
