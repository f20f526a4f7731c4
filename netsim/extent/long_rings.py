"""Method for long textbook rings whose lanes do not slow each other: later steps follow from the
first; exact.

A ring across leaves and pods repeats itself only after a whole pod, or never, so nearly every rank
is a class of its own. If no lane slows another one, every row takes the time that it takes alone,
and finish times follow from one another by sums and maxima: those after m steps are given by the
m-th power of a matrix in (max,+) algebra (`extent/max_plus.py` has the derivation).

How that is checked: the demand on no link may exceed its capacity even if all lanes send at once;
and the first steps, which are simulated, must end when the sums say, in every run.

Error: none. Whole runs are compared with the engine in tests/collectives/test_relay.py.

    $ netsim expect dgx-h100 all_reduce --nodes 1024 --algo ring --sizes 1G --verbose
    all_reduce of 1 GiB: long rings: taken: 32,768 rows, exact
    …  1073741824  …  43733.1 us   (1.0 s; in full 134 million rows)
"""

from __future__ import annotations

import numpy as np

from netsim.base.units import format_time
from netsim.collectives.first_steps import STEPS_WRITTEN
from netsim.engines.engine import choose, simulator
from netsim.extent.engine_runs import Bench, StandaloneRun, taking_part
from netsim.extent.forms import LoopSchedule
from netsim.extent.max_plus import (
    LongRings,
    causes_of,
    ends_back_to_back,
    ends_of_ranks,
    use_of_all_steps,
)
from netsim.extent.result import MethodInput, Offer, OneOperation, Refusal
from netsim.extent.sketches import sketched


def long_rings(question: MethodInput) -> Offer | Refusal:
    """Offer to simulate the first steps of a long ring and to compute the others."""
    thresholds = question.budget.thresholds
    sketch = sketched(question.form)
    if sketch is None or not sketch.is_long(thresholds.min_long_ring_rows):
        return Refusal("there are no long textbook rings")
    if sketch.representatives(thresholds.max_partition_rounds) is not None:
        return Refusal("classes of equal ranks are found quickly and have fewer rows")
    rings = sketch.long_rings()
    if isinstance(rings, str):
        return Refusal(rings)
    note = (
        f"those of the first {STEPS_WRITTEN} steps of every ring are shown, and what follows "
        f"them; the whole takes {format_time(rings.seconds)}"
    )
    return Offer(
        lambda bench, _: _first_steps(bench, rings),
        LoopSchedule(1, lambda _: rings.schedule),
        len(rings.program),
        len(rings.program.paths),
        note,
    )


def _first_steps(bench: Bench, rings: LongRings) -> OneOperation:
    """The standalone operation: the first steps are simulated, the finish times of all steps
    computed.
    """
    program = rings.program
    launch = bench.launch
    engine = choose(program, bench.engine)
    runs = simulator(program, engine)
    timeline = runs.timeline(progress=bench.progress)
    begin = np.zeros(rings.first_steps.ranks)
    ends = ends_of_ranks(rings.first_steps, rings.times, begin) + launch.kernel
    return OneOperation(
        StandaloneRun(rings.schedule, program, timeline, ends[None], runs, engine),
        ends[taking_part(rings.schedule)],
        use_of_all_steps(rings, float(ends.max()) - launch.kernel),
        causes=causes_of(rings),
        rows=len(program),
        follow=lambda launch, times: (ends_back_to_back(rings, launch, times), False),
    )
