"""Whether a task fits into memory: its rows and bytes, estimated before anything is simulated.

Exact methods are asked for offers, which simulate nothing. The files of the methods that simulate a
part say how many rows their largest run has. Rows of NCCL's schedules are estimated before they are
written, so that a task which is far too large is refused at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from netsim.extent import memory
from netsim.extent.all_rows import all_rows
from netsim.extent.budget import USUAL_BUDGET, Budget
from netsim.extent.decisions import Decision, tell_decisions
from netsim.extent.distance import INCREMENTS
from netsim.extent.fewer_hops import is_extrapolated_from_hops, rows_of_longest_run
from netsim.extent.forms import Form, form_of, written_form
from netsim.extent.lockstep import lockstep
from netsim.extent.long_rings import long_rings
from netsim.extent.representatives import representatives
from netsim.extent.result import Method, MethodInput, Offer, Refusal, can_run_all_operations
from netsim.extent.rounds_of_sends import ROWS_PER_SEND, rows_of_first_runs
from netsim.extent.sketches import sketched
from netsim.extent.wide_instants import MAX_RUN_LOOPS, loops_in_wide_instants
from netsim.schedule.partition import written_share
from netsim.workloads.task import Task

EXACT_METHODS: tuple[Method, ...] = (lockstep, long_rings, representatives, all_rows)
FOLDING_METHODS: tuple[Method, ...] = (lockstep, long_rings, representatives)
EXACT_REMEDY = "; exact tasks, faults with times and noise of links need every row"
ROWS_UP_AND_DOWN = 7
"""Rows of each rank and step of a tree, of which few are equal."""


def why_not_fit(task: Task, budget: Budget) -> str:
    """The reason why a task does not fit, estimated from the least rows it can have; empty if it
    fits.
    """
    form = form_of(task, budget)
    if budget.is_exact:
        return _why_not_exactly(form, budget)
    if not task.is_nccl:
        size = textbook_size(task, budget)
        return "" if size is None else memory.misfit(*size, len(task.gpus))
    collective = form.collective
    plan = form.plans[0]
    loops = 1
    if collective.name == "alltoall" and collective.count:
        loops = form.loop_schedule.least
        runs = rows_of_first_runs(form, budget, INCREMENTS + 1)  # which it mostly takes
        if runs:
            bytes_needed = runs[-1] * memory.BYTES_A_ROW_IN_STEP
            reason = memory.misfit(runs[-1], bytes_needed, collective.ranks)
            return reason or memory.too_long(sum(runs), budget.thresholds.max_rows_of_sends)
    question = collective.name, collective.ranks, len(task.groups), plan.algorithm, loops
    if not memory.misfit_of_nccl(*question) or not collective.count:
        return ""
    if is_extrapolated_from_hops(form, budget):
        return ""
    share = written_share((form.with_representatives or form).extent.partition)
    return memory.misfit_of_nccl(*question, share)


def exact_decisions(task: Task, budget: Budget) -> list[Decision]:
    """A Decision for each exact method: whether it can time a task, and why."""
    question = MethodInput(form_of(task, budget), budget)
    decisions = []
    for method in EXACT_METHODS:
        if method.__name__ not in budget.excluded:
            offer = method(question)
            is_offer = isinstance(offer, Offer)
            reason = offer.words if isinstance(offer, Refusal) else "it can simulate the task"
            decisions.append(Decision(method.__name__.replace("_", " "), is_offer, reason))
    return decisions


def _why_not_exactly(form: Form, budget: Budget) -> str:
    """The reason why no exact method can time a form; empty if one can. Decisions go to the
    listener.
    """
    decisions = exact_decisions(form.task, budget)
    if any(decision.is_taken for decision in decisions):
        return ""
    tell_decisions(form.collective, decisions)
    return why_no_method(form, budget, decisions)


def why_no_method(form: Form, budget: Budget, decisions: Sequence[Decision]) -> str:
    """The reason why no method can time a form, as one sentence with its rows and bytes and what
    would fit.

    If the form is not too large, the reason of the last decision.
    """
    least_rows = max(form.ring_rows if form.task.is_nccl else 0, _rows_in_full(form))
    remedy = EXACT_REMEDY if budget.is_exact else ""
    bytes_per_row = memory.BYTES_A_ROW_OF_NCCL if form.task.is_nccl else memory.BYTES_A_ROW
    ranks = form.collective.ranks
    reason = memory.misfit(least_rows, least_rows * bytes_per_row, ranks)
    if not reason and form.task.is_nccl:
        rows = written_form(form, budget).loop_schedule.rows()
        reason = memory.misfit(rows, rows * memory.BYTES_A_ROW, ranks)
    manner = "simulated exactly" if budget.is_exact else "simulated"
    if reason:
        return f"too large to be {manner}: {reason}{remedy}"
    last = decisions[-1].reason if decisions else "no method is left"
    return f"cannot be {manner}: {last}{remedy}"


def textbook_size(task: Task, budget: Budget = USUAL_BUDGET) -> tuple[int, int] | None:
    """Rows and bytes of a textbook algorithm as it would be simulated; None if it cannot be
    sketched.
    """
    form = form_of(task, budget)
    for method in FOLDING_METHODS:
        offer = method(MethodInput(form, budget))
        if isinstance(offer, Offer):
            bytes_of_rows = offer.rows * memory.BYTES_A_ROW
            return offer.rows, bytes_of_rows + offer.paths * memory.BYTES_A_PATH
    sketch = sketched(form)
    if sketch is None:
        return None
    bytes_of_paths = sketch.path_count(None) * memory.BYTES_A_PATH
    return sketch.full, sketch.full * memory.BYTES_A_ROW + bytes_of_paths


def rows_in_full(task: Task, budget: Budget = USUAL_BUDGET) -> int:
    """A lower estimate of the rows of a task if nothing is left out; 0 if none is known."""
    return _rows_in_full(form_of(task, budget))


def _rows_in_full(form: Form) -> int:
    """A lower estimate of the rows of a form if nothing is left out; 0 if none is known."""
    if form.task.is_nccl:
        collective = form.collective
        return memory.least_rows_of_nccl(collective.name, collective.ranks, form.plans[0].algorithm)
    sketch = sketched(form)
    return 0 if sketch is None else sketch.full


# **** Bytes of the largest run ****


def nccl_bytes(task: Task, budget: Budget = USUAL_BUDGET) -> int:
    """An upper estimate of the bytes for the largest run of a task that NCCL runs."""
    return bytes_of_form(form_of(task, budget), budget)


def bytes_of_form(question: Form, budget: Budget) -> int:
    """An upper estimate of the bytes for the largest run of a form."""
    form = written_form(question, budget)
    bytes_per_row = _bytes_per_row(form)
    if form.ring_rows:
        return _bytes_of_rings(form, budget, bytes_per_row)
    rows_of_runs = rows_of_first_runs(question, budget, INCREMENTS + 3)
    if rows_of_runs:
        return memory.BYTES_A_ROW_IN_STEP * rows_of_runs[-1]
    rows_per_loop = _rows_per_loop(form)
    loops = loops_in_wide_instants(form, budget, rows_per_loop)
    if loops is None:
        loops = min(form.loop_schedule.loops, MAX_RUN_LOOPS)
    return _bytes(int(rows_per_loop * loops), bytes_per_row, form, budget)


def _bytes_per_row(form: Form) -> int:
    """The bytes of one row: more if ranks end at different times, as then more runs are made."""
    has_rows_apart = form.extent.partition is None or form.plans[0].transfers is not None
    if has_rows_apart and form.collective.ranks > memory.TOGETHER:
        return memory.BYTES_A_ROW_APART
    return memory.BYTES_A_ROW_IN_STEP


def _rows_per_loop(form: Form) -> float:
    """An estimate of the rows of one loop of all channels, for schedules other than rings."""
    plan = form.plans[0]
    ranks = form.collective.ranks
    if plan.transfers is not None:
        sends_to_all = form.collective.name in ("alltoall", "alltoallv")
        transfers_per_step = ranks * ranks if sends_to_all else ranks
    else:
        transfers_per_step = ranks * max(1, len(plan.work))
        if plan.algorithm == "Tree":
            transfers_per_step *= ROWS_UP_AND_DOWN
        elif plan.algorithm == "PAT":
            transfers_per_step *= max(1, ranks.bit_length())
    share = written_share(form.extent.partition)
    return len(form.task.groups) * ROWS_PER_SEND * transfers_per_step * share


def _bytes_of_rings(form: Form, budget: Budget, bytes_per_row: int) -> int:
    """An upper estimate of the bytes for the largest run of a form of rings."""
    rows = rows_of_longest_run(form, budget)
    thresholds = budget.thresholds
    if rows > thresholds.min_hop_fraction * thresholds.max_ring_rows:
        return bytes_per_row * rows
    return _bytes(rows, bytes_per_row, form, budget)


def _bytes(rows: int, bytes_per_row: int, form: Form, budget: Budget) -> int:
    """The bytes of a run of `rows` rows, with `bytes_per_row` each. They are more if all operations
    back to back may be simulated.
    """
    has_loops_to_spare = form.loop_schedule.has_loops_to_spare(budget)
    if not has_loops_to_spare and can_run_all_operations(form, rows, budget):
        bytes_per_row = max(bytes_per_row, memory.BYTES_A_ROW_TIMED)
    return rows * bytes_per_row
