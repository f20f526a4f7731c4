"""How a program is prepared for the compiled engine: groups of equal rows, links that can
saturate.
"""

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.engines.compiled.machine_code import CompiledFunction, InnerFunction
from netsim.engines.compiled.structures import DRAW, GROUP, KIND, LINK, MEMBER, NOBODY, Records
from netsim.program.path_entries import owners_of
from netsim.program.program import Paths, Program
from netsim.schedule.schedule import Schedule
from netsim.topology.graph import least_and_most

ROOM = 1e-9  # fraction of a capacity that has to stay free
BEHIND = np.dtype(
    [
        ("all", "f8"),  # bytes/s that all files crossing a link may draw on the examined link
        ("chosen", "f8"),  # bytes/s of the files for which this link was chosen as the limit
        ("passes", "f8"),  # the most bytes/s that it lets through to the examined link
    ],
    align=True,
)


class Traffic(NamedTuple):
    """The demand of all paths on links, as input of `deactivate_protected`.

    - `files`: the number of files of every (path, kind); a file is a sequence of rows that wait for
      each other.
    - `limits`: by kind, its share and its cap / share. A kind is a distinct pair of these.
    - `ptr`, `link`, `weight`, `active`: the entries of each path, as in `Paths`.
    - `least`, `most`: the smallest and largest capacity of each link over time, in bytes/s.
    - `behind`: working memory: by link, sums for the one link that is being examined; zero between
      two links.
    """

    files: NDArray[np.int32]
    limits: Records
    ptr: NDArray[np.int64]
    link: NDArray[np.int32]
    weight: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    behind: Records
    active: NDArray[np.bool_]


@CompiledFunction
def deactivate_protected(
    traffic: Traffic, doubtful: NDArray[np.int64], owner: NDArray[np.int32]
) -> int:
    """Deactivate path entries of links that cannot saturate because tighter links limit the load.

    - `doubtful`: the numbers of the entries to examine, sorted by link.
    - `owner`: the path of each of these entries.

    Always returns 0. One link is examined after the other, and only entries that are still active
    count as limits. So the last link that is left out is protected by links that stay, and each
    earlier one by links that stay or were left out later.
    """
    first = 0
    while first < len(doubtful):
        last = first
        number = traffic.link[doubtful[first]]
        while last < len(doubtful) and traffic.link[doubtful[last]] == number:
            last += 1
        for i in range(first, last):
            _note(traffic, doubtful[i], owner[i])
        load = 0.0
        for i in range(first, last):
            load += _unbounded(traffic, doubtful[i], owner[i])
        for i in range(first, last):
            load += _bounded(traffic, owner[i])
        # A link that is dead at some time always stays, because its rows have to wait.
        if traffic.least[number] > 0.0 and load <= traffic.least[number] * (1 - ROOM):
            for i in range(first, last):
                traffic.active[doubtful[i]] = False
        first = last
    return 0


@InnerFunction
def _note(traffic: Traffic, entry: int, path: int) -> None:
    """Note for all other active links of a path how much of it they let through.

    The link of `entry` is being examined. In `behind` of each other link, `all` grows by the path's
    demand on the examined link, and `passes` is at least what the other link lets through to it.
    Both are in bytes/s.
    """
    demand = _demand(traffic, entry, path)
    for k in range(traffic.ptr[path], traffic.ptr[path + 1]):
        if traffic.active[k] and k != entry:
            entry_behind = traffic.behind[traffic.link[k]]
            relative_weight = traffic.weight[entry] / traffic.weight[k]
            entry_behind.all += demand
            entry_behind.passes = max(
                entry_behind.passes, relative_weight * traffic.most[traffic.link[k]]
            )


@InnerFunction
def _unbounded(traffic: Traffic, entry: int, path: int) -> float:
    """Return the demand (bytes/s) of a path on the link of `entry`, if no other link reduces it.

    Otherwise it is 0, and the demand is added to `chosen` of the link that reduces the sum of all
    demands most.
    """
    best = -1
    gain = 0.0
    for k in range(traffic.ptr[path], traffic.ptr[path + 1]):
        entry_behind = traffic.behind[traffic.link[k]]
        if traffic.active[k] and k != entry and entry_behind.all - entry_behind.passes > gain:
            best = traffic.link[k]
            gain = entry_behind.all - entry_behind.passes
    demand = _demand(traffic, entry, path)
    if best < 0:
        return demand
    traffic.behind[best].chosen += demand
    return 0.0


