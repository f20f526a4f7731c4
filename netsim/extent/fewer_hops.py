r"""Method for NCCL's long rings: chunks travel over a few hosts, and what further hops add is
extrapolated.

Each rank of a ring does in every hop what it did in the hop before. All ranks are simulated, but
chunks travel over a few hosts only; runs at four distances, each longer by a host or more, show
what a hop adds. Chunks that are shorter than the others pass every rank as often as in the full
ring (`extent/distance.py`).

How that is checked: three increments (the time that a further hop adds) must agree to 0.75 %. From
100 hops, an eighth of the ring or ten million rows on, 5 % are enough. A ring of fewer than three
million rows whose increments do not agree is simulated in full. Rings over nodes with different
numbers of ranks are refused. Three operations back to back are simulated at two distances, to find
by how many seconds operations overlap.

The error bound is a sum:

- the difference between the increments, times the number of hops that are left out;
- the time of one hop, as the hop that closes the ring may differ from the others;
- all of the overlap that is extrapolated;
- the effect of empty chunks, which NCCL has before version 2.22.

The sum is doubled if connections have several queue pairs.

    $ netsim expect gh200-x4 all_reduce --nodes 128 --fabric dragonfly --algo Ring --proto LL128 \
          --sizes 64M --verbose
    all_reduce of 64 MiB: fewer hops: taken: 31 of 511 hops of rings: 80,896 rows, within 0.35%
    …  67108864  …  28974.5 us   (--exact: 29018.2 us of 5,237,248 rows, which is 0.15 % more)
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import numpy as np

from netsim.extent import steady_state
from netsim.extent.budget import Budget
from netsim.extent.distance import (
    INCREMENTS,
    extrapolate_distance,
    ring_distances,
    why_not_fewer_hops,
)
from netsim.extent.engine_runs import BackToBackRun, Bench
from netsim.extent.forms import Form, written_form
from netsim.extent.result import RANKS_MAY_DIFFER, MethodInput, Offer, Refusal, Result, Solver

# A factor for the stated error of rings whose ranks may differ, as queue pairs are hashed to paths.
# Of 50 randomly drawn rings, one has 1.5 times the error that is stated without this factor
# (`tests/extent/test_queue_pairs.py`).
ERROR_OF_UNEQUAL_RANKS = 2.0

MAX_DOUBTFUL_RANKS = 2
"""Ranks times the error of one hop from which rings may be simulated in full after all."""

TOO_DIFFERENT = Refusal("what a few hops add differs too much to extrapolate the others")


def fewer_hops(question: MethodInput) -> Offer | Refusal:
    """Offer to extrapolate a long ring of NCCL's from runs whose chunks travel over a few hosts."""
    form = written_form(question.form, question.budget)
    budget = question.budget
    thresholds = budget.thresholds
    if not (question.form.may_fold or budget.has_equal_hops):
        return RANKS_MAY_DIFFER
    if len(form.plans) != 1 or len(form.task.groups) != 1:
        return Refusal("only rings of a single communicator are extrapolated from a few hops")
    if reason := why_not_fewer_hops(form.collective, form.plans[0], thresholds.hop_distance):
        return Refusal(reason)
    if budget.is_exact:
        return Refusal("extrapolating hops is not exact")
    if form.ring_rows <= thresholds.min_hop_fraction * thresholds.max_ring_rows:
        return Refusal("its rings have few enough rows")
    return Offer(lambda bench, solver: _from_few_hops(bench, solver, question.form, budget))


def is_extrapolated_from_hops(form: Form, budget: Budget) -> bool:
    """Whether the rings of a form are extrapolated from a few hops."""
    if not form.task.is_nccl or "fewer_hops" in budget.excluded:
        return False
    return isinstance(fewer_hops(MethodInput(form, budget)), Offer)


def rows_of_longest_run(form: Form, budget: Budget) -> int:
    """An estimate of the rows in the longest run that this method usually needs for the rings of
    `form`.

    The result is all rows of the rings if the method is excluded, or if they are so few that they
    are simulated in full when increments do not agree.
    """
    thresholds = budget.thresholds
    rows = form.ring_rows
    ranks = form.collective.ranks
    most_rows = thresholds.max_ring_rows
    if ranks * thresholds.max_hop_error < MAX_DOUBTFUL_RANKS:
        most_rows *= thresholds.doubtful_ring_factor
    if rows <= most_rows or "fewer_hops" in budget.excluded:
        return rows
    distances = ring_distances(form.collective, form.plans[0], thresholds.hop_distance)
    far = far_distance(form, budget)
    first_far_distance = next((hops for hops in distances if hops > far), 0)
    rows_of_far_run = rows / ranks * first_far_distance
    return int(min(rows, max(thresholds.max_ring_rows, rows_of_far_run)))


def far_distance(form: Form, budget: Budget) -> float:
    """The number of hops beyond which increments may differ by `hop_tolerance`: the least of the
    three limits `far_hops`, `far_ring_fraction` and `far_rows`.
    """
    thresholds = budget.thresholds
    full = len(form.plans[0].node) - 1
    return min(
        thresholds.far_ring_fraction * full,
        thresholds.far_hops,
        full * thresholds.far_rows / form.ring_rows,
    )


