"""Ranks that keep step: one of them is simulated; exact.

DOC
"""

from __future__ import annotations

from netsim.extent.engine_runs import Bench
from netsim.extent.forms import folded_textbook
from netsim.extent.result import MethodInput, Offer, OneOperation, Refusal, Solver
from netsim.extent.textbook import ends_of_all, sketched, standing
from netsim.metrics.links import link_amounts, use_of

BACK_TO_BACK_FACTOR = 4
"""How many times more steps are worth it for operations back to back, in which ranks fall out of
step: these are simulated unless they are too many rows."""


def lockstep(question: MethodInput) -> Offer | Refusal:
    """Offer to simulate one rank of a textbook algorithm in which all keep step."""
    form, thresholds = question.form, question.budget.thresholds
    factor = 1 if form.task.is_single else BACK_TO_BACK_FACTOR
    sketch = sketched(form)
    if sketch is None:
        return Refusal("only textbook algorithms are checked for ranks that keep step")
    steps = sketch.together(thresholds.min_lockstep_steps * factor, thresholds.max_lockstep_spread)
    if steps is None:
        return Refusal("ranks do not keep step, or their steps are few")
    classes = standing(steps.symmetry)
    schedules = folded_textbook(form, classes)

    def run(bench: Bench, _: Solver) -> OneOperation:
        standalone = bench.standalone(schedules.schedule())
        ends = ends_of_all(form, standalone, steps.spread)
        program = standalone.program
        use = use_of(program, link_amounts(program), float(ends.max()))
        return OneOperation(standalone, ends + bench.launch.kernel, use)

    return Offer(run, schedules, sketch.rows(classes), sketch.ways(classes))