@InnerFunction
def _bounded(traffic: Traffic, path: int) -> float:
    """Return the load (bytes/s) that other links of a path let through to the examined link.

    These are the links that `_unbounded` has chosen. Their sums are cleared, so that the next path
    that has the same links does not count them again.
    """
    load = 0.0
    for k in range(traffic.ptr[path], traffic.ptr[path + 1]):
        entry_behind = traffic.behind[traffic.link[k]]
        load += min(entry_behind.chosen, entry_behind.passes)
        entry_behind.all = 0.0
        entry_behind.chosen = 0.0
        entry_behind.passes = 0.0
    return load


@InnerFunction
def _demand(traffic: Traffic, entry: int, path: int) -> float:
    """Return the most bytes/s that all files of a path together can draw on the link of `entry`."""
    demand = 0.0
    kinds = len(traffic.limits)
    for kind in range(kinds):
        count = traffic.files[(path + 1) * kinds + kind]
        if count > 0:
            rate = traffic.limits[kind].cap * traffic.limits[kind].share
            for k in range(traffic.ptr[path], traffic.ptr[path + 1]):
                if traffic.active[k]:
                    rate = min(rate, traffic.most[traffic.link[k]] / traffic.weight[k])
            demand += count * traffic.weight[entry] * rate
    return demand


# Resources that can never saturate, which engines need not examine.
# Rows of one path that each wait for the row before are a *file*: only one of them moves at a time.
# The most that a resource ever has to carry is the sum over the files of its paths, each at its
# highest rate. A resource with at least that capacity slows no row.
# Nor can a resource saturate if a tighter one on the paths lets less through
# (`deactivate_protected`).

FULL = 1e-12  # fraction by which a capacity may be too small, if caps alone limit the load
_TABLE = 1 << 20  # cells that a table by (path, kind) may always have


def active_entries(program: Program, kind: NDArray[np.int32], limits: Records) -> NDArray[np.bool_]:
    """Return for each entry of a path (a resource that it draws on) whether it can limit a row.

    - `kind`: by style, the number of its kind.
    - `limits`: by kind, its share and its cap / share.

    If the table of files would be too large, if paths are chosen at run time, or with incast, the
    result is `Paths.active`.
    """
    paths = program.paths
    schedule = program.schedule
    links = program.links
    cells = (len(paths) + 1) * len(limits)
    if cells > max(_TABLE, 4 * len(program)) or paths.choices is not None or links.incast:
        return paths.active
    least, most = least_and_most(links.capacity, links.changes)
    active = paths.active.copy()
    files = np.zeros(cells, np.int32)
    fillable = np.zeros(len(links), np.bool_)
    deactivate_ample(
        schedule.style,
        program.path,
        schedule.dep_ptr,
        schedule.dep_row,
        kind,
        limits,
        paths.ptr,
        paths.link,
        paths.weight,
        least,
        most,
        np.zeros(len(program), np.bool_),
        files,
        np.zeros(len(links)),
        np.ones(len(links), np.bool_),
        fillable,
        active,
    )
    doubtful = np.flatnonzero(active & ~fillable[paths.link])
    if len(doubtful):
        doubtful = doubtful[np.argsort(paths.link[doubtful], kind="stable")]
        behind = np.zeros(len(links), BEHIND)
        traffic = Traffic(
            files, limits, paths.ptr, paths.link, paths.weight, least, most, behind, active
        )
        deactivate_protected(traffic, doubtful, owners_of(paths.ptr)[doubtful])
    return active


