"""Textbook algorithms whose equal parts are written down once: what stands for what on a topology.

An algorithm is sketched first, with a hop for each message but no rows; from the classes of what
is sketched follows which lanes are written."""

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo, different, digest
from netsim.base.values import dataclass
from netsim.collectives.reduced import Sketch, Stands
from netsim.collectives.table import build, folds, shown_name
from netsim.extent import max_plus
from netsim.extent.bench import Alone
from netsim.extent.call import Call
from netsim.extent.max_plus import Relayed
from netsim.program import symmetry
from netsim.program.symmetry import MOST_ROUNDS, Together, alike, odd_one, symmetry_of
from netsim.schedule.schedule import MARK, SCRATCH, TRANSFER, Skeleton, Symmetry

RELAYS = {
    ("all_reduce", "ring"),
    ("all_gather", "ring"),
    ("reduce_scatter", "ring"),
    ("all_reduce", "hierarchical"),
}
RELAYED, KEPT_STEP = "relayed", "kept step"


@dataclass(frozen=True)
class Sketched:
    """A textbook algorithm as a sketch: what of it is alike, in ways that are asked for one by one.
    What is found is kept in the call's memo, also for other sizes."""

    call: Call
    sketch: Sketch
    skeleton: Skeleton
    what: tuple[object, ...]

    @property
    def full(self) -> int:
        """Rows that are written where nothing is alike."""
        return int(self.sketch.rows.sum()) + self.call.collective.ranks

    def is_long(self, rows: int) -> bool:
        """Whether it is rings of so many rows that they are followed without a row a step."""
        return (self.call.collective.name, self.call.task.algorithm) in RELAYS and self.full >= rows

    def stands(self, rounds: int = MOST_ROUNDS) -> Stands | None:
        """Which lanes stand for which others, if that is told in so many rounds."""
        return self.call.memo.of((*self.what, rounds), lambda: self._stands(rounds))

    def together(self, least: int, early: float) -> Together | None:
        """What is alike where all ranks keep step, and end within the part `early` of all steps, of
        which there are some at `least`; None where not."""
        sketch, call = self.sketch, self.call
        if sketch.step_count * call.collective.ranks < least:
            return None

        def kept_step() -> Together | None:
            rest = sketch.skeleton(_turn(call), steps=False)
            return symmetry.together(rest, sketch.steps(), call.where)

        found = call.memo.of((*self.what, KEPT_STEP), kept_step)
        if found is None:
            return None
        longest = early * sketch.step_count * sketch.step_bytes / found.rate
        return found if found.spread <= longest else None

    def relayed(self) -> Relayed | str:
        """A few steps of long rings; the last are kept, or why there are none at any size."""
        call, last = self.call, self.call.memo.of(RELAYED, lambda: Memo(1))

        def found() -> Relayed | str:
            what = (
                call.collective,
                call.task.algorithm,
                call.task.parameters,
                call.topology,
                call.task.gpus,
            )
            return last.of((self.what, call.collective), lambda: max_plus.relayed(*what))

        return call.memo.of((RELAYED, self.what), found, lambda why: isinstance(why, str))

    def rows(self, stands: Stands) -> int:
        """Rows that are written down so."""
        return int(self.sketch.rows[different(stands.first)].sum()) + self.call.collective.ranks

    def ways(self, stands: Stands | None) -> int:
        """Ends between which they go."""
        sources = np.concatenate([hops.src for hops in self.skeleton.hops])
        return len(sources if stands is None else stands.written(sources))

    def _stands(self, rounds: int) -> Stands | None:
        call, checks = self.call, self.sketch.checks(_turn(self.call))
        found = symmetry_of(self.skeleton, call.where, checks, rounds)
        stands = None if found is None else standing(found)
        return None if stands is None or (stands.count == 1).all() else stands


def sketched(call: Call) -> Sketched | None:
    """The sketch of a textbook algorithm; None if it has no classes of equal lanes to fold."""
    sketch: Sketched | None = call.answers.of("sketch", lambda: _sketched(call))
    return sketch


def _sketched(call: Call) -> Sketched | None:
    collective, algorithm = call.collective, call.task.algorithm
    if not call.may_fold or call.task.is_nccl:
        return None
    if not folds(collective.name, algorithm) or collective.ranks == 1:
        return None
    sketch = Sketch()
    build(collective, algorithm, fold=sketch, **call.task.parameters)
    if sketch.refused:
        return None
    skeleton = sketch.skeleton(_turn(call))
    what = (
        collective.name,
        algorithm,
        repr(call.task.parameters),
        digest((call.task.gpus, skeleton)),
    )
    return Sketched(call, sketch, skeleton, what)


def _turn(call: Call) -> NDArray[np.int64]:
    return np.arange(call.collective.ranks) % call.task.gpus_per_process


def why_in_full(call: Call) -> str:
    """Why little of an algorithm is like the rest, for the end of a message; "" if unknown."""
    collective, why = call.collective, ""
    if not call.may_fold:
        why = "fold is off, or there are several communicators"
    elif odd := odd_one(call.where):
        why = odd
    elif call.task.is_nccl:
        return ""
    elif not folds(collective.name, call.task.algorithm):
        why = f"{shown_name(call.task.algorithm)} {collective.name} is always written in full"
    elif collective.name == "all_reduce" and collective.count % collective.ranks:
        why = f"{collective.count} elements on {collective.ranks} ranks are unequal chunks"
    else:
        why = "ways through the network differ from host to host"
    return f"; not folded: {why}"


def standing(found: Symmetry) -> Stands:
    """Which lanes stand for which, from what is alike."""
    blocks = alike(found.block.astype(np.uint64))
    return Stands(found.fold, blocks.first, blocks.count)


# **** Lockstep ****
# The time of an all-to-all in which all ranks keep step, of which one is written down.
# They differ only in when the last messages arrive, which is added for each (`together`).

Floats = NDArray[np.float64]


def ends_of_all(call: Call, alone: Alone, spread: float) -> Floats:
    """When every rank is done: whatever ends last, and the last messages that it receives; by
    `spread` latencies between ranks differ. A message that one rank sends to another, all others
    send as far on."""
    schedule, timeline = alone.schedule, alone.timeline
    ranks = np.arange(schedule.ranks)
    # Rows of a hierarchical all-to-all that cross between groups.
    crosses = (schedule.style_column("src_buffer") == SCRATCH) & (schedule.kind == TRANSFER)
    path = alone.program.path_latency[alone.program.path]
    own = np.where(crosses, 0.0, path) + timeline.end
    ends = np.full(len(ranks), own[schedule.kind != MARK].max())
    last = timeline.end[crosses].max() - spread
    for row in np.flatnonzero(crosses & (timeline.end >= last)).tolist():
        sender = (ranks - schedule.dst[row] + schedule.src[row]) % len(ranks)
        src, dst = call.task.gpus[sender], call.task.gpus[ranks]
        routes = call.topology.routes(src, dst, np.zeros(len(src), np.int32))
        ends = np.maximum(ends, timeline.end[row] + routes.latency)
    return ends
