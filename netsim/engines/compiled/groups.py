"""Groups of rows that are equal to the solver: the same links, weights, share and cap."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.engines.compiled.jit import Entry, Inner
from netsim.engines.compiled.relieved import relieved
from netsim.engines.compiled.state import DRAW, GROUP, KIND, LINK, MEMBER, NOBODY, Records
from netsim.program import Paths, Program

_CHUNK = 1 << 22  # rows treated at a time, to bound temporary memory
_TABLE = 1 << 20  # a table by (path, kind) may always have so many cells


class Grouping(NamedTuple):
    """Groups, what they draw on and the links they use, numbered in order of first use.

    `limits` are the distinct (share, cap), `kind` which of them a style has. `group` holds the
    number of every (path, kind), or of every row if `kinds` is 0; NOBODY where nothing is drawn on.
    `number` is that of every link of the program, NOBODY if it is not used.
    """

    limits: Records
    groups: Records
    draws: Records
    links: Records
    members: Records
    number: NDArray[np.int32]
    group: NDArray[np.int32]
    kind: NDArray[np.int32]
    kinds: int


def group_rows(program: Program) -> Grouping:
    """Find the groups of a program."""
    limits, kind = _kinds(program)
    keys, table, kinds = _keys(program, kind, len(limits))
    paths = program.paths
    active = relieved(program, kind, limits)
    groups = np.empty(len(keys) + 1, GROUP)
    draws = np.empty(_most_draws(paths, keys, len(limits)), DRAW)
    number = np.full(len(program.links), NOBODY, np.int32)
    count = np.zeros(len(program.links), np.int32)
    of_key = np.empty(len(keys), np.int32)
    hashes = np.zeros(1 << (4 * len(keys) // 3).bit_length(), np.int32)
    sizes = np.zeros(3, np.int64)
    form_groups(
        keys, limits, paths.ptr, paths.link, paths.weight, active,
        hashes, groups, draws, number, count, of_key, sizes,
    )  # fmt: skip
    found, size, used = sizes.tolist()
    return Grouping(
        limits=limits,
        groups=groups[: found + 1],
        draws=draws[:size],
        links=_links(program, number, count[:used]),
        members=np.empty(size, MEMBER),
        number=number,
        group=_spread(table, keys, of_key, kinds),
        kind=kind,
        kinds=kinds,
    )


def _kinds(program: Program) -> tuple[Records, NDArray[np.int32]]:
    pairs = np.stack([program.style_values("share"), program.caps], axis=1).reshape(-1, 2)
    distinct, place = np.unique(pairs, axis=0, return_inverse=True)
    limits = np.zeros(len(distinct), KIND)
    limits["share"], limits["cap"] = distinct[:, 0], distinct[:, 1] / distinct[:, 0]
    return limits, place.reshape(-1).astype(np.int32)


def _most_draws(paths: Paths, keys: NDArray[np.int64], kinds: int) -> int:
    """How many draws the groups of all keys can have together."""
    if kinds == 1:
        return len(paths.link)
    return int(np.append(np.diff(paths.ptr), 0)[keys // kinds - 1].sum())


def _keys(
    program: Program, kind: NDArray[np.int32], kinds: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
    """The distinct values of (path + 1) · kinds + kind. With them a table by such values, and
    `kinds`; or, where that would be large, the place among the values by row, and 0.
    """
    cells = (len(program.paths) + 1) * kinds
    if kinds == 1:
        return np.arange(cells), np.empty(cells, np.int32), 1
    if cells <= max(_TABLE, 4 * len(program)):
        seen = np.zeros(cells, bool)
        for first in range(0, len(program), _CHUNK):
            seen[_chunk(program, kind, kinds, first)] = True
        return np.flatnonzero(seen), np.full(cells, -1, np.int32), kinds
    keys, place = np.unique(_chunk(program, kind, kinds, 0, len(program)), return_inverse=True)
    return keys, place.astype(np.int32), 0


def _chunk(
    program: Program, kind: NDArray[np.int32], kinds: int, first: int, size: int = _CHUNK
) -> NDArray[np.int64]:
    rows = slice(first, first + size)
    path = program.path[rows].astype(np.int64) + 1
    return path * kinds + kind[program.schedule.style[rows]]


def _spread(
    table: NDArray[np.int32], keys: NDArray[np.int64], of_key: NDArray[np.int32], kinds: int
) -> NDArray[np.int32]:
    if kinds == 0:
        return of_key[table]
    table[keys] = of_key
    return table


def _links(program: Program, number: NDArray[np.int32], count: NDArray[np.int32]) -> Records:
    links = np.zeros(len(count), LINK)
    mine = np.flatnonzero(number >= 0)
    links["capacity"][number[mine]] = program.links.capacity[mine]
    links["level"] = np.inf
    links["first"] = np.cumsum(count) - count
    return links


@Inner
def _mixed(code: int, more: int) -> int:
    """A hash of two numbers in which every bit of them counts."""
    code = (code ^ more) * 0x1F58_D5CB_4E6D_9B35
    return code ^ (code >> 29)


@Inner
def _same(groups: Records, draws: Records, group: int, start: int, end: int, kind: int) -> bool:
    """Whether a group is of a kind, with the draws from `start` to `end`."""
    there = groups[group]
    if there.kind != kind or groups[group + 1].first - there.first != end - start:
        return False
    for k in range(end - start):
        a, b = draws[there.first + k], draws[start + k]
        if a.link != b.link or a.weight != b.weight:
            return False
    return True


@Entry
def form_groups(
    keys: NDArray[np.int64],
    limits: Records,
    ptr: NDArray[np.int64],
    link: NDArray[np.int32],
    weight: NDArray[np.float64],
    active: NDArray[np.bool_],
    seen: NDArray[np.int32],
    groups: Records,
    draws: Records,
    number: NDArray[np.int32],
    count: NDArray[np.int32],
    of_key: NDArray[np.int32],
    sizes: NDArray[np.int64],
) -> int:
    """Write down the group of every key once; `sizes` are those of groups, draws and links.

    `seen` is a hash table of group numbers + 1 (open addressing), `count` becomes the groups of
    every link.
    """
    found, size, used = 0, 0, 0
    groups[0].first = 0
    for i in range(len(keys)):
        path, kind = keys[i] // len(limits) - 1, keys[i] % len(limits)
        of_key[i] = NOBODY
        if path < 0:
            continue
        end, code = size, kind
        for k in range(ptr[path], ptr[path + 1]):
            if active[k]:
                if number[link[k]] < 0:
                    number[link[k]] = used
                    used += 1
                draws[end].link = number[link[k]]
                draws[end].weight = weight[k] * limits[kind].share
                code = _mixed(code + link[k], int(weight[k] * 1024.0))
                end += 1
        if end == size:
            continue
        slot = code & (len(seen) - 1)
        while seen[slot] > 0 and not _same(groups, draws, seen[slot] - 1, size, end, kind):
            slot = (slot + 1) & (len(seen) - 1)
        if seen[slot] == 0:
            for k in range(size, end):
                count[draws[k].link] += 1
            groups[found].kind, groups[found].seat = kind, NOBODY
            found, size = found + 1, end
            groups[found].first = size
            seen[slot] = found
        of_key[i] = seen[slot] - 1
    sizes[0], sizes[1], sizes[2] = found, size, used
    return 0