@InnerFunction
def _count_files(
    style: NDArray[np.int32],
    path: NDArray[np.int32],
    dep_ptr: NDArray[np.int32],
    dep_row: NDArray[np.int32],
    kind: NDArray[np.int32],
    kind_count: int,
    followed: NDArray[np.bool_],
    files: NDArray[np.int32],
) -> None:
    """Count the files of every (path, kind) into `files`.

    - `style`, `path`: of every row; `kind`: of every style.
    - `dep_ptr`, `dep_row`: the earlier rows that each row waits for.
    - `followed`: becomes true for rows whose file another row continues.

    A row continues the file of a row that it waits for, if both have the same path and kind and no
    other row continues it yet. Otherwise the row begins a file.
    """
    for row in range(len(style)):
        cell = (path[row] + 1) * kind_count + kind[style[row]]
        files[cell] += 1
        for k in range(dep_ptr[row], dep_ptr[row + 1]):
            before = dep_row[k]
            same = path[before] == path[row] and kind[style[before]] == kind[style[row]]
            if same and not followed[before]:
                followed[before] = True
                files[cell] -= 1
                break


@InnerFunction
def _highest_rate(
    cap: float,
    begin: int,
    end: int,
    link: NDArray[np.int32],
    weight: NDArray[np.float64],
    most: NDArray[np.float64],
    active: NDArray[np.bool_],
) -> float:
    """Return the highest rate (bytes/s) of rows of one path.

    It is the smaller of `cap` (bytes/s) and what the tightest active resource of the path can
    carry. The path has the entries from `begin` to `end` - 1 of `link`, `weight` and `active`.
    `most` is by link its largest capacity.
    """
    rate = cap
    for k in range(begin, end):
        if active[k]:
            rate = min(rate, most[link[k]] / weight[k])
    return rate


