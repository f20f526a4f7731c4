"""How sure a simulated time is: the error of the nearest class that was held against hardware.

A class is a machine, what joins its hosts, a collective and a size band. The errors are those of
the corpus that comes with netsim, stored by `netsim accuracy --page`.
"""

import json
from functools import lru_cache

from netsim.presets import preset_folder

KIB, MIB = 2**10, 2**20
BANDS = ("<=64KiB", "64KiB-1MiB", "1-64MiB", ">=64MiB")
STORED = "validated.json"
NOT_VALIDATED = "not validated"
ONE_HOST = "intra"


def band_of(size_bytes: int) -> str:
    """The band of a size."""
    if size_bytes <= 64 * KIB:
        return BANDS[0]
    if size_bytes <= MIB:
        return BANDS[1]
    return BANDS[2] if size_bytes < 64 * MIB else BANDS[3]


@lru_cache(maxsize=1)
def stored() -> dict[tuple[str, str, str, str], tuple[float, int]]:
    """Median error and number of runs of every class; none where no result is stored."""
    path = preset_folder("scenarios") / "measured" / STORED
    if not path.is_file():
        return {}
    return {
        (one["machine"], one["transport"], one["collective"], one["band"]): (
            one["median"],
            one["runs"],
        )
        for one in json.loads(path.read_text(encoding="utf-8"))
    }


def validated(machine: str, transport: str, collective: str, size_bytes: int) -> str:
    """The error of a class and from how many runs, or which others of the machine were timed."""
    band = band_of(size_bytes)
    found = stored().get((machine, transport, collective, band))
    if found is not None:
        return f"{found[0]:.0%} ({found[1]} run{'s' * (found[1] > 1)})"
    others = sorted(
        (median, name)
        for (where, way, name, size), (median, _) in stored().items()
        if (where, way, size) == (machine, transport, band)
    )
    if not others:
        return NOT_VALIDATED
    return f"{NOT_VALIDATED} ({others[-1][1]}: {others[-1][0]:.0%})"
