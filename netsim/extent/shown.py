"""The rows of a task that are shown in traces and explanations, and whether two tasks have the same
rows.
"""

from __future__ import annotations

import numpy as np

from netsim.base.errors import InputError
from netsim.extent.all_rows import all_rows
from netsim.extent.budget import USUAL_BUDGET, Budget
from netsim.extent.distance import ring_distances
from netsim.extent.engine_runs import Bench
from netsim.extent.fewer_hops import is_extrapolated_from_hops
from netsim.extent.fit import FOLDING_METHODS, rows_in_full
from netsim.extent.forms import Form, LoopSchedule, form_of, written_form
from netsim.extent.long_rings import long_rings
from netsim.extent.representatives import representatives
from netsim.extent.result import Floats, MethodInput, Offer
from netsim.extent.steady_state import AGREE
from netsim.schedule.schedule import Schedule
from netsim.workloads.task import Task


def shown_schedule(task: Task, budget: Budget = USUAL_BUDGET) -> tuple[Schedule, str]:
    """The rows of an operation to show, and a note which rows these are; the note is empty if they
    are all.
    """
    form = form_of(task, budget)
    rows = rows_in_full(task, budget)
    if rows <= budget.max_shown_rows:
        return form.loop_schedule.schedule(), ""
    for method in (long_rings, representatives, all_rows):
        offer = method(MethodInput(form, budget.in_full))
        if isinstance(offer, Offer) and offer.schedule is not None:
            schedule = offer.schedule.schedule()
            note = offer.note
            break
    else:
        raise InputError(f"about {rows:.2g} rows are too many to show")
    if schedule.fold is not None and not note:
        shown_gpus = len(schedule.fold.leaders)
        note = f"those of {shown_gpus} GPUs are shown, which represent all {schedule.ranks}"
    return schedule, note and f"of about {rows:.2g} rows {note}"


def complete_schedule(task: Task, budget: Budget = USUAL_BUDGET) -> Schedule:
    """All rows of a task, with no representatives and no loop left out."""
    return form_of(task, budget).loop_schedule.schedule()


def row_count(task: Task, budget: Budget = USUAL_BUDGET) -> int:
    """An estimate of the number of rows of `complete_schedule`."""
    return form_of(task, budget).loop_schedule.rows()


def written_schedule(form: Form, budget: Budget = USUAL_BUDGET) -> LoopSchedule:
    """The schedule of a form as methods write it, by number of loops: with representatives where
    there are some.
    """
    if form.task.is_nccl:
        return written_form(form, budget).loop_schedule
    for method in FOLDING_METHODS:
        offer = method(MethodInput(form, budget))
        if isinstance(offer, Offer) and offer.schedule is not None:
            return offer.schedule
    return form.loop_schedule


# **** Tasks with equal rows ****


def are_same(first: Task, second: Task, budget: Budget = USUAL_BUDGET) -> bool:
    """Whether two tasks have the same rows. If they have many loops, a few of them are compared.

    Rings that are extrapolated from a few hops count as the same if runs of a few hops end at the
    same times: they differ in copies of a rank's own data, which take equally long for any number
    of hops.
    """
    forms = form_of(first, budget), form_of(second, budget)
    if all(is_extrapolated_from_hops(form, budget) for form in forms):
        min_step = budget.thresholds.hop_distance
        fewest = next(ring_distances(forms[0].collective, forms[0].plans[0], min_step))
        first_ends, second_ends = (_ends_of_hops(form, fewest, budget) for form in forms)
        has_same_shape = first_ends.shape == second_ends.shape
        return has_same_shape and np.allclose(first_ends, second_ends, AGREE, 0.0)
    schedules = [written_schedule(form, budget) for form in forms]
    loops = schedules[0].loops
    least = schedules[0].least
    if (loops, least) != (schedules[1].loops, schedules[1].least):
        return False
    compared_loops = least if schedules[0].has_loops_to_spare(budget) else loops
    return has_same_rows(*(schedule.schedule(compared_loops) for schedule in schedules))


def _ends_of_hops(form: Form, hops: int, budget: Budget) -> Floats:
    """By rank, its finish time in seconds if chunks travel `hops` hops."""
    bench = Bench(form.topology, form.task.gpus)
    shorter = form.without_empty_chunks[0].with_distance(hops)
    return bench.standalone(written_schedule(shorter, budget).schedule()).first


def has_same_rows(first: Schedule, second: Schedule) -> bool:
    """Whether two schedules are equal in everything that determines their time."""
    if first.styles != second.styles or first.lags != second.lags or len(first) != len(second):
        return False
    columns = zip(
        (*first.columns(), first.pieces.amount),
        (*second.columns(), second.pieces.amount),
        strict=True,
    )
    return all(np.array_equal(column, other_column) for column, other_column in columns)
