"""How busy links were in a run, from the links.csv of its results folder."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from netsim.errors import InputError
from netsim.plots.tables import LINKS, filled, read_table
from netsim.topology.graph import Topology
from netsim.topology.layout import lanes

FILE = "links.csv"


def read_use(folder: Path, topology: Topology) -> NDArray[np.float64]:
    """The utilisation (0…1) of every link of a topology; NaN where the file says nothing."""
    path = folder / FILE if folder.is_dir() else folder
    if folder.is_dir() and not path.is_file():
        raise InputError(f"{folder}: holds no {FILE}", hint="netsim run writes it with traces")
    table = filled(path, read_table(path, LINKS, "the columns of links.csv"), ("utilisation",))
    names = table["link"].astype(str).tolist()
    found = _numbers(topology, names)
    if (found < 0).all():
        first = next((name for name in names if "->" in name), "nothing")
        raise InputError(
            f"{path}: none of its links is in this topology, which has "
            f"{topology.link_name(0)} while the file has {first}",
            hint="name the cluster of that run: its scenario, or the same --nodes and --fabric",
        )
    used = np.full(len(topology.links), np.nan)
    known = found >= 0
    used[found[known]] = table["utilisation"].to_numpy(np.float64)[known]
    return used


def _numbers(topology: Topology, names: list[str]) -> NDArray[np.int64]:
    """The number of each link by its name, `tail->head` or `tail->head#n`; -1 for others."""
    links, size = topology.links, len(topology.nodes)
    lane = lanes(links)
    ends = links.tail.astype(np.int64) * size + links.head
    order = np.lexsort((lane, ends))
    ordered = ends[order]
    known = {str(name): number for name, number in topology.node_number.items()}
    found = np.full(len(names), -1)
    for place, name in enumerate(names):
        pair, _, turn = name.partition("#")
        tail, _, head = pair.partition("->")
        if tail in known and head in known:
            key = known[tail] * size + known[head]
            first = int(np.searchsorted(ordered, key)) + int(turn or 0)
            if first < len(order) and ordered[first] == key:
                found[place] = order[first]
    return found