def _from_few_hops(
    bench: Bench, solver: Solver, original: Form, budget: Budget
) -> Result | Refusal:
    """The result for a ring from runs of few hops: the time of one operation, less its overlap with
    the next.

    The overlap of operations back to back is simulated with the fewest hops that are compared and
    with the most (or with fewer, if the most have too many rows). Each further hop is taken to add
    the overlap, and the bytes on the links, that a hop between these two adds.
    """
    thresholds = budget.thresholds
    rows_in_full = written_form(original, budget).ring_rows
    is_small = rows_in_full <= thresholds.max_ring_rows  # simulated in full if hops do not agree
    original, uncertainty_of_form = original.without_empty_chunks
    form = written_form(original, budget)
    plan = form.plans[0]
    in_full = budget.with_thresholds(
        max_ring_rows=np.inf,
        max_rows_of_all_operations=thresholds.max_rows_of_few_operations,
        max_idle_fraction=0.0,
        max_error_of_large_runs=0.0,
    )
    seconds_by_hops: dict[int, float] = {}
    last_runs: dict[int, MethodInput] = {}
    written = _with_one_channel(bench, original, form, budget)

    def seconds_of(hops: int) -> float:
        for earlier in sorted(last_runs)[:-1]:  # the next run needs the memory
            del last_runs[earlier]
        shorter = MethodInput(written.with_distance(hops), in_full)
        operation = solver.one_operation(shorter)
        last_runs[hops] = replace(shorter, standalone=operation)
        seconds_by_hops[hops] = operation.seconds
        return operation.seconds

    distances = ring_distances(form.collective, plan, thresholds.hop_distance)
    full_distance = len(plan.node) - 1
    if is_small:
        nearest = thresholds.far_ring_fraction * full_distance
        distances = takewhile(lambda hops: hops <= nearest, distances)
    tolerances = min(thresholds.agreement, thresholds.hop_tolerance), thresholds.hop_tolerance
    far = far_distance(form, budget)
    full = extrapolate_distance(full_distance, distances, seconds_of, tolerances, far)
    if full is None:
        return TOO_DIFFERENT
    rows_of_fewest = thresholds.operation_counts[0] * last_runs[full.run].operation.rows
    is_many = rows_of_fewest > thresholds.max_rows_of_several_operations
    most_hops = min(last_runs) if is_many else max(last_runs)
    least_hops = sorted(seconds_by_hops)[-1 - INCREMENTS]
    last_run = last_runs[most_hops]
    last_runs.clear()
    result = solver.back_to_back(last_run)
    overlap = seconds_by_hops[most_hops] - result.seconds
    shortest = solver.time_of(MethodInput(written.with_distance(least_hops), in_full))
    overlap_of_shortest = seconds_by_hops[least_hops] - shortest.seconds
    overlap_per_hop = (overlap - overlap_of_shortest) / (most_hops - least_hops)
    further_overlap = overlap_per_hop * (full.full - most_hops)
    seconds = full.seconds - overlap - further_overlap
    uncertainty = abs(further_overlap) / seconds + uncertainty_of_form
    if is_small and full.uncertainty + uncertainty > thresholds.agreement:
        return TOO_DIFFERENT
    uncertainty += full.uncertainty + result.uncertainty * result.seconds / seconds
    if not original.may_fold:
        uncertainty *= ERROR_OF_UNEQUAL_RANKS
    doubtful_rows = thresholds.doubtful_ring_factor * thresholds.max_ring_rows
    if uncertainty > thresholds.max_hop_error and rows_in_full <= doubtful_rows:
        return TOO_DIFFERENT
    use = replace(result.use, amount=result.use.amount * (full.full / most_hops))
    return replace(
        result,
        use=use,
        seconds=seconds,
        hops=most_hops,
        approximation=f"{full.run} of {full.full} hops of rings",
        uncertainty=uncertainty,
        slowest=seconds * result.slowest / result.seconds,
    )


def _with_one_channel(bench: Bench, original: Form, form: Form, budget: Budget) -> Form:
    """`original` with one channel for all channels that share no link which can saturate, if
    several operations of it with the fewest hops end at the same times as those of `form`;
    otherwise `form`.
    """
    thresholds = budget.thresholds
    fewest = next(ring_distances(form.collective, form.plans[0], thresholds.hop_distance))
    one_channel = original.with_distance(fewest).with_fewer_channels
    if one_channel is None:
        return form

    def finish_times(written: Form) -> np.ndarray:
        run = bench.standalone(written.loop_schedule.schedule())
        back_to_back = BackToBackRun(run, form.task.launch, bench.engine)
        ends, _ = back_to_back.ends(thresholds.operation_counts[0])
        last_of_operation: np.ndarray = ends.max(axis=1)
        return last_of_operation

    times_of_one = finish_times(one_channel)
    times_of_all = finish_times(form.with_distance(fewest))
    if np.allclose(times_of_one, times_of_all, rtol=steady_state.AGREE, atol=0):
        return one_channel
    return form
