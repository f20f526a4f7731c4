"""What a results folder says about itself: the question, its cells in order, how to ask again."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netsim.scenario.cells import Cell, Expansion
from netsim.scenario.clusters import line_rate
from netsim.version import MODEL_VERSION, __version__, version_of

PACKAGES = ("numpy", "numba", "simpy", "networkx", "scipy")


def about(
    expansion: Expansion,
    path: Path,
    settings: Sequence[str],
    engine: str,
    shard: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """The manifest of a run, apart from the name of its scenario."""
    text = path.read_text(encoding="utf-8", errors="replace")
    scenario = expansion.cells[0].scenario if expansion.cells else None
    rates = {line_rate(cell.scenario.cluster) for cell in expansion.cells}
    return {
        "file": path.as_posix(),
        "text": text,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "settings": list(settings),
        "engine": engine,
        "seed": None if scenario is None else scenario.seed,
        "versions": versions(),
        "axes": list(expansion.sweep.names),
        "base": None if expansion.sweep.base is None else dict(expansion.sweep.base),
        "line_rate": rates.pop() if len(rates) == 1 else None,
        "points": [_point(point) for point in expansion.points],
        "shard": None if shard is None else list(shard),
    }


def _point(point: Any) -> dict[str, Any]:
    if isinstance(point, Cell):
        return {
            "cell": point.id,
            "axes": _plain(point.axes),
            "sizes": point.scenario.workload.size_list(),
        }
    return {"cell": point.id, "axes": _plain(point.axes), "error": str(point.error)}


def _plain(axes: Mapping[str, Any]) -> dict[str, Any]:
    """Values as results write them."""
    return {
        key: value if isinstance(value, str | int | float | bool | None) else str(value)
        for key, value in axes.items()
    }


def versions() -> dict[str, str]:
    """What the results were computed with."""
    found = {"netsim": __version__, "model": MODEL_VERSION, "python": platform.python_version()}
    return {**found, **{name: version_of(name) for name in PACKAGES}}
