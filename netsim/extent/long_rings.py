"""Long textbook rings whose lanes never meet: later steps follow from the first; exact.

A ring that passes over leaves and pods repeats itself only after them, or never, so that nearly
every rank is a class of its own. If its lanes are never in each other's way, every row takes the
time that it takes alone, and ends follow from one another by sums and maxima: the ends after m
steps are a power of a matrix in (max,+) algebra (`extent/max_plus.py` has the derivation).

How that is checked: no link may be asked for more than it has even if all lanes are under way at
once; and the first steps, which are simulated, must end when the sums say, in every run.

Error: none. Whole runs are compared with the engine in tests/collectives/test_relay.py.

    $ netsim expect dgx-h100 all_reduce --nodes 1024 --algo ring --sizes 1G --verbose
    all_reduce of 1 GiB: long rings: taken: 32,768 rows, exact
    …  1073741824  …  43733.1 us   (1.0 s; in full 134 million rows)
"""

from __future__ import annotations

import numpy as np

from netsim.base.units import format_time
from netsim.collectives.reduced import STEPS as STEPS_OF_RINGS
from netsim.engines.engine import choose, simulator
from netsim.extent.engine_runs import Bench, StandaloneRun, taking_part
from netsim.extent.forms import LoopSchedule
from netsim.extent.max_plus import Relayed, causes_of, ends_back_to_back, replayed, use_of_all_steps
from netsim.extent.result import MethodInput, Offer, OneOperation, Refusal
from netsim.extent.sketches import sketched


def long_rings(question: MethodInput) -> Offer | Refusal:
    """Offer to simulate the first steps of a long ring and to compute the others."""
    thresholds = question.budget.thresholds
    sketch = sketched(question.form)
    if sketch is None or not sketch.is_long(thresholds.min_long_ring_rows):
        return Refusal("there are no long textbook rings")
    if sketch.stands(thresholds.max_partition_rounds) is not None:
        return Refusal("classes of equal ranks are found quickly and have fewer rows")
    relayed = sketch.relayed()
    if isinstance(relayed, str):
        return Refusal(relayed)
    note = (
        f"those of the first {STEPS_OF_RINGS} steps of every ring are shown, and what follows "
        f"them; the whole takes {format_time(relayed.seconds)}"
    )
    return Offer(
        lambda bench, _: _first_steps(bench, relayed),
        LoopSchedule(1, lambda _: relayed.schedule),
        len(relayed.program),
        len(relayed.program.paths),
        note,
    )


def _first_steps(bench: Bench, relayed: Relayed) -> OneOperation:
    """One operation whose first steps are simulated."""
    program, launch = relayed.program, bench.launch
    engine = choose(program, bench.engine)
    runs = simulator(program, engine)
    timeline = runs.timeline(progress=bench.progress)
    begin = np.zeros(relayed.relay.ranks)
    ends = replayed(relayed.relay, relayed.times, begin) + launch.kernel
    return OneOperation(
        StandaloneRun(relayed.schedule, program, timeline, ends[None], runs, engine),
        ends[taking_part(relayed.schedule)],
        use_of_all_steps(relayed, float(ends.max()) - launch.kernel),
        causes=causes_of(relayed),
        rows=len(program),
        follow=lambda launch, times: (ends_back_to_back(relayed, launch, times), False),
    )