@CompiledFunction
def deactivate_ample(
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
    """Deactivate path entries of links with enough capacity for all files at their highest rates.

    If only caps limit the rows of a link, its load may equal its capacity. If other links limit
    them, the load must stay below it, so that the link that is left out cannot be the limiting one
    itself.

    - `style`, `path`: of every row; `kind`: of every style.
    - `ptr`, `link`, `weight`, `active`: the entries of each path, as in `Paths`.
    - `least`, `most`: the smallest and largest capacity of each link over time, in bytes/s.
    - `followed`, `files`, `load`, `capped`: working memory by row, (path, kind), link and link.
    - `fillable`: becomes true for links that a single row can saturate.

    Always returns 0.
    """
    _count_files(style, path, dep_ptr, dep_row, kind, len(limits), followed, files)
    for cell in range(len(limits), len(files)):
        if files[cell] == 0:
            continue
        path_number = cell // len(limits) - 1
        limit = limits[cell % len(limits)]
        cap = limit.cap * limit.share
        rate = _highest_rate(
            cap, ptr[path_number], ptr[path_number + 1], link, weight, most, active
        )
        for k in range(ptr[path_number], ptr[path_number + 1]):
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


_CHUNK = 1 << 22  # rows treated at a time, to bound temporary memory


class Grouping(NamedTuple):
    """The groups of a program, and the links that they use, numbered in the order of first use.

    Rows of one group draw on the same links with the same weights, share and cap.

    - `limits`: by kind, its share and its cap / share. A kind is a distinct pair of these.
    - `groups`, `draws`, `links`, `members`: the records that `structures.py` describes.
    - `number`: by link of the program, its number in `links`; NOBODY if no group uses it.
    - `group`: the group of every (path, kind), or of every row if `kinds` is 0; NOBODY if the rows
      draw on nothing.
    - `kind`: by style, the number of its kind.
    - `kinds`: the number of kinds, or 0.
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
    """Return the groups of a program's rows."""
    limits, kind = _kinds(program)
    keys, table, kinds = _keys(program, kind, len(limits))
    paths = program.paths
    active = active_entries(program, kind, limits)
    groups = np.empty(len(keys) + 1, GROUP)
    draws = np.empty(_most_draws(paths, keys, len(limits)), DRAW)
    number = np.full(len(program.links), NOBODY, np.int32)
    count = np.zeros(len(program.links), np.int32)
    of_key = np.empty(len(keys), np.int32)
    hashes = np.zeros(1 << (4 * len(keys) // 3).bit_length(), np.int32)
    sizes = np.zeros(3, np.int64)
    form_groups(
        keys,
        limits,
        paths.ptr,
        paths.link,
        paths.weight,
        active,
        hashes,
        groups,
        draws,
        number,
        count,
        of_key,
        sizes,
    )
    group_count, size, used = sizes.tolist()
    return Grouping(
        limits=limits,
        groups=groups[: group_count + 1],
        draws=draws[:size],
        links=_links(program, number, count[:used]),
        members=np.empty(size, MEMBER),
        number=number,
        group=_spread(table, keys, of_key, kinds),
        kind=kind,
        kinds=kinds,
    )


def tight_entries(program: Program) -> NDArray[np.bool_]:
    """Return for each entry of a path (a resource that it draws on) whether it can ever limit a
    row.
    """
    limits, kind = _kinds(program)
    return active_entries(program, kind, limits)


def _kinds(program: Program) -> tuple[Records, NDArray[np.int32]]:
    """Return the kinds of a program's styles, and by style the number of its kind.

    A kind is a distinct pair of share and cap / share.
    """
    pairs = np.stack([program.style_values("share"), program.caps], axis=1).reshape(-1, 2)
    distinct, place = np.unique(pairs, axis=0, return_inverse=True)
    limits = np.zeros(len(distinct), KIND)
    limits["share"], limits["cap"] = distinct[:, 0], distinct[:, 1] / distinct[:, 0]
    return limits, place.reshape(-1).astype(np.int32)


def _most_draws(paths: Paths, keys: NDArray[np.int64], kinds: int) -> int:
    """Return an upper bound of the number of draws of all groups together.

    `keys` are the values (path + 1) · kinds + kind of all rows, each once.
    """
    if kinds == 1:
        return len(paths.link)
    return int(np.append(np.diff(paths.ptr), 0)[keys // kinds - 1].sum())


def _keys(
    program: Program, kind: NDArray[np.int32], kinds: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
    """Return the distinct keys (path + 1) · kinds + kind of rows, a table, and a number.

    Usually the table has a place for each possible key, to be filled by `_spread`, and the number
    is `kinds`. If that table would be too large, the second result is by row the index of its key
    among the distinct keys, and the number is 0. `kind` is by style its kind.
    """
    cells = (len(program.paths) + 1) * kinds
    if kinds == 1:
        return np.arange(cells), np.empty(cells, np.int32), 1
    choices = program.paths.choices
    if cells <= max(_TABLE, 4 * len(program)) or choices is not None:
        seen = np.zeros(cells, bool)
        for first in range(0, len(program), _CHUNK):
            seen[_chunk(program, kind, kinds, first)] = True
        if choices is not None:  # a row that may take one path of a route may take all of them
            chosen = np.zeros((len(choices.more) - 1, kinds), bool)
            np.logical_or.at(chosen, choices.route, seen.reshape(-1, kinds)[1:])
            seen[kinds:] = chosen[choices.route].ravel()
        return np.flatnonzero(seen), np.full(cells, -1, np.int32), kinds
    keys, place = np.unique(_chunk(program, kind, kinds, 0, len(program)), return_inverse=True)
    return keys, place.astype(np.int32), 0


def _chunk(
    program: Program, kind: NDArray[np.int32], kinds: int, first: int, size: int = _CHUNK
) -> NDArray[np.int64]:
    """Return the keys (path + 1) · kinds + kind of `size` rows from row `first` on."""
    rows = slice(first, first + size)
    path = program.path[rows].astype(np.int64) + 1
    return path * kinds + kind[program.schedule.style[rows]]


def _spread(
    table: NDArray[np.int32], keys: NDArray[np.int64], of_key: NDArray[np.int32], kinds: int
) -> NDArray[np.int32]:
    """Return the group of every possible key, or of every row if `kinds` is 0.

    - `table`, `keys`: from `_keys`.
    - `of_key`: the groups of the distinct `keys`.
    """
    if kinds == 0:
        return of_key[table]
    table[keys] = of_key
    return table


def _links(program: Program, number: NDArray[np.int32], count: NDArray[np.int32]) -> Records:
    """Return the records of the links that groups use.

    - `number`: by link of the program, the number of its record; NOBODY if it has none.
    - `count`: by record, the number of groups that draw on the link.
    """
    links = np.zeros(len(count), LINK)
    kept_links = np.flatnonzero(number >= 0)
    links["capacity"][number[kept_links]] = program.links.capacity[kept_links]
    links["level"] = np.inf
    links["first"] = np.cumsum(count) - count
    return links


@InnerFunction
def _mix_hash(code: int, more: int) -> int:
    """Return a hash of two numbers that depends on every bit of both."""
    code = (code ^ more) * 0x1F58_D5CB_4E6D_9B35
    return code ^ (code >> 29)


@InnerFunction
def _is_same_group(
    groups: Records, draws: Records, group: int, start: int, end: int, kind: int
) -> bool:
    """Return whether a group has this kind, and the same draws as numbers `start` to `end` - 1."""
    there = groups[group]
    if there.kind != kind or groups[group + 1].first - there.first != end - start:
        return False
    for k in range(end - start):
        a = draws[there.first + k]
        b = draws[start + k]
        if a.link != b.link or a.weight != b.weight:
            return False
    return True


@CompiledFunction
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
    """Fill in the groups of all keys; keys with the same kind and draws share a group.

    - `keys`: values (path + 1) · kinds + kind.
    - `ptr`, `link`, `weight`, `active`: the entries of each path, as in `Paths`.
    - `seen`: a hash table of group numbers + 1 (open addressing).
    - `groups`, `draws`: become the records of the groups and what they draw on.
    - `number`: becomes by link of the program its number among the links in use.
    - `count`: becomes by link in use the number of groups that draw on it.
    - `of_key`: becomes by key its group; NOBODY if the path has no active entry.
    - `sizes`: become the number of groups, of draws and of links in use.

    Always returns 0.
    """
    group_count = 0
    size = 0
    used = 0
    groups[0].first = 0
    for i in range(len(keys)):
        path = keys[i] // len(limits) - 1
        kind = keys[i] % len(limits)
        of_key[i] = NOBODY
        if path < 0:
            continue
        end = size
        code = kind
        for k in range(ptr[path], ptr[path + 1]):
            if active[k]:
                if number[link[k]] < 0:
                    number[link[k]] = used
                    used += 1
                draws[end].link = number[link[k]]
                draws[end].weight = weight[k] * limits[kind].share
                code = _mix_hash(code + link[k], int(weight[k] * 1024.0))
                end += 1
        if end == size:
            continue
        slot = code & (len(seen) - 1)
        while seen[slot] > 0 and not _is_same_group(groups, draws, seen[slot] - 1, size, end, kind):
            slot = (slot + 1) & (len(seen) - 1)
        if seen[slot] == 0:
            for k in range(size, end):
                count[draws[k].link] += 1
            groups[group_count].kind = kind
            groups[group_count].seat = NOBODY
            group_count = group_count + 1
            size = end
            groups[group_count].first = size
            seen[slot] = group_count
        of_key[i] = seen[slot] - 1
    sizes[0], sizes[1], sizes[2] = group_count, size, used
    return 0


class Followers(NamedTuple):
    """The rows that wait for row i: `row[ptr[i]:ptr[i + 1]]`, and for each of them the number of
    its lag.
    """

    ptr: NDArray[np.int32]
    row: NDArray[np.int32]
    lag: NDArray[np.int16]


def followers_of(schedule: Schedule) -> Followers:
    """Return the followers of every row of a schedule, in row order."""
    rows = len(schedule)
    edges = len(schedule.dep_row)
    followers = Followers(
        np.zeros(rows + 2, np.int32), np.empty(edges, np.int32), np.empty(edges, np.int16)
    )
    if edges:
        invert_dependencies(schedule.dep_ptr, schedule.dep_row, schedule.dep_lag, *followers)
    return followers


@CompiledFunction
def invert_dependencies(
    dep_ptr: NDArray[np.int32],
    dep_row: NDArray[np.int32],
    dep_lag: NDArray[np.int16],
    ptr: NDArray[np.int32],
    row: NDArray[np.int32],
    lag: NDArray[np.int16],
) -> int:
    """Fill in `ptr`, `row` and `lag` of Followers from the dependencies, by a counting sort.

    While rows are filled in, ptr[i + 1] is the place of the next follower of row i. Always returns
    0.
    """
    for k in range(len(dep_row)):
        ptr[dep_row[k] + 2] += 1
    for i in range(2, len(ptr)):
        ptr[i] += ptr[i - 1]
    for i in range(len(dep_ptr) - 1):
        for k in range(dep_ptr[i], dep_ptr[i + 1]):
            place = ptr[dep_row[k] + 1]
            row[place], lag[place] = i, dep_lag[k]
            ptr[dep_row[k] + 1] += 1
    return 0
