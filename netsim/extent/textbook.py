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
from netsim.extent.engine_runs import StandaloneRun
from netsim.extent.forms import Form
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
    What is found is kept in the form's memo, also for other sizes."""

    form: Form
    sketch: Sketch
    skeleton: Skeleton
    what: tuple[object, ...]

    @property
    def full(self) -> int:
        """Rows that are written where nothing is alike."""
        return int(self.sketch.rows.sum()) + self.form.collective.ranks

    def is_long(self, rows: int) -> bool:
        """Whether it is rings of so many rows that they are followed without a row a step."""
        return (self.form.collective.name, self.form.task.algorithm) in RELAYS and self.full >= rows

    def stands(self, rounds: int = MOST_ROUNDS) -> Stands | None:
        """Which lanes stand for which others, if that is told in so many rounds."""
        return self.form.memo.of((*self.what, rounds), lambda: self._stands(rounds))

    def together(self, least: int, early: float) -> Together | None:
        """What is alike where all ranks keep step, and end within the part `early` of all steps, of
        which there are some at `least`; None where not."""
        sketch, form = self.sketch, self.form
        if sketch.step_count * form.collective.ranks < least:
            return None

        def kept_step() -> Together | None:
            rest = sketch.skeleton(_turn(form), steps=False)
            return symmetry.together(rest, sketch.steps(), form.where)

        found = form.memo.of((*self.what, KEPT_STEP), kept_step)
        if found is None:
            return None
        longest = early * sketch.step_count * sketch.step_bytes / found.rate
        return found if found.spread <= longest else None

    def relayed(self) -> Relayed | str:
        """A few steps of long rings; the last are kept, or why there are none at any size."""
        form, last = self.form, self.form.memo.of(RELAYED, lambda: Memo(1))

        def found() -> Relayed | str:
            what = (
                form.collective,
                form.task.algorithm,
                form.task.parameters,
                form.topology,
                form.task.gpus,
            )
            return last.of((self.what, form.collective), lambda: max_plus.relayed(*what))

        return form.memo.of((RELAYED, self.what), found, lambda why: isinstance(why, str))

    def rows(self, stands: Stands) -> int:
        """Rows that are written down so."""
        return int(self.sketch.rows[different(stands.first)].sum()) + self.form.collective.ranks

    def ways(self, stands: Stands | None) -> int:
        """Ends between which they go."""
        sources = np.concatenate([hops.src for hops in self.skeleton.hops])
        return len(sources if stands is None else stands.written(sources))

    def _stands(self, rounds: int) -> Stands | None:
        form, checks = self.form, self.sketch.checks(_turn(self.form))
        found = symmetry_of(self.skeleton, form.where, checks, rounds)
        stands = None if found is None else standing(found)
        return None if stands is None or (stands.count == 1).all() else stands


def sketched(form: Form) -> Sketched | None:
    """The sketch of a textbook algorithm; None if it has no classes of equal lanes to fold."""
    sketch: Sketched | None = form.answers.of("sketch", lambda: _sketched(form))
    return sketch


def _sketched(form: Form) -> Sketched | None:
    collective, algorithm = form.collective, form.task.algorithm
    if not form.may_fold or form.task.is_nccl:
        return None
    if not folds(collective.name, algorithm) or collective.ranks == 1:
        return None
    sketch = Sketch()
    build(collective, algorithm, fold=sketch, **form.task.parameters)
    if sketch.refused:
        return None
    skeleton = sketch.skeleton(_turn(form))
    what = (
        collective.name,
        algorithm,
        repr(form.task.parameters),
        digest((form.task.gpus, skeleton)),
    )
    return Sketched(form, sketch, skeleton, what)


def _turn(form: Form) -> NDArray[np.int64]:
    return np.arange(form.collective.ranks) % form.task.gpus_per_process


def why_in_full(form: Form) -> str:
    """Why little of an algorithm is like the rest, for the end of a message; "" if unknown."""
    collective, why = form.collective, ""
    if not form.may_fold:
        why = "fold is off, or there are several communicators"
    elif odd := odd_one(form.where):
        why = odd
    elif form.task.is_nccl:
        return ""
    elif not folds(collective.name, form.task.algorithm):
        why = f"{shown_name(form.task.algorithm)} {collective.name} is always written in full"
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


def ends_of_all(form: Form, alone: StandaloneRun, spread: float) -> Floats:
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
        src, dst = form.task.gpus[sender], form.task.gpus[ranks]
        routes = form.topology.routes(src, dst, np.zeros(len(src), np.int32))
        ends = np.maximum(ends, timeline.end[row] + routes.latency)
    return ends
