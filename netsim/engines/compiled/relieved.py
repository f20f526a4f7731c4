"""Resources that what happens at once can never fill: nobody has to look at those.

Rows of one path of which each waits for the one before are a *file*: only one of them moves at a
time. As many files as a path has, as fast as each can go at most, are all that a resource on it can
ever have to carry. What has room for that slows nobody, at any time.

Nor can it be filled by what a tighter resource lets through to it (see `behind`).
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.engines.compiled.behind import BEHIND, ROOM, Traffic, find_behind
from netsim.engines.compiled.jit import Entry
from netsim.engines.compiled.state import Records
from netsim.program import Program
from netsim.program.pack import owners_of

FULL = 1e-12  # as much too little is not too little, where caps alone fill a resource
_TABLE = 1 << 20  # a table by (path, kind) may always have so many cells


def relieved(program: Program, kind: NDArray[np.int32], limits: Records) -> NDArray[np.bool_]:
    """The entries of all paths that can limit a row."""
    paths, schedule, links = program.paths, program.schedule, program.links
    cells = (len(paths) + 1) * len(limits)
    if cells > max(_TABLE, 4 * len(program)):
        return paths.active
    least, most = links.capacity.copy(), links.capacity.copy()
    for _, where, value in links.changes:
        least[where], most[where] = min(least[where], value), max(most[where], value)
    active, files = paths.active.copy(), np.zeros(cells, np.int32)
    fillable = np.zeros(len(links), np.bool_)
    find_relieved(
        schedule.style, program.path, schedule.dep_ptr, schedule.dep_row,
        kind, limits, paths.ptr, paths.link, paths.weight, least, most,
        np.zeros(len(program), np.bool_), files, np.zeros(len(links)),
        np.ones(len(links), np.bool_), fillable, active,
    )  # fmt: skip
    doubtful = np.flatnonzero(active & ~fillable[paths.link])
    if len(doubtful):
        doubtful = doubtful[np.argsort(paths.link[doubtful], kind="stable")]
        behind = np.zeros(len(links), BEHIND)
        traffic = Traffic(
            files, limits, paths.ptr, paths.link, paths.weight, least, most, behind, active
        )
        find_behind(traffic, doubtful, owners_of(paths.ptr)[doubtful])
    return active


@Entry
def find_relieved(
    style: NDArray[np.int32],
    path: NDArray[np.int32],
    dep_ptr: NDArray[np.int32],
    dep_row: NDArray[np.int32],
    kind: NDArray[np.int32],
    limits: Records,
    ptr: NDArray[np.int64],
    link: NDArray[np.int32],
    weight: NDArray[np.float64],
    least: NDArray[np.float64],
    most: NDArray[np.float64],
    followed: NDArray[np.bool_],
    files: NDArray[np.int32],
    load: NDArray[np.float64],
    capped: NDArray[np.bool_],
    fillable: NDArray[np.bool_],
    active: NDArray[np.bool_],
) -> int:
    """Count the files of every (path, kind), add up what they may draw, and mark what has room.

    Caps count for what they are. Where another resource is what bounds a row, there has to be room
    to spare: then the resource that is left out is not itself the one that bounds. `fillable` is
    what one row alone can fill.
    """
    for row in range(len(style)):
        cell = (path[row] + 1) * len(limits) + kind[style[row]]
        files[cell] += 1
        for k in range(dep_ptr[row], dep_ptr[row + 1]):
            before = dep_row[k]
            same = path[before] == path[row] and kind[style[before]] == kind[style[row]]
            if same and not followed[before]:
                followed[before] = True
                files[cell] -= 1
                break
    for cell in range(len(limits), len(files)):
        if files[cell] == 0:
            continue
        way, limit = cell // len(limits) - 1, limits[cell % len(limits)]
        cap = limit.cap * limit.share
        rate = cap
        for k in range(ptr[way], ptr[way + 1]):
            if active[k]:
                rate = min(rate, most[link[k]] / weight[k])
        for k in range(ptr[way], ptr[way + 1]):
            if active[k]:
                load[link[k]] += files[cell] * weight[k] * rate if rate < inf else inf
                capped[link[k]] &= rate == cap
                fillable[link[k]] |= weight[k] * rate > least[link[k]] * (1 - ROOM)
    for number in range(len(load)):
        room = least[number] * (1 + FULL) if capped[number] else least[number] * (1 - ROOM)
        load[number] = 1.0 if 0.0 < load[number] <= room else 0.0
    for k in range(len(active)):
        active[k] &= load[link[k]] == 0.0
    return 0
