"""How sure a simulated time is: the error of the nearest class that was held against hardware.

A class is a machine, what joins its hosts and how fast, a collective and a size band. The errors
are those of the corpus that comes with netsim, stored by `netsim accuracy --page`.
"""

import json
from functools import lru_cache

from netsim.presets import preset_folder
from netsim.values import dataclass

KIB, MIB = 2**10, 2**20
BANDS = ("<=64KiB", "64KiB-1MiB", "1-64MiB", ">=64MiB")
STORED = "validated.json"
NOT_VALIDATED = "not validated"
ONE_HOST, NVLINK = "intra", "nvlink"


def band_of(size_bytes: int) -> str:
    """The band of a size."""
    if size_bytes <= 64 * KIB:
        return BANDS[0]
    if size_bytes <= MIB:
        return BANDS[1]
    return BANDS[2] if size_bytes < 64 * MIB else BANDS[3]


@dataclass(frozen=True)
class Joined:
    """Machines as a class has them: `gbps` is the sum of a host's NICs, 0 where none is used."""

    machine: str
    transport: str
    gbps: int = 0


def joined(machine: str, transport: str, gbps: float) -> Joined:
    """The machines of a class; NICs do not count inside a host or an NVLink domain."""
    uses_nics = transport not in (ONE_HOST, NVLINK)
    return Joined(machine, transport, round(gbps) if uses_nics else 0)


@lru_cache(maxsize=1)
def stored() -> dict[tuple[Joined, str, str], tuple[float, int]]:
    """Median error and number of runs of every class; none where no result is stored."""
    path = preset_folder("scenarios") / "measured" / STORED
    if not path.is_file():
        return {}
    return {
        (
            Joined(one["machine"], one["transport"], one["gbps"]),
            one["collective"],
            one["band"],
        ): (one["median"], one["runs"])
        for one in json.loads(path.read_text(encoding="utf-8"))
    }


def validated(where: Joined, collective: str, size_bytes: int) -> str:
    """The error of a class and from how many runs, or the nearest that was timed instead."""
    band = band_of(size_bytes)
    found = stored().get((where, collective, band))
    if found is not None:
        return f"{found[0]:.0%} ({found[1]} run{'s' * (found[1] > 1)})"
    others = sorted(
        (median, name)
        for (machines, name, size), (median, _) in stored().items()
        if (machines, size) == (where, band)
    )
    if others:
        return f"{NOT_VALIDATED} ({others[-1][1]}: {others[-1][0]:.0%})"
    rates = {
        machines.gbps
        for machines, name, size in stored()
        if (machines.machine, machines.transport, name, size)
        == (where.machine, where.transport, collective, band)
    }
    if rates:
        known = " and ".join(str(rate) for rate in sorted(rates))
        return not_validated(f"only NICs of {known} Gb/s a host were timed")
    return NOT_VALIDATED


def not_validated(why: str) -> str:
    """What belongs to no class, and why."""
    return f"{NOT_VALIDATED} ({why})"
