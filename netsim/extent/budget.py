"""What a caller allows for the time of a task, and the thresholds at which methods begin and end.

`Budget` is what a scenario or a command decides: exact or not, representatives or not, the number
of rows to show. `Thresholds` are properties of the methods; tests replace some to force a method.
Each threshold has its unit and its reason, and, if there is one, the command that measures its
effect. `python -m tests.bench.methods` measures the effect of each method by leaving it out.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

import numpy as np

from netsim.base.values import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits at which one method takes over from another."""

    # **** Lockstep (lockstep.py) ****

    min_lockstep_steps: int = 1 << 26
    """Steps of all ranks together from which it is checked whether ranks keep step. Four times this
    number if operations run back to back, because ranks then fall out of step."""

    max_lockstep_spread: float = 1e-3
    """The largest difference between finish times of ranks in lockstep, as a fraction of the time
    of all steps."""

    # **** Long rings (long_rings.py) ****

    min_long_ring_rows: int = 200_000
    """Rows of a textbook ring from which its later steps are computed instead of simulated. Rings
    with fewer rows are simulated within a second."""

    max_partition_rounds: int = 24
    """Rounds of refinement within which classes of equal ranks must be found. If that takes more
    rounds, long rings are computed by sums, which is faster."""

    # **** All rows, representatives (all_rows.py, representatives.py) ****

    max_rows_in_full: float = 50_000
    """Rows up to which all loops are simulated without trying fewer: a tenth of a second."""

    min_folded_ring_rows: int = 0
    """Rows of rings from which representatives are used; for fewer rows, finding the
    representatives takes longer than simulating all rows."""

    # **** Fewer loops (fewer_loops.py) ****

    max_loop_fraction: float = 0.25
    """Loops of the largest run with fewer loops, as a fraction of all loops; longer runs save too
    little."""

    max_rows_of_loop_run: float = 30_000_000
    """Rows of the largest run with fewer loops: some 18 GB of memory."""

    min_equal_heads: float = 15_000
    """Loops times ranks of a task from which the heads of NVLSTree are given equal amounts of data
    (`python -m tests.bench.rounds 400 heads`)."""

    min_rows_for_pace: float = 1_000_000
    """Rows of all loops from which loops that do not recur are extrapolated at the rate of the last
    ones (`python -m tests.bench.rounds 400 loops`)."""

    max_pace_error: float = 1e-2
    """Largest relative difference between the rates of two runs for such an extrapolation, once no
    longer run is possible."""

    # **** Fewer hops (fewer_hops.py) ****

    max_ring_rows: float = 3_000_000
    """Rows of NCCL's rings above which they are extrapolated from chunks that travel a few hops."""

    doubtful_ring_factor: float = 2.0
    """Multiple of `max_ring_rows` up to which rings are simulated in full if a few hops state an
    error above `max_hop_error`."""

    min_hop_fraction: float = 2 / 3
    """Fraction of `max_ring_rows` from which a few hops are tried; below `max_ring_rows` they must
    agree to `agreement`, or the ring is simulated in full."""

    hop_distance: int = 8
    """The least number of hops by which two runs of a ring differ: the slots of a FIFO."""

    hop_tolerance: float = 0.05
    """Largest relative difference between the times that hops add, in runs of many hops (see the
    three limits below)."""

    far_hops: int = 100
    """Hops of a run from which the times that hops add may differ by `hop_tolerance` instead of
    `agreement`."""

    far_rows: float = 10_000_000
    """Rows of a run from which `hop_tolerance` holds as well, as longer runs take minutes."""

    far_ring_fraction: float = 0.125
    """Fraction of a ring's hops from which `hop_tolerance` holds as well."""

    max_hop_error: float = 1e-2
    """Largest relative error stated for rings of up to `doubtful_ring_factor`."""

    # **** Operations back to back (operations.py, one_operation.py, overlap.py) ****

    operation_counts: tuple[int, ...] = (3, 8)
    """Numbers of operations that are tried one after the other."""

    max_rows_of_fewest_operations: float = 30_000_000
    """Rows of the fewest operations above which only one is simulated."""

    max_rows_of_few_operations: float = 1_000_000
    """Rows of several operations up to which more of them are simulated even for a small gain in
    accuracy: ten seconds."""

    max_rows_of_several_operations: float = 8_000_000
    """Rows of the fewest operations up to which several operations of a tree are simulated instead
    of one; and rows of all operations up to which all loops are simulated if operations with fewer
    loops leave a large error."""

    max_rows_of_all_operations: float = 44_000_000
    """Rows of all operations that are timed up to which all of them may be simulated."""

    doubtful_error: float = 0.1
    """Error of an extrapolation from some operations above which more of them are simulated than
    usual, because a time with such an error is of little use."""

    max_rows_of_doubtful_operations: float = 50_000_000
    """Rows of operations up to which more are simulated if the error is above `doubtful_error`: a
    minute."""

    max_tree_loops: int = 32
    """Loops of a tree up to which one operation is taken for all
    (`python -m tests.bench.rounds 400 trees`)."""

    max_tree_spread: float = 0.05
    """The largest difference between finish times of ranks of such a tree, as a fraction of its
    time."""

    max_idle_fraction: float = 0.025
    """The fraction of an operation in which the busiest link is idle, up to which one operation is
    taken for all (`python -m tests.bench.rounds 700 busy`)."""

    max_error_of_large_runs: float = 0.025
    """Error above which further operations of many rows are simulated
    (`python -m tests.bench.rounds 500 operations`)."""

    agreement: float = 7.5e-3
    """Relative difference up to which two extrapolations agree."""

    negligible_launch_fraction: float = 0.1
    """The time of a launch, as a fraction of an operation, below which the launch is hidden behind
    the operation before it."""

    # **** Channels apart, rounds of sends, wide instants ****

    min_rows_for_channels: float = 10_000_000
    """Rows of a task from which it is computed which channels share links that can saturate. The
    computation itself takes seconds."""

    min_rows_of_sends: float = 10_000_000
    """Rows of sends to all from which they are extrapolated from their first rounds
    (`python -m tests.bench.rounds 90 rounds`)."""

    min_written_share: float = 0.125
    """Wide instants are used only if representatives leave at least this fraction of the rows."""

    max_rows_of_sends: float = 80_000_000
    """Rows of sends that meet on links above which a task is refused: a quarter of an hour."""

    min_crowded_rows: float = 1e8
    """Rows times GPUs of grouped sends from which rates are not solved at every event."""

    rows_of_wide_instants: int = 2_000_000
    """Rows that are simulated in wide instants: some twenty seconds."""

    wide_instant: float = 6e-9
    """Width of an instant, as a fraction of the time that the busiest link needs, for each row."""

    def without_limits_of_one_operation(self) -> Thresholds:
        """Thresholds with which every row of one operation is simulated."""
        return replace(self, max_rows_in_full=np.inf, max_ring_rows=np.inf)

    def without_limits(self) -> Thresholds:
        """Thresholds with which every row of every timed operation is simulated."""
        return replace(
            self.without_limits_of_one_operation(),
            max_rows_of_fewest_operations=np.inf,
            max_rows_of_loop_run=np.inf,
            max_rows_of_few_operations=np.inf,
            min_rows_for_pace=np.inf,
            max_rows_of_several_operations=np.inf,
            max_rows_of_all_operations=np.inf,
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """What a caller allows for the time of a task: exact or not, representatives or not, and the
    thresholds of methods.

    >>> budget_for(is_exact=True).is_exact
    True
    >>> Budget().with_thresholds(max_ring_rows=0).thresholds.max_ring_rows
    0
    """

    is_exact: bool = False
    """Whether nothing may be extrapolated."""
    may_fold: bool = True
    """Whether one member may be simulated for each class of equal ranks."""
    has_equal_hops: bool = False
    """Whether each hop of a long ring may be taken for the one before, even if ranks may not be
    taken for equal: with several queue pairs the path of a message depends on its number, but the
    next hosts repeat the pattern."""
    max_shown_rows: int = 4_000_000
    """Rows up to which traces and explanations show all of an operation."""
    excluded: frozenset[str] = frozenset()
    """The names of methods that are not asked."""
    thresholds: Thresholds = field(default_factory=Thresholds)

    def folds_groups(self, group_count: int) -> bool:
        """Whether equal ranks may be folded, which needs a task with a single communicator."""
        return self.may_fold and group_count == 1

    def with_thresholds(self, **changes: Any) -> Budget:
        """This budget with some thresholds replaced."""
        return replace(self, thresholds=replace(self.thresholds, **changes))

    @property
    def in_full(self) -> Budget:
        """This budget with thresholds by which every row of one operation is simulated."""
        return replace(self, thresholds=self.thresholds.without_limits_of_one_operation())


USUAL_BUDGET = Budget()
MIN_FOLDED_ROWS_IN_STEPS = 30_000
"""Rows of rings in training steps from which representatives are used; most are smaller."""


def budget_for(*, is_exact: bool, is_step: bool = False) -> Budget:
    """The budget of a cell, or with `is_step` of the collectives of a training step."""
    budget = USUAL_BUDGET
    if is_step:
        budget = budget.with_thresholds(min_folded_ring_rows=MIN_FOLDED_ROWS_IN_STEPS)
    if not is_exact:
        return budget
    return replace(budget, is_exact=True, thresholds=budget.thresholds.without_limits())
