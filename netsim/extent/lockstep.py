r"""Method for ranks that keep step: one of them is simulated; exact.

In step s of a hierarchical all-to-all every rank sends one message to the rank that is s groups
away. A rank sends one message after the other, and only the end of the operation waits for what
arrives. So all ranks send at the same times if, in every step, the links have room for the messages
of all ranks at once. How far a message travels then matters only for its latency, and the latency
only for the end. Static routes over full leaves and pods give every such step its room (Zahavi,
D-Mod-K routing providing non-blocking traffic for shift permutations on real life fat trees, 2010).

How that is checked (`sketches.AlgorithmSketch.lockstep`, `program/lockstep.py`): all messages of a
step must be as fast together as each alone, all links of a level (first link of a route, second …)
must carry the same, and in everything else all ranks must be equal. If there are many groups, this
is checked for a few steps near and far, and for some steps drawn at random. A slow link, GPU or
NIC, oversubscription, and leaves that are not full lead to a refusal.

Error: none. The finish time of each rank follows from the latencies of the messages that it
receives last; if these differ by more than `max_lockstep_spread` of the time, the method is
refused.

    $ netsim expect dgx-h100 alltoall --nodes 4096 --algo hierarchical --sizes 32G \
          --set workload.timing=single --verbose
    alltoall of 32 GiB: lockstep: taken: 69,632 rows, exact
    …  34359738368  …  780703 us   (2.7 s of processor time)
"""

from __future__ import annotations

import numpy as np

from netsim.extent.engine_runs import Bench, StandaloneRun
from netsim.extent.forms import Form, textbook_representatives
from netsim.extent.result import Floats, MethodInput, Offer, OneOperation, Refusal, Solver
from netsim.extent.sketches import sketched, writer_of
from netsim.metrics.links import link_amounts, use_of
from netsim.schedule.schedule import MARK, SCRATCH, TRANSFER

BACK_TO_BACK_FACTOR = 4
"""How many times more steps are worth it for operations back to back, in which ranks fall out of
step: these are simulated unless they are too many rows."""


def lockstep(question: MethodInput) -> Offer | Refusal:
    """Offer to simulate one rank of a textbook algorithm whose ranks all keep step."""
    form = question.form
    thresholds = question.budget.thresholds
    factor = 1 if form.task.is_single else BACK_TO_BACK_FACTOR
    sketch = sketched(form)
    if sketch is None:
        return Refusal("only textbook algorithms are checked for ranks that keep step")
    steps = sketch.lockstep(thresholds.min_lockstep_steps * factor, thresholds.max_lockstep_spread)
    if steps is None:
        return Refusal("ranks do not keep step, or their steps are few")
    classes = writer_of(steps.partition)
    schedules = textbook_representatives(form, classes)

    def run(bench: Bench, _: Solver) -> OneOperation:
        standalone = bench.standalone(schedules.schedule())
        ends = ends_of_all(form, standalone, steps.spread)
        program = standalone.program
        use = use_of(program, link_amounts(program), float(ends.max()))
        return OneOperation(standalone, ends + bench.launch.kernel, use)

    return Offer(run, schedules, sketch.rows(classes), sketch.path_count(classes))


def ends_of_all(form: Form, run: StandaloneRun, spread: float) -> Floats:
    """By rank, its finish time in seconds, from the run of one representative.

    A rank is finished when the representative has ended and the last messages from other groups
    have arrived at the rank. In each step all ranks send to the same distance, so the sender of a
    message to a rank follows from the distance. Only the latency of the route differs from rank to
    rank, by up to `spread` seconds. So only messages that leave in the last `spread` seconds are
    looked at.
    """
    schedule = run.schedule
    timeline = run.timeline
    ranks = np.arange(schedule.ranks)
    # The rows of a hierarchical all-to-all that cross between groups.
    is_crossing = (schedule.style_column("src_buffer") == SCRATCH) & (schedule.kind == TRANSFER)
    latency = run.program.path_latency[run.program.path]
    arrived = np.where(is_crossing, 0.0, latency) + timeline.end
    ends = np.full(len(ranks), arrived[schedule.kind != MARK].max())
    late = timeline.end[is_crossing].max() - spread
    for row in np.flatnonzero(is_crossing & (timeline.end >= late)).tolist():
        sender = (ranks - schedule.dst[row] + schedule.src[row]) % len(ranks)
        src = form.task.gpus[sender]
        dst = form.task.gpus[ranks]
        routes = form.topology.routes(src, dst, np.zeros(len(src), np.int32))
        ends = np.maximum(ends, timeline.end[row] + routes.latency)
    return ends
