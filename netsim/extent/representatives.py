"""Method: one representative of each class of equal ranks and channels is simulated; exact.

Ranks, channels, wires and NICs first form classes by their own properties (rates, faults, amounts
of data). Classes are then divided by what their members touch, until nothing changes: the coarsest
equitable partition. Members of a class have the same rate at all times. One row of each class is
simulated; on one wire of each class it draws what all rows of its class together draw on such a
wire.

How that is checked: the partition itself is the check (`program/partition.py`). A slow link, a
missing NIC or paths by hash make classes smaller, not the answer wrong; then more rows are
simulated.

Error: none (tests/nccl/test_folding.py compares every row and every link with the full simulation),
beyond that of equal heads.

    $ netsim expect dgx-h100 all_reduce --nodes 16 --sizes 1G --verbose
    all_reduce of 1 GiB: representatives: taken: 16,000 rows, exact
    …  1073741824  …  5809.21 us   (254,080 rows with --set fold=off)
"""

from __future__ import annotations

from netsim.extent.all_rows import offer_in_full, run_in_full
from netsim.extent.forms import textbook_representatives, written_form
from netsim.extent.result import RANKS_MAY_DIFFER, MethodInput, Offer, Refusal
from netsim.extent.sketches import sketched

NO_CLASSES = Refusal("no two ranks or channels are equal in everything that decides their time")


def representatives(question: MethodInput) -> Offer | Refusal:
    """Offer to simulate one member of each class of equal ranks and channels."""
    form = question.form
    budget = question.budget
    if form.task.is_nccl:
        if form.ring_rows < budget.thresholds.min_folded_ring_rows:
            return Refusal("it has few rows")
        with_representatives = written_form(form, budget)
        if with_representatives is form:
            return NO_CLASSES if form.may_fold else RANKS_MAY_DIFFER
        return offer_in_full(with_representatives, budget)
    sketch = sketched(form)
    if sketch is None:
        return NO_CLASSES if form.may_fold else RANKS_MAY_DIFFER
    classes = None
    if sketch.is_long(budget.thresholds.min_long_ring_rows):
        classes = sketch.representatives(budget.thresholds.max_partition_rounds)
    classes = classes or sketch.representatives()
    if not classes:
        return NO_CLASSES
    schedules = textbook_representatives(form, classes)
    return Offer(
        lambda bench, _: run_in_full(bench, schedules, budget),
        schedules,
        sketch.rows(classes),
        sketch.path_count(classes),
    )
