"""Textbook algorithms whose equal parts are written down once: what stands for what on a topology.

An algorithm is sketched first, with a hop for each message but no rows; from the classes of what
is sketched follows which lanes are written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.collectives.reduced import Sketch, Stands
from netsim.collectives.table import build, folds
from netsim.metrics.links import link_amounts, use_of
from netsim.program import symmetry
from netsim.program.program import Program, Timeline
from netsim.program.symmetry import MOST_ROUNDS, Together, alike, odd_one, symmetry_of
from netsim.schedule.schedule import MARK, SCRATCH, TRANSFER, Schedule, Skeleton, Symmetry
from netsim.timing import max_plus
from netsim.timing.bench import Alone, Bench, Timing, of_one
from netsim.timing.loops import Looped
from netsim.timing.max_plus import Relayed
from netsim.topology.graph import Topology

RELAYS = {("all_reduce", "ring"), ("all_gather", "ring"), ("reduce_scatter", "ring"),
          ("all_reduce", "hierarchical")}  # fmt: skip
LONG_ROWS = 200_000  # from which rings are worth it to be followed without a row a step
FEW_ROUNDS = 24  # in which regular rings are told apart
RELAYED, KEPT_STEP = "relayed", "kept step"
MANY_STEPS = 1 << 26  # messages of all ranks, from which they are asked whether they keep step
EARLY = 1e-3  # part of the time of all steps by which one may end before another


@dataclass(frozen=True)
class Place:
    """Where an algorithm runs; `together` GPUs of a process start one after the other. `memory`
    keeps what was found on this topology, also for other sizes.
    """

    topology: Topology
    gpus: NDArray[np.int32]
    together: int
    memory: dict[object, Any]


@dataclass(frozen=True)
class Alikeness:
    """What stands for what (None: nothing for anything else), rows and ways so, rows in full; or a
    few steps of rings, from which the others follow. Where ranks keep step but for when they end,
    `spread` is by how much latencies differ, and `apart` what stands for what if they did not.
    """

    stands: Stands | None
    rows: int
    ways: int
    full: int
    steps: "Relayed | None" = None
    spread: float | None = None
    apart: Callable[[], Stands | None] | None = None

    def fold(self, *, bundled: bool = True, in_step: bool = True) -> Stands | Schedule | None:
        """How it is written down (None: in full): rows that follow each other as one (`bundled`),
        and ranks that keep step as one (`in_step`), where they can be.
        """
        if self.steps is not None:
            return self.steps.schedule
        stands = self.stands if in_step or self.apart is None else self.apart()
        return stands and replace(stands, bundled=bundled)


def alikeness(
    collective: Collective, algorithm: str, parameters: Mapping[str, Any], place: Place
) -> Alikeness | None:
    """What of an algorithm is alike; None if it cannot be written down so."""
    if not folds(collective.name, algorithm) or collective.ranks == 1:
        return None
    sketch = Sketch()
    build(collective, algorithm, fold=sketch, **parameters)
    if sketch.refused:
        return None
    turn = np.arange(collective.ranks) % place.together
    skeleton = sketch.skeleton(turn)
    what = collective.name, algorithm, repr(parameters), _key(skeleton, place.gpus)
    full = int(sketch.rows.sum()) + collective.ranks
    long = (collective.name, algorithm) in RELAYS and full >= LONG_ROWS

    def stands_of(rounds: int) -> Stands | None:
        key = (*what, rounds)
        if key not in place.memory:
            place.memory[key] = _stands(skeleton, sketch.checks(turn), place, rounds)
        found: Stands | None = place.memory[key]
        return found

    sources = np.concatenate([hops.src for hops in skeleton.hops])

    def standing(stands: Stands) -> Alikeness:
        rows, ways = sketch.rows[stands.leading].sum(), len(stands.written(sources))
        return Alikeness(stands, int(rows) + collective.ranks, ways, full)

    if sketch.step_count * collective.ranks >= MANY_STEPS:
        if (*what, KEPT_STEP) not in place.memory:
            place.memory[*what, KEPT_STEP] = _together(sketch, turn, place)
        in_step: Together | None = place.memory[*what, KEPT_STEP]
        if in_step is not None and _nearly_at_once(in_step, sketch):
            one = standing(_standing(in_step.symmetry))
            return replace(one, spread=in_step.spread, apart=lambda: stands_of(MOST_ROUNDS))
    stands = stands_of(FEW_ROUNDS if long else MOST_ROUNDS)
    if stands is None and long:
        found = _relayed(what, collective, parameters, place)
        if not isinstance(found, str):
            return Alikeness(None, len(found.program), len(found.program.paths), full, found)
        stands = stands_of(MOST_ROUNDS)
    if stands is None:
        return Alikeness(None, full, len(sources), full)
    return standing(stands)


def _together(sketch: Sketch, turn: NDArray[np.int64], place: Place) -> "Together | None":
    rest = sketch.skeleton(turn, steps=False)
    return symmetry.together(rest, sketch.steps(), place.topology, place.gpus)


def _nearly_at_once(found: "Together", sketch: Sketch) -> bool:
    """Whether all ranks end at nearly one time, so that one operation tells of many."""
    return found.spread <= EARLY * sketch.step_count * sketch.step_bytes / found.rate


def _relayed(
    what: tuple[object, ...], collective: Collective, parameters: Mapping[str, Any], place: Place
) -> "Relayed | str":
    """The last one is kept, for it is asked for again; and whether there is one at other sizes."""
    kept = place.memory.get(RELAYED)
    if kept is not None and kept[0] == (what, collective):
        return kept[1]  # type: ignore[no-any-return]
    if isinstance(place.memory.get((RELAYED, what)), str):
        return place.memory[RELAYED, what]  # type: ignore[no-any-return]
    algorithm = str(what[1])
    found = max_plus.relayed(collective, algorithm, parameters, place.topology, place.gpus)
    place.memory[RELAYED] = (what, collective), found
    place.memory[RELAYED, what] = found if isinstance(found, str) else None
    return found


def why_in_full(
    collective: Collective,
    algorithm: str,
    topology: Topology,
    gpus: NDArray[np.int32],
    *,
    allowed: bool,
) -> str:
    """Why little of an algorithm is like the rest, for the end of a message; "" if unknown."""
    why = ""
    if not allowed:
        why = "fold is off, or there are several communicators"
    elif odd := odd_one(topology, gpus):
        why = odd
    elif not folds(collective.name, algorithm):
        why = f"{algorithm} {collective.name} is always written in full"
    elif collective.name == "all_reduce" and collective.count % collective.ranks:
        why = f"{collective.count} elements on {collective.ranks} ranks are unequal chunks"
    else:
        why = "ways through the network differ from host to host"
    return why and f"; not folded: {why}"


def crossing(schedule: Schedule) -> NDArray[np.bool_]:
    """Which rows of a hierarchical all-to-all cross between groups."""
    found: NDArray[np.bool_] = schedule.style_column("src_buffer") == SCRATCH
    found &= schedule.kind == TRANSFER
    return found


def hurried(program: Program, timeline: Timeline) -> bool:
    """Whether what crosses between groups ever waits for a bundle of blocks, which may come later
    than the first of them, longer than for what it follows (`collectives/hierarchical.py`).
    """
    schedule = program.schedule
    moves, crosses = schedule.kind == TRANSFER, crossing(schedule)
    inside = schedule.amount[moves & ~crosses]
    if schedule.fold is None or not crosses.any() or np.ptp(inside) == 0:
        return False
    owner = np.repeat(np.arange(len(program)), np.diff(schedule.dep_ptr))
    mine = np.flatnonzero(crosses[owner])
    owner, earlier, lag = owner[mine], schedule.dep_row[mine], schedule.dep_lag[mine]
    arrives = program.lag_arrival[lag]
    follows = crosses[earlier] & ~arrives
    free = np.full(len(program), np.inf)
    free[owner[follows]] = timeline.end[earlier[follows]]
    owner, earlier = owner[arrives], earlier[arrives]
    arrival = timeline.end[earlier] + program.path_latency[program.path[earlier]]
    return bool((arrival > free[owner]).any())


def _stands(
    skeleton: Skeleton, checks: Sequence[Skeleton], place: Place, rounds: int
) -> Stands | None:
    found = symmetry_of(skeleton, place.topology, place.gpus, checks, rounds)
    stands = None if found is None else _standing(found)
    return None if stands is None or (stands.count == 1).all() else stands


def _standing(found: Symmetry) -> Stands:
    blocks = alike(found.block.astype(np.uint64))
    return Stands(found.fold, blocks.first, blocks.count)


def _key(skeleton: Skeleton, gpus: NDArray[np.int32]) -> bytes:
    """What tells skeletons on some GPUs from others."""
    parts: list[NDArray[Any]] = [gpus, skeleton.kind, skeleton.turn]
    for hops in skeleton.hops:
        parts += [hops.src, hops.dst, hops.label, np.array([hops.channel])]
    found = blake2b(digest_size=16)
    for part in parts:
        found.update(np.ascontiguousarray(part).tobytes() + b"|")
    return found.digest()


# **** Lockstep ****
# The time of an all-to-all in which all ranks keep step, of which one is written down.
# They differ only in when the last messages arrive, which is added for each (`together`).


Floats = NDArray[np.float64]


def time_in_step(bench: Bench, call: Looped, spread: float) -> Timing:
    """The time of an operation; `spread` is by how much latencies between ranks differ."""
    alone = bench.alone(call.schedule(call.loops))
    ends = ends_of_all(bench, alone, spread)
    use = use_of(alone.program, link_amounts(alone.program), float(ends.max()))
    ends = ends + bench.launch.kernel
    return bench.timing_of(alone, bench.told_by_one(ends, bench.launch) or of_one(ends), use)


def ends_of_all(bench: Bench, alone: Alone, spread: float) -> Floats:
    """When every rank is done: whatever ends last, and the last messages that it receives.

    A message that one rank sends to another, all others send as far on.
    """
    schedule, timeline = alone.schedule, alone.timeline
    ranks, crosses = np.arange(schedule.ranks), crossing(alone.schedule)
    path = alone.program.path_latency[alone.program.path]
    own = np.where(crosses, 0.0, path) + timeline.end
    ends = np.full(len(ranks), own[schedule.kind != MARK].max())
    last = timeline.end[crosses].max() - spread
    for row in np.flatnonzero(crosses & (timeline.end >= last)).tolist():
        sender = (ranks - schedule.dst[row] + schedule.src[row]) % len(ranks)
        ends = np.maximum(ends, timeline.end[row] + _latency(bench, sender, ranks))
    return ends


def _latency(bench: Bench, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Floats:
    channel = np.zeros(len(src), np.int32)
    return bench.topology.routes(bench.gpus[src], bench.gpus[dst], channel).latency
